"""Checks of what users hand to an estimator."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import check_device
from jointleaf._core.fitting import check_limits
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.penalties import PerTask, PredictionPenalty, SlopeNorm, TaskNorm, Term
from jointleaf._core.solvers import check_solver_name
from jointleaf._data.columns import Columns
from jointleaf._fit.recipes import RECIPES, Recipe
from jointleaf.partitions._base import LeftOut

__all__ = [
    "check_effect",
    "check_gaps",
    "check_parameters",
    "check_penalty",
    "is_whole",
    "refuse_task_penalties",
]


def check_parameters(estimator: Any) -> None:
    """Check the values of an estimator's parameters, before any work is done."""
    for value in estimator.get_params(deep=False).values():
        if isinstance(value, LeftOut):
            value.raise_error()
    if isinstance(estimator.penalty, str) and estimator.penalty != "auto":
        raise ValueError(f"penalty={estimator.penalty!r} is not known: use 'auto' or a Penalty")
    if not isinstance(estimator.penalty, str | Term):
        raise TypeError(
            f"penalty={estimator.penalty!r} must be 'auto' or a Penalty such as Frobenius(0.1)"
        )
    if estimator.recipe not in ("auto", *RECIPES):
        names = ", ".join(map(repr, RECIPES))
        raise ValueError(f"recipe={estimator.recipe!r} is not known: use 'auto', {names}")
    if estimator.cells not in ("linear", "constant"):
        raise ValueError(f"cells={estimator.cells!r} is not known: use 'linear' or 'constant'")
    if isinstance(estimator.cv, int | np.integer) and estimator.cv < 2:
        raise ValueError(f"cv={estimator.cv!r} must be at least 2 folds, or None")
    if not (isinstance(estimator.one_se, bool | np.bool_) or estimator.one_se == "auto"):
        raise TypeError(f"one_se={estimator.one_se!r} must be True, False or 'auto'")
    if not (isinstance(estimator.clip, bool | np.bool_) or estimator.clip == "cell"):
        raise TypeError(f"clip={estimator.clip!r} must be True, False or 'cell'")
    for name in ("root_cell", "add_indicator"):
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise TypeError(f"{name}={getattr(estimator, name)!r} must be True or False")
    if estimator.n_jobs is not None and not is_whole(estimator.n_jobs):
        raise TypeError(f"n_jobs={estimator.n_jobs!r} must be a whole number or None")
    check_limits(estimator.tol, estimator.max_iter)
    check_solver_name(estimator.solver)
    check_device(estimator.device)


def check_effect(estimator: Any, recipe: Recipe) -> None:
    """Raise an error for a parameter that would have no effect, before any work is done."""
    is_default = estimator.penalty == "auto" and estimator.partitioner == "auto"
    if estimator.recipe not in ("auto", "joint") and not is_default:
        raise ValueError(
            f"recipe={estimator.recipe!r} chooses partitions and penalty itself: leave partitioner "
            "and penalty at 'auto', or use recipe='joint'"
        )
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(estimator)).parameters.items()
    }

    def refuse(name: str, why: str) -> None:
        value, default = getattr(estimator, name), defaults[name]
        if not (value is default or (np.isscalar(value) and value == default)):
            raise ValueError(f"{name}={value!r} has no effect {why}")

    for name in recipe.ignores:
        refuse(
            name,
            f"with recipe={recipe.name!r}, which solves no joint problem (the default above 10,000 "
            "rows): leave it out, or use recipe='joint' or recipe='blend'",
        )
    if recipe.name == "boosting" and estimator.clip == "cell":
        raise ValueError(
            "clip='cell' is not possible with recipe='boosting' (the default above 10,000 rows): "
            "use clip=True, recipe='joint' or recipe='blend'"
        )
    if isinstance(estimator.penalty, Term) and not estimator.penalty.is_auto:
        # scikit-learn's checks set splits on every estimator that has a parameter cv.
        for name in ("cv", "one_se") if is_whole(estimator.cv) else ("one_se",):
            refuse(name, f"with penalty={estimator.penalty!r}, which leaves nothing to choose: "
                   "leave it out, or use a strength of 'auto'")  # fmt: skip
    if estimator.cells == "constant":
        for name in ("linear_features", "add_indicator"):
            refuse(name, "with cells='constant': leave it out, or use cells='linear'")


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
