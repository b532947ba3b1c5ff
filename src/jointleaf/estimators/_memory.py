"""How much memory a fit takes, estimated before it."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.base import clone

from jointleaf._data.columns import as_frame, declared_columns
from jointleaf._data.statistics import MANY_CATEGORIES
from jointleaf._fit import recipes
from jointleaf._fit.limits import MemoryEstimate, Used
from jointleaf.estimators._params import JOPLEnParameters, look_at, memory_of

_WORTH_A_LOOK = 1.2  # times the estimate without slopes


def estimate_memory(
    estimator: JOPLEnParameters,
    X: Any,
    y: Any = None,
    *,
    n_classes: int = 2,
    n_tasks: int = 1,
    itemsize: int | None = None,
) -> MemoryEstimate:
    """Estimate the memory that a fit takes at its peak, to a factor of 1.5 or so.

    Without targets it counts everything that a fit may use: one that finds no use for slopes, or
    with more than 150,000 rows for a joint fit, takes less. With them it looks, where that matters.

    Parameters
    ----------
    estimator : JOPLEnRegressor, JOPLEnClassifier, MultiTaskJOPLEnRegressor or -Classifier
        Unfitted or fitted; only its parameters count.
    X : array-like or data frame (n, d), or (n, d) itself
        The rows of all tasks together. Of columns with categories every linear feature counts: give
        (n, m) with their number m where there are many.
    y : array-like (n,), optional
        Targets of rows X, of an estimator of one task. Where slopes may take much memory, the
        penalty is chosen as the fit begins with; of more than 150,000 rows a sample says what takes
        part: a few seconds at most, less than the fit.
    n_classes : int
        Of a `JOPLEnClassifier`, where y is not given.
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
    if y is not None:
        if isinstance(X, tuple):
            raise ValueError(
                f"y is given, but X={X!r} is the number of rows and columns: give the rows "
                "themselves, which are looked at, or leave y out"
            )
        n_classes = len(np.unique(y))
    shape = n, d, n_classes, n_tasks, itemsize, _has_many_categories(estimator, X)
    most = memory_of(estimator, *shape)
    least = memory_of(estimator, *shape, Used(slopes=False))
    if y is None or (n <= recipes.MANY_ROWS and most.total < _WORTH_A_LOOK * least.total):
        return most
    return memory_of(estimator, *shape, look_at(clone(estimator), X, y))


def _shape(X: Any) -> tuple[int, int]:
    shape = X if isinstance(X, tuple) else np.shape(X)
    if len(shape) != 2 or not all(isinstance(k, int | np.integer) and k > 0 for k in shape):
        raise ValueError(f"X={X!r} must be rows (n, d), or the pair (n, d) of positive numbers")
    return int(shape[0]), int(shape[1])


def _has_many_categories(estimator: JOPLEnParameters, X: Any) -> bool:
    """Whether a column of a data frame has so many categories that statistics replace them."""
    frame = as_frame(X)
    if frame is None:
        return False
    declared = declared_columns(estimator.categorical_features, X)
    return any(
        frame[:, j].drop_nulls().n_unique() > MANY_CATEGORIES
        for j, dtype in enumerate(frame.schema.dtypes())
        if j in declared or isinstance(dtype, nw.String | nw.Categorical | nw.Enum)
    )
