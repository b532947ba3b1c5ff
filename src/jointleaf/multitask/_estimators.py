"""Estimators of several tasks that are fitted together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Logistic, Loss, SquaredError
from jointleaf._core.penalties import Term
from jointleaf._core.problem import as_numbers
from jointleaf._data.columns import column_names
from jointleaf._data.rows import read_rows
from jointleaf._data.tasks import LongTable, drop_column, joined_values, read_long_table
from jointleaf._model.contributions import warn_of_no_features
from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.estimators._base import BaseJOPLEn
from jointleaf.estimators._checks import check_parameters
from jointleaf.estimators._params import JOPLEnParameters, restored_on_error
from jointleaf.inspection._methods import ExplainableTasks
from jointleaf.multitask._docs import describe_tasks
from jointleaf.multitask._engine import Outcome, fit_outcome
from jointleaf.multitask._selection import selection_report

__all__ = ["BaseMultiTaskJOPLEn", "MultiTaskJOPLEnClassifier", "MultiTaskJOPLEnRegressor"]


class BaseMultiTaskJOPLEn(ExplainableTasks, JOPLEnParameters):
    """What the estimators of several tasks share."""

    #: the estimator of a single task, which fits every task of penalty="auto"
    _single_task: type[BaseJOPLEn]

    def __init__(
        self,
        partitioner: Any = None,
        *,
        penalty: str | Term = "auto",
        task_weights: Any = "auto",
        cells: CellKind = "linear",
        root_cell: bool = True,
        clip: bool = True,
        categorical_features: Any = "from_dtype",
        linear_features: Any = None,
        add_indicator: bool = False,
        solver: str = "auto",
        tol: float = 1e-5,
        max_iter: int = 1000,
        cv: Any = None,
        one_se: bool | str = "auto",
        n_jobs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            partitioner,
            penalty=penalty,
            cells=cells,
            root_cell=root_cell,
            clip=clip,
            categorical_features=categorical_features,
            linear_features=linear_features,
            add_indicator=add_indicator,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            cv=cv,
            one_se=one_se,
            n_jobs=n_jobs,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.task_weights = task_weights

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # -- fitting -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        task: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        task_val: Any = None,
    ) -> BaseMultiTaskJOPLEn:
        """Grow partitions for every task and fit the models of all their cells jointly.

        Parameters
        ----------
        X : array-like or data frame (n, d), or list or dict of pairs (X_t, y_t)
            Rows; with pairs every task has rows of its own, the same features and, in a dict, a
            name.
        y : array-like (n,) or (n, T), optional
            Targets; every column is a task. Not given with pairs.
        sample_weight : array-like (n,), or list or dict of these with pairs, optional
        task : array-like (n,), str or int, optional
            The task of every row of a long table, as labels or as a column of X.
        X_val, y_val, task_val
            Rows, in the form of X, y and task, on which strengths that are "auto" are chosen,
            instead of cross-validation.

        Returns
        -------
        self
        """
        with restored_on_error(self):
            check_parameters(self)
            table = read_long_table(X, y, sample_weight, task)
            valid = self._read_validation(X_val, y_val, task_val, table)
            self._keep(fit_outcome(self, table, valid))
        return self

    def _read_validation(
        self, X_val: Any, y_val: Any, task_val: Any, table: LongTable
    ) -> LongTable | None:
        """Validation rows, whose tasks are those of the training rows."""
        if X_val is None:
            if y_val is None and task_val is None:
                return None
            raise ValueError("X_val and y_val belong together: give both or none")
        if not self._chooses:
            raise ValueError(
                f"X_val and y_val choose the penalty, but penalty={self.penalty!r} has nothing to "
                "choose: leave them out, or give penalty='auto' or strengths that are 'auto'"
            )
        task_val = table.column if task_val is None else task_val
        try:
            return read_long_table(X_val, y_val, None, task_val, table.names)
        except ValueError as error:
            raise ValueError(f"X_val, y_val: {error}") from None

    def _keep(self, outcome: Outcome) -> None:
        """Put the results on the estimator."""
        self.task_names_ = outcome.names
        self.task_weights_ = outcome.task_weights
        self.penalty_ = outcome.penalty
        self.solution_ = outcome.solution
        self.n_iter_ = outcome.n_iter
        self.cv_results_ = outcome.cv_results
        self.partitioners_ = [model.partitioner for model in outcome.models]
        self.columns_ = outcome.columns
        self.linear_feature_names_ = np.array(outcome.plan.names, dtype=object)
        self.linear_feature_columns_ = outcome.plan.sources
        self.slope_norms_ = outcome.slope_norms
        self.common_norms_ = outcome.common_norms
        self.common_features_ = np.flatnonzero(outcome.common_norms.any(axis=1))
        is_common = np.any(outcome.common_norms > 0, axis=1)
        alone = (outcome.specific_norms > 0) & ~is_common[:, None]
        self.task_features_ = {
            name: np.flatnonzero(alone[:, t]) for t, name in enumerate(outcome.names)
        }
        self.selected_features_ = np.flatnonzero(self.slope_norms_.any(axis=1))
        is_empty = not self.selected_features_.size and self.cells == "linear"
        if isinstance(self.penalty, Term) and self._chooses and is_empty:
            warn_of_no_features(self.penalty)
        self.feature_importances_ = outcome.importances
        self._models = outcome.models
        self._form, self._task_column = outcome.form, outcome.column

    # -- what was selected ---------------------------------------------------------------------

    def selection_report(self) -> Any:
        """Which features matter for all tasks, for some, and for none, as a pandas data frame.

        Returns
        -------
        DataFrame (d rows, named like the features)
            ``kind`` is "common", "task" or "none"; ``n_tasks`` counts the tasks in which the
            feature has slopes; one column per task holds the Euclidean norm of the feature's
            standardised slopes there.
        """
        check_is_fitted(self)
        return selection_report(self)

    # -- predicting ----------------------------------------------------------------------------

    def _per_task(self, X: Any, task: Any, answer: Callable[[int, NDArray], NDArray]) -> Any:
        """Answers for a task, for every row's own task, or a list of those for every task.

        `answer` gives those of one task, by number, for rows of raw predictions.
        """
        check_is_fitted(self)
        if isinstance(X, Mapping):
            raise TypeError("X is a dict: give the rows of one table, and task, whose model to use")
        X, task = self._without_column(X, task)
        rows = read_rows(self, X)
        jobs = effective_n_jobs(self.n_jobs)
        if task is None:
            models = enumerate(self._models)
            answers = [answer(t, model.predict(rows, jobs, self.device)) for t, model in models]
            return answers[0] if self._form == "single" else answers
        if np.ndim(task) == 0:
            t = self._number(task)
            return answer(t, self._models[t].predict(rows, jobs, self.device))
        labels = np.asarray(task)
        if labels.shape != (len(rows),):
            raise ValueError(
                f"task has shape {labels.shape}: give one task, or one for each of the "
                f"{len(rows)} rows"
            )
        numbers = np.array([self._number(label) for label in labels.tolist()])
        order, parts = [], []
        for t in np.unique(numbers):
            own = np.flatnonzero(numbers == t)
            order.append(own)
            parts.append(answer(int(t), self._models[t].predict(rows[own], jobs, self.device)))
        return joined_values(parts)[np.argsort(np.concatenate(order))]

    def _without_column(self, X: Any, task: Any) -> tuple[Any, Any]:
        """X without the column of tasks, where it has one, and the tasks that are asked for."""
        column = self._task_column
        if column is None:
            return X, task
        names = column_names(X)
        width = np.shape(X)[1] if np.ndim(X) == 2 else 0
        has_column = width > self.n_features_in_ if names is None else column in names
        is_asked = task is None or (np.ndim(task) == 0 and task == column)
        if is_asked and not has_column and task in self.task_names_:
            is_asked = False  # a task with the name of the column
        if is_asked or has_column:
            X, labels = drop_column(X, column)
            return X, labels if is_asked else task
        return X, task

    def _number(self, name: Any) -> int:
        if name not in self.task_names_:
            raise ValueError(f"task {name!r} is not known: the tasks are {self.task_names_}")
        return self.task_names_.index(name)

    def apply(self, X: Any, task: Any = None) -> Any:
        """Codes (n, P) of a task's partitions, or a list of them, one for every task."""
        check_is_fitted(self)
        has_task = task is not None
        rows = read_rows(self, self._without_column(X, task if has_task else 0)[0])
        if has_task:
            return self.partitioners_[self._number(task)].apply(rows)
        codes = [partitioner.apply(rows) for partitioner in self.partitioners_]
        return codes[0] if self._form == "single" else codes

    def _mean_score(self, X: Any, y: Any, sample_weight: Any, task: Any, metric: Any) -> float:
        """Mean over the tasks of a metric of their own rows."""
        check_is_fitted(self)
        if task is not None and np.ndim(task) == 0 and task != self._task_column:
            self._number(task)
            X, task = self._without_column(X, task)
            task = self._labels(np.full(np.shape(X)[0], self.task_names_.index(task)))
        table = read_long_table(X, y, sample_weight, task, self.task_names_)
        assert table.numbers is not None
        predicted = np.asarray(self.predict(table.X, task=self._labels(table.numbers)))
        weights = np.ones(len(table.y)) if table.s is None else table.s
        scores = []
        for t in np.unique(table.numbers):
            own = table.numbers == t
            truth, guess = _own_type(table.y[own]), _own_type(predicted[own])
            scores.append(metric(truth, guess, sample_weight=weights[own]))
        return float(np.mean(scores))

    def _labels(self, numbers: NDArray) -> NDArray:
        labels = np.empty(len(numbers), dtype=object)
        labels[:] = [self.task_names_[t] for t in numbers]
        return labels

    def predict(self, X: Any, task: Any = None) -> Any:
        """Predict; see the subclasses."""
        raise NotImplementedError

    # -- targets -------------------------------------------------------------------------------

    def _encode_tasks(self, targets: list[NDArray], names: list) -> tuple[list[NDArray], Loss]:
        """Targets of every task as numbers for the loss, and the loss."""
        raise NotImplementedError

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        """Targets of validation rows, encoded as the training targets were."""
        raise NotImplementedError


@describe_tasks
class MultiTaskJOPLEnRegressor(RegressorMixin, BaseMultiTaskJOPLEn):
    """Piecewise linear ensembles for several regression tasks, all cells fitted jointly.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor
    >>> rng = np.random.default_rng(0)
    >>> tasks = {}
    >>> for own, name in ((1, "a"), (2, "b"), (3, "c")):
    ...     X = rng.standard_normal((150, 8))
    ...     tasks[name] = X, 2 * np.sin(X[:, 0]) + X[:, own]
    >>> penalty = DirtyLasso(common=0.2, task=0.12, bias_strength=1.0)
    >>> model = MultiTaskJOPLEnRegressor("voronoi", penalty=penalty, random_state=0).fit(tasks)
    >>> print(model.common_features_, model.task_features_)
    [0] {'a': array([1]), 'b': array([2]), 'c': array([3])}
    >>> model.predict(X, task="c").shape, model.predict(X).shape
    ((150,), (150, 3))
    """

    _target_type = "regression"
    _single_task = JOPLEnRegressor

    def _encode_tasks(self, targets: list[NDArray], names: list) -> tuple[list[NDArray], Loss]:
        encoded = []
        for name, y in zip(names, targets, strict=True):
            try:
                values = np.asarray(y, float)
            except (TypeError, ValueError):
                raise ValueError(f"task {name!r}: y must hold numbers") from None
            if not np.isfinite(values).all():
                raise ValueError(f"task {name!r}: y contains NaN or infinity: remove these rows")
            encoded.append(values)
        return encoded, SquaredError()

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        encoded = []
        for name, y in zip(names, targets, strict=True):
            values = as_numbers(f"y_val of task {name!r}", y)
            if not np.isfinite(values).all():
                raise ValueError(
                    f"task {name!r}: y_val contains NaN or infinity: remove these rows"
                )
            encoded.append(values)
        return encoded

    def predict(self, X: Any, task: Any = None) -> NDArray:
        """Predict targets of rows X (n, d).

        Parameters
        ----------
        X : array-like or data frame (n, d)
        task : name of a task, or labels (n,), optional
            Whose model is used, for all rows or for each.

        Returns
        -------
        array (n,)
            Of the given task, or of every row's own. Without `task`: (n, T), a column per task,
            unless the model was fitted with a single y (n,) or X has the column of tasks.
        """
        found = self._per_task(X, task, lambda t, raw: raw)
        return joined_values(found, axis=1) if isinstance(found, list) else found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, task: Any = None) -> float:
        """R^2, the mean over tasks."""
        check_is_fitted(self)
        if y is None or task is not None or self._task_column is not None:
            at = self._task_column if task is None else task
            return self._mean_score(X, y, sample_weight, at, r2_score)
        return float(super().score(X, y, sample_weight))


@describe_tasks
class MultiTaskJOPLEnClassifier(ClassifierMixin, BaseMultiTaskJOPLEn):
    """Piecewise linear ensembles for several tasks with two classes each, fitted jointly.

    {parameters}

    {attributes}
    classes_ : list of arrays (2,), or one array where y was (n,)
        The class labels of every task.
    """

    _target_type = "classification"
    _single_task = JOPLEnClassifier

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.target_tags.single_output = True
        return tags

    def _encode_tasks(self, targets: list[NDArray], names: list) -> tuple[list[NDArray], Loss]:
        encoded, self._task_classes = [], []
        for name, y in zip(names, targets, strict=True):
            labels = _own_type(y)
            check_classification_targets(labels)
            classes, numbers = np.unique(labels, return_inverse=True)
            if len(classes) < 2:
                raise ValueError(
                    f"task {name!r} has one class only ({classes[0]}): at least two are needed, "
                    "leave it out"
                )
            if len(classes) > 2:
                raise ValueError(
                    "Only binary classification is supported. The type of the target is "
                    f"multiclass: task {name!r} has {len(classes)} classes. Use JOPLEnClassifier."
                )
            self._task_classes.append(classes)
            encoded.append(2.0 * numbers - 1.0)
        return encoded, Logistic()

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        encoded = []
        own = map(_own_type, targets)
        for name, y, classes in zip(names, own, self._task_classes, strict=True):
            unknown = [label for label in np.unique(y).tolist() if label not in classes.tolist()]
            if unknown:
                raise ValueError(
                    f"task {name!r}: y_val holds class {unknown[0]!r}, but the classes in y are "
                    f"{classes.tolist()}"
                )
            encoded.append(2.0 * np.searchsorted(classes, y) - 1.0)
        return encoded

    @property
    def classes_(self) -> NDArray | list[NDArray]:
        """The class labels of every task, or of the only one."""
        check_is_fitted(self, "task_names_")
        return self._task_classes[0] if self._form == "single" else self._task_classes

    def predict_proba(self, X: Any, task: Any = None) -> NDArray | list[NDArray]:
        """Class probabilities (n, 2) of a task; without `task` a list of them, one per task."""
        return self._per_task(X, task, lambda t, raw: Logistic().link(raw))

    def predict(self, X: Any, task: Any = None) -> NDArray:
        """Predict class labels: (n,) of a task, or (n, T), a column per task; see `task`.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        task : name of a task, or labels (n,), optional
            Whose model is used, for all rows or for each.
        """
        check_is_fitted(self)
        found = self._per_task(X, task, lambda t, raw: self._task_classes[t][(raw > 0).astype(int)])
        return joined_values(found, axis=1) if isinstance(found, list) else found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, task: Any = None) -> float:
        """Accuracy, the mean over tasks."""
        check_is_fitted(self)
        if y is None or task is not None or self._task_column is not None:
            at = self._task_column if task is None else task
            return self._mean_score(X, y, sample_weight, at, accuracy_score)
        if np.ndim(y) == 2:
            labels, predicted = np.asarray(y), self.predict(X)
            return float(np.average((labels == predicted).mean(axis=1), weights=sample_weight))
        return float(super().score(X, y, sample_weight))


def _own_type(labels: NDArray) -> NDArray:
    """Labels of one task in their own type, where tasks with text and numbers were mixed."""
    return np.array(labels.tolist()) if labels.dtype == object else labels
