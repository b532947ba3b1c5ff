"""What a fit finds, and its sum with simpler models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Term
from jointleaf._core.solvers import Solution
from jointleaf._data.rows import Rows
from jointleaf._fit import (
    Mix,
    Shares,
    StrengthChoice,
    TuningResult,
    find_levels,
    fit_linear,
    own_values,
)
from jointleaf._model.cell_model import CellModel, CellWeights, Frame
from jointleaf._model.contributions import TrainingMeans
from jointleaf._model.ranges import CellRanges
from jointleaf.partitions import Partitioner, UnionPartitioner

__all__ = ["MEANS_ROWS", "Outcome", "with_simpler"]

#: Most rows whose means explanations measure from.
MEANS_ROWS = 4000


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
    means : TrainingMeans or None
        Of the training rows, see `with_means`.
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
    means: TrainingMeans | None = None

    @property
    def model(self) -> CellModel:
        """What predicts."""
        frame = self.frame
        return CellModel(
            self.partitioner, frame.features, self.layout, self.weights, frame.centre, frame.unit,
            self.ranges, self.means,
        )  # fmt: skip

    def with_means(self, rows: Rows) -> Outcome:
        """Give the outcome with the means of its training rows, which explanations need.

        Of more than 4,000 rows only the first are looked at: their order is random, and finding the
        cells of all would take as long as growing many of the trees.
        """
        few = rows.take(slice(MEANS_ROWS))
        means = self.model.with_means(few.X, few.s).means
        assert means is not None
        return replace(self, means=replace(means, n_rows=len(rows)))

    @property
    def slope_norms(self) -> NDArray[np.float64]:
        """Norm of each linear feature's slopes over all cells, (m,)."""
        if not isinstance(self.tuning, TuningResult) or self.tuning.shares is None:
            return self.solution.slope_norms
        slopes = self.weights.slopes
        return np.sqrt(np.square(slopes).sum(axis=(0, *range(2, slopes.ndim))))


def with_simpler(fit: Outcome, shares: Shares, rows: Rows) -> Outcome:
    """Mix simpler models of classes in.

    The linear one goes to the last cell, which is the root cell, and the partitions' own model to
    the biases. Constants of columns' values are cells of further partitions, the first ones.
    """
    frame = fit.frame
    features, y = frame.features.transform(rows.X), frame.target(rows.y)
    linear = fit_linear(features, y, rows.s, shares.strength)
    layout = replace(fit.layout, kinds="linear")
    theta = shares.joint * _widened(fit.weights.theta, layout.n_columns)
    theta[-1] += shares.linear * linear[0]
    if shares.own > 0:
        codes = fit.partitioner.apply(rows.X)
        values = own_values(fit.partitioner, codes, frame.loss, frame.loss.encode(y), rows.s)
        if values is not None:
            theta[:, -1] += shares.own * values.reshape(theta[:, -1].shape)
    weights = CellWeights(theta, shares.joint * fit.weights.offset)
    fit = replace(fit, weights=weights, layout=layout)
    return _with_levels(fit, shares, rows) if shares.levels > 0 else fit


def _with_levels(fit: Outcome, shares: Shares, rows: Rows) -> Outcome:
    """Add the linear model with a constant for every value of the columns that have few."""
    frame, theta = fit.frame, fit.weights.theta.copy()
    features, y = frame.features.transform(rows.X), frame.target(rows.y)
    levels = find_levels(rows, frame.columns)
    X = features if levels is None else levels.design(features, rows.X)
    model = shares.levels * fit_linear(X, y, rows.s, shares.levels_strength)[0]
    m = features.shape[1]
    theta[-1, :m] += model[:m]
    theta[-1, -1] += model[-1]
    if levels is None:  # a value that no fold had made them too many
        return replace(fit, weights=replace(fit.weights, theta=theta))
    constants = (model[m:-1].T * levels.factors).T
    cells = np.zeros((len(constants), *theta.shape[1:]))
    cells[:, -1] = constants
    assert isinstance(fit.partitioner, UnionPartitioner)
    union = UnionPartitioner.of_fitted([levels.partitioner, *fit.partitioner.partitioners_])
    layout = CellLayout(tuple(int(c) for c in union.n_cells_), m, "linear")
    weights = replace(fit.weights, theta=np.concatenate([cells, theta]))
    return replace(fit, partitioner=union, weights=weights, layout=layout)


def _widened(theta: NDArray, width: int) -> NDArray:
    """Weights (C, q[, K]) with columns of zeros before the biases."""
    missing = width - theta.shape[1]
    zeros = np.zeros((len(theta), missing, *theta.shape[2:]), theta.dtype)
    return np.concatenate([zeros, theta], axis=1)
