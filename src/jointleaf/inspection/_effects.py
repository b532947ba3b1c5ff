"""Effect curves: how the prediction moves with one column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jointleaf.inspection._raw import RawModel, last_step, named_column, raw_model

__all__ = ["Effect", "EffectKind", "effect"]

EffectKind = Literal["ale", "partial_dependence"]
_BLOCK_ROWS = 50_000


@dataclass(frozen=True, repr=False)
class Effect:
    """How the raw prediction moves with one column.

    Attributes
    ----------
    column : str
    kind : {"ale", "partial_dependence"}
    grid : array (g,)
        Numbers, or the names of levels, None for missing.
    values : array (g,) or (g, K)
        Accumulated local effects are centred: their mean over the rows is zero. Partial
        dependences are mean predictions.
    rows : array (n,)
        The column in the rows that the curve was computed from.
    output_names : tuple or None
    """

    column: str
    kind: EffectKind
    grid: NDArray
    values: NDArray[np.float64]
    rows: NDArray
    output_names: tuple | None = None

    def __repr__(self) -> str:
        return f"Effect of {self.column!r} ({self.kind}) at {len(self.grid)} places"


def effect(
    model: Any,
    X: Any,
    column: Any,
    *,
    kind: EffectKind = "ale",
    n_grid: int = 40,
    task: Any = None,
) -> Effect:
    r"""Compute an effect curve of one column from rows.

    With quantiles z_0 < ... < z_g of column j over the rows, the accumulated local effect (Apley
    and Zhu 2020) is

    .. math::

        ALE(z_k) = \sum_{i \le k} \operatorname{mean}_{x:\, z_{i-1} < x_j \le z_i}
                   [f(z_i, x_{-j}) - f(z_{i-1}, x_{-j})] - \text{constant},

    with the constant that makes the mean over the rows zero. Rows are moved only as far as their
    neighbours, so that no row is made up that correlated columns forbid. The partial dependence
    (Friedman 2001) is the mean of f(z_k, x_{-j}) over all rows, which is also what
    `sklearn.inspection.partial_dependence` computes; it is the one to use for levels, which have no
    order.

    Parameters
    ----------
    model : fitted estimator of jointleaf, or a Pipeline that ends in one
    X : array-like or data frame (n, d)
        Rows over which means are taken; some hundreds are enough. Rows in which the column is
        missing are left out of accumulated local effects.
    column : str or int
    kind : {"ale", "partial_dependence"}
        Columns with categories have the partial dependence of all levels in any case.
    n_grid : int
        Places on the grid, at most.
    task : name of a task
        Needed where there are several.

    Returns
    -------
    Effect
        On the scale of raw predictions.
    """
    if kind not in ("ale", "partial_dependence"):
        raise ValueError(f"kind={kind!r} is not known: use 'ale' or 'partial_dependence'")
    if not isinstance(n_grid, int | np.integer) or n_grid < 2:
        raise ValueError(f"n_grid={n_grid!r} must be a whole number, at least 2")
    model, X = last_step(model, X)
    raw = raw_model(model, task)
    rows = raw.read(X)
    j = named_column(raw.columns, column)
    if raw.columns[j].categories is not None:
        return _of_levels(raw, rows, j)
    known = rows[~np.isnan(rows[:, j])]
    if not len(known):
        raise ValueError(f"column {raw.names[j]!r} is missing in all rows of X")
    grid = _quantiles(known[:, j], n_grid)
    means, over = (_accumulated, known) if kind == "ale" else (_dependence, rows)
    values = means(raw, over, j, grid)
    return Effect(raw.names[j], kind, grid, values, known[:, j], raw.outputs)


def _quantiles(x: NDArray, n_grid: int) -> NDArray[np.float64]:
    """Different values of the column, as evenly spread over the rows as possible."""
    return np.unique(np.quantile(x, np.linspace(0, 1, n_grid), method="inverted_cdf"))


def _accumulated(raw: RawModel, rows: NDArray, j: int, grid: NDArray) -> NDArray[np.float64]:
    """Accumulated local effects (g[, K]) at the places of a grid."""
    part = np.clip(np.searchsorted(grid, rows[:, j]), 1, max(1, len(grid) - 1))
    upper, lower = rows.copy(), rows.copy()
    upper[:, j] = grid[np.minimum(part, len(grid) - 1)]
    lower[:, j] = grid[part - 1]
    change = raw.predict(upper) - raw.predict(lower)
    sums = np.zeros((len(grid), *change.shape[1:]))
    counts = np.bincount(part, minlength=len(grid)).astype(float)
    np.add.at(sums, np.minimum(part, len(grid) - 1), change)
    steps = sums / np.maximum(counts[: len(grid)], 1.0).reshape(-1, *(1,) * (change.ndim - 1))
    total = np.cumsum(steps, axis=0)
    # The mean over the rows, each taken as the middle of its part of the grid.
    middle = (total[part - 1] + total[np.minimum(part, len(grid) - 1)]) / 2
    return total - middle.mean(axis=0)


def _dependence(raw: RawModel, rows: NDArray, j: int, grid: NDArray) -> NDArray[np.float64]:
    """Mean predictions (g[, K]) of all rows with column j set to the places of a grid."""
    n = len(rows)
    step = max(1, _BLOCK_ROWS // n)
    means = []
    for start in range(0, len(grid), step):
        places = grid[start : start + step]
        many = np.tile(rows, (len(places), 1))
        many[:, j] = np.repeat(places, n)
        found = raw.predict(many)
        means.append(found.reshape(len(places), n, *found.shape[1:]).mean(axis=1))
    return np.concatenate(means).astype(np.float64)


def _of_levels(raw: RawModel, rows: NDArray, j: int) -> Effect:
    from jointleaf.inspection._explaining import decoded

    levels = raw.columns[j].categories
    assert levels is not None
    codes = np.arange(len(levels), dtype=float)
    names = [*levels.tolist()]
    if np.isnan(rows[:, j]).any():
        codes, names = np.append(codes, np.nan), [*names, None]
    grid = np.empty(len(names), dtype=object)
    grid[:] = names
    values = _dependence(raw, rows, j, codes)
    own = decoded(rows, raw.columns)[:, j]
    return Effect(raw.names[j], "partial_dependence", grid, values, own, raw.outputs)
