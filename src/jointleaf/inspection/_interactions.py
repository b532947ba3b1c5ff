"""How much pairs of columns act together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.inspection._raw import RawModel, last_step, named_column, raw_model

__all__ = ["Interactions", "interactions"]

_BLOCK_ROWS = 50_000
_ROUNDING = 1e-13  # smaller strengths, relative to the predictions, are none


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
    """

    feature_names: tuple[str, ...]
    strengths: NDArray[np.float64]
    spread: float

    def pairs(self) -> list[tuple[str, str, float]]:
        """All pairs with their strengths, the strongest first."""
        found = [
            (self.feature_names[a], self.feature_names[b], float(self.strengths[a, b]))
            for a, b in combinations(range(len(self.feature_names)), 2)
        ]
        return sorted(found, key=lambda pair: -pair[2])

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
        Needed where the model has several outputs.
    task : name of a task
        Needed where there are several.
    random_state : int
        Seed of the draws.

    Returns
    -------
    Interactions
    """
    if not isinstance(n_rows, int | np.integer) or n_rows < 1:
        raise ValueError(f"n_rows={n_rows!r} must be a whole number, at least 1")
    model, X = last_step(model, X)
    raw = raw_model(model, task)
    rows = raw.read(X)
    if len(rows) < 2:
        raise ValueError("X has 1 row: give at least 2, whose values are exchanged")
    k = raw.output(output)

    def predict(many: NDArray) -> NDArray:
        found = raw.predict(many)
        return found if found.ndim == 1 else found[:, k]

    rng = np.random.default_rng(random_state)
    first = rng.permutation(np.resize(rng.permutation(len(rows)), n_rows))
    second = (first + rng.integers(1, len(rows), n_rows)) % len(rows)  # another row
    if columns is None:
        chosen = _largest(raw, rows[np.unique(first)], k)
    else:
        chosen = np.array([named_column(raw.columns, column) for column in columns], dtype=np.intp)
        if len(np.unique(chosen)) < max(2, len(chosen)):
            raise ValueError(f"columns={columns!r} must name at least 2 different columns")
    strengths = _strengths(predict, rows[first], rows[second], chosen)
    names = tuple(raw.names[j] for j in chosen)
    return Interactions(names, strengths, float(np.std(predict(rows))))


def _largest(raw: RawModel, rows: NDArray, k: int, n_columns: int = 10) -> NDArray[np.intp]:
    parts = raw.parts(rows)
    sizes = np.abs(parts.linear + parts.cells)[:, :, k].mean(axis=0)
    return np.sort(np.argsort(-sizes, kind="stable")[:n_columns])


def _strengths(
    predict: Any, rows: NDArray, others: NDArray, chosen: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Strengths (c, c) from pairs of rows (n, d)."""
    n, c = len(rows), len(chosen)
    pairs = list(combinations(range(c), 2))
    changed = [(), *((a,) for a in range(c)), *pairs]
    values: dict[tuple, NDArray] = {}
    step = max(1, _BLOCK_ROWS // n)
    for start in range(0, len(changed), step):
        some = changed[start : start + step]
        many = np.tile(rows, (len(some), 1))
        for i, places in enumerate(some):
            columns = chosen[list(places)]
            many[i * n : (i + 1) * n, columns] = others[:, columns]
        values |= zip(some, predict(many).astype(float).reshape(len(some), n), strict=True)
    strengths = np.zeros((c, c))
    rounding = _ROUNDING * max(np.abs(found).max() for found in values.values())
    for a, b in pairs:
        mixed = values[()] - values[a,] - values[b,] + values[a, b]
        strength = 0.5 * np.sqrt(np.mean(mixed**2))
        strengths[a, b] = strengths[b, a] = strength if strength > rounding else 0.0
    return strengths
