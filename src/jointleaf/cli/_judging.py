"""Errors on rows that a model has not seen, of jointleaf and its peers on the same rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.progress import Progress
from jointleaf.cli._peers import JOINTLEAF, Model, Options

__all__ = ["SMALL", "Judgement", "class_numbers", "compare", "make_splits", "measures"]

#: Up to so many rows all are judged, in five folds; with more, one fifth of them.
SMALL = 1000
_FOLDS = 5


@dataclass(frozen=True)
class Judgement:
    """What all models predicted for rows that they had not seen.

    Attributes
    ----------
    rows : integers (m,)
        The rows that were judged.
    truth : array (m,)
        Targets, or numbers of classes.
    predictions : dict from model to array (m,) or (m, K)
    seconds : dict from model to float
        Of all fits and predictions together.
    how : str
        In words.
    n_fits : int
    """

    rows: NDArray[np.intp]
    truth: NDArray
    predictions: dict[str, NDArray]
    seconds: dict[str, float]
    how: str
    n_fits: int

    @property
    def ours(self) -> NDArray:
        """What jointleaf predicted."""
        return self.predictions[JOINTLEAF]

    def table(self) -> list[dict[str, Any]]:
        """One record a model: its errors and the seconds of a fit, best first."""
        found = [
            {
                "model": name,
                **measures(self.truth, predicted),
                "seconds": self.seconds[name] / self.n_fits,
            }
            for name, predicted in self.predictions.items()
        ]
        return sorted(found, key=lambda record: record[self.measure])

    @property
    def measure(self) -> str:
        """The measure by which models are ordered."""
        return "log_loss" if self.ours.ndim == 2 else "rmse"


def class_numbers(y: NDArray) -> tuple[NDArray, NDArray[np.intp]]:
    """The classes (K,) and the numbers of the classes (n,)."""
    classes, numbers = np.unique(y, return_inverse=True)
    return classes, numbers.reshape(-1)


def make_splits(
    y: NDArray, task: str, seed: int, n_folds: int | None = None
) -> tuple[list[tuple[NDArray, NDArray]], str]:
    """Pairs of training and judged rows, and the same in words.

    Parameters
    ----------
    y : array (n,)
        Targets, or numbers of classes, whose shares are kept.
    task : str
    seed : int
    n_folds : int, optional
        By default five folds up to `SMALL` rows, and the first of five with more.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    n = len(y)
    k = min(n_folds or _FOLDS, n)
    kind: Any = KFold
    if task == "classification" and np.bincount(y).max() >= k:
        kind = StratifiedKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes with fewer rows than folds
        splits = list(kind(k, shuffle=True, random_state=seed).split(np.zeros(n), y))
    if n_folds is None and n > SMALL:
        judged = len(splits[0][1])
        return splits[:1], f"on {judged:,} rows held out ({judged / n:.0%}), not seen in that fit"
    return splits, f"by {k}-fold cross-validation over all {n:,} rows"


def compare(
    X: Any,
    y: NDArray,
    models: Sequence[Model],
    options: Options,
    splits: list[tuple[NDArray, NDArray]],
    how: str,
    *,
    progress: Progress,
) -> Judgement:
    """Fit all models on all splits and keep what they predict for the judged rows.

    Parameters
    ----------
    X : DataFrame (n, d)
    y : array (n,)
        Targets, or numbers 0..K-1 of classes.
    models : sequence of Model
    options : Options
    splits, how : see `make_splits`
    progress : Progress
        Gets one step for every model and split.
    """
    n_classes = int(y.max()) + 1 if options.task == "classification" else 0
    predictions: dict[str, list[NDArray]] = {model.name: [] for model in models}
    spent = {model.name: 0.0 for model in models}
    for train, test in splits:
        # A column of which these rows have no value at all says nothing, and is refused.
        has_values = X.iloc[train].notna().any().to_numpy()
        seen, judged = X.iloc[train].loc[:, has_values], X.iloc[test].loc[:, has_values]
        for model in models:
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of peers, on feature names and iterations
                found = model.fit(seen, y[train], options)(judged)
            spent[model.name] += time.perf_counter() - start
            predictions[model.name].append(_aligned(found, n_classes))
            progress.step(model.name)
    rows = np.concatenate([test for _, test in splits])
    joined = {name: np.concatenate(parts) for name, parts in predictions.items()}
    return Judgement(rows, y[rows], joined, spent, how, len(splits))


def _aligned(found: Any, n_classes: int) -> NDArray:
    """Probabilities of all classes, also of those that a training set did not have."""
    if not n_classes:
        return found
    shares, classes = found
    out = np.zeros((len(shares), n_classes))
    out[:, np.asarray(classes, int)] = shares
    return out


def measures(truth: NDArray, predicted: NDArray) -> dict[str, float]:
    """Errors: RMSE, MAE and R^2, or log-loss, error rate and, for two classes, AUC."""
    if predicted.ndim == 1:
        residuals = truth - predicted
        spread = float(np.mean((truth - truth.mean()) ** 2))
        mse = float(np.mean(residuals**2))
        return {
            "rmse": mse**0.5,
            "mae": float(np.mean(np.abs(residuals))),
            "r2": 1 - mse / spread if spread > 0 else float("nan"),
        }
    chosen = np.clip(predicted[np.arange(len(truth)), truth], 1e-15, None)
    found = {
        "log_loss": float(-np.mean(np.log(chosen))),
        "error_rate": float(np.mean(predicted.argmax(axis=1) != truth)),
    }
    if predicted.shape[1] == 2 and 0 < truth.mean() < 1:
        from sklearn.metrics import roc_auc_score

        found["auc"] = float(roc_auc_score(truth, predicted[:, 1]))
    return found


def iterate_measures(table: list[dict[str, Any]]) -> Iterator[str]:
    """Names of the measures in a table."""
    return (name for name in table[0] if name not in ("model", "seconds"))
