"""BoUTS as estimators: boosting that selects features for all tasks and for each."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.losses import Logistic, Multinomial
from jointleaf._data.columns import column_names
from jointleaf._data.rows import canonical_rows
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import Router
from jointleaf.inspection._methods import ExplainableTasks
from jointleaf.multitask._bouts.boosting import BoostedTask, BoostingPlan, BoostingRows, boost
from jointleaf.multitask._bouts.checks import check_settings
from jointleaf.multitask._bouts.reading import Task, read_matrix, read_tasks
from jointleaf.multitask._bouts.trees import TreeShape
from jointleaf.partitions._checks import as_seed, check_count

__all__ = ["BoUTSClassifier", "BoUTSRegressor"]

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
        split, in every task: a share of the task's variance, so that 0.01 is one percent of it
        whatever the units and the number of rows.
    task_price : float
        The same for a feature that is new in a task's own stage.
    min_samples_leaf : int
        Least number of rows of a task in each leaf; lowered to a quarter of the task's
        rows where they are few. Equal rows are merged and count once.
    subsample : float, in (0, 1]
        Share of the rows that each tree is grown on, drawn anew for each.
    random_state : int, RandomState or None
        Seed of row sampling; of no effect with subsample=1.

    Attributes
    ----------
    task_names_ : list (T,)
        Keys of the dict, column names of the targets, or 0..T-1.
    universal_features_ : ndarray
        Numbers of the features that the universal stage chose, in rising order.
    task_features_ : dict from task name to ndarray
        Features that only the task's own stage chose.
    feature_importances_ : dict from task name to ndarray (d,)
        Impurity decrease by each feature, as a share of the task's variance.
    trees_ : dict from task name to FlatTrees
        Universal trees, then the task's own. A row's leaf values add up to its raw prediction.
    n_universal_trees_ : int
        Number of universal trees that were grown.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : ndarray (d,)
        Column names, where data frames were given."""

T = TypeVar("T")


def _described(cls: type[T]) -> type[T]:
    """Fill the shared sections into the class docstring."""
    cls.__doc__ = (cls.__doc__ or "").replace("{parameters}", _PARAMETERS)
    return cls


class _BoUTS(ExplainableTasks, BaseEstimator):
    """What regression and classification share."""

    def __init__(
        self,
        n_universal: int = 50,
        n_task: int = 50,
        max_depth: int = 3,
        learning_rate: float = 0.1,
        universal_price: float = 0.02,
        task_price: float = 0.01,
        min_samples_leaf: int = 5,
        subsample: float = 1.0,
        random_state: Any = None,
    ) -> None:
        self.n_universal = n_universal
        self.n_task = n_task
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.universal_price = universal_price
        self.task_price = task_price
        self.min_samples_leaf = min_samples_leaf
        self.subsample = subsample
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
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

        Returns
        -------
        self
        """
        plan = self._plan()
        given = read_tasks(X, y, sample_weight)
        rows = [self._rows(task) for task in given.tasks]
        boosted = boost(rows, plan)
        self.task_names_ = [task.name for task in given.tasks]
        self._take_answers(given.tasks)
        self.universal_features_ = boosted.universal
        self.n_features_in_ = given.tasks[0].X.shape[1]
        self.n_universal_trees_ = max(task.n_universal for task in boosted.tasks)
        self.task_features_ = self._by_task(boosted.tasks, "features")
        self.feature_importances_ = self._by_task(boosted.tasks, "gains")
        self.trees_ = self._by_task(boosted.tasks, "trees")
        self._leaf_weights = {
            name: _leaf_weights(self.trees_[name], own.X, own.s)
            for name, own in zip(self.task_names_, rows, strict=True)
        }
        self._is_single = given.is_single
        self.__dict__.pop("feature_names_in_", None)
        if given.feature_names is not None:
            self.feature_names_in_ = given.feature_names
        return self

    def _plan(self) -> BoostingPlan:
        check_settings(self)
        depth = check_count(self, "max_depth", self.max_depth, 1)
        return BoostingPlan(
            n_universal=self.n_universal,
            n_task=self.n_task,
            shape=TreeShape(depth, 2**depth),
            learning_rate=self.learning_rate,
            universal_price=self.universal_price,
            task_price=self.task_price,
            min_samples_leaf=self.min_samples_leaf,
            subsample=self.subsample,
            seed=as_seed(self.random_state),
        )

    def _by_task(self, tasks: list[BoostedTask], name: str) -> dict:
        return {key: getattr(task, name) for key, task in zip(self.task_names_, tasks, strict=True)}

    @abstractmethod
    def _rows(self, task: Task) -> BoostingRows:
        """Check the targets of a task and give its rows."""

    @abstractmethod
    def _take_answers(self, tasks: list[Task]) -> None:
        """Keep what answers are made of."""

    # -- prediction ----------------------------------------------------------------------------

    def _matrix(self, X: Any) -> NDArray[np.float64]:
        """Give the rows to predict; names and number of columns must be those of training."""
        check_is_fitted(self)
        names, known = column_names(X), getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names != list(known):
            raise ValueError(
                f"X has the columns {names}, but {type(self).__name__} was fitted on "
                f"{list(known)}; give the same columns in the same order."
            )
        matrix = read_matrix(X, "X")
        if matrix.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return matrix

    def _name(self, task: Any) -> Any:
        """Give the name of a task that is named or numbered."""
        check_is_fitted(self)
        try:
            if task in self.task_names_:
                return self.task_names_[self.task_names_.index(task)]
        except ValueError:  # an array
            pass
        is_number = isinstance(task, int | np.integer) and not isinstance(task, bool)
        if is_number and 0 <= task < len(self.task_names_):
            return self.task_names_[int(task)]
        raise ValueError(
            f"task={task!r} is unknown; give one of {self.task_names_}, a number below "
            f"{len(self.task_names_)}, or None for all."
        )

    def _raw(self, X: NDArray[np.float64], name: Any) -> NDArray[np.float64]:
        """Raw predictions (n, K) of a task: the sums of the values of all leaves of a row."""
        trees = self.trees_[name]
        assert trees.leaf_values is not None
        leaves = Router(trees)(X) + trees.leaf_starts[:-1]
        raw = np.zeros((len(X), trees.leaf_values.shape[1]))
        for leaf in leaves.T:
            raw += trees.leaf_values[leaf]
        return raw

    def apply(self, X: Any, task: Any) -> NDArray[np.int32]:
        """Give the leaves (n, P) of rows `X` (n, d) in the P trees of a task."""
        return Router(self.trees_[self._name(task)])(self._matrix(X))

    def predict(self, X: Any, task: Any = None) -> NDArray:
        """Predict.

        Parameters
        ----------
        X : table (n, d)
        task : name or number of a task, optional

        Returns
        -------
        array (n,) or (n, T)
            Of one task, or of all; (n,) also where the model was fitted on one X and y (n,).
        """
        if task is not None:
            name = self._name(task)
            return self._answers(self._matrix(X), name)
        X = self._matrix(X)
        if self._is_single:
            return self._answers(X, self.task_names_[0])
        return np.stack([self._answers(X, name) for name in self.task_names_], axis=1)

    @abstractmethod
    def _answers(self, X: NDArray[np.float64], name: Any) -> NDArray:
        """Predictions (n,) of a task."""


def _leaf_weights(trees: FlatTrees, X: NDArray, s: NDArray) -> NDArray[np.float64]:
    """Share of the weight s (n,) of training rows X (n, d) in every leaf (L,)."""
    leaves = Router(trees)(X) + trees.leaf_starts[:-1]
    weights = np.repeat(s / s.sum(), leaves.shape[1])
    counts = np.bincount(leaves.reshape(-1), weights, minlength=int(trees.n_leaves.sum()))
    return counts.astype(np.float64)


@_described
class BoUTSRegressor(RegressorMixin, _BoUTS):
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
    >>> from jointleaf.multitask._bouts import BoUTSRegressor
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.standard_normal((300, 6)), rng.standard_normal((200, 6))
    >>> tasks = {"a": (A, A[:, 0] + A[:, 1]), "b": (B, B[:, 0] ** 2 - B[:, 2])}
    >>> model = BoUTSRegressor().fit(tasks)
    >>> model.universal_features_.tolist()
    [0]
    >>> {name: own.tolist() for name, own in model.task_features_.items()}
    {'a': [1], 'b': [2]}
    """

    def _rows(self, task: Task) -> BoostingRows:
        try:
            y = np.asarray(task.y, dtype=np.float64)
        except (TypeError, ValueError) as cause:
            raise ValueError(f"task {task.name!r}: y must hold numbers: {cause}") from cause
        strange = np.flatnonzero(~np.isfinite(y))
        if strange.size:
            row = int(strange[0])
            raise ValueError(
                f"task {task.name!r}: y holds {y[row]} in row {row}; drop rows without a target, "
                "and give tasks as pairs (X_t, y_t) if these rows differ between tasks."
            )
        rows = canonical_rows(task.X, y, task.s)
        return BoostingRows(rows.X, rows.y, rows.s)

    def _take_answers(self, tasks: list[Task]) -> None:
        pass  # raw predictions are the answers

    def _answers(self, X: NDArray[np.float64], name: Any) -> NDArray[np.float64]:
        return self._raw(X, name)[:, 0]


@_described
class BoUTSClassifier(ClassifierMixin, _BoUTS):
    """Like `BoUTSRegressor` for classes, with the logistic or multinomial loss.

    Gains are those of the second-order expansion of the loss, in units of its value at the start:
    for two classes with shares p and 1 - p, sum over rows of (y - p)^2 / (p (1 - p)). For
    more than two classes every leaf has one value per class. Tasks may have different classes.

    {parameters}
    classes_ : ndarray, or list (T,) of ndarray
        Classes of the task, or of every task.
    """

    def _rows(self, task: Task) -> BoostingRows:
        if task.y.dtype.kind == "f" and not np.isfinite(task.y).all():
            raise ValueError(
                f"task {task.name!r}: y holds NaN or infinity; drop rows without a class."
            )
        check_classification_targets(task.y)
        classes, y = np.unique(task.y, return_inverse=True)
        rows = canonical_rows(task.X, y.reshape(-1), task.s)
        return BoostingRows(rows.X, rows.y, rows.s, len(classes))

    def _take_answers(self, tasks: list[Task]) -> None:
        self._classes = {task.name: np.unique(task.y) for task in tasks}

    @property
    def classes_(self) -> Any:
        """Classes of the one task, or list of those of all tasks."""
        check_is_fitted(self)
        classes = list(self._classes.values())
        return classes[0] if self._is_single else classes

    def predict_proba(self, X: Any, task: Any = None) -> Any:
        """Give probabilities of classes.

        Parameters
        ----------
        X : table (n, d)
        task : name or number of a task, optional

        Returns
        -------
        array (n, K_t), or list (T,) of such arrays
            Of one task, or of all as scikit-learn's classifiers of several outputs give them.
        """
        if task is not None:
            name = self._name(task)
            return self._shares(self._matrix(X), name)
        X = self._matrix(X)
        shares = [self._shares(X, name) for name in self.task_names_]
        return shares[0] if self._is_single else shares

    def _shares(self, X: NDArray[np.float64], name: Any) -> NDArray[np.float64]:
        n_classes, raw = len(self._classes[name]), self._raw(X, name)
        if n_classes == 1:
            return np.ones((len(X), 1))
        return Logistic().link(raw[:, 0]) if n_classes == 2 else Multinomial(n_classes).link(raw)

    def _answers(self, X: NDArray[np.float64], name: Any) -> NDArray:
        return self._classes[name][self._shares(X, name).argmax(axis=1)]
