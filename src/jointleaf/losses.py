"""Convex losses on raw predictions, and the base class of one's own."""

from jointleaf._core.losses import Logistic, Loss, Multinomial, SquaredError

__all__ = ["Logistic", "Loss", "Multinomial", "SquaredError"]
