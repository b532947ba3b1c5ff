"""The scale of a robust loss, found from held-out residuals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Loss
from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows, deal_rows

__all__ = ["find_scale", "held_out_residuals"]

_MOST_ROWS = 10_000
_LEAST_ROWS = 40  # from which trees tell more than the spread of the target
_ROUNDS = 60


def find_scale(loss: Loss, rows: Rows, columns: Columns, seed: int) -> Loss:
    """Return the loss with the scale of what quick boosted trees leave of held-out targets.

    Residuals of training rows would be too small. Losses without a scale to find stay as they are.
    """
    if not loss.needs_scale:
        return loss
    return loss.with_scale(*held_out_residuals(rows, columns, seed))


def held_out_residuals(rows: Rows, columns: Columns, seed: int) -> tuple[NDArray, NDArray]:
    """Return what quick boosted trees leave of held-out targets, and the weights of these rows.

    Of few rows, or one group, the targets themselves.
    """
    rows = rows.take(slice(_MOST_ROWS))
    if len(rows) < _LEAST_ROWS:
        return rows.y, rows.s
    part = deal_rows(rows, 2, by_class=False)
    if part.max() == 0:  # one group
        return rows.y, rows.s
    halves = rows.take(part == 0), rows.take(part == 1)
    residuals = [_residuals(a, b, columns, seed) for a, b in (halves, halves[::-1])]
    return np.concatenate(residuals), np.concatenate([half.s for half in halves[::-1]])


def _residuals(train: Rows, valid: Rows, columns: Columns, seed: int) -> NDArray[np.float64]:
    """Return residuals of rows by trees that have not seen them."""
    import lightgbm

    params = {
        "objective": "regression_l1",
        "num_leaves": 15,
        "min_data_in_leaf": max(3, min(20, len(train) // 20)),
        "learning_rate": 0.1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
    }
    categorical = columns.categorical.tolist()
    data = lightgbm.Dataset(
        train.X, train.y, weight=train.s, categorical_feature=categorical, params=params
    )
    booster = lightgbm.train(params, data, num_boost_round=_ROUNDS)
    return valid.y - np.asarray(booster.predict(valid.X))
