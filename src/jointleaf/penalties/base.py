"""What a penalty is: a convex function of all cell weights."""

from __future__ import annotations

from abc import ABC, abstractmethod

from numpy.typing import NDArray

from jointleaf.layout import CellLayout

__all__ = ["Penalty"]


class Penalty(ABC):
    """A convex penalty R(theta) on cell weights theta (C, q) or (C, q, K).

    A penalty is used through `bind`, which checks it against a layout and gives the penalty
    to compute with; `value` and `prox` then take theta with the bias in the last column
    (`CellLayout.split` separates the two). Quadratic penalties also give `curvature`,
    which the exact solvers need; all others are minimised by FISTA through `prox`.
    """

    def bind(self, layout: CellLayout) -> Penalty:
        """Check the penalty against the layout of a problem; gives the penalty to use there."""
        return self

    @abstractmethod
    def value(self, theta: NDArray) -> float:
        """R(theta), with its strength."""

    @abstractmethod
    def prox(self, theta: NDArray, step: float) -> NDArray:
        """argmin_z  |z - theta|^2 / 2 + step * R(z)."""

    def curvature(self) -> NDArray | None:
        """Diagonal of the Hessian, (C, q), of a quadratic penalty; None for any other."""
        return None
