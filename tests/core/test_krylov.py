"""The path of strengths from one Krylov run, against closed-form ridge solutions."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from jointleaf import L21, Frobenius, Laplacian
from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import Logistic, SquaredError
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import solve
from jointleaf._core.solvers.krylov import Krylov, KrylovPath, WeightKrylovPath
from jointleaf._core.solvers.newton import PCG
from reference import ReferenceDesign

KINDS = {
    "linear": "linear",
    "constant": "constant",
    "mixed": ("linear", "constant", "linear"),
}
STRENGTHS = 10.0 ** np.arange(0, -6.1, -1.0)
PENALTY = Frobenius(1.0, 1.0, [0.5, 2.0, 1.0], [1.0, 3.0, 0.4])


def dense(case, kinds):
    reference = ReferenceDesign(case.X, case.codes, cells=kinds)
    return reference.to_dense(), PENALTY.bind(reference.layout).curvature()


def ridge(phi, curvature, target, s, strength):
    """The minimiser of sum s (phi theta - y)^2 / (2 sum s) + strength / 2 theta^T D theta."""
    s = s / s.sum()
    normal = phi.T @ (s[:, None] * phi) + strength * np.diag(curvature)
    weighted = target * (s if target.ndim == 1 else s[:, None])
    return np.linalg.solve(normal, phi.T @ weighted)


def path_of(case, kinds, target, *, n_steps=200, dtype=np.float64, held_out=None, s=None):
    _, curvature = dense(case, kinds)
    design = LeafDesign(case.X.astype(dtype), case.codes, cells=kinds)
    valid = None
    if held_out is not None:
        counts = design.layout.cells_per_partition
        valid = LeafDesign(held_out.X.astype(dtype), held_out.codes, counts, cells=kinds)
    path = KrylovPath(design, curvature, target, case.s if s is None else s, valid)
    path.extend(n_steps)
    return path


def outputs(case, n_outputs):
    if not n_outputs:
        return case.y
    rng = np.random.default_rng(1)
    return case.y[:, None] * rng.normal(size=n_outputs) + rng.normal(size=(len(case.y), n_outputs))


# -- the path ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("n_outputs", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_strength_is_the_ridge_solution(kinds, n_outputs, dtype, make_case):
    case, new = make_case(n=80, missing=0.05), make_case(n=30, seed=1)
    target, exact = outputs(case, n_outputs), dtype == np.float64
    strengths = STRENGTHS if exact else STRENGTHS[:4]
    path = path_of(case, kinds, target, dtype=dtype, held_out=new)
    phi, curvature = dense(case, kinds)
    phi_new = ReferenceDesign(new.X, new.codes, (4, 3, 5), cells=kinds).to_dense()
    predictions = path.predictions(strengths)
    assert predictions.shape == (30, len(strengths), *target.shape[1:])
    assert predictions.dtype == dtype
    atol = 1e-7 if exact else 5e-3
    for k, strength in enumerate(strengths):
        theta = ridge(phi, curvature, target, case.s, strength)
        found = path.weights(strength)
        assert found.shape == theta.shape
        np.testing.assert_allclose(phi @ found, phi @ theta, atol=atol)
        np.testing.assert_allclose(predictions[:, k], phi_new @ found, atol=atol)
        if exact:
            np.testing.assert_allclose(found, theta, atol=1e-6)


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_pcg_finds_the_same(kinds, make_case):
    case = make_case(n=80)
    path = path_of(case, kinds, case.y)
    design = LeafDesign(case.X, case.codes, cells=kinds)
    for strength in (0.1, 1e-3):
        problem = Problem(design, case.y, SquaredError(), strength * PENALTY, case.s, 0.0)
        solution = solve(problem, "pcg", tol=1e-10, max_iter=5000)
        np.testing.assert_allclose(path.weights(strength), solution.theta, atol=1e-6)


@pytest.mark.parametrize("n_outputs", [0, 3])
@pytest.mark.parametrize("n_steps", [1, 4, 12])
def test_residuals_are_true_after_any_number_of_steps(n_outputs, n_steps, make_case):
    case = make_case(n=80)
    target = outputs(case, n_outputs)
    path = path_of(case, KINDS["mixed"], target, n_steps=n_steps)
    assert path.n_steps == n_steps
    phi, curvature = dense(case, KINDS["mixed"])
    s = case.s / case.s.mean()
    root = np.sqrt(s)[:, None]
    kernel = (root * phi / curvature) @ (root * phi).T
    right = root * target.reshape(len(target), -1)
    basis = path.basis[:n_steps].reshape(n_steps, len(target), -1)
    residuals = path.residuals(STRENGTHS)
    for k, strength in enumerate(STRENGTHS):
        coordinates = path.coefficients(STRENGTHS)[:, k].reshape(n_steps, -1)
        beta = np.einsum("jnk,jk->nk", basis, coordinates)
        error = right - kernel @ beta - s.sum() * strength * beta
        ratio = np.linalg.norm(error, axis=0) / np.linalg.norm(right, axis=0)
        np.testing.assert_allclose(residuals[k], ratio.max(), rtol=1e-6, atol=1e-10)
        # The weights that early stopping returns are those of beta.
        theta = phi.T @ (root * beta) / curvature[:, None]
        found = path.weights(strength).reshape(theta.shape)
        np.testing.assert_allclose(found, theta, atol=1e-9)
    assert (np.diff(residuals) >= 0).all()


@pytest.mark.parametrize("n_outputs", [0, 3])
@pytest.mark.parametrize("n_steps", [1, 3, 8])
def test_weights_minimise_the_objective_in_their_space(n_outputs, n_steps, make_case):
    case = make_case(n=80)
    target = outputs(case, n_outputs)
    path = path_of(case, KINDS["mixed"], target, n_steps=n_steps)
    phi, curvature = dense(case, KINDS["mixed"])
    root = np.sqrt(case.s / case.s.mean())[:, None]
    right = root * target.reshape(len(target), -1)
    basis = path.basis[:n_steps].reshape(n_steps, len(target), -1)
    for strength in (1.0, 1e-2, 1e-4):
        shift = (root**2).sum() * strength
        found = path.weights(strength).reshape(len(curvature), -1)
        for k in range(right.shape[1]):
            # Least squares over all weights that the basis makes.
            space = phi.T @ (root * basis[..., k].T) / curvature[:, None]
            rows = np.vstack([root * (phi @ space), np.sqrt(shift * curvature)[:, None] * space])
            answer = np.concatenate([right[:, k], np.zeros(len(curvature))])
            best = space @ np.linalg.lstsq(rows, answer, rcond=None)[0]
            np.testing.assert_allclose(found[:, k], best, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_basis_stays_orthonormal(dtype, make_case):
    case = make_case(n=300, d=3, cells=(20, 30, 40))
    path = path_of(case, "constant", outputs(case, 2), n_steps=60, dtype=dtype)
    basis = path.basis.astype(float)
    for k in range(2):
        gram = basis[..., k] @ basis[..., k].T
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_steps_end_with_the_rank_of_the_design(dtype, make_case):
    case = make_case(n=60)
    case.codes[:, 1:] = case.codes[:, :1]  # three times the same four constants
    path = path_of(case, "constant", case.y, n_steps=0, dtype=dtype)
    assert path.n_steps == 0
    assert not path.extend(50)
    # Every cell is an eigenspace of its own, and the part of y that no cell explains is one;
    # there rounding may take a few steps more.
    assert 4 <= path.n_steps <= 8
    phi, curvature = dense(case, "constant")
    atol = 1e-8 if dtype == np.float64 else 1e-3
    for strength in (1.0, 1e-3):
        theta = ridge(phi, curvature, case.y, case.s, strength)
        np.testing.assert_allclose(path.weights(strength), theta, atol=atol)
    np.testing.assert_allclose(path.residuals(STRENGTHS), 0, atol=1e-6)
    assert not path.extend(5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_target_of_zeros(dtype, make_case):
    case = make_case(n=40)
    path = path_of(case, "linear", np.zeros(40), dtype=dtype, held_out=case)
    assert path.n_steps == 0
    assert not path.extend(10)
    assert not path.weights(0.1).any()
    assert path.predictions(STRENGTHS).shape == (40, len(STRENGTHS))
    assert not path.predictions(STRENGTHS).any()
    assert not path.residuals(STRENGTHS).any()


def test_an_output_of_zeros_beside_others(make_case):
    case = make_case(n=60)
    target = np.stack([case.y, np.zeros(60), np.ones(60)], axis=1)
    path = path_of(case, "linear", target, held_out=case)
    phi, curvature = dense(case, "linear")
    theta = ridge(phi, curvature, target, case.s, 0.01)
    np.testing.assert_allclose(path.weights(0.01), theta, atol=1e-7)
    assert not path.weights(0.01)[:, 1].any()
    assert np.isfinite(path.residuals(STRENGTHS)).all()


def test_an_output_that_ends_before_the_others(make_case):
    case = make_case(n=60, cells=(3,))
    penalty, kinds = Frobenius(1.0, 1.0), ("constant",)
    design = LeafDesign(case.X, case.codes, cells=kinds)
    s = np.ones(60)
    # The indicator of a cell is an eigenvector: one step finds its solution.
    target = np.stack([(case.codes[:, 0] == 1).astype(float), case.y], axis=1)
    curvature = penalty.bind(design.layout).curvature()
    path = KrylovPath(design, curvature, target, s)
    path.extend(20)
    theta = ridge(
        ReferenceDesign(case.X, case.codes, cells=kinds).to_dense(), curvature, target, s, 0.1
    )
    assert path.n_steps > 1
    np.testing.assert_allclose(path.weights(0.1), theta, atol=1e-9)


def test_only_ratios_of_weights_count(make_case):
    case = make_case(n=60)
    one, large = (path_of(case, "linear", case.y, s=c * case.s) for c in (1.0, 1e6))
    np.testing.assert_allclose(one.weights(0.01), large.weights(0.01), atol=1e-8)


@pytest.mark.parametrize("strength", [1e-5, 1e-8, 1e-12])
def test_rounding_is_not_fitted(strength):
    """Nine kinds of rows: a design of low rank, which steps in single precision go beyond."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (360, 2))
    codes = np.column_stack([codes, 3 * codes[:, 0] + codes[:, 1]])
    target = (codes[:, 0] == 0) + 0.1 * rng.normal(size=360)
    target -= target.mean()
    design = LeafDesign(np.zeros((360, 1), np.float32), codes, cells="constant")
    curvature = Frobenius(1.0, 1.0).bind(design.layout).curvature()
    path = KrylovPath(design, curvature, target, np.ones(360), design)
    path.extend(30)
    means = np.array([target[codes[:, 2] == c].mean() for c in codes[:, 2]])
    for found in (
        path.predictions(np.array([strength]))[:, 0],
        design.matvec(path.weights(strength)),
    ):
        np.testing.assert_allclose(found, means, atol=0.02)


def test_more_steps_come_nearer(make_case):
    case = make_case(n=200, cells=(20, 30, 40))
    path = path_of(case, "linear", case.y, n_steps=0)
    last = np.inf
    while path.extend(3) and path.n_steps < 30:
        residual = path.residuals(np.array([1e-3]))[0]
        assert residual < last
        last = residual
    assert last < 2e-2


# -- the solver --------------------------------------------------------------------------------


def problem_of(case, penalty=None, loss=None, kinds="linear", dtype=np.float64, offset=0.0):
    design = LeafDesign(case.X.astype(dtype), case.codes, cells=kinds)
    penalty = penalty or Frobenius(0.02, 0.01)
    return Problem(design, case.y, loss or SquaredError(), penalty, case.s, offset)


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("offset", [0.0, 1.5])
def test_it_converges_to_what_pcg_finds(kinds, offset, make_case):
    problem = problem_of(make_case(n=80), kinds=kinds, offset=offset)
    found, peer = (solve(problem, s, tol=1e-9, max_iter=5000) for s in (Krylov(500), PCG()))
    assert found.status == "converged"
    assert found.solver == "krylov"
    assert found.optimality <= 1e-9
    assert found.gap >= found.objective - peer.objective - 1e-12
    np.testing.assert_allclose(found.theta, peer.theta, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_it_stops_after_the_steps_chosen_without_a_warning(make_case):
    problem = problem_of(make_case(n=200, cells=(20, 30)))
    solution = solve(problem, Krylov(4))
    assert (solution.status, solution.n_iter) == ("stopped", 4)
    assert not solution.converged
    assert "krylov took the 4 steps that were chosen for it" in solution.message
    assert f"{solution.optimality:.1e}" in solution.message
    f = problem.design.matvec(solution.theta)
    optimality = problem.optimality(solution.theta, problem.data_gradient(f))
    assert solution.optimality == pytest.approx(optimality)
    assert solution.objective < problem.objective(problem.zeros(), problem.zero_predictions())


def test_fewer_iterations_than_steps_are_a_warning(make_case):
    problem = problem_of(make_case(n=200, cells=(20, 30)))
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        solution = solve(problem, Krylov(20), max_iter=3)
    assert (solution.status, solution.n_iter) == ("max_iter", 3)


def test_a_loose_tolerance_ends_it_sooner(make_case):
    problem = problem_of(make_case(n=200, cells=(20, 30)))
    loose, tight = (solve(problem, Krylov(200), tol=tol) for tol in (1e-1, 1e-8))
    assert loose.status == tight.status == "converged"
    assert loose.n_iter < tight.n_iter < 200
    assert loose.optimality <= 1e-1


def test_a_path_that_was_run_before_has_the_solution(make_case):
    """Of any strength: the problem's penalty is that multiple of the path's."""
    case, strength = make_case(n=80), 0.03
    problem = problem_of(case, penalty=Frobenius(2.0 * strength, strength))
    path = KrylovPath(problem.design, problem.quadratic()[0] / strength, case.y, case.s)
    path.extend(7)
    found, fresh = (solve(problem, s) for s in (Krylov(7, path, strength), Krylov(7)))
    assert found.n_iter == fresh.n_iter == 7
    np.testing.assert_allclose(found.theta, fresh.theta, rtol=1e-9, atol=1e-12)
    assert found.optimality == pytest.approx(fresh.optimality)


def test_single_precision(make_case):
    solution = solve(problem_of(make_case(n=80), dtype=np.float32), Krylov(200))
    assert solution.status == "converged"
    assert solution.coef.dtype == np.float32


def test_a_target_that_its_offset_explains(make_case):
    case = make_case(n=40)
    case.y[:] = 2.0
    solution = solve(problem_of(case, offset=2.0), Krylov(10))
    assert solution.status == "converged"
    assert not solution.theta.any()


def test_problems_that_do_not_fit(make_case):
    case = make_case("logistic", n=40)
    smooth = Frobenius(0.1, 0.1) + Laplacian(0.1)
    for penalty, loss in ((None, Logistic()), (smooth, None)):
        with pytest.raises(ValueError, match=r"solver='krylov' does not fit.*squared error"):
            solve(problem_of(case, penalty, loss), Krylov())
    for penalty in (L21(0.1), Frobenius(0.1, 0.0)):
        with pytest.raises(ValueError, match=r"quadratic penalty on all slopes and biases"):
            solve(problem_of(case, penalty), Krylov())


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_weights_minimise_the_quadratic_model_of_a_loss(n_outputs):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (50, 2))
    design, held_out = (LeafDesign(rng.standard_normal((50, 2)), codes) for _ in range(2))
    n_weights = design.layout.n_weights
    shape = (50,) if n_outputs is None else (50, n_outputs)
    g, h = rng.standard_normal(shape), rng.uniform(0.5, 2.0, 50)
    curvature = rng.uniform(0.5, 2.0, n_weights)
    phi, new = (
        np.stack([d.matvec(e) for e in np.eye(n_weights)], axis=1) for d in (design, held_out)
    )
    path = WeightKrylovPath(design, curvature, g, h, held_out)
    path.extend(n_weights)
    for strength in (0.1, 10.0):
        matrix = phi.T @ (h[:, None] * phi) + strength * np.diag(curvature)
        expected = np.linalg.solve(matrix, -phi.T @ g)
        np.testing.assert_allclose(path.weights(strength), expected, rtol=1e-6, atol=1e-9)
        predictions = path.predictions(np.array([strength]))[:, 0]
        np.testing.assert_allclose(predictions, new @ expected, rtol=1e-6, atol=1e-8)
