"""Losses and errors of predictions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.pmlb.data import Data
from experiments.pmlb.ensembles import Predict

__all__ = ["Score", "loss", "score"]

_LEAST = 1e-15  # of a probability: the paper's log-losses are bounded alike


def loss(data: Data, part: str, predictions: NDArray) -> float:
    """What is searched for the least of: RMSE in standard units, or log-loss; inf for NaN."""
    y = data.y[part]
    if not np.isfinite(predictions).all():
        return float("inf")
    if not data.is_binary:
        # The largest float64 squared would overflow; such a model has diverged anyway.
        return float(np.sqrt(np.mean(np.clip(predictions - y, -1e100, 1e100) ** 2)))
    p = np.clip(predictions, _LEAST, 1 - _LEAST)
    return float(-np.mean(np.where(y == 1, np.log(p), np.log1p(-p))))


@dataclass(frozen=True)
class Score:
    """Of the test rows.

    Attributes
    ----------
    error, dummy : float
        Of the model and of a constant: RMSE in the target's own units, the constant being the
        training mean; or the share of wrong classes, the constant being the larger class.
    log_loss : float
        NaN in regression.
    """

    error: float
    dummy: float
    log_loss: float


def score(data: Data, predict: Predict) -> Score:
    """Predict the test rows."""
    found = np.asarray(predict(data.X["test"]), float)
    y, train = data.y["test"], data.y["train"]
    if data.is_binary:
        wrong = float(np.mean((found > 0.5) != (y == 1)))
        constant = float(train.mean() > 0.5)
        return Score(wrong, float(np.mean(y != constant)), loss(data, "test", found))
    dummy = loss(data, "test", np.full(len(y), train.mean()))
    return Score(data.scale * loss(data, "test", found), data.scale * dummy, float("nan"))
