"""Checks of what users hand to an estimator, and the dealing of rows into folds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf.layout import CellKind, CellLayout
from jointleaf.partitions import ADAPTERS, Task
from jointleaf.penalties import PredictionPenalty, SlopeNorm, Term
from jointleaf.rows import Rows

__all__ = [
    "check_numeric",
    "check_penalty",
    "deal",
    "is_ensemble",
    "is_whole",
    "split_labels",
]


def check_penalty(penalty: Term, n_rows: int, n_features: int, cells: CellKind) -> None:
    """Check a penalty against the data, before any work is done."""
    for term in penalty.terms:
        if isinstance(term, SlopeNorm):
            if term.is_auto and cells == "constant":
                raise ValueError(
                    f"penalty={penalty!r} with cells='constant' has no slopes to penalise: use "
                    "cells='linear' or Frobenius"
                )
            term.bind(CellLayout((1,), n_features, cells))
        elif isinstance(term, PredictionPenalty):
            term.check_rows(n_rows)


def is_ensemble(partitioner: Any) -> bool:
    """Whether this is a tree ensemble of a library that is known."""
    return any(adapter.matches(partitioner) for adapter in ADAPTERS)


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_numeric(X: ArrayLike) -> None:
    """Name the columns of a data frame that do not hold numbers."""
    dtypes = getattr(X, "dtypes", None)
    columns = getattr(X, "columns", None)
    if dtypes is None or columns is None:
        return
    wrong = [
        str(name)
        for name, dtype in zip(columns, dtypes, strict=True)
        if not _holds_numbers(X, name, str(dtype).lower())
    ]
    if wrong:
        raise ValueError(
            f"X has columns that are not numbers: {', '.join(wrong[:5])}"
            f"{' and more' if len(wrong) > 5 else ''}: encode them first, for example with "
            "sklearn.preprocessing.OrdinalEncoder or OneHotEncoder"
        )


def _holds_numbers(frame: Any, name: Any, dtype: str) -> bool:
    if dtype.startswith(("str", "string", "categor", "enum", "datetime", "timedelta", "date")):
        return False
    if dtype == "object":
        try:
            np.asarray(frame[name], dtype=float)
        except (TypeError, ValueError):
            return False
    return True


def split_labels(splits: list[tuple[NDArray, NDArray]] | None, n: int) -> NDArray[np.int64]:
    """Per row and split: 1 in training, 2 in validation, 3 in both, 0 in neither."""
    labels = np.zeros((n, len(splits or [])), np.int64)
    for k, (train, valid) in enumerate(splits or []):
        labels[train, k] |= 1
        labels[valid, k] |= 2
    return labels


def deal(rows: Rows, n_folds: int, task: Task) -> NDArray[np.intp]:
    """Deal rows out to folds in turn, class by class; their order is random already."""
    order = np.argsort(rows.y, kind="stable") if task == "classification" else np.arange(len(rows))
    number = np.empty(len(rows), np.intp)
    number[order] = np.arange(len(rows)) % max(n_folds, 1)
    return number
