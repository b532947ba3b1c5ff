"""Standardisation of features, with the range that was seen in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Standardizer", "mean_and_scale"]


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
        mean, scale = mean_and_scale(X, s)
        return cls(mean, scale, X.min(axis=0), X.max(axis=0), clip)

    def transform(self, X: NDArray) -> NDArray:
        """Standardise rows; keeps float32."""
        if self.clip:
            X = np.clip(X, self.low.astype(X.dtype), self.high.astype(X.dtype))
        return (X - self.mean.astype(X.dtype)) / self.scale.astype(X.dtype)


def mean_and_scale(X: NDArray, s: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted mean and standard deviation of every column, (d,) each.

    The scale of a column that varies only by rounding is 1, and its mean is its value. Columns
    are divided by their range before squaring, so that neither huge nor tiny values are lost.
    """
    shares = s / s.sum()
    low, high = X.min(axis=0).astype(float), X.max(axis=0).astype(float)
    with np.errstate(over="ignore"):
        width = high - low
    if not np.isfinite(width).all():
        j = int(np.argmax(~np.isfinite(width)))
        raise ValueError(
            f"values from {low[j]:.3g} to {high[j]:.3g} in column {j} are too far apart for "
            "floating point: rescale them"
        )
    is_constant = width <= 1e-10 * np.maximum(np.abs(low), np.abs(high))
    unit = np.where(is_constant, 1.0, width)
    relative = (X - low) / unit
    mean = shares @ relative
    spread = np.sqrt(shares @ np.square(relative - mean))
    mean = np.where(is_constant, low, low + unit * mean)
    return mean, np.where(is_constant | (spread == 0), 1.0, unit * spread)
