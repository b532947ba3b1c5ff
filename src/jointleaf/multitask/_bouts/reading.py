"""The forms in which several tasks are given, read into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from jointleaf._data.columns import Columns, column_names, is_table

__all__ = ["Task", "TaskSet", "read_matrix", "read_tasks"]


class Task(NamedTuple):
    """One task: its name, rows X (n, d), targets y (n,) as given, and weights s (n,)."""

    name: Any
    X: NDArray[np.float64]
    y: NDArray
    s: NDArray[np.float64]


class TaskSet(NamedTuple):
    """All tasks.

    Attributes
    ----------
    tasks : list of Task
    feature_names : array of objects (d,) or None
        Column names where data frames with text as names were given.
    is_single : bool
        Whether they were given as one X and one y (n,): answers have no axis of tasks then.
    """

    tasks: list[Task]
    feature_names: NDArray | None
    is_single: bool


class _Given(NamedTuple):
    name: Any
    X: Any
    y: Any
    s: Any


def read_tasks(X: Any, y: Any = None, sample_weight: Any = None) -> TaskSet:
    """Read tasks from any form that `BoUTSRegressor.fit` takes, or say what is wrong with them."""
    if y is None:
        given, is_single = _of_pairs(X, sample_weight), False
    else:
        given, is_single = _of_outputs(X, y, sample_weight)
    names = column_names(given[0].X)
    tasks, shared = [], None
    for one in given:
        if column_names(one.X) != names:
            raise ValueError(
                f"task {one.name!r} has the columns {column_names(one.X)}, but task "
                f"{given[0].name!r} has {names}; give all tasks the same columns in the same order."
            )
        # With one X for all tasks it is read once.
        if shared is None or one.X is not shared[0]:
            shared = (one.X, read_matrix(one.X, f"X of task {one.name!r}"))
        tasks.append(_checked(one, shared[1]))
        if tasks[-1].X.shape[1] != tasks[0].X.shape[1]:
            raise ValueError(
                f"task {one.name!r} has {tasks[-1].X.shape[1]} columns, but task "
                f"{given[0].name!r} has {tasks[0].X.shape[1]}; give all tasks the same columns."
            )
    is_named = names is not None and all(isinstance(name, str) for name in names)
    return TaskSet(tasks, np.array(names, dtype=object) if is_named else None, is_single)


def read_matrix(X: Any, what: str) -> NDArray[np.float64]:
    """Give a table of numbers as a float matrix (n, d); NaN where missing.

    Parameters
    ----------
    X : data frame or array-like (n, d)
    what : str
        What messages call it.
    """
    if is_table(X):
        columns = Columns.read(X)
        if columns.categorical.size:
            label = columns[int(columns.categorical[0])].label
            raise ValueError(
                f"{what}: column {label!r} holds categories, but numbers are needed; turn it into "
                "numbers or indicators of its levels first."
            )
        matrix = columns.encode(X)
    else:
        try:
            matrix = check_array(X, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
        except ValueError as cause:
            raise ValueError(f"{what}: {cause}") from cause
    infinite = np.argwhere(np.isinf(matrix))
    if infinite.size:
        names = column_names(X)
        row, j = (int(k) for k in infinite[0])
        column = j if names is None else names[j]
        raise ValueError(
            f"{what}: column {column!r} holds {matrix[row, j]} in row {row}; replace infinite "
            "values, by NaN if they are missing."
        )
    return matrix


def _of_pairs(tasks: Any, sample_weight: Any) -> list[_Given]:
    """Read a list or dict of pairs (X_t, y_t)."""
    if isinstance(tasks, Mapping):
        names = list(tasks)
        pairs = [tasks[name] for name in names]
    elif isinstance(tasks, Sequence) and not isinstance(tasks, str):
        names, pairs = list(range(len(tasks))), list(tasks)
    else:
        raise ValueError(
            "a single table requires y to be passed, but the target y is None; give y, or tasks "
            f"as a list or dict of pairs (X_t, y_t) in place of this {type(tasks).__name__}."
        )
    if not pairs:
        raise ValueError("there are no tasks; give at least one pair (X_t, y_t).")
    weights = _weights_of(sample_weight, names)
    given = []
    for name, pair, s in zip(names, pairs, weights, strict=True):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            size = f" of length {len(pair)}" if isinstance(pair, tuple | list) else ""
            raise ValueError(
                f"task {name!r} is a {type(pair).__name__}{size}; give a pair (X_t, y_t)."
            )
        given.append(_Given(name, pair[0], pair[1], s))
    return given


def _weights_of(sample_weight: Any, names: list) -> list:
    """Weights of every task, None for none."""
    if sample_weight is None:
        return [None] * len(names)
    if isinstance(sample_weight, Mapping):
        strange = [name for name in sample_weight if name not in names]
        if strange:
            raise ValueError(
                f"sample_weight names the task {strange[0]!r}, but the tasks are {names}."
            )
        return [sample_weight.get(name) for name in names]
    if not isinstance(sample_weight, Sequence) or len(sample_weight) != len(names):
        raise ValueError(
            f"sample_weight is a {type(sample_weight).__name__}; with tasks as pairs give a list "
            f"of {len(names)} arrays, or a dict from task to array."
        )
    return list(sample_weight)


def _of_outputs(X: Any, y: Any, sample_weight: Any) -> tuple[list[_Given], bool]:
    """Read one X with y (n,) or (n, T)."""
    names = column_names(y)
    targets = y.to_numpy() if names is not None else np.asarray(y)
    if targets.ndim == 1:
        return [_Given(0, X, targets, sample_weight)], True
    if targets.ndim != 2 or targets.shape[1] == 0:
        raise ValueError(
            f"y has shape {targets.shape}; give (n,) for one task or (n, T) for T tasks."
        )
    labels = range(targets.shape[1]) if names is None else names
    return [_Given(name, X, targets[:, t], sample_weight) for t, name in enumerate(labels)], False


def _checked(one: _Given, X: NDArray[np.float64]) -> Task:
    y = np.asarray(one.y)
    if len(X) == 0:
        raise ValueError(f"task {one.name!r} has no rows; leave it out or give it some.")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (len(X),):
        raise ValueError(
            f"task {one.name!r}: y has shape {y.shape}, but X has {len(X)} rows; give one target "
            f"per row, shape ({len(X)},)."
        )
    s = np.ones(len(X)) if one.s is None else np.asarray(one.s, dtype=np.float64)
    if s.shape != (len(X),):
        raise ValueError(
            f"task {one.name!r}: sample_weight has shape {s.shape}, but X has {len(X)} rows; give "
            f"one weight per row, shape ({len(X)},)."
        )
    if not np.isfinite(s).all() or s.min() < 0 or s.max() == 0:
        raise ValueError(
            f"task {one.name!r}: sample_weight ranges from {s.min()} to {s.max()}; weights must be "
            "finite, not negative and not all zero. Drop the rows that should not count."
        )
    return Task(one.name, X, y, s)
