"""The one objective with which the multitask benchmark judges the weights of both packages.

With C and T of shape (tasks, d, cells) for the common and the task-specific slopes::

    J = sum_t (1 / 2 n_t) sum_n (f_t(x_n) - y_n)^2
        + common * sum_i ||C[:, i, :]||_F + task * sum_t sum_i ||T[t, i, :]||_2

    f_t(x) = sum_p <w_{t,c_p(x)}, x> + b_{t,c_p(x)},    w = C + T,    biases b not penalised

Only NumPy is needed, so that it runs in the environment of either package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Problem", "load_problem", "objective", "outputs", "selected"]


@dataclass(frozen=True)
class Problem:
    """Standardised rows X (n, d), targets Y (n, tasks) and global cells codes (tasks, n, P)."""

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    codes: NDArray[np.integer]
    common: float
    task: float


def load_problem(data: str, codes: str, common: float, task: float) -> Problem:
    """Read a problem from the file of its data and the file of its cells."""
    with np.load(data) as arrays, np.load(codes) as cells:
        return Problem(
            arrays["X_train"].astype(np.float64),
            arrays["Y_train"].astype(np.float64),
            cells["codes_train"],
            common,
            task,
        )


def outputs(
    X: NDArray[np.float64],
    codes: NDArray[np.integer],
    slopes: NDArray[np.float64],
    biases: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Compute f of one task for rows X (n, d) in cells codes (n, P), slopes (d, cells)."""
    values = X @ slopes + biases
    return np.take_along_axis(values, codes, axis=1).sum(axis=1)


def objective(
    problem: Problem,
    C: NDArray[np.float64],
    T: NDArray[np.float64],
    biases: NDArray[np.float64],
) -> float:
    """Compute J (top of this file); biases (tasks, cells)."""
    C, T = np.asarray(C, np.float64), np.asarray(T, np.float64)
    loss = 0.0
    for t, codes in enumerate(problem.codes):
        residual = outputs(problem.X, codes, C[t] + T[t], biases[t]) - problem.Y[:, t]
        loss += float(residual @ residual) / (2 * len(residual))
    on_common = np.sqrt(np.sum(C**2, axis=(0, 2))).sum()
    on_tasks = np.sqrt(np.sum(T**2, axis=2)).sum()
    return loss + problem.common * float(on_common) + problem.task * float(on_tasks)


def selected(
    C: NDArray[np.float64], T: NDArray[np.float64], threshold: float = 1e-4
) -> tuple[list[int], Sequence[list[int]]]:
    """Give the common features and those that only one task has, by the rule of the paper."""
    common = np.sqrt(np.sum(np.square(C, dtype=np.float64), axis=(0, 2))) > threshold
    of_tasks = np.sqrt(np.sum(np.square(T, dtype=np.float64), axis=2)) > threshold
    return np.flatnonzero(common).tolist(), [
        np.flatnonzero(row & ~common).tolist() for row in of_tasks
    ]
