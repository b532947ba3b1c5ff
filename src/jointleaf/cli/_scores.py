"""Errors of predictions and intervals around them: in numbers, as text, and for charts."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Loss
from jointleaf.cli._output import CliError, number, plural, seconds, text_table
from jointleaf.cli._preparation import Rows

#: The name of jointleaf among the models that are compared.
JOINTLEAF = "jointleaf"
#: Names of the measures for people.
MEASURES = {
    "rmse": "RMSE", "mae": "MAE", "r2": "R²",
    "deviance": "deviance", "pinball": "pinball loss", "huber": "Huber loss",
    "log_loss": "log-loss", "error_rate": "error rate", "auc": "AUC",
}  # fmt: skip
#: The probability with which intervals hold the target where none is asked for.
COVERAGE = 0.9
_MOST_POINTS = 1000
_BINS = 10
_SHORT = 0.1  # coverage that is lacking, for a remark
_FEW_GROUPS = 20  # of held-out rows, whose coverage is uncertain
_LARGE = 1e150  # whose square is finite


def measures(rows: Rows, predicted: NDArray, loss: Loss | None = None) -> dict[str, float]:
    """Return the errors of predictions, weighted as the rows are; the first is that of the loss.

    Of numbers these are RMSE, MAE and R^2, of classes log-loss, error rate and, of two, AUC.
    """
    truth, s = rows.y, rows.weight
    if predicted.ndim == 1:
        # Squares of very large targets would overflow; a power of two changes no digit.
        largest = max(np.abs(truth).max(), np.abs(predicted).max())
        unit = 2.0 ** np.ceil(np.log2(largest)) if largest > _LARGE else 1.0
        y, f = truth / unit, predicted / unit
        mse = np.average((y - f) ** 2, weights=s)
        mae = np.average(np.abs(y - f), weights=s)
        variance = np.average((y - np.average(y, weights=s)) ** 2, weights=s)
        r2 = 1 - mse / variance if variance > 0 else np.nan
        errors = {"rmse": float(unit * mse**0.5), "mae": float(unit * mae), "r2": float(r2)}
        return {**_loss_measure(rows, predicted, loss, errors), **errors}
    likelihood = np.clip(predicted[np.arange(len(truth)), truth], 1e-15, None)
    errors = {
        "log_loss": float(-np.average(np.log(likelihood), weights=s)),
        "error_rate": float(np.average(predicted.argmax(axis=1) != truth, weights=s)),
    }
    if predicted.shape[1] == 2 and 0 < truth.mean() < 1:
        from sklearn.metrics import roc_auc_score

        errors["auc"] = float(roc_auc_score(truth, predicted[:, 1], sample_weight=s))
    return errors


def _loss_measure(
    rows: Rows, predicted: NDArray, loss: Loss | None, errors: dict[str, float]
) -> dict[str, float]:
    """Return the measure that belongs to a loss, under its name; that of the deviance is twice it.

    With exposure the deviance is that of rates: per unit of exposure for counts.
    """
    if loss is None or loss.is_quadratic:
        return {"rmse": errors["rmse"]}
    if loss.name == "absolute_error":
        return {"mae": errors["mae"]}
    s = np.ones(len(predicted)) if rows.weight is None else rows.weight
    if not loss.has_log_link:
        name = {"quantile": "pinball"}.get(loss.name, loss.name)
        return {name: float(np.average(loss.row_loss(rows.y, predicted), weights=s))}
    raw = np.log(np.maximum(predicted, np.finfo(float).tiny))
    total = s if rows.exposure is None else s * exposure_weights(loss, rows.exposure)
    return {"deviance": float(2 * (s @ loss.row_loss(rows.y, raw)) / total.sum())}


def exposure_weights(loss: Any, exposure: NDArray) -> NDArray[np.float64]:
    """Return e^(2-p): the deviance of amounts y is that of rates y / e with these weights."""
    return exposure ** (2 - loss.power)


def format_measure(name: str, value: float) -> str:
    """Format the value of a measure: proportions with four places, errors with four digits."""
    return f"{value:.4f}" if name in ("r2", "error_rate", "auc") else number(value)


def error_rows(validation: dict[str, Any], last: str) -> list[list[str]]:
    """Return the errors of all models and, in the last column, their seconds; a header first."""
    names = [name for name in validation["table"][0] if name in MEASURES]
    rows = [["model", *(MEASURES[name] for name in names), last]]
    for record in validation["table"]:
        values = [format_measure(name, record[name]) for name in names]
        rows.append([record["model"], *values, seconds(record["seconds"])])
    return rows


def error_table(validation: dict[str, Any]) -> str:
    """Return the errors of all models as text, from the record of a validation."""
    rows = error_rows(validation, "a fit")
    columns = text_table(rows, right=range(1, len(rows[0])))
    hint = comparison_hint(validation)
    lines = [
        f"errors {validation['method']}:",
        columns,
        coverage_text(validation.get("intervals")),
        hint and f"hint: {hint}",
    ]
    return "\n".join(filter(None, lines))


def comparison_hint(validation: dict[str, Any]) -> str:
    """Return a hint where jointleaf is no better than a constant, or a linear model; else ""."""
    error_of = {row["model"]: row[validation["measure"]] for row in validation["table"]}
    constant = error_of.get("constant")  # that --no-compare leaves out
    if constant is None or error_of[JOINTLEAF] < constant:
        is_behind = error_of.get("linear model", math.inf) <= error_of[JOINTLEAF]
        simpler = "a linear model is as good or better on held-out rows, and simpler"
        return simpler if is_behind else ""
    if math.isclose(error_of[JOINTLEAF], constant, rel_tol=1e-9):
        return f"{JOINTLEAF} was a constant on held-out rows: the model of all rows may be another"
    subject = "no model" if min(error_of.values()) >= constant else JOINTLEAF
    better = "is better" if subject == "no model" else "is no better"
    return f"{subject} {better} than a constant on held-out rows: predictions may say nothing"


def prediction_summary(
    rows: Rows, predicted: NDArray, ends: NDArray | None = None
) -> dict[str, Any]:
    """Return pairs and residuals of (m,) numbers, calibration and confusion of (m, K) classes.

    With them what is shown of intervals (m, 2) or sets (m, K), where there are any.
    """
    truth = rows.y
    drawn = spread_over(len(truth), _MOST_POINTS)
    n_groups = None if rows.groups is None else len(np.unique(rows.groups))
    intervals = coverage_summary(truth, ends, drawn, n_groups)
    if predicted.ndim == 1:
        return {
            "truth": truth[drawn].tolist(),
            "predicted": predicted[drawn].tolist(),
            "n_all": len(truth),
            "means": _means(predicted, truth) if _are_rare(truth) else None,
            "residuals": histogram(truth - predicted),
            "intervals": intervals,
        }
    n_classes = predicted.shape[1]
    is_class = truth[:, None] == np.arange(n_classes)
    # Two classes: the probability of the second; more: the largest, as nearly all others are zero.
    probabilities, happened = predicted[:, 1], is_class[:, 1]
    if n_classes > 2:
        likeliest = np.arange(len(truth)), predicted.argmax(axis=1)
        probabilities, happened = predicted[likeliest], is_class[likeliest]
    confusion = np.zeros((n_classes, n_classes), int)
    np.add.at(confusion, (truth, predicted.argmax(axis=1)), 1)
    return {
        "calibration": _calibration(probabilities, happened),
        "calibration_of": "the likeliest class" if n_classes > 2 else "",
        "confusion": confusion.tolist(),
        "intervals": intervals,
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


def _are_rare(truth: NDArray) -> bool:
    """Whether most targets are the smallest, so that single ones say little of a mean."""
    return bool((truth == truth.min()).mean() > 0.5)


def _means(predicted: NDArray, truth: NDArray) -> list[dict[str, float]]:
    """Return mean prediction and mean target in up to ten groups of equal size."""
    order = np.argsort(predicted, kind="stable")
    groups = []
    for rows in np.array_split(order, min(_BINS, max(1, len(order) // 10))):
        mean, error = float(truth[rows].mean()), float(truth[rows].std() / rows.size**0.5)
        groups.append({"prediction": float(predicted[rows].mean()), "mean": mean, "error": error})
    return groups


def spread_over(n: int, most: int) -> NDArray[np.intp]:
    """Return at most `most` of the numbers 0..n-1, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def histogram(values: NDArray, bins: int = 30) -> dict[str, Any]:
    """Return edges and counts, and whether the outer bars hold the hundredths of long tails.

    Few whole numbers have a bar each.
    """
    low, high = np.quantile(values, (0.005, 0.995), method="inverted_cdf")
    is_whole = bool((values % 1 == 0).all())
    if high <= low or (is_whole and np.ptp(values) < bins):
        low, high = values.min(), values.max()
    is_clipped = bool(low > values.min() or high < values.max())
    edges: Any = np.arange(low - 0.5, high + 1) if is_whole and high - low < bins else bins
    counts, edges = np.histogram(np.clip(values, low, high), edges)
    return {"edges": edges.tolist(), "counts": counts.tolist(), "is_clipped": is_clipped}


# -- intervals of predictions, and sets of classes -------------------------------------------------


def with_exposure(exposure: NDArray | None) -> dict[str, NDArray]:
    """Return the argument of exposure, where there is any."""
    return {} if exposure is None else {"exposure": exposure}


def intervals_or_sets(
    model: Any, X: Any, exposure: NDArray | None = None, coverage: float | None = None
) -> NDArray | None:
    """Return intervals (n, 2), or which classes (n, K) are in a set.

    None where a model is not calibrated, or on too few rows; where a coverage was asked for, that
    is an error.
    """
    if model.calibration_ is None and coverage is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            if hasattr(model, "predict_set"):
                return model.predict_set(X, coverage or COVERAGE)
            return model.predict_interval(X, coverage or COVERAGE, **with_exposure(exposure))
        except UserWarning as warning:
            if coverage is not None:
                raise CliError(str(warning)) from None
            return None


def coverage_summary(
    truth: NDArray, ends: NDArray | None, drawn: NDArray, n_groups: int | None = None
) -> dict[str, Any] | None:
    """Return how often intervals or sets hold the target, and how large they are.

    Of intervals (n, 2) those of some rows are kept for a chart. Sets are (n, K), and the targets
    numbers of classes. Rows of one group may all be alike, so that they count as one.
    """
    if ends is None:
        return None
    groups = {} if n_groups is None else {"n_groups": n_groups}
    if ends.dtype == bool:
        inside = ends[np.arange(len(truth)), truth]
        return {
            "coverage": COVERAGE,
            "inside": float(inside.mean()),
            "is_short": _is_short(inside, n_groups),
            **groups,
            "size": float(ends.sum(axis=1).mean()),
        }
    low, high = ends.T
    inside, width = (low <= truth) & (truth <= high), high - low
    return {
        "coverage": COVERAGE,
        "inside": float(inside.mean()),
        "is_short": _is_short(inside, n_groups),
        **groups,
        "width": float(width.mean()),
        "low": low[drawn].tolist(),
        "high": high[drawn].tolist(),
    }


def coverage_text(summary: dict[str, Any] | None) -> str:
    """Return a sentence on what `coverage_summary` found; "" where there are no intervals."""
    if summary is None:
        return ""
    inside, asked = f"{100 * summary['inside']:.1f} %", f"{100 * summary['coverage']:.4g} %"
    n_groups = summary.get("n_groups")
    short = "; far too few: held-out rows are unlike those before"
    if n_groups is not None and n_groups < _FEW_GROUPS:
        short = f"; uncertain, as these rows are of {plural(n_groups, 'group')} only"
    elif not summary.get("is_short"):
        short = ""
    if "size" in summary:
        held = f"sets of {asked} hold the true class of {inside} of the rows"
        return f"{held}, mean size {number(summary['size'])}{short}"
    width = number(summary["width"])
    return f"intervals of {asked} hold {inside} of the targets, mean width {width}{short}"


def _is_short(inside: NDArray[np.bool_], n_groups: int | None = None) -> bool:
    """Whether by far too few targets are inside, which no chance explains."""
    error = (COVERAGE * (1 - COVERAGE) / (n_groups or len(inside))) ** 0.5
    return bool(inside.mean() < COVERAGE - max(_SHORT, 5 * error))
