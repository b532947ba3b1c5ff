"""Training and validation rows of cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from jointleaf._data.rows import Rows
from jointleaf.partitions import TargetType

__all__ = ["given_splits", "make_folds", "split_labels"]

Splits = list[tuple[NDArray, NDArray]]

_FEW_ROWS, _SOME_ROWS = 400, 2000  # between them the recipe has three folds
_MAX_CV_ROWS = 2500  # up to here K folds; above, one validation split


def given_splits(cv: Any, X: NDArray, y: NDArray, target_type: TargetType) -> Splits | None:
    """Give the splits that the user made (a splitter or an iterable of index pairs), if any."""
    if cv is None or isinstance(cv, int | np.integer):
        return None
    splitter = check_cv(cv, y, classifier=target_type == "classification")
    try:
        splits = [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y)]
        for part in (part for split in splits for part in split):
            np.arange(len(y))[part]  # an index that does not fit raises
    except (IndexError, TypeError) as cause:
        raise ValueError(
            f"cv={cv!r} must be a number of folds, a splitter, or pairs of row indices "
            f"(training, validation) below {len(y)}: {cause}"
        ) from cause
    return splits


def split_labels(splits: Splits | None, n: int) -> NDArray[np.int64]:
    """Per row and split: 1 in training, 2 in validation, 3 in both, 0 in neither."""
    labels = np.zeros((n, len(splits or [])), np.int64)
    for k, (train, valid) in enumerate(splits or []):
        labels[train, k] |= 1
        labels[valid, k] |= 2
    return labels


def make_folds(
    rows: Rows,
    cv: Any,
    splits: Splits | None,
    valid: Rows | None,
    target_type: TargetType,
    *,
    is_recipe: bool = False,
) -> list[tuple[Rows, Rows]]:
    """Give training and validation rows of every fold; none where there are too few rows.

    Parameters
    ----------
    rows : Rows
        All training rows; their labels say where they are in `splits`.
    cv : None, int or what `splits` were made from
    splits : pairs of indices or None
    valid : Rows or None
        Validation rows of their own, which come before everything else.
    target_type : {"regression", "classification"}
    is_recipe : bool
        For the default recipe, for which three folds say as much as five with some hundred rows.
    """
    folds = []
    for train, held_out in _all_folds(rows, cv, splits, valid, target_type, is_recipe):
        is_one_class = target_type == "classification" and len(np.unique(train.y)) < 2
        if len(train) and len(held_out) and not is_one_class:
            folds.append((train, held_out))
    if splits is not None and valid is None and not folds:
        raise ValueError(
            f"cv={cv!r} gives no split with rows on both sides"
            + (" and two classes in training" if target_type == "classification" else "")
        )
    return folds


def _all_folds(
    rows: Rows,
    cv: Any,
    splits: Splits | None,
    valid: Rows | None,
    target_type: TargetType,
    is_recipe: bool,
) -> Iterator[tuple[Rows, Rows]]:
    if valid is not None:
        yield rows, valid
    elif splits is not None:
        for k in range(len(splits)):
            part = rows.labels[:, k]
            yield rows.take((part & 1) > 0), rows.take((part & 2) > 0)
    else:
        three = is_recipe and _FEW_ROWS < len(rows) <= _SOME_ROWS
        asked = (3 if three else 5) if cv is None else int(cv)
        n_folds = min(asked, len(rows) // 2)
        number = _deal(rows, n_folds, target_type)
        only_one = cv is None and len(rows) > _MAX_CV_ROWS
        for k in range(1 if only_one else n_folds if n_folds >= 2 else 0):
            yield rows.take(number != k), rows.take(number == k)


def _deal(rows: Rows, n_folds: int, target_type: TargetType) -> NDArray[np.intp]:
    """Deal rows out to folds in turn, class by class; their order is random already.

    Rows with the same x stay together. Their targets differ (equal rows are one), so that those in
    training would be wrong for every one of those held out.
    """
    by_class = target_type == "classification"
    order = np.argsort(rows.y, kind="stable") if by_class else np.arange(len(rows))
    first = _first_of_equal(rows.X)
    leads = order[first[order] == order]
    number = np.empty(len(rows), np.intp)
    number[leads] = np.arange(len(leads)) % max(n_folds, 1)
    return number[first]


def _first_of_equal(X: NDArray) -> NDArray[np.intp]:
    """For every row the first one with the same x; NaN equals NaN, and -0.0 equals 0.0."""
    X = np.ascontiguousarray(X) + 0.0
    X[np.isnan(X)] = np.nan
    as_bytes = X.view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return first[inverse.ravel()]
