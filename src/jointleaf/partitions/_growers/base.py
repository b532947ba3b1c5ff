"""What the partitioners share that grow an ensemble of trees with some library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.features import mean_and_scale
from jointleaf._trees.encoding import Encoding, TrainingRows
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers import find_adapter
from jointleaf.partitions._base import TreeCells, checked_count

#: Shared by all kinds of boosting, so that one can stand in for another.
LEARNING_RATE = 0.1
SUBSAMPLE = 0.7
_MIN_LEAF_ROWS = 5


def fine_bins(n_rows: int) -> int:
    """Return LightGBM's number of bins of a column for trees with the best thresholds.

    One for every 40 rows, 127 to 255: rare values of a column can matter with many rows, and finer
    borders are noise with few.
    """
    return int(np.clip(n_rows // 40, 127, 255))


@dataclass(eq=False, repr=False)
class TreePartitioner(TreeCells):
    """Base of the partitioners that grow trees.

    A subclass implements `_grow`, which trains a model of the library, and sets
    `splits_categories` and `splits_missing` where the library takes categories and missing values.
    Where it does not, trees are grown on numbers in their place (`_trees.encoding`).

    Parameters
    ----------
    n_partitions : int
        Number P of trees. Boosting for K > 2 classes grows K trees in every round: there
        are ``max(1, round(n_partitions / K))`` rounds of K trees each then. Fewer trees
        come out where the library stops because nothing is left to split.
    n_cells : int
        Largest number of leaves of a tree.
    random_state : int, RandomState or None
        Seed of row and column sampling. The same seed gives the same cells.
    n_jobs : int or None
        Threads; None is 1, -1 all cores. The cells do not depend on it.
    options : dict or None
        Further parameters of the library, which override those set here.

    Attributes
    ----------
    trees_ : FlatTrees
        The trees in portable form; the library that grew them is not needed any more.
    n_cells_ : ndarray (P,)
        Number of cells of each partition.
    split_gains_ : ndarray (d,)
        Total gain of each feature's splits; zeros where no split was made.
    n_features_in_ : int
        Number of features d.
    """

    _needs_target = True
    splits_categories: ClassVar[bool] = False
    splits_missing: ClassVar[bool] = False
    #: whether the library never makes a leaf without training rows: then none are routed to know
    rows_reach_all_leaves: ClassVar[bool] = False

    n_partitions: int = 100
    n_cells: int = 4
    random_state: Any = None
    n_jobs: int | None = None
    options: Mapping[str, Any] | None = None

    def _fit_rows(self, rows: TrainingRows) -> None:
        checked_count(self, "n_partitions", 1)
        checked_count(self, "n_cells", 2)
        trees, gains = self._grow_trees(rows)
        if rows.n_classes == 0:  # the library saw the standardised target
            mean, scale = mean_and_scale(rows.y[:, None], np.ones(len(rows.y)))
            trees = trees.scaled(float(scale[0]), float(mean[0]))
        if self.rows_reach_all_leaves:
            self.set_all_leaves(trees, gains)
        else:
            self.number_cells(trees, gains, rows.X)

    def _grow_trees(self, rows: TrainingRows) -> tuple[FlatTrees, NDArray]:
        """Grow trees on what the library takes; return them in portable form with their gains."""
        encoding = None
        categories = rows.columns.categorical.size > 0 and not self.splits_categories
        if categories or not self.splits_missing:
            encoding = Encoding(rows, categories=categories, missing=not self.splits_missing)
            rows = encoding.transform(rows)
        model = self._grow(rows)
        adapter = find_adapter(model)
        trees = adapter.trees(model, rows.columns)
        if encoding is not None:
            trees = encoding.translate(trees)
        return trees, adapter.split_gains(model)

    def _grow(self, rows: TrainingRows) -> Any:
        """Train a model of the library on `rows`, unless `_grow_trees` does without."""
        raise NotImplementedError

    def _rounds(self, n_classes: int) -> int:
        """Return the boosting rounds of `n_partitions` trees: K trees a round for K > 2 classes."""
        trees_per_round = n_classes if n_classes > 2 else 1
        return max(1, round(self.n_partitions / trees_per_round))


@dataclass(eq=False, repr=False)
class ForestPartitioner(TreePartitioner):
    """Base of the partitioners that grow a random forest: 100 trees of 16 leaves by default."""

    n_cells: int = 16


def import_library(partitioner: TreePartitioner, name: str, remedy: str) -> Any:
    """Return the library that grows the trees; the error where it cannot be loaded has a remedy."""
    try:
        return import_module(name.lower())
    except (ImportError, OSError) as cause:
        raise ImportError(
            f"{type(partitioner).__name__} needs {name}, which cannot be loaded ({cause}): {remedy}"
        ) from cause


def standard_target(y: NDArray) -> NDArray[np.float64]:
    """Return `y` with mean 0 and variance 1, because squares of large targets overflow."""
    mean, scale = mean_and_scale(y[:, None], np.ones(len(y)))
    return (y - mean[0]) / scale[0]


def training_label(rows: TrainingRows, *, is_squared_error: bool) -> NDArray:
    """Return the targets as a library of boosting should see them."""
    if rows.n_classes > 0:
        # Trees for a class without rows would be trees for nothing.
        return rows.class_numbers
    # Labels are kept in float32: a large mean would drown the differences.
    return standard_target(rows.y) if is_squared_error else rows.y


def least_leaf_rows(n_rows: int) -> int:
    """Return the least rows of a leaf, fewer for few rows so that these can still be split."""
    return max(1, min(_MIN_LEAF_ROWS, n_rows // 4))


def row_fraction(n_rows: int) -> float:
    """Return the fraction of rows that a tree sees; all where the sample could not be split."""
    return SUBSAMPLE if int(SUBSAMPLE * n_rows) > 1 else 1.0
