"""One split, one model: its scores and its seconds.

Seconds are the processor's, not the clock's: with one thread they are the same on an idle machine,
and other work on a busy one does not count.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split

from .sets import DataSet
from .store import Result

_TEST_SHARE = 0.2
_TINY = 1e-15


def encode_target(task: str, y: NDArray) -> NDArray:
    """Numbers for regression; 0 and 1 for two classes, as not every peer takes other labels."""
    if task == "regression":
        return np.asarray(y, dtype=np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) != 2:
        raise ValueError(f"A binary target must have two classes, not {len(classes)}.")
    return codes


def log_loss(y: ArrayLike, probability: ArrayLike) -> float:
    """Mean log-loss of the probabilities of class 1, clipped to [1e-15, 1 - 1e-15].

    Probabilities are turned to float64 first: those of float32 cannot come closer to 1 than 6e-8.
    """
    p = np.clip(np.asarray(probability, dtype=np.float64), _TINY, 1 - _TINY)
    return float(-np.mean(np.where(np.asarray(y) == 1, np.log(p), np.log1p(-p))))


def evaluate(model: Any, name: str, entry: DataSet, X: NDArray, y: NDArray, seed: int) -> Result:
    """Fit the model on four fifths of the rows and score it on the rest.

    Parameters
    ----------
    model : estimator
        New, with `fit` and `predict` or, for two classes, `predict_proba`.
    name : str
        What the model is called in the results.
    entry : DataSet
        What the rows belong to.
    X, y : arrays
        Rows, and the target as `encode_target` gives it.
    seed : int
        Of the split, which keeps the shares of classes.
    """
    binary = entry.task == "binary"
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=_TEST_SHARE, random_state=seed, stratify=y if binary else None
    )
    start = time.process_time()
    model.fit(X_train, y_train)
    fitted = time.process_time()
    raw = model.predict_proba(X_test)[:, 1] if binary else np.ravel(model.predict(X_test))
    predicted = time.process_time()
    raw = np.asarray(raw, dtype=np.float64)
    if not np.all(np.isfinite(raw)):
        raise ValueError("Predictions are not finite.")
    if binary:
        nmse, error = None, float(np.mean((raw > 0.5) != (y_test == 1)))
        loss = log_loss(y_test, raw)
    else:
        nmse = float(np.mean((raw - y_test) ** 2) / np.mean((y_train.mean() - y_test) ** 2))
        error = loss = None
    return Result(
        task=entry.task,
        set=entry.name,
        seed=seed,
        model=name,
        nmse=nmse,
        error=error,
        log_loss=loss,
        fit_s=round(fitted - start, 4),
        predict_s=round(predicted - fitted, 5),
    )
