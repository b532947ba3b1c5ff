"""BoUTS: estimators that select features for all tasks and for each, and leaves as partitions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import is_whole
from jointleaf._data.columns import Columns
from jointleaf._data.rows import canonical_rows
from jointleaf._data.tasks import TaskTable
from jointleaf._trees.flat import FlatTrees, TrainingRows
from jointleaf._trees.routing import Router
from jointleaf.estimators._checks import restored_on_error
from jointleaf.estimators._docs import described
from jointleaf.estimators._params import Checked
from jointleaf.multitask._base import (
    TaskClassifier,
    TaskPredictor,
    TaskRegressor,
    encode_numbers,
    number_classes,
)
from jointleaf.multitask._bouts.boosting import BoUTSParameters, boost, check_boosting
from jointleaf.multitask._bouts.trees import TreeShape
from jointleaf.partitions._base import TargetType, TreeCells, check_fit_rows, checked_count
from jointleaf.partitions._growers.base import Encoding

_PARAMETERS = """Parameters
    ----------
    n_universal : int
        Number of universal trees.
    n_task : int
        Number of trees of each task. Fewer of both come out where no split is worth its price.
    max_depth : int
        Depth of all trees.
    learning_rate : float, in (0, 1]
        What the values of leaves are multiplied by.
    universal_price : float
        What a feature that is new to the universal stage must gain more than others at its first
        split, in every task: a fraction of the task's variance, so that 0.01 is one percent of it
        whatever the units and the number of rows.
    task_price : float
        The same for a feature that is new in the stage of a task.
    min_samples_leaf : int
        Least number of rows of a task in each leaf; lowered to a quarter of the task's
        rows where they are few. Equal rows are merged and count once.
    subsample : float, in (0, 1]
        Fraction of the rows that each tree is grown on, drawn anew for each.
    random_state : int, RandomState or None
        Seed of row sampling; of no effect with subsample=1.

    Attributes
    ----------
    task_names_ : list (T,)
        Keys of the dict, column names of the targets, or 0..T-1.
    task_form_ : str
        How the tasks were given: as pairs, as one or several targets, or as a long table.
    task_column_ : str, int or None
        The column of X that held the task of every row.
    universal_features_ : ndarray
        Numbers of the features that the universal stage chose, in rising order.
    task_features_ : dict from task name to ndarray
        Features that only the stage of the task chose.
    feature_importances_ : ndarray (d,)
        Mean over tasks of `task_importances_`.
    task_importances_ : dict from task name to ndarray (d,)
        Impurity decrease by each feature, as a fraction of the task's variance.
    trees_ : dict from task name to FlatTrees
        Universal trees, then those of the task. A row's leaf values add up to its raw prediction.
    leaf_weights_ : dict from task name to ndarray
        Share of the weight of a task's rows in every leaf of its trees.
    n_universal_trees_ : int
        Number of universal trees that were grown.
    columns_ : Columns
        What the columns of X hold.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : ndarray (d,)
        Column names, where data frames were given."""

_described = described(parameters=_PARAMETERS)


@dataclass(eq=False, repr=False)
class BaseBoUTS(BoUTSParameters, TaskPredictor, Checked, BaseEstimator):
    """What regression and classification share."""

    max_depth: int = 3

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, task: Any = None) -> Any:
        """Grow the trees of both stages.

        Parameters
        ----------
        X : list or dict of pairs (X_t, y_t), or table (n, d)
            Tasks with rows of their own and the same columns: data frames or arrays of
            numbers, NaN where missing. Or one table for all, with `y`.
        y : array-like (n,) or (n, T), optional
            Targets of one task, or of T tasks in the same rows.
        sample_weight : list or dict of arrays (n_t,), or array (n,), optional
            Weights of rows, in the form in which tasks are given. A weight of 2 is the same as
            giving a row twice; rows of weight zero count as absent.
        task : array-like (n,), str or int, optional
            The task of every row of a long table, as labels or as a column of X.

        Returns
        -------
        self
        """
        self._check_parameters()
        shape = TreeShape(self.max_depth, 2**self.max_depth)
        with restored_on_error(self):
            self._fit(TaskTable.read(X, y, sample_weight, task), shape)
        return self

    def _check_parameters(self) -> None:
        """Raise for values that are not possible, before any work is done."""
        checked_count(self, "max_depth", 1)
        check_boosting(self)

    def _fit(self, table: TaskTable, shape: TreeShape) -> None:
        columns, matrix, s, table = self._read_training(table)
        if columns.categorical.size:
            label = columns[int(columns.categorical[0])].label
            raise ValueError(
                f"column {label!r} holds categories, but numbers are needed: turn it into numbers "
                "or indicators of its categories"
            )
        targets = self._encode_tasks([y for _, y in table.rows_by_task()], table.names)
        rows = []
        for name, (index, _), (y, n_classes) in zip(
            table.names, table.rows_by_task(), targets, strict=True
        ):
            if not s[index].any():
                raise ValueError(f"task {name!r} has no rows of positive weight: leave it out")
            distinct = canonical_rows(matrix[index].astype(np.float64), y, s[index])
            rows.append(TrainingRows(distinct.X, distinct.y, distinct.s, n_classes, columns))
        tasks, self.universal_features_ = boost(rows, self, shape)
        self._keep_tasks(table, columns)
        self.n_universal_trees_ = max(grown.n_universal for grown in tasks)
        self.task_features_ = self._by_task([grown.features for grown in tasks])
        self.task_importances_ = self._by_task([grown.gains for grown in tasks])
        self.feature_importances_ = np.mean([grown.gains for grown in tasks], axis=0)
        self.trees_ = self._by_task([grown.trees for grown in tasks])
        self.leaf_weights_ = self._by_task(
            [
                _leaf_weights(grown.trees, task_rows.X, task_rows.weights)
                for grown, task_rows in zip(tasks, rows, strict=True)
            ]
        )

    def _by_task(self, values: list) -> dict:
        return dict(zip(self.task_names_, values, strict=True))

    @abstractmethod
    def _encode_tasks(self, targets: list[NDArray], names: list) -> list[tuple[NDArray, int]]:
        """Return numbers or class numbers of every task, and its number of classes, 0 for none."""

    # -- prediction ----------------------------------------------------------------------------

    def _task_number(self, name: Any) -> int:
        """Return the number of a task that is named or numbered."""
        check_is_fitted(self)
        if name not in self.task_names_ and is_whole(name) and 0 <= name < len(self.task_names_):
            return int(name)
        return super()._task_number(name)

    def _raw_of_task(self, rows: NDArray, t: int) -> NDArray[np.float64]:
        """Return the sums (n,) or (n, K) of the values of a row's leaves in the trees of a task."""
        raw = self.trees_[self.task_names_[t]].leaf_sums(self._codes(rows, t))
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def _codes(self, rows: NDArray, t: int) -> NDArray[np.int32]:
        return Router(self.trees_[self.task_names_[t]])(rows.astype(np.float64, copy=False))

    def _side_by_side(self, answers: list[NDArray]) -> NDArray:
        return np.stack(answers, axis=1)  # one dtype: labels next to text are text


def _leaf_weights(trees: FlatTrees, X: NDArray, s: NDArray) -> NDArray[np.float64]:
    """Return the fraction of the weight s (n,) of training rows X (n, d) in every leaf (L,)."""
    leaves = Router(trees)(X) + trees.leaf_starts[:-1]
    weights = np.repeat(s / s.sum(), leaves.shape[1])
    counts = np.bincount(leaves.reshape(-1), weights, minlength=int(trees.n_leaves.sum()))
    return counts.astype(np.float64)


@_described
class BoUTSRegressor(TaskRegressor, BaseBoUTS):
    """Boosting of trees that selects few features: universal ones and each task's own.

    The universal stage grows trees in which all tasks split on the same feature, each at its own
    threshold: the feature whose smallest gain over the tasks is largest. The second stage
    continues for every task alone. Features pay a price when they are used for the first time:
    in the first stage once for all tasks, in the second once for the task, universal
    features being free. Missing values go to the side where they help more.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf.multitask import BoUTSRegressor
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.standard_normal((300, 6)), rng.standard_normal((200, 6))
    >>> tasks = {"a": (A, A[:, 0] + A[:, 1]), "b": (B, B[:, 0] ** 2 - B[:, 2])}
    >>> model = BoUTSRegressor().fit(tasks)
    >>> model.universal_features_.tolist()
    [0]
    >>> {name: features.tolist() for name, features in model.task_features_.items()}
    {'a': [1], 'b': [2]}
    """

    def _encode_tasks(self, targets: list[NDArray], names: list) -> list[tuple[NDArray, int]]:
        return [(y, 0) for y in encode_numbers(targets, names)]


@_described
class BoUTSClassifier(TaskClassifier, BaseBoUTS):
    """Like `BoUTSRegressor` for classes, with the logistic or multinomial loss.

    Gains are those of the second-order expansion of the loss, in units of its value at the start:
    for two classes with shares p and 1 - p, sum over rows of (y - p)^2 / (p (1 - p)). For
    more than two classes every leaf has one value per class. Tasks may have different classes.

    {parameters}
    classes_ : ndarray, or list (T,) of ndarray
        Classes of the task, or of every task.
    task_classes_ : list (T,) of ndarray
        The same, a list also for one task.
    """

    def _encode_tasks(self, targets: list[NDArray], names: list) -> list[tuple[NDArray, int]]:
        self.task_classes_, numbers = number_classes(targets)
        sizes = [len(classes) for classes in self.task_classes_]
        return list(zip(numbers, sizes, strict=True))


@dataclass(eq=False, repr=False)
class BoUTSPartitioner(BoUTSParameters, TreeCells):
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
        Impurity decrease of each feature's splits, as a fraction of the task's variance.
    n_features_in_ : int
        Number of features d.
    """

    _needs_target = True
    n_cells: int = 8
    n_jobs: int | None = None
    n_universal_trees_: int = field(init=False)

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
        if len(tasks) == 0:
            raise ValueError("there is no task: give at least one")
        rows = [check_fit_rows(task.X, task.y, task.s, target_type, columns) for task in tasks]
        for t, task_rows in enumerate(rows):
            if task_rows.X.shape[1] != rows[0].X.shape[1]:
                raise ValueError(
                    f"task {t} has {task_rows.X.shape[1]} features, but task 0 has "
                    f"{rows[0].X.shape[1]}: tasks must have the same features"
                )
        return self._grow_tasks(rows)

    def _grow_tasks(self, rows: Sequence[TrainingRows]) -> list[BoUTSPartitioner]:
        n_cells = checked_count(self, "n_cells", 2)
        check_boosting(self)
        encodings = [Encoding(task_rows, categories=True, missing=False) for task_rows in rows]
        encoded = []
        for encoding, task_rows in zip(encodings, rows, strict=True):
            numbers = encoding.transform(task_rows)
            y = numbers.class_numbers if numbers.n_classes else numbers.y
            encoded.append(numbers._replace(y=y))
        shape = TreeShape((n_cells - 1).bit_length(), n_cells)
        boosted, universal = boost(encoded, self, shape)
        fitted = []
        for task_rows, encoding, grown in zip(rows, encodings, boosted, strict=True):
            partitioner = clone(self)
            partitioner.number_cells(encoding.translate(grown.trees), grown.gains, task_rows.X)
            partitioner.n_universal_trees_ = grown.n_universal
            partitioner.universal_features_ = universal
            partitioner.task_features_ = grown.features
            fitted.append(partitioner)
        return fitted

    def _fit_rows(self, rows: TrainingRows) -> None:
        (fitted,) = self._grow_tasks([rows])
        self.__dict__.update(fitted.__dict__)

    def with_partitions(self, chosen: NDArray[np.bool_]) -> BoUTSPartitioner:
        """Return the partitioner with some (P,) of the trees."""
        copied = super().with_partitions(chosen)
        assert isinstance(copied, BoUTSPartitioner)
        copied.n_universal_trees_ = int(chosen[: self.n_universal_trees_].sum())
        return copied
