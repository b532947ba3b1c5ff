"""Axis-aligned steps: partitions of two cells, one for every threshold of every feature."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import as_codes
from jointleaf._data.features import mean_and_scale
from jointleaf._trees.encoding import TrainingRows
from jointleaf._trees.flat import NodeTable, flatten
from jointleaf.partitions._base import TreeCells, check_count


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

    def __init__(self, n_partitions: int = 100, n_jobs: int | None = None) -> None:
        self.n_partitions = n_partitions
        self.n_jobs = n_jobs

    def _fit_rows(self, rows: TrainingRows) -> None:
        n_partitions = check_count(self, "n_partitions", self.n_partitions, 1)
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
