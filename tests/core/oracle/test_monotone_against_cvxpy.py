"""Joint fits under monotone constraints, and their projection, against a general convex solver."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.isotonic import isotonic_regression

from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import AbsoluteError, Logistic, Poisson, SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.penalties.monotone import Monotone
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import solve
from reference import ReferenceDesign

N_CELLS, D = (5, 4, 1), 3
KINDS = ("constant", "constant", "linear")
# A diamond with a tail, a fork that no cell (10) lies below, and a root cell with slopes.
PAIRS = np.array([[0, 1], [0, 2], [1, 3], [2, 3], [3, 4], [10, 5], [5, 6], [5, 7], [7, 8]])
SIGNS = np.array([1, 0, -1])
LAYOUT = CellLayout(N_CELLS, D, KINDS)


def constraints(slopes, biases):
    """The inequalities in the words of cvxpy."""
    zero = cp.hstack([biases, 0.0])
    ordered = [zero[int(low)] <= zero[int(high)] for low, high in PAIRS]
    return [*ordered, slopes[0] >= 0, slopes[2] <= 0]


@pytest.mark.parametrize("seed", range(5))
def test_projection_is_the_nearest_monotone_point(seed):
    theta = np.random.default_rng(seed).standard_normal(LAYOUT.n_weights)
    penalty = Monotone(PAIRS, SIGNS).bind(LAYOUT)
    penalty.prox(-theta, 1.0)  # where the last call ended must not matter
    projected = penalty.prox(theta, 1.0)
    z = cp.Variable(len(theta))
    cp.Problem(cp.Minimize(cp.sum_squares(z - theta)), constraints(z[:D], z[D:])).solve(
        cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    np.testing.assert_allclose(projected, z.value, atol=1e-7)
    assert penalty.value(theta) == np.inf
    assert penalty.value(projected) == 0.0  # without tolerance
    single = penalty.prox(theta.astype(np.float32), 1.0)
    assert single.dtype == np.float32
    assert penalty.value(single) == 0.0


def test_projection_on_a_chain_is_isotonic_regression():
    layout = CellLayout((12,), 0, "constant")
    chain = np.stack([np.arange(11), np.arange(1, 12)], axis=1)
    penalty = Monotone(chain, np.zeros(0, int)).bind(layout)
    for seed in range(20):
        y = np.random.default_rng(seed).standard_normal(12)
        np.testing.assert_allclose(penalty.prox(y, 1.0), isotonic_regression(y), atol=1e-12)


LOSSES = {
    SquaredError: lambda y, f: cp.sum_squares(f - y) / 2,
    Logistic: lambda y, f: cp.sum(cp.logistic(cp.multiply(-y, f))),
    Poisson: lambda y, f: cp.sum(cp.exp(f) - cp.multiply(y, f)),
    AbsoluteError: lambda y, f: cp.sum(cp.abs(f - y)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_joint_fit_is_the_constrained_optimum(loss):
    rng = np.random.default_rng(0)
    n = 80
    X = rng.standard_normal((n, D))
    codes = np.stack([rng.integers(k, size=n) for k in N_CELLS], axis=1)
    y = rng.standard_normal(n) - codes[:, 0] + X @ [-1.0, 1.0, 0.5]  # against the order
    y = {Logistic: np.sign, Poisson: lambda y: np.round(np.exp(y / 3))}.get(loss, np.asarray)(y)
    weights = [0.5, 1.0, 2.0]
    penalty = Frobenius(0.02, 0.01, None, weights)
    design = LeafDesign(X, codes, N_CELLS, cells=KINDS)
    problem = Problem(design, y, loss(), penalty + Monotone(PAIRS, SIGNS))
    solution = solve(problem, tol=1e-9, max_iter=20_000)
    assert solution.converged
    assert solution.solver == "fista"
    theta = cp.Variable(LAYOUT.n_weights)
    phi = ReferenceDesign(X, codes, N_CELLS, cells=KINDS).to_dense()
    curvature = penalty.bind(LAYOUT).curvature()
    objective = LOSSES[loss](y, phi @ theta) / n + cp.sum(
        cp.multiply(curvature, cp.square(theta)) / 2
    )
    program = cp.Problem(cp.Minimize(objective), constraints(theta[:D], theta[D:]))
    program.solve(cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    np.testing.assert_allclose(solution.theta, theta.value, atol=1e-5)
    own = problem.objective(solution.theta, design.matvec(solution.theta))
    constant = float(np.mean(loss().row_loss(loss().encode(y), np.zeros(n)))) - float(
        LOSSES[loss](y, np.zeros(n)).value / n
    )
    assert own - constant == pytest.approx(program.value, abs=1e-7)
    free = solve(Problem(design, y, loss(), penalty), tol=1e-9, max_iter=20_000)
    assert free.objective < solution.objective - 1e-3
