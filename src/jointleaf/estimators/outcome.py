"""What a fit finds, and the mean of several fits of the same cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf.estimators.model import CellWeights, Frame
from jointleaf.layout import CellLayout
from jointleaf.partitions import Partitioner
from jointleaf.penalties import Term
from jointleaf.ranges import CellRanges
from jointleaf.rows import Rows
from jointleaf.solvers import Solution
from jointleaf.tuning import (
    Mix,
    Setting,
    Shares,
    StrengthChoice,
    TuningResult,
    fit_linear,
    own_values,
)

__all__ = ["Outcome", "averaged", "with_simpler"]


@dataclass(frozen=True)
class Outcome:
    """Everything a fit finds, put on the estimator at its very end.

    Attributes
    ----------
    frame : Frame
    partitioner : Partitioner
    solution : Solution
        Of the best penalty.
    weights : CellWeights
        With which the model predicts.
    layout : CellLayout
        Of these weights.
    penalty : Term
    importances : array (d,)
    ranges : CellRanges or None
    tuning, mix : what cross-validation found, or None
    """

    frame: Frame
    partitioner: Partitioner
    solution: Solution
    weights: CellWeights
    layout: CellLayout
    penalty: Term
    importances: NDArray
    ranges: CellRanges | None = None
    tuning: TuningResult | StrengthChoice | None = None
    mix: Mix | None = None

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Settings of the default penalty whose fits are averaged."""
        return self.tuning.settings if isinstance(self.tuning, TuningResult) else ()

    @property
    def slope_norms(self) -> NDArray[np.float64]:
        """Norm of each linear feature's slopes over all cells, (m,)."""
        tuning = self.tuning
        if not isinstance(tuning, TuningResult) or (
            tuning.shares is None and len(tuning.settings) == 1
        ):
            return self.solution.slope_norms
        slopes = self.weights.slopes
        return np.sqrt(np.square(slopes).sum(axis=(0, *range(2, slopes.ndim))))


def averaged(fits: Sequence[Outcome]) -> Outcome:
    """The mean of several fits of the same cells: means of their weights, so one model again.

    Constant cells are linear ones with slopes of zero. Everything else is that of the first fit.
    """
    layout = max((fit.layout for fit in fits), key=lambda layout: layout.n_columns)
    theta = sum(_widened(fit.weights.theta, layout.n_columns) for fit in fits) / len(fits)
    importances = np.mean([fit.importances for fit in fits], axis=0)
    weights = CellWeights(np.asarray(theta), fits[0].weights.offset)
    ranges = next((fit.ranges for fit in fits if fit.ranges is not None), None)
    return replace(fits[0], weights=weights, layout=layout, importances=importances, ranges=ranges)


def with_simpler(fit: Outcome, shares: Shares, rows: Rows) -> Outcome:
    """Mix simpler models of classes in.

    The linear one goes to the last cell, which is the root cell, and the partitions' own model to
    the biases.
    """
    frame = fit.frame
    features, y = frame.features.transform(rows.X), frame.target(rows.y)
    linear = fit_linear(features, y, rows.s, shares.strength)
    layout = replace(fit.layout, kind="linear")
    theta = shares.joint * _widened(fit.weights.theta, layout.n_columns)
    theta[-1] += shares.linear * linear[0]
    if shares.own > 0:
        codes = fit.partitioner.apply(rows.X)
        values = own_values(fit.partitioner, codes, frame.loss, frame.loss.encode(y), rows.s)
        if values is not None:
            theta[:, -1] += shares.own * values.reshape(theta[:, -1].shape)
    weights = CellWeights(theta, shares.joint * fit.weights.offset)
    return replace(fit, weights=weights, layout=layout)


def _widened(theta: NDArray, width: int) -> NDArray:
    """Weights (C, q[, K]) with columns of zeros before the biases."""
    missing = width - theta.shape[1]
    zeros = np.zeros((len(theta), missing, *theta.shape[2:]), theta.dtype)
    return np.concatenate([zeros, theta], axis=1)
