"""Solvers: each minimises a `jointleaf.problem.Problem` and gives a `Solution`."""

from jointleaf.solvers.auto import SOLVERS, check_solver_name, choose_solver
from jointleaf.solvers.base import Solution, Solver, TracePoint
from jointleaf.solvers.dual import Dual, DualPath, dual_path
from jointleaf.solvers.fista import FISTA
from jointleaf.solvers.newton import Newton
from jointleaf.solvers.pcg import PCG

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
