"""Solvers: each minimises a `_core.problem.Problem` and gives a `Solution`."""

from jointleaf._core.solvers.auto import SOLVERS, check_solver_name, choose_solver
from jointleaf._core.solvers.base import Solution, Solver, TracePoint
from jointleaf._core.solvers.dual import Dual, DualPath, dual_path
from jointleaf._core.solvers.fista import FISTA
from jointleaf._core.solvers.newton import Newton
from jointleaf._core.solvers.pcg import PCG

__all__ = [
    "FISTA",
    "PCG",
    "SOLVERS",
    "Dual",
    "DualPath",
    "Newton",
    "Solution",
    "Solver",
    "TracePoint",
    "check_solver_name",
    "choose_solver",
    "dual_path",
]
