"""Rows of one or several tasks: the reader of all forms in which they are given.

- pairs: ``[(X_1, y_1), ...]`` or ``{"name": (X, y), ...}``, each with rows of its own;
- outputs: one X with a 2-D y, every column of which is a task (scikit-learn's multi-output
  convention); a 1-D y is a single task;
- a long table: X and y of all tasks, and ``task``, the task of every row: labels (n,), or the
  name or number of a column of X.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import as_dense, is_whole
from jointleaf._data.columns import as_frame, column_names, is_missing, is_table

Form = Literal["pairs", "outputs", "single", "long"]


@dataclass(frozen=True)
class TaskTable:
    """The rows of T >= 1 tasks."""

    X: Any  # data frame or array (n, d)
    y: NDArray  # (n,), or (n, T) where every task has all rows
    s: NDArray | None  # (n,), sample weights
    names: list  # of the tasks
    numbers: NDArray[np.intp] | None  # (n,), task of every row; None where every task has all rows
    form: Form
    column: Any = None  # the column of X that held the task, which X no longer has

    @classmethod
    def read(
        cls,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        task: Any = None,
        names: list | None = None,
    ) -> TaskTable:
        """Read tasks in any form; `names` are the tasks of a model fitted before."""
        if task is not None:
            if y is None:
                raise ValueError(
                    "y is missing: with task, the task of every row, give X and y of all tasks"
                )
            return _read_long(as_dense(X), y, sample_weight, task, names)
        if y is None:
            return _read_pairs(X, sample_weight, names)
        return _read_outputs(as_dense(X), y, sample_weight, names)

    def rows_by_task(self) -> list[tuple[NDArray[np.intp], NDArray]]:
        """Return the row numbers and the targets of every task."""
        if self.numbers is None:
            every_row = np.arange(len(self.y))
            targets = self.y[:, None] if self.y.ndim == 1 else self.y
            return [(every_row, targets[:, t]) for t in range(len(self.names))]
        rows = [np.flatnonzero(self.numbers == t) for t in range(len(self.names))]
        return [(task_rows, self.y[task_rows]) for task_rows in rows]


# -- one X for all tasks -------------------------------------------------------------------------


def _read_outputs(X: Any, y: Any, sample_weight: Any, names: list | None) -> TaskTable:
    if isinstance(X, list | tuple) and X and np.ndim(X[0]) == 2:
        raise ValueError(
            "X is a list of tables and y a list besides: give pairs, [(X_1, y_1), (X_2, y_2)]"
        )
    targets = np.asarray(y)
    weights = None if sample_weight is None else np.asarray(sample_weight)
    if targets.ndim == 1:
        if names is not None and len(names) > 1:
            raise ValueError(
                f"y has shape {targets.shape}, but there are {len(names)} tasks: give a column for "
                "each, or task, the task of every row"
            )
        return TaskTable(X, targets, weights, names or [0], None, "single")
    if targets.ndim != 2:
        raise ValueError(f"y has shape {targets.shape}: give (n,), or (n, T) with T tasks")
    n_tasks = targets.shape[1]
    if n_tasks == 0:
        raise ValueError("y has no column: give one per task")
    task_names = names or column_names(y) or list(range(n_tasks))
    if len(task_names) != n_tasks:
        raise ValueError(
            f"y has {n_tasks} columns, but there are {len(task_names)} tasks: give one for each"
        )
    for name, column in zip(task_names, targets.T, strict=True):
        if not _is_finite(column):
            raise ValueError(
                f"y contains NaN or infinity for task {name!r}: give the tasks as pairs (X, y), "
                "each with its own rows, and leave these out"
            )
    return TaskTable(X, targets, weights, list(task_names), None, "outputs")


def _is_finite(y: NDArray) -> bool:
    return y.dtype.kind != "f" or bool(np.isfinite(y).all())


# -- pairs ---------------------------------------------------------------------------------------


def _read_pairs(tasks: Any, sample_weight: Any, names: list | None) -> TaskTable:
    if isinstance(tasks, Mapping):
        task_names, pairs = list(tasks), list(tasks.values())
    elif isinstance(tasks, list | tuple):
        task_names, pairs = list(range(len(tasks))), list(tasks)
    else:
        raise ValueError(
            "requires y to be passed, but the target y is None: give y, or several tasks as a "
            "list or dict of pairs (X, y)"
        )
    if not pairs:
        raise ValueError("there is no task: give at least one pair (X, y)")
    order = list(range(len(task_names)))
    if names is not None:
        order = [_task_number(name, names) for name in task_names]
    tables, targets = zip(
        *(_checked_pair(*item) for item in zip(task_names, pairs, strict=True)), strict=True
    )
    _check_columns(task_names, tables)
    numbers = np.repeat(order, [len(y) for y in targets])
    s = _weights_of_pairs(sample_weight, task_names, [len(y) for y in targets])
    y = join_values(targets)
    return TaskTable(_stacked(tables), y, s, names or task_names, numbers, "pairs")


def _checked_pair(name: Any, pair: Any) -> tuple[Any, NDArray]:
    if not (isinstance(pair, list | tuple) and len(pair) == 2):
        raise ValueError(
            f"task {name!r} must be a pair (X, y): give [(X_1, y_1), (X_2, y_2)], or a dict "
            "with names"
        )
    shape, y = np.shape(pair[0]), np.asarray(pair[1])
    if len(shape) != 2:
        raise ValueError(f"task {name!r}: X has shape {shape}, expected (n, d)")
    if shape[0] == 0:
        raise ValueError(f"task {name!r} has no rows: leave it out")
    if y.shape == (shape[0], 1):
        y = y[:, 0]
    if y.shape != (shape[0],):
        raise ValueError(
            f"task {name!r}: y has shape {y.shape}, expected ({shape[0]},): one per row of X"
        )
    if not _is_finite(y):
        raise ValueError(f"task {name!r}: y contains NaN or infinity: remove these rows")
    return as_dense(pair[0]), y


def _check_columns(names: Sequence, tables: Sequence) -> None:
    first, width = column_names(tables[0]), np.shape(tables[0])[1]
    for name, X in zip(names[1:], tables[1:], strict=True):
        if np.shape(X)[1] != width:
            raise ValueError(
                f"task {name!r} has {np.shape(X)[1]} features, but task {names[0]!r} has {width}: "
                "tasks must have the same features"
            )
        # Names that are numbers are the same as none at all.
        columns = zip(column_names(X) or range(width), first or range(width), strict=True)
        for column, expected in columns:
            if column != expected:
                raise ValueError(
                    f"task {name!r} has the column {column!r} where task {names[0]!r} has "
                    f"{expected!r}: tasks must have the same features in the same order"
                )


def _stacked(tables: Sequence[Any]) -> Any:
    """Return one table of the rows of several, of the kind of the first."""
    first = as_frame(tables[0])
    if first is None:
        return np.concatenate([np.asarray(X) for X in tables])
    if first.implementation.is_pandas():
        return _stacked_pandas(tables)
    if first.implementation.is_polars():
        import polars as pl

        return pl.concat(tables, how="vertical_relaxed")
    return nw.concat([nw.from_native(X, eager_only=True) for X in tables]).to_native()


def _stacked_pandas(tables: Sequence[Any]) -> Any:
    """pandas.concat, which forgets that a column holds categories where these differ."""
    import pandas as pd

    first = tables[0]
    frames = [pd.DataFrame(X).set_axis(range(first.shape[1]), axis=1) for X in tables]
    whole = pd.concat(frames, ignore_index=True)
    for j in whole.columns:
        if any(isinstance(frame[j].dtype, pd.CategoricalDtype) for frame in frames):
            whole[j] = whole[j].astype("category")
    return whole.set_axis(first.columns, axis=1)


def _weights_of_pairs(sample_weight: Any, names: list, n_rows: list[int]) -> NDArray | None:
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Mapping):
        unknown = [name for name in sample_weight if name not in names]
        if unknown:
            raise ValueError(
                f"sample_weight has weights for task {unknown[0]!r}: the tasks are {names}"
            )
        sample_weight = [sample_weight.get(name) for name in names]
    if not isinstance(sample_weight, list | tuple) or len(sample_weight) != len(names):
        raise ValueError(
            f"sample_weight must be a list or dict with the weights of each of the {len(names)} "
            "tasks"
        )
    parts = []
    for name, n, s in zip(names, n_rows, sample_weight, strict=True):
        part = np.ones(n) if s is None else np.asarray(s, float)
        if part.shape != (n,):
            raise ValueError(
                f"task {name!r}: sample_weight has shape {part.shape}, expected ({n},)"
            )
        parts.append(part)
    return np.concatenate(parts)


def read_task_groups(groups: Any, X: Any, table: TaskTable) -> NDArray | None:
    """Return the groups (n,) of the rows of a table that was read from X; None for None."""
    if groups is None or table.form != "pairs":
        return None if groups is None else np.asarray(groups)
    names, pairs = (X.keys(), X.values()) if isinstance(X, Mapping) else (range(len(X)), X)
    if isinstance(groups, Mapping):
        groups = [groups.get(name, ()) for name in names]
    if not isinstance(groups, list | tuple) or len(groups) != len(names):
        raise ValueError(
            f"groups must be a list or dict with the groups of each of the {len(names)} tasks"
        )
    for name, pair, part in zip(names, pairs, groups, strict=True):
        n = np.shape(pair[0])[0]
        if np.shape(part) != (n,):
            raise ValueError(f"task {name!r}: groups has shape {np.shape(part)}, expected ({n},)")
    return join_values([np.asarray(part) for part in groups])


# -- long tables ---------------------------------------------------------------------------------


def _read_long(X: Any, y: Any, sample_weight: Any, task: Any, names: list | None) -> TaskTable:
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], list | tuple)
    if isinstance(X, Mapping) or (is_list and np.ndim(X[0][0]) == 2):
        raise ValueError("task is for a long table: pairs (X, y) have their tasks already")
    column, labels = None, task
    if np.ndim(task) == 0:
        column = task
        X, labels = drop_column(X, task)
    labels, n = np.asarray(labels), np.shape(X)[0]
    if labels.shape != (n,):
        raise ValueError(f"task has shape {labels.shape}, expected ({n},): one per row of X")
    values = labels.tolist()
    missing = [row for row, label in enumerate(values) if is_missing(label)]
    if missing:
        raise ValueError(
            f"task is missing in row {missing[0]}: name the task of every row, or leave the row out"
        )
    if names is None:
        names = sorted(set(values), key=lambda label: (type(label).__name__, label))
    targets = np.asarray(y)
    if targets.shape != (n,):
        raise ValueError(f"y has shape {targets.shape}, expected ({n},): one per row of X")
    weights = None if sample_weight is None else np.asarray(sample_weight)
    number_of = {label: _task_number(label, names) for label in set(values)}
    numbers = np.array([number_of[label] for label in values], dtype=np.intp)
    return TaskTable(X, targets, weights, names, numbers, "long", column)


def _task_number(name: Any, names: list) -> int:
    if name not in names:
        raise ValueError(f"task {name!r} is not known: the tasks are {names}")
    return names.index(name)


def drop_column(X: Any, column: Any) -> tuple[Any, NDArray]:
    """Return a table without one column, and that column."""
    frame, names = as_frame(X), column_names(X)
    if frame is not None and column in frame.columns:
        return frame.drop(column).to_native(), frame.get_column(column).to_numpy()
    width = np.shape(X)[1] if np.ndim(X) == 2 else 0
    if not is_whole(column) or names is not None or not 0 <= column < width:
        options = names if names is not None else f"numbers from 0 to {width - 1}"
        raise ValueError(f"task={column!r} is no column of X: its columns are {options}")
    table = X if is_table(X) else np.asarray(X)
    return np.delete(table, int(column), axis=1), table[:, int(column)]


def join_values(parts: Sequence[NDArray], axis: int = 0) -> NDArray:
    """Join targets or labels of tasks; text next to numbers stays text next to numbers."""
    kinds = {"number" if part.dtype.kind in "iuf" else part.dtype.kind for part in parts}
    if len(kinds) > 1:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts) if axis == 0 else np.stack(parts, axis=axis)


def as_one_type(labels: NDArray) -> NDArray:
    """Return the labels of one task in their type, after those of several tasks were joined."""
    return np.array(labels.tolist()) if labels.dtype == object else labels
