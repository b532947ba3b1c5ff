"""Convex losses on raw predictions, and the base class for losses of one's own."""

from jointleaf._core.arrays import array_namespace
from jointleaf._core.losses import JaxLoss, Logistic, Loss, Multinomial, SquaredError

__all__ = ["JaxLoss", "Logistic", "Loss", "Multinomial", "SquaredError", "array_namespace"]
