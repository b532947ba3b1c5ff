"""The best threshold of every feature in one node of one task.

With gradients g (the negative derivatives of the loss) and curvatures h, the decrease of the
impurity by a split of a node's rows into L and R is

    Delta = sum over outputs k of  G_Lk^2 / H_Lk + G_Rk^2 / H_Rk - G_k^2 / H_k
          = sum over outputs k of  (G_Lk - H_Lk G_k / H_k)^2 H_k / (H_Lk H_Rk),

where G and H are sums of g and h over rows: for squared error the decrease of the residual sum of
squares, for other losses that of their second-order expansion. The second form takes fewer steps
and no difference of large numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf.multitask._bouts.bins import Bins

__all__ = ["TIE", "Cuts", "Slopes", "best_cuts", "histogram"]

#: Values worked on at a time, so that what is made in between stays in the cache.
_BLOCK_VALUES = 1 << 18
_SCAN_VALUES = 1 << 14
#: Gains that differ relatively by less than this are equal: rounding must not choose for them.
TIE = 1e-10


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
        gap = total - left[..., -1:]
        other, other_cut = _scan(left + gap, total, n_outputs, least)
        better = other > (1 + TIE) * gain
        gain, cut = np.where(better, other, gain), np.where(better, other_cut, cut)
        missing_left = np.where(gap[-1, :, 0] > 0, better, missing_left)
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
