"""Boosted trees as components: those that made the partitions, and larger ones of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Kinked, Logistic, Loss, Multinomial
from jointleaf._core.progress import Progress
from jointleaf._data.rows import Rows
from jointleaf._fit.budget import Seconds, Size
from jointleaf._fit.component import Component, FitContext, Split
from jointleaf._fit.growth import Growth, Stage
from jointleaf._fit.joint import BesideJoint
from jointleaf._fit.limits import has_many_classes, is_wide
from jointleaf._fit.memory import FitShape, Stages, boosted_memory
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf.partitions import FittedEnsemble, Partitioner
from jointleaf.partitions._base import TreeCells

__all__ = ["Boosted", "BoostedLinear", "BoostedRandom", "LeafValues"]

_ROUNDS, _RATE = 1000, 0.08  # most rounds, and their learning rate
_WIDE_RATE, _WIDE_BINS = 0.16, 63  # of wide tables, whose rounds take long
_FEW_CELLS, _CELLS, _MORE_CELLS, _FEW_ROWS = 15, 31, 63, 8000
_EARLY = 250  # rounds that are few
_USUAL_ROUNDS, _USUAL_LEAF = 300, 50  # after which boosting stops, and rows for every leaf
_LEAST_CELLS = 7
_FEW_CLASSES = 5
LINEAR_STAGE = Stage(True, 31, 400, 0.06)
JOINT_ROUNDS = 100  # whose cells a joint fit may take
_SMOOTHING = 1.0  # rows of every class added to every cell (Laplace's rule of succession)


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


class Boosted(Component):
    """Boosted trees with constants, as many rounds as held-out rows ask for."""

    name = "boosted"
    #: the first trees of every split of a regression, which a joint fit may refit
    partitioners: Sequence[TreeCells] = ()
    # K trees a round take their time: of many classes those with random thresholds must do, which
    # tell them apart more quickly, and better.
    _max_outputs: float = _FEW_CLASSES

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        n_rows, n_columns = context.rows.X.shape
        self._stage = self._make_stage(n_rows, context.n_outputs, n_columns)
        self._model: CellModel | None = None  # of a split that has nearly all rows
        self._is_first = not any(isinstance(c, Boosted) for c in components.values())
        self.has_rivals = not self._is_first
        # Of the splits that were fitted.
        self._rounds: list[int] = []
        self._predictions: list[NDArray] = []

    @classmethod
    def _make_stage(cls, n_rows: int, n_outputs: int, n_columns: int) -> Stage:
        # K trees a round: many classes have fewer rounds, and larger steps.
        few = min(1.0, _FEW_CLASSES / n_outputs)
        n_cells = _CELLS if n_rows <= _FEW_ROWS else _MORE_CELLS
        n_cells = _FEW_CELLS if has_many_classes(n_outputs) else n_cells
        stage = Stage(False, n_cells, round(few * _ROUNDS), _RATE / few**0.5)
        if is_wide(n_columns):
            return replace(stage, rate=_WIDE_RATE / few**0.5, n_bins=_WIDE_BINS)
        return stage

    @classmethod
    def takes(cls, n_outputs: int) -> bool:
        """Whether it takes part in fits of so many raw predictions a row."""
        return n_outputs <= cls._max_outputs

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose the number of rounds, and predict the validation rows after them.

        Splits that were predicted before come first, and are not fitted again.
        """
        if not splits or not self._takes_part:
            return None
        context, n_known = self.context, len(self._predictions)
        progress = self._progress((len(splits) - n_known) * self._stage.rounds, ", held-out rows")
        for k, (train, valid) in enumerate(splits[n_known:], 1):
            frame = context.standardize(train)
            growth, booster = self._grown(frame, train, valid, progress)
            progress.step_to(k * self._stage.rounds)  # it has stopped early
            if not self._rounds and context.loss.has_log_link:
                growth, booster = self._with_smaller_trees(growth, booster, frame, train, valid)
            self._rounds.append(booster.best_iteration)
            self._predictions.append(growth.raw(booster, valid))
            if self._is_first and context.is_regression:
                n_rounds = min(booster.best_iteration, JOINT_ROUNDS)
                trees = growth.model(booster, n_rounds).partitioner
                self.partitioners = [*self.partitioners, trees]
            self._model = growth.model(booster) if context.keeps_split else None
        self.n_rounds = max(1, round(float(np.mean(self._rounds))))
        return list(self._predictions)

    def _progress(self, n_rounds: int, what: str = "") -> Progress:
        label = self.name.replace("_", " ") + what
        return Progress(n_rounds, label, enabled=self.context.options.verbose)

    def _grown(
        self, frame: Frame, train: Rows, valid: Rows, progress: Progress | None = None
    ) -> tuple[Growth, Any]:
        growth = Growth(self.context, frame, train, self._stage)
        return growth, growth.train(valid, progress)

    def _with_smaller_trees(
        self, growth: Growth, booster: Any, frame: Frame, train: Rows, valid: Rows
    ) -> tuple[Growth, Any]:
        """Quarter the leaves of trees for as long as boosting stops early and held-out rows gain.

        A row of rare counts tells little: trees as large as other targets allow learn by heart
        what there is in few rounds. A gain is one of more than a standard error.
        """

        def losses(growth: Growth, booster: Any) -> NDArray:
            raw = growth.raw(booster, valid) + valid.offset
            return valid.s * self.context.loss.row_loss(self.context.target(valid), raw)

        while booster.best_iteration < _EARLY and self._stage.n_cells > _LEAST_CELLS:
            before = self._stage
            self._stage = replace(before, n_cells=max(_LEAST_CELLS, before.n_cells // 4))
            smaller = self._grown(frame, train, valid)
            gains = losses(growth, booster) - losses(*smaller)
            if gains.mean() <= gains.std() / np.sqrt(len(gains)):
                self._stage = before
                break
            growth, booster = smaller
        return growth, booster

    @property
    def _takes_part(self) -> bool:
        # For the median and other quantiles LightGBM changes leaves again, out of their order.
        if self.context.signs is not None and isinstance(self.context.loss, Kinked):
            return False
        return self.takes(self.context.n_outputs)

    def fit(self, frame: Frame) -> CellModel:
        """Grow the trees on all rows, unless those of a split have nearly all."""
        if self._model is not None:
            return self._model
        context, stage = self.context, replace(self._stage, rounds=max(1, self.n_rounds))
        growth = Growth(context, frame, context.rows, stage)
        progress = self._progress(stage.rounds)
        model = growth.model(growth.train(progress=progress))
        progress.finish()
        return model

    def describe(self) -> str:
        """Return the number of rounds."""
        stage = self._stage
        thresholds = " with random thresholds" if stage.is_random else ""
        cells = " and linear models in them" if stage.is_linear else ""
        return f"boosted trees of {stage.n_cells} leaves{cells}{thresholds}, {self.n_rounds} rounds"

    @classmethod
    def memory(cls, shape: FitShape) -> Stages:
        """Return what the trees of all classes and the weights of their cells take."""
        if not cls.takes(shape.n_outputs):
            return Stages()
        stage = cls._make_stage(shape.n_rows, shape.n_outputs, shape.n_columns)
        n_trees = shape.n_outputs * min(stage.rounds, _USUAL_ROUNDS)
        # A tree that tells one class from all others has few rows to split.
        n_leaves = stage.n_cells // (2 if shape.n_outputs > 1 else 1)
        n_leaves = min(n_leaves, max(2, shape.n_rows // _USUAL_LEAF))
        n_weights = shape.n_outputs * (1 + shape.n_features * stage.is_linear)
        return boosted_memory(n_trees, n_leaves, shape.n_columns, stage.n_bins, n_weights)

    @classmethod
    def seconds(cls, size: Size) -> Seconds:
        """Return the time of the rounds until boosting stops, and of a few more."""
        if not cls.takes(size.n_outputs):
            return Seconds()
        once = (0.012 + 2.7e-6 * size.n_rows) * max(size.n_columns, 4) * size.n_outputs
        return Seconds(once, 1.3 * once)


class BoostedRandom(Boosted):
    """Boosted trees whose thresholds are drawn at random, which average better."""

    name = "boosted_random"
    _max_outputs = np.inf

    @classmethod
    def _make_stage(cls, n_rows: int, n_outputs: int, n_columns: int) -> Stage:
        return replace(super()._make_stage(n_rows, n_outputs, n_columns), is_random=True)


class BoostedLinear(BoostedRandom):
    """Boosted trees with a linear model in every leaf, for smooth targets."""

    name = "boosted_linear"

    @classmethod
    def _make_stage(cls, n_rows: int, n_outputs: int, n_columns: int) -> Stage:
        return LINEAR_STAGE

    @property
    def _takes_part(self) -> bool:
        context = self.context
        # LightGBM has linear leaves for few objectives, and exp of what they extrapolate explodes.
        if context.has_own_link or context.options.cells != "linear":
            return False
        # LightGBM gives a slope to every column of numbers.
        numbers = np.flatnonzero(context.columns.n_categories == 0)
        return np.array_equal(context.plan.numbers, numbers)


# -- values of cells -----------------------------------------------------------------------------


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
