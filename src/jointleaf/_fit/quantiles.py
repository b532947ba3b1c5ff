"""Several quantiles around a median, all fitted in one convex problem: they never cross.

The quantile of level k is f(x) + sum_j b_j(x) v_jk, where f is a model of the median and the
functions b_j are nowhere negative: a constant, learned widths, and the indicators of the cells of
small trees. Values v_jk rise with the level for every j, and so do the quantiles of every row. They
are fitted to residuals of held-out rows, as those of training rows are too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.solvers.levels import fit_levels
from jointleaf._data.columns import Columns
from jointleaf._fit.calibration import (
    Calibration,
    HeldOut,
    LogWidths,
    ResidualTrees,
    log_widths,
    with_predictions,
)
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import Router

MOST_LEVELS = 20  # the time of a fit grows with their number
_MOST_ROWS = 20_000  # that levels are fitted to
_ROUNDS = 10  # trees for the lowest level, and as many for the highest
_POWERS = (0.5, 1.0)  # of learned widths
_WIDTH_STRENGTH = 0.1  # of widths, divided by the number of rows
_STRENGTHS = (10.0, 1.0, 0.1, 0.01)  # of the cells, which without any take no part
_PATH_TOL, _TOL = 1e-3, 1e-6  # of solves that choose the strength, and of the last one


@dataclass(frozen=True, eq=False)
class JointQuantiles:
    """Distances of quantiles from a prediction.

    Attributes
    ----------
    levels : array (K,)
        Rising.
    coefficients : array (1, K) or (3, K)
        Of a constant and, with widths, of the square root of the width and the width itself. They
        rise with the level.
    widths : FlatTrees or None
        Trees of the columns and, as one more, the prediction, whose leaf values add up to the
        logarithm of the width.
    cells : tuple of FlatTrees
        Trees of the same columns with K values in every leaf, which rise with the level; none where
        held-out rows did not show that they help.
    n_rows : int
        Held-out rows that they were fitted to.
    """

    levels: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    widths: FlatTrees | None
    cells: tuple[FlatTrees, ...]
    n_rows: int

    @classmethod
    def of_fit(cls, rows: HeldOut, columns: Columns, levels: NDArray) -> JointQuantiles:
        """Fit all levels to the residuals of held-out rows of a fit."""
        rows = _thinned(rows)
        unit = float(np.average(np.abs(rows.residuals), weights=rows.s)) or 1.0
        learned = log_widths(rows, columns)
        fit = _LevelFit(rows, columns, levels, rows.residuals / unit, learned)
        strength = fit.choose_strength() if learned is not None else np.inf
        everything = np.ones(len(rows.y), bool)
        cells = fit.cells(everything) if np.isfinite(strength) else ()
        values = unit * rows.shrinkage() * fit.values(everything, cells, strength, _TOL)
        n_widths = fit.widths.shape[1]
        ends = np.cumsum([n_widths, *(len(trees.cell_of_leaf) for trees in cells)])
        return cls(
            levels,
            values[:n_widths] / fit.width_means[:, None],
            None if learned is None else learned.growth.trees(everything),
            tuple(
                replace(trees, leaf_values=values[begin:end])
                for trees, begin, end in zip(cells, ends[:-1], ends[1:], strict=True)
            ),
            rows.n_rows,
        )

    def predict(self, X: NDArray, predictions: NDArray) -> NDArray[np.float64]:
        """Return quantiles (n, K) of rows X (n, d) as models see them, with predictions (n,)."""
        table = with_predictions(X, predictions)
        widths, *cells = self._routers
        logs = np.zeros(len(table))
        if self.widths is not None:
            assert widths is not None
            logs = self.widths.leaf_sums(widths(table))[:, 0]
        functions = _functions(logs)[:, : len(self.coefficients)]
        quantiles = predictions[:, None] + functions @ self.coefficients
        for router in cells:
            assert router is not None
            quantiles += router.trees.leaf_sums(router(table))
        return np.maximum.accumulate(quantiles, axis=1)  # sums rise but for rounding

    def calibrated(self, rows: HeldOut) -> JointQuantiles:
        """Return these quantiles, each shifted so that fresh rows are below it as often as it says.

        That is asymmetric conformalised quantile regression (Romano, Patterson and Candes 2019):
        the shift is a residual of rank ceil((n + 1) level), or floor below the middle. Levels that
        would cross then are moved away from the middle, which keeps what is guaranteed.
        """
        shifts = np.empty(len(self.levels))
        for k, quantile in enumerate(self.predict(rows.X, rows.predictions).T):
            scores = Calibration.of_fresh(replace(rows, predictions=quantile), None)
            level = self.levels[k]
            shifts[k] = scores.lower(level) if level < 0.5 else scores.upper(level)
        if not np.isfinite(shifts).all():
            worst = min(self.levels[0], 1 - self.levels[-1])
            raise ValueError(
                f"calibrate needs at least {int(np.ceil(1 / worst - 1e-9)) - 1} rows for the level "
                f"{self.levels[np.isinf(shifts)][0]:g}, and has {rows.n_rows}: give more"
            )
        constants = self.coefficients[0] + shifts
        n_low = int((self.levels < 0.5).sum())
        constants[n_low:] = np.maximum.accumulate(constants[n_low:])
        if n_low < len(constants):
            constants[:n_low] = np.minimum(constants[:n_low], constants[n_low])
        constants[:n_low] = np.minimum.accumulate(constants[:n_low][::-1])[::-1]
        return replace(self, coefficients=np.vstack([constants, self.coefficients[1:]]))

    @cached_property
    def _routers(self) -> list[Router | None]:
        widths = None if self.widths is None else Router(self.widths)
        return [widths, *map(Router, self.cells)]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_routers"}

    def line(self) -> tuple[str, str]:
        """Return the line of a summary."""
        n_trees = sum(trees.n_trees for trees in self.cells)
        kind = "constant" if self.widths is None else "adaptive"
        cells = f", cells of {n_trees} trees" if n_trees else ""
        levels = ", ".join(f"{level:g}" for level in self.levels)
        text = f"{levels} jointly from {self.n_rows:,} held-out rows of the fit"
        return "quantiles", f"{text}, {kind} width{cells}"


class _LevelFit:
    """The joint problem of held-out rows, and the choice of its strength."""

    def __init__(
        self,
        rows: HeldOut,
        columns: Columns,
        levels: NDArray,
        residuals: NDArray,
        learned: LogWidths | None,
    ) -> None:
        self._rows, self._levels, self._residuals = rows, levels, residuals
        self._table = with_predictions(rows.X, rows.predictions)
        n = len(residuals)
        self.widths = np.ones((n, 1)) if learned is None else _functions(learned.logs)
        self.width_means = self.widths.mean(axis=0)
        self.widths = self.widths / self.width_means
        self._parts = np.zeros(n, np.intp) if learned is None else learned.parts
        self._growths = [
            ResidualTrees(
                rows, columns, residuals, {"objective": "quantile", "alpha": level}, _ROUNDS
            )
            for level in dict.fromkeys([float(levels[0]), float(levels[-1])])
        ]

    def cells(self, is_used: NDArray[np.bool_]) -> tuple[FlatTrees, ...]:
        """Return trees grown on some rows for the lowest and the highest level."""
        return tuple(growth.trees(is_used) for growth in self._growths)

    def values(
        self,
        is_used: NDArray[np.bool_],
        cells: Sequence[FlatTrees],
        strength: float,
        tol: float = _PATH_TOL,
    ) -> NDArray[np.float64]:
        """Return the values (m, K) of all functions, fitted to some rows."""
        basis = self._basis(is_used, cells)
        n_rows, n_widths = len(basis), self.widths.shape[1]
        curvature = np.full(basis.shape[1], strength)
        curvature[:n_widths] = _WIDTH_STRENGTH / n_rows
        curvature[0] = 0.0
        s = self._rows.s[is_used]
        return fit_levels(
            basis, self._residuals[is_used], s, self._levels, curvature, tol=tol
        ).values

    def _basis(self, is_used: NDArray[np.bool_], cells: Sequence[FlatTrees]) -> NDArray[np.float64]:
        indicators = [_indicators(trees, self._table[is_used]) for trees in cells]
        return np.hstack([self.widths[is_used], *indicators])

    def choose_strength(self) -> float:
        """Return the strength of cells with the smallest loss of parts that are left out.

        Strengths are followed from strong to weak until the loss rises. Infinity, without cells,
        unless their loss is smaller by more than a standard error.
        """
        parts = [self._parts == part for part in range(int(self._parts.max()) + 1)]
        grown = [self.cells(~part) for part in parts]
        strengths, losses = (np.inf, *_STRENGTHS), []
        s = self._rows.s
        for strength in strengths:
            row_losses = np.empty(len(s))
            for part, trees in zip(parts, grown, strict=True):
                cells = trees if np.isfinite(strength) else ()
                values = self.values(~part, cells, strength)
                residuals = self._residuals[part, None] - self._basis(part, cells) @ values
                row_losses[part] = np.maximum(
                    self._levels * residuals, (self._levels - 1) * residuals
                ).sum(axis=1)
            losses.append(row_losses)
            if len(losses) > 1 and s @ losses[-1] >= s @ losses[-2]:
                break
        best = int(np.argmin([s @ row_losses for row_losses in losses]))
        gains = s * (losses[0] - losses[best])
        return strengths[best] if gains.mean() > gains.std() / np.sqrt(len(s)) else np.inf


def check_single(model: Any, purpose: str) -> None:
    """Raise for a fitted model of several quantiles, which `purpose` does not know."""
    if hasattr(model, "quantiles_"):
        raise ValueError(
            f"{purpose} is not possible for a model of several quantiles "
            f"({model.quantiles_.levels.tolist()!r}): fit one with loss='quantile' and one level, "
            "or with loss='absolute_error'"
        )


def _functions(logs: NDArray) -> NDArray[np.float64]:
    """Return a constant and powers of widths, of the logarithms of widths (n,)."""
    return np.exp(logs[:, None] * [0.0, *_POWERS])


def _indicators(trees: FlatTrees, table: NDArray) -> NDArray[np.float64]:
    """Return whether rows (n, d) are in a leaf, 1 or 0, for all leaves of trees."""
    leaves = Router(trees)(table) + trees.leaf_starts[:-1]
    indicators = np.zeros((len(table), len(trees.cell_of_leaf)))
    np.put_along_axis(indicators, leaves, 1.0, axis=1)
    return indicators


def _thinned(rows: HeldOut) -> HeldOut:
    """Return every second, third, ... row of too many."""
    step = -(-len(rows.y) // _MOST_ROWS)
    if step <= 1:
        return rows
    arrays = {name: getattr(rows, name)[::step] for name in ("X", "y", "predictions", "s")}
    groups = None if rows.groups is None else rows.groups[::step]
    return replace(rows, **arrays, groups=groups, deviations=1.0)
