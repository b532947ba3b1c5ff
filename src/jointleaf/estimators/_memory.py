"""The memory of a fit: estimated, and checked against what is available before it begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._fit.memory import VARIABLE, MemoryEstimate, available_memory, readable_bytes
from jointleaf.estimators._params import JOPLEnParameters

__all__ = ["check_memory", "estimate_memory"]


def estimate_memory(
    estimator: JOPLEnParameters,
    X: Any,
    *,
    n_classes: int = 2,
    n_tasks: int = 1,
    itemsize: int | None = None,
) -> MemoryEstimate:
    """Estimate the memory that a fit takes at its peak, to a factor of two or so.

    Parameters
    ----------
    estimator : JOPLEnRegressor, JOPLEnClassifier, MultiTaskJOPLEnRegressor or -Classifier
        Unfitted or fitted; only its parameters count.
    X : array-like or data frame (n, d), or (n, d) itself
        The rows of all tasks together. Of columns with categories every linear feature counts: give
        (n, m) with their number m where there are many.
    n_classes : int
        Of a `JOPLEnClassifier`.
    n_tasks : int
        Of an estimator of several tasks.
    itemsize : int, optional
        Bytes of a number: 4 for float32 rows, 8 else; by default taken from X.

    Returns
    -------
    MemoryEstimate

    Examples
    --------
    >>> from jointleaf import Frobenius, JOPLEnRegressor, estimate_memory
    >>> model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.1))
    >>> estimate_memory(model, (1_000_000, 20)).total > 2e9
    True
    """
    if not isinstance(estimator, JOPLEnParameters):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}: give a JOPLEnRegressor, a "
            "JOPLEnClassifier, or one of several tasks"
        )
    n, d = _shape(X)
    if itemsize is None:
        itemsize = 4 if str(getattr(X, "dtype", "")) == "float32" else 8
    return estimator.memory_of(n, d, n_classes, n_tasks, itemsize)


def _shape(X: Any) -> tuple[int, int]:
    shape = X if isinstance(X, tuple) else np.shape(X)
    if len(shape) != 2 or not all(isinstance(k, int | np.integer) and k > 0 for k in shape):
        raise ValueError(f"X={X!r} must be rows (n, d), or the pair (n, d) of positive numbers")
    return int(shape[0]), int(shape[1])


def check_memory(estimator: JOPLEnParameters, X: NDArray, y: NDArray) -> None:
    """Raise MemoryError for rows X (n, d) whose fit would not fit into memory.

    Systems that do not say what is available are not checked.
    """
    available = available_memory()
    if available is None:
        return
    n, d = X.shape
    n_classes = len(set(y.tolist())) if y.ndim == 1 else 2  # of no account in regression
    n_tasks = y.shape[1] if y.ndim == 2 else 1
    needed = estimator.memory_of(n, d, n_classes, n_tasks, X.dtype.itemsize)
    if needed.total > available:
        raise MemoryError(
            f"fitting {n} rows with {d} columns needs about {readable_bytes(needed.total)} of "
            f"memory and {readable_bytes(available)} are available; {needed}. Give fewer rows or "
            f"float32, fewer or smaller partitions, or solver='fista'; {VARIABLE} (bytes) "
            "overrules what the system says is available"
        )
