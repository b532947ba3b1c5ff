"""From rows of results to errors per set, medians and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from experiments.pmlb.records import Record

__all__ = [
    "Comparison",
    "Scores",
    "common_sets",
    "compare",
    "errors_by_method",
    "normalised",
    "with_enough_sets",
]

#: What a larger error counts as: that of a model that diverged may be infinite.
LARGEST = 1e6

#: Error of every set, by method.
Scores = Mapping[str, Mapping[str, float]]


def normalised(record: Record) -> float:
    """The error of the figure.

    Two classes: the 0/1 loss. Regression: RMSE / RMSE of the training mean. The paper writes of a
    ratio of mean squared errors; its recorded scores and medians are ratios of their roots. A set
    on which the training mean has no error at all has no ratio: NaN.
    """
    if record.task == "binary":
        return record.error
    return record.error / record.dummy if record.dummy > 0 else float("nan")


def errors_by_method(records: Iterable[Record], task: str) -> dict[str, dict[str, float]]:
    """The error of the figure of every set, by method."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        value = normalised(record)
        if record.task == task and not np.isnan(value):
            found.setdefault(record.method, {})[record.set] = min(value, LARGEST)
    return found


def with_enough_sets(scores: Scores) -> Scores:
    """Without methods that were hardly run: on less than a tenth of the sets of others."""
    most = max((len(of_method) for of_method in scores.values()), default=0)
    return {name: errors for name, errors in scores.items() if len(errors) >= 0.1 * most}


def common_sets(scores: Scores) -> list[str]:
    """Sets that all methods have."""
    sets = [set(of_method) for of_method in scores.values()]
    return sorted(set.intersection(*sets)) if sets else []


@dataclass(frozen=True)
class Comparison:
    """One method against another, on the sets that both have.

    Attributes
    ----------
    n, better, worse : int
        Sets; those with a smaller and a larger error.
    ratio : float
        Geometric mean of error / other error, over sets where both are positive.
    p : float
        One-sided Wilcoxon signed-rank test that errors are smaller; NaN where all are equal.
    """

    n: int
    better: int
    worse: int
    ratio: float
    p: float


def compare(mine: Mapping[str, float], other: Mapping[str, float]) -> Comparison:
    """Test whether errors are smaller than the other's, as the paper does."""
    sets = sorted(mine.keys() & other.keys())
    a, b = (np.array([errors[name] for name in sets]) for errors in (mine, other))
    difference = a - b
    positive = (a > 0) & (b > 0)
    logs = np.log(a[positive] / b[positive])
    p = float("nan")
    if difference.any():
        p = float(stats.wilcoxon(a, b, alternative="less").pvalue)
    return Comparison(
        len(sets),
        int(np.sum(difference < 0)),
        int(np.sum(difference > 0)),
        float(np.exp(logs.mean())) if logs.size else float("nan"),
        p,
    )
