"""Linear models that stay inside what their own cell saw.

With ``clip="cell"`` the linear model of every cell sees each feature clipped to the range that the
feature had among the cell's own training rows: a cell never extrapolates. On training rows this
changes nothing, so that the fit is the same; it acts on predictions alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout

__all__ = ["CellRanges", "cell_ranges"]

_BLOCK_ROWS = 1024  # the gathered rows of one partition stay in the cache


@dataclass(frozen=True)
class CellRanges:
    """Smallest and largest value of every linear feature in every cell.

    Attributes
    ----------
    low, high : arrays (C + 1, m)
        Standardised; the last row, of zeros, stands for rows that lie in no cell.
    """

    low: NDArray
    high: NDArray

    def predict(self, X: NDArray, codes: NDArray, theta: NDArray, layout: CellLayout) -> NDArray:
        """Sum over partitions of <w_c, clip(x, low_c, high_c)> + b_c.

        Parameters
        ----------
        X : array (n, m)
            Standardised linear features.
        codes : integers (n, P)
            -1 for no cell.
        theta : array (C, m + 1) or (C, m + 1, K)
        layout : CellLayout

        Returns
        -------
        array (n,) or (n, K)
        """
        weights = np.concatenate([theta, np.zeros_like(theta[:1])]).astype(X.dtype)
        weights = weights.reshape(*weights.shape[:2], -1)  # (C + 1, m + 1, K)
        low, high = self.low.astype(X.dtype), self.high.astype(X.dtype)
        f = np.zeros((len(X), weights.shape[2]), X.dtype)
        for start in range(0, len(X), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            x, sums = X[rows], f[rows]
            cells = np.where(codes[rows] < 0, layout.n_cells, codes[rows] + layout.offsets[:-1])
            for c in cells.T:
                inside = np.maximum(x, low[c])
                np.minimum(inside, high[c], out=inside)
                w = weights[c]
                sums += np.einsum("nm,nmk->nk", inside, w[:, :-1]) + w[:, -1]
        return f[:, 0] if theta.ndim == 2 else f


def cell_ranges(X: NDArray, codes: NDArray, layout: CellLayout) -> CellRanges:
    """Learn the ranges from standardised linear features X (n, m) and codes of training rows."""
    shape = (layout.n_cells + 1, X.shape[1])
    low, high = np.zeros(shape, X.dtype), np.zeros(shape, X.dtype)
    for p, start in enumerate(layout.offsets[:-1]):
        order = np.argsort(codes[:, p], kind="stable")
        column = codes[order, p]
        first = np.flatnonzero(np.diff(column, prepend=-2))
        cells, sorted_rows = column[first], X[order]
        is_cell = cells >= 0
        found = start + cells[is_cell]
        low[found] = np.minimum.reduceat(sorted_rows, first, axis=0)[is_cell]
        high[found] = np.maximum.reduceat(sorted_rows, first, axis=0)[is_cell]
    return CellRanges(low, high)
