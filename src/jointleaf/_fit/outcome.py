"""What a fit finds, and its sum with simpler models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
from jointleaf._model.cell_model import CellModel, Frame

__all__ = ["MEANS_ROWS", "Outcome", "with_simpler"]

#: Most rows whose means explanations measure from.
MEANS_ROWS = 4000


@dataclass(frozen=True)
class Outcome:
    """Everything a fit finds, put on the estimator at its very end.

    Attributes
    ----------
    frame : Frame
    model : CellModel
        What predicts.
    solution : Solution
        Of the best penalty.
    penalty : Term
    importances : array (d,)
    tuning, mix : what cross-validation found, or None
    """

    frame: Frame
    model: CellModel
    solution: Solution
    penalty: Term
    importances: NDArray
    tuning: TuningResult | StrengthChoice | None = None
    mix: Mix | None = None

    def with_means(self, rows: Rows) -> Outcome:
        """Return the outcome with the means of its training rows, which explanations need.

        Of more than 4,000 rows only the first are looked at: their order is random, and finding the
        cells of all would take as long as growing many of the trees.
        """
        few = rows.take(slice(MEANS_ROWS))
        model = self.model.with_means(few.X, few.s)
        assert model.means is not None
        return replace(self, model=replace(model, means=replace(model.means, n_rows=len(rows))))

    @property
    def slope_norms(self) -> NDArray[np.float64]:
        """Norm of each linear feature's slopes over all cells, (m,)."""
        if not isinstance(self.tuning, TuningResult) or self.tuning.shares is None:
            return self.solution.slope_norms
        return self.model.slope_norms()


def with_simpler(fit: Outcome, shares: Shares, rows: Rows) -> Outcome:
    """Mix simpler models of classes in.

    The linear one goes to the root cell, and the partitions' own model to the biases. Constants of
    columns' values are cells of further partitions, the first ones.
    """
    frame, partitioner = fit.frame, fit.model.partitioner
    features, y = frame.features.transform(rows.X), frame.target(rows.y)
    model = shares.joint * fit.model
    model += shares.linear * _linear(frame, fit_linear(features, y, rows.s, shares.strength)[0])
    if shares.own > 0:
        codes = partitioner.apply(rows.X)
        values = own_values(partitioner, codes, frame.loss, frame.loss.encode(y), rows.s)
        if values is not None:
            model += shares.own * CellModel.of_constants(frame, partitioner, values)
    if shares.levels > 0:
        levels = find_levels(rows, frame.columns)
        X = features if levels is None else levels.design(features, rows.X)
        weights = fit_linear(X, y, rows.s, shares.levels_strength)[0]
        model += shares.levels * _linear(frame, weights)
        if levels is not None:  # a value that no fold had could have made them too many
            constants = (weights[features.shape[1] : -1].T * levels.factors).T
            cells = CellModel.of_constants(frame, levels.partitioner, constants)
            model = shares.levels * cells + model
    return replace(fit, model=model)


def _linear(frame: Frame, weights: NDArray) -> CellModel:
    """The model of slopes (m[, K]), the first of the weights, and the bias, the last of them."""
    return CellModel.linear(frame, weights[: len(frame.features.plan.names)], weights[-1])
