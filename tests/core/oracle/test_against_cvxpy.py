"""Joint fits against a general convex solver."""

import cvxpy as cp
import numpy as np
import pytest

from jointleaf._core.fitting import fit_cells
from jointleaf._core.penalties import Frobenius
from reference import ReferenceDesign

PENALTIES = {
    "penalised_biases": Frobenius(0.05, 0.02),
    "free_biases": Frobenius(0.05, 0),
    "weighted": Frobenius(0.05, 0.1, [0.2, 5.0], [1.0, 0.3]),
}


def _losses(loss, y, f):
    if loss == "squared_error":
        return cp.square(f - y) / 2
    return cp.logistic(-cp.multiply(y, f))


@pytest.mark.parametrize("loss", ["squared_error", "logistic"])
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
def test_cvxpy_finds_the_same_minimum(loss, penalty, make_case):
    case = make_case(loss, n=40, d=2, cells=(2, 3))
    reference = ReferenceDesign(case.X, case.codes)
    theta = cp.Variable(5 * 3)
    losses = _losses(loss, case.y, reference.to_dense() @ theta)
    u = np.ones(2) if penalty.partition_weights is None else penalty.partition_weights
    v = np.ones(2) if penalty.feature_weights is None else penalty.feature_weights
    partition = np.array([0, 0, 1, 1, 1])
    slopes = np.concatenate([penalty.strength / v / u[p] for p in partition])
    diagonal = np.append(slopes, penalty.bias_strength / u[partition])
    ridge = cp.sum(cp.multiply(diagonal, cp.square(theta))) / 2
    peer = cp.Problem(cp.Minimize(case.s @ losses / case.s.sum() + ridge))
    peer.solve(solver=cp.CLARABEL)
    assert peer.status == cp.OPTIMAL
    solution = fit_cells(
        *case.data, loss=loss, penalty=penalty, sample_weight=case.s, solver="newton", tol=1e-9
    )
    assert solution.objective == pytest.approx(peer.value, rel=1e-6)
    f = reference.to_dense() @ theta.value
    np.testing.assert_allclose(solution.predict(case.X, case.codes), f, rtol=1e-3, atol=1e-3)
