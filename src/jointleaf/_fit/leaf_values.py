"""The values of leaves: the model that made the partitions of a joint fit, as a component."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Logistic, Loss, Multinomial
from jointleaf._fit.component import Component, FitContext, Split
from jointleaf._fit.joint import Joint
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf.partitions import FittedEnsemble, Partitioner

_SMOOTHING = 1.0  # rows of every class added to every cell (Laplace's rule of succession)


class BesideJoint(Component):
    """A component that works with the folds and cells of the joint fit before it."""

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        joint = components[Joint.name]
        assert isinstance(joint, Joint)
        self._joint = joint


class LeafValues(BesideJoint):
    """The model that made the partitions of the joint fit: the values of its leaves."""

    name = "leaf_values"

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Predict with the partitions of the joint fit's folds; None where some have no values.

        Trees that were grown on a quadratic model of the loss have none in its units.
        """
        joint, predictions = self._joint, []
        if self.context.has_own_link and not isinstance(self.context.partitioner, FittedEnsemble):
            return None
        for fold in joint.folds:
            target = fold.loss.encode(fold.y)
            values = leaf_values(fold.partitioner, fold.codes, fold.loss, target, fold.train.s)
            if values is None:
                return None
            raw = add_values(values, fold.n_cells, fold.codes_valid)
            raw = (raw - fold.units[0]) / fold.units[1]
            if joint.setting is None or not fold.has_raw(joint.setting):
                return None
            if raw.shape != fold.raw(joint.setting).shape:
                return None
            predictions.append(raw)
        return predictions or None

    def fit(self, frame: Frame) -> CellModel | None:
        """Return the values of all cells; None where they are no better than a constant.

        Then they are in another unit, or of other classes.
        """
        rows, loss, partitioner = self.context.rows, frame.loss, self._joint.grown()
        codes, target = partitioner.apply(rows.X), loss.encode(frame.target(rows.y))
        values = leaf_values(partitioner, codes, loss, target, rows.s)
        if values is None:
            return None
        raw = (add_values(values, partitioner.n_cells_, codes) - frame.centre) / frame.unit
        constant = np.broadcast_to(loss.best_shift(target, rows.s, rows.offset), raw.shape)
        if rows.offset.any():
            raw, constant = raw + rows.offset, constant + rows.offset
        if not loss.value(target, raw, rows.s) < loss.value(target, constant, rows.s):
            return None
        return CellModel.of_leaf_values(frame, partitioner, values)

    def describe(self) -> str:
        """Return what the values are."""
        return "the leaf values of the model that made the partitions"


def leaf_values(
    partitioner: Partitioner, codes: NDArray, loss: Loss, target: NDArray, s: NDArray
) -> NDArray[np.float64] | None:
    """Return values (C, 1) or (C, K) of all cells that add up to the raw predictions of a model.

    Those of the model that made the partitions. Where it has none, as forests of classifiers,
    which average probabilities and not raw predictions: for classes the log-odds in the cells,
    averaged over partitions; for regression None. Codes (n, P), encoded targets (n[, K]) and
    weights s (n,) are those of the training rows.
    """
    values = partitioner.leaf_values_
    if values is not None or not isinstance(loss, Logistic | Multinomial):
        return values
    return _log_odds(partitioner.n_cells_, codes, target, s)


def _log_odds(
    n_cells: NDArray, codes: NDArray, target: NDArray, s: NDArray
) -> NDArray[np.float64] | None:
    splits = n_cells > 1  # a single cell has nothing to tell
    if not splits.any():
        return None
    is_class = np.stack([target < 0, target > 0], axis=1) if target.ndim == 1 else target > 0
    # Weights count as rows; only their ratios matter in a fit, so their mean is made one.
    counts = is_class * (s * len(s) / s.sum())[:, None]
    starts = np.cumsum(n_cells) - n_cells
    values = np.zeros((int(n_cells.sum()), is_class.shape[1]))
    for p in np.flatnonzero(splits):
        inside = codes[:, p] >= 0
        np.add.at(values, starts[p] + codes[inside, p], counts[inside])
    logs = np.log(values + _SMOOTHING) * np.repeat(splits / splits.sum(), n_cells)[:, None]
    if target.ndim == 1:
        return logs[:, 1:] - logs[:, :1]
    return logs - logs.mean(axis=1, keepdims=True)


def add_values(values: NDArray, n_cells: NDArray, codes: NDArray) -> NDArray[np.float64]:
    """Add up values (C, 1) or (C, K) of cells for rows with codes (n, P): (n,) or (n, K)."""
    cells = np.where(codes < 0, len(values), codes + np.cumsum(n_cells) - n_cells)
    padded = np.concatenate([values, np.zeros_like(values[:1])])
    sums = np.zeros((len(codes), values.shape[1]))
    for column in cells.T:
        sums += padded[column]
    return sums[:, 0] if values.shape[1] == 1 else sums
