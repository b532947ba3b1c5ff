"""The interior-point method against an oracle, and where Newton's method took hundreds of steps."""

import numpy as np
import pytest
from scipy.optimize import minimize

from jointleaf import fit_cells
from jointleaf._core.solvers.base import Recorder
from jointleaf._core.solvers.interior import box_dual
from jointleaf.losses import Kinked
from jointleaf.penalties import Frobenius


def box_problem(seed, n=30, rank=30):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, rank))
    share = rng.uniform(0.5, 2, n)
    return A @ A.T, rng.standard_normal(n), -0.2 * share / n, 0.8 * share / n


@pytest.mark.parametrize(("seed", "rank", "scale"), [(0, 30, 1.0), (1, 5, 10.0), (2, 30, 1e4)])
def test_minimum_against_a_bounded_quasi_newton_method(seed, rank, scale):
    K, target, low, high = box_problem(seed, rank=rank)
    K = scale * K
    alpha, n_iter = box_dual(K, target, low, high, tol=1e-10, max_iter=60)
    assert n_iter < 40
    assert (low <= alpha).all()
    assert (alpha <= high).all()
    oracle = minimize(
        lambda a: (0.5 * a @ K @ a - a @ target, K @ a - target),
        np.zeros(len(target)),
        jac=True,
        bounds=list(zip(low, high, strict=True)),
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 20000, "maxfun": 10**6},
    )
    value = 0.5 * alpha @ K @ alpha - alpha @ target
    assert value <= oracle.fun + 1e-9 * abs(oracle.fun)


def test_ends_at_the_gap_it_is_asked_for():
    K, target, low, high = box_problem(3)
    recorder = Recorder()
    _, n_loose = box_dual(K, target, low, high, tol=1e-2, max_iter=60, recorder=recorder)
    assert recorder.points[-1].optimality <= 1e-2 < recorder.points[-2].optimality
    assert n_loose < box_dual(K, target, low, high, tol=1e-8, max_iter=60)[1]
    assert box_dual(K, target, low, high, tol=1e-8, max_iter=2)[1] == 2


def test_targets_of_zero_need_no_step():
    K, target, low, high = box_problem(4)
    alpha, n_iter = box_dual(K, 0 * target, low, high, tol=1e-8, max_iter=60)
    assert n_iter == 0
    assert not alpha.any()


@pytest.mark.parametrize("loss", ["absolute_error", "quantile"])
def test_weak_penalty_takes_few_steps(loss):
    """Most residuals are zero there, and smoothed losses have no curvature to go by."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    codes = np.column_stack([(X[:, 0] > c).astype(int) for c in np.linspace(-2, 2, 30)])
    solution = fit_cells(X, codes, y, loss=loss, penalty=Frobenius(1e-7), solver="dual")
    assert solution.status == "converged"
    assert solution.n_iter < 40
    assert solution.gap < 1e-5


class Tilted(Kinked):
    """A loss with a kink of one's own."""

    def smoothed(self, width):
        raise NotImplementedError

    def row_excess(self, y, f, slope):
        raise NotImplementedError

    def row_loss(self, y, f):
        return np.maximum(f - y, 0.0)

    def row_gradient(self, y, f):
        return (f > y).astype(float)

    def row_curvature(self, y, f):
        return np.zeros_like(f)

    def best_constant(self, y, s):
        return np.asarray(y.min())


def test_other_kinks_are_refused_with_the_solver_to_use():
    X = np.arange(4.0)[:, None]
    with pytest.raises(ValueError, match="it knows absolute errors and quantiles: use solver='new"):
        fit_cells(X, np.zeros((4, 1), int), X[:, 0], loss=Tilted(), penalty=Frobenius(1.0),
                  solver="dual")  # fmt: skip
