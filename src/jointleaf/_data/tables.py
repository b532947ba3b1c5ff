"""From what users hand to an estimator to the matrix of numbers that it works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data

from jointleaf._data.columns import Columns, column_names, column_numbers, is_table
from jointleaf._fit.memory import check_memory

__all__ = ["chosen_columns", "read_rows", "read_training_rows"]

_DTYPES = [np.float64, np.float32]


def read_training_rows(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    known: Mapping[int, NDArray | None],
    sample_weight: ArrayLike | None = None,
    *,
    multi_output: bool = False,
) -> tuple[Columns, NDArray, NDArray]:
    """Check training rows and learn what their columns hold.

    Parameters
    ----------
    estimator : BaseJOPLEn
        Gets ``n_features_in_`` and ``feature_names_in_``.
    X, y : what `fit` was given
    known : mapping from column number to levels
        Columns that a model fitted before treats as categories.
    sample_weight : array-like (n,), optional
        Levels are learnt from rows of positive weight.
    multi_output : bool
        Whether y may be (n, T).

    Returns
    -------
    columns : Columns
    matrix : float array (n, d)
        Numbers and codes, NaN where missing.
    targets : array (n,)

    Raises
    ------
    MemoryError
        Where the fit of an estimator with cells would not fit into memory.
    """
    found = _read_training_rows(estimator, X, y, known, sample_weight, multi_output)
    check_memory(estimator, found[1], found[2])
    return found


def _read_training_rows(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    known: Mapping[int, NDArray | None],
    sample_weight: ArrayLike | None,
    multi_output: bool,
) -> tuple[Columns, NDArray, NDArray]:
    numeric = estimator._target_type == "regression"
    declared = estimator.categorical_features
    _check_kind(X)
    _check_names(X)
    if not _has_categories(X):
        matrix, targets = validate_data(
            estimator,
            X,
            y,
            dtype=_DTYPES,
            ensure_all_finite="allow-nan",
            ensure_min_samples=2,
            y_numeric=numeric,
            multi_output=multi_output,
        )
        if declared is None and not known:
            return Columns.numbers(matrix.shape[1], column_names(X)), matrix, targets
        X = _as_given(X, matrix)
    else:
        validate_data(estimator, X, skip_check_array=True)
    counts = None
    if sample_weight is not None and np.shape(sample_weight) == np.shape(X)[:1]:
        counts = np.asarray(sample_weight) > 0  # other weights are refused elsewhere
    columns = Columns.read(X, declared, known, counts)
    matrix, targets = check_X_y(
        _finite(columns.encode(X, _dtype(X)), columns),
        y,
        dtype=_DTYPES,
        ensure_all_finite="allow-nan",
        ensure_min_samples=2,
        y_numeric=numeric,
        multi_output=multi_output,
    )
    return columns, matrix, targets


def read_rows(estimator: Any, X: Any) -> NDArray:
    """Give the matrix (n, d) of rows with the same columns as in training."""
    _check_kind(X)
    columns: Columns = estimator.columns_
    if not _has_categories(X):
        matrix = validate_data(
            estimator, X, reset=False, dtype=_DTYPES, ensure_all_finite="allow-nan"
        )
        if not columns.categorical.size:
            return matrix
        X = _as_given(X, matrix)
    else:
        validate_data(estimator, X, reset=False, skip_check_array=True)
    matrix = _finite(columns.encode(X, _dtype(X)), columns)
    return check_array(matrix, dtype=_DTYPES, ensure_all_finite="allow-nan")


def chosen_columns(linear_features: Any, columns: Columns, X: Any) -> NDArray[np.intp] | None:
    """Columns that the linear models see, as numbers; None for all."""
    if linear_features is None:
        return None
    if isinstance(linear_features, str):
        if linear_features != "numeric":
            raise ValueError(
                f"linear_features={linear_features!r} is not known: use 'numeric', a list of "
                "column names or numbers, or None for all"
            )
        chosen = np.flatnonzero(columns.n_categories == 0)
    else:
        numbers = column_numbers(linear_features, column_names(X), len(columns), "linear_features")
        chosen = np.array(sorted(numbers), dtype=np.intp)
    if not chosen.size:
        raise ValueError(
            f"linear_features={linear_features!r} leaves no column to the linear models: use "
            "cells='constant' for cells without them"
        )
    return chosen


def _check_kind(X: Any) -> None:
    """Refuse what holds rows in a form of its own, and say what to give instead."""
    kind = type(X).__name__
    if kind == "LazyFrame":
        raise TypeError("X is a polars LazyFrame, which has no rows yet: give X.collect()")
    if kind in ("DMatrix", "QuantileDMatrix", "Pool", "Dataset"):
        raise TypeError(
            f"X is a {kind}, which only its own library can read: give the data frame or matrix "
            "that it was made from"
        )


def _check_names(X: Any) -> None:
    """Refuse a name that several columns have."""
    names = column_names(X) or []
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"X has several columns with the name {twice[0]!r}: rename them")


def _as_given(X: Any, matrix: NDArray) -> Any:
    """Tables and arrays as they are, because floats may round whole numbers; else the matrix."""
    return X if is_table(X) or isinstance(X, np.ndarray) else matrix


def _has_categories(X: Any) -> bool:
    """Whether some column may hold something else than numbers."""
    if not is_table(X):
        return False
    dtypes = [X.dtype] if isinstance(X, np.ndarray) else list(X.dtypes)
    return not all(_is_numeric(str(dtype).lower()) for dtype in dtypes)


def _is_numeric(dtype: str) -> bool:
    return dtype.startswith(("int", "uint", "float", "bool", "decimal"))


def _dtype(X: Any) -> type[np.floating]:
    """float32 where every column is, else float64."""
    dtypes = [X.dtype] if isinstance(X, np.ndarray) else list(X.dtypes)
    return np.float32 if {str(d).lower() for d in dtypes} == {"float32"} else np.float64


def _finite(matrix: NDArray, columns: Columns) -> NDArray:
    wrong = np.flatnonzero(np.isinf(matrix).any(axis=0))
    if wrong.size:
        raise ValueError(
            f"column {columns[wrong[0]].label!r} contains infinity or a value too large: replace "
            "it or mark it as missing (NaN)"
        )
    return matrix
