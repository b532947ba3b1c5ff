"""From the rows of all tasks to their models, through one joint convex problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import joined_loss
from jointleaf._core.penalties import Term
from jointleaf._core.progress import SolveProgress
from jointleaf._core.solvers.solution import Solution
from jointleaf._core.tasks import check_task_weights, solve_tasks, task_problem
from jointleaf._data.rows import Rows, deal_groups
from jointleaf._data.tasks import TaskTable
from jointleaf._fit.component import FitContext, JointSolve, Split
from jointleaf._fit.folds import (
    MIN_GROUPS,
    Fold,
    IndexPairs,
    check_folds,
    cv_results,
    grow,
    make_splits,
    n_separate,
)
from jointleaf._fit.report import Fit, FitReport
from jointleaf._fit.strengths import StrengthChoice, choose_strengths
from jointleaf._model.cell_model import CellModel
from jointleaf._model.contributions import cell_ranges
from jointleaf.partitions import Partitioner, RootCell, UnionPartitioner, make_partitioner
from jointleaf.partitions._base import seeded

_MANY_ROWS = 2500  # of a task, above which one split is enough


@dataclass(frozen=True)
class TaskJob:
    """What a fit of several tasks works on."""

    table: TaskTable
    contexts: list[FitContext]  # of every task, with the same columns, plan and options
    valid: list[Rows | None]  # validation rows of every task that the user gave
    task_weights: NDArray  # (T,), gamma_t
    #: Grows the partitions of every task, or has a method ``fit_tasks`` that returns a fitted
    #: partitioner for every task.
    partitioner: Any
    cv: Any

    @property
    def rows(self) -> list[Rows]:
        """The training rows of every task."""
        return [context.rows for context in self.contexts]


def read_task_weights(weights: Any, rows: list[Rows], names: list) -> NDArray:
    """Return gamma_t: as given, or the root of a task's weight over the largest."""
    if isinstance(weights, str):
        if weights != "auto":
            raise ValueError(
                f"task_weights={weights!r} is not known: use 'auto' or positive numbers"
            )
        sums = np.array([task_rows.s.sum() for task_rows in rows])
        return np.sqrt(sums / sums.max())
    if isinstance(weights, Mapping):
        missing = [name for name in names if name not in weights]
        if missing:
            raise ValueError(
                f"task_weights has no number for task {missing[0]!r}: give a positive one"
            )
        unknown = [name for name in weights if name not in names]
        if unknown:
            raise ValueError(
                f"task_weights has a number for task {unknown[0]!r}: the tasks are {names}"
            )
        weights = [weights[name] for name in names]
    return check_task_weights(weights, names)


def group_splits(cv: Any, groups: NDArray[np.int64], table: TaskTable) -> IndexPairs:
    """Return splits of the rows of all tasks, by their groups: tasks that are tied learn together.

    Those in which a task has no rows on one side are left out.
    """
    tasks = [index for index, _ in table.rows_by_task()]
    n_groups = len(np.unique(groups))
    n_folds = min(n_groups, check_folds(cv, n_groups, 5))
    part = deal_groups(groups, n_folds)
    pairs = [
        (np.flatnonzero(part != k), np.flatnonzero(part == k))
        for k in range(n_folds)
        if all(0 < (part[index] == k).sum() < len(index) for index in tasks)
    ]
    if not pairs:
        raise ValueError(
            "groups leaves every split without training or validation rows of some task: give "
            "groups of fewer rows, or leave groups out"
        )
    is_large = max(len(index) for index in tasks) > _MANY_ROWS
    return pairs[:1] if cv is None and is_large else pairs


def fit_jointly(job: TaskJob, penalty: Term) -> tuple[list[Fit], Solution]:
    """Choose the strengths that are "auto", and solve one problem of the cells of all tasks.

    Returns the model and report of every task, and the solution of the problem.
    """
    choice: StrengthChoice | None = None
    if penalty.is_auto:
        choice = _choose_strengths(job, penalty)
        penalty = choice.best
    options, n_jobs = job.contexts[0].options, job.contexts[0].n_jobs
    partitioners = _grow(job, job.rows, fresh=False)
    # Threads work on tasks, and not inside of each.
    frames = [replace(context.standardize(context.rows), n_jobs=1) for context in job.contexts]
    designs = [
        frame.design(rows.X, partitioner, options.cells)
        for frame, rows, partitioner in zip(frames, job.rows, partitioners, strict=True)
    ]
    problem = task_problem(
        designs,
        [frame.target(rows.y) for frame, rows in zip(frames, job.rows, strict=True)],
        joined_loss([frame.loss for frame in frames], [len(rows) for rows in job.rows]),
        penalty,
        [rows.s for rows in job.rows],
        job.task_weights.tolist(),
        [float(frame.offset) for frame in frames],
        n_jobs,
    )
    solution = solve_tasks(
        problem,
        penalty,
        options.solver,
        tol=options.tol,
        max_iter=options.max_iter,
        device=options.device,
        listener=SolveProgress() if options.verbose else None,
    )
    table = None if choice is None else cv_results(choice.table)
    fits = []
    for frame, partitioner, rows, task, design in zip(
        frames, partitioners, job.rows, solution.tasks, designs, strict=True
    ):
        ranges = None
        if options.clip == "cell" and options.cells == "linear":
            ranges = cell_ranges(design.rows, partitioner.apply(rows.X), task.layout)
        model = CellModel.of_solution(frame, partitioner, task, ranges)
        model, importances = model.described(rows.X, rows.s)
        solve = JointSolve(task, penalty, model.offset)
        target_type = job.contexts[0].target_type
        report = FitReport.of_joint(target_type, solve, table, frame.loss)
        fits.append(Fit(model, importances, report))
    return fits, solution


def _grow(job: TaskJob, rows: Sequence[Rows], *, fresh: bool) -> list[Partitioner]:
    """Return partitions grown on rows of every task, unfitted copies where `fresh`."""
    first = job.contexts[0]
    rows = [
        context.growth_rows(task_rows)
        for context, task_rows in zip(job.contexts, rows, strict=True)
    ]
    target_type, columns, root_cell = first.target_type, first.columns, first.options.root_cell
    if hasattr(job.partitioner, "fit_tasks"):
        joint = job.partitioner
        if hasattr(joint, "get_params"):
            joint = seeded(joint, first.seed, first.n_jobs)
        fitted = joint.fit_tasks(list(rows), target_type, columns=columns)
        if not root_cell:
            return fitted
        roots = [grow(RootCell(), task_rows, target_type, columns) for task_rows in rows]
        return [UnionPartitioner.of_fitted(list(p)) for p in zip(fitted, roots, strict=True)]
    grown = []
    for context, task_rows in zip(job.contexts, rows, strict=True):
        partitioner = make_partitioner(job.partitioner)
        if root_cell:
            partitioner = UnionPartitioner([partitioner, RootCell()])
        partitioner = seeded(partitioner, context.seed, context.n_jobs)
        partitioner = partitioner.fresh() if fresh else partitioner
        grown.append(grow(partitioner, task_rows, target_type, columns))
    return grown


def _choose_strengths(job: TaskJob, penalty: Term) -> StrengthChoice:
    splits = [
        make_splits(
            context.rows,
            job.cv,
            valid,
            context.target_type,
            n_folds=5,
            n_splits=5 if len(context.rows) <= _MANY_ROWS else 1,
        )
        for context, valid in zip(job.contexts, job.valid, strict=True)
    ]
    few = next((t for t, task_splits in enumerate(splits) if not task_splits), None)
    if few is not None:
        raise ValueError(
            f"penalty={penalty!r}: task {job.table.names[few]!r} has {len(job.rows[few])} "
            "different rows, too few to choose a strength by cross-validation: give numbers, or "
            "leave the task out"
        )
    # A task with many rows has one split: as many as all tasks have are used.
    by_split = list(zip(*splits, strict=False))
    options = job.contexts[0].options
    return choose_strengths(
        [partial(_make_folds, job, split, len(by_split)) for split in by_split],
        penalty,
        job.task_weights,
        cells=options.cells,
        one_se=options.one_se,
        n_jobs=job.contexts[0].n_jobs,
        device=options.device,
        verbose=options.verbose,
    )


def _make_folds(job: TaskJob, split: Sequence[Split], n_folds: int) -> list[Fold]:
    """Return a fold of every task, all with the same number of groups of validation rows."""
    partitioners = _grow(job, [train for train, _ in split], fresh=True)
    n_groups = min(-(-MIN_GROUPS // n_folds), *(n_separate(valid) for _, valid in split))
    return [
        Fold(context, train, valid, partitioner, n_groups=n_groups)
        for context, (train, valid), partitioner in zip(
            job.contexts, split, partitioners, strict=True
        )
    ]
