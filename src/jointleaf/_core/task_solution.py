"""The outcome of a joint fit of several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Penalty, SlopeNorm, TaskNorm
from jointleaf._core.solvers import Solution
from jointleaf._core.solvers.base import Status, TracePoint
from jointleaf._core.task_problem import TaskProblem

__all__ = ["TaskSolution", "make_solution", "split_slopes"]


@dataclass(frozen=True)
class TaskSolution:
    """The weights of all tasks, and how they were found.

    Attributes
    ----------
    tasks : tuple of Solution
        Slopes ``coef`` (L_t, d) and biases ``intercept`` (C_t,) of every task, W_t = C_t + T_t.
    common : tuple of arrays (L_t, d)
        C_t: slopes of features that all tasks share.
    specific : tuple of arrays (L_t, d)
        T_t: slopes of features of a single task.
    status : {"converged", "max_iter", "stalled"}
    message : str
    solver : str
    n_iter : int
    objective : float
        J at the solution.
    optimality : float
        Scale-free distance from the first-order conditions (`Problem.optimality`).
    trace : list of TracePoint
    """

    tasks: tuple[Solution, ...]
    common: tuple[NDArray, ...]
    specific: tuple[NDArray, ...]
    status: Status
    message: str
    solver: str
    n_iter: int
    objective: float
    optimality: float
    trace: list[TracePoint] = field(default_factory=list, repr=False)

    @property
    def converged(self) -> bool:
        """Whether the optimality measure reached the tolerance."""
        return self.status == "converged"

    @property
    def theta(self) -> NDArray:
        """Slopes of all tasks, task after task, then all biases, (N,)."""
        slopes = [task.coef.ravel() for task in self.tasks]
        return np.concatenate(slopes + [task.intercept for task in self.tasks])

    @property
    def common_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's common slopes in every task, (d, T)."""
        return _norms(self.common)

    @property
    def specific_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's slopes of single tasks, (d, T)."""
        return _norms(self.specific)

    def __repr__(self) -> str:
        return (
            f"TaskSolution({len(self.tasks)} tasks, {self.solver}: {self.status} after "
            f"{self.n_iter} iterations, objective={self.objective:.8g}, "
            f"optimality={self.optimality:.1e})"
        )


def make_solution(problem: TaskProblem, solution: Solution) -> TaskSolution:
    """Give every task its part of a solution, in the units of the problem's stated objective."""
    layout = problem.layout
    objective = problem.mass * solution.objective
    trace = [point._replace(objective=problem.mass * point.objective) for point in solution.trace]
    common, specific = split_slopes(problem.penalty, layout, solution.theta)
    gap = problem.mass * solution.gap

    def by_task(slopes: NDArray) -> Sequence[NDArray]:
        return np.split(slopes, layout.slope_starts[1:-1])

    biases = np.split(solution.intercept, layout.task_starts[1:-1])
    tasks = tuple(
        replace(
            solution, coef=coef, intercept=intercept, layout=part, objective=objective, gap=gap,
            trace=trace,
        )
        for coef, intercept, part in zip(
            by_task(solution.coef), biases, layout.tasks, strict=True
        )
    )  # fmt: skip
    return TaskSolution(
        tasks,
        tuple(by_task(common)),
        tuple(by_task(specific)),
        solution.status,
        solution.message,
        solution.solver,
        solution.n_iter,
        objective,
        solution.optimality,
        trace,
    )


def split_slopes(penalty: Penalty, layout: CellLayout, theta: NDArray) -> tuple[NDArray, NDArray]:
    """Return common slopes and slopes of single tasks, both (L, d), under a bound penalty.

    A Dirty LASSO says which is which. Under other penalties that act on all tasks together and
    make whole features vanish every slope is common; under all others it belongs to its task.
    """
    slopes, _ = layout.split(theta)
    for term in penalty.terms:
        if isinstance(term, TaskNorm):
            common, specific = term.parts(np.ascontiguousarray(slopes.T))
            return common.T, specific.T
    are_common = any(isinstance(t, SlopeNorm) and t.is_row_sparse for t in penalty.terms)
    zeros = np.zeros_like(slopes)
    return (slopes, zeros) if are_common else (zeros, slopes)


def _norms(parts: tuple[NDArray, ...]) -> NDArray[np.float64]:
    return np.stack([np.linalg.norm(part.astype(float), axis=0) for part in parts], axis=1)
