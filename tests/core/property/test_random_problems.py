"""What must hold for every design and problem, on random small ones."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from jointleaf._core import design as design_module
from jointleaf._core.design import LeafDesign
from jointleaf._core.fitting import fit_cells
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Frobenius
from jointleaf._data.rows import canonical_rows
from reference import ReferenceDesign

quick = settings(deadline=None, max_examples=25, derandomize=True)

shapes = st.fixed_dictionaries(
    {
        "n": st.integers(1, 40),
        "d": st.integers(1, 4),
        "cells": st.lists(st.integers(1, 5), min_size=1, max_size=5),
        "seed": st.integers(0, 10_000),
    }
)
kinds = st.sampled_from(["linear", "constant", "mixed"])
forms = st.sampled_from(["plain", "merged", "dense"])
strengths = st.floats(1e-2, 10.0)
positive = st.floats(0.1, 10.0)


def kinds_of(kind, shape):
    """The kind of every partition: "mixed" ones are drawn."""
    if kind != "mixed":
        return kind
    rng = np.random.default_rng(shape["seed"])
    return rng.choice(["linear", "constant"], len(shape["cells"])).tolist()


@quick
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["linear", "constant"])), min_size=1),
    st.integers(0, 4),
    st.sampled_from([(), (1,), (3,)]),
)
def test_layouts_split_and_join_weights(partitions, d, outputs):
    sizes, kinds = zip(*partitions, strict=True)
    layout = CellLayout(sizes, d, kinds)
    theta = np.random.default_rng(0).standard_normal((layout.n_weights, *outputs))
    slopes, biases = layout.split(theta)
    assert slopes.shape == (layout.n_linear_cells, d, *outputs)
    assert biases.shape == (layout.n_cells, *outputs)
    assert np.shares_memory(biases, theta)
    assert slopes.size == 0 or np.shares_memory(slopes, theta)
    np.testing.assert_array_equal(layout.join(slopes, biases), theta)
    np.testing.assert_array_equal(layout.from_cells(layout.by_cell(theta)), theta)
    assert sum(size for size, kind in partitions if kind == "linear") == layout.n_linear_cells
    padded = np.concatenate([slopes, np.zeros((1, *slopes.shape[1:]))])[layout.slope_rows]
    np.testing.assert_array_equal(padded[layout.linear_cells], slopes)
    assert not np.delete(padded, layout.linear_cells, axis=0).any()


@quick
@given(shapes, kinds, forms, st.floats(0, 0.5), st.sampled_from([(), (2,)]))
def test_design_equals_the_reference_and_its_adjoint(make_case, shape, kind, form, gone, outputs):
    case = make_case(**shape, missing=gone)
    fast = LeafDesign(case.X, case.codes, shape["cells"], cells=kinds_of(kind, shape))
    if form != "plain":
        entries = 2**17 if form == "dense" else 0
        with mock.patch.object(design_module, "_DENSE_ENTRIES", entries):
            fast.merge_partitions()
    reference = ReferenceDesign(case.X, case.codes, shape["cells"], cells=kinds_of(kind, shape))
    rng = np.random.default_rng(shape["seed"])
    theta = rng.standard_normal((fast.layout.n_weights, *outputs))
    r = rng.standard_normal((shape["n"], *outputs))
    f, G = fast.matvec(theta), fast.rmatvec(r)
    np.testing.assert_allclose(f, reference.matvec(theta), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(G, reference.rmatvec(r), rtol=1e-9, atol=1e-9)
    assert np.vdot(f, r) == pytest.approx(np.vdot(theta, G), rel=1e-8, abs=1e-8)
    grams, gram = reference.cell_grams(case.s), reference.bias_gram(case.s)
    np.testing.assert_allclose(fast.cell_grams(case.s), grams, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.triu(fast.bias_gram(case.s)), np.triu(gram), atol=1e-9)


@quick
@given(shapes, kinds, strengths, st.one_of(st.just(0.0), strengths))
def test_solvers_agree_on_squared_error(make_case, shape, kind, strength, bias_strength):
    case = make_case(**shape)
    found = [
        fit_cells(
            *case.data,
            cells=kinds_of(kind, shape),
            penalty=Frobenius(strength, bias_strength),
            sample_weight=case.s,
            solver=solver,
            tol=1e-8,
            max_iter=20_000,
        )
        for solver in ("dual", "pcg", "newton", "fista")
    ]
    for solution in found:
        assert solution.converged, solution.message
        assert solution.objective == pytest.approx(found[0].objective, rel=1e-6, abs=1e-9)


@quick
@given(shapes, kinds, strengths, strengths, st.sampled_from(["logistic", "multinomial"]))
def test_solvers_agree_on_classes(make_case, shape, kind, strength, bias_strength, loss):
    case = make_case(loss, **shape)
    y = case.y.copy()
    y[0] = 1 if loss == "logistic" else 2  # at least two classes, numbered from 0
    found = [
        fit_cells(
            case.X,
            case.codes,
            y,
            loss=loss,
            cells=kinds_of(kind, shape),
            penalty=Frobenius(strength, bias_strength),
            sample_weight=case.s,
            solver=solver,
            max_iter=20_000,
        )
        for solver in ("dual", "newton", "fista")
    ]
    for solution in found:
        assert solution.converged, solution.message
        assert solution.objective == pytest.approx(found[0].objective, rel=1e-6)


@quick
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(1, 2),
    positive,
    st.floats(0.0, 10.0),
    positive,
    st.integers(0, 10_000),
)
def test_prox_of_frobenius_is_the_minimiser(cells, d, strength, bias_strength, step, seed):
    rng = np.random.default_rng(seed)
    layout = CellLayout(tuple(cells), d)
    v, u = rng.uniform(0.2, 3, d), rng.uniform(0.2, 3, len(cells))
    penalty = Frobenius(strength, bias_strength, v, u).bind(layout)
    theta = rng.standard_normal(layout.n_weights)

    def objective(z):
        return 0.5 * np.sum((z - theta) ** 2) + step * penalty.value(z)

    found = minimize(objective, np.zeros(theta.size), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(penalty.prox(theta, step), found.x, atol=1e-4)
    assert objective(penalty.prox(theta, step)) <= found.fun + 1e-12


@quick
@given(st.integers(1, 60), st.integers(1, 3), st.integers(0, 10_000))
def test_canonical_rows_keep_weights_and_forget_order(n, d, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 3, (n, d)).astype(float), rng.integers(0, 2, n).astype(float)
    s = rng.integers(0, 4, n).astype(float)
    s[0] = 1.0
    one, order = canonical_rows(X, y, s), rng.permutation(n)
    other = canonical_rows(X[order], y[order], s[order])
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.s, other.s)
    assert one.s.sum() == s.sum()
    assert one.s @ one.X[:, 0] == s @ X[:, 0]
    assert len(np.unique(np.column_stack([one.X, one.y]), axis=0)) == len(one)
