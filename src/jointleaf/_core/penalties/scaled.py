"""A multiple of a penalty that has no strength of its own to multiply."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Penalty
from jointleaf._core.penalties.sums import Sum

__all__ = ["Scaled", "times"]


class Scaled(Penalty):
    """factor * R, for any R.

    Parameters
    ----------
    factor : float > 0
    penalty : Penalty
    """

    def __init__(self, factor: float, penalty: Penalty) -> None:
        self.factor, self.penalty = factor, penalty

    def __repr__(self) -> str:
        return f"{self.factor:g} * {self.penalty!r}"

    @property
    def is_row_sparse(self) -> bool:  # type: ignore[override]
        """Whether whole features vanish."""
        return self.penalty.is_row_sparse

    def bind(self, layout: CellLayout) -> Scaled:
        """Bind the penalty."""
        return Scaled(self.factor, self.penalty.bind(layout))

    def value(self, theta: NDArray) -> float:
        """The factor times R."""
        return self.factor * self.penalty.value(theta)

    def prox(self, theta: NDArray, step: float) -> NDArray:
        """That of R, with a step that is longer by the factor."""
        return self.penalty.prox(theta, step * self.factor)

    def curvature(self) -> NDArray | None:
        """The factor times that of R."""
        return self._times(self.penalty.curvature())

    def bias_curvature(self) -> NDArray | None:
        """The factor times that of R."""
        return self._times(self.penalty.bias_curvature())

    def split(self) -> tuple[NDArray | None, Penalty]:
        """Both parts times the factor."""
        quadratic, rest = self.penalty.split()
        return self._times(quadratic), times(self.factor, rest)

    def restricted(self, features: NDArray[np.intp]) -> Scaled | None:
        """The penalty on some features alone."""
        part = self.penalty.restricted(features)
        return None if part is None else Scaled(self.factor, part)

    def _times(self, diagonal: NDArray | None) -> NDArray | None:
        return None if diagonal is None else self.factor * diagonal


def times(factor: float, penalty: Penalty) -> Penalty:
    """Multiply the strengths of a penalty, or the penalty itself where it has none."""
    if isinstance(penalty, Sum):
        parts = [times(factor, term) for term in penalty.terms if isinstance(term, Penalty)]
        return Sum(*parts)
    try:
        return factor * penalty
    except ValueError:  # no strength
        return Scaled(factor, penalty)
