"""Validation: errors of jointleaf and its peers on the same held-out rows."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.progress import Progress
from jointleaf.cli._output import number, seconds, text_table
from jointleaf.cli._peers import JOINTLEAF, Model, Options

__all__ = [
    "MEASURES", "error_table", "format_measure", "histogram", "measures", "prediction_summary",
    "spread_over", "validate",
]  # fmt: skip

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
_MOST_POINTS = 1000
_BINS = 10


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
) -> dict[str, Any]:
    """Fit all models that are installed on all splits, and score them on the held-out rows.

    Parameters
    ----------
    X : DataFrame (n, d)
    y : array (n,)
        Targets, or numbers 0..K-1 of classes.
    models : sequence of Model
    options : Options
    n_folds : int, optional
        See `make_splits`.

    Returns
    -------
    dict
        "method", which rows were held out; "measure", by which models are ordered; "table", one
        record for each model with its errors and the seconds of a fit, best first; "summary", of
        the predictions of jointleaf.
    """
    models = [model for model in models if importlib.util.find_spec(model.package)]
    splits, method = make_splits(y, options.task, options.seed, n_folds)
    progress = Progress(len(splits) * len(models), "validating")
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
                predicted, classes = model.fit_predict(X_train, y[train], X_test, options)
            spent[model.name] += time.perf_counter() - start
            if n_classes:  # also those that the training rows of a split did not have
                probabilities = np.zeros((len(test), n_classes))
                probabilities[:, classes] = predicted
                predicted = probabilities
            predictions[model.name].append(predicted)
            progress.step(model.name)
    truth = np.concatenate([y[test] for _, test in splits])
    joined = {name: np.concatenate(parts) for name, parts in predictions.items()}
    table = [
        {"model": name, **measures(truth, predicted), "seconds": spent[name] / len(splits)}
        for name, predicted in joined.items()
    ]
    measure = "log_loss" if n_classes else "rmse"
    return {
        "method": method,
        "measure": measure,
        "table": sorted(table, key=lambda record: record[measure]),
        "summary": prediction_summary(truth, joined[JOINTLEAF]),
    }


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


# -- predictions against the truth ----------------------------------------------------------------


def prediction_summary(truth: NDArray, predicted: NDArray) -> dict[str, Any]:
    """Return pairs and residuals of (m,) numbers, calibration and confusion of (m, K) classes."""
    if predicted.ndim == 1:
        drawn = spread_over(len(truth), _MOST_POINTS)
        return {
            "truth": truth[drawn].tolist(),
            "predicted": predicted[drawn].tolist(),
            "n_all": len(truth),
            "residuals": histogram(truth - predicted),
        }
    n_classes = predicted.shape[1]
    is_class = truth[:, None] == np.arange(n_classes)
    # Two classes: the probability of the second; more: those of all classes together.
    columns = slice(1, 2) if n_classes == 2 else slice(None)
    confusion = np.zeros((n_classes, n_classes), int)
    np.add.at(confusion, (truth, predicted.argmax(axis=1)), 1)
    return {
        "calibration": _calibration(predicted[:, columns].ravel(), is_class[:, columns].ravel()),
        "confusion": confusion.tolist(),
    }


def _calibration(probabilities: NDArray, happened: NDArray) -> list[dict[str, float]]:
    """Return mean probability and relative frequency in up to ten groups of equal size."""
    order = np.argsort(probabilities, kind="stable")
    groups = []
    for rows in np.array_split(order, min(_BINS, max(1, len(order) // 10))):
        mean = float(probabilities[rows].mean())
        error = max(mean * (1 - mean) / rows.size, 0.0) ** 0.5
        frequency, count = float(happened[rows].mean()), int(rows.size)
        groups.append({"probability": mean, "frequency": frequency, "error": error, "count": count})
    return groups


def spread_over(n: int, most: int) -> NDArray[np.intp]:
    """Return at most `most` of the numbers 0..n-1, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def histogram(values: NDArray, bins: int = 30) -> dict[str, list]:
    """Return edges and counts; the outer hundredths of long tails are in the last bars."""
    low, high = np.quantile(values, (0.005, 0.995))
    if high <= low:
        low, high = values.min(), values.max()
    counts, edges = np.histogram(np.clip(values, low, high), bins=bins)
    return {"edges": edges.tolist(), "counts": counts.tolist()}
