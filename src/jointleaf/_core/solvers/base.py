"""What a solver is, and which one `solver="auto"` means for a problem."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from jointleaf._core.arrays import (
    array_namespace,
    check_count,
    find_device,
    place,
    while_loop,
)
from jointleaf._core.blocks import BlockDesign
from jointleaf._core.losses import Kinked
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import iterations
from jointleaf._core.solvers.solution import Solution, Status, TracePoint

T = TypeVar("T")

MAX_DUAL_ROWS = 4000  # squared error: one factorisation of n^3 / 3
MAX_DUAL_ROWS_NEWTON = 3000  # other losses: one in every Newton step
WIDE = 200  # features from which the slope blocks of the primal solvers become expensive

_HALVINGS = 39  # of a step
# Of smooth losses in place of one with kinks: the first width in standard deviations of the
# target, the factor from one to the next, and the most of them.
_WIDTH, _NARROWER, _MOST_WIDTHS = 0.3, 0.2, 50
_PATIENCE = 5  # widths without a gain: rounding is all that is left
_LEAST_WIDTH = 0.03  # of the first: around the right derivatives that is narrow enough


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


# -- solvers by name and by rule ------------------------------------------------------------------

#: All that have a name; `jointleaf._core.solvers` fills it.
SOLVERS: dict[str, type[Solver]] = {}


def solve(
    problem: Problem,
    solver: str | Solver = "auto",
    init: NDArray | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    device: str = "cpu",
    state: SolverState | None = None,
    listener: Listener | None = None,
) -> Solution:
    """Solve a problem with the chosen solver on a device; warn where it did not converge."""
    chosen = choose_solver(problem, solver, device)
    solution = chosen.solve(
        problem, init, tol=tol, max_iter=max_iter, state=state, listener=listener
    )
    if solution.status in ("max_iter", "stalled"):
        warnings.warn(solution.message, ConvergenceWarning, stacklevel=3)
    return solution


def choose_solver(problem: Problem, solver: str | Solver = "auto", device: str = "cpu") -> Solver:
    """Return the solver for a problem.

    ``"auto"`` chooses

    - ``"fista"`` where the penalty is not quadratic;
    - ``"dual"`` for the Frobenius penalty with n <= 4000 rows (8000 with more than 200
      features) and squared error, unless there are fewer weights than rows, or with
      n <= 3000 rows and penalised biases for other losses;
    - ``"pcg"`` for squared error, ``"newton"`` for other losses otherwise.

    A solver that is named but does not fit the problem raises an error that says why. Where
    `device` is not "cpu" the solver is the one of the same name on that device; "auto" is an
    accelerator where JAX finds one, a pass takes at least 2^25 multiplications (n P (d + 1) K)
    and loss and penalty can run there, and else the CPU.
    """
    if isinstance(solver, Solver):
        chosen = solver
    else:
        check_solver_name(solver)
        chosen = _by_rule(problem) if solver == "auto" else SOLVERS[solver]()
        if solver == "auto" and device != "cpu" and _is_interior(problem, chosen):
            chosen = SOLVERS["newton"]()
    reason = chosen.unsupported_reason(problem)
    if reason is not None:
        raise ValueError(f"solver={chosen.name!r} does not fit this problem: {reason}")
    return _placed(problem, chosen, device)


def _placed(problem: Problem, chosen: Solver, wanted: str) -> Solver:
    widest = max(part.entries_per_row for part in problem.layout.tasks)
    device = place(wanted, problem.y.size * widest)
    if device == "cpu":
        return chosen
    find_device(device)
    from jointleaf._core.jax.solver import OnDevice

    placed = OnDevice(chosen.name, device)
    if type(chosen) is not SOLVERS.get(chosen.name):
        reason = f"it is only written for the CPU: use one of {sorted(SOLVERS)}"
    elif isinstance(problem.design, BlockDesign):
        reason = "rows in blocks stay on the CPU: use device='cpu'"
    elif _is_interior(problem, chosen):
        reason = "with a loss that has kinks it is only written for the CPU: use 'newton'"
    else:
        reason = placed.unsupported_reason(problem) or ""
    if not reason:
        return placed
    if wanted == "auto":
        return chosen
    raise ValueError(f"solver={chosen.name!r} with device={device!r}: {reason}")


def _is_interior(problem: Problem, solver: Solver) -> bool:
    """Whether a solver is the interior-point method, which is only written for the CPU."""
    return isinstance(solver, SOLVERS["dual"]) and isinstance(problem.loss, Kinked)


def check_solver_name(solver: str | Solver) -> None:
    """Check that a solver is "auto", one of the names, or an object."""
    if isinstance(solver, Solver) or solver == "auto" or solver in SOLVERS:
        return
    raise ValueError(f"solver={solver!r} is not known: use 'auto' or one of {sorted(SOLVERS)}")


def _by_rule(problem: Problem) -> Solver:
    if problem.curvature is None:
        return SOLVERS["fista"]()
    layout, n = problem.layout, problem.design.n_rows
    dual = SOLVERS["dual"]()
    if isinstance(problem.penalty, Frobenius) and dual.unsupported_reason(problem) is None:
        if problem.loss.is_quadratic:
            limit = MAX_DUAL_ROWS * (2 if layout.n_slopes > WIDE else 1)
            few_weights = layout.n_weights < n
        else:
            limit, few_weights = MAX_DUAL_ROWS_NEWTON, False
        if n <= limit and not few_weights:
            return dual
    return SOLVERS["pcg" if problem.loss.is_quadratic else "newton"]()


def check_limits(tol: float, max_iter: int) -> None:
    """Check the tolerance and the number of iterations of a solve."""
    if not isinstance(tol, Real) or not tol > 0:
        raise ValueError(f"tol={tol!r} must be a positive number")
    check_count("max_iter", max_iter)
