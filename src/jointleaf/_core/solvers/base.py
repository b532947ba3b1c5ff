"""What a solver is, and the record it gives."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.device import check_device, place
from jointleaf._core.layout import CellLayout
from jointleaf._core.problem import Problem

__all__ = ["Recorder", "Solution", "Solver", "TracePoint", "effective_tol", "finish"]

Status = Literal["converged", "max_iter", "stalled"]


class TracePoint(NamedTuple):
    """One line of a solver's trace."""

    iteration: int
    seconds: float
    objective: float
    optimality: float


@dataclass(frozen=True)
class Solution:
    """The outcome of a solve.

    Attributes
    ----------
    coef : array (L, d) or (L, d, K)
        Slopes of the linear cells, partition after partition.
    intercept : array (C,) or (C, K)
        Biases.
    status : {"converged", "max_iter", "stalled"}
    message : str
        The status in words and, where it is not "converged", what to try.
    solver : str
    n_iter : int
    objective : float
        J at the solution.
    optimality : float
        Scale-free distance from the first-order conditions (`Problem.optimality`).
    gap : float
        Certified bound of J minus its minimum; infinite where some weight is not penalised.
    trace : list of TracePoint
        Iteration, seconds since the start, objective and optimality.
    layout : CellLayout
    """

    coef: NDArray
    intercept: NDArray
    status: Status
    message: str
    solver: str
    n_iter: int
    objective: float
    optimality: float
    gap: float
    layout: CellLayout
    trace: list[TracePoint] = field(default_factory=list, repr=False)

    @property
    def converged(self) -> bool:
        """Whether the optimality measure reached the tolerance."""
        return self.status == "converged"

    @property
    def theta(self) -> NDArray:
        """Slopes and biases in one array, (N,) or (N, K)."""
        return self.layout.join(self.coef, self.intercept)

    @property
    def slope_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's slopes over all cells and outputs, (d,)."""
        squares = np.square(self.coef, dtype=float)
        return np.sqrt(squares.sum(axis=(0, *range(2, squares.ndim))))

    def predict(self, X: ArrayLike, codes: ArrayLike, *, device: str = "cpu") -> NDArray:
        """Raw predictions (n,) or (n, K) of rows X (n, d) with codes (n, P); -1 is no cell.

        `device` is as for `jointleaf.fit_cells`.
        """
        check_device(device)
        rows = np.asarray(X, dtype=self.coef.dtype)
        if rows.ndim != 2 or rows.shape[1] != self.layout.n_features:
            raise ValueError(
                f"X has shape {rows.shape}, but the cells were fitted with "
                f"{self.layout.n_features} features"
            )
        theta = self.theta
        device = place(device, len(rows) * self.layout.entries_per_row * theta[0].size)
        if device != "cpu":
            from jointleaf._core.jax.problem import predict

            return predict(rows, np.asarray(codes), theta, self.layout, device)
        design = LeafDesign(
            rows,
            codes,
            self.layout.cells_per_partition,
            cells=self.layout.kinds,
        )
        return design.matvec(theta)

    def __repr__(self) -> str:
        return (
            f"Solution({self.solver}: {self.status} after {self.n_iter} iterations, "
            f"objective={self.objective:.8g}, optimality={self.optimality:.1e})"
        )


class Solver(ABC):
    """Minimises the objective of a `Problem`."""

    name: str = ""

    @abstractmethod
    def lacks(self, problem: Problem) -> str | None:
        """Say in one sentence what the problem lacks for this solver, or None if it fits."""

    @abstractmethod
    def solve(
        self,
        problem: Problem,
        init: NDArray | None = None,
        *,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> Solution:
        """Minimise, from the weights `init` or from zero, until optimality <= tol."""


class Recorder:
    """Keeps the trace of a solve, and tells every line to the problem's listener."""

    def __init__(self, problem: Problem) -> None:
        self._start = time.perf_counter()
        self._listener = problem.listener
        self.points: list[TracePoint] = []

    def add(self, iteration: int, objective: float, optimality: float) -> None:
        """Write one line, with the seconds since the recorder was made."""
        seconds = time.perf_counter() - self._start
        point = TracePoint(iteration, seconds, float(objective), float(optimality))
        self.points.append(point)
        if self._listener is not None:
            self._listener(*point)


def effective_tol(tol: float, dtype: np.dtype) -> float:
    """Raise a tolerance to what the precision can show: 100 machine epsilons."""
    return max(tol, 100 * float(np.finfo(dtype).eps))


_ADVICE = {
    "max_iter": (
        "{solver} stopped after {n_iter} iterations at optimality {optimality:.1e}, above tol: "
        "raise max_iter, strengthen the penalty, or loosen tol"
    ),
    "stalled": (
        "{solver} can make no more progress in {dtype} at optimality {optimality:.1e}, above tol: "
        "standardise X, use another solver{float64}, strengthen the penalty, or loosen tol"
    ),
    "converged": "{solver} converged in {n_iter} iterations to optimality {optimality:.1e}",
}


def finish(
    problem: Problem,
    theta: NDArray,
    recorder: Recorder,
    *,
    solver: str,
    n_iter: int,
    tol: float,
    stalled: bool = False,
    trace_end: bool = True,
) -> Solution:
    """Judge the final weights by a fresh forward and adjoint pass and make the record."""
    f = problem.design.matvec(theta)
    gradient = problem.data_gradient(f)
    objective = problem.objective(theta, f)
    optimality = problem.optimality(theta, gradient)
    if trace_end:
        recorder.add(n_iter, objective, optimality)
    status: Status = "converged"
    if not optimality <= tol:
        status = "stalled" if stalled else "max_iter"
    message = _ADVICE[status].format(
        solver=solver,
        n_iter=n_iter,
        optimality=optimality,
        dtype=problem.design.dtype,
        float64="" if problem.design.dtype == np.float64 else " or float64 input",
    )
    coef, intercept = problem.layout.split(theta)
    return Solution(
        coef=np.ascontiguousarray(coef),
        intercept=np.ascontiguousarray(intercept),
        status=status,
        message=message,
        solver=solver,
        n_iter=n_iter,
        objective=objective,
        optimality=optimality,
        gap=problem.gap(theta, gradient),
        layout=problem.layout,
        trace=recorder.points,
    )
