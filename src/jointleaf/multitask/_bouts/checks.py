"""Checks of the arguments that BoUTS estimators and partitioners share."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from jointleaf.partitions._checks import check_count

__all__ = ["check_number", "check_settings"]


def check_settings(owner: Any) -> None:
    """Check the parameters that say how trees are boosted; `owner` has them as attributes."""
    n_universal = check_count(owner, "n_universal", owner.n_universal, 0)
    n_task = check_count(owner, "n_task", owner.n_task, 0)
    if n_universal + n_task == 0:
        raise ValueError(
            f"{type(owner).__name__}: n_universal=0 and n_task=0 leave no trees; give at least one "
            "of them as a positive integer."
        )
    check_count(owner, "min_samples_leaf", owner.min_samples_leaf, 1)
    for name in ("universal_price", "task_price"):
        check_number(owner, name, 0.0, np.inf, "a number of at least 0 (a share of the variance)")
    for name in ("learning_rate", "subsample"):
        check_number(owner, name, 1e-6, 1.0, "a number above 0 and at most 1")


def check_number(owner: Any, name: str, low: float, high: float, wanted: str) -> None:
    """Check that a parameter is a number from `low` to `high`, and neither NaN nor infinite."""
    value = getattr(owner, name)
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not is_number or not np.isfinite(value) or not low <= value <= high:
        raise ValueError(
            f"{type(owner).__name__}: {name}={value!r} is not possible; give {wanted}."
        )
