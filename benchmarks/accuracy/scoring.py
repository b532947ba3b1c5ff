"""One split, one model: its scores and its seconds.

Seconds are the processor's, not the clock's: with one thread they are the same on an idle machine,
and other work on a busy one does not count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .loading import Table
from .models.base import Model, take_rows
from .sets import DataSet
from .store import Result

_TINY = 1e-15


@dataclass(frozen=True)
class Fitted:
    """Predictions for new rows, with the processor seconds of fit and predict.

    Attributes
    ----------
    values : (n,) or (n, K) array
        Numbers for regression, P(1) for two classes, else the probabilities of all classes.
    fit_s, predict_s : float
        Seconds.
    """

    values: NDArray[np.float64]
    fit_s: float
    predict_s: float


def log_loss(y: ArrayLike, probability: ArrayLike) -> float:
    """Mean log-loss of P(1), or of the probabilities of all classes, at least 1e-15 each.

    Probabilities are turned to float64 first: those of float32 cannot come closer to 1 than 6e-8.
    """
    p, classes = np.asarray(probability, dtype=np.float64), np.asarray(y)
    if p.ndim == 2:
        return float(-np.mean(np.log(np.maximum(p[np.arange(len(p)), classes], _TINY))))
    p = np.clip(p, _TINY, 1 - _TINY)
    return float(-np.mean(np.where(classes == 1, np.log(p), np.log1p(-p))))


def fit_predict(model: Model, task: str, X: Any, y: NDArray, X_new: Any) -> Fitted:
    """Fit a new estimator of the model and predict new rows.

    Raises
    ------
    ValueError
        A prediction is not finite, or there are not as many columns as classes.
    """
    estimator, X, X_new = model.make(task), model.columns(X), model.columns(X_new)
    start = time.process_time()
    estimator.fit(X, y)
    fitted = time.process_time()
    raw = estimator.predict(X_new) if task == "regression" else estimator.predict_proba(X_new)
    predicted = time.process_time()
    values = np.asarray(raw, dtype=np.float64)
    if task == "regression":
        values = values.ravel()
    elif values.shape[1] != len(np.unique(y)):
        raise ValueError(f"{values.shape[1]} columns of probabilities, {len(np.unique(y))} classes")
    elif task == "binary":
        values = values[:, 1]
    if not np.all(np.isfinite(values)):
        raise ValueError("Predictions are not finite.")
    return Fitted(values, round(fitted - start, 4), round(predicted - fitted, 5))


def evaluate(model: Model, entry: DataSet, table: Table, seed: int) -> Result:
    """Fit the model on the training rows of a split and score it on the test rows."""
    train, test = table.split(entry.task, seed)
    X_train, X_test = take_rows(table.X, train), take_rows(table.X, test)
    y_train, y_test = table.y[train], table.y[test]
    fitted = fit_predict(model, entry.task, X_train, y_train, X_test)
    nmse = error = loss = None
    if entry.task == "regression":
        variance = np.mean((y_train.mean() - y_test) ** 2)
        nmse = float(np.mean((fitted.values - y_test) ** 2) / variance)
    else:
        binary = fitted.values.ndim == 1
        classes = fitted.values > 0.5 if binary else fitted.values.argmax(axis=1)
        error, loss = float(np.mean(classes != y_test)), log_loss(y_test, fitted.values)
    return Result(
        task=entry.task,
        set=entry.name,
        seed=seed,
        model=model.name,
        nmse=nmse,
        error=error,
        log_loss=loss,
        fit_s=fitted.fit_s,
        predict_s=fitted.predict_s,
    )
