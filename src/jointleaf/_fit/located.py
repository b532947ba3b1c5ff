"""Quantiles around a location, as a component.

Few rows are near a quantile of 0.1 or 0.9, and a fit of it alone knows little: losses with kinks
have a second component. Where the targets are at all is a question that all rows answer: the joint
fit by squared error. What is left, the distance of the quantile from that location, is fitted by
the loss itself to residuals of rows that the location has not seen. With a strong penalty it is one
constant for all rows; a weaker one lets it depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import SquaredError, robust_scale
from jointleaf._fit.component import Split
from jointleaf._fit.joint import JointFold, fit_cells_of
from jointleaf._fit.leaf_values import BesideJoint
from jointleaf._fit.search import Setting, choose_strength
from jointleaf._model.cell_model import CellModel, Frame

_DISTANCE = (0.3, 0.03, 0.003, 3e-4)  # times the strongest
_TOL = 1e-3  # of the distance, whose last digits do not matter
_AROUND = tuple(10.0 ** np.arange(1.0, -1.01, -0.5))  # times the best strength of the lines


class Located(BesideJoint):
    """A joint fit by squared error, and one of its cross-fitted residuals by the loss."""

    name = "located"
    needs_location = True

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose both strengths; None for losses without kinks, and where rows are left out."""
        joint, context = self._joint, self.context
        if not (joint.folds and _hold_out_all(splits, len(context.rows))):
            return None
        assert joint.line is not None
        near = [float(joint.line.strength * factor) for factor in _AROUND]
        self._where, _ = choose_strength(joint.folds, joint.line, near, is_exact=False)
        locations = [fold.constant + fold.raw(self._where, is_exact=False) for fold in joint.folds]
        #: of all rows, by models that have not seen them
        self._locations = np.empty(len(context.rows))
        for (_, valid), location in zip(splits, locations, strict=True):
            self._locations[valid.places] = location
        folds = [
            fold.around(self._locations[train.places], self._locations[valid.places])
            for fold, (train, valid) in zip(joint.folds, splits, strict=True)
        ]
        self._distance = self._choose_distance(folds)
        for fold in (*joint.folds, *folds):
            fold.release()
        return [a + fold.raw(self._distance) for a, fold in zip(locations, folds, strict=True)]

    def _choose_distance(self, folds: Sequence[JointFold]) -> Setting:
        """Choose the strength of the distance, with constants or the slopes of the location.

        With slopes it is looked for next to the best one of constants.
        """
        rows = self.context.rows
        unit = robust_scale(self.context.target(rows) - self._locations, rows.s)
        lines = [self._where._replace(slope_scale=0.0)]
        if self._where.slope_scale > 0:
            lines.append(self._where)
        choices, factors = [], list(_DISTANCE)
        for line in lines:
            strongest = (1 + line.slope_scale**2) / unit  # hardly moves what is of this size
            strengths = [float(factor * strongest) for factor in factors]
            choices.append(choose_strength(folds, line, strengths, is_exact=True))
            best = choices[-1][0].strength / strongest
            factors = [best * factor for factor in _AROUND[1:4]]
        return min(choices, key=lambda choice: choice[1])[0]

    def fit(self, frame: Frame) -> CellModel:
        """Fit location and distance to all rows, in the cells of the joint fit."""
        rows, loss = self.context.rows, frame.loss
        target = self.context.location_target(rows)
        where = replace(frame, loss=SquaredError(), offset=np.average(target, weights=rows.s))
        clipped = replace(rows, y=frame.centre + frame.unit * target)
        shift = loss.best_shift(frame.target(rows.y), rows.s, self._locations)
        distance = replace(frame, offset=np.asarray(shift))
        located = replace(rows, offset=self._locations)
        options, partitioner = self.context.options, self._joint.grown()
        model, _ = fit_cells_of(
            options, where, clipped, partitioner, *self._joint.penalty_of(self._where)
        )
        penalty = self._joint.penalty_of(self._distance)
        options = replace(options, tol=max(options.tol, _TOL))
        further, self.solve = fit_cells_of(options, distance, located, partitioner, *penalty)
        return model + further

    def describe(self) -> str:
        """Return the strengths."""
        return (
            f"location by squared error with strength {self._where.strength:.3g}, and the "
            f"distance from it with strength {self._distance.strength:.3g}"
        )


def _hold_out_all(splits: Sequence[Split], n_rows: int) -> bool:
    """Whether every row is held out exactly once, and never trained on at the same time."""
    places = np.sort(np.concatenate([valid.places for _, valid in splits]))
    is_apart = not any(np.isin(train.places, valid.places).any() for train, valid in splits)
    return is_apart and np.array_equal(places, np.arange(n_rows))
