"""The forms in which several tasks can be given, read into one: a long table and task numbers.

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

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import column_names, is_table

__all__ = ["Form", "LongTable", "drop_column", "joined_values", "read_long_table", "rows_by_task"]

Form = Literal["pairs", "outputs", "single", "long"]


@dataclass(frozen=True)
class LongTable:
    """All rows of all tasks.

    Attributes
    ----------
    X : data frame or array (n, d)
    y : array (n,), or (n, T) where every task has all rows
    s : array (n,) or None
        Sample weights.
    names : list
        Of the tasks.
    numbers : integers (n,) or None
        Task of every row; None where every task has all rows.
    form : {"pairs", "outputs", "single", "long"}
    column : str, int or None
        The column of X that held the task, and that X no longer has.
    """

    X: Any
    y: NDArray
    s: NDArray | None
    names: list
    numbers: NDArray[np.intp] | None
    form: Form
    column: Any = None


def read_long_table(
    X: Any, y: Any = None, sample_weight: Any = None, task: Any = None, names: list | None = None
) -> LongTable:
    """Read tasks in any form; `names` are those of the tasks of a model fitted before."""
    if task is not None:
        if y is None:
            raise ValueError(
                "y is missing: with task, the task of every row, give X and y of all tasks"
            )
        return _from_long(X, y, sample_weight, task, names)
    if y is None:
        return _from_pairs(X, sample_weight, names)
    if isinstance(X, list | tuple) and X and np.ndim(X[0]) == 2:
        raise ValueError(
            "X is a list of tables and y a list besides: give pairs, [(X_1, y_1), (X_2, y_2)]"
        )
    targets = _targets(y)
    weights = None if sample_weight is None else np.asarray(sample_weight)
    if targets.ndim == 1:
        if names is not None and len(names) > 1:
            raise ValueError(
                f"y has shape {targets.shape}, but there are {len(names)} tasks: give a column for "
                "each, or task, the task of every row"
            )
        return LongTable(X, targets, weights, names or [0], None, "single")
    found = names or column_names(y) or list(range(targets.shape[1]))
    if len(found) != targets.shape[1]:
        raise ValueError(
            f"y has {targets.shape[1]} columns, but there are {len(found)} tasks: give one for each"
        )
    for name, column in zip(found, targets.T, strict=True):
        if _has_gaps(column):
            raise ValueError(
                f"y contains NaN or infinity for task {name!r}: give the tasks as pairs (X, y), "
                "each with its own rows, and leave these out"
            )
    return LongTable(X, targets, weights, list(found), None, "outputs")


def _has_gaps(y: NDArray) -> bool:
    return y.dtype.kind == "f" and not np.isfinite(y).all()


def _targets(y: Any) -> NDArray:
    targets = np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 0:
        raise ValueError("y has no column: give one per task")
    if targets.ndim not in (1, 2):
        raise ValueError(f"y has shape {targets.shape}: give (n,), or (n, T) with T tasks")
    return targets


def _from_pairs(tasks: Any, sample_weight: Any, names: list | None) -> LongTable:
    if isinstance(tasks, Mapping):
        found, pairs = list(tasks), list(tasks.values())
    elif isinstance(tasks, list | tuple):
        found, pairs = list(range(len(tasks))), list(tasks)
    else:
        raise ValueError(
            "requires y to be passed, but the target y is None: give y, or several tasks as a "
            "list or dict of pairs (X, y)"
        )
    if not pairs:
        raise ValueError("there is no task: give at least one pair (X, y)")
    if names is not None:
        unknown = [name for name in found if name not in names]
        if unknown:
            raise ValueError(f"task {unknown[0]!r} is not known: the tasks are {names}")
    for name, pair in zip(found, pairs, strict=True):
        if not (isinstance(pair, list | tuple) and len(pair) == 2):
            raise ValueError(
                f"task {name!r} must be a pair (X, y): give [(X_1, y_1), (X_2, y_2)], or a dict "
                "with names"
            )
        _check_lengths(name, *pair)
    _check_columns(found, [X for X, _ in pairs])
    numbers = [np.full(np.shape(X)[0], t) for t, (X, _) in enumerate(pairs)]
    y = joined_values([np.asarray(y) for _, y in pairs])
    s = _weights_of_pairs(sample_weight, found, pairs)
    order = np.arange(len(found)) if names is None else np.array([names.index(n) for n in found])
    table = _stacked([X for X, _ in pairs])
    task_numbers = order[np.concatenate(numbers)]
    return LongTable(table, y, s, found if names is None else names, task_numbers, "pairs")


def joined_values(parts: Sequence[NDArray], axis: int = 0) -> NDArray:
    """Put targets or labels together; text next to numbers stays text next to numbers."""
    kinds = {"number" if part.dtype.kind in "iuf" else part.dtype.kind for part in parts}
    if len(kinds) > 1:
        parts = [part.astype(object) for part in parts]
    return np.concatenate(parts) if axis == 0 else np.stack(parts, axis=axis)


def _check_lengths(name: Any, X: Any, y: Any) -> None:
    shape, targets = np.shape(X), np.asarray(y)
    if len(shape) != 2:
        raise ValueError(f"task {name!r}: X has shape {shape}, expected (n, d)")
    if shape[0] == 0:
        raise ValueError(f"task {name!r} has no rows: leave it out")
    if targets.shape != (shape[0],):
        raise ValueError(
            f"task {name!r}: y has shape {targets.shape}, expected ({shape[0]},): one per row of X"
        )
    if _has_gaps(targets):
        raise ValueError(f"task {name!r}: y contains NaN or infinity: remove these rows")


def _check_columns(names: Sequence, tables: Sequence) -> None:
    first, width = column_names(tables[0]), np.shape(tables[0])[1]
    for name, X in zip(names[1:], tables[1:], strict=True):
        if np.shape(X)[1] != width:
            raise ValueError(
                f"task {name!r} has {np.shape(X)[1]} features, but task {names[0]!r} has {width}: "
                "tasks must have the same features"
            )
        own = column_names(X)
        if own != first:
            pairs = list(zip(own or range(width), first or range(width), strict=True))
            differing = [(a, b) for a, b in pairs if a != b]
            if not differing:  # names that are numbers, and none at all
                continue
            mine, theirs = differing[0]
            raise ValueError(
                f"task {name!r} has the column {mine!r} where task {names[0]!r} has {theirs!r}: "
                "tasks must have the same features in the same order"
            )


def _stacked(tables: Sequence[Any]) -> Any:
    """One table of the rows of several, of the kind of the first."""
    first = tables[0]
    kind = type(first).__module__.split(".")[0]
    if kind == "pandas":
        return _stacked_pandas(tables)
    if kind == "polars":
        import polars as pl

        return pl.concat(tables, how="vertical_relaxed")
    return np.concatenate([np.asarray(X) for X in tables])


def _stacked_pandas(tables: Sequence[Any]) -> Any:
    """pandas.concat, which forgets that a column holds categories where these differ."""
    import pandas as pd

    first = tables[0]
    frames = [pd.DataFrame(X).set_axis(range(first.shape[1]), axis=1) for X in tables]
    whole = pd.concat(frames, ignore_index=True)
    for j in whole.columns:
        columns = [frame[j] for frame in frames]
        if any(isinstance(column.dtype, pd.CategoricalDtype) for column in columns):
            whole[j] = whole[j].astype("category")
    return whole.set_axis(first.columns, axis=1)


def _weights_of_pairs(sample_weight: Any, names: list, pairs: list) -> NDArray | None:
    if sample_weight is None:
        return None
    given = sample_weight
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"sample_weight has weights for task {unknown[0]!r}: the tasks are {names}"
            )
        given = [given.get(name) for name in names]
    if not isinstance(given, list | tuple) or len(given) != len(names):
        raise ValueError(
            f"sample_weight must be a list or dict with the weights of each of the {len(names)} "
            "tasks"
        )
    parts = []
    for name, (X, _), s in zip(names, pairs, given, strict=True):
        n = np.shape(X)[0]
        part = np.ones(n) if s is None else np.asarray(s, float)
        if part.shape != (n,):
            raise ValueError(
                f"task {name!r}: sample_weight has shape {part.shape}, expected ({n},)"
            )
        parts.append(part)
    return np.concatenate(parts)


def _from_long(X: Any, y: Any, sample_weight: Any, task: Any, names: list | None) -> LongTable:
    if isinstance(X, Mapping) or (isinstance(X, list | tuple) and _is_pair(X[:1])):
        raise ValueError("task is for a long table: pairs (X, y) have their tasks already")
    column = None
    if np.ndim(task) == 0:
        column = task
        X, labels = drop_column(X, task)
    else:
        labels = np.asarray(task)
    n = np.shape(X)[0]
    if labels.shape != (n,):
        raise ValueError(f"task has shape {labels.shape}, expected ({n},): one per row of X")
    values = labels.tolist()
    missing = [row for row, label in enumerate(values) if label is None or label != label]
    if missing:
        raise ValueError(
            f"task is missing in row {missing[0]}: name the task of every row, or leave the row out"
        )
    found = names if names is not None else sorted(set(values), key=_sort_key)
    targets = np.asarray(y)
    if targets.shape != (n,):
        raise ValueError(f"y has shape {targets.shape}, expected ({n},): one per row of X")
    weights = None if sample_weight is None else np.asarray(sample_weight)
    return LongTable(X, targets, weights, found, _numbers(labels, found), "long", column)


def _is_pair(first: Any) -> bool:
    """Whether a list begins with something that has rows of its own."""
    return len(first) == 1 and isinstance(first[0], list | tuple) and np.ndim(first[0][0]) == 2


def _sort_key(label: Any) -> tuple[str, Any]:
    return type(label).__name__, label


def _numbers(labels: NDArray, names: list) -> NDArray[np.intp]:
    known = {name: t for t, name in enumerate(names)}
    values = labels.tolist()
    for label in values:
        if label not in known:
            raise ValueError(f"task {label!r} is not known: the tasks are {names}")
    return np.array([known[label] for label in values], dtype=np.intp)


def drop_column(X: Any, column: Any) -> tuple[Any, NDArray]:
    """Give a table without one column, and that column."""
    names = column_names(X)
    if names is not None and column in names:
        labels = np.asarray(X[column])
        if type(X).__module__.split(".")[0] == "polars":
            return X.drop(column), labels
        return X.drop(columns=[column]), labels
    width = np.shape(X)[1] if np.ndim(X) == 2 else 0
    is_number = isinstance(column, int | np.integer) and not isinstance(column, bool)
    if not is_number or names is not None or not 0 <= column < width:
        options = names if names is not None else f"numbers from 0 to {width - 1}"
        raise ValueError(f"task={column!r} is no column of X: its columns are {options}")
    table = X if is_table(X) else np.asarray(X)
    return np.delete(table, int(column), axis=1), table[:, int(column)]


def rows_by_task(table: LongTable, n_tasks: int) -> list[tuple[NDArray[np.intp], NDArray]]:
    """Row numbers and targets of every task."""
    if table.numbers is None:
        everything = np.arange(len(table.y))
        targets = table.y[:, None] if table.y.ndim == 1 else table.y
        return [(everything, targets[:, t]) for t in range(n_tasks)]
    rows = [np.flatnonzero(table.numbers == t) for t in range(n_tasks)]
    return [(own, table.y[own]) for own in rows]
