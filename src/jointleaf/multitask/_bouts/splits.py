"""The best threshold of every feature in one node of one task.

With gradients g (the negative derivatives of the loss) and curvatures h, the decrease of the
impurity by a split of a node's rows into L and R is

    Delta = sum over outputs k of  G_Lk^2 / H_Lk + G_Rk^2 / H_Rk - G_k^2 / H_k
          = sum over outputs k of  (G_Lk - H_Lk G_k / H_k)^2 H_k / (H_Lk H_Rk),

where G and H are sums of g and h over rows: for squared error the decrease of the residual sum of
squares, for other losses that of their second-order expansion. The second form takes fewer steps
and no difference of large numbers.

Values are replaced by the numbers of their bins, so that the sums behind every split are counted at
once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["TIE", "Bins", "Cuts", "Slopes", "best_cuts", "bin_columns", "histogram"]

#: Values worked on at a time, so that what is made in between stays in the cache.
_BLOCK_VALUES = 1 << 18
_SCAN_VALUES = 1 << 14
#: Gains that differ relatively by less than this are equal: rounding must not choose for them.
TIE = 1e-10
#: Largest number of bins of a column: with one more for missing values, codes fill one byte.
_MOST_BINS = 255


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
        """Return only some of the columns, in rising order."""
        if len(features) == len(self.codes):
            return self
        return replace(self, codes=self.codes[features], cuts=self.cuts[features])

    def middle(self, feature: int, cut: int, rows: NDArray[np.intp]) -> int:
        """Return the middle one of the cuts that divide rows as `cut` does.

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


def bin_columns(X: NDArray) -> Bins:
    """Put the values of every column into bins.

    A column of at most 255 different values has one bin for each, and every split of it that
    is possible at all can be made, half-way between two values. One with more has 255 bins
    with nearly equal numbers of rows.

    Parameters
    ----------
    X : array (n, d)
        Numbers, NaN where missing.
    """
    n_rows, n_features = X.shape
    columns = [np.asarray(X[:, j], dtype=np.float64) for j in range(n_features)]
    missing = [np.isnan(column) for column in columns]
    ends = [_ends(x[~is_missing]) for x, is_missing in zip(columns, missing, strict=True)]
    n_bins = 1 + max((len(e) for e in ends), default=0)
    cuts = np.full((n_features, n_bins), np.inf)
    codes = np.empty((n_features, n_rows), np.uint8)
    for j, (column, is_missing, end) in enumerate(zip(columns, missing, ends, strict=True)):
        cuts[j, : len(end)] = end
        codes[j] = np.searchsorted(end, column, side="left")
        codes[j, is_missing] = n_bins
    return Bins(codes, cuts, any(bool(is_missing.any()) for is_missing in missing))


def _ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Upper ends of all bins of a column but the last."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < 2:
        return np.zeros(0)
    last = np.arange(len(distinct) - 1)
    if len(distinct) > _MOST_BINS:
        up_to = np.cumsum(counts)
        starts = np.arange(1, _MOST_BINS) * (len(values) / _MOST_BINS)
        last = np.unique(np.searchsorted(up_to, starts))
        last = last[last < len(distinct) - 1]
    below, above = distinct[last], distinct[last + 1]
    with np.errstate(invalid="ignore"):  # the middle of -inf and inf
        middle = below / 2 + above / 2  # not their sum, which may overflow
    return np.where((below <= middle) & (middle < above), middle, below)


class Slopes(NamedTuple):
    """Derivatives of the loss of one task in its n rows and K outputs.

    Attributes
    ----------
    g : array (K, n)
        Negative gradients: residuals, for squared error.
    h : array (K, n) or None
        Curvatures; None where all are one.
    """

    g: NDArray[np.float64]
    h: NDArray[np.float64] | None

    @property
    def channels(self) -> list[NDArray[np.float64]]:
        """What is summed besides the rows themselves."""
        return [*self.g] if self.h is None else [*self.g, *self.h]


class Cuts(NamedTuple):
    """What every feature offers in a node, arrays (d,).

    Attributes
    ----------
    gain : float array
        Largest Delta; 0 where no split leaves enough rows on both sides.
    cut : integers
        Number of the last bin that goes left.
    missing_left : bool array
        Where missing values go: to the side with the larger Delta, or with more rows where
        the node has no missing values.
    """

    gain: NDArray[np.float64]
    cut: NDArray[np.intp]
    missing_left: NDArray[np.bool_]


def histogram(bins: Bins, slopes: Slopes, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Sums over rows, given by their rising numbers, in every bin of every column and below.

    Returns
    -------
    array (C, d, W)
        Sums of g_1..g_K, of h_1..h_K unless all are one, and the number of rows, each over all
        rows whose code is at most 0, 1, ..., W - 1.
    """
    n_features, width = len(bins.codes), bins.width
    channels = [channel[rows] for channel in slopes.channels]
    sums = np.empty((len(channels) + 1, n_features, width))
    size = max(1, _BLOCK_VALUES // max(1, len(rows)))
    first = np.arange(min(size, n_features), dtype=np.intp)[:, None] * width
    for start in range(0, n_features, size):
        codes = bins.codes[start : start + size]
        if len(rows) < bins.n_rows:
            codes = codes.take(rows, axis=1)
        place = (codes + first[: len(codes)]).ravel()
        block, shape = slice(start, start + len(codes)), (len(codes), width)
        for c, channel in enumerate(channels):
            repeated = np.broadcast_to(channel, (len(codes), len(rows))).ravel()
            counted = np.bincount(place, repeated, len(codes) * width).reshape(shape)
            np.cumsum(counted, axis=1, out=sums[c, block])
        counted = np.bincount(place, minlength=len(codes) * width).reshape(shape)
        np.cumsum(counted, axis=1, out=sums[-1, block])
    return sums


def best_cuts(sums: NDArray[np.float64], n_outputs: int, least: int, has_missing: bool) -> Cuts:
    """Find the best threshold of every feature.

    Parameters
    ----------
    sums : array (C, d, W)
        As `histogram` gives them.
    n_outputs : int
        K, the number of gradients.
    least : int
        Least number of rows on either side.
    has_missing : bool
        Whether the last bin holds the missing values.
    """
    n_features, width = sums.shape[1:]
    size = max(1, _SCAN_VALUES // width)
    parts = [
        _best_of_block(sums[:, start : start + size], n_outputs, least, has_missing)
        for start in range(0, n_features, size)
    ]
    return Cuts(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _best_of_block(sums: NDArray, n_outputs: int, least: int, has_missing: bool) -> Cuts:
    left = sums[..., :-1] if has_missing else sums
    total = sums[..., -1:]
    gain, cut = _scan(left, total, n_outputs, least)
    on_left = np.take_along_axis(left[-1], cut[:, None], axis=1)
    missing_left = (2 * on_left > total[-1])[:, 0]
    if has_missing:
        missing = total - left[..., -1:]
        other, other_cut = _scan(left + missing, total, n_outputs, least)
        better = other > (1 + TIE) * gain
        gain, cut = np.where(better, other, gain), np.where(better, other_cut, cut)
        missing_left = np.where(missing[-1, :, 0] > 0, better, missing_left)
    return Cuts(gain, cut, missing_left)


def _scan(
    left: NDArray, total: NDArray, n_outputs: int, least: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Largest Delta of every feature and its place, for the sums of all left sides (C, d, B)."""
    n_rows = total[-1, 0, 0]  # the same for all features
    if n_rows < 2 * least:
        return np.zeros(left.shape[1]), np.zeros(left.shape[1], np.intp)
    rows = left[-1]
    is_unit = len(left) == n_outputs + 1
    is_bad = None if is_unit else (rows < least) | (n_rows - rows < least)
    gain: NDArray | None = None
    for k in range(n_outputs):
        h = -1 if is_unit else n_outputs + k
        below = total[h] - left[h]
        below *= left[h]
        if is_bad is None:  # m (N - m) is large enough exactly where both sides are
            is_bad = below < least * (n_rows - least)
        np.putmask(below, is_bad, np.inf)
        above = left[h] * (total[k] / total[h])
        np.subtract(left[k], above, out=above)
        above *= above
        above /= below
        above *= total[h]
        gain = above if gain is None else gain + above
    assert gain is not None
    cut = gain.argmax(axis=1)
    return np.take_along_axis(gain, cut[:, None], axis=1)[:, 0], cut
