"""Penalties on the weights of all cells."""

from jointleaf.penalties.base import Penalty
from jointleaf.penalties.frobenius import Frobenius

__all__ = ["Frobenius", "Penalty"]
