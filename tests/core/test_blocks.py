"""Rows in blocks, in memory and in files: the same answers as all rows at once."""

import tracemalloc

import numpy as np
import pytest

from jointleaf._core import design as design_module
from jointleaf._core.blocks import BlockDesign, StoredDesigns
from jointleaf._core.design import LeafDesign
from jointleaf._core.fitting import fit_cells
from jointleaf._core.losses import make_loss
from jointleaf._core.penalties import L21, Frobenius, Laplacian
from jointleaf._core.problem import Problem
from jointleaf._core.row_vectors import RowVector
from jointleaf._core.solvers.base import choose_solver, solve

N_CELLS = (4, 3, 5, 2)
KINDS = ("linear", "constant", "linear", "linear")
BLOCKS = {1: [], 3: [70, 71], 8: [0, 40, 40, 100, 101, 180, 300]}  # bounds: some have no rows
TIGHT = {"tol": 1e-11, "max_iter": 20_000}


@pytest.fixture
def case(make_case):
    return make_case(n=300, d=10, cells=N_CELLS)


@pytest.fixture(params=["memory", "files"])
def place(request):
    return request.param


@pytest.fixture(params=["merged", "dense"])
def form(request, monkeypatch):
    if request.param == "merged":
        monkeypatch.setattr(design_module, "_DENSE_ENTRIES", 0)
    return request.param


def gathered(values):
    return values.gather() if isinstance(values, RowVector) else values


def make_blocks(place, folder, X, codes, bounds, cells=KINDS):
    """The design of rows that are split at bounds."""
    designs = [
        LeafDesign(rows, cell_codes, N_CELLS, cells=cells)
        for rows, cell_codes in zip(np.split(X, bounds), np.split(codes, bounds), strict=True)
    ]
    if place == "memory":
        return BlockDesign(designs)
    stored = StoredDesigns(folder)
    for design in designs:
        stored.append(design)
    return BlockDesign(stored)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_blocks", BLOCKS)
def test_products_equal_those_of_all_rows(case, tmp_path, place, form, dtype, n_blocks):
    X, h = case.X.astype(dtype), case.s
    whole = LeafDesign(X, case.codes, N_CELLS, cells=KINDS)
    blocks = make_blocks(place, tmp_path, X, case.codes, BLOCKS[n_blocks]).merge_partitions()
    rng = np.random.default_rng(0)
    features = np.array([1, 4, 7])
    pairs = [
        (whole, blocks),
        (whole.with_features(features), blocks.with_features(features)),
        (whole.with_features(features[:0]), blocks.with_features(features[:0])),
        (whole.linear_partitions(), blocks.linear_partitions()),
        (whole.in_double(), blocks.in_double()),
    ]
    for one, other in pairs:
        layout = one.layout
        assert (other.layout, other.dtype, other.n_rows) == (layout, one.dtype, 300)
        assert other.n_row_features == one.n_row_features == 10
        assert other.largest_value == one.largest_value
        theta, r = rng.standard_normal((layout.n_weights, 2)), rng.standard_normal((300, 2))
        biases = layout.split(theta)[1]
        tol = {"rtol": 1e-10, "atol": 1e-10} if one.dtype == float else {"rtol": 1e-4, "atol": 1e-4}
        for product, argument in [
            ("matvec", theta),
            ("matvec", theta[:, 0]),
            ("rmatvec", r),
            ("rmatvec", r[:, 0]),
            ("bias_matvec", biases),
            ("bias_rmatvec", r),
            ("cell_grams", h),
            ("cell_mass", h),
            ("cell_diagonals", h),
        ]:
            expected, got = getattr(one, product)(argument), getattr(other, product)(argument)
            got = gathered(got)
            assert got.dtype == expected.dtype, product
            np.testing.assert_allclose(got, expected, **tol, err_msg=product)
        for v in (theta, theta[:, 0]):
            np.testing.assert_allclose(
                other.gram_product(h, v), one.rmatvec((h * one.matvec(v).T).T), **tol
            )
        np.testing.assert_allclose(gathered(other.squared_norms()), one.squared_norms(), rtol=1e-6)
        for weights in (h, None):
            expected, got = one.bias_gram(weights), other.bias_gram(weights)
            np.testing.assert_allclose(np.triu(got), np.triu(expected), rtol=1e-10)


@pytest.fixture(scope="module")
def whole_fits():
    """Fits of all rows at once, by loss and penalty."""
    return {}


@pytest.mark.parametrize(
    "penalty", [Frobenius(0.02, 0.01), L21(0.05, 0.05)], ids=["frobenius", "l21"]
)
@pytest.mark.parametrize("loss", ["squared_error", "logistic", "multinomial"])
@pytest.mark.parametrize(("place", "n_blocks"), [*(("memory", k) for k in BLOCKS), ("files", 3)])
def test_a_fit_in_blocks_equals_the_fit_of_all_rows(
    make_case, tmp_path, place, n_blocks, loss, penalty, whole_fits
):
    case = make_case(loss, n=300, d=10, cells=N_CELLS)
    key = loss, type(penalty)
    if key not in whole_fits:
        given = {"loss": loss, "penalty": penalty, "sample_weight": case.s, "cells": KINDS}
        whole_fits[key] = fit_cells(*case.data, **given, n_cells=N_CELLS, **TIGHT)
    expected = whole_fits[key]
    blocks = make_blocks(place, tmp_path, case.X, case.codes, BLOCKS[n_blocks])
    problem = Problem(blocks, case.y, make_loss(loss), penalty, case.s)
    solution = solve(problem, **TIGHT)
    quadratic = "pcg" if loss == "squared_error" else "newton"
    assert solution.solver == (quadratic if isinstance(penalty, Frobenius) else "fista")
    assert solution.converged
    assert solution.objective == pytest.approx(expected.objective, rel=1e-8)
    f = expected.predict(case.X, case.codes)
    got = solution.predict(case.X, case.codes)
    np.testing.assert_allclose(got, f, rtol=1e-6, atol=1e-6 * np.abs(f).max())


def test_the_same_blocks_in_memory_and_in_files_give_the_same_bits(case, tmp_path):
    solutions = []
    for place in ("memory", "files"):
        blocks = make_blocks(place, tmp_path, case.X, case.codes, BLOCKS[3])
        problem = Problem(blocks, case.y, make_loss("squared_error"), Frobenius(0.02, 0.01))
        solutions.append(solve(problem))
    np.testing.assert_array_equal(solutions[0].theta, solutions[1].theta)


def test_solvers_that_need_all_rows_at_once_say_so(case):
    blocks = make_blocks("memory", None, case.X, case.codes, BLOCKS[3])
    squared = make_loss("squared_error")
    problem = Problem(blocks, case.y, squared, Frobenius(0.02, 0.01))
    with pytest.raises(ValueError, match=r"all rows at once.*blocks: use solver='pcg'"):
        choose_solver(problem, "dual")
    with pytest.raises(ValueError, match=r"Laplacian.*all rows at once.*use a penalty on weights"):
        Problem(blocks, case.y, squared, Laplacian(0.1) + Frobenius(0.1))


def test_blocks_must_have_the_same_cells(case):
    with pytest.raises(ValueError, match="designs is empty"):
        BlockDesign([])
    designs = [LeafDesign(case.X, case.codes, N_CELLS, cells=k) for k in ("linear", "constant")]
    with pytest.raises(ValueError, match=r"designs\[1\] differs from designs\[0\]"):
        BlockDesign(designs)


def test_one_block_of_files_is_in_memory_at_a_time(tmp_path):
    rng = np.random.default_rng(0)
    stored = StoredDesigns(tmp_path)
    for _ in range(6):
        X, codes = rng.standard_normal((4000, 30)), rng.integers(0, 9, (4000, 10))
        stored.append(LeafDesign(X, codes, (9,) * 10))
    blocks = BlockDesign(stored)
    theta = rng.standard_normal(blocks.layout.n_weights)
    r = blocks.matvec(theta)
    blocks.rmatvec(r)
    tracemalloc.start()
    blocks.rmatvec(r)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    n_bytes = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert n_bytes > 6 * 4000 * 31 * 8
    assert peak < 0.5 * n_bytes / 6  # arrays are views of the mapped file
