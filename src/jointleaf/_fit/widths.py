"""Widths of intervals that depend on the row: trees of residuals of held-out rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Column, Columns
from jointleaf._data.rows import deal_groups
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers.lightgbm import ModelText, read_trees

if TYPE_CHECKING:
    from jointleaf._fit.calibration import HeldOut

__all__ = ["LogWidths", "ResidualTrees", "learn_widths", "log_widths", "with_predictions"]

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


def learn_widths(rows: HeldOut, columns: Columns) -> tuple[NDArray[np.float64], FlatTrees | None]:
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
