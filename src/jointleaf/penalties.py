"""Penalties on the weights of all cells, and on the predictions; they add with ``+``."""

from jointleaf._core.arrays import array_namespace
from jointleaf._core.penalties import (
    L1,
    L21,
    DirtyLasso,
    DirtyLInf,
    Frobenius,
    GrOWL,
    KyFan,
    Laplacian,
    LInf1,
    Lp1,
    Nuclear,
    Penalty,
    PerTask,
    PredictionPenalty,
    SchattenP,
    SlopeNorm,
)

__all__ = [
    "L1",
    "L21",
    "DirtyLInf",
    "DirtyLasso",
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
    "array_namespace",
]
