"""Intervals of predictions, and sets of classes, as the commands show them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._output import CliError, number

#: The probability with which intervals hold the target where none is asked for.
COVERAGE = 0.9


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


def coverage_summary(truth: NDArray, ends: NDArray | None, drawn: NDArray) -> dict[str, Any] | None:
    """Return how often intervals or sets hold the target, and how large they are.

    Of intervals (n, 2) those of some rows are kept for a chart. Sets are (n, K), and the targets
    numbers of classes.
    """
    if ends is None:
        return None
    if ends.dtype == bool:
        inside = ends[np.arange(len(truth)), truth]
        return {
            "coverage": COVERAGE,
            "inside": float(inside.mean()),
            "size": float(ends.sum(axis=1).mean()),
        }
    low, high = ends.T
    inside, width = (low <= truth) & (truth <= high), high - low
    return {
        "coverage": COVERAGE,
        "inside": float(inside.mean()),
        "width": float(width.mean()),
        "low": low[drawn].tolist(),
        "high": high[drawn].tolist(),
    }


def coverage_text(summary: dict[str, Any] | None) -> str:
    """Return a sentence on what `coverage_summary` found; "" where there are no intervals."""
    if summary is None:
        return ""
    inside, asked = f"{100 * summary['inside']:.1f} %", f"{100 * summary['coverage']:.4g} %"
    if "size" in summary:
        return f"sets of {asked} hold {inside} of the classes, mean size {number(summary['size'])}"
    return (
        f"intervals of {asked} hold {inside} of the targets, mean width {number(summary['width'])}"
    )
