"""Several quantiles in one problem against a general convex solver."""

import cvxpy as cp
import numpy as np
import pytest

from jointleaf._core.solvers.levels import fit_levels

RNG = np.random.default_rng(0)
N, M = 60, 7
# Overlapping cells of different heights, beside a constant.
BASIS = np.column_stack([np.ones(N), RNG.uniform(0.5, 2, (N, 1)) * (RNG.random((N, M - 1)) < 0.4)])
TARGET = RNG.standard_normal(N) * (1 + 2 * BASIS[:, 1]) + BASIS[:, 2]
S = RNG.uniform(0.5, 2, N)
CURVATURE = np.append(0.0, np.full(M - 1, 0.01))


def objective(values, levels, curvature, xp):
    """Return the objective of values (m, K), an array or a variable."""
    column = (lambda k: values[:, k]) if xp is cp else (lambda k: np.asarray(values)[:, k])
    middle, loss, penalty = len(levels) // 2, 0.0, 0.0
    for k, level in enumerate(levels):
        residual = TARGET - BASIS @ column(k)
        loss = loss + (S / S.sum()) @ xp.maximum(level * residual, (level - 1) * residual)
        penalty = penalty + (curvature @ xp.square(column(k)) if k == middle else 0.0)
        penalty = penalty + (curvature @ xp.square(column(k) - column(k - 1)) if k else 0.0)
    return loss + penalty / 2


@pytest.mark.parametrize("levels", [[0.3], [0.05, 0.3], [0.1, 0.5, 0.9], [0.1, 0.2, 0.5, 0.8, 0.9]])
def test_cvxpy_finds_the_same_minimum(levels):
    values = cp.Variable((M, len(levels)))
    rises = [values[:, 1:] >= values[:, :-1]] if len(levels) > 1 else []
    problem = cp.Problem(cp.Minimize(objective(values, levels, CURVATURE, cp)), rises)
    problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-11, tol_gap_abs=1e-11)
    found = fit_levels(BASIS, TARGET, S, np.array(levels), CURVATURE, tol=1e-10)
    assert found.gap <= 1e-10
    assert (np.diff(found.values, axis=1) >= 0).all()
    assert objective(found.values, levels, CURVATURE, np) == pytest.approx(problem.value, rel=1e-7)
    predictions, peer = BASIS @ found.values, BASIS @ values.value
    assert np.abs(predictions - peer).max() < 1e-4  # the optimum is flat between two targets


def test_without_the_constraint_levels_would_cross():
    # So that the tests above see constraints at work.
    levels, values = [0.1, 0.2, 0.5, 0.8, 0.9], cp.Variable((M, 5))
    free = cp.Problem(cp.Minimize(objective(values, levels, CURVATURE, cp)))
    free.solve(solver=cp.CLARABEL)
    assert np.diff(values.value, axis=1).min() < -1e-3


def test_a_constant_alone_is_the_weighted_quantile():
    levels = np.array([0.15, 0.5, 0.77])
    found = fit_levels(np.ones((N, 1)), TARGET, S, levels, np.zeros(1), tol=1e-10)
    order = np.argsort(TARGET)
    shares = np.cumsum(S[order]) / S.sum()
    expected = TARGET[order][np.searchsorted(shares, levels)]
    np.testing.assert_allclose(found.values[0], expected, rtol=1e-6, atol=1e-6)


def test_a_weight_of_two_is_a_row_given_twice():
    levels = np.array([0.2, 0.8])
    weights = np.where(np.arange(N) % 3, 1.0, 2.0)
    twice = np.repeat(np.arange(N), weights.astype(int))
    once = fit_levels(BASIS, TARGET, weights, levels, CURVATURE, tol=1e-10)
    both = fit_levels(
        BASIS[twice], TARGET[twice], np.ones(len(twice)), levels, CURVATURE, tol=1e-10
    )
    np.testing.assert_allclose(once.values, both.values, atol=1e-5)


@pytest.mark.parametrize("strength", [1e-6, 100.0])
def test_targets_that_are_mostly_equal_and_empty_cells(strength):
    target = np.where(np.arange(N) % 7 == 0, TARGET, 0.0)
    basis = np.column_stack([BASIS, np.zeros(N), BASIS[:, 1]])
    curvature = np.append(0.0, np.full(M + 1, strength))
    levels = np.linspace(0.05, 0.95, 9)
    found = fit_levels(basis, target, S, levels, curvature)
    assert found.gap <= 1e-6
    assert (np.diff(found.values, axis=1) >= 0).all()
    if strength > 1:
        np.testing.assert_allclose(found.values[1:], 0.0, atol=0.1)


def test_without_residuals_all_levels_are_zero():
    found = fit_levels(BASIS, np.zeros(N), S, np.array([0.1, 0.9]), CURVATURE)
    np.testing.assert_array_equal(found.values, np.zeros((M, 2)))
