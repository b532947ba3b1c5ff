"""What the linear models of the cells add to a prediction, feature by feature.

Given its cells, a row's prediction is linear: with z the standardised linear features,

    f(x) = sum_j z_j sum_p w_{p, c_p(x), j} + sum_p b_{p, c_p(x)},

so that z_j times the sum of its slopes over the row's cells is exactly what feature j adds.

**Ranges.** With ``clip="cell"`` the linear model of every cell sees each feature clipped to the
range that the feature had among the cell's training rows: a cell never extrapolates. On training
rows this changes nothing, so that the fit is the same; it acts on predictions alone.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from jointleaf._core.layout import CellLayout
from jointleaf.partitions import Partitioner

_BLOCK_ENTRIES = 2**18  # that are looked up at a time, and stay in the cache
_FEW_ENTRIES = 2**13  # numbers up to which making a sparse matrix takes longer
_CLIP_ROWS = 1024  # the gathered rows of one partition stay in the cache


@dataclass(frozen=True)
class CellRanges:
    """Smallest and largest value of every linear feature in every linear cell, (L + 1, m).

    They are standardised, in the order of the slopes; infinite where a cell has no limit. The last
    row, of zeros, stands for cells without slopes.
    """

    low: NDArray
    high: NDArray

    def predict(
        self, X: NDArray, codes: NDArray, layout: CellLayout, slopes: NDArray, biases: NDArray
    ) -> NDArray:
        """Return the sums (n[, K]) over partitions of <w_c, clip(x, low_c, high_c)> + b_c.

        X (n, m) are standardised linear features, codes (n, P) are -1 for no cell.
        """
        constants = padded(biases.reshape(len(biases), -1)).astype(X.dtype)  # (C + 1, K)
        slopes = slopes.reshape(*slopes.shape[:2], constants.shape[1])
        slopes = padded(slopes).astype(X.dtype)  # (L + 1, m, K)
        low, high = self.low.astype(X.dtype), self.high.astype(X.dtype)
        slope_rows = np.append(layout.slope_rows, layout.n_linear_cells)
        is_linear = np.array(layout.kinds) == "linear"
        f = np.zeros((len(X), constants.shape[1]), X.dtype)
        for start in range(0, len(X), _CLIP_ROWS):
            rows = slice(start, start + _CLIP_ROWS)
            x, sums = X[rows], f[rows]
            cells = np.where(codes[rows] < 0, layout.n_cells, codes[rows] + layout.offsets[:-1])
            for p, cell in enumerate(cells.T):
                sums += constants[cell]
                if is_linear[p]:
                    row = slope_rows[cell]
                    clipped = np.maximum(x, low[row])
                    np.minimum(clipped, high[row], out=clipped)
                    sums += np.einsum("nm,nmk->nk", clipped, slopes[row])
        return f[:, 0] if biases.ndim == 1 else f


def cell_ranges(X: NDArray, codes: NDArray, layout: CellLayout) -> CellRanges:
    """Learn the ranges from standardised linear features X (n, m) and codes of training rows."""
    shape = (layout.n_linear_cells + 1, X.shape[1])
    low, high = np.zeros(shape, X.dtype), np.zeros(shape, X.dtype)
    for p, start in enumerate(layout.offsets[:-1]):
        if layout.kinds[p] == "constant":
            continue
        order = np.argsort(codes[:, p], kind="stable")
        column = codes[order, p]
        first = np.flatnonzero(np.diff(column, prepend=-2))
        cells, sorted_rows = column[first], X[order]
        is_cell = cells >= 0
        rows = layout.slope_rows[start + cells[is_cell]]
        low[rows] = np.minimum.reduceat(sorted_rows, first, axis=0)[is_cell]
        high[rows] = np.maximum.reduceat(sorted_rows, first, axis=0)[is_cell]
    return CellRanges(low, high)


# -- contributions ---------------------------------------------------------------------------------


class LinearContributions:
    """Computes z_j times the summed slopes of feature j, for every row, feature and output.

    Slopes (L, m[, K]) of the linear cells are in standard units.
    """

    def __init__(
        self, layout: CellLayout, slopes: NDArray, ranges: CellRanges | None = None
    ) -> None:
        self._layout, self._ranges = layout, ranges
        self.n_outputs = 1 if slopes.ndim == 2 else slopes.shape[2]
        # A row of zeros for constant cells, and for rows that lie in no cell.
        self._slopes = padded(
            slopes.astype(np.float64, copy=False).reshape(
                len(slopes), layout.n_features, self.n_outputs
            )
        )
        self._slope_rows = np.append(layout.slope_rows, layout.n_linear_cells)
        has_slopes = np.zeros(layout.n_cells, bool)
        has_slopes[layout.linear_cells] = self._slopes[:-1].any(axis=(1, 2))
        # Partitions without any slope are not looked at.
        self._sloped = np.flatnonzero(np.logical_or.reduceat(has_slopes, layout.offsets[:-1]))

    def __call__(self, features: NDArray, codes: NDArray) -> NDArray[np.float64]:
        """Return contributions (n, m, K) of standardised features (n, m) with codes (n, P)."""
        if not len(self._sloped):
            return np.zeros((*features.shape, self.n_outputs))
        z, rows = features.astype(np.float64), self._rows(codes)
        if self._ranges is None:
            sums = sum_of_entries(rows, self._slopes)
            return np.multiply(z[:, :, None], sums, out=sums)
        sums = np.zeros((*z.shape, self.n_outputs))
        for row in rows.T:
            clipped = np.clip(z, self._ranges.low[row], self._ranges.high[row])
            sums += clipped[:, :, None] * self._slopes[row]
        return sums

    def slopes(self, features: NDArray, codes: NDArray) -> NDArray[np.float64]:
        """Return derivatives (n, m, K) with respect to the standardised features.

        Zero for what lies outside the range of its cell, where cells have ranges.
        """
        sums = np.zeros((*features.shape, self.n_outputs))
        if not len(self._sloped):
            return sums
        rows = self._rows(codes)
        if self._ranges is None:
            return sum_of_entries(rows, self._slopes)
        for row in rows.T:
            low, high = self._ranges.low[row], self._ranges.high[row]
            inside = (features >= low) & (features <= high) & (low < high)
            sums += inside[:, :, None] * self._slopes[row]
        return sums

    def _rows(self, codes: NDArray) -> NDArray[np.intp]:
        """Rows (n, P') of the slopes, of all partitions that have some."""
        codes, first = codes[:, self._sloped], self._layout.offsets[self._sloped]
        return self._slope_rows[np.where(codes < 0, self._layout.n_cells, codes + first)]


def padded(table: NDArray) -> NDArray:
    """Append a row of zeros."""
    return np.concatenate([table, np.zeros((1, *table.shape[1:]), table.dtype)])


def sum_of_entries(index: NDArray, table: NDArray | sparse.csr_array) -> NDArray:
    """Sum (n, ...) the entries of a table (N, ...) that every row (n, P) of an index names."""
    width, k = int(np.prod(table.shape[1:])), index.shape[1]
    flat = table if sparse.issparse(table) else table.reshape(len(table), width)
    flat = flat[:, 0] if width == 1 and not sparse.issparse(table) else flat  # a faster product
    if index.size * width <= _FEW_ENTRIES and not sparse.issparse(table):
        return flat.take(index, 0).sum(axis=1).reshape(len(index), *table.shape[1:])
    out = np.empty((len(index), *flat.shape[1:]), table.dtype)
    n_rows = max(1, min(_BLOCK_ENTRIES // max(k, 1), len(index)))
    ones = np.ones(n_rows * k, table.dtype)
    for start in range(0, len(index), n_rows):
        block = index[start : start + n_rows]
        indptr = np.arange(0, block.size + 1, k, dtype=index.dtype)
        matrix = sparse.csr_array(
            (ones[: block.size], block.reshape(-1), indptr), shape=(len(block), table.shape[0])
        )
        sums = matrix @ flat
        out[start : start + len(block)] = sums.toarray() if sparse.issparse(sums) else sums
    return out.reshape(len(index), *table.shape[1:])


@dataclass(frozen=True)
class TrainingMeans:
    """Means over the training rows, from which explanations measure."""

    cell_weights: NDArray[np.float64]  # (C,): fraction of all rows' weight
    linear: NDArray[np.float64]  # (m, K): mean contributions, in standard units
    n_rows: int  # different ones


class TrainingSums:
    """Sums over training rows, of blocks of them one after the other."""

    def __init__(self, layout: CellLayout, n_outputs: int) -> None:
        self._layout, self._total = layout, 0.0
        self._cells = np.zeros(layout.n_cells + 1)  # the last one: rows that lie in no cell
        self._linear = np.zeros((layout.n_features, n_outputs))
        self._squares = np.zeros(layout.n_features)

    def add(self, contributions: NDArray, codes: NDArray, s: NDArray) -> None:
        """Add rows of contributions (n, m, K), codes (n, P) and weights s (n,)."""
        cells = np.where(codes < 0, self._layout.n_cells, codes + self._layout.offsets[:-1])
        weights = np.repeat(s, codes.shape[1])
        self._cells += np.bincount(cells.reshape(-1), weights, minlength=len(self._cells))
        self._linear += np.einsum("n,nmk->mk", s, contributions)
        self._squares += s @ np.einsum("nmk,nmk->nm", contributions, contributions)
        self._total += s.sum()

    def means(self, n_rows: int) -> TrainingMeans:
        """Return the means, of a sample of `n_rows` different rows."""
        return TrainingMeans(self._cells[:-1] / self._total, self._linear / self._total, n_rows)

    def spread(self) -> NDArray[np.float64]:
        """Return the root mean square (m,) of contributions, summed over outputs."""
        return np.sqrt(self._squares / self._total)


# -- importances -----------------------------------------------------------------------------------


def by_column(values: NDArray, sources: NDArray[np.intp], n_columns: int) -> NDArray[np.float64]:
    """Return the root of the sum of squares of linear features' values (m,) by column (d,)."""
    return np.sqrt(np.bincount(sources, np.square(values), minlength=n_columns))


def column_importances(
    spread: NDArray, partitioner: Partitioner, sources: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return importances (d,): half of split gains, half of the spread of linear contributions.

    Both are scaled to a sum of one. The spread (m,) is that of linear features, which come from the
    columns `sources`; see `TrainingSums`.
    """
    gains = np.asarray(partitioner.split_gains_, float)
    has_gains = partitioner.splits_on_features and gains.sum() > 0
    parts = [gains / gains.sum()] if has_gains else []
    spread = by_column(spread, sources, len(gains))
    if spread.sum() > 0:
        parts.append(spread / spread.sum())
    return np.mean(parts, axis=0) if parts else np.full(len(gains), 1.0 / len(gains))


def warn_of_no_features(penalty: object) -> None:
    """Warn that cross-validation left the cells alone, without slopes."""
    warnings.warn(
        f"cross-validation of {penalty!r} selected no feature, the cells alone do best: try "
        "one_se=False, or cells that know less of y (partitioner='voronoi')",
        UserWarning,
        stacklevel=4,
    )
