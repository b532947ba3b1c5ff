"""What the estimators of several tasks share: from tasks to a fit, and what it says of itself."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import is_whole, threads
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.solvers.solution import Solution
from jointleaf._data.columns import Columns
from jointleaf._data.features import chosen_columns, plan_features
from jointleaf._data.rows import Rows, canonical_rows, read_groups, read_rows
from jointleaf._data.tasks import TaskTable, read_task_groups
from jointleaf._fit.folds import IndexPairs, split_labels, user_splits
from jointleaf._fit.limits import Budget
from jointleaf._fit.recipes import default_partitions
from jointleaf._fit.report import Fit
from jointleaf._model.contributions import by_column, warn_of_no_features
from jointleaf.estimators import _checks as checks
from jointleaf.estimators import _params as params
from jointleaf.multitask._base import TaskPredictor
from jointleaf.multitask._fitting import TaskJob, fit_jointly, group_splits, read_task_weights
from jointleaf.partitions import Partitioner
from jointleaf.partitions._factory import known_categories


@dataclass(eq=False, repr=False)
class BaseMultiTaskJOPLEn(TaskPredictor, params.JOPLEnParameters):
    """What the estimators of several tasks share."""

    _: KW_ONLY
    task_weights: Any = "auto"
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
        groups: Any = None,
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
        groups : array-like (n,), or list or dict of these with pairs, optional
            Rows that belong together, also those of different tasks: they are never on both sides
            of any split that the fit makes. A splitter `cv` deals out every task's rows alone.
        X_val, y_val, task_val
            Rows, in the form of X, y and task, on which strengths that are "auto" are chosen,
            instead of cross-validation.

        Returns
        -------
        self
        """
        with checks.restored_on_error(self):
            checks.check_parameters(self)
            if not isinstance(self.cells, str):
                raise ValueError(f"cells={self.cells!r} must be 'linear' or 'constant' here")
            table = TaskTable.read(X, y, sample_weight, task)
            valid = self._read_validation(X_val, y_val, task_val, table)
            job = self._read(table, valid, read_task_groups(groups, X, table))
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
        end = None if self.time_budget is None else time.perf_counter() + self.time_budget
        fits: list[Fit] = []
        for context, valid in zip(job.contexts, job.valid, strict=True):
            budget = None
            if end is not None:  # tasks have equal parts of what is left
                seconds = (end - time.perf_counter()) / (len(job.contexts) - len(fits))
                budget = Budget(seconds)
            fits.append(self._fit_context(context, valid, budget))
        return fits

    # -- rows ----------------------------------------------------------------------------------

    def _read(self, table: TaskTable, valid: TaskTable | None, groups: NDArray | None) -> TaskJob:
        """Check rows, and return what the fit works on; `valid` are rows to choose strengths on."""
        known = {} if self._has_default_partitions else known_categories(self.partitioner)
        columns, matrix, s, table = self._read_training(table, self.categorical_features, known)
        params.check_memory(self, matrix, table.y, columns)
        checks.warn_of_no_values(matrix[s > 0], columns, checks.used_part(s > 0))
        chosen = chosen_columns(self.linear_features, columns, table.X)
        rows, class_weights = self._task_rows(table, matrix, s, groups)
        plan = plan_features(
            matrix[s > 0], s[s > 0], columns, chosen, missing_indicators=bool(self.add_indicator)
        )
        n_rows = max(len(task_rows) for task_rows in rows)
        partitioner = self.partitioner
        if isinstance(self.penalty, Term):
            n_features, is_linear = len(plan.names), checks.has_linear_cells(self.cells)
            checks.check_penalty(self.penalty, n_rows, n_features, is_linear=is_linear)
            checks.check_effect(self)
            if self._has_default_partitions:
                partitioner = default_partitions(n_rows, self._target_type)
        self.columns_ = columns  # for the validation rows
        held_out = self._validation_rows(len(rows), valid)
        task_weights = read_task_weights(self.task_weights, rows, table.names)
        seed = self._seed()
        seeds = [(seed + t) % (2**31 - 1) for t in range(len(rows))]
        losses = self._find_losses(rows, columns, seeds)
        contexts = [
            replace(
                self._context(task_rows, columns, plan, loss, seeds[t], units),
                class_weights=class_weights[t],
            )
            for t, (task_rows, (loss, units)) in enumerate(zip(rows, losses, strict=True))
        ]
        held_out = [
            valid_rows and replace(valid_rows, s=valid_rows.s * context.class_factors(valid_rows))
            for valid_rows, context in zip(held_out, contexts, strict=True)
        ]
        return TaskJob(table, contexts, held_out, task_weights, partitioner, self.cv)

    def _partitions_for(self, n_rows: int, penalty: Term | None) -> Partitioner | None:
        if hasattr(self.partitioner, "fit_tasks"):  # grows them for all tasks together
            return None
        return super()._partitions_for(n_rows, penalty)

    def _task_rows(
        self, table: TaskTable, matrix: NDArray, s: NDArray, groups: NDArray | None
    ) -> tuple[list[Rows], list[NDArray | None]]:
        """Return the rows of every task in an order that depends on them alone.

        With them weights of the classes of every task, None for those that are 1.
        """
        parts, class_weights = [], []
        group_numbers = read_groups(groups, s > 0)
        splits = self._index_splits(table, matrix, group_numbers)
        if splits is None and group_numbers is not None and isinstance(self.penalty, Term):
            splits = group_splits(self.cv, group_numbers, table)
        for name, (index, y) in zip(table.names, table.rows_by_task(), strict=True):
            factors = self._class_weights(y, s[index], name)
            s_task = s[index] * checks.class_factors(factors, y)
            is_used = s_task > 0
            if is_used.sum() < 2:
                raise ValueError(
                    f"task {name!r} has {int(is_used.sum())} rows of positive weight: at least 2 "
                    "are needed, or leave it out"
                )
            if hasattr(self.cv, "split"):  # a splitter deals out the rows of every task
                task_groups = None if group_numbers is None else group_numbers[index]
                task_splits = user_splits(self.cv, matrix[index], y, self._target_type, task_groups)
                labels = split_labels(task_splits, len(index))
            else:
                labels = split_labels(splits, len(matrix))[index]
            parts.append((index[is_used], y[is_used], s_task[is_used], labels[is_used]))
            used = [weight for weight in (factors or {}).values() if weight > 0]
            class_weights.append(np.array(used) if used else None)
        targets = self._encode_tasks([y for _, y, _, _ in parts], table.names)
        rows = [
            canonical_rows(
                matrix[index],
                y,
                s_task,
                labels,
                groups=None if group_numbers is None else group_numbers[index],
            )
            for (index, _, s_task, labels), y in zip(parts, targets, strict=True)
        ]
        return rows, class_weights

    def _class_weights(self, y: NDArray, s: NDArray, task: Any) -> dict[Any, float] | None:
        """Return the weight of every class of a task's rows (n,); None where all are 1."""
        return None

    def _index_splits(
        self, table: TaskTable, matrix: NDArray, groups: NDArray[np.int64] | None
    ) -> IndexPairs | None:
        """Return the pairs of indices into the rows of X that the user gave, if any."""
        if self.cv is None or hasattr(self.cv, "split") or is_whole(self.cv):
            return None
        if table.form == "pairs":
            raise ValueError(
                f"cv is a {type(self.cv).__name__} of row indices, which count the rows of one X: "
                "with pairs (X, y) give a number of folds or a splitter, which deals out every "
                "task's rows"
            )
        return user_splits(self.cv, matrix, np.zeros(len(matrix)), self._target_type, groups)

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
        describe_fit(self, solution)
        is_specific = self.slope_norms_ > 0
        is_specific[self.common_features_] = False
        self.task_features_ = {
            name: np.flatnonzero(is_specific[:, t]) for t, name in enumerate(job.table.names)
        }
        is_empty = not self.selected_features_.size and checks.has_linear_cells(self.cells)
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

    def _raw_of_task(self, rows: NDArray, t: int) -> NDArray:
        """Return raw predictions (n,) of task number t for encoded rows (n, d)."""
        return self.cell_models_[t].predict(rows, threads(self.n_jobs), self.device)

    def _codes(self, rows: NDArray, t: int) -> NDArray[np.int32]:
        return self.partitioners_[t].apply(rows)

    # -- targets -------------------------------------------------------------------------------

    def _encode_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        """Targets of every task as numbers for the loss."""
        raise NotImplementedError

    def _find_losses(
        self, rows: list[Rows], columns: Columns, seeds: list[int]
    ) -> list[tuple[Loss, tuple[float, float] | None]]:
        """Losses of every task, in the units of its targets that are returned as well."""
        raise NotImplementedError

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        """Targets of validation rows, encoded as the training targets were."""
        raise NotImplementedError


def describe_fit(model: Any, solution: Solution | None) -> None:
    """Set what follows from models, reports and norms; `solution` is that of a joint fit."""
    plan, reports = model.cell_models_[0].features.plan, model.report_
    model.partitioners_ = [cells.partitioner for cells in model.cell_models_]
    model.linear_feature_names_ = np.array(plan.names, dtype=object)
    model.linear_feature_columns_ = plan.sources
    model.common_features_ = np.flatnonzero(model.common_norms_.any(axis=1))
    model.selected_features_ = np.flatnonzero(model.slope_norms_.any(axis=1))
    model.n_iter_ = max(report.n_iter for report in reports)
    model.solution_ = solution or [report.solution for report in reports]
    model.penalty_ = [report.penalty for report in reports]
    model.cv_results_ = [report.cv_results for report in reports]
    if solution is not None:  # the same for all tasks
        model.penalty_, model.cv_results_ = model.penalty_[0], model.cv_results_[0]
