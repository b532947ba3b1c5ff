"""Standardisation of features, with the range that was seen in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Standardizer"]


@dataclass(frozen=True)
class Standardizer:
    """Weighted mean 0 and variance 1 for every feature; constant features become 0.

    Linear cells extrapolate, and one value far outside the training range can ruin a prediction.
    With `clip`, features are therefore clipped to the range seen in training before the linear
    models use them (the partitions see them as they are).

    Attributes
    ----------
    mean, scale, low, high : arrays (d,)
    clip : bool
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    clip: bool = True

    @classmethod
    def fit(cls, X: NDArray, s: NDArray, *, clip: bool = True) -> Standardizer:
        """Learn from rows X (n, d) with weights s (n,)."""
        shares = s / s.sum()
        mean = shares @ X
        variance = shares @ np.square(X - mean)
        scale = np.sqrt(variance)
        # A column that varies only by rounding is constant.
        scale[scale <= 1e-10 * np.maximum(np.abs(mean), 1e-290)] = 1.0
        return cls(mean, scale, X.min(axis=0), X.max(axis=0), clip)

    def transform(self, X: NDArray) -> NDArray:
        """Standardise rows; keeps float32."""
        if self.clip:
            X = np.clip(X, self.low.astype(X.dtype), self.high.astype(X.dtype))
        return (X - self.mean.astype(X.dtype)) / self.scale.astype(X.dtype)
