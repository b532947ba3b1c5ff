"""Estimators of several tasks that are fitted together."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.losses import Logistic, Loss, SquaredError
from jointleaf._core.penalties import Term
from jointleaf._core.solvers import Solution
from jointleaf._data.features import chosen_columns, plan_features
from jointleaf._data.rows import Rows, canonical_rows, read_rows
from jointleaf._data.tasks import TaskTable, as_one_type
from jointleaf._fit.folds import IndexPairs, split_labels, user_splits
from jointleaf._fit.recipes import Fit, choose_recipe, default_partitions
from jointleaf._model.contributions import by_column, warn_of_no_features
from jointleaf.estimators import _params as params
from jointleaf.estimators._docs import described
from jointleaf.multitask._base import (
    TaskClassifier,
    TaskPredictor,
    TaskRegressor,
    encode_numbers,
    number_classes,
)
from jointleaf.multitask._fitting import TaskJob, fit_jointly, read_task_weights
from jointleaf.partitions import Partitioner
from jointleaf.partitions._factory import known_categories

_PARAMETERS = """Tasks have the same features and each its own target, partitions and
    standardisation; they can have rows of their own. They are given as pairs (X_t, y_t), as one X
    with a 2-D y, or as one long table with the task of every row (see `fit`).

    Parameters
    ----------
    partitioner : "auto", str, Partitioner, multitask partitioner or list of these
        As for `JOPLEnRegressor`, for every task on its rows, or a partitioner that grows the
        partitions of all tasks together, such as `jointleaf.multitask.BoUTSPartitioner`. For
        selecting features "voronoi" is a good choice: its cells know nothing of y.
    penalty : "auto", Penalty or a sum of penalties
        "auto" is for prediction: every task has the default penalty of `JOPLEnRegressor`, chosen
        by its own honest cross-validation. ``DirtyLasso()`` is for selection: which
        features matter for all tasks, for single ones, and for none, with both strengths chosen by
        cross-validation over all tasks. ``L21``, ``LInf1``, ``Nuclear`` and others act on the
        slopes of all tasks together; ``PerTask(L21(0.1))`` on every task alone.
    recipe : {"auto", "joint", "blend", "boosting"}
        What is fitted to every task with ``penalty="auto"``, as for `JOPLEnRegressor`.
    task_weights : "auto", list or dict of positive numbers
        gamma_t, the weight of a task's mean loss in the objective. "auto" is sqrt(S_t / max S_t)
        with S_t the task's number of rows (or sum of sample weights): the noise of a mean
        over S_t rows falls with the root of S_t, so that tasks then tell features from noise
        at the same strength. With equal numbers of rows all are 1.
    cells, root_cell, clip, categorical_features, linear_features, add_indicator, solver
        As for `JOPLEnRegressor`.
    tol : float
        Tolerance of the scale-free optimality measure. The default is ten times that of
        `JOPLEnRegressor`: penalties that tie tasks together are solved by first-order steps, for
        which the last digits are slow.
    max_iter : int
        Most iterations of the solver.
    cv : None, int, splitter
        Splits of every task's rows. None is 5 folds, or one validation split of a fifth where some
        task has more than 2,500 distinct rows.
    one_se : bool or "auto"
        Take the setting with the fewest features whose validation loss is within one standard
        error of the smallest. "auto" does so where whole features vanish.
    n_jobs : int, optional
        Threads (-1: all cores). The fitted model is the same for every value.
    device : {"cpu", "gpu", "tpu", "auto", "jax:cpu"}
        As for `JOPLEnRegressor`.
    random_state : int, RandomState or None
        Seed of the partitions.
    verbose : int
        1 shows progress."""

_ATTRIBUTES = """Attributes
    ----------
    task_names_ : list
        Names of the tasks: keys of the dict, labels, column names of y, or numbers.
    task_weights_ : array (T,)
        gamma_t.
    common_features_ : array of int
        Features that are common to all tasks.
    task_features_ : dict of arrays of int
        For every task the features that it has besides the common ones.
    selected_features_ : array of int
        Features with a slope in any task.
    slope_norms_ : array (d, T)
        Euclidean norm of every feature's standardised slopes in every task.
    common_norms_ : array (d, T)
        The same of the common part of the slopes.
    penalty_ : Penalty, or list of them for ``penalty="auto"``
        With every strength a number.
    solution_ : Solution, or list of them for ``penalty="auto"``
        Slopes and biases of all tasks in standardised units, and how they were solved for.
    cv_results_ : dict of arrays, list of them for ``penalty="auto"``, or None
        Every setting that was tried, with scikit-learn's names: ``param_common`` and ``param_task``
        (the strengths; other penalties have theirs in ``param_common``), ``param_bias_strength``,
        ``param_relax`` (by what the strengths were multiplied for the selected features),
        ``mean_test_score`` (minus the weighted mean loss over tasks, in units of the targets'
        variances for regression; infinite where most features were selected, so that relaxing was
        not tried), ``std_test_score``, ``se_test_score`` and ``rank_test_score``; ``on_path``
        (False where bias strengths were compared), ``mean_common`` (number of common features, mean
        over splits), ``mean_specific`` (of further features of a task), ``mean_selected`` (their
        sum) and ``converged``.
    cell_models_ : list of CellModel
        The model of every task, which predicts.
    report_ : list of FitReport
        What was done for every task.
    partitioners_ : list of Partitioner
        The fitted partitioner of every task.
    feature_importances_ : array (d,)
        Mean over tasks of half the share in split gains, half the share in the spread of linear
        contributions.
    linear_feature_names_, linear_feature_columns_, n_features_in_, feature_names_in_
        As for `JOPLEnRegressor`."""

_described = described(parameters=_PARAMETERS, attributes=_ATTRIBUTES)


@dataclass(eq=False, repr=False)
class BaseMultiTaskJOPLEn(TaskPredictor, params.JOPLEnParameters):
    """What the estimators of several tasks share."""

    _: KW_ONLY
    task_weights: Any = "auto"
    clip: bool = True
    tol: float = 1e-5

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

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
        with params.restored_on_error(self):
            params.check_parameters(self)
            table = TaskTable.read(X, y, sample_weight, task)
            valid = self._read_validation(X_val, y_val, task_val, table)
            job = self._read(table, valid)
            if isinstance(self.penalty, Term):
                self._keep(job, *fit_jointly(job, self.penalty))
            else:
                self._keep(job, self._fit_alone(job))
        return self

    def _fit_alone(self, job: TaskJob) -> list[Fit]:
        """Fit every task by the default recipe: its penalty ties nothing together."""
        if hasattr(self.partitioner, "fit_tasks"):
            raise ValueError(
                f"partitioner={self.partitioner!r} grows the partitions of all tasks together, but "
                "penalty='auto' fits every task alone: give a penalty, for example DirtyLasso() to "
                "select features or PerTask(Frobenius('auto')) to predict"
            )
        return [
            self._fit_context(context, valid)
            for context, valid in zip(job.contexts, job.valid, strict=True)
        ]

    # -- rows ----------------------------------------------------------------------------------

    def _read(self, table: TaskTable, valid: TaskTable | None) -> TaskJob:
        """Check rows, and return what the fit works on; `valid` are rows to choose strengths on."""
        known = {} if self._has_default_partitions else known_categories(self.partitioner)
        columns, matrix, s, table = self._read_training(table, self.categorical_features, known)
        params.check_memory(self, matrix, table.y)
        params.check_missing_values(matrix[s > 0], columns)
        chosen = chosen_columns(self.linear_features, columns, table.X)
        rows, loss = self._task_rows(table, matrix, s)
        plan = plan_features(
            matrix[s > 0], s[s > 0], columns, chosen, missing_indicators=bool(self.add_indicator)
        )
        n_rows = max(len(task_rows) for task_rows in rows)
        partitioner = self.partitioner
        if isinstance(self.penalty, Term):
            params.check_penalty(self.penalty, n_rows, len(plan.names), self.cells)
            params.check_effect(self, choose_recipe(self.recipe, n_rows, None, self.penalty))
            if self._has_default_partitions:
                partitioner = default_partitions(n_rows, self._target_type)
        self.columns_ = columns  # for the validation rows
        held_out = self._validation_rows(len(rows), valid)
        task_weights = read_task_weights(self.task_weights, rows, table.names)
        seed = self._seed()
        contexts = [
            self._context(task_rows, columns, plan, loss, (seed + t) % (2**31 - 1))
            for t, task_rows in enumerate(rows)
        ]
        return TaskJob(table, contexts, held_out, task_weights, partitioner, self.cv)

    def _partitions_for(self, n_rows: int, penalty: Term | None) -> Partitioner | None:
        if hasattr(self.partitioner, "fit_tasks"):  # grows them for all tasks together
            return None
        return super()._partitions_for(n_rows, penalty)

    def _task_rows(self, table: TaskTable, matrix: NDArray, s: NDArray) -> tuple[list[Rows], Loss]:
        """Return the rows of every task in an order that depends on them alone, and the loss."""
        parts = []
        splits = self._index_splits(table, matrix)
        for name, (index, y) in zip(table.names, table.rows_by_task(), strict=True):
            is_used = s[index] > 0
            if is_used.sum() < 2:
                raise ValueError(
                    f"task {name!r} has {int(is_used.sum())} rows of positive weight: at least 2 "
                    "are needed, or leave it out"
                )
            if hasattr(self.cv, "split"):  # a splitter deals out the rows of every task
                task_splits = user_splits(self.cv, matrix[index], y, self._target_type)
                labels = split_labels(task_splits, len(index))
            else:
                labels = split_labels(splits, len(matrix))[index]
            parts.append((index[is_used], y[is_used], labels[is_used]))
        targets, loss = self._encode_tasks([y for _, y, _ in parts], table.names)
        rows = [
            canonical_rows(matrix[index], y, s[index], labels)
            for (index, _, labels), y in zip(parts, targets, strict=True)
        ]
        return rows, loss

    def _index_splits(self, table: TaskTable, matrix: NDArray) -> IndexPairs | None:
        """Return the pairs of indices into the rows of X that the user gave, if any."""
        if self.cv is None or hasattr(self.cv, "split") or params.is_whole(self.cv):
            return None
        if table.form == "pairs":
            raise ValueError(
                f"cv is a {type(self.cv).__name__} of row indices, which count the rows of one X: "
                "with pairs (X, y) give a number of folds or a splitter, which deals out every "
                "task's rows"
            )
        return user_splits(self.cv, matrix, np.zeros(len(matrix)), self._target_type)

    def _read_validation(
        self, X_val: Any, y_val: Any, task_val: Any, table: TaskTable
    ) -> TaskTable | None:
        """Return validation rows, whose tasks are those of the training rows."""
        if X_val is None:
            if y_val is None and task_val is None:
                return None
            raise ValueError("X_val and y_val belong together: give both or none")
        if not self._chooses:
            raise ValueError(
                f"X_val and y_val choose the penalty, but penalty={self.penalty!r} has nothing to "
                "choose: leave them out, or give penalty='auto' or strengths that are 'auto'"
            )
        try:
            task_val = table.column if task_val is None else task_val
            return TaskTable.read(X_val, y_val, None, task_val, table.names)
        except ValueError as error:
            raise ValueError(f"X_val, y_val: {error}") from None

    def _validation_rows(self, n_tasks: int, valid: TaskTable | None) -> list[Rows | None]:
        """Return the validation rows of every task that the user gave, or None for each."""
        if valid is None:
            return [None] * n_tasks
        matrix = read_rows(self, valid.X)
        if len(valid.y) != len(matrix):
            raise ValueError(
                f"X_val has {len(matrix)} rows, but y_val has {len(valid.y)}: give one per row"
            )
        parts = valid.rows_by_task()
        for name, (index, _) in zip(valid.names, parts, strict=True):
            if len(index) == 0:
                raise ValueError(
                    f"task {name!r} has no validation rows in X_val: give some, or leave X_val out"
                )
        encoded = self._encode_known_tasks([y for _, y in parts], valid.names)
        return [
            Rows(matrix[index], y, np.ones(len(y)), np.zeros((len(y), 0), np.int64))
            for (index, _), y in zip(parts, encoded, strict=True)
        ]

    def _keep(self, job: TaskJob, fits: list[Fit], solution: Solution | None = None) -> None:
        """Put the results on the estimator; `solution` is that of a joint fit."""
        self._keep_tasks(job.table, job.contexts[0].columns)
        self.task_weights_ = job.task_weights
        self.cell_models_ = [task.model for task in fits]
        self.report_ = [task.report for task in fits]
        self.slope_norms_ = self._by_column([model.slope_norms() for model in self.cell_models_])
        self.common_norms_ = np.zeros_like(self.slope_norms_)
        if solution is not None:
            self.common_norms_ = self._by_column(solution.common_norms.T)
        self.describe_fit(solution)
        is_specific = self.slope_norms_ > 0
        is_specific[self.common_features_] = False
        self.task_features_ = {
            name: np.flatnonzero(is_specific[:, t]) for t, name in enumerate(job.table.names)
        }
        is_empty = not self.selected_features_.size and self.cells == "linear"
        if isinstance(self.penalty, Term) and self._chooses and is_empty:
            warn_of_no_features(self.penalty)
        importances = [task.importances for task in fits]
        self.feature_importances_ = np.average(importances, axis=0, weights=job.task_weights)

    def _by_column(self, norms: Any) -> NDArray[np.float64]:
        """Return norms (d, T) of columns from norms (T, m) of linear features."""
        sources, n_columns = self.cell_models_[0].features.plan.sources, len(self.columns_)
        by_task = [
            by_column(task_norms, sources, n_columns) if len(task_norms) else np.zeros(n_columns)
            for task_norms in norms
        ]
        return np.stack(by_task, axis=1)

    def describe_fit(self, solution: Solution | None) -> None:
        """Set what follows from models, reports and norms; `solution` is that of a joint fit."""
        plan, reports = self.cell_models_[0].features.plan, self.report_
        self.partitioners_ = [model.partitioner for model in self.cell_models_]
        self.linear_feature_names_ = np.array(plan.names, dtype=object)
        self.linear_feature_columns_ = plan.sources
        self.common_features_ = np.flatnonzero(self.common_norms_.any(axis=1))
        self.selected_features_ = np.flatnonzero(self.slope_norms_.any(axis=1))
        self.n_iter_ = max(report.n_iter for report in reports)
        self.solution_: Any = solution or [report.solution for report in reports]
        self.penalty_: Any = [report.penalty for report in reports]
        self.cv_results_: Any = [report.cv_results for report in reports]
        if solution is not None:  # the same for all tasks
            self.penalty_, self.cv_results_ = self.penalty_[0], self.cv_results_[0]

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
        try:
            import pandas as pd
        except ImportError as cause:
            raise ImportError("selection_report needs pandas: pip install pandas") from cause
        norms = self.slope_norms_
        kind = np.full(len(norms), "none", dtype=object)
        kind[norms.any(axis=1)] = "task"
        kind[self.common_features_] = "common"
        labels = [column.label for column in self.columns_]
        report = pd.DataFrame({"kind": kind, "n_tasks": (norms > 0).sum(axis=1)}, index=labels)
        report.index.name = "feature"
        for t, name in enumerate(self.task_names_):
            report[name] = norms[:, t]
        return report

    def raw_predictions(self, rows: NDArray, t: int) -> NDArray:
        """Return raw predictions (n,) of task number t for encoded rows (n, d)."""
        return self.cell_models_[t].predict(rows, effective_n_jobs(self.n_jobs), self.device)

    def _codes(self, rows: NDArray, t: int) -> NDArray[np.int32]:
        return self.partitioners_[t].apply(rows)

    # -- targets -------------------------------------------------------------------------------

    def _encode_tasks(self, targets: list[NDArray], names: list) -> tuple[list[NDArray], Loss]:
        """Targets of every task as numbers for the loss, and the loss."""
        raise NotImplementedError

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        """Targets of validation rows, encoded as the training targets were."""
        raise NotImplementedError


@_described
class MultiTaskJOPLEnRegressor(TaskRegressor, BaseMultiTaskJOPLEn):
    """Piecewise linear ensembles for several regression tasks, all cells fitted jointly.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor
    >>> rng = np.random.default_rng(0)
    >>> tasks = {}
    >>> for j, name in ((1, "a"), (2, "b"), (3, "c")):
    ...     X = rng.standard_normal((150, 8))
    ...     tasks[name] = X, 2 * np.sin(X[:, 0]) + X[:, j]
    >>> penalty = DirtyLasso(common=0.2, task=0.12, bias_strength=1.0)
    >>> model = MultiTaskJOPLEnRegressor("voronoi", penalty=penalty, random_state=0).fit(tasks)
    >>> print(model.common_features_, model.task_features_)
    [0] {'a': array([1]), 'b': array([2]), 'c': array([3])}
    >>> model.predict(X, task="c").shape, model.predict(X).shape
    ((150,), (150, 3))
    """

    def _encode_tasks(self, targets: list[NDArray], names: list) -> tuple[list[NDArray], Loss]:
        return encode_numbers(targets, names), SquaredError()

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        return encode_numbers(targets, names, "y_val")


@_described
class MultiTaskJOPLEnClassifier(TaskClassifier, BaseMultiTaskJOPLEn):
    """Piecewise linear ensembles for several tasks with two classes each, fitted jointly.

    {parameters}

    {attributes}
    classes_ : list of arrays (2,), or one array where y was (n,)
        The class labels of every task.
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.target_tags.single_output = True
        return tags

    def _encode_tasks(self, targets: list[NDArray], names: list) -> tuple[list[NDArray], Loss]:
        self.task_classes_, numbers = number_classes(targets)
        for name, classes in zip(names, self.task_classes_, strict=True):
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
        return [2.0 * y - 1.0 for y in numbers], Logistic()

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        encoded = []
        for name, target, classes in zip(names, targets, self.task_classes_, strict=True):
            y = as_one_type(target)
            unknown = [label for label in np.unique(y).tolist() if label not in classes.tolist()]
            if unknown:
                raise ValueError(
                    f"task {name!r}: y_val holds class {unknown[0]!r}, but the classes in y are "
                    f"{classes.tolist()}"
                )
            encoded.append(2.0 * np.searchsorted(classes, y) - 1.0)
        return encoded
