"""Weights of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.problem import as_numbers

__all__ = ["check_task_weights"]


def check_task_weights(values: ArrayLike | None, names: Sequence[str]) -> NDArray[np.float64]:
    """Give gamma_t > 0, (T,); ones for None. Errors name the task."""
    if values is None:
        return np.ones(len(names))
    weights = as_numbers("task_weights", values)
    if weights.shape != (len(names),):
        raise ValueError(
            f"task_weights has shape {weights.shape}, but there are {len(names)} tasks: give one "
            f"positive number for each of {', '.join(map(str, names))}"
        )
    for name, weight in zip(names, weights, strict=True):
        if not (np.isfinite(weight) and weight > 0):
            raise ValueError(f"task_weights holds {weight:g} for task {name}: it must be positive")
    return weights
