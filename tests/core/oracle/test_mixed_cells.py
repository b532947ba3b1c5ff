"""Linear and constant partitions in one joint fit, against dense oracles."""

import cvxpy as cp
import numpy as np
import pytest

from jointleaf import L21, DirtyLasso, Frobenius, Nuclear, fit_cells, fit_tasks, strength_path
from reference import ReferenceDesign

KINDS = [("linear", "constant", "linear"), ("constant", "linear", "constant")]
LOSSES = ("squared_error", "logistic", "multinomial")
TIGHT = {"tol": 1e-9, "max_iter": 20_000}

each_kinds = pytest.mark.parametrize("kinds", KINDS, ids=["".join(k[0] for k in K) for K in KINDS])


def _curvature(layout, penalty):
    """D of a Frobenius penalty, by hand."""
    u = penalty.partition_weights
    u = np.ones(layout.n_partitions) if u is None else u
    v = np.ones(layout.n_features) if penalty.feature_weights is None else penalty.feature_weights
    slopes = [penalty.strength / v / u[layout.partition_of_cell[c]] for c in layout.linear_cells]
    return np.concatenate([*slopes, penalty.bias_strength / u[layout.partition_of_cell]])


@each_kinds
@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
@pytest.mark.parametrize("bias_strength", [0.03, 0.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_is_that_of_the_normal_equations(kinds, solver, bias_strength, weighted, make_case):
    case = make_case()
    v, u = ([0.5, 2.0, 1.0], [1.0, 3.0, 0.4]) if weighted else (None, None)
    penalty = Frobenius(0.05, bias_strength, v, u)
    reference = ReferenceDesign(case.X, case.codes, cells=kinds)
    phi, s = reference.to_dense(), case.s / case.s.sum()
    normal = phi.T @ (s[:, None] * phi) + np.diag(_curvature(reference.layout, penalty))
    theta = np.linalg.lstsq(normal, phi.T @ (s * case.y), rcond=1e-12)[0]
    solution = fit_cells(
        *case.data, cells=kinds, penalty=penalty, solver=solver, sample_weight=case.s, **TIGHT
    )
    assert solution.converged
    np.testing.assert_allclose(solution.predict(case.X, case.codes), phi @ theta, atol=1e-6)
    if bias_strength:
        np.testing.assert_allclose(solution.theta, theta, atol=1e-6)


@each_kinds
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["frobenius", "l21", "nuclear"])
def test_cvxpy_finds_the_same_minimum(kinds, loss, name, make_case):
    case = make_case(loss, n=40, d=3, cells=(2, 3, 2))
    reference = ReferenceDesign(case.X, case.codes, cells=kinds)
    phi, layout = reference.to_dense(), reference.layout
    K, cut = (3 if loss == "multinomial" else 1), layout.n_linear_cells * 3
    slopes = [cp.Variable((layout.n_linear_cells, 3)) for _ in range(K)]
    biases = [cp.Variable(layout.n_cells) for _ in range(K)]
    columns = [
        phi[:, :cut] @ cp.vec(W, order="C") + phi[:, cut:] @ b
        for W, b in zip(slopes, biases, strict=True)
    ]
    f = cp.vstack(columns).T
    by_feature = cp.hstack([W.T for W in slopes])
    if name == "frobenius":
        penalty, cost = Frobenius(0.02, 0.01), 0.01 * cp.sum_squares(by_feature)
    elif name == "l21":
        penalty, cost = L21(0.02, 0.01), 0.02 * cp.sum(cp.norm(by_feature, 2, axis=1))
    else:
        penalty, cost = Nuclear(0.02, 0.01), 0.02 * cp.normNuc(by_feature)
    cost += 0.005 * sum(cp.sum_squares(b) for b in biases)
    if loss == "squared_error":
        losses = cp.square(f[:, 0] - case.y) / 2
    elif loss == "logistic":
        losses = cp.logistic(-cp.multiply(case.y, f[:, 0]))
    else:
        losses = cp.log_sum_exp(f, axis=1) - cp.sum(cp.multiply(np.eye(3)[case.y], f), axis=1)
    peer = cp.Problem(cp.Minimize(cp.sum(losses) / 40 + cost))
    peer.solve(solver=cp.CLARABEL)
    assert peer.status == cp.OPTIMAL
    solvers = {"squared_error": ("dual", "pcg", "newton", "fista")}
    solvers = solvers.get(loss, ("dual", "newton", "fista")) if name == "frobenius" else ("fista",)
    for solver in solvers:
        solution = fit_cells(
            *case.data, loss=loss, cells=kinds, penalty=penalty, solver=solver, **TIGHT
        )
        assert solution.converged
        assert solution.objective == pytest.approx(peer.value, rel=1e-6)
        fitted = solution.predict(case.X, case.codes).reshape(f.shape)
        np.testing.assert_allclose(fitted, f.value, rtol=0, atol=1e-3)


@each_kinds
@pytest.mark.parametrize("loss", LOSSES)
def test_constant_partitions_are_linear_ones_whose_slopes_are_forced_to_zero(
    kinds, loss, make_case
):
    case = make_case(loss)
    mixed = fit_cells(*case.data, loss=loss, cells=kinds, penalty=Frobenius(0.05, 0.02), **TIGHT)
    # u multiplies 1 / strength: slopes of constant partitions are held at zero, biases are not.
    held, free = 1e-9, 1.0
    weights = np.array([free if kind == "linear" else held for kind in kinds])
    columns = np.flatnonzero(weights == held)
    codes = np.hstack([case.codes, case.codes[:, columns]])
    linear = fit_cells(
        case.X,
        codes,
        case.y,
        loss=loss,
        cells=("linear",) * 3 + ("constant",) * len(columns),
        penalty=Frobenius(0.05, 0.02, partition_weights=np.append(weights, np.ones(len(columns)))),
        **TIGHT,
    )
    np.testing.assert_allclose(
        linear.predict(case.X, codes), mixed.predict(case.X, case.codes), atol=1e-6
    )
    assert linear.objective == pytest.approx(mixed.objective, rel=1e-6)


@each_kinds
def test_float32_rows_in_no_cell_and_cells_without_rows(kinds, make_case):
    case = make_case()
    penalty = Frobenius(0.05, 0.02)
    options = {"cells": kinds, "penalty": penalty, "n_cells": (6, 4, 5)}
    solution = fit_cells(*case.data, **options)
    empty = [4, 5, 9]
    np.testing.assert_array_equal(solution.intercept[empty], 0)
    rows = solution.layout.slope_rows[empty]
    np.testing.assert_array_equal(solution.coef[rows[rows < len(solution.coef)]], 0)
    codes = case.codes.copy()
    codes[:, 1] = -1
    expected = solution.predict(case.X, case.codes) - fit_part(solution, case, 1)
    np.testing.assert_allclose(solution.predict(case.X, codes), expected, atol=1e-10)
    rough = fit_cells(case.X.astype(np.float32), case.codes, case.y, solver="pcg", **options)
    assert rough.coef.dtype == np.float32
    np.testing.assert_allclose(rough.theta, solution.theta, atol=1e-3)


def fit_part(solution, case, partition):
    """What one partition adds to predictions."""
    cells = solution.layout.offsets[partition] + case.codes[:, partition]
    slopes = np.concatenate([solution.coef, np.zeros((1, 3))])[solution.layout.slope_rows[cells]]
    return (slopes * case.X).sum(axis=1) + solution.intercept[cells]


@each_kinds
def test_a_path_of_strengths_ends_where_its_fits_do(kinds, make_case):
    case = make_case(n=80, d=12)
    path = strength_path(
        *case.data, penalty=L21(1.0), cells=kinds, n_strengths=5, tol=1e-7, max_iter=20_000
    )
    assert path.n_selected[0] == 0
    assert path.n_selected[-1] > 0
    for strength, found in zip(path.strengths, path.solutions, strict=True):
        alone = fit_cells(*case.data, penalty=L21(strength), cells=kinds, **TIGHT)
        assert found.objective == pytest.approx(alone.objective, rel=1e-6)


def test_tasks_of_mixed_cells_are_fitted_together(make_case):
    tasks = [make_case(n=60, d=4, cells=(2, 3), seed=seed).data for seed in (0, 1)]
    cells = ("constant", "linear")
    apart = [fit_cells(*task, penalty=Frobenius(0.1, 0.05), cells=cells, **TIGHT) for task in tasks]
    ridge = fit_tasks(tasks, penalty=Frobenius(0.1, 0.05), cells=cells, **TIGHT)
    for task, alone in zip(ridge.tasks, apart, strict=True):
        np.testing.assert_allclose(task.theta, alone.theta, atol=1e-6)
    dirty = fit_tasks(tasks, penalty=DirtyLasso(0.05, 0.04), cells=cells, **TIGHT)
    assert dirty.converged
    assert [task.coef.shape for task in dirty.tasks] == [(3, 4), (3, 4)]
    again = fit_tasks(
        tasks, penalty=DirtyLasso(0.05, 0.04), cells=cells, init=dirty.theta + 1.0, **TIGHT
    )
    np.testing.assert_allclose(again.tasks[0].coef, dirty.tasks[0].coef, atol=1e-6)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("lines", "cells='lines' is not known: use 'linear' or 'constant'"),
        (("linear", "lines"), "cells='lines' is not known: use 'linear' or 'constant'"),
        (
            ("linear",),
            "cells has 1 words for 3 partitions: use 'linear', 'constant', or a sequence",
        ),
    ],
)
def test_wrong_cells_are_told_in_one_sentence(cells, message, make_case):
    case = make_case()
    for fit in (
        lambda: fit_cells(*case.data, cells=cells),
        lambda: strength_path(*case.data, penalty=L21(1.0), cells=cells),
        lambda: fit_tasks([case.data], penalty=L21(1.0), cells=cells),
    ):
        with pytest.raises(ValueError, match=message):
            fit()
