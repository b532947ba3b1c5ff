"""What the linear models of the cells add to a prediction, feature by feature.

Given its cells, a row's prediction is linear: with z the standardised linear features,

    f(x) = sum_j z_j sum_p w_{p, c_p(x), j} + sum_p b_{p, c_p(x)},

so that z_j times the sum of its slopes over the row's cells is exactly what feature j adds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from jointleaf._core.layout import CellLayout
from jointleaf._model.ranges import CellRanges

__all__ = ["LinearContributions", "TrainingMeans", "sum_of_entries", "training_means"]

_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class TrainingMeans:
    """What explanations measure from: means over the training rows.

    Attributes
    ----------
    cell_weights : array (C,)
        Share of the weight of all training rows that lies in every cell.
    linear : array (m, K)
        Weighted mean of the linear contributions, in standard units of the target.
    n_rows : int
        Number of different training rows.
    """

    cell_weights: NDArray[np.float64]
    linear: NDArray[np.float64]
    n_rows: int


class LinearContributions:
    """Gives z_j times the summed slopes of feature j, for every row, feature and output.

    Parameters
    ----------
    layout : CellLayout
    theta : array (C, q) or (C, q, K)
        Weights of all cells in standard units.
    ranges : CellRanges or None
        What the cells saw, where their linear models are limited to that.
    """

    def __init__(self, layout: CellLayout, theta: NDArray, ranges: CellRanges | None) -> None:
        self._layout, self._ranges = layout, ranges
        slopes = theta[:, : layout.n_slopes].astype(np.float64)
        self.n_outputs = 1 if theta.ndim == 2 else theta.shape[2]
        slopes = slopes.reshape(layout.n_cells, layout.n_slopes, self.n_outputs)
        # One more cell, without slopes, for rows that lie in no cell.
        self._slopes = np.concatenate([slopes, np.zeros_like(slopes[:1])])
        sloped = (slopes != 0).any(axis=(1, 2))
        # Boosted trees that keep their own values have no slopes: they are not looked at.
        self._alive = np.flatnonzero(np.logical_or.reduceat(sloped, layout.offsets[:-1]))

    def __call__(self, features: NDArray, codes: NDArray) -> NDArray[np.float64]:
        """Contributions (n, m, K) of standardised features (n, m) of rows with codes (n, P)."""
        shape = (len(features), self._layout.n_features, self.n_outputs)
        if not len(self._alive) or not self._slopes.shape[1]:
            return np.zeros(shape)
        z = features.astype(np.float64)
        cells = self.cells(codes)
        if self._ranges is not None:
            return self._clipped(z, cells, self._ranges)
        return z[:, :, None] * self._summed(cells)

    def cells(self, codes: NDArray) -> NDArray[np.intp]:
        """Cells (n, P') over all partitions that have slopes; C where a row is in none."""
        some = codes[:, self._alive].astype(np.intp)
        return np.where(some < 0, self._layout.n_cells, some + self._layout.offsets[self._alive])

    def _summed(self, cells: NDArray[np.intp]) -> NDArray[np.float64]:
        """Slopes (n, m, K) summed over the cells of rows."""
        return sum_of_entries(cells, self._slopes)

    def _clipped(
        self, z: NDArray, cells: NDArray[np.intp], ranges: CellRanges
    ) -> NDArray[np.float64]:
        sums = np.zeros((*z.shape, self.n_outputs))
        for c in cells.T:
            inside = np.clip(z, ranges.low[c], ranges.high[c])
            sums += inside[:, :, None] * self._slopes[c]
        return sums

    def slopes(self, features: NDArray, codes: NDArray) -> NDArray[np.float64]:
        """Derivatives (n, m, K) with respect to the standardised features.

        Zero for what lies outside the range of its cell, where cells have ranges.
        """
        shape = (len(features), self._layout.n_features, self.n_outputs)
        if not len(self._alive) or not self._slopes.shape[1]:
            return np.zeros(shape)
        cells = self.cells(codes)
        if self._ranges is None:
            return self._summed(cells)
        sums = np.zeros(shape)
        for c in cells.T:
            low, high = self._ranges.low[c], self._ranges.high[c]
            inside = (features >= low) & (features <= high) & (low < high)
            sums += inside[:, :, None] * self._slopes[c]
        return sums


def sum_of_entries(
    index: NDArray[np.intp], table: NDArray[np.float64] | sparse.csr_array
) -> NDArray[np.float64]:
    """Sums (n, ...) of the entries of a table (L, ...) that every row (n, P) of an index names."""
    width = int(np.prod(table.shape[1:]))
    flat = table if sparse.issparse(table) else table.reshape(len(table), width)
    out = np.empty((len(index), width))
    for start in range(0, len(index), _BLOCK_ROWS):
        block = index[start : start + _BLOCK_ROWS]
        n, k = block.shape
        ones = sparse.csr_array(
            (np.ones(n * k), block.reshape(-1), np.arange(0, n * k + 1, k)),
            shape=(n, table.shape[0]),
        )
        sums = ones @ flat
        out[start : start + n] = sums.toarray() if sparse.issparse(sums) else sums
    return out.reshape(len(index), *table.shape[1:])


def training_means(
    contributions: LinearContributions,
    layout: CellLayout,
    blocks: Iterable[tuple[NDArray, NDArray, NDArray]],
) -> TrainingMeans:
    """Means over the training rows.

    Parameters
    ----------
    contributions : LinearContributions
    layout : CellLayout
    blocks : iterable of triples
        Standardised features (n, m), codes (n, P) and weights (n,) of some rows each.
    """
    linear = np.zeros((layout.n_features, contributions.n_outputs))
    weights, total, n_rows = np.zeros(layout.n_cells), 0.0, 0
    for features, codes, s in blocks:
        total += s.sum()
        n_rows += len(s)
        linear += np.einsum("n,nmk->mk", s, contributions(features, codes))
        for p, first in enumerate(layout.offsets[:-1]):
            inside, count = codes[:, p] >= 0, layout.cells_per_partition[p]
            found = np.bincount(codes[inside, p], s[inside], minlength=count)
            weights[first : first + count] += found
    return TrainingMeans(weights / total, linear / total, n_rows)
