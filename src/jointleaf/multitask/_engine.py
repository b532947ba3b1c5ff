"""From the rows of all tasks to their jointly fitted models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Penalty, PredictionPenalty, Term
from jointleaf._core.progress import SolveProgress
from jointleaf._core.relaxing import solve_tasks
from jointleaf._core.task_solution import TaskSolution, make_solution
from jointleaf._core.task_weights import check_task_weights
from jointleaf._data.columns import Columns
from jointleaf._data.features import FeaturePlan, chosen_columns, plan_features
from jointleaf._data.rows import Rows, canonical_rows, read_rows
from jointleaf._data.tasks import TaskTable
from jointleaf._fit.component import target_scale
from jointleaf._fit.folds import IndexPairs, make_splits, split_labels, user_splits
from jointleaf._fit.recipes import default_partitions
from jointleaf._fit.report import cv_results
from jointleaf._fit.strengths import StrengthChoice
from jointleaf._fit.task_parts import Grower, TaskParts
from jointleaf._fit.task_strengths import TaskFold, choose_task_strengths
from jointleaf._model.cell_model import CellModel
from jointleaf._model.contributions import by_column, cell_ranges
from jointleaf.estimators._base import importances
from jointleaf.estimators._checks import check_gaps, check_penalty, is_whole
from jointleaf.estimators._memory import check_memory
from jointleaf.partitions import known_categories

if TYPE_CHECKING:
    from jointleaf.multitask._estimators import BaseMultiTaskJOPLEn

__all__ = ["Outcome", "fit_outcome"]


@dataclass(frozen=True)
class Outcome:
    """Everything a fit finds."""

    table: TaskTable
    columns: Columns
    plan: FeaturePlan
    task_weights: NDArray
    models: list[CellModel]
    penalty: Any
    solution: Any
    n_iter: int
    cv_results: Any
    slope_norms: NDArray
    common_norms: NDArray
    specific_norms: NDArray
    importances: NDArray


@dataclass(frozen=True)
class _TaskJob:
    """What a fit works on."""

    table: TaskTable
    columns: Columns
    plan: FeaturePlan
    loss: Loss
    rows: list[Rows]
    valid: list[Rows | None]  # validation rows of the user's, of every task
    task_weights: NDArray
    seed: int
    n_jobs: int


def fit_outcome(model: BaseMultiTaskJOPLEn, table: TaskTable, valid: TaskTable | None) -> Outcome:
    """Fit all tasks of a table; `valid` has rows on which strengths are chosen."""
    job = _prepare(model, table, valid)
    if isinstance(model.penalty, str):
        return _fit_one_by_one(model, job)
    return _fit_jointly(model, job)


# -- rows ---------------------------------------------------------------------------------------


def _prepare(model: BaseMultiTaskJOPLEn, table: TaskTable, valid: TaskTable | None) -> _TaskJob:
    known = {} if model._has_default_partitions else known_categories(model.partitioner)
    columns, given, s, table = model._read_training(table, model.categorical_features, known)
    check_memory(model, given, table.y)
    check_gaps(given[s > 0], columns)
    chosen = chosen_columns(model.linear_features, columns, table.X)
    rows, loss = _task_rows(model, table, given, s)
    plan = plan_features(
        given[s > 0], s[s > 0], columns, chosen, missing_indicators=bool(model.add_indicator)
    )
    if isinstance(model.penalty, Term):
        check_penalty(model.penalty, max(len(own) for own in rows), len(plan.names), model.cells)
    model.columns_ = columns  # for the validation rows
    held_out = _validation_rows(model, len(rows), valid)
    jobs = effective_n_jobs(model.n_jobs)
    weights = _task_weights(model, rows, table.names)
    return _TaskJob(table, columns, plan, loss, rows, held_out, weights, model._seed(), jobs)


def _task_rows(
    model: BaseMultiTaskJOPLEn, table: TaskTable, given: NDArray, s: NDArray
) -> tuple[list[Rows], Loss]:
    """Rows of every task in an order that does not depend on how they were given, and the loss."""
    kept = []
    splits = _row_splits(model, table, given)
    for name, (own, y) in zip(table.names, table.rows_by_task(), strict=True):
        is_kept = s[own] > 0
        if is_kept.sum() < 2:
            raise ValueError(
                f"task {name!r} has {int(is_kept.sum())} rows of positive weight: at least 2 are "
                "needed, or leave it out"
            )
        labels = _split_labels(model, splits, given, own, y)
        kept.append((own[is_kept], y[is_kept], labels[is_kept]))
    targets, loss = model._encode_tasks([y for _, y, _ in kept], table.names)
    rows = [
        canonical_rows(given[own], y, s[own], labels)
        for (own, _, labels), y in zip(kept, targets, strict=True)
    ]
    return rows, loss


def _split_labels(
    model: BaseMultiTaskJOPLEn, splits: IndexPairs | None, given: NDArray, own: NDArray, y: NDArray
) -> NDArray[np.int64]:
    """Where a task's rows are in the splits that the user gave.

    A splitter deals out the rows of every task; pairs of indices count the rows of X.
    """
    if hasattr(model.cv, "split"):
        return split_labels(user_splits(model.cv, given[own], y, model._target_type), len(own))
    return split_labels(splits, len(given))[own]


def _row_splits(model: BaseMultiTaskJOPLEn, table: TaskTable, given: NDArray) -> IndexPairs | None:
    """Pairs of indices into the rows of X that the user gave, if any."""
    if model.cv is None or hasattr(model.cv, "split") or is_whole(model.cv):
        return None
    if table.form == "pairs":
        raise ValueError(
            f"cv is a {type(model.cv).__name__} of row indices, which count the rows of one X: "
            "with pairs (X, y) give a number of folds or a splitter, which deals out every task's "
            "rows"
        )
    return user_splits(model.cv, given, np.zeros(len(given)), model._target_type)


def _validation_rows(
    model: BaseMultiTaskJOPLEn, n_tasks: int, valid: TaskTable | None
) -> list[Rows | None]:
    """Return the validation rows of every task that the user gave, or None for each."""
    if valid is None:
        return [None] * n_tasks
    matrix = read_rows(model, valid.X)
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
    encoded = model._encode_known_tasks([y for _, y in parts], valid.names)
    return [
        Rows(matrix[index], y, np.ones(len(y)), np.zeros((len(y), 0), np.int64))
        for (index, _), y in zip(parts, encoded, strict=True)
    ]


def _task_splits(model: BaseMultiTaskJOPLEn, job: _TaskJob) -> list[list[tuple[Rows, Rows]]]:
    """Return training and validation rows of every split of every task."""
    return [
        make_splits(
            rows, model.cv, valid, model._target_type,
            n_folds=5, n_splits=5 if len(rows) <= 2500 else 1,
        )
        for rows, valid in zip(job.rows, job.valid, strict=True)
    ]  # fmt: skip


def _joint_splits(
    splits: list[list[tuple[Rows, Rows]]],
) -> list[tuple[list[Rows], list[Rows]]]:
    """Return training and validation rows of all tasks in every split that all of them have.

    A task with many rows has one split.
    """
    n_splits = min(len(task) for task in splits)
    return [
        ([task[k][0] for task in splits], [task[k][1] for task in splits]) for k in range(n_splits)
    ]


def _task_weights(model: BaseMultiTaskJOPLEn, rows: list[Rows], names: list) -> NDArray:
    """gamma_t: as given, or the root of a task's weight over the largest."""
    if isinstance(model.task_weights, str):
        if model.task_weights != "auto":
            raise ValueError(
                f"task_weights={model.task_weights!r} is not known: use 'auto' or positive numbers"
            )
        sums = np.array([own.s.sum() for own in rows])
        return np.sqrt(sums / sums.max())
    given = model.task_weights
    if isinstance(given, Mapping):
        missing = [name for name in names if name not in given]
        if missing:
            raise ValueError(
                f"task_weights has no number for task {missing[0]!r}: give a positive one"
            )
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"task_weights has a number for task {unknown[0]!r}: the tasks are {names}"
            )
        given = [given[name] for name in names]
    return check_task_weights(given, names)


# -- every task on its own: penalty="auto" ------------------------------------------------------


def _fit_one_by_one(model: BaseMultiTaskJOPLEn, job: _TaskJob) -> Outcome:
    """The default recipe, whose penalty has nothing that ties tasks together."""
    if hasattr(model.partitioner, "fit_tasks"):
        raise ValueError(
            f"partitioner={model.partitioner!r} grows the partitions of all tasks together, but "
            "penalty='auto' fits every task alone: give a penalty, for example DirtyLasso() to "
            "select features or PerTask(Frobenius('auto')) to predict"
        )
    parameters = model.get_params(deep=False)
    parameters.pop("task_weights")
    single = model._single_task(**parameters)
    models, fits = [], []
    for t, own in enumerate(job.rows):
        seed = (job.seed + t) % (2**31 - 1)
        context = single._context(own, job.columns, job.plan, job.loss, seed)
        fit = single._fit_context(context, job.valid[t])
        fits.append(fit)
        models.append(fit.model)
    d = len(job.columns)
    norms = [by_column(fit.model.slope_norms(), job.plan.sources, d) for fit in fits]
    slope_norms = np.stack(norms, axis=1)
    return _outcome(
        job,
        models,
        penalty=[fit.report.penalty for fit in fits],
        solution=[fit.report.solution for fit in fits],
        n_iter=max(fit.report.n_iter for fit in fits),
        cv_results=[fit.report.cv_results for fit in fits],
        norms=(slope_norms, np.zeros_like(slope_norms), slope_norms),
        shares=[importances(model, own) for model, own in zip(models, job.rows, strict=True)],
    )


# -- all tasks together -------------------------------------------------------------------------


def _fit_jointly(model: BaseMultiTaskJOPLEn, job: _TaskJob) -> Outcome:
    """One convex problem with the penalty that was given."""
    partitioner: Any = model.partitioner
    if model._has_default_partitions:
        partitioner = default_partitions(max(map(len, job.rows)), model._target_type)
    grower = Grower(
        partitioner, bool(model.root_cell), job.seed, job.n_jobs, model._target_type,
        job.columns,
    )  # fmt: skip
    grower.check()
    penalty: Any = model.penalty
    choice: StrengthChoice | None = None
    if model._chooses:
        choice = _choose_strengths(model, job, grower)
        penalty = choice.best
    parts = TaskParts.make(
        job.rows,
        grower.grow(job.rows, fresh=False),
        job.plan,
        job.loss,
        grower,
        clip=bool(model.clip),
    )
    problem = parts.problem(penalty, model.cells, job.task_weights, job.n_jobs)
    problem.device = model.device
    if model.verbose:
        problem.listener = SolveProgress()
    problem, solved = solve_tasks(
        problem, penalty, model.solver, tol=model.tol, max_iter=model.max_iter
    )
    solution = make_solution(problem, solved)
    models, shares = [], []
    for frame, partitioner, own, task, block in zip(
        parts.frames, parts.partitioners, job.rows, solution.tasks, problem.design.blocks(),
        strict=True,
    ):  # fmt: skip
        ranges = None
        if model.clip == "cell" and model.cells == "linear":
            ranges = cell_ranges(block.design.rows, partitioner.apply(own.X), task.layout)
        fitted = CellModel.of_solution(frame, partitioner, task, ranges)
        models.append(fitted.with_means(own.X, own.s))
        shares.append(fitted.importances(block.design, own.s))
    return _outcome(
        job,
        models,
        penalty=penalty,
        solution=solution,
        n_iter=solution.n_iter,
        cv_results=None if choice is None else cv_results(choice.table),
        norms=_norms_by_column(solution, job),
        shares=shares,
    )


def _choose_strengths(model: BaseMultiTaskJOPLEn, job: _TaskJob, grower: Grower) -> StrengthChoice:
    splits = _task_splits(model, job)
    joint = _joint_splits(splits)
    if not joint:
        few = next(t for t, task in enumerate(splits) if not task)
        raise ValueError(
            f"penalty={model.penalty!r}: task {job.table.names[few]!r} has {len(job.rows[few])} "
            "different rows, too few to choose a strength by cross-validation: give numbers, or "
            "leave the task out"
        )
    assert isinstance(model.penalty, Term)
    units = [target_scale(own.y, own.s, model._target_type)[1] for own in job.rows]

    def make(train: list[Rows], valid: list[Rows]) -> TaskFold:
        parts = TaskParts.make(
            train,
            grower.grow(train, fresh=True),
            job.plan,
            job.loss,
            grower,
            clip=bool(model.clip),
        )
        return TaskFold(
            parts, valid, units, job.task_weights, n_folds=len(joint), cells=model.cells,
            extra=_on_predictions(model.penalty), device=model.device,
        )  # fmt: skip

    return choose_task_strengths(
        [partial(make, train, valid) for train, valid in joint],
        model.penalty,
        job.task_weights,
        one_se=model._takes_one_se(),
        n_jobs=job.n_jobs,
        verbose=bool(model.verbose),
    )


def _norms_by_column(solution: TaskSolution, job: _TaskJob) -> tuple[NDArray, NDArray, NDArray]:
    """Norms (d, T) of all slopes, of the common ones and of those of single tasks."""
    d, sources = len(job.columns), job.plan.sources
    common, specific = solution.common_norms, solution.specific_norms
    whole = np.stack([task.slope_norms for task in solution.tasks], axis=1)
    if not common.size:  # constant cells
        zeros = np.zeros((d, len(solution.tasks)))
        return zeros, zeros, zeros

    def gathered(norms: NDArray) -> NDArray:
        return np.stack([by_column(column, sources, d) for column in norms.T], axis=1)

    return gathered(whole), gathered(common), gathered(specific)


def _on_predictions(penalty: Any) -> list[PredictionPenalty]:
    return [term for term in penalty.terms if not isinstance(term, Penalty)]


def _outcome(
    job: _TaskJob,
    models: list[CellModel],
    *,
    penalty: Any,
    solution: Any,
    n_iter: int,
    cv_results: dict | list | None,
    norms: tuple[NDArray, NDArray, NDArray],
    shares: list[NDArray],
) -> Outcome:
    return Outcome(
        job.table,
        job.columns,
        job.plan,
        job.task_weights,
        models,
        penalty,
        solution,
        n_iter,
        cv_results,
        *norms,
        importances=np.average(shares, axis=0, weights=job.task_weights),
    )
