"""Columns as small whole numbers, so that the sums behind every split are counted at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_BINS", "Bins", "bin_columns"]

#: Largest number of bins of a column: with one more for missing values, codes fill one byte.
MOST_BINS = 255


@dataclass(frozen=True)
class Bins:
    """The rows of one task, every value replaced by the number of its bin.

    Bin b of column j holds the values x with cuts[j, b - 1] < x <= cuts[j, b], so that the split
    "code <= b" is the split "x <= cuts[j, b]".

    Attributes
    ----------
    codes : uint8 array (d, n)
        Columns first: the sums of one column stay in the cache while they are made.
    cuts : float64 array (d, B)
        Upper ends of the bins, infinity for the last bin of a column and beyond.
    has_missing : bool
        Whether some value is missing (NaN); such values have code B in every column.
    """

    codes: NDArray[np.uint8]
    cuts: NDArray[np.float64]
    has_missing: bool

    @property
    def width(self) -> int:
        """W, how many codes there are: B, and one more where values are missing."""
        return self.cuts.shape[1] + self.has_missing

    @property
    def n_rows(self) -> int:
        """n, the number of rows."""
        return self.codes.shape[1]

    def of(self, features: NDArray[np.intp]) -> Bins:
        """Give only some of the columns, in rising order."""
        if len(features) == len(self.codes):
            return self
        return replace(self, codes=self.codes[features], cuts=self.cuts[features])

    def middle(self, feature: int, cut: int, rows: NDArray[np.intp]) -> int:
        """Give the middle one of the cuts that divide rows as `cut` does.

        Where bins next to a cut hold none of the rows there are several. If all values are on the
        left, and missing ones alone on the right, the cut is at infinity.
        """
        n_bins = self.cuts.shape[1]
        codes = self.codes[feature][rows]
        low = int(codes.max(where=codes <= cut, initial=0))
        high = int(codes.min(where=codes > cut, initial=n_bins))
        return n_bins - 1 if high == n_bins else (low + high - 1) // 2

    def goes_left(
        self, feature: int, cut: int, missing_left: bool, rows: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Whether rows, given by their numbers, go left at a split."""
        codes = self.codes[feature][rows]
        left = codes <= cut
        if self.has_missing and missing_left:
            left |= codes == self.cuts.shape[1]
        return left


def bin_columns(X: NDArray, most: int = MOST_BINS) -> Bins:
    """Put the values of every column into bins.

    A column of at most `most` different values has one bin for each, and every split of it that
    is possible at all can be made, half-way between two values. One with more has `most` bins
    with nearly equal numbers of rows.

    Parameters
    ----------
    X : array (n, d)
        Numbers, NaN where missing.
    most : int
        Largest number of bins, at most `MOST_BINS`.
    """
    n_rows, n_features = X.shape
    columns = [np.asarray(X[:, j], dtype=np.float64) for j in range(n_features)]
    missing = [np.isnan(column) for column in columns]
    ends = [_ends(x[~gap], most) for x, gap in zip(columns, missing, strict=True)]
    n_bins = 1 + max((len(e) for e in ends), default=0)
    cuts = np.full((n_features, n_bins), np.inf)
    codes = np.empty((n_features, n_rows), np.uint8)
    for j, (column, gap, end) in enumerate(zip(columns, missing, ends, strict=True)):
        cuts[j, : len(end)] = end
        codes[j] = np.searchsorted(end, column, side="left")
        codes[j, gap] = n_bins
    return Bins(codes, cuts, any(bool(gap.any()) for gap in missing))


def _ends(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Upper ends of all bins of a column but the last."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < 2:
        return np.zeros(0)
    last = np.arange(len(distinct) - 1)
    if len(distinct) > most:
        up_to = np.cumsum(counts)
        last = np.unique(np.searchsorted(up_to, np.arange(1, most) * (len(values) / most)))
        last = last[last < len(distinct) - 1]
    below, above = distinct[last], distinct[last + 1]
    with np.errstate(invalid="ignore"):  # the middle of -inf and inf
        middle = below / 2 + above / 2  # not their sum, which may overflow
    return np.where((below <= middle) & (middle < above), middle, below)
