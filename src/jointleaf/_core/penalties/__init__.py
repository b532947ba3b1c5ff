"""Penalties on the weights of all cells, and on the predictions; they add with ``+``."""

from jointleaf._core.penalties.base import Free, Frobenius, Penalty, PredictionPenalty, Term
from jointleaf._core.penalties.dirty import DirtyLasso, DirtyLInf, TaskNorm
from jointleaf._core.penalties.laplacian import Laplacian
from jointleaf._core.penalties.norms import (
    L1,
    L21,
    GrOWL,
    KyFan,
    LInf1,
    Lp1,
    Nuclear,
    SchattenP,
    SlopeNorm,
)
from jointleaf._core.penalties.per_task import PerTask, Scaled
from jointleaf._core.penalties.sums import Sum
