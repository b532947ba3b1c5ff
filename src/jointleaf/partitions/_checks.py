"""Checks that every partitioner makes on its arguments, rows, targets and weights."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns
from jointleaf.partitions._base import Partitioner, TargetType

__all__ = ["TrainingRows", "as_seed", "check_apply_rows", "check_count", "check_fit_rows"]


class TrainingRows(NamedTuple):
    """What partitions are made from: rows with a positive weight only.

    Attributes
    ----------
    X : ndarray (n, d), float32 or float64
    y : ndarray (n,)
        Targets; class numbers in classification.
    weight : ndarray (n,) with mean 1, or None where all weights are equal
    n_classes : int
        Number of classes present; 0 in regression.
    columns : Columns
        What the columns of X hold; levels of categories are their codes.
    """

    X: NDArray
    y: NDArray
    weight: NDArray[np.float64] | None
    n_classes: int
    columns: Columns


def check_count(owner: object, name: str, value: Any, least: int) -> int:
    """Return the parameter `name` as an int, or say what is wrong with it."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"{type(owner).__name__}: {name}={value!r} is not possible; "
            f"give an integer of at least {least}."
        )
    return int(value)


def check_rows(X: ArrayLike) -> NDArray:
    """Return `X` as a two-dimensional float array; infinities and NaN are left to the library."""
    return check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False)


def check_weight(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64] | None:
    """Return weights (n,) as float64, or None; refuse negative or all-zero weights."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, but X has {n_rows} rows; "
            f"give one weight per row, shape ({n_rows},)."
        )
    if not np.all(np.isfinite(weight)) or weight.min() < 0 or weight.max() == 0:
        raise ValueError(
            f"sample_weight ranges from {weight.min()} to {weight.max()}; weights must be "
            "finite, not negative and not all zero. Drop the rows that should not count."
        )
    return weight


def check_fit_rows(
    X: ArrayLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    target_type: TargetType,
    columns: Columns | None = None,
) -> TrainingRows:
    """Check what `Partitioner.fit` was given and keep the rows that count.

    Parameters
    ----------
    X : array-like (n, d)
    y : array-like (n,) or None
        None is allowed where the partitioner does not look at targets: zeros then.
    sample_weight : array-like (n,) or None
    target_type : {"regression", "classification"}
    columns : Columns or None
        None where all columns hold numbers.

    Returns
    -------
    TrainingRows
    """
    if target_type not in ("regression", "classification"):
        raise ValueError(
            f'target_type={target_type!r} is unknown; use "regression" or "classification".'
        )
    X = check_rows(X)
    n_rows = X.shape[0]
    target = np.zeros(n_rows) if y is None else np.asarray(y)
    if target.shape != (n_rows,):
        raise ValueError(
            f"y has shape {target.shape}, but X has {n_rows} rows; "
            f"give one target per row, shape ({n_rows},)."
        )
    weight = check_weight(sample_weight, n_rows)
    if weight is not None and weight.min() == 0:
        counts = weight > 0
        X, target, weight = X[counts], target[counts], weight[counts]
    if weight is not None:
        # Equal weights must give exactly what no weights give, and the scale of the
        # weights must not meet the libraries' absolute thresholds (LightGBM's least
        # Hessian of a leaf): hence a mean of one.
        equal = weight.min() == weight.max()
        weight = None if equal else weight / weight.mean()
    n_classes = 0
    if target_type == "classification":
        classes, numbers = np.unique(target, return_inverse=True)
        n_classes = len(classes)
        if target.dtype.kind not in "iu":
            target = numbers
    else:
        target = target.astype(np.float64, copy=False)
    columns = Columns.numbers(X.shape[1]) if columns is None else columns.coded()
    return TrainingRows(X, target, weight, n_classes, columns)


def check_apply_rows(partitioner: Partitioner, X: ArrayLike) -> NDArray:
    """Return `X` (n, d) as floats once `partitioner` is fitted and d is what it was fitted on."""
    check_is_fitted(partitioner)
    rows = check_rows(X)
    if rows.shape[1] != partitioner.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} features, but {type(partitioner).__name__} is expecting "
            f"{partitioner.n_features_in_} features as input."
        )
    return rows


def as_seed(random_state: Any) -> int:
    """Return an integer seed: a given integer as it is, anything else a draw from it."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
