"""Penalties on the weights of all cells, and on the predictions; they add with ``+``."""

from jointleaf.penalties.base import Penalty, PredictionPenalty, Term
from jointleaf.penalties.dirty import DirtyLasso, DirtyLInf, TaskNorm
from jointleaf.penalties.frobenius import Free, Frobenius
from jointleaf.penalties.laplacian import Laplacian
from jointleaf.penalties.norms import L1, L21, GrOWL, LInf1, Lp1, SlopeNorm
from jointleaf.penalties.per_task import PerTask
from jointleaf.penalties.spectral import KyFan, Nuclear, SchattenP
from jointleaf.penalties.sums import Sum

__all__ = [
    "L1",
    "L21",
    "DirtyLInf",
    "DirtyLasso",
    "Free",
    "Frobenius",
    "GrOWL",
    "KyFan",
    "LInf1",
    "Laplacian",
    "Lp1",
    "Nuclear",
    "Penalty",
    "PerTask",
    "PredictionPenalty",
    "SchattenP",
    "SlopeNorm",
    "Sum",
    "TaskNorm",
    "Term",
]
