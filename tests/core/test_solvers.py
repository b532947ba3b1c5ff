"""Solvers: they agree, say how they ended, and their certificates are true."""

from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from jointleaf._core.design import LeafDesign, lipschitz
from jointleaf._core.fitting import fit_cells
from jointleaf._core.losses import Logistic, Loss, SquaredError
from jointleaf._core.penalties import L21, Frobenius, Penalty
from jointleaf._core.problem import Problem
from jointleaf._core.solvers import FISTA, Dual, Newton
from jointleaf._core.solvers.base import SolverState, choose_solver, effective_tol, solve
from jointleaf._core.solvers.newton import PCG, conjugate_gradients

LOSSES = ["squared_error", "logistic", "multinomial"]
PENALTIES = {
    "penalised_biases": Frobenius(0.05, 0.02),
    "free_biases": Frobenius(0.05, 0),
    "weighted": Frobenius(0.05, 0.1, [0.2, 1.0, 5.0], [1.0, 0.3, 2.0]),
}


SOLVER_AND_LOSS = [
    ("pcg", "squared_error"),
    *[(solver, loss) for solver in ("dual", "newton", "fista") for loss in LOSSES],
]


class Lasso(Penalty):
    """A penalty as a user would write it: the sum of absolute values."""

    def __init__(self, strength):
        self.strength = strength

    def value(self, theta):
        return self.strength * float(np.abs(theta).sum())

    def prox(self, theta, step):
        return np.sign(theta) * np.maximum(np.abs(theta) - step * self.strength, 0)


class UnboundedSquaredError(SquaredError):
    """A loss whose curvature bound is not known."""

    max_curvature = np.inf


def _solvers_for(loss, penalty):
    names = ["newton", "fista"]
    if loss == "squared_error":
        names.append("pcg")
    if loss == "squared_error" or penalty.bias_strength > 0:
        names.append("dual")
    return names


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cells", ["linear", "constant"])
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
def test_solvers_agree(loss, cells, penalty, make_case, make_problem):
    problem = make_problem(make_case(loss, n=150), loss, penalty, cells=cells, offset=0.2)
    found = [
        solve(problem, name, tol=1e-7, max_iter=20_000) for name in _solvers_for(loss, penalty)
    ]
    lowest = min(solution.objective for solution in found)
    assert lowest < 0.98 * problem.data_value(problem.zero_predictions()), "must be worth fitting"
    answers = [problem.loss.link(problem.design.matvec(one.theta)) for one in found]
    for solution, answer in zip(found, answers, strict=True):
        assert solution.converged
        assert solution.optimality <= 1e-7
        assert solution.objective == pytest.approx(lowest, rel=1e-6)
        np.testing.assert_allclose(answer, answers[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cells", ["linear", "constant"])
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES.keys())
def test_single_precision_is_close_to_double(loss, cells, penalty, make_case):
    case = make_case(loss)
    options = {"loss": loss, "cells": cells, "penalty": penalty, "sample_weight": case.s}
    options |= {"tol": 1e-4, "max_iter": 20_000}
    for name in _solvers_for(loss, penalty):
        double = fit_cells(*case.data, solver=name, **options)
        single = fit_cells(case.X.astype(np.float32), case.codes, case.y, solver=name, **options)
        assert single.converged
        assert single.objective == pytest.approx(double.objective, rel=1e-4)


def test_iterative_solvers_compute_in_the_precision_of_X(make_case):
    case = make_case()
    for name in ("pcg", "newton", "fista"):
        solution = fit_cells(case.X.astype(np.float32), case.codes, case.y, solver=name, tol=1e-4)
        assert solution.coef.dtype == np.float32
        assert solution.intercept.dtype == np.float32


@pytest.mark.parametrize(("solver", "loss"), SOLVER_AND_LOSS)
def test_gap_bounds_the_distance_from_the_minimum(solver, loss, make_case, make_problem):
    problem = make_problem(make_case(loss), loss)
    lowest = solve(problem, "newton", tol=1e-11).objective
    for tol in (0.3, 1e-2, 1e-4):
        solution = solve(problem, solver, tol=tol)
        assert solution.gap >= solution.objective - lowest - 1e-13
    theta = np.random.default_rng(0).standard_normal(problem.zeros().shape)
    f = problem.design.matvec(theta)
    excess = problem.objective(theta, f) - lowest
    assert problem.gap(theta, problem.data_gradient(f)) >= excess


def test_gap_is_tight_for_the_penalty_alone(make_case, make_problem):
    case = make_case()
    problem = make_problem(case)
    theta = np.random.default_rng(0).standard_normal(problem.zeros().shape)
    # Without data the gradient is that of the penalty, and the bound is J itself.
    assert problem.gap(theta, np.zeros_like(theta)) == pytest.approx(problem.penalty.value(theta))
    free = make_problem(case, penalty=Frobenius(0.1, 0))
    assert solve(free, "pcg").gap == np.inf


@pytest.mark.parametrize(("solver", "loss"), SOLVER_AND_LOSS)
def test_record_of_a_solve(solver, loss, make_case, make_problem):
    problem = make_problem(make_case(loss), loss)
    solution = solve(problem, solver, max_iter=5000)
    assert solution.status == "converged"
    assert solution.solver == solver
    assert solver in solution.message
    assert "converged" in solution.message
    assert repr(solution).startswith(f"Solution({solver}: converged")
    seconds = [point.seconds for point in solution.trace]
    iterations = [point.iteration for point in solution.trace]
    assert all(a <= b for a, b in pairwise(seconds))
    assert all(a <= b for a, b in pairwise(iterations))
    assert iterations[-1] == solution.n_iter
    last = solution.trace[-1]
    assert last.objective == pytest.approx(solution.objective, rel=1e-8)
    assert last.optimality <= 1e-6
    theta, f = solution.theta, problem.design.matvec(solution.theta)
    assert solution.objective == pytest.approx(problem.objective(theta, f), rel=1e-12)
    true = problem.optimality(theta, problem.data_gradient(f))
    assert solution.optimality == pytest.approx(true, rel=1e-3, abs=1e-14)


@pytest.mark.parametrize("solver", ["pcg", "newton"])
def test_objective_of_descent_methods_never_rises(solver, make_case, make_problem):
    trace = solve(make_problem(make_case()), solver, tol=1e-10).trace
    assert len(trace) > 3
    values = [point.objective for point in trace]
    assert all(b <= a * (1 + 1e-13) for a, b in pairwise(values))


@pytest.mark.parametrize("solver", ["pcg", "newton", "fista"])
def test_too_few_iterations_warn_with_advice(solver, make_case):
    case = make_case()
    with pytest.warns(ConvergenceWarning, match=f"{solver} stopped after .*raise max_iter"):
        solution = fit_cells(*case.data, solver=solver, max_iter=1, tol=1e-10)
    assert solution.status == "max_iter"
    assert not solution.converged
    assert solution.n_iter == 1
    assert solution.optimality > 1e-10
    assert np.isfinite(solution.coef).all()


def test_dual_newton_with_too_few_iterations_warns(make_case):
    case = make_case("logistic")
    with pytest.warns(ConvergenceWarning, match="dual stopped after 1 iteration at"):
        fit_cells(*case.data, loss="logistic", solver="dual", max_iter=1, tol=1e-10)


def test_tolerance_is_raised_to_what_the_precision_shows():
    assert effective_tol(1e-12, np.dtype(np.float32)) == pytest.approx(100 * 2.0**-23)
    assert effective_tol(1e-3, np.dtype(np.float32)) == 1e-3


@pytest.mark.parametrize(
    ("solver", "loss"), [pair for pair in SOLVER_AND_LOSS if pair[0] != "dual"]
)
def test_warm_start_from_the_solution_is_immediate(solver, loss, make_case, make_problem):
    problem = make_problem(make_case(loss), loss)
    theta = solve(problem, "newton", tol=1e-10).theta
    kept = theta.copy()
    warm = solve(problem, solver, theta, tol=1e-6)
    assert warm.converged
    assert warm.n_iter == 0
    np.testing.assert_array_equal(theta, kept)
    far = solve(problem, solver, theta + 1.0, tol=1e-7, max_iter=5000)
    assert far.converged
    assert far.objective == pytest.approx(warm.objective, rel=1e-6)
    np.testing.assert_array_equal(theta, kept)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
@pytest.mark.parametrize("cells", ["linear", "constant"])
def test_free_biases_of_duplicate_partitions_converge(solver, cells, make_case):
    case = make_case()
    codes = np.column_stack([case.codes, case.codes[:, :2]])
    options = {"penalty": Frobenius(0.05, 0), "cells": cells, "tol": 1e-7, "max_iter": 20_000}
    solution = fit_cells(case.X, codes, case.y, solver=solver, **options)
    assert solution.converged
    once = fit_cells(*case.data, solver=solver, **options)
    if cells == "constant":  # copies of a free partition add nothing
        assert solution.objective == pytest.approx(once.objective, rel=1e-6)
    else:  # copies of a penalised one share its weights, which is cheaper
        assert solution.objective < once.objective


@pytest.mark.parametrize("solver", ["newton", "fista"])
def test_free_biases_of_coupled_outputs_converge(solver, make_case):
    case = make_case("multinomial", n=150)
    codes = np.column_stack([case.codes, case.codes[:, :2]])
    solution = fit_cells(
        case.X,
        codes,
        case.y,
        loss="multinomial",
        penalty=Frobenius(0.05, 0),
        solver=solver,
        max_iter=20_000,
    )
    assert solution.converged


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_optimality_does_not_depend_on_the_scale_of_y(solver, make_case):
    case = make_case()
    one = fit_cells(*case.data, solver=solver, tol=1e-4)
    scaled = fit_cells(case.X, case.codes, 1e3 * case.y, solver=solver, tol=1e-4)
    assert scaled.n_iter == one.n_iter
    assert scaled.optimality == pytest.approx(one.optimality, rel=0.1, abs=1e-13)
    np.testing.assert_allclose(scaled.coef, 1e3 * one.coef, rtol=1e-4, atol=0.01)


def test_fista_minimises_a_penalty_that_is_not_quadratic(make_case, make_problem):
    case = make_case(d=2, cells=(2, 3))
    problem = make_problem(case, penalty=Lasso(0.02))
    assert choose_solver(problem).name == "fista"
    solution = solve(problem, tol=1e-8, max_iter=20_000)
    assert solution.converged
    assert solution.gap == np.inf
    # The conditions of the lasso: G = -strength sign(theta), or |G| <= strength where zero.
    G = problem.data_gradient(problem.design.matvec(solution.theta))
    live = solution.theta != 0
    assert 0 < live.sum() < live.size
    np.testing.assert_allclose(G[live], -0.02 * np.sign(solution.theta[live]), atol=1e-7)
    assert np.abs(G[~live]).max() <= 0.02 + 1e-7


def test_fista_finds_its_step_where_the_curvature_has_no_bound(make_case, make_problem):
    case = make_case()
    problem = make_problem(case, UnboundedSquaredError())
    solution = solve(problem, "fista", tol=1e-7)
    assert solution.converged
    assert solution.objective == pytest.approx(solve(problem, "dual").objective, rel=1e-6)


def test_fista_shortens_a_step_that_is_too_long(make_case, make_problem):
    class Optimistic(Logistic):
        max_curvature = 1e-4  # wrong by far: backtracking must notice

    case = make_case("logistic")
    solution = solve(make_problem(case, Optimistic()), "fista", tol=1e-7, max_iter=5000)
    expected = solve(make_problem(case, "logistic"), "newton", tol=1e-9).objective
    assert solution.objective == pytest.approx(expected, rel=1e-6)


def test_fista_takes_a_loss_a_user_wrote(make_case, make_problem):
    class PseudoHuber(Loss):
        def row_loss(self, y, f):
            return np.sqrt(1 + (f - y) ** 2) - 1

        def row_gradient(self, y, f):
            return (f - y) / np.sqrt(1 + (f - y) ** 2)

        def row_curvature(self, y, f):
            return (1 + (f - y) ** 2) ** -1.5

        def best_constant(self, y, s):
            return np.average(y, weights=s)

    problem = make_problem(make_case(), PseudoHuber())
    found = [solve(problem, name, tol=1e-7, max_iter=5000) for name in ("fista", "newton", "dual")]
    for solution in found:
        assert solution.converged
        assert solution.objective == pytest.approx(found[0].objective, rel=1e-6)


@pytest.mark.parametrize(
    ("solver", "loss", "penalty", "remedy"),
    [
        ("pcg", "logistic", Frobenius(0.1), "squared error.*'newton' or 'fista'"),
        ("pcg", "squared_error", Lasso(0.1), "quadratic penalty.*'fista'"),
        ("newton", "logistic", Lasso(0.1), "quadratic penalty.*'fista'"),
        ("dual", "squared_error", Lasso(0.1), "Frobenius.*'fista'"),
        ("dual", "logistic", Frobenius(0.1, 0), "bias_strength > 0.*'newton'"),
    ],
)
def test_solver_that_does_not_fit_says_what_would(solver, loss, penalty, remedy, make_case):
    case = make_case(loss)
    with pytest.raises(ValueError, match=f"solver='{solver}' does not fit.*{remedy}"):
        fit_cells(*case.data, loss=loss, penalty=penalty, solver=solver)


def test_rules_of_auto(make_case, make_problem, monkeypatch):
    squared, logistic = make_case(cells=(8, 9, 10)), make_case("logistic")

    def chosen(case, *args, **options):
        return type(choose_solver(make_problem(case, *args, **options)))

    assert chosen(squared) is Dual
    assert chosen(logistic, "logistic") is Dual
    assert chosen(logistic, "logistic", Frobenius(0.1, 0)) is Newton
    assert chosen(squared, cells="constant") is PCG  # fewer weights than rows
    assert chosen(make_case()) is PCG
    assert chosen(squared, penalty=Lasso(0.1)) is FISTA
    monkeypatch.setattr("jointleaf._core.solvers.base.MAX_DUAL_ROWS", 59)
    monkeypatch.setattr("jointleaf._core.solvers.base.MAX_DUAL_ROWS_NEWTON", 59)
    assert chosen(squared) is PCG
    assert chosen(logistic, "logistic") is Newton
    # Of wide rows twice as many are solved in the dual.
    monkeypatch.setattr("jointleaf._core.solvers.base.WIDE", 2)
    assert chosen(squared) is Dual


def test_conjugate_gradients_need_one_step_for_every_eigenvalue():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((20, 20)))[0]
    H = (Q * np.repeat([1.0, 3.0, 50.0, 400.0], 5)) @ Q.T
    b = rng.standard_normal(20)

    def note(x, image, residual, step):
        np.testing.assert_allclose(image, x)
        np.testing.assert_allclose(residual, b - H @ x, atol=1e-10)

    zero = np.zeros(20)
    x, _, n_steps = conjugate_gradients(
        lambda p: (p, H @ p, p), lambda r: r, zero, zero, b, lambda r: False, 4, note
    )
    assert n_steps == 4
    np.testing.assert_allclose(H @ x, b, atol=1e-9)


def test_solver_objects_are_used_as_given(make_case):
    assert fit_cells(*make_case().data, solver=Newton()).solver == "newton"


@pytest.mark.parametrize("solver", ["pcg", "newton", "fista"])
def test_a_start_away_from_a_zero_optimum_is_not_called_converged(solver, make_case):
    case = make_case()
    design = LeafDesign(case.X, case.codes)
    problem = Problem(design, np.zeros(len(case.y)), SquaredError(), Frobenius(0.1))
    solution = solve(problem, solver, np.ones(design.layout.n_weights), max_iter=5000)
    assert solution.converged
    assert solution.objective < 1e-8


def test_balanced_classes_that_nothing_tells_apart_are_done_at_once():
    codes, y = np.zeros((30, 1), int), np.tile([-1.0, 1.0], 15)
    solution = fit_cells(np.zeros((30, 1)), codes, y, loss="logistic", solver="dual")
    assert solution.n_iter <= 1
    assert solution.converged


def test_a_problem_takes_positive_weights_only(make_case):
    case = make_case()
    design = LeafDesign(case.X, case.codes)
    weights = np.arange(len(case.y), dtype=float)
    with pytest.raises(ValueError, match="sample_weight holds zeros"):
        Problem(design, case.y, SquaredError(), Frobenius(0.1), weights)


def test_rows_of_any_size_are_solved_by_rule():
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((300, 4)), rng.integers(0, 4, (300, 5))
    for unit in (1e-5, 1e4, 1e6):
        assert fit_cells(unit * X, codes, X[:, 0], penalty=Frobenius(1e-6)).converged


def test_the_optimality_of_a_norm_does_not_depend_on_the_unit_of_the_features(make_case):
    case = make_case()
    design = LeafDesign(case.X, case.codes)
    best = solve(Problem(design, case.y, SquaredError(), Lasso(0.01)), tol=1e-9, max_iter=10**5)
    for unit in (1.0, 1e2):
        scaled = LeafDesign(unit * np.column_stack([case.X, np.ones(len(case.X))]), case.codes)
        problem = Problem(scaled, case.y, SquaredError(), Lasso(0.01 * unit))
        found = solve(problem, "fista", tol=1e-5, max_iter=10**5)
        assert found.objective < best.objective * 1.01


# -- problems and the state of solvers ----------------------------------------------------------


def test_problems_cannot_be_changed(make_case, make_problem):
    problem = make_problem(make_case())
    for name in ("prox_step", "penalty", "device"):
        with pytest.raises(FrozenInstanceError):
            setattr(problem, name, 1.0)


@pytest.mark.parametrize(
    "penalty", [Frobenius(0.1), L21(0.05), Lasso(0.05)], ids=lambda p: type(p).__name__
)
@pytest.mark.parametrize("loss", ["squared_error", "multinomial"])
def test_optimality_is_the_same_before_and_after_every_solve(
    penalty, loss, make_case, make_problem
):
    problem = make_problem(make_case(loss, d=12), loss, penalty)
    theta = np.random.default_rng(0).standard_normal(problem.zeros().shape)
    gradient = problem.data_gradient(problem.design.matvec(theta))
    before = problem.optimality(theta, gradient)
    state = SolverState()
    for solver in (Dual(), PCG(), Newton(), FISTA()):
        if solver.unsupported_reason(problem) is None:
            solution = solver.solve(problem, max_iter=50, state=state)
            assert problem.optimality(theta, gradient) == before
            f = problem.design.matvec(solution.theta)
            measured = problem.optimality(solution.theta, problem.data_gradient(f))
            assert solution.optimality == pytest.approx(measured, rel=1e-6, abs=1e-12)
    again = make_problem(make_case(loss, d=12), loss, penalty)
    assert again.optimality(theta, gradient) == before


@pytest.mark.parametrize("kinds", ["linear", "constant", ("linear", "constant", "linear")])
def test_the_step_of_the_measure_is_one_over_a_bound_of_the_curvature(kinds, make_case):
    case = make_case()
    design = LeafDesign(case.X, case.codes, cells=kinds)
    problem = Problem(design, case.y, SquaredError(), L21(0.1), case.s)
    largest = lipschitz(design, case.s / case.s.sum(), max_iter=1000, tol=1e-10)
    assert largest <= 1 / problem.prox_step < 20 * largest


def test_a_state_makes_the_next_solve_faster_and_changes_nothing_else(make_case, make_problem):
    problem = make_problem(make_case(n=200, d=4), penalty=L21(0.05, 0.01))
    state = SolverState()
    first = solve(problem, "fista", tol=1e-8, max_iter=5000, state=state)
    assert ("biases", np.full(problem.layout.n_cells, 0.01).tobytes()) in state
    second = solve(problem, "fista", tol=1e-8, max_iter=5000, state=state)
    alone = solve(problem, "fista", tol=1e-8, max_iter=5000)
    for other in (second, alone):
        assert other.objective == pytest.approx(first.objective, rel=1e-10)
