"""A cell for every value of the columns that have few."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.encoding import TrainingRows
from jointleaf._trees.flat import NodeTable, flatten
from jointleaf.partitions._base import TreeCells, check_count

#: Of all partitions.
MAX_CELLS = 200


class CategoryPartitioner(TreeCells):
    """One partition for every column of numbers with few different values: a cell for each value.

    Numbers often stand for categories, or for steps that need not be equally far apart: constants
    in these cells give such a column any shape. Numbers between two values lie with the nearer one,
    missing ones with the median. Columns with two values are left out, because a slope does the
    same, and so are columns of categories. Columns with the fewest values come first, up to 200
    cells in all. Targets are not used.

    Parameters
    ----------
    n_cells : int
        Most values of a column.
    n_jobs : int or None
        Threads to find cells with; None is 1, -1 all cores.

    Attributes
    ----------
    trees_ : FlatTrees
        A tree for every such column; one single leaf where there is none.
    n_cells_ : ndarray (P,)
        Number of values of each.
    split_gains_ : ndarray (d,)
        One for these columns, zero for the others.
    n_features_in_ : int
        Number of features d.
    """

    def __init__(self, n_cells: int = 20, n_jobs: int | None = None) -> None:
        self.n_cells = n_cells
        self.n_jobs = n_jobs

    def _fit_rows(self, rows: TrainingRows) -> None:
        most = check_count(self, "n_cells", self.n_cells, 1)
        chosen = _few_values(rows, most)
        trees = flatten(
            [_chain(j, values, float(np.nanmedian(rows.X[:, j]))) for j, values in chosen.items()],
            rows.X.shape[1],
            rows.columns.n_categories,
        )
        gains = np.zeros(rows.X.shape[1])
        gains[list(chosen)] = 1.0
        self.number_cells(trees, gains, rows.X)


def _few_values(rows: TrainingRows, most: int) -> dict[int, NDArray[np.float64]]:
    """Return the values of columns that have 3 to `most` of them, in the order of the columns."""
    values_of = {}
    for j in np.flatnonzero(rows.columns.n_categories == 0).tolist():
        values = np.unique(rows.X[:, j].astype(np.float64))
        values = values[np.isfinite(values)]
        if 3 <= len(values) <= most:
            values_of[j] = values
    fewest = sorted(values_of, key=lambda j: len(values_of[j]))
    counts = np.cumsum([len(values_of[j]) for j in fewest])
    return {j: values_of[j] for j in sorted(fewest[: int((counts <= MAX_CELLS).sum())])}


def _chain(j: int, values: NDArray[np.float64], median: float) -> NodeTable:
    """Return a tree that cuts off one value after the other, from below."""
    n = len(values) - 1
    cut, leaf = np.arange(0, 2 * n, 2), np.full(2 * n + 1, -1)
    feature, left, right = leaf.copy(), leaf.copy(), leaf.copy()
    feature[cut], left[cut], right[cut] = j, cut + 1, cut + 2
    threshold, missing_left = np.zeros(2 * n + 1), np.zeros(2 * n + 1, bool)
    threshold[cut] = values[:-1] / 2 + values[1:] / 2
    missing_left[cut] = median <= threshold[cut]
    return NodeTable(feature, threshold, left, right, missing_left)
