"""Effect curves of columns, and interactions of pairs of them, from predictions alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import check_count
from jointleaf._data.raw_table import closest_name
from jointleaf._data.texts import DATE_PARTS, date_parts, from_days
from jointleaf.inspection._parts import RawModel, decode_categories, step_model

EffectKind = Literal["ale", "partial_dependence"]
_Move = Callable[[NDArray, NDArray], None]  # of rows, in place, to values of a column
_BLOCK_ROWS = 50_000
_MOST_COLUMNS = 10  # whose interactions are measured where none are named
_WEEK, _FEWEST_STEPS = 7.0, 8  # days; steps of an effect of dates that a unit of time must leave
_ROUNDING = 1e-13  # smaller strengths, relative to the predictions, are none


@dataclass(frozen=True, repr=False)
class Effect:
    """How the raw prediction moves with one column.

    Attributes
    ----------
    column : str
    kind : {"ale", "partial_dependence"}
    grid : array (g,)
        Numbers, dates (datetime64, also for days since 1970-01-01 that a date became), or the names
        of categories, None for missing.
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

    @property
    def is_day(self) -> bool:
        """Whether the grid holds dates."""
        return self.grid.dtype.kind == "M"

    def __repr__(self) -> str:
        return f"Effect of {self.column!r} ({self.kind}) at {len(self.grid)} places"


def effect(
    model: Any,
    X: Any,
    column: Any,
    *,
    kind: EffectKind = "ale",
    n_grid: int = 40,
    n_categories: int | None = None,
    task: Any = None,
) -> Effect:
    r"""Compute an effect curve of one column from rows.

    With quantiles z_0 < ... < z_g of column j over the rows, or all its values where these are few,
    the accumulated local effect (Apley and Zhu 2020) is

    .. math::

        ALE(z_k) = \sum_{i \le k} \operatorname{mean}_{x:\, z_{i-1} < x_j \le z_i}
                   [f(z_i, x_{-j}) - f(z_{i-1}, x_{-j})] - \text{constant},

    with the constant that makes the mean over the rows zero. Rows are moved only as far as their
    neighbours, so that no row is made up that correlated columns forbid. The partial dependence
    (Friedman 2001) is the mean of f(z_k, x_{-j}) over all rows, which is also what
    `sklearn.inspection.partial_dependence` computes; it is the one to use for categories, which
    have no order.

    Parameters
    ----------
    model : fitted estimator of jointleaf, or a Pipeline that ends in one
    X : array-like or data frame (n, d)
        Rows over which means are taken; some hundreds are enough. Rows in which the column is
        missing are left out of accumulated local effects.
    column : str or int
        Also a column of dates of the table that the model or the preprocessor of the pipeline was
        given, of which it made numbers: all of them are moved together, from date to date. Where
        there are more dates than places, places are whole weeks apart (or days), so that the curve
        does not mix in how weekdays or hours differ: these are columns of their own.
    kind : {"ale", "partial_dependence"}
        Columns with categories have the partial dependence in any case.
    n_grid : int
        Places on the grid, at most; not for categories.
    n_categories : int, optional
        Categories at most, the most frequent ones in `X`; by default all.
    task : name of a task
        Needed where there are several.

    Returns
    -------
    Effect
        On the scale of raw predictions.
    """
    if kind not in ("ale", "partial_dependence"):
        raise ValueError(f"kind={kind!r} is not known: use 'ale' or 'partial_dependence'")
    check_count("n_grid", n_grid, least=2)
    if n_categories is not None:
        check_count("n_categories", n_categories)
    raw, rows = step_model(model, X, task)
    date = raw.dates.get(column, {}) if isinstance(column, str) else {}
    j = date[DATE_PARTS[0]] if date else _named_column(raw.names, column, raw.dates)
    if raw.columns[j].categories is not None:
        return _of_categories(raw, rows, j, n_categories)
    known = rows[~np.isnan(rows[:, j])]
    if not len(known):
        name = column if date else raw.names[j]
        raise ValueError(f"column {name!r} is missing in all rows of X")
    grid = np.unique(known[:, j])
    if len(grid) > n_grid:
        levels = np.linspace(0, 1, n_grid)
        grid = np.quantile(known[:, j], levels, method="inverted_cdf")
        grid = np.unique(_at_one_hour(grid) if date else grid)
    move = partial(_move_date, date) if date else partial(_move_column, j)
    values = (
        _accumulated(raw, known, known[:, j], grid, move)
        if kind == "ale"
        else _dependence(raw, rows, grid, move)
    )
    name, places = column if date else raw.names[j], known[:, j]
    if j in raw.days:
        grid, places = from_days(grid), from_days(places)
    return Effect(name, kind, grid, values, places, raw.outputs)


def _named_column(names: Sequence[str], column: Any, dates: Iterable[str] = ()) -> int:
    """Return the number of a column that is named or numbered; `dates` may be named as well."""
    names, known = list(names), [*names, *dates]
    if isinstance(column, str):
        if column not in names:
            similar = closest_name(column, known)
            remedy = f"did you mean {similar!r}?" if similar else f"the columns are {known}"
            raise ValueError(f"column {column!r} is not known: {remedy}")
        return names.index(column)
    if isinstance(column, int | np.integer) and 0 <= column < len(names):
        return int(column)
    raise ValueError(f"column={column!r} must be a name or a number from 0 to {len(names) - 1}")


def _move_column(j: int, rows: NDArray, values: NDArray) -> None:
    rows[:, j] = values


def _move_date(columns: Mapping[str, int], rows: NDArray, days: NDArray) -> None:
    """Set all columns that were made of a date, by part, to days since 1970-01-01 (n,)."""
    parts = date_parts(np.round(days * 86400.0))
    for part, j in columns.items():
        rows[:, j] = parts[part]


def _at_one_hour(days: NDArray) -> NDArray:
    """Return days in rising order with the weekday and hour of the first, or its hour alone.

    They are as given where they span few days.
    """
    span = days[-1] - days[0]
    unit = _WEEK if span >= _FEWEST_STEPS * _WEEK else 1.0
    is_long = span >= _FEWEST_STEPS * unit
    return days[0] + unit * np.floor((days - days[0]) / unit) if is_long else days


def _accumulated(
    raw: RawModel, rows: NDArray, values: NDArray, grid: NDArray, move: _Move
) -> NDArray[np.float64]:
    """Return accumulated local effects (g[, K]) at the places of a grid, of a column's values."""
    part = np.clip(np.searchsorted(grid, values), 1, max(1, len(grid) - 1))
    upper, lower = rows.copy(), rows.copy()
    move(upper, grid[np.minimum(part, len(grid) - 1)])
    move(lower, grid[part - 1])
    change = raw.predict(upper) - raw.predict(lower)
    sums = np.zeros((len(grid), *change.shape[1:]))
    counts = np.bincount(part, minlength=len(grid)).astype(float)
    np.add.at(sums, np.minimum(part, len(grid) - 1), change)
    steps = sums / np.maximum(counts[: len(grid)], 1.0).reshape(-1, *(1,) * (change.ndim - 1))
    total = np.cumsum(steps, axis=0)
    # The mean over the rows, each taken as the middle of its part of the grid.
    middle = (total[part - 1] + total[np.minimum(part, len(grid) - 1)]) / 2
    return total - middle.mean(axis=0)


def _dependence(raw: RawModel, rows: NDArray, grid: NDArray, move: _Move) -> NDArray[np.float64]:
    """Return mean predictions (g[, K]) of all rows moved to the places of a grid."""
    n = len(rows)
    step = max(1, _BLOCK_ROWS // n)
    means = []
    for start in range(0, len(grid), step):
        places = grid[start : start + step]
        changed_rows = np.tile(rows, (len(places), 1))
        move(changed_rows, np.repeat(places, n))
        raws = raw.predict(changed_rows)
        means.append(raws.reshape(len(places), n, *raws.shape[1:]).mean(axis=1))
    return np.concatenate(means).astype(np.float64)


def _of_categories(raw: RawModel, rows: NDArray, j: int, n_most: int | None) -> Effect:
    categories = raw.columns[j].categories
    assert categories is not None
    codes = np.arange(len(categories), dtype=float)
    names = [*categories.tolist()]
    if np.isnan(rows[:, j]).any():
        codes, names = np.append(codes, np.nan), [*names, None]
    column = decode_categories(rows, raw.columns)[:, j]
    if n_most is not None and len(names) > n_most:
        counts = Counter(column.tolist())
        order = sorted(range(len(names)), key=lambda k: -counts[names[k]])  # stable
        most_frequent = sorted(order[:n_most])
        codes, names = codes[most_frequent], [names[k] for k in most_frequent]
    grid = np.empty(len(names), dtype=object)
    grid[:] = names
    values = _dependence(raw, rows, codes, partial(_move_column, j))
    return Effect(raw.names[j], "partial_dependence", grid, values, column, raw.outputs)


# -- interactions ----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Interactions:
    """Strengths of the interactions of all pairs of some columns.

    Attributes
    ----------
    feature_names : tuple of str, length c
        The columns that were looked at.
    strengths : array (c, c)
        Symmetric with zeros on the diagonal, in units of the raw prediction.
    spread : float
        Standard deviation of the raw predictions of the rows, to compare with.
    output_name : class or None
        Whose raw predictions these are, of more than two classes.
    """

    feature_names: tuple[str, ...]
    strengths: NDArray[np.float64]
    spread: float
    output_name: Any = None

    def pairs(self) -> list[tuple[str, str, float]]:
        """Return all pairs with their strengths, the strongest first."""
        pairs = [
            (self.feature_names[a], self.feature_names[b], float(self.strengths[a, b]))
            for a, b in combinations(range(len(self.feature_names)), 2)
        ]
        return sorted(pairs, key=lambda pair: -pair[2])

    def __repr__(self) -> str:
        first = self.pairs()[0] if len(self.feature_names) > 1 else None
        strongest = (
            "" if first is None else f", strongest {first[0]} and {first[1]}: {first[2]:.3g}"
        )
        return f"Interactions of {len(self.feature_names)} columns{strongest}"


def interactions(
    model: Any,
    X: Any,
    *,
    columns: Any = None,
    n_rows: int = 200,
    output: Any = None,
    task: Any = None,
    random_state: int = 0,
) -> Interactions:
    r"""Measure how strongly pairs of columns interact.

    For a row x and a row x' drawn at random, the mixed difference

    .. math::

        \Delta_{jk} = f(x) - f(x_{-j}, x'_j) - f(x_{-k}, x'_k) + f(x_{-jk}, x'_j, x'_k)

    is what the change of both columns makes beyond the two changes alone; it is zero for
    all rows if and only if the model is a sum of a function without column j and one without
    column k. The strength is

    .. math::

        \left( \tfrac14 \operatorname{mean} \Delta_{jk}^2 \right)^{1/2},

    the standard deviation of all effects that have both columns in them when columns are
    independent (superset importance, Liu and Owen 2006). It is in the units of the prediction,
    and unlike Friedman's H it is not large where both columns hardly matter.

    Parameters
    ----------
    model : fitted estimator of jointleaf, or a Pipeline that ends in one
    X : array-like or data frame (n, d), at least 2 rows
        Rows to draw from.
    columns : list of names or numbers, optional
        Columns to look at; by default the 10 whose values in explanations are largest on average.
    n_rows : int
        Pairs of rows that are drawn; the work is n_rows * c^2 / 2 predictions.
    output : class, optional
        Of more than two classes; by default the one that is predicted for most rows.
    task : name of a task
        Needed where there are several.
    random_state : int
        Seed of the draws.

    Returns
    -------
    Interactions
    """
    check_count("n_rows", n_rows)
    raw, rows = step_model(model, X, task)
    if len(rows) < 2:
        raise ValueError("X has 1 row: give at least 2, whose values are exchanged")
    k = raw.output(output, rows)

    def predict(changed_rows: NDArray) -> NDArray:
        raws = raw.predict(changed_rows)
        return raws if raws.ndim == 1 else raws[:, k]

    rng = np.random.default_rng(random_state)
    first = rng.permutation(np.resize(rng.permutation(len(rows)), n_rows))
    second = (first + rng.integers(1, len(rows), n_rows)) % len(rows)  # another row
    if columns is None:
        chosen = _largest(raw, rows[np.unique(first)], k)
    else:
        chosen = np.array([_named_column(raw.names, column) for column in columns], dtype=np.intp)
        if len(np.unique(chosen)) < max(2, len(chosen)):
            raise ValueError(f"columns={columns!r} must name at least 2 different columns")
    strengths = _strengths(predict, rows[first], rows[second], chosen)
    names = tuple(raw.names[j] for j in chosen)
    name = None if raw.outputs is None else raw.outputs[k]
    return Interactions(names, strengths, float(np.std(predict(rows))), name)


def _largest(raw: RawModel, rows: NDArray, k: int) -> NDArray[np.intp]:
    parts = raw.parts(rows)
    sizes = np.abs(parts.linear + parts.cells)[:, :, k].mean(axis=0)
    return np.sort(np.argsort(-sizes, kind="stable")[:_MOST_COLUMNS])


def _strengths(
    predict: Any, rows: NDArray, others: NDArray, chosen: NDArray[np.intp]
) -> NDArray[np.float64]:
    n, c = len(rows), len(chosen)
    pairs = list(combinations(range(c), 2))
    changed = [(), *((a,) for a in range(c)), *pairs]
    values: dict[tuple, NDArray] = {}
    step = max(1, _BLOCK_ROWS // n)
    for start in range(0, len(changed), step):
        some = changed[start : start + step]
        changed_rows = np.tile(rows, (len(some), 1))
        for i, places in enumerate(some):
            columns = chosen[list(places)]
            changed_rows[i * n : (i + 1) * n, columns] = others[:, columns]
        values |= zip(some, predict(changed_rows).astype(float).reshape(len(some), n), strict=True)
    strengths = np.zeros((c, c))
    rounding = _ROUNDING * max(np.abs(raws).max() for raws in values.values())
    for a, b in pairs:
        mixed = values[()] - values[a,] - values[b,] + values[a, b]
        strength = 0.5 * np.sqrt(np.mean(mixed**2))
        strengths[a, b] = strengths[b, a] = strength if strength > rounding else 0.0
    return strengths
