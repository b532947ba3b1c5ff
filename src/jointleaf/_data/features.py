"""The linear features: what the linear models of the cells see of a row.

Partitions see the columns themselves, with categories and missing values. A linear model needs
numbers:

- a column of numbers is one linear feature, standardized; a missing value counts as the
  training mean;
- a column with categories is one indicator per category. Categories with less than 1 % of the
  weight, and all but the 20 most frequent ones, are pooled in one indicator, "other", which also
  stands for categories that were not met in training (they count as the mean where nothing was
  pooled). All indicators of a column share one scale, with which their variances add up to 1:
  together they weigh as much as one number, and a rare category is penalized more than a frequent
  one;
- on request, one indicator per column of numbers marks where it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from jointleaf._data.columns import Columns, as_codes, column_names, column_numbers

_RARE = 0.01  # fraction of the weight below which a category is pooled
_MOST_CATEGORIES = 20
_STRETCH = 4096  # numbers standardized at a time: they stay in the first-level cache


@dataclass(frozen=True)
class Indicators:
    """The indicators of one column with categories.

    `place` (L + 2,) holds the number of the indicator of every code, of unseen categories and of
    missing values; -1 for none (the row counts as the mean).
    """

    column: int
    place: NDArray[np.intp]
    names: tuple[str, ...]


@dataclass(frozen=True)
class FeaturePlan:
    """Which linear features there are; made once from all training rows, without their targets."""

    numbers: NDArray[np.intp]  # columns of numbers
    indicators: tuple[Indicators, ...]  # of columns with categories
    missing_indicators: NDArray[np.intp]  # columns of numbers whose missing values have one
    names: tuple[str, ...]  # of all m linear features, in the order above
    sources: NDArray[np.intp]  # (m,), column that each linear feature comes from

    def fit(self, X: NDArray, s: NDArray, *, clip: bool = True) -> LinearFeatures:
        """Learn means, scales and ranges from rows X (n, d) with weights s (n,)."""
        group = np.arange(len(self.names))
        start = len(self.numbers)
        for part in self.indicators:
            group[start : start + len(part.names)] = start
            start += len(part.names)
        return LinearFeatures(self, Standardizer.fit(self.raw(X), s, clip=clip, group=group))

    def raw(self, X: NDArray) -> NDArray:
        """Linear features (n, m) before they are standardized, NaN for the mean."""
        if len(self.numbers) == X.shape[1] == len(self.names):
            return X
        raw = np.zeros((len(X), len(self.names)), X.dtype)
        raw[:, : len(self.numbers)] = X[:, self.numbers]
        start = len(self.numbers)
        for part in self.indicators:
            n_categories, width = len(part.place) - 2, len(part.names)
            place = part.place[as_codes(X[:, part.column], n_categories)]
            known = np.flatnonzero(place >= 0)
            inside = known[place[known] < width]  # the second of two categories needs none
            raw[inside, start + place[inside]] = 1.0
            raw[place < 0, start : start + width] = np.nan
            start += width
        raw[:, start:] = np.isnan(X[:, self.missing_indicators])
        return raw


@dataclass(frozen=True)
class LinearFeatures:
    """Linear features with the means, scales and ranges of training rows."""

    plan: FeaturePlan
    scaler: Standardizer

    def equals(self, other: LinearFeatures) -> bool:
        """Whether rows have the same linear features with others."""
        if self is other:
            return True
        a, b = self.scaler, other.scaler
        arrays = ((a.mean, b.mean), (a.scale, b.scale), (a.low, b.low), (a.high, b.high))
        same = self.plan.names == other.plan.names and a.clip == b.clip
        return same and all(np.array_equal(x, y) for x, y in arrays)

    def transform(self, X: NDArray) -> NDArray:
        """Return the standardized linear features (n, m) of rows X (n, d)."""
        return self.scaler.transform(self.plan.raw(X))

    def prepared(self, dtype: DTypeLike, n_rows: int) -> Callable[[NDArray], NDArray]:
        """Return a function for many blocks of at most `n_rows` rows each.

        It does what `transform` does, but returns NaN where a linear feature counts as the mean.
        """
        scaled = self.scaler.prepared(dtype, n_rows)
        return lambda X: scaled(self.plan.raw(X))


def chosen_columns(linear_features: Any, columns: Columns, X: Any) -> NDArray[np.intp] | None:
    """Return the columns that the linear models see, as numbers; None for all."""
    if linear_features is None:
        return None
    if isinstance(linear_features, str):
        if linear_features != "numeric":
            raise ValueError(
                f"linear_features={linear_features!r} is not known: use 'numeric', a list of "
                "column names or numbers, or None for all"
            )
        chosen = np.flatnonzero(columns.n_categories == 0)
    else:
        numbers = column_numbers(linear_features, column_names(X), len(columns), "linear_features")
        chosen = np.array(sorted(numbers), dtype=np.intp)
    if not chosen.size:
        raise ValueError(
            f"linear_features={linear_features!r} leaves no column to the linear models: use "
            "cells='constant' for cells without them"
        )
    return chosen


def plan_features(
    X: NDArray,
    s: NDArray,
    columns: Columns,
    chosen: NDArray[np.intp] | None = None,
    *,
    missing_indicators: bool = False,
) -> FeaturePlan:
    """Decide which linear features there are, from all training rows X (n, d) and weights s (n,).

    `chosen` are columns that take part, all by default; `missing_indicators` says whether columns
    of numbers with missing values get an indicator of them.
    """
    taking_part = np.arange(len(columns)) if chosen is None else np.sort(chosen)
    is_number = columns.n_categories[taking_part] == 0
    numbers = taking_part[is_number]
    indicators = tuple(
        _plan_indicators(j, X[:, j], s, columns) for j in taking_part[~is_number].tolist()
    )
    incomplete = numbers[np.isnan(X[:, numbers]).any(axis=0)] if missing_indicators else numbers[:0]
    names = [columns[j].label for j in numbers]
    names += [name for part in indicators for name in part.names]
    names += [f"{columns[j].label} is missing" for j in incomplete]
    sources = [numbers, *(np.full(len(p.names), p.column) for p in indicators), incomplete]
    return FeaturePlan(
        numbers, indicators, incomplete, tuple(names), np.concatenate(sources).astype(np.intp)
    )


def _plan_indicators(j: int, column: NDArray, s: NDArray, columns: Columns) -> Indicators:
    categories = columns[j].categories
    assert categories is not None
    codes = as_codes(column, len(categories))
    frequency = np.bincount(codes, s, minlength=len(categories) + 2) / s.sum()
    frequent = np.argsort(-frequency, kind="stable")[:_MOST_CATEGORIES]
    selected = np.sort(frequent[frequency[frequent] >= _RARE])
    texts = [*map(str, categories), "unseen", "missing"]
    place = np.full(len(frequency), -1, np.intp)
    place[selected] = np.arange(len(selected))
    names = [f"{columns[j].label}={texts[k]}" for k in selected]
    pooled = (place < 0) & (frequency > 0)
    if pooled.any():
        pooled[:-1] |= place[:-1] < 0  # categories of no weight, and unseen ones, are rare too
        place[pooled] = len(names)
        names.append(f"{columns[j].label}=other")
    if len(names) <= 2:  # one indicator tells two groups apart, and one group needs none
        names = names[:-1]
    return Indicators(j, place, tuple(names))


@dataclass(frozen=True)
class Standardizer:
    """Weighted mean 0 and variance 1 for every feature; constant features become 0.

    A missing value (NaN) becomes 0 as well: it counts as the training mean.

    Linear cells extrapolate, and one value far outside the training range can ruin a prediction.
    With `clip`, features are therefore clipped to the range seen in training before the linear
    models use them (the partitions see them as they are).
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

        Columns with the same number in `group` (d,) share one scale, with which their variances
        add up to 1; by default every column has its own.
        """
        mean, scale = mean_and_scale(X, s)
        low, high = _extremes(X)
        if group is not None:
            numbers, counts = np.unique(group, return_counts=True)
            for members in (np.flatnonzero(group == k) for k in numbers[counts > 1]):
                variances = np.square(scale[members]) * (high > low)[members]
                scale[members] = np.sqrt(variances.sum()) or 1.0
        return cls(mean, scale, low, high, clip)

    def transform(self, X: NDArray) -> NDArray:
        """Standardize rows; keep float32."""
        Z = self.prepared(X.dtype, len(X))(X)
        missing = np.isnan(Z)
        if missing.any():
            Z[missing] = 0.0
        return Z

    def prepared(self, dtype: DTypeLike, n_rows: int) -> Callable[[NDArray], NDArray]:
        """Return a function for many blocks of at most `n_rows` rows each.

        It does what `transform` does, but leaves missing values as they are.
        """
        return _Stretches(self, dtype, n_rows)


class _Stretches:
    """Standardizes some rows at a time, as one long row, with means and scales repeated.

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
            np.repeat(a.astype(dtype)[None], step, axis=0).reshape(-1)  # sooner than np.tile
            for a in (scaler.low, scaler.high, scaler.mean, factor)
        )

    def __call__(self, X: NDArray) -> NDArray:
        Z = np.empty(X.shape, X.dtype)
        source, target = np.ascontiguousarray(X).reshape(-1), Z.reshape(-1)
        for begin in range(0, target.size, self._size):
            x, z = (a[begin : begin + self._size] for a in (source, target))
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
        weights = np.where(missing, 0.0, s[:, None]) / np.where(total > 0, total, 1.0)
        mean = np.einsum("nd,nd->d", weights, relative)
        spread = np.sqrt(np.einsum("nd,nd->d", weights, np.square(relative - mean)))
    else:
        weights = s / s.sum()
        mean = weights @ relative
        relative -= mean  # in place: wide tables are large
        spread = np.sqrt(weights @ np.square(relative, out=relative))
    mean = np.where(is_constant, low, low + unit * mean)
    return mean, np.where(is_constant | (spread == 0), 1.0, unit * spread)


def _extremes(X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value of every column, (d,) each; 0 where all are missing."""
    low, high = (f.reduce(X, axis=0).astype(float) for f in (np.fmin, np.fmax))
    return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), 0.0, high)
