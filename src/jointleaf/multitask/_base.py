"""What all estimators of several tasks share: which rows belong to which task, and predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import as_dense
from jointleaf._core.losses import Logistic, Multinomial
from jointleaf._core.problem import check_weights
from jointleaf._data.columns import Columns, column_names
from jointleaf._data.rows import read_rows, read_training_rows
from jointleaf._data.tasks import Form, TaskTable, as_one_type, drop_column, join_values
from jointleaf.inspection._methods import ExplainableTasks, task_numbers
from jointleaf.partitions._base import TargetType

_ANY_TASK = object()  # asks for rows without their tasks


class TaskPredictor(ExplainableTasks):
    """Predictions of the tasks of a fitted estimator."""

    task_names_: list
    task_form_: Form  # how the tasks were given
    task_column_: Any  # the column of X that held the task of every row, or None
    n_features_in_: int
    _target_type: TargetType

    @abstractmethod
    def _raw_of_task(self, rows: NDArray, t: int) -> NDArray:
        """Return raw predictions (n,) or (n, K) of task number t for encoded rows (n, d)."""

    @abstractmethod
    def _codes(self, rows: NDArray, t: int) -> NDArray[np.int32]:
        """Return the codes (n, P) of task number t for encoded rows (n, d)."""

    # -- reading -------------------------------------------------------------------------------

    def _read_training(
        self,
        table: TaskTable,
        categorical: Any = "from_dtype",
        known: Mapping[int, NDArray | None] | None = None,
    ) -> tuple[Columns, NDArray, NDArray, TaskTable]:
        """Return columns, encoded rows (n, d), weights (n,), and the table with checked targets.

        `categorical` are columns declared as categories, `known` those of a partitioner fitted
        before.
        """
        if self._target_type == "regression" and table.y.dtype.kind in "OUS":
            # Text among numbers: the error names the task.
            encode_numbers([y for _, y in table.rows_by_task()], table.names)
        columns, matrix, targets = read_training_rows(
            self,
            table.X,
            table.y,
            categorical=categorical,
            known=known,
            sample_weight=table.s,
            y_numeric=self._target_type == "regression",
            multi_output=True,
        )
        return columns, matrix, check_weights(table.s, len(matrix)), replace(table, y=targets)

    def _keep_tasks(self, table: TaskTable, columns: Columns) -> None:
        """Store what predictions need to know of the tasks."""
        self.task_names_, self.columns_ = table.names, columns
        self.task_form_, self.task_column_ = table.form, table.column

    def _read_task_rows(self, X: Any, task: Any = None) -> tuple[NDArray, Any]:
        """Return encoded rows (n, d) without the column of tasks, and the tasks asked for."""
        check_is_fitted(self)
        X = as_dense(X)
        if isinstance(X, Mapping):
            raise TypeError("X is a dict: give the rows of one table, and task, whose model to use")
        X, task = self._without_column(X, task)
        return read_rows(self, X), task

    def _without_column(self, X: Any, task: Any) -> tuple[Any, Any]:
        column = self.task_column_
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

    def _task_number(self, name: Any) -> int:
        """Return the number of a task."""
        check_is_fitted(self)
        if name not in self.task_names_:
            raise ValueError(f"task {name!r} is not known: the tasks are {self.task_names_}")
        return self.task_names_.index(name)

    # -- predicting ----------------------------------------------------------------------------

    def _per_task(self, X: Any, task: Any, answer: Callable[[int, NDArray], NDArray]) -> Any:
        """Return answers of one task, or of every row's task, or a list with those of all tasks.

        `answer(t, rows)` makes those of task number t for encoded rows.
        """
        rows, task = self._read_task_rows(X, task)
        if task is None:
            n_tasks = 1 if self.task_form_ == "single" else len(self.task_names_)
            answers = [answer(t, rows) for t in range(n_tasks)]
            return answers[0] if self.task_form_ == "single" else answers
        if np.ndim(task) == 0:
            return answer(self._task_number(task), rows)
        numbers = task_numbers(self, np.asarray(task), len(rows))
        order = np.argsort(numbers, kind="stable")
        parts = [answer(int(t), rows[numbers == t]) for t in np.unique(numbers)]
        return join_values(parts)[np.argsort(order)]

    def predict(self, X: Any, task: Any = None) -> NDArray:
        """Predict the targets of rows.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        task : name of a task, or labels (n,), optional
            Whose model is used, for all rows or for each.

        Returns
        -------
        array (n,)
            Of the given task, or of every row's task. Without `task`: (n, T), a column per task,
            unless the model was fitted with a single y (n,) or X has the column of tasks.
        """
        answers = self._per_task(X, task, self._predictions)
        return self._side_by_side(answers) if isinstance(answers, list) else answers

    def _predictions(self, t: int, rows: NDArray) -> NDArray:
        """Return predictions (n,) of task number t for encoded rows (n, d)."""
        return self._answer(t, self._raw_of_task(rows, t))

    def _side_by_side(self, answers: list[NDArray]) -> NDArray:
        return join_values(answers, axis=1)

    @abstractmethod
    def _answer(self, t: int, raw: NDArray) -> NDArray:
        """Return predictions (n,) of task number t from raw predictions."""

    def apply(self, X: Any, task: Any = None) -> Any:
        """Return the codes (n, P) of a task's partitions, or a list of them, one for every task."""
        if task is None:
            rows, _ = self._read_task_rows(X, _ANY_TASK)
            codes = [self._codes(rows, t) for t in range(len(self.task_names_))]
            return codes[0] if self.task_form_ == "single" else codes
        return self._codes(self._read_task_rows(X, task)[0], self._task_number(task))

    def _mean_score(self, X: Any, y: Any, sample_weight: Any, task: Any, metric: Any) -> float:
        """Return the mean over the tasks of a metric of their own rows."""
        check_is_fitted(self)
        if task is None:
            task = self.task_column_
        if task is not None and np.ndim(task) == 0 and task != self.task_column_:
            t = self._task_number(task)
            X, task = self._without_column(X, task)
            task = self._labels(np.full(np.shape(X)[0], t))
        table = TaskTable.read(X, y, sample_weight, task, self.task_names_)
        labels = None if table.numbers is None else self._labels(table.numbers)
        predicted = np.asarray(self.predict(table.X, task=labels))
        weights = np.ones(len(table.y)) if table.s is None else table.s
        scores = []
        for t, (rows, y_rows) in enumerate(table.rows_by_task()):
            if len(rows):
                answers = as_one_type(predicted[rows] if predicted.ndim == 1 else predicted[:, t])
                scores.append(metric(as_one_type(y_rows), answers, sample_weight=weights[rows]))
        return float(np.mean(scores))

    def _labels(self, numbers: NDArray) -> NDArray:
        labels = np.empty(len(numbers), dtype=object)
        labels[:] = [self.task_names_[t] for t in numbers]
        return labels


class TaskRegressor(RegressorMixin):
    """Targets and scores of regression tasks; comes before a `TaskPredictor`."""

    _target_type: TargetType = "regression"

    def _answer(self, t: int, raw: NDArray) -> NDArray:
        return raw

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, task: Any = None) -> float:
        """Return R^2, the mean over tasks."""
        return self._mean_score(X, y, sample_weight, task, r2_score)


class TaskClassifier(ClassifierMixin):
    """Classes and scores of classification tasks; comes before a `TaskPredictor`."""

    _target_type: TargetType = "classification"
    task_classes_: list[NDArray]  # the class labels of every task

    @property
    def classes_(self) -> NDArray | list[NDArray]:
        """The class labels of every task, or of the only one."""
        check_is_fitted(self, "task_names_")
        return self.task_classes_[0] if self.task_form_ == "single" else self.task_classes_

    def _answer(self, t: int, raw: NDArray) -> NDArray:
        classes = self.task_classes_[t]
        if len(classes) == 1:
            return np.repeat(classes, len(raw))
        return classes[(raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)]

    def predict_proba(self, X: Any, task: Any = None) -> NDArray | list[NDArray]:
        """Return class probabilities (n, K) of a task; without `task` a list, one per task.

        Parameters are as for `predict`.
        """

        def probabilities(t: int, rows: NDArray) -> NDArray:
            raw = self._raw_of_task(rows, t)
            if len(self.task_classes_[t]) == 1:
                return np.ones((len(raw), 1))
            return Logistic().link(raw) if raw.ndim == 1 else Multinomial(raw.shape[1]).link(raw)

        return self._per_task(X, task, probabilities)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, task: Any = None) -> float:
        """Return the accuracy, the mean over tasks."""
        return self._mean_score(X, y, sample_weight, task, accuracy_score)


def encode_numbers(targets: Sequence[NDArray], names: list, parameter: str = "y") -> list[NDArray]:
    """Return the targets of every regression task as finite numbers."""
    encoded = []
    for name, y in zip(names, targets, strict=True):
        try:
            values = np.asarray(y, float)
        except (TypeError, ValueError):
            raise ValueError(f"task {name!r}: {parameter} must hold numbers") from None
        if not np.isfinite(values).all():
            raise ValueError(
                f"task {name!r}: {parameter} contains NaN or infinity: remove these rows"
            )
        encoded.append(values)
    return encoded


def number_classes(targets: Sequence[NDArray]) -> tuple[list[NDArray], list[NDArray]]:
    """Return the classes of every task, and the class numbers of its rows."""
    classes, numbers = [], []
    for y in targets:
        labels = as_one_type(y)
        check_classification_targets(labels)
        task_classes, task_numbers = np.unique(labels, return_inverse=True)
        classes.append(task_classes)
        numbers.append(task_numbers.reshape(-1))
    return classes, numbers
