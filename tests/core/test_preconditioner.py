"""The block preconditioner: exact where it must be, symmetric, and right beyond its limits."""

import numpy as np
import pytest

from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.solvers import newton as preconditioner
from jointleaf._core.solvers.base import solve
from jointleaf._core.solvers.newton import BlockPreconditioner
from reference import ReferenceDesign

LIMITS = {
    "joint_biases": {},
    "biases_cell_by_cell": {"MAX_JOINT_BIASES": 0},
    "diagonals": {"MAX_BLOCK_ENTRIES": 0},
    "diagonals_cell_by_cell": {"MAX_JOINT_BIASES": 0, "MAX_BLOCK_ENTRIES": 0},
}


@pytest.fixture(params=LIMITS.values(), ids=LIMITS.keys())
def limits(request, monkeypatch):
    for name, value in request.param.items():
        monkeypatch.setattr(preconditioner, name, value)
    return request.param


def _hessian(case, penalty, cells="linear"):
    """Dense H = Phi^T diag(s) Phi + D, and the parts the preconditioner is made from."""
    design = LeafDesign(case.X, case.codes, cells=cells)
    curvature = penalty.bind(design.layout).curvature()
    phi = ReferenceDesign(case.X, case.codes, cells=cells).to_dense()
    return phi.T @ (case.s[:, None] * phi) + np.diag(curvature), design, curvature


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("cells", ["linear", "constant"])
def test_one_partition_is_inverted_exactly(joint, cells, make_case, monkeypatch):
    if not joint:
        monkeypatch.setattr(preconditioner, "MAX_JOINT_BIASES", 0)
    H, design, curvature = _hessian(make_case(cells=(4,)), Frobenius(0.5, 0.2), cells)
    precondition = BlockPreconditioner(design, make_case(cells=(4,)).s, curvature, eliminate=False)
    v = np.random.default_rng(0).standard_normal((len(H), 2))
    product = H @ v
    np.testing.assert_allclose(precondition(product), v, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(precondition(product[:, 0]), v[:, 0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("cells", ["linear", ("constant", "linear", "constant")])
def test_it_is_symmetric_and_positive(limits, cells, make_case):
    case = make_case(d=2)
    H, design, curvature = _hessian(case, Frobenius(0.5, 0.2), cells)
    precondition = BlockPreconditioner(design, case.s, curvature, eliminate=False)
    matrix = np.array([precondition(e) for e in np.eye(len(H))])
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12)
    assert np.linalg.eigvalsh(matrix)[0] > 0


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one_output", "two_outputs"])
@pytest.mark.parametrize("bias_strength", [0.2, 0.0])
@pytest.mark.parametrize("cells", ["linear", ("constant", "linear", "constant")])
def test_completed_directions_have_no_residual_in_the_biases(
    outputs, bias_strength, cells, make_case
):
    case = make_case()
    H, design, curvature = _hessian(case, Frobenius(0.5, bias_strength), cells)
    precondition = BlockPreconditioner(design, case.s, curvature)
    assert precondition.eliminates
    direction = np.random.default_rng(0).standard_normal((len(H), *outputs))
    slopes = design.layout.split(direction)[0].copy()
    direction, image = precondition.complete(direction, design.matvec(direction))
    np.testing.assert_array_equal(design.layout.split(direction)[0], slopes)
    np.testing.assert_allclose(image, design.matvec(direction), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(design.layout.split(H @ direction)[1], 0, atol=1e-8)


@pytest.mark.parametrize("bias_strength", [0.02, 0.0])
@pytest.mark.parametrize("weighted", [True, False])
def test_pcg_and_newton_find_the_minimum_beyond_every_limit(
    limits, bias_strength, weighted, make_case
):
    case = make_case()
    design = LeafDesign(case.X, case.codes)
    weights = case.s if weighted else None
    problem = Problem(design, case.y, SquaredError(), Frobenius(0.05, bias_strength), weights)
    expected = solve(problem, "dual").objective
    for name in ("pcg", "newton"):
        solution = solve(problem, name, tol=1e-8)
        assert solution.converged
        assert solution.objective == pytest.approx(expected, rel=1e-8)


def test_eliminating_biases_saves_iterations(make_case, make_problem, monkeypatch):
    problem = make_problem(make_case(n=300, cells=(4,) * 12), penalty=Frobenius(1.0, 1e-4))
    joint = solve(problem, "pcg", tol=1e-6)
    monkeypatch.setattr(preconditioner, "MAX_JOINT_BIASES", 0)
    separate = solve(problem, "pcg", tol=1e-6)
    assert joint.n_iter < separate.n_iter


def test_cells_without_rows_stay_at_zero(limits, make_case):
    case = make_case(cells=(2, 3))
    design = LeafDesign(case.X, case.codes, (4, 3))
    problem = Problem(design, case.y, SquaredError(), Frobenius(0.05, 0))
    solution = solve(problem, "pcg", tol=1e-8)
    for weights in (solution.coef, solution.intercept):
        np.testing.assert_array_equal(weights[2:4], 0)
        assert np.abs(weights[:2]).min() > 0
