"""How far targets are from predictions: conformal calibration on rows that a model has not seen.

A fit predicts held-out rows to choose what it blends; their residuals say how sure a prediction is
(cross-conformal prediction, Vovk 2015). Rows that took no part in the fit at all give the exact
guarantee of split-conformal prediction (Vovk, Gammerman and Shafer 2005).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.losses import Loss
from jointleaf._data.columns import Column, Columns
from jointleaf._data.rows import deal_groups
from jointleaf._fit.component import Blend, FitContext, Split
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers.lightgbm import ModelText, read_trees
from jointleaf._trees.routing import Router

_MOST_SCORES = 1000  # that are kept; more are thinned out, those at both ends least
_END_SCORES = 100
_ROUNDED = 1e-9  # ranks that are whole but for rounding
#: How errors fall with the rows m of a fit, as m^-(R^2 / 8): the part of the target that is
#: predicted is what further rows make better. Measured, see docs/intervals.md.
_LEARNING = 0.125


@dataclass(frozen=True)
class HeldOut:
    """Rows that were predicted by a model that has not seen them.

    Attributes
    ----------
    X : array (n, d)
        As models see them.
    y : array (n,)
        Numbers, or for classes their numbers from 0 on.
    predictions : array (n,) or (n, K)
        Of y, or probabilities.
    s : array (n,)
        Weights.
    n_rows : int
        Of the n rows how many are different ones: splits may hold out a row several times.
    train_part : float
        Rows that the model was fitted to, as a part of those of the model that is used.
    groups : array (n,) or None
        Numbers of the groups of rows that stay together; None without groups.
    deviations : array (n,) or float
        Standard deviations, up to a factor, that the loss gives targets: those of counts grow with
        their exposure.
    """

    X: NDArray
    y: NDArray
    predictions: NDArray
    s: NDArray
    n_rows: int
    train_part: float = 1.0
    groups: NDArray[np.int64] | None = None
    deviations: NDArray | float = 1.0

    @property
    def residuals(self) -> NDArray[np.float64]:
        """Targets minus predictions."""
        return np.asarray(self.y - self.predictions, float)

    def shrinkage(self) -> float:
        """Return by what factor errors of the model that is used are smaller, about."""
        centred = self.y - np.average(self.y, weights=self.s)
        unit = float(np.abs(centred).max()) or 1.0  # squares of large targets are infinite
        variance = self.s @ np.square(centred / unit)
        error = self.s @ np.square(self.residuals / unit)
        part_predicted = max(0.0, 1.0 - float(error / variance)) if variance > 0 else 0.0
        return self.train_part ** (_LEARNING * part_predicted)


def held_out_rows(
    context: FitContext,
    blend: Blend,
    predictions: Mapping[str, list[NDArray]],
    splits: Sequence[Split],
) -> HeldOut | None:
    """Return the validation rows of all splits, predicted by a blend; None where they are not."""
    if not splits or any(len(predictions.get(k, ())) != len(splits) for k in blend.active):
        return None
    parts = []
    for i, (train, valid) in enumerate(splits):
        centre, unit = context.target_units(train)
        terms = [blend.weights[k] * predictions[k][i] for k in blend.active]
        raw = centre + unit * (np.sum(terms, axis=0) + blend.constant)
        raw = raw + valid.offset if context.is_regression else raw
        y = valid.y if context.is_regression else np.maximum(valid.y, 0)
        # New rows are as frequent as they are, whatever the weights of their classes.
        s = valid.s / context.class_factors(valid)
        predicted = context.loss.link(raw)
        spread = context.loss.deviation(predicted) if context.is_regression else np.ones(len(y))
        parts.append((valid.X, y, predicted, s, spread))
    X, y, predicted, s, spread = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    held_out = (context.rows.labels & 2) > 0  # splits of the user's
    n_rows = int(held_out.any(axis=1).sum()) if held_out.any() else len(y)
    n_train = float(np.mean([len(train) for train, _ in splits]))
    train_part = min(1.0, n_train / len(context.rows))
    groups = None
    if all(valid.has_groups for _, valid in splits):
        groups = np.concatenate([valid.groups for _, valid in splits])
    return HeldOut(X, y, predicted, s, min(n_rows, len(y)), train_part, groups, spread)


# -- scores ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Calibration:
    """The distribution of scores on rows that a model has not seen.

    The score of a number is its residual, divided by the width of its row. That of a class is one
    minus its probability.

    Attributes
    ----------
    scores : array (m,)
        In rising order; all of them, or a thousand.
    ranks : array (m,)
        Of these, 1 to n for n rows of equal weights. With others, they are the ranks in the middle
        of each row's weight, where all weights add up to `total`.
    total : float
        n, or (sum s)^2 / sum s^2 with weights s: rows of equal weights that say as much.
    n_rows : int
    is_fresh : bool
        Whether the rows took no part in the fit at all.
    widths : FlatTrees or None
        Trees of the columns and, as one more, the prediction, whose leaf values add up to the
        logarithm of the width; None where widths are the deviations that the loss gives targets,
        which are 1 but for counts and amounts.
    """

    scores: NDArray[np.float64]
    ranks: NDArray[np.float64]
    total: float
    n_rows: int
    is_fresh: bool
    widths: FlatTrees | None = None

    @classmethod
    def of_fit(cls, rows: HeldOut, columns: Columns) -> Calibration:
        """Return the calibration on held-out rows of a fit; numbers have widths if these help."""
        if rows.predictions.ndim == 2:
            return cls._of_scores(_class_scores(rows), rows)
        sizes, trees = _learn_widths(rows, columns)
        return cls._of_scores(rows.shrinkage() * rows.residuals / sizes, rows, widths=trees)

    @classmethod
    def of_fresh(cls, rows: HeldOut, before: Calibration | None) -> Calibration:
        """Return the calibration on rows that took no part in the fit, with widths from before."""
        if rows.predictions.ndim == 2:
            return cls._of_scores(_class_scores(rows), rows, is_fresh=True)
        sizes, widths = rows.deviations, None
        if before is not None and before.widths is not None:
            sizes, widths = before.sizes(rows.X, rows.predictions), before.widths
        return cls._of_scores(rows.residuals / sizes, rows, widths=widths, is_fresh=True)

    @classmethod
    def _of_scores(
        cls,
        scores: NDArray,
        rows: HeldOut,
        *,
        widths: FlatTrees | None = None,
        is_fresh: bool = False,
    ) -> Calibration:
        order = np.argsort(scores, kind="stable")
        s = rows.s / rows.s.max()
        total = float(s.sum() ** 2 / np.square(s).sum()) * rows.n_rows / len(s)
        s = s[order] * (total / s.sum())
        ranks = np.cumsum(s) - s + (s + 1) / 2
        kept = _kept(len(s))
        return cls(scores[order][kept], ranks[kept], total, rows.n_rows, is_fresh, widths)

    def upper(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return scores that a new row's exceeds with a probability of at most 1 - level.

        That of rank ceil((n + 1) level), as all n + 1 ranks of the new score are equally likely;
        infinity where the rows are too few.
        """
        ranks = (self.total + 1) * np.asarray(levels, float) * (1 - _ROUNDED)
        return np.append(self.scores, np.inf)[np.searchsorted(self.ranks, ranks)]

    def lower(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return scores that a new row's is below with a probability of at most the level."""
        ranks = (self.total + 1) * np.asarray(levels, float) * (1 + _ROUNDED)
        places = np.searchsorted(self.ranks, ranks, side="right")
        return np.append(-np.inf, self.scores)[places]

    def quantiles(
        self, X: NDArray, predictions: NDArray, levels: ArrayLike, loss: Loss
    ) -> NDArray[np.float64]:
        """Return quantiles (n, Q) of the targets of rows X (n, d) with predictions (n,).

        They are infinite where there are too few rows to calibrate on, and not negative where a
        loss is of targets that are not.
        """
        levels = np.asarray(levels, float)
        scores = np.where(levels < 0.5, self.lower(levels), self.upper(levels))
        is_learned = self.widths is not None
        sizes = self.sizes(X, predictions) if is_learned else loss.deviation(predictions)
        quantiles = predictions[:, None] + sizes[:, None] * scores
        if not loss.has_log_link:
            return quantiles
        is_low = levels < 0.5
        quantiles[:, is_low] = np.minimum(
            quantiles[:, is_low], loss.low_quantiles(predictions[:, None], levels[is_low])
        )
        return np.maximum(quantiles, 0.0)

    def sizes(self, X: NDArray, predictions: NDArray) -> NDArray[np.float64]:
        """Return widths (n,) by the trees, of rows X (n, d) as models see them."""
        assert self.widths is not None
        leaves = self._router(with_predictions(X, predictions))
        return np.exp(self.widths.leaf_sums(leaves)[:, 0])

    @cached_property
    def _router(self) -> Router:
        assert self.widths is not None
        return Router(self.widths)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_router"}

    def line(self, *, is_regression: bool, has_log_link: bool = False) -> tuple[str, str]:
        """Return the line of a summary; with a log link widths follow the prediction."""
        kind = "fresh rows" if self.is_fresh else "held-out rows of the fit"
        text = f"from {self.n_rows:,} {kind}"
        if not is_regression:
            return "sets", text
        kind = "adaptive width"
        if self.widths is None:
            kind = "width by the prediction" if has_log_link else "constant width"
        return "intervals", f"{text}, {kind}"


def check_level(name: str, value: Any) -> float:
    """Return a probability that is neither 0 nor 1."""
    is_number = isinstance(value, float | int | np.number) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1:
        raise ValueError(f"{name}={value!r} must be a number between 0 and 1, such as 0.9")
    return float(value)


def interval_levels(coverage: float) -> NDArray[np.float64]:
    """Return the levels of the quantiles at the ends of intervals."""
    missed = (1 - check_level("coverage", coverage)) / 2
    return np.array([missed, 1 - missed])


def _class_scores(rows: HeldOut) -> NDArray[np.float64]:
    return 1.0 - rows.predictions[np.arange(len(rows.y)), rows.y.astype(np.intp)]


def _kept(n: int) -> NDArray[np.intp]:
    """Return which of n scores in rising order are kept."""
    if n <= _MOST_SCORES:
        return np.arange(n)
    ends = np.arange(_END_SCORES)
    middle = np.linspace(0, n - 1, _MOST_SCORES - 2 * _END_SCORES).round().astype(np.intp)
    return np.unique(np.concatenate([ends, middle, n - 1 - ends]))


# -- widths that depend on the row: trees of residuals --------------------------------------------


_FEWEST_ROWS, _MOST_ROWS = 100, 20_000  # that they are learned from
_PARTS = 4  # of cross-fitting
_POWERS = (1.0, 0.5)  # of the learned sizes
_MISSED = 0.1  # part of the rows outside the intervals that are compared
_SMALLEST = 1e-3  # size of a residual, in mean sizes: widths are positive
_ZERO = 1e-9  # residuals that are smaller, relative to the target, are rounding errors
_ROUNDS = 40
_PARAMS = {
    "learning_rate": 0.1,
    "num_leaves": 4,
    "min_data_in_leaf": 40,
    "lambda_l2": 5.0,
    "max_bin": 63,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@dataclass(frozen=True)
class LogWidths:
    """Logarithms of widths (n,) of held-out rows by trees that have not seen them.

    `parts` (n,) are the parts that rows were dealt out to, and `growth` grows the trees.
    """

    logs: NDArray[np.float64]
    parts: NDArray[np.intp]
    growth: ResidualTrees


def log_widths(rows: HeldOut, columns: Columns) -> LogWidths | None:
    """Return widths by trees of the sizes of residuals, fitted by the gamma deviance.

    None where there are too few rows, no residuals, or one group alone.
    """
    n, residuals = len(rows.y), rows.residuals
    if n < _FEWEST_ROWS or np.abs(residuals).max() <= _ZERO * np.abs(rows.y).max():
        return None
    sizes = np.abs(residuals)
    sizes = np.maximum(sizes / np.average(sizes, weights=rows.s), _SMALLEST)
    growth = ResidualTrees(rows, columns, sizes, {"objective": "gamma"}, _ROUNDS)
    parts, logs = np.arange(n) % _PARTS, np.empty(n)
    if rows.groups is not None:
        parts = deal_groups(rows.groups, _PARTS)
        if parts.max() == 0:  # one group: nothing to validate widths on
            return None
    for part in range(int(parts.max()) + 1):
        logs[parts == part] = growth.predict(parts != part, parts == part)
    return LogWidths(logs, parts, growth)


def _learn_widths(rows: HeldOut, columns: Columns) -> tuple[NDArray[np.float64], FlatTrees | None]:
    """Return widths (n,) of held-out rows by trees that have not seen them, and trees of all rows.

    Widths are the power of what trees predict with the smallest interval score (Gneiting and
    Raftery 2007), and the deviations that the loss gives where that is not clearly smaller than
    their score.
    """
    n, residuals = len(rows.y), rows.residuals
    given = np.broadcast_to(rows.deviations, n), None
    learned = log_widths(rows, columns)
    if learned is None:
        return given
    losses = {power: _interval_scores(residuals, np.exp(power * learned.logs)) for power in _POWERS}
    power = min(_POWERS, key=lambda power: float(rows.s @ losses[power]))
    gains = rows.s * (_interval_scores(residuals, given[0]) - losses[power])
    if gains.mean() <= gains.std() / np.sqrt(n):
        return given
    trees = learned.growth.trees(np.ones(n, bool))
    assert trees.leaf_values is not None
    return np.exp(power * learned.logs), replace(trees, leaf_values=power * trees.leaf_values)


class ResidualTrees:
    """Grows small trees of the columns and the prediction, for a target (n,) of held-out rows."""

    def __init__(
        self,
        rows: HeldOut,
        columns: Columns,
        target: NDArray,
        objective: Mapping[str, Any],
        n_rounds: int,
    ) -> None:
        self._table = with_predictions(rows.X, rows.predictions)
        self._target, self._s = target, rows.s / rows.s.mean()
        self._columns = Columns((*columns.coded().columns, Column("prediction")))
        self._params, self._n_rounds = {**objective, **_PARAMS}, n_rounds

    def trees(self, is_used: NDArray[np.bool_]) -> FlatTrees:
        """Return trees grown on some rows, whose leaf values add up to raw predictions."""
        return read_trees(ModelText(self._booster(is_used)), self._columns)

    def predict(self, is_used: NDArray[np.bool_], is_predicted: NDArray[np.bool_]) -> NDArray:
        """Return raw predictions of some rows, by trees of others."""
        booster = self._booster(is_used)
        return np.asarray(booster.predict(self._table[is_predicted], raw_score=True))

    def _booster(self, is_used: NDArray[np.bool_]) -> Any:
        import lightgbm

        used = np.flatnonzero(is_used)
        used = used[:: -(-len(used) // _MOST_ROWS)]
        data = lightgbm.Dataset(
            self._table[used],
            self._target[used],
            weight=self._s[used],
            categorical_feature=self._columns.categorical.tolist(),
            params=self._params,
        )
        return lightgbm.train(self._params, data, num_boost_round=self._n_rounds)


def with_predictions(X: NDArray, predictions: NDArray) -> NDArray:
    """Return rows (n, d + 1): the columns, and as one more the prediction."""
    return np.column_stack([X, predictions])


def _interval_scores(residuals: NDArray, sizes: NDArray) -> NDArray[np.float64]:
    """Return widths of intervals, plus what misses cost, of all rows."""
    low, high = np.quantile(residuals / sizes, (_MISSED / 2, 1 - _MISSED / 2))
    below, above = low * sizes - residuals, residuals - high * sizes
    return (high - low) * sizes + 2 / _MISSED * np.maximum(np.maximum(below, above), 0.0)
