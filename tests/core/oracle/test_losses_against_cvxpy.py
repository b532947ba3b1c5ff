"""Joint fits with every loss of numbers against a general convex solver."""

import cvxpy as cp
import numpy as np
import pytest

from jointleaf import L21, Frobenius, fit_cells
from jointleaf.losses import AbsoluteError, Huber, Poisson, Quantile
from reference import ReferenceDesign

LOSSES = {
    "absolute": (AbsoluteError(), lambda y, f: cp.abs(y - f)),
    "quantile": (Quantile(0.9), lambda y, f: cp.maximum(0.9 * (y - f), 0.1 * (f - y))),
    "huber": (Huber(0.5), lambda y, f: cp.huber(y - f, 0.5) / 2),
    "poisson": (Poisson(), lambda y, f: cp.exp(f) - cp.multiply(y, f)),
}


@pytest.mark.parametrize("penalty", [Frobenius(0.05, 0.02), Frobenius(1e-3, 0)], ids=repr)
@pytest.mark.parametrize("solver", ["dual", "newton"])
@pytest.mark.parametrize(("loss", "losses"), LOSSES.values(), ids=LOSSES.keys())
def test_cvxpy_finds_the_same_minimum(loss, losses, solver, penalty, make_case):
    if solver == "dual" and penalty.bias_strength == 0:
        pytest.skip("it needs penalised biases")
    case, y, offset, theta, peer = _peer(loss, losses, make_case)
    ridge = cp.sum_squares(theta[:10]) * penalty.strength / 2
    ridge += cp.sum_squares(theta[10:]) * penalty.bias_strength / 2
    problem = cp.Problem(cp.Minimize(peer + ridge))
    problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10)
    found = fit_cells(
        case.X, case.codes, y, loss=loss, penalty=penalty, sample_weight=case.s, offset=offset,
        solver=solver, tol=1e-8 if solver == "newton" else 1e-7,
    )  # fmt: skip
    assert found.objective == pytest.approx(_value(problem, loss, case, y), rel=1e-6)
    if penalty.bias_strength > 0:
        f = ReferenceDesign(case.X, case.codes).to_dense() @ theta.value
        np.testing.assert_allclose(found.predict(case.X, case.codes), f, atol=2e-3)


@pytest.mark.parametrize(("loss", "losses"), LOSSES.values(), ids=LOSSES.keys())
def test_cvxpy_finds_the_same_sparse_minimum(loss, losses, make_case):
    case, y, offset, theta, peer = _peer(loss, losses, make_case)
    slopes = cp.reshape(theta[:10], (5, 2), order="C")
    norms = sum(cp.norm(slopes[:, j]) for j in range(2))
    problem = cp.Problem(cp.Minimize(peer + 0.05 * norms + 0.01 * cp.sum_squares(theta[10:])))
    problem.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10)
    found = fit_cells(
        case.X, case.codes, y, loss=loss, penalty=L21(0.05, 0.02), sample_weight=case.s,
        offset=offset, tol=1e-6, max_iter=100_000,
    )  # fmt: skip
    assert found.converged
    assert found.objective == pytest.approx(_value(problem, loss, case, y), rel=1e-5)


def _peer(loss, losses, make_case):
    case = make_case(n=40, d=2, cells=(2, 3))
    y = np.round(np.exp(case.y)) if loss.has_log_link else case.y
    offset = np.linspace(-0.5, 0.5, 40)
    theta = cp.Variable(5 * 3)
    f = ReferenceDesign(case.X, case.codes).to_dense() @ theta + offset
    return case, y, offset, theta, case.s @ losses(y, f) / case.s.sum()


def _value(problem, loss, case, y):
    """The minimum, with what the deviance adds to exp(f) - y f."""
    assert problem.status == cp.OPTIMAL
    if not loss.has_log_link:
        return problem.value
    own = np.where(y > 0, y * np.log(np.maximum(y, 1)) - y, 0.0)
    return problem.value + case.s @ own / case.s.sum()
