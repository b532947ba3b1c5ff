"""What a solver is, and the record it gives."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import array_namespace, check_device, place, while_loop
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import Kinked, Loss
from jointleaf._core.problem import Problem

T = TypeVar("T")

_HALVINGS = 39  # of a step
# Of smooth losses in place of one with kinks: the first width in standard deviations of the
# target, the factor from one to the next, and the most of them.
_WIDTH, _NARROWER, _MOST_WIDTHS = 0.3, 0.2, 50
_PATIENCE = 5  # widths without a gain: rounding is all that is left
_LEAST_WIDTH = 0.03  # of the first: around the right derivatives that is narrow enough

#: "stopped": after as many steps as were asked for, see `Krylov`
Status = Literal["converged", "max_iter", "stalled", "stopped"]


class TracePoint(NamedTuple):
    """One line of a solver's trace."""

    iteration: int
    seconds: float
    objective: float
    optimality: float


@dataclass(frozen=True)
class Solution:
    """The outcome of a solve, of one task or of several.

    Attributes
    ----------
    coef : array (L, d) or (L, d, K)
        Slopes of the linear cells, partition after partition, and task after task.
    intercept : array (C,) or (C, K)
        Biases.
    status : {"converged", "max_iter", "stalled", "stopped"}
    message : str
        The status in words and, where it is not "converged", what to try.
    solver : str
    n_iter : int
    objective : float
        J at the solution.
    optimality : float
        Scale-free distance from the first-order conditions (`Problem.optimality`). For a loss with
        kinks the derivatives of a smooth loss stand in for a subgradient, and what these fail to
        be one by (`Problem.excess`), relative to the loss at zero weights, counts where it is more.
    gap : float
        Certified bound of J minus its minimum; infinite where some weight is not penalised.
    trace : list of TracePoint
        Iteration, seconds since the start, objective and optimality.
    layout : CellLayout
    common_coef : array (L, d) or None
        Part of `coef` that belongs to features that all tasks share; None where there is none.
    loss : Loss or None
        What was minimised, with the scale that was found for it; None for a model that was loaded.
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
    common_coef: NDArray | None = None
    loss: Loss | None = field(default=None, repr=False, compare=False)

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

    @property
    def tasks(self) -> tuple[Solution, ...]:
        """The solution of every task."""
        tasks = []
        for t, layout in enumerate(self.layout.tasks):
            rows = slice(*self.layout.slope_starts[t : t + 2])
            cells = slice(*self.layout.task_starts[t : t + 2])
            common = None if self.common_coef is None else self.common_coef[rows]
            coef, intercept = self.coef[rows], self.intercept[cells]
            tasks.append(
                replace(self, coef=coef, intercept=intercept, layout=layout, common_coef=common)
            )
        return tuple(tasks)

    @property
    def common(self) -> NDArray:
        """C, the slopes of features that all tasks share, (L, d)."""
        return np.zeros_like(self.coef) if self.common_coef is None else self.common_coef

    @property
    def specific(self) -> NDArray:
        """T, the slopes of features of a single task, (L, d): W = C + T."""
        return self.coef - self.common

    @property
    def common_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's common slopes in every task, (d, T)."""
        return _norms([task.common for task in self.tasks])

    @property
    def specific_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's slopes of single tasks, (d, T)."""
        return _norms([task.specific for task in self.tasks])

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
        counts, kinds = self.layout.cells_per_partition, self.layout.kinds
        return LeafDesign(rows, codes, counts, cells=kinds).matvec(theta)

    def __repr__(self) -> str:
        n_tasks = len(self.layout.tasks)
        return (
            f"Solution({f'{n_tasks} tasks, ' if n_tasks > 1 else ''}{self.solver}: {self.status} "
            f"after {iterations(self.n_iter)}, objective={self.objective:.8g}, "
            f"optimality={self.optimality:.1e})"
        )


def iterations(count: int) -> str:
    """Return "1 iteration" or "20 iterations"."""
    return f"{count} iteration{'' if count == 1 else 's'}"


def _norms(slopes: list[NDArray]) -> NDArray[np.float64]:
    return np.stack([np.linalg.norm(part.astype(float), axis=0) for part in slopes], axis=1)


class SolverState:
    """What solvers keep for the next solve of a related problem.

    Problems are related if they have the same rows, cells and loss, and penalties of their own:
    the points of a path of strengths. Step sizes, factorisations and copies on a device are kept
    under keys; what a state holds changes how fast a solve is, not what it finds.
    """

    def __init__(self) -> None:
        self._values: dict[object, Any] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return what is kept under a key, made now if there is nothing."""
        if key not in self._values:
            self._values[key] = make()
        return self._values[key]

    def set(self, key: object, value: object) -> None:
        """Keep a value under a key."""
        self._values[key] = value


#: called with iteration, seconds, objective and optimality while a solver works
Listener = Callable[[int, float, float, float], None]


class Recorder:
    """Keeps the trace of a solve, and calls a listener with every line of it."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._start = time.perf_counter()
        self._listener = listener
        self.points: list[TracePoint] = []

    def add(self, iteration: int, objective: float, optimality: float) -> None:
        """Write one line, with the seconds since the recorder was made."""
        seconds = time.perf_counter() - self._start
        point = TracePoint(iteration, seconds, float(objective), float(optimality))
        self.points.append(point)
        if self._listener is not None:
            self._listener(*point)


class Run(NamedTuple):
    """What a solve is given besides its problem: when to end, what to reuse, where to report."""

    tol: float
    max_iter: int
    state: SolverState
    recorder: Recorder


class Solver(ABC):
    """Minimises the objective of a `Problem`.

    Losses with kinks are minimised through smooth ones, narrower and narrower around the
    derivatives that the one before found (the augmented Lagrangian method on the dual), until these
    derivatives are a subgradient to the tolerance.
    """

    name: str = ""
    in_double: bool = False  # problems are solved in double precision

    @abstractmethod
    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return in one sentence why the solver does not fit a problem, or None if it does."""

    def solve(
        self,
        problem: Problem,
        init: NDArray | None = None,
        *,
        tol: float = 1e-6,
        max_iter: int = 1000,
        state: SolverState | None = None,
        listener: Listener | None = None,
    ) -> Solution:
        """Minimise, from the weights `init` or from zero, until optimality <= tol.

        `state` is that of solves of related problems before, and is updated.
        """
        state = SolverState() if state is None else state
        run = Run(effective_tol(tol, problem.design.dtype), max_iter, state, Recorder(listener))
        problem = problem.in_double() if self.in_double else problem

        def start() -> NDArray:  # not held longer than it is needed
            return problem.zeros() if init is None else np.array(init, problem.design.dtype)

        if isinstance(problem.loss, Kinked):
            return self._solve_kinked(problem, start(), run)
        return self._finish(problem, run, *self._minimise(problem, start(), run))

    def _solve_kinked(self, problem: Problem, theta: NDArray, run: Run) -> Solution:
        """Minimise through smooth losses; every width is a problem with a state of its own."""
        start_value = problem.data_value(problem.zero_predictions()) or 1.0
        width = _WIDTH * problem.residual_scale
        least = _LEAST_WIDTH * width
        slope = np.zeros_like(problem.y)
        n_iter, accuracy, measures = 0, 1e-2, [np.inf]
        for _ in range(_MOST_WIDTHS):
            smooth = problem.smoothed(width, slope)
            tol, steps_left = max(0.3 * run.tol, accuracy), run.max_iter - n_iter
            inner = Run(tol, steps_left, SolverState(), run.recorder)
            theta, steps, _ = self._minimise(smooth, theta, inner)
            n_iter += steps
            f = problem.design.matvec(theta)
            slope = smooth.loss.row_gradient(smooth.y, f + smooth.offset)
            gradient = smooth.data_gradient(f)
            excess = problem.excess(f, slope)
            measures.append(max(smooth.optimality(theta, gradient), excess / start_value))
            is_stuck = min(measures[-_PATIENCE:]) >= min(measures[:-_PATIENCE], default=np.inf)
            if measures[-1] <= run.tol or n_iter >= run.max_iter or is_stuck:
                break
            width, accuracy = max(_NARROWER * width, least), 0.1 * accuracy
        return self._record(
            problem, run, theta, f, gradient, measures[-1], n_iter, n_iter < run.max_iter, excess
        )

    @abstractmethod
    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        """Return weights, the number of iterations, and whether rounding ended them.

        `theta` is an array to start from, and may be overwritten.
        """

    def _finish(
        self, problem: Problem, run: Run, theta: NDArray, n_iter: int, stalled: bool
    ) -> Solution:
        """Return the record of the final weights, measured by a fresh forward and adjoint pass."""
        f = problem.design.matvec(theta)
        gradient = problem.data_gradient(f)
        optimality = problem.optimality(theta, gradient)
        return self._record(problem, run, theta, f, gradient, optimality, n_iter, stalled)

    def _record(
        self,
        problem: Problem,
        run: Run,
        theta: NDArray,
        f: NDArray,
        gradient: NDArray,
        optimality: float,
        n_iter: int,
        stalled: bool,
        excess: float = 0.0,
    ) -> Solution:
        """Return the record of weights with predictions f, and a gradient of the data term.

        For a loss with kinks the gradient is that of derivatives with an `excess`.
        """
        objective, trace = problem.objective(theta, f), run.recorder.points
        if not trace or trace[-1].iteration != n_iter:
            run.recorder.add(n_iter, objective, optimality)
        status: Status = "converged"
        if not optimality <= run.tol:
            status = "stalled" if stalled else "max_iter"
        coef, intercept = problem.layout.split(theta)
        return Solution(
            coef=np.ascontiguousarray(coef),
            intercept=np.ascontiguousarray(intercept),
            status=status,
            message=_ADVICE[status].format(
                solver=self.name,
                iterations=iterations(n_iter),
                optimality=optimality,
                dtype=problem.design.dtype,
                float64="" if problem.design.dtype == np.float64 else " or float64 input",
            ),
            solver=self.name,
            n_iter=n_iter,
            objective=objective,
            optimality=optimality,
            gap=problem.gap(theta, gradient) + excess,
            layout=problem.layout,
            trace=trace,
            loss=problem.loss,
        )


def effective_tol(tol: float, dtype: np.dtype) -> float:
    """Raise a tolerance to what the precision can show: 100 machine epsilons."""
    return max(tol, 100 * float(np.finfo(dtype).eps))


def flat_curvature(h: Any, optimality: Any) -> Any:
    """Return what to add to the curvatures h of rows that have none, on a linear piece of the loss.

    They would leave directions free in which the loss is not flat at all; near the optimum that
    matters no more. Written for NumPy and JAX alike.
    """
    xp = array_namespace(h)
    little = 1e-3 * xp.minimum(1.0, optimality) * h.max()
    return xp.where(h > 1e-8 * h.max(), 0.0, little).astype(h.dtype)


def line_search(objective_at: Any, start: Any, slope: Any, noise: float) -> tuple[Any, Any]:
    """Halve the step until the objective falls enough; (0, start) if it never does."""
    xp = array_namespace(start)

    def is_enough(length: Any, value: Any) -> Any:
        return value <= start + 1e-4 * length * slope + noise * abs(start)

    def go_on(state: Any) -> Any:
        length, value, k = state
        return (k < _HALVINGS) & ~is_enough(length, value)

    def halve(state: Any) -> Any:
        length = 0.5 * state[0]
        return length, objective_at(length), state[2] + 1

    one = xp.ones(())
    length, value, _ = while_loop(xp, go_on, halve, (one, objective_at(one), 0))
    is_found = is_enough(length, value)
    return xp.where(is_found, length, 0.0), xp.where(is_found, value, start)


_ADVICE = {
    "max_iter": (
        "{solver} stopped after {iterations} at optimality {optimality:.1e}, above tol: "
        "raise max_iter, strengthen the penalty, or loosen tol"
    ),
    "stalled": (
        "{solver} can make no more progress in {dtype} at optimality {optimality:.1e}, above tol: "
        "standardise X, use another solver{float64}, strengthen the penalty, or loosen tol"
    ),
    "converged": "{solver} converged in {iterations} to optimality {optimality:.1e}",
}
