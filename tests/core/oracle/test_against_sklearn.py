"""Joint fits against scikit-learn, where the two solve the same problem."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import OneHotEncoder

from jointleaf._core.fitting import fit_cells
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Frobenius
from jointleaf._core.solvers.dual import shared_cells, times_column_kernel

STRENGTH = 0.03


def _total_strength(case, weights):
    """scikit-learn adds losses up where jointleaf takes their mean: n times the strength."""
    return STRENGTH * (len(case.y) if weights is None else weights.sum())


@pytest.fixture(params=["equal_weights", "sample_weights"])
def weights_of(request):
    return (lambda case: None) if request.param == "equal_weights" else (lambda case: case.s)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_one_cell_is_ridge(solver, weights_of, make_case):
    case = make_case(cells=(1,))
    weights = weights_of(case)
    ridge = Ridge(alpha=_total_strength(case, weights), solver="cholesky", tol=1e-12)
    ridge.fit(case.X, case.y, weights)
    solution = fit_cells(
        *case.data,
        penalty=Frobenius(STRENGTH, 0),
        solver=solver,
        sample_weight=weights,
        tol=1e-10,
        max_iter=5000,
    )
    np.testing.assert_allclose(solution.coef[0], ridge.coef_, rtol=1e-7)
    np.testing.assert_allclose(solution.intercept[0], ridge.intercept_, rtol=1e-7)


@pytest.mark.parametrize("solver", ["newton", "fista"])
@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_one_cell_is_logistic_regression(solver, loss, weights_of, make_case):
    case = make_case(loss, cells=(1,))
    weights = weights_of(case)
    C = 1 / _total_strength(case, weights)
    model = LogisticRegression(C=C, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(case.X, case.y, weights)
    solution = fit_cells(
        *case.data,
        loss=loss,
        penalty=Frobenius(STRENGTH, 0),
        solver=solver,
        sample_weight=weights,
        tol=1e-9,
        max_iter=5000,
    )
    coef, intercept = solution.coef[0], solution.intercept[0]
    if loss == "multinomial":  # free biases are found up to a constant
        intercept = intercept - intercept.mean() + model.intercept_.mean()
        np.testing.assert_allclose(coef, model.coef_.T, rtol=1e-5, atol=1e-7)
    else:
        np.testing.assert_allclose(coef, model.coef_[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(intercept, model.intercept_.squeeze(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_constant_cells_are_ridge_on_one_hot_cells(solver, weights_of, make_case):
    case = make_case()
    weights = weights_of(case)
    hot = OneHotEncoder(sparse_output=False).fit_transform(case.codes)
    ridge = Ridge(alpha=_total_strength(case, weights), fit_intercept=False, solver="cholesky")
    ridge.fit(hot, case.y, weights)
    solution = fit_cells(
        *case.data,
        cells="constant",
        penalty=Frobenius(9.0, STRENGTH),
        solver=solver,
        sample_weight=weights,
        tol=1e-10,
        max_iter=5000,
    )
    assert solution.coef.shape == (0, case.X.shape[1])
    np.testing.assert_allclose(solution.intercept, ridge.coef_, rtol=1e-7, atol=1e-9)


def test_joint_fit_is_kernel_ridge_also_for_new_rows(weights_of, make_case):
    case, new = make_case(), make_case(n=30, seed=1, missing=0.2)
    weights = weights_of(case)
    penalty = Frobenius(STRENGTH, 0.2, [0.5, 1.0, 4.0], [1.0, 3.0, 0.7])
    layout = CellLayout((4, 3, 5), 3)

    def kernel(one, other):
        meet = [one.codes[:, [p]] == other.codes[:, p] for p in range(3)]
        M = np.tensordot(penalty.partition_weights, meet, axes=1)
        G = (one.X * penalty.feature_weights) @ other.X.T / STRENGTH + 1 / 0.2
        return M * G

    total = len(case.y) if weights is None else weights.sum()
    peer = KernelRidge(kernel="precomputed", alpha=total).fit(kernel(case, case), case.y, weights)
    solution = fit_cells(*case.data, penalty=penalty, sample_weight=weights, solver="dual")
    expected = peer.predict(kernel(new, case))
    np.testing.assert_allclose(solution.predict(new.X, new.codes), expected, rtol=1e-7, atol=1e-9)

    cells, new_cells = case.codes + layout.offsets[:-1], new.codes + layout.offsets[:-1]
    new_cells[new.codes < 0] = layout.n_cells
    shared = shared_cells(new_cells, cells, layout, penalty.partition_weights)
    rows, new_rows = (np.column_stack([one.X, np.ones(len(one.X))]) for one in (case, new))
    strengths = penalty.column_strengths(layout)
    product = times_column_kernel(shared, new_rows, rows, strengths)
    np.testing.assert_allclose(product, kernel(new, case), rtol=1e-12, atol=1e-12)


def test_kernel_in_parts_equals_the_whole(make_case, monkeypatch):
    case = make_case(cells=(4, 3, 5, 2))
    layout = CellLayout((4, 3, 5, 2), 3)
    cells = case.codes + layout.offsets[:-1]
    whole = shared_cells(cells, cells, layout)
    np.testing.assert_array_equal(np.diag(whole), 4)
    monkeypatch.setattr("jointleaf._core.solvers.dual._MAX_COLUMNS", 5)
    np.testing.assert_array_equal(shared_cells(cells, cells.copy(), layout), whole)


def test_free_bias_of_one_constant_cell_is_the_weighted_mean(make_case):
    case = make_case(cells=(1,))
    solution = fit_cells(
        *case.data, cells="constant", penalty=Frobenius(1, 0), sample_weight=case.s
    )
    mean = np.average(case.y, weights=case.s)
    assert solution.intercept[0] == pytest.approx(mean, rel=1e-9)
