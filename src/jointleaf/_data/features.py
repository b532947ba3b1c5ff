"""The linear features: what the linear models of the cells see of a row.

Partitions look at the columns themselves, with categories and gaps. A linear model needs numbers:

- a column of numbers is one linear feature, standardised; a missing value counts as the
  training mean;
- a column with categories is one indicator per level. Levels with less than 1 % of the weight, and
  all but the 20 most frequent ones, are pooled in one indicator, "other", which also stands for
  levels that were not met in training (they count as the mean where nothing was pooled).
  All indicators of a column share one scale, with which their variances add up to 1: together
  they weigh as much as one number, and a rare level is penalised more than a frequent one;
- on request, one indicator per column of numbers tells where it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from jointleaf._data.columns import Columns, as_codes
from jointleaf._data.scaling import Standardizer

__all__ = ["FeaturePlan", "LinearFeatures", "plan_features"]

_RARE = 0.01  # share of the weight below which a level is pooled
_MOST_LEVELS = 20


@dataclass(frozen=True)
class _Indicators:
    """The indicators of one column with categories.

    `place` (L + 2,) has for every code, unseen levels and missing values the number of its
    indicator, -1 for none (the row counts as the mean).
    """

    column: int
    place: NDArray[np.intp]
    names: tuple[str, ...]


@dataclass(frozen=True)
class FeaturePlan:
    """Which linear features there are; made once from all training rows, without their targets.

    Attributes
    ----------
    numbers : integers (k,)
        Columns of numbers.
    indicators : tuple of _Indicators
        Columns with categories.
    gaps : integers
        Columns of numbers whose gaps have an indicator.
    names : tuple of str, length m
        Of all linear features, in the order above.
    sources : integers (m,)
        Column that each linear feature comes from.
    """

    numbers: NDArray[np.intp]
    indicators: tuple[_Indicators, ...]
    gaps: NDArray[np.intp]
    names: tuple[str, ...]
    sources: NDArray[np.intp]

    def fit(self, X: NDArray, s: NDArray, *, clip: bool = True) -> LinearFeatures:
        """Learn means, scales and ranges from rows X (n, d) with weights s (n,)."""
        group = np.arange(len(self.names))
        start = len(self.numbers)
        for part in self.indicators:
            group[start : start + len(part.names)] = start
            start += len(part.names)
        return LinearFeatures(self, Standardizer.fit(self.raw(X), s, clip=clip, group=group))

    def raw(self, X: NDArray) -> NDArray:
        """Linear features (n, m) before they are standardised, NaN where they count as the mean."""
        if len(self.numbers) == X.shape[1] == len(self.names):
            return X
        raw = np.zeros((len(X), len(self.names)), X.dtype)
        raw[:, : len(self.numbers)] = X[:, self.numbers]
        start = len(self.numbers)
        for part in self.indicators:
            n_levels, width = len(part.place) - 2, len(part.names)
            place = part.place[as_codes(X[:, part.column], n_levels)]
            known = np.flatnonzero(place >= 0)
            inside = known[place[known] < width]  # the second of two levels needs no indicator
            raw[inside, start + place[inside]] = 1.0
            raw[place < 0, start : start + width] = np.nan
            start += width
        raw[:, start:] = np.isnan(X[:, self.gaps])
        return raw


@dataclass(frozen=True)
class LinearFeatures:
    """Linear features with the means, scales and ranges of training rows."""

    plan: FeaturePlan
    scaler: Standardizer

    def transform(self, X: NDArray) -> NDArray:
        """Give the standardised linear features (n, m) of rows X (n, d)."""
        return self.scaler.transform(self.plan.raw(X))

    def prepared(self, dtype: DTypeLike, n_rows: int) -> Callable[[NDArray], NDArray]:
        """Give a function for many blocks of at most `n_rows` rows each.

        It does what `transform` does, but gives NaN where a linear feature counts as the mean.
        """
        scaled = self.scaler.prepared(dtype, n_rows)
        return lambda X: scaled(self.plan.raw(X))


def plan_features(
    X: NDArray,
    s: NDArray,
    columns: Columns,
    chosen: NDArray[np.intp] | None = None,
    *,
    gap_indicators: bool = False,
) -> FeaturePlan:
    """Decide which linear features there are.

    Parameters
    ----------
    X, s : arrays (n, d), (n,)
        All training rows and their weights.
    columns : Columns
    chosen : integers, optional
        Columns that take part; all by default.
    gap_indicators : bool
        Whether columns of numbers with gaps get an indicator of them.
    """
    taking_part = np.arange(len(columns)) if chosen is None else np.sort(chosen)
    is_number = columns.n_levels[taking_part] == 0
    numbers = taking_part[is_number]
    indicators = tuple(
        _plan_indicators(j, X[:, j], s, columns) for j in taking_part[~is_number].tolist()
    )
    gaps = numbers[np.isnan(X[:, numbers]).any(axis=0)] if gap_indicators else numbers[:0]
    names = [columns[j].label for j in numbers]
    names += [name for part in indicators for name in part.names]
    names += [f"{columns[j].label} is missing" for j in gaps]
    sources = [numbers, *(np.full(len(p.names), p.column) for p in indicators), gaps]
    return FeaturePlan(
        numbers, indicators, gaps, tuple(names), np.concatenate(sources).astype(np.intp)
    )


def _plan_indicators(j: int, column: NDArray, s: NDArray, columns: Columns) -> _Indicators:
    levels = columns[j].levels
    assert levels is not None
    codes = as_codes(column, len(levels))
    shares = np.bincount(codes, s, minlength=len(levels) + 2) / s.sum()
    frequent = np.argsort(-shares, kind="stable")[:_MOST_LEVELS]
    kept = np.sort(frequent[shares[frequent] >= _RARE])
    texts = [*map(str, levels), "unseen", "missing"]
    place = np.full(len(shares), -1, np.intp)
    place[kept] = np.arange(len(kept))
    names = [f"{columns[j].label}={texts[k]}" for k in kept]
    pooled = (place < 0) & (shares > 0)
    if pooled.any():
        pooled[:-1] |= place[:-1] < 0  # levels without any weight, and unseen ones, are rare too
        place[pooled] = len(names)
        names.append(f"{columns[j].label}=other")
    if len(names) <= 2:  # one indicator tells two groups apart, and one group needs none
        names = names[:-1]
    return _Indicators(j, place, tuple(names))
