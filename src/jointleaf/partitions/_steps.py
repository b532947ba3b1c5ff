"""Partitions of single columns: steps at thresholds, and a cell for every value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import as_codes
from jointleaf._data.features import mean_and_scale
from jointleaf._trees.flat import NodeTable, TrainingRows, flatten
from jointleaf.partitions._base import TreeCells, checked_count

#: Of all partitions of a `CategoryPartitioner`.
MAX_CELLS = 200


@dataclass(eq=False, repr=False)
class StepPartitioner(TreeCells):
    """One partition of two cells for every feature and every one of m equally spaced thresholds.

    A feature with values from a to b has the thresholds a + (b - a) k / (m + 1), k = 1..m, and
    rows at most as large lie in the first cell. Missing values lie where the feature's mean does.
    A column with categories has one partition for each of its m most frequent categories, "this
    category or not"; missing values and unseen categories are not. With a sparse penalty on the
    slopes this is the partition-wise linear model of Oiwa and Fujimaki (2014). Targets are not
    used.

    Parameters
    ----------
    n_partitions : int
        About the number P of partitions: m = max(1, n_partitions // v) for v features that vary,
        so that there are more where v is larger, and fewer where categories run out or v does not
        divide it. Constant features have none; where nothing varies, there is one single cell.
    n_jobs : int or None
        Threads to find cells with; None is 1, -1 all cores.

    Attributes
    ----------
    trees_ : FlatTrees
        The steps as trees of two leaves, feature after feature.
    n_cells_ : ndarray (P,)
        Number of cells of each partition.
    split_gains_ : ndarray (d,)
        One for features with steps, zero for constant ones.
    n_features_in_ : int
        Number of features d.
    """

    n_partitions: int = 100
    n_jobs: int | None = None

    def _fit_rows(self, rows: TrainingRows) -> None:
        n_partitions = checked_count(self, "n_partitions", 1)
        varies = _varying(rows)
        n_steps = max(1, n_partitions // max(1, int(varies.sum())))
        steps = [
            stump
            for j in np.flatnonzero(varies).tolist()
            for stump in (_categories if rows.columns.n_categories[j] else _thresholds)(
                rows, j, n_steps
            )
        ]
        trees = flatten(steps, rows.X.shape[1], rows.columns.n_categories)
        self.number_cells(trees, varies, rows.X)


def _varying(rows: TrainingRows) -> NDArray[np.bool_]:
    """Return which columns (d,) have two different numbers, or two categories or missing ones."""
    numbers = np.fmax.reduce(rows.X, axis=0) > np.fmin.reduce(rows.X, axis=0)
    for j in rows.columns.categorical:
        codes = as_codes(rows.X[:, j], int(rows.columns.n_categories[j]))
        numbers[j] = (codes != codes[0]).any()
    return numbers


def _thresholds(rows: TrainingRows, j: int, n_steps: int) -> Iterator[NodeTable]:
    column = rows.X[:, [j]].astype(np.float64)
    mean, _ = mean_and_scale(column, rows.weights)  # raises an error if the range is not finite
    low, high = np.nanmin(column), np.nanmax(column)
    for k in range(n_steps):
        threshold = low + (high - low) * (k + 1) / (n_steps + 1)
        # Rounding must not put it on the largest value, beyond which there is no row.
        threshold = min(threshold, np.nextafter(high, low))
        yield _stump(j, threshold, missing_left=bool(mean[0] <= threshold))


def _categories(rows: TrainingRows, j: int, n_steps: int) -> Iterator[NodeTable]:
    n_categories = int(rows.columns.n_categories[j])
    codes = as_codes(rows.X[:, j], n_categories)
    counts = np.bincount(codes, rows.weights, minlength=n_categories + 2)
    order = np.argsort(-counts[:n_categories], kind="stable")
    order = order[: np.count_nonzero(counts[:n_categories])]
    if np.count_nonzero(counts) == 2:
        order = order[:1]  # the other one divides the rows in the same way
    for category in order[:n_steps]:
        left = np.arange(n_categories + 1) == category  # the last entry is for unseen categories
        yield _stump(j, 0.0, missing_left=False, left=left)


def _stump(
    j: int, threshold: float, *, missing_left: bool, left: NDArray[np.bool_] | None = None
) -> NodeTable:
    return NodeTable(
        feature=np.array([j, -1, -1]),
        threshold=np.array([threshold, 0.0, 0.0]),
        left=np.array([1, -1, -1]),
        right=np.array([2, -1, -1]),
        missing_left=np.array([missing_left, False, False]),
        categories_left={} if left is None else {0: left},
    )


# -- a cell for every value ------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
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

    n_cells: int = 20
    n_jobs: int | None = None

    def _fit_rows(self, rows: TrainingRows) -> None:
        most = checked_count(self, "n_cells", 1)
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
