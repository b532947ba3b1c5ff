"""Checks of what users hand to an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.columns import Columns
from jointleaf.layout import CellKind, CellLayout
from jointleaf.penalties import PerTask, PredictionPenalty, SlopeNorm, TaskNorm, Term

__all__ = ["check_gaps", "check_penalty", "is_whole", "refuse_task_penalties"]


def check_penalty(penalty: Term, n_rows: int, n_features: int, cells: CellKind) -> None:
    """Check a penalty against the data, before any work is done."""
    for given in penalty.terms:
        term = given.penalty if isinstance(given, PerTask) else given
        if isinstance(term, SlopeNorm):
            if term.is_auto and cells == "constant":
                raise ValueError(
                    f"penalty={penalty!r} with cells='constant' has no slopes to penalise: use "
                    "cells='linear' or Frobenius"
                )
            term.bind(CellLayout((1,), n_features, cells))
        elif isinstance(term, PredictionPenalty):
            term.check_rows(n_rows)


def refuse_task_penalties(penalty: Any) -> None:
    """Refuse penalties that tell tasks apart, where there is only one."""
    for term in penalty.terms if isinstance(penalty, Term) else ():
        if isinstance(term, TaskNorm | PerTask):
            raise ValueError(
                f"penalty={penalty!r} is for several tasks: use L21 here, or "
                "MultiTaskJOPLEnRegressor, which also takes a single task"
            )


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_gaps(X: NDArray, columns: Columns) -> None:
    """Name a column of X (n, d) that has no values at all."""
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if empty.size:
        raise ValueError(
            f"column {columns[empty[0]].label!r} has no values at all in rows of positive weight: "
            "leave it out"
        )
