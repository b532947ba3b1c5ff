"""Sparse joint fits against scikit-learn, where the two solve the same problem."""

import numpy as np
import pytest
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    MultiTaskElasticNet,
    MultiTaskLasso,
)

from jointleaf._core.fitting import fit_cells
from jointleaf._core.penalties import L1, L21, Frobenius, Nuclear

STRENGTH = 0.1
# Since scikit-learn 1.8 l1_ratio alone says it.
ELASTIC = (
    {"penalty": "elasticnet"} if LogisticRegression().get_params().get("penalty") == "l2" else {}
)
TIGHT = {"tol": 1e-10, "max_iter": 20_000}


@pytest.fixture(params=["equal_weights", "sample_weights"])
def weights_of(request):
    return (lambda case: None) if request.param == "equal_weights" else (lambda case: case.s)


def _targets(case, n_targets=3):
    """Several targets that depend on some of the features of a case, (n, K)."""
    rng = np.random.default_rng(1)
    mixing = rng.standard_normal((case.X.shape[1], n_targets))
    mixing[::2] = 0
    return case.X @ mixing + np.arange(n_targets) + 0.5 * rng.standard_normal((60, n_targets))


def _fit_targets(X, Y, penalty):
    """All targets at once: the rows once for every target, whose number is the cell."""
    n, K = Y.shape
    codes = np.repeat(np.arange(K), n)[:, None]
    return fit_cells(np.tile(X, (K, 1)), codes, Y.T.ravel(), penalty=penalty, **TIGHT)


def _check_sparse(coef):
    zeros = np.mean(coef == 0)
    assert 0 < zeros < 1


def test_one_cell_is_lasso(weights_of, make_case):
    case = make_case(d=6, cells=(1,))
    weights = weights_of(case)
    peer = Lasso(alpha=STRENGTH, **TIGHT).fit(case.X, case.y, weights)
    solution = fit_cells(*case.data, penalty=L1(STRENGTH), sample_weight=weights, **TIGHT)
    _check_sparse(peer.coef_)
    np.testing.assert_array_equal(solution.coef[0] == 0, peer.coef_ == 0)
    np.testing.assert_allclose(solution.coef[0], peer.coef_, rtol=1e-6)
    assert solution.intercept[0] == pytest.approx(peer.intercept_, rel=1e-6)


def test_one_partition_is_one_lasso_per_cell(make_case):
    """Cells of one partition share nothing but the features' scale: n_c / n times the loss."""
    case = make_case(d=6, cells=(3,), n=120)
    solution = fit_cells(*case.data, penalty=L1(0.05), **TIGHT)
    for c in range(3):
        own = case.codes[:, 0] == c
        alpha = 0.05 * len(own) / own.sum()
        peer = Lasso(alpha=alpha, **TIGHT).fit(case.X[own], case.y[own])
        np.testing.assert_allclose(solution.coef[c], peer.coef_, rtol=1e-6)
        assert solution.intercept[c] == pytest.approx(peer.intercept_, rel=1e-6)


@pytest.mark.parametrize("ratio", [0.2, 0.8])
def test_one_cell_is_elastic_net(ratio, weights_of, make_case):
    case = make_case(d=6, cells=(1,))
    weights = weights_of(case)
    peer = ElasticNet(alpha=0.2, l1_ratio=ratio, **TIGHT).fit(case.X, case.y, weights)
    penalty = L1(0.2 * ratio) + Frobenius(0.2 * (1 - ratio), 0)
    solution = fit_cells(*case.data, penalty=penalty, sample_weight=weights, **TIGHT)
    np.testing.assert_allclose(solution.coef[0], peer.coef_, rtol=1e-6, atol=1e-12)
    assert solution.intercept[0] == pytest.approx(peer.intercept_, rel=1e-6)


def test_one_cell_per_target_is_multitask_lasso(make_case):
    """The loss is a mean over n K rows, where scikit-learn divides by n alone."""
    case = make_case(d=6, cells=(1,))
    Y = _targets(case)
    peer = MultiTaskLasso(alpha=0.3, **TIGHT).fit(case.X, Y)
    solution = _fit_targets(case.X, Y, L21(0.3 / 3))
    _check_sparse(peer.coef_)
    np.testing.assert_array_equal(solution.coef == 0, peer.coef_ == 0)
    np.testing.assert_allclose(solution.coef, peer.coef_, rtol=1e-6)
    np.testing.assert_allclose(solution.intercept, peer.intercept_, rtol=1e-6)


def test_one_cell_per_target_is_multitask_elastic_net(make_case):
    case = make_case(d=6, cells=(1,))
    Y = _targets(case)
    peer = MultiTaskElasticNet(alpha=0.4, l1_ratio=0.7, **TIGHT).fit(case.X, Y)
    solution = _fit_targets(case.X, Y, L21(0.28 / 3) + Frobenius(0.12 / 3, 0))
    np.testing.assert_allclose(solution.coef, peer.coef_, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(solution.intercept, peer.intercept_, rtol=1e-6)


def test_one_cell_per_target_with_orthogonal_rows_shrinks_singular_values(make_case):
    """With X^T X = n I and 1^T X = 0 the slopes are those of least squares, shrunk."""
    case = make_case(d=4, cells=(1,))
    Q = np.linalg.qr(np.column_stack([np.ones(60), case.X]))[0]
    X, Y = Q[:, 1:] * np.sqrt(60), _targets(case)
    U, sigma, Vt = np.linalg.svd(X.T @ Y / 60, full_matrices=False)
    threshold = (sigma[1] + sigma[2]) / 2
    expected = (U * np.maximum(sigma - threshold, 0)) @ Vt
    solution = _fit_targets(X, Y, Nuclear(threshold / 3))
    np.testing.assert_allclose(solution.coef.T, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(solution.intercept, Y.mean(axis=0), rtol=1e-9)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_one_cell_is_sparse_logistic_regression(loss, ratio, weights_of, make_case):
    """Saga leaves the intercept alone, which liblinear would penalise."""
    case = make_case(loss, d=6, cells=(1,), n=80)
    weights = weights_of(case)
    total = len(case.y) if weights is None else weights.sum()
    strength = 0.06
    C = 1 / (strength * total)
    peer = LogisticRegression(C=C, l1_ratio=ratio, solver="saga", **ELASTIC, **TIGHT)
    peer.fit(case.X, case.y, weights)
    penalty = L1(strength * ratio)
    if ratio < 1:
        penalty = penalty + Frobenius(strength * (1 - ratio), 0)
    solution = fit_cells(*case.data, loss=loss, penalty=penalty, sample_weight=weights, **TIGHT)
    _check_sparse(peer.coef_)
    coef, intercept = solution.coef[0].T, solution.intercept[0]
    np.testing.assert_allclose(coef, peer.coef_.reshape(coef.shape), rtol=0, atol=1e-6)
    expected = peer.intercept_.squeeze()
    if loss == "multinomial":  # free biases are found up to a constant
        intercept, expected = intercept - intercept.mean(), expected - expected.mean()
    np.testing.assert_allclose(intercept, expected, rtol=0, atol=1e-5)
