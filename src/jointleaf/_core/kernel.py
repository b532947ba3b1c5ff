"""The kernel behind the joint fit: with quadratic penalties it is kernel ridge regression.

    K = M o (X diag(v) X^T / lambda + 1 / beta),      M_nm = sum_p u_p [n and m share a cell of p]

"how often two rows meet in a cell" times a linear kernel, or 1 / beta for constant partitions.
Dense, for small n.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Frobenius

__all__ = ["cell_kernel", "shared_cells", "times_column_kernel"]

_BLOCK_ROWS = 512
_MAX_COLUMNS = 4096  # one-hot columns of a product: bounds its memory


def cell_kernel(design: LeafDesign, others: LeafDesign, penalty: Frobenius) -> NDArray[np.float64]:
    """Return Phi D^-1 Phi_o^T (n, m) of the rows of two designs over the penalised columns."""
    layout, strengths = design.layout, penalty.column_strengths(design.layout)
    cells = design.cells()
    other_cells = cells if others is design else others.cells()
    weights = penalty.partition_weights
    weights = np.ones(layout.n_partitions) if weights is None else weights
    is_linear = np.array(layout.kinds) == "linear"
    if is_linear.all() or not is_linear.any():
        K = shared_cells(cells, other_cells, layout, weights)
        return times_column_kernel(K, design.X, others.X, strengths)
    K = shared_cells(cells, other_cells, layout, np.where(is_linear, weights, 0.0))
    K = times_column_kernel(K, design.X, others.X, strengths)
    if strengths[-1] > 0:
        constant = shared_cells(cells, other_cells, layout, np.where(is_linear, 0.0, weights))
        K += constant / strengths[-1]
    return K


def shared_cells(
    cells: NDArray, others: NDArray, layout: CellLayout, partition_weights: NDArray | None = None
) -> NDArray[np.float64]:
    """M (n, m): weight of the partitions in which a row of `cells` meets one of `others`.

    Cells (n, P) and (m, P) are numbered over all partitions, C for "no cell". Counts are exact:
    one-hot products in float32 are sums of ones, and weights multiply the finished counts.
    """
    weights = np.ones(layout.n_partitions) if partition_weights is None else partition_weights
    total = np.zeros((len(cells), len(others)))
    for weight in np.unique(weights[weights != 0]):
        counts = np.zeros((len(cells), len(others)), np.float32)
        for chunk in _chunks(np.flatnonzero(weights == weight), layout):
            a = _one_hot(cells, chunk, layout)
            b = a if others is cells else _one_hot(others, chunk, layout)
            counts += a @ b.T
        total += weight * counts
    return total


def times_column_kernel(
    M: NDArray[np.float64], X: NDArray, Y: NDArray, column_strengths: NDArray
) -> NDArray[np.float64]:
    """Multiply M (n, m), in place, by the linear kernel of augmented rows; gives M.

    The kernel is sum_j x_j y_j / strength_j over the penalised columns; free ones are left out.
    """
    penalised = column_strengths > 0
    scaled = X[:, penalised].astype(float) / column_strengths[penalised]
    others = Y[:, penalised].astype(float).T
    for start in range(0, len(M), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        M[rows] *= scaled[rows] @ others
    return M


def _chunks(partitions: NDArray, layout: CellLayout) -> list[NDArray]:
    """Split partitions so that each part has at most _MAX_COLUMNS cells (or one partition)."""
    sizes = np.asarray(layout.cells_per_partition)[partitions]
    part = (np.cumsum(sizes) - sizes) // _MAX_COLUMNS
    return [partitions[part == k] for k in np.unique(part)]


def _one_hot(cells: NDArray, partitions: NDArray, layout: CellLayout) -> NDArray[np.float32]:
    """One-hot codes (n, cells of these partitions); a row in no cell is all zero there."""
    sizes = np.asarray(layout.cells_per_partition)[partitions]
    starts = np.cumsum(sizes) - sizes
    columns = cells[:, partitions] - layout.offsets[partitions] + starts
    hot = np.zeros((len(cells), int(sizes.sum())), np.float32)
    found = cells[:, partitions] < layout.n_cells
    rows = np.broadcast_to(np.arange(len(cells))[:, None], columns.shape)
    hot[rows[found], columns[found]] = 1.0
    return hot
