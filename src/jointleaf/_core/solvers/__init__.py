"""Solvers: each minimises a `_core.problem.Problem` and returns a `Solution`."""

from jointleaf._core.solvers.base import (
    SOLVERS,
    Solver,
    SolverState,
    check_limits,
    choose_solver,
    solve,
)
from jointleaf._core.solvers.dual import Dual
from jointleaf._core.solvers.fista import FISTA
from jointleaf._core.solvers.newton import PCG, Newton
from jointleaf._core.solvers.solution import Solution

SOLVERS.update({solver.name: solver for solver in (Dual, PCG, Newton, FISTA)})
