"""Boosted trees as components: those that made the partitions, and larger ones of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from jointleaf._core.losses import Loss
from jointleaf._data.features import mean_and_scale
from jointleaf._data.rows import Rows
from jointleaf._fit.component import Component, FitContext, Split, target_scale
from jointleaf._fit.folds import grow
from jointleaf._fit.joint import Joint
from jointleaf._fit.memory import FitShape, MemoryEstimate, trees_memory
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf.partitions import LightGBMPartitioner, Partitioner, UnionPartitioner
from jointleaf.partitions._base import seeded

__all__ = ["Boosted", "LeafValues", "RandomizedBoosted"]

_ROUNDS, _CELLS, _RATE, _LEAF_ROWS = 300, 31, 0.05, 5
_EVERY = 10  # rounds after which boosting is validated
_SMOOTHING = 1.0  # rows of every class added to every cell (Laplace's rule of succession)


class LeafValues(Component):
    """The model that made the partitions of the joint fit: the values of its leaves."""

    name = "leaf_values"

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        joint = components[Joint.name]
        assert isinstance(joint, Joint)
        self._joint = joint

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Predict with the partitions of the joint fit's folds; None where some have no values."""
        joint, predictions = self._joint, []
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
        constant = np.broadcast_to(loss.best_constant(target, rows.s), raw.shape)
        if not loss.value(target, raw, rows.s) < loss.value(target, constant, rows.s):
            return None
        return CellModel.of_leaf_values(frame, partitioner, values)

    def describe(self) -> str:
        """Return what the values are."""
        return "the leaf values of the model that made the partitions"


class Boosted(Component):
    """Boosted trees of the usual size, with their own leaf values."""

    name = "boosted"
    options: ClassVar[dict[str, object]] = {}

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        options = {"learning_rate": _RATE, "min_data_in_leaf": _LEAF_ROWS, **self.options}
        booster = LightGBMPartitioner(_ROUNDS, _CELLS, options=options)
        # Every booster of a recipe has its own seed.
        number = sum(isinstance(component, Boosted) for component in components.values())
        members = seeded(UnionPartitioner([booster] * (number + 1)), context.seed, context.n_jobs)
        #: unfitted, with its seed
        self.booster = members.partitioners[number]

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose the number of rounds, and predict the validation rows after them."""
        if not splits:
            return None
        curves = [self._raw_by_round(train, valid) for train, valid in splits]
        rounds = [n_rounds for n_rounds, *_ in zip(*(curve for curve in curves), strict=False)]
        losses = [
            [self._loss(curve[n_rounds], *split) for n_rounds in rounds]
            for curve, split in zip(curves, splits, strict=True)
        ]
        weights = [valid.s.sum() for _, valid in splits]
        self.n_rounds = rounds[int(np.argmin(np.average(losses, axis=0, weights=weights)))]
        return [curve[self.n_rounds] for curve in curves]

    def fit(self, frame: Frame) -> CellModel:
        """Grow the trees on all rows."""
        context = self.context
        booster = clone(self.booster)
        booster.set_params(n_partitions=self.n_rounds * context.n_outputs)
        grow(booster, context.rows, context.target_type, context.columns)
        values = booster.leaf_values_
        assert values is not None
        return CellModel.of_leaf_values(frame, booster, values)

    def describe(self) -> str:
        """Return the number of rounds."""
        return f"boosted trees of {_CELLS} leaves, {self.n_rounds} rounds"

    @classmethod
    def memory(cls, shape: FitShape) -> MemoryEstimate:
        """Return what the trees take."""
        return trees_memory(_ROUNDS * _CELLS)

    def _loss(self, raw: NDArray, train: Rows, valid: Rows) -> float:
        centre, unit = target_scale(train.y, train.s, self.context.target_type)
        loss = self.context.loss
        return float(loss.value(loss.encode((valid.y - centre) / unit), raw, valid.s))

    def _raw_by_round(self, train: Rows, valid: Rows) -> dict[int, NDArray]:
        """Return raw predictions of the validation rows after every ten rounds and the last."""
        context, booster = self.context, clone(self.booster)
        grow(booster, train, context.target_type, context.columns)
        centre, unit = target_scale(train.y, train.s, context.target_type)
        mean, per_round = 0.0, context.n_outputs
        if context.is_regression:  # the unweighted mean, which all trees have a part of
            mean = float(mean_and_scale(train.y[:, None], np.ones(len(train)))[0][0])
        raw = np.full((len(valid), per_round), (mean - centre) / unit)
        by_round = {}
        contributions = _tree_contributions(booster, valid, mean)
        for t, contribution in enumerate(contributions, start=1):
            raw = raw + contribution / unit
            n_rounds, trees_of_next = divmod(t, per_round)
            if trees_of_next == 0 and (n_rounds % _EVERY == 0 or t == len(contributions)):
                by_round[n_rounds] = raw[:, 0] if per_round == 1 else raw
        return by_round


class RandomizedBoosted(Boosted):
    """Boosted trees with thresholds drawn at random."""

    name = "randomized_boosted"
    options: ClassVar[dict[str, object]] = {"extra_trees": True}

    def describe(self) -> str:
        """Return the number of rounds."""
        return f"{super().describe()}, with random thresholds"


def _tree_contributions(booster: Partitioner, valid: Rows, mean: float) -> list[NDArray]:
    """Return what each tree adds to raw predictions of validation rows, (n, K), less the mean."""
    values = booster.leaf_values_
    assert values is not None
    codes, n_cells = booster.apply(valid.X), booster.n_cells_
    starts = np.cumsum(n_cells) - n_cells
    padded = np.concatenate([values - mean / len(n_cells), np.zeros_like(values[:1])])
    cells = np.where(codes < 0, len(values), codes + starts)
    return [padded[column] for column in cells.T]


# -- values of cells -----------------------------------------------------------------------------


def leaf_values(
    partitioner: Partitioner, codes: NDArray, loss: Loss, target: NDArray, s: NDArray
) -> NDArray[np.float64] | None:
    """Return values (C, 1) or (C, K) of all cells that add up to the raw predictions of a model.

    Those of the model that made the partitions. Where it has none, as forests of classifiers,
    which average probabilities and not raw predictions: for classes the log-odds in the cells,
    averaged over partitions; for regression None.

    Parameters
    ----------
    partitioner : Partitioner
        Fitted.
    codes : array (n, P)
        Of its training rows.
    loss : Loss
    target : array (n,) or (n, K)
        Encoded targets of the training rows.
    s : array (n,)
        Their weights.
    """
    values = partitioner.leaf_values_
    if values is not None or loss.is_quadratic:
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
