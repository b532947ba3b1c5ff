"""Validation: errors of jointleaf and its peers on the same held-out rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.progress import Progress
from jointleaf.cli._output import number, seconds, text_table
from jointleaf.cli._peers import JOINTLEAF, Model, Options

__all__ = ["MEASURES", "Validation", "error_table", "format_measure", "measures", "validate"]

#: Names of the measures for people.
MEASURES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "log_loss": "log-loss",
    "error_rate": "error rate",
    "auc": "AUC",
}
#: Up to so many rows all are held out once, in five folds; of more, one fifth is held out.
_SMALL = 1000
_FOLDS = 5


@dataclass(frozen=True)
class Validation:
    """Predictions of all models for held-out rows.

    Attributes
    ----------
    truth : array (m,)
        Targets, or numbers of classes.
    predictions : dict from model to array (m,) or (m, K)
    seconds : dict from model to float
        Of all fits and predictions together.
    method : str
        Which rows were held out, in words.
    n_fits : int
    """

    truth: NDArray
    predictions: dict[str, NDArray]
    seconds: dict[str, float]
    method: str
    n_fits: int

    def table(self) -> list[dict[str, Any]]:
        """Return one record for each model: its errors and the seconds of a fit, best first."""
        records = [
            {
                "model": name,
                **measures(self.truth, predicted),
                "seconds": self.seconds[name] / self.n_fits,
            }
            for name, predicted in self.predictions.items()
        ]
        return sorted(records, key=lambda record: record[self.measure])

    @property
    def measure(self) -> str:
        """The measure by which models are ordered."""
        return "log_loss" if self.predictions[JOINTLEAF].ndim == 2 else "rmse"


def make_splits(
    y: NDArray, task: str, seed: int, n_folds: int | None = None
) -> tuple[list[tuple[NDArray, NDArray]], str]:
    """Return pairs of training and held-out rows, and a description.

    Parameters
    ----------
    y : array (n,)
        Targets, or numbers of classes, whose proportions are kept.
    task : str
    seed : int
    n_folds : int, optional
        By default five folds up to `_SMALL` rows, and the first of five with more.
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
    if n_folds is None and n > _SMALL:
        m = len(splits[0][1])
        return splits[:1], f"on {m:,} held-out rows ({m / n:.0%})"
    return splits, f"by {k}-fold cross-validation over all {n:,} rows"


def validate(
    X: Any,
    y: NDArray,
    models: Sequence[Model],
    options: Options,
    *,
    n_folds: int | None = None,
    label: str = "validating",
) -> Validation:
    """Fit all models on all splits and predict the held-out rows, with a progress bar.

    Parameters
    ----------
    X : DataFrame (n, d)
    y : array (n,)
        Targets, or numbers 0..K-1 of classes.
    models : sequence of Model
    options : Options
    n_folds : int, optional
        See `make_splits`.
    label : str
        Of the progress bar.
    """
    splits, method = make_splits(y, options.task, options.seed, n_folds)
    progress = Progress(len(splits) * len(models), label)
    n_classes = int(y.max()) + 1 if options.task == "classification" else 0
    predictions: dict[str, list[NDArray]] = {model.name: [] for model in models}
    spent = {model.name: 0.0 for model in models}
    for train, test in splits:
        # A column without any value in the training rows of a split is an error for some models.
        has_values = X.iloc[train].notna().any().to_numpy()
        X_train, X_test = X.iloc[train].loc[:, has_values], X.iloc[test].loc[:, has_values]
        for model in models:
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of peers, on feature names and iterations
                predicted = model.fit(X_train, y[train], options)(X_test)
            spent[model.name] += time.perf_counter() - start
            predictions[model.name].append(_aligned(predicted, n_classes))
            progress.step(model.name)
    truth = np.concatenate([y[test] for _, test in splits])
    joined = {name: np.concatenate(parts) for name, parts in predictions.items()}
    return Validation(truth, joined, spent, method, len(splits))


def _aligned(predicted: Any, n_classes: int) -> NDArray:
    """Return probabilities of all classes, also of those that a training set did not have."""
    if not n_classes:
        return predicted
    probabilities, classes = predicted
    aligned = np.zeros((len(probabilities), n_classes))
    aligned[:, np.asarray(classes, int)] = probabilities
    return aligned


def measures(truth: NDArray, predicted: NDArray) -> dict[str, float]:
    """Return RMSE, MAE and R^2, or log-loss, error rate and, for two classes, AUC."""
    if predicted.ndim == 1:
        residuals = truth - predicted
        spread = float(np.mean((truth - truth.mean()) ** 2))
        mse = float(np.mean(residuals**2))
        return {
            "rmse": mse**0.5,
            "mae": float(np.mean(np.abs(residuals))),
            "r2": 1 - mse / spread if spread > 0 else float("nan"),
        }
    likelihood = np.clip(predicted[np.arange(len(truth)), truth], 1e-15, None)
    errors = {
        "log_loss": float(-np.mean(np.log(likelihood))),
        "error_rate": float(np.mean(predicted.argmax(axis=1) != truth)),
    }
    if predicted.shape[1] == 2 and 0 < truth.mean() < 1:
        from sklearn.metrics import roc_auc_score

        errors["auc"] = float(roc_auc_score(truth, predicted[:, 1]))
    return errors


def format_measure(name: str, value: float) -> str:
    """Format the value of a measure: proportions with four places, errors with four digits."""
    return f"{value:.4f}" if name in ("r2", "error_rate", "auc") else number(value)


def error_table(validation: dict[str, Any]) -> str:
    """Return the errors of all models as text, from the record of a validation."""
    table = validation["table"]
    names = [name for name in table[0] if name in MEASURES]
    rows = [["model", *(MEASURES[name] for name in names), "a fit"]]
    for record in table:
        values = [format_measure(name, record[name]) for name in names]
        rows.append([record["model"], *values, seconds(record["seconds"])])
    columns = text_table(rows, right=tuple(range(1, len(rows[0]))))
    return f"errors {validation['method']}:\n{columns}"
