"""All solvers, losses and penalties give the same objective through SciPy and through JAX.

Squared error with every penalty and every solver, the logistic loss with a penalty of every
structure of compiled loops, other losses with one or two: in float64 to 1e-10 of the objective of
SciPy, in float32 with some penalties to 1e-4 of the objective of SciPy in float64.
What a solver does not accept must be rejected on the device with the same words as without one.
Predictions are the same, too. FISTA's loops are shared by penalties (see `jax_cross`);
`test_jax_solvers` has loops of single penalties as a fit compiles them.
"""

from functools import cache

import numpy as np
import pytest
from test_number_losses import KINKED, SMOOTH

import jointleaf._core.losses
import jointleaf._core.penalties
from jointleaf import fit_tasks
from jointleaf._core.penalties import (
    Free,
    Penalty,
    PredictionPenalty,
    SlopeNorm,
    Sum,
    TaskNorm,
    Term,
)
from jointleaf._core.solvers.base import SOLVERS, choose_solver

pytest.importorskip("jax")

from jax_cross import (
    CODES,
    LOSSES,
    MAX_ITER,
    PENALTIES,
    PRECISIONS,
    X,
    fits,
    problem_of,
    shared_prox,
)
from jointleaf._core.jax.solver import OnDevice


def _cross():
    """Loss, penalty and solver, split in what solvers accept on the CPU and what they do not."""
    accepted, rejected = [], []
    for loss in LOSSES:
        for penalty in PENALTIES:
            if not fits(loss, penalty):
                continue
            problem = problem_of(loss, penalty)
            for name, solver in SOLVERS.items():
                cases = accepted if solver().unsupported_reason(problem) is None else rejected
                cases.append((loss, penalty, name))
    return accepted, rejected


ACCEPTED, REJECTED = _cross()


@cache
def scipy_answer(loss, penalty, solver):
    """Objective and predictions of the same solver with NumPy and SciPy in float64."""
    tol, _ = PRECISIONS[np.float64]
    problem = problem_of(loss, penalty)
    solution = choose_solver(problem, solver).solve(problem, tol=tol, max_iter=MAX_ITER)
    assert solution.converged
    return solution.objective, problem.design.matvec(solution.theta)


#: One of every structure of loops: losses enter them by their derivatives alone.
STRUCTURES = {
    "ridge",
    "L21",
    "L21 + ridge + Laplacian",
    "tasks, ridge",
    "tasks, DirtyLasso",
    "tasks, DirtyLasso + ridge + Laplacian",
}
#: Other losses are one more function of y and f: one structure for every solver.
STRUCTURES_OF = {
    "squared_error": set(PENALTIES),
    "jax_poisson": {"ridge"},
    "multinomial": {"ridge", "L21"},
}
COMPARED = [
    (loss, penalty, solver, dtype)
    for loss, penalty, solver in ACCEPTED
    for dtype in PRECISIONS
    if penalty in STRUCTURES_OF.get(loss, STRUCTURES)
    if dtype is np.float64
    or (loss in ("squared_error", "multinomial") and penalty == "ridge")
    or (loss == "squared_error" and penalty in ("L21", "tasks, DirtyLasso"))
]


@pytest.mark.parametrize(("loss", "penalty", "solver", "dtype"), COMPARED)
def test_the_same_objective(loss, penalty, solver, dtype, monkeypatch):
    tol, precision = PRECISIONS[dtype]
    problem = problem_of(loss, penalty, dtype)
    placed = choose_solver(problem, solver, "jax:cpu")
    assert isinstance(placed, OnDevice)
    if loss == "squared_error" and dtype is np.float64:  # with all penalties
        monkeypatch.setattr("jointleaf._core.jax.solver.move_penalty", shared_prox(penalty))
    solution = placed.solve(problem, tol=tol, max_iter=MAX_ITER)
    assert solution.converged
    assert solution.solver == solver
    assert solution.coef.dtype == (np.float64 if solver == "dual" else dtype)
    expected, predictions = scipy_answer(loss, penalty, solver)
    assert np.isclose(solution.objective, expected, rtol=precision, atol=0)
    if dtype is np.float64:  # free biases are not unique: their predictions are
        found = problem.design.matvec(solution.theta)
        if loss == "multinomial":  # up to a constant in every row
            found, predictions = (f - f.mean(axis=1, keepdims=True) for f in (found, predictions))
        np.testing.assert_allclose(found, predictions, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_auto_is_one_of_the_solvers_that_were_compared(loss):
    penalties = [penalty for penalty in PENALTIES if fits(loss, penalty)]
    for penalty in penalties:
        host = choose_solver(problem_of(loss, penalty))
        placed = choose_solver(problem_of(loss, penalty), device="jax:cpu")
        assert isinstance(placed, OnDevice)
        assert placed.name == host.name
        assert (loss, penalty, placed.name) in ACCEPTED


@pytest.mark.parametrize("loss", LOSSES)
def test_what_a_solver_rejects_is_rejected_with_the_same_words(loss):
    cases = [case for case in REJECTED if case[0] == loss]
    assert cases
    for _, penalty, solver in cases:
        words = []
        for device in ("cpu", "jax:cpu"):
            with pytest.raises(ValueError, match=f"solver='{solver}' does not fit") as caught:
                choose_solver(problem_of(loss, penalty), solver, device)
            words.append(str(caught.value))
        assert words[0] == words[1]
        assert ": use solver='" in words[0]


def test_losses_with_several_outputs_are_rejected_for_several_tasks():
    tasks = [(X, CODES, np.arange(len(X)) % 3)] * 2
    for device in ("cpu", "jax:cpu"):
        with pytest.raises(ValueError, match="one output"):
            fit_tasks(tasks, penalty=PENALTIES["L21"], loss="multinomial", device=device)


# -- the cross is complete -----------------------------------------------------------------------


def _classes(penalty):
    """The classes of a penalty, of its terms, and of what they hold."""
    inner = getattr(penalty, "penalty", None)
    found = {type(term) for term in penalty.terms}
    return found if inner is None else found | _classes(inner)


def test_nothing_is_left_out():
    names = vars(jointleaf._core.penalties).values()
    public = [value for value in names if isinstance(value, type)]
    abstract = {Penalty, PredictionPenalty, SlopeNorm, TaskNorm, Term, Free, Sum}
    used = set().union(*(_classes(penalty) for penalty in PENALTIES.values()))
    assert set(public) - abstract <= used
    numbers = {loss.name for loss in (*SMOOTH, *KINKED)}  # compared there
    assert set(jointleaf._core.losses.LOSSES) <= set(LOSSES) | numbers
    assert {case[2] for case in ACCEPTED} == set(SOLVERS)
    assert {case[:2] for case in ACCEPTED} == {
        (loss, penalty) for loss in LOSSES for penalty in PENALTIES if fits(loss, penalty)
    }
