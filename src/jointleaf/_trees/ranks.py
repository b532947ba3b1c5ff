"""The places of numbers among rising thresholds, for many columns in one go.

A search in every column has a cost of its own, which few rows feel, and many rows wait for memory
in each of its steps. So the range of a column is divided into equal intervals with few thresholds
each: those of lower intervals are counted before, and those of its own interval are compared with
the number, layer by layer: the first threshold of all columns' intervals, then the second ones and
so on. Nothing is searched, and every step is one operation on all columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MOST_COMPARED = 8  # thresholds in an interval; columns that have more are searched
_LEAST_INTERVALS = 128
_PER_THRESHOLD = 4  # intervals
_BLOCK = 2**15


class Ranks:
    """Finds how many of some rising thresholds are below numbers.

    `thresholds` are those of one column of rows each, which `columns` number. Row `places[i]` of
    the ranks has those of the i-th: columns with the most layers come first.
    """

    def __init__(self, columns: Sequence[int], thresholds: Sequence[NDArray[np.float64]]) -> None:
        sorted_in = [_sorted_in(values) for values in thresholds]
        counts = [of_intervals for *_, of_intervals in sorted_in]
        depths = np.array([count.max() for count in counts], np.intp)
        order = np.argsort(-depths, kind="stable")
        self.places = np.argsort(order)
        self._columns = np.array(columns, np.intp)[order]
        self._missing = np.array([len(values) + 1 for values in thresholds], np.intp)[order, None]
        scales = [(low, factor, len(of_intervals) - 1) for low, factor, of_intervals in sorted_in]
        self._low, self._factor, self._last = (
            np.array(scales, float).reshape(-1, 3)[order].T[..., None]
        )
        first = np.cumsum([0, *(len(counts[i]) for i in order)])
        self._first = first[:-1, None]  # interval of every column
        below = [np.cumsum(counts[i]) - counts[i] for i in order]
        self._n_below = np.concatenate([*below, [0]]).astype(np.intp)
        searched = [i for i, (_, factor, _) in enumerate(sorted_in) if factor == 0]
        self._searched = [(self.places[i], thresholds[i]) for i in searched]
        self._layers: list[tuple[int, NDArray[np.float64]]] = []
        for k in range(int(depths.max(initial=0))):
            m = int(np.count_nonzero(depths > k))
            layer = np.full(first[m], np.inf)
            for place, i in enumerate(order[:m]):
                inside = np.flatnonzero(counts[i] > k)
                layer[first[place] + inside] = thresholds[i][below[place][inside] + k]
            self._layers.append((m, layer))

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the ranks (m, n) of columns (d, n) of rows; one more than there are for NaN."""
        m, n = len(self._columns), columns.shape[1]
        ranks = np.empty((m, n), np.intp)
        step = max(1, min(n, _BLOCK // max(1, m)))
        space = np.empty((2, m * step)), np.empty((2, m * step), np.intp)
        for begin in range(0, n, step):
            rows = slice(begin, min(begin + step, n))
            shape = m, rows.stop - begin
            x, work, interval, out = (
                a[: shape[0] * shape[1]].reshape(shape) for two in space for a in two
            )
            columns[:, rows].take(self._columns, 0, x, "clip")
            self._fill(x, work, interval, out)
            ranks[:, rows] = out
        return ranks

    def _fill(
        self,
        x: NDArray[np.float64],
        work: NDArray,
        interval: NDArray[np.intp],
        out: NDArray[np.intp],
    ) -> None:
        """Write the ranks of numbers x (m, n) to `out`; what is in between, to the others."""
        with np.errstate(invalid="ignore", over="ignore"):
            np.subtract(x, self._low, out=work)
            work *= self._factor
            np.maximum(work, 0.0, out=work)
            np.minimum(work, self._last, out=work)
            np.copyto(interval, work, casting="unsafe")
        interval += self._first
        self._n_below.take(interval, 0, out, "clip")
        for m, layer in self._layers:
            layer.take(interval[:m], 0, work[:m], "clip")
            out[:m] += x[:m] > work[:m]
        for place, thresholds in self._searched:
            out[place] = np.searchsorted(thresholds, x[place])
        is_missing = np.isnan(x)
        if is_missing.any():
            np.copyto(out, self._missing, where=is_missing)


def _sorted_in(thresholds: NDArray[np.float64]) -> tuple[float, float, NDArray[np.intp]]:
    """Return where intervals begin, the inverse of their width, and the thresholds in every one.

    The inverse is 0, with one interval of none, where these would be too many, or thresholds too
    close for intervals.
    """
    finite = thresholds[np.isfinite(thresholds)]
    if len(finite):
        last = max(_LEAST_INTERVALS, _PER_THRESHOLD * len(thresholds))
        with np.errstate(all="ignore"):
            factor = last / (finite[-1] - finite[0]) if len(finite) > 1 else 1.0
            interval = np.clip((thresholds - finite[0]) * factor, 0, last)
        if 0 < factor < np.inf:
            counts = np.bincount(interval.astype(np.intp), minlength=last + 1)
            if counts.max() <= _MOST_COMPARED:
                return float(finite[0]), float(factor), counts
    return 0.0, 0.0, np.zeros(1, np.intp)
