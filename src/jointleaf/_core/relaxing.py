"""Fitting what was selected once more, with a weaker penalty: the relaxed LASSO."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.fitting import solve
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import TaskNorm, Term
from jointleaf._core.penalties.base import Sum, on_weights
from jointleaf._core.solvers import Solution, Solver
from jointleaf._core.task_problem import TaskProblem

__all__ = ["relax_of", "relaxed", "solve_tasks", "support_of"]


def solve_tasks(
    problem: TaskProblem,
    penalty: Term,
    solver: str | Solver,
    init: NDArray | None = None,
    *,
    tol: float,
    max_iter: int,
) -> tuple[TaskProblem, Solution]:
    """Solve a problem and, where its penalty says so, once more on what was selected.

    Gives the problem that was solved last, and its solution.
    """
    solution = solve(problem, solver, init, tol=tol, max_iter=max_iter)
    factor = relax_of(penalty)
    if factor == 1.0:
        return problem, solution
    again = relaxed(penalty, factor, support_of(problem.layout, solution.theta))
    second = problem.with_penalty(on_weights(again))
    assert isinstance(second, TaskProblem)
    return second, solve(second, solver, solution.theta, tol=tol, max_iter=max_iter)


def relax_of(penalty: Term) -> Any:
    """By what the strengths are multiplied in the end; 1 for penalties that are not relaxed."""
    return next((term.relax for term in penalty.terms if isinstance(term, TaskNorm)), 1.0)


def support_of(layout: CellLayout, theta: NDArray) -> NDArray[np.bool_]:
    """Return which features have slopes in which task, (d, T)."""
    parts = np.split(layout.split(theta)[0] != 0, layout.slope_starts[1:-1])
    return np.stack([part.any(axis=0) for part in parts], axis=1)


def relaxed(penalty: Term, factor: float, support: NDArray[np.bool_]) -> Any:
    """The penalty with weaker strengths on the selected features alone."""
    if isinstance(penalty, Sum):
        return Sum(*(relaxed(term, factor, support) for term in penalty.terms))
    if isinstance(penalty, TaskNorm):
        return penalty.relaxed(factor, support)
    return penalty
