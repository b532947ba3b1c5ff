"""Convex losses on raw predictions, and the base classes for losses of one's own."""

from jointleaf._core.arrays import array_namespace
from jointleaf._core.losses import (
    AbsoluteError,
    Gamma,
    Huber,
    JaxLoss,
    Kinked,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    Quantile,
    SquaredError,
    Tweedie,
)

__all__ = [
    "AbsoluteError",
    "Gamma",
    "Huber",
    "JaxLoss",
    "Kinked",
    "Logistic",
    "Loss",
    "Multinomial",
    "Poisson",
    "Quantile",
    "SquaredError",
    "Tweedie",
    "array_namespace",
]
