"""Solvers: each minimises a `_core.problem.Problem` and returns a `Solution`."""

from __future__ import annotations

import warnings
from numbers import Real

from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from jointleaf._core.arrays import check_count, find_device, place
from jointleaf._core.blocks import BlockDesign
from jointleaf._core.losses import Kinked
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Listener, Solution, Solver, SolverState
from jointleaf._core.solvers.dual import Dual
from jointleaf._core.solvers.fista import FISTA
from jointleaf._core.solvers.newton import PCG, Newton

SOLVERS: dict[str, type[Solver]] = {c.name: c for c in (Dual, PCG, Newton, FISTA)}

MAX_DUAL_ROWS = 4000  # squared error: one factorisation of n^3 / 3
MAX_DUAL_ROWS_NEWTON = 3000  # other losses: one in every Newton step
WIDE = 200  # features from which the slope blocks of the primal solvers become expensive


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
            chosen = Newton()
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
    return isinstance(solver, Dual) and isinstance(problem.loss, Kinked)


def check_solver_name(solver: str | Solver) -> None:
    """Check that a solver is "auto", one of the names, or an object."""
    if isinstance(solver, Solver) or solver == "auto" or solver in SOLVERS:
        return
    raise ValueError(f"solver={solver!r} is not known: use 'auto' or one of {sorted(SOLVERS)}")


def _by_rule(problem: Problem) -> Solver:
    if problem.curvature is None:
        return FISTA()
    layout, n = problem.layout, problem.design.n_rows
    if isinstance(problem.penalty, Frobenius) and Dual().unsupported_reason(problem) is None:
        if problem.loss.is_quadratic:
            limit = MAX_DUAL_ROWS * (2 if layout.n_slopes > WIDE else 1)
            few_weights = layout.n_weights < n
        else:
            limit, few_weights = MAX_DUAL_ROWS_NEWTON, False
        if n <= limit and not few_weights:
            return Dual()
    return PCG() if problem.loss.is_quadratic else Newton()


def check_limits(tol: float, max_iter: int) -> None:
    """Check the tolerance and the number of iterations of a solve."""
    if not isinstance(tol, Real) or not tol > 0:
        raise ValueError(f"tol={tol!r} must be a positive number")
    check_count("max_iter", max_iter)
