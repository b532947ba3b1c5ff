"""Standardisation of features, with the range that was seen in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Standardizer", "mean_and_scale"]

_STRETCH = 4096  # numbers standardised at a time: they stay in the first-level cache


@dataclass(frozen=True)
class Standardizer:
    """Weighted mean 0 and variance 1 for every feature; constant features become 0.

    A missing value (NaN) becomes 0 as well: it counts as the training mean.

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
    def fit(
        cls, X: NDArray, s: NDArray, *, clip: bool = True, group: NDArray | None = None
    ) -> Standardizer:
        """Learn from rows X (n, d) with weights s (n,).

        Parameters
        ----------
        X, s : arrays (n, d), (n,)
        clip : bool
        group : integers (d,), optional
            Columns with the same number share one scale, with which their variances add up to 1.
            By default every column has its own.
        """
        mean, scale = mean_and_scale(X, s)
        low, high = _extremes(X)
        if group is not None:
            for members in (np.flatnonzero(group == k) for k in np.unique(group)):
                if len(members) > 1:
                    variances = np.square(scale[members]) * (high > low)[members]
                    scale[members] = np.sqrt(variances.sum()) or 1.0
        return cls(mean, scale, low, high, clip)

    def transform(self, X: NDArray) -> NDArray:
        """Standardise rows; keeps float32."""
        Z = self.prepared(X.dtype, len(X))(X)
        missing = np.isnan(Z)
        if missing.any():
            Z[missing] = 0.0
        return Z

    def prepared(self, dtype: DTypeLike, n_rows: int) -> Callable[[NDArray], NDArray]:
        """Give a function for many blocks of at most `n_rows` rows each.

        It does what `transform` does, but leaves missing values as they are.
        """
        return _Stretches(self, dtype, n_rows)


class _Stretches:
    """Standardises some rows at a time, as one long row, with means and scales repeated.

    Steps along the few columns of a single row would cost more than the arithmetic.
    """

    def __init__(self, scaler: Standardizer, dtype: DTypeLike, n_rows: int) -> None:
        width = len(scaler.mean)
        step = max(1, min(_STRETCH // max(1, width), n_rows))
        self._size = max(1, step * width)
        self._clip = scaler.clip
        # Products are faster than quotients; one by a number without a reciprocal would be lost.
        factor = 1.0 / np.maximum(scaler.scale, np.finfo(dtype).tiny)
        self._low, self._high, self._mean, self._factor = (
            np.tile(a.astype(dtype), step) for a in (scaler.low, scaler.high, scaler.mean, factor)
        )

    def __call__(self, X: NDArray) -> NDArray:
        Z = np.empty(X.shape, X.dtype)
        given, found = np.ascontiguousarray(X).reshape(-1), Z.reshape(-1)
        for begin in range(0, found.size, self._size):
            x, z = (a[begin : begin + self._size] for a in (given, found))
            k = len(z)
            if self._clip:
                np.maximum(x, self._low[:k], out=z)
                x = np.minimum(z, self._high[:k], out=z)
            np.subtract(x, self._mean[:k], out=z)
            np.multiply(z, self._factor[:k], out=z)
        return Z


def mean_and_scale(X: NDArray, s: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted mean and standard deviation of every column, (d,) each; missing values left out.

    The scale of a column that varies only by rounding is 1, and its mean is its value. Columns
    are divided by their range before squaring, so that neither huge nor tiny values are lost.
    """
    low, high = _extremes(X)
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
    missing = np.isnan(relative)
    if missing.any():
        relative[missing] = 0.0
        total = s @ ~missing
        shares = np.where(missing, 0.0, s[:, None]) / np.where(total > 0, total, 1.0)
        mean = np.einsum("nd,nd->d", shares, relative)
        spread = np.sqrt(np.einsum("nd,nd->d", shares, np.square(relative - mean)))
    else:
        whole = s / s.sum()
        mean = whole @ relative
        spread = np.sqrt(whole @ np.square(relative - mean))
    mean = np.where(is_constant, low, low + unit * mean)
    return mean, np.where(is_constant | (spread == 0), 1.0, unit * spread)


def _extremes(X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value of every column, (d,) each; 0 where all are missing."""
    low, high = (f.reduce(X, axis=0).astype(float) for f in (np.fmin, np.fmax))
    return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), 0.0, high)
