"""Several levels of quantiles in one fit of the regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._fit.calibration import check_level
from jointleaf._fit.quantiles import MOST_LEVELS
from jointleaf._trees.importers import is_ensemble
from jointleaf.partitions import FittedEnsemble


def read_levels(loss: Any, quantile: Any) -> NDArray[np.float64] | None:
    """Return the rising levels (K,) that a fit shall have; None where it has one or none."""
    if not (isinstance(loss, str) and loss == "quantile") or not np.ndim(quantile):
        return None
    given = np.asarray(quantile)
    text = f"quantile={given.tolist()!r}"
    if given.ndim != 1 or not len(given):
        raise ValueError(f"{text} must be a level, or a list of levels such as [0.1, 0.5, 0.9]")
    if len(given) > MOST_LEVELS:
        raise ValueError(
            f"quantile has {len(given)} levels, more than {MOST_LEVELS}: leave some of them out"
        )
    levels = np.array([check_level("quantile", level) for level in given.tolist()])
    if (np.diff(levels) <= 0).any():
        raise ValueError(
            f"{text} must rise: give every level once, the smallest first, as in "
            f"{np.unique(levels).tolist()!r}"
        )
    return levels


def check_joint_levels(estimator: Any) -> None:
    """Raise for parameters with which several levels cannot be fitted, before any work is done."""
    if not isinstance(estimator.penalty, str) and not estimator.penalty.is_auto:
        reason = (
            f"penalty={estimator.penalty!r}, which holds out no rows to see residuals of: use "
            "'auto', or a strength of 'auto'"
        )
    elif estimator.monotonic_cst is not None:
        reason = (
            f"monotonic_cst={estimator.monotonic_cst!r}, which distances between quantiles would "
            "not keep: leave it out, or fit one level"
        )
    elif _has_trained_trees(estimator.partitioner):
        reason = (
            "the trees of a trained model, which have seen every row: give partitioner a name such "
            "as 'lightgbm', or refine a model of one level"
        )
    else:
        return
    raise ValueError(f"several levels in quantile are not possible with {reason}")


def _has_trained_trees(partitioner: Any) -> bool:
    members = partitioner if isinstance(partitioner, list | tuple) else [partitioner]
    return any(is_ensemble(member) or isinstance(member, FittedEnsemble) for member in members)


def mean_quantile_loss(
    y: ArrayLike, quantiles: NDArray, levels: NDArray, sample_weight: ArrayLike | None
) -> float:
    """Return the mean of the quantile losses of all levels, of predictions (n, K)."""
    from sklearn.metrics import mean_pinball_loss

    losses = [
        mean_pinball_loss(y, column, alpha=level, sample_weight=sample_weight)
        for column, level in zip(quantiles.T, levels.tolist(), strict=True)
    ]
    return float(np.mean(losses))
