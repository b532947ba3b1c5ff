"""The leaves of BoUTS trees as partitions, one partitioner for every task."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from jointleaf._data.columns import Columns
from jointleaf._trees.encoding import Encoding, TrainingRows
from jointleaf.multitask._bouts.boosting import BoostingPlan, BoostingRows, boost
from jointleaf.multitask._bouts.trees import TreeShape
from jointleaf.partitions._base import TargetType, TreeCells, check_count, check_fit_rows

__all__ = ["BoUTSPartitioner"]


class BoUTSPartitioner(TreeCells):
    """The leaves of the universal trees and of every task's trees that BoUTS grows.

    `fit_tasks` returns one fitted partitioner per task. In the universal trees the tasks have the
    same splits but for their thresholds. `fit` is the case of a single task: boosting that pays
    for new features.

    Parameters
    ----------
    n_universal : int
        Number of universal trees.
    n_task : int
        Number of trees of each task. Fewer trees of both kinds come out where nothing is
        left that is worth a split; P is the number of trees that there are, at least one.
    n_cells : int
        Largest number of cells of a tree. Trees grow level by level to the depth
        ceil(log2(n_cells)), the most useful splits of a level first.
    learning_rate, universal_price, task_price, min_samples_leaf, subsample
        See `BoUTSRegressor`.
    random_state : int, RandomState or None
        Seed of row sampling; of no effect with subsample=1.
    n_jobs : int or None
        Threads that find the cells of rows; None is 1, -1 all cores.

    Attributes
    ----------
    trees_ : FlatTrees
        The trees in portable form, universal ones first.
    n_universal_trees_ : int
        How many of them are universal.
    universal_features_ : ndarray
        Features that the universal stage chose, in rising order.
    task_features_ : ndarray
        Features that only the stage of the task chose.
    n_cells_ : ndarray (P,)
        Number of cells of each partition.
    split_gains_ : ndarray (d,)
        Impurity decrease of each feature's splits, as a share of the task's variance.
    n_features_in_ : int
        Number of features d.
    """

    n_universal_trees_: int
    universal_features_: NDArray[np.intp]
    task_features_: NDArray[np.intp]

    def __init__(
        self,
        n_universal: int = 50,
        n_task: int = 50,
        n_cells: int = 8,
        learning_rate: float = 0.1,
        universal_price: float = 0.02,
        task_price: float = 0.01,
        min_samples_leaf: int = 5,
        subsample: float = 1.0,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_universal = n_universal
        self.n_task = n_task
        self.n_cells = n_cells
        self.learning_rate = learning_rate
        self.universal_price = universal_price
        self.task_price = task_price
        self.min_samples_leaf = min_samples_leaf
        self.subsample = subsample
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit_tasks(
        self,
        tasks: Sequence[Any],
        target_type: TargetType = "regression",
        *,
        columns: Columns | None = None,
    ) -> list[BoUTSPartitioner]:
        """Grow the trees of all tasks.

        Parameters
        ----------
        tasks : sequence of objects with X (n_t, d), y (n_t,) and weights s (n_t,)
            Numbers, NaN where missing; codes of categories. Rows of weight zero count as absent.
        target_type : {"regression", "classification"}
            Class numbers 0..K-1 of every task for the latter.
        columns : Columns, optional
            Which columns hold categories; None is none of them.

        Returns
        -------
        list of BoUTSPartitioner
            Fitted copies, one per task; this partitioner itself is left as it is.
        """
        n_cells = check_count(self, "n_cells", self.n_cells, 2)
        plan = BoostingPlan.of(self, TreeShape((n_cells - 1).bit_length(), n_cells))
        if len(tasks) == 0:
            raise ValueError("there is no task: give at least one")
        rows = [check_fit_rows(task.X, task.y, task.s, target_type, columns) for task in tasks]
        for t, task_rows in enumerate(rows):
            if task_rows.X.shape[1] != rows[0].X.shape[1]:
                raise ValueError(
                    f"task {t} has {task_rows.X.shape[1]} features, but task 0 has "
                    f"{rows[0].X.shape[1]}: tasks must have the same features"
                )
        encodings = [Encoding(task_rows, categories=True, missing=False) for task_rows in rows]
        boosted = boost(
            [
                _boosting_rows(encoding.transform(task_rows))
                for encoding, task_rows in zip(encodings, rows, strict=True)
            ],
            plan,
        )
        fitted = []
        for task_rows, encoding, grown in zip(rows, encodings, boosted.tasks, strict=True):
            partitioner = clone(self)
            partitioner.number_cells(encoding.translate(grown.trees), grown.gains, task_rows.X)
            partitioner.n_universal_trees_ = grown.n_universal
            partitioner.universal_features_ = boosted.universal
            partitioner.task_features_ = grown.features
            fitted.append(partitioner)
        return fitted

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> BoUTSPartitioner:
        """Grow the trees of one task from rows `X` (n, d), targets `y` (n,) and weights (n,)."""
        if y is None:
            raise ValueError(f"{type(self).__name__} grows trees on targets: pass y")
        (fitted,) = self.fit_tasks(
            [SimpleNamespace(X=X, y=y, s=sample_weight)], target_type, columns=columns
        )
        self.__dict__.pop("_router", None)
        self.__dict__.update(fitted.__dict__)
        return self

    def with_partitions(self, chosen: NDArray[np.bool_]) -> BoUTSPartitioner:
        """Return the partitioner with some (P,) of the trees."""
        copied = super().with_partitions(chosen)
        assert isinstance(copied, BoUTSPartitioner)
        copied.n_universal_trees_ = int(chosen[: self.n_universal_trees_].sum())
        return copied


def _boosting_rows(rows: TrainingRows) -> BoostingRows:
    """Rows with classes numbered 0, 1, ... among those that the task has."""
    s = np.ones(len(rows.X)) if rows.weight is None else rows.weight
    y = rows.y
    if rows.n_classes > 0:
        y = np.unique(rows.y, return_inverse=True)[1].reshape(-1)
    return BoostingRows(rows.X, y, s, rows.n_classes)
