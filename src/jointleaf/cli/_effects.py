"""Effect curves of the main columns, as plain values for the record of a fit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._scores import spread_over
from jointleaf.inspection import Effect, effect

_MOST_COLUMNS = 6
_MOST_ROWS = 400
_PLACES = 24
_FEW_PLACES = 5  # which are all drawn
_MOST_CATEGORIES = 8
_MOST_CLASSES = 4
_MOST_TEXT = 200  # characters of a category


def effect_summary(
    model: Any, X: Any, features: list[dict[str, Any]], target: dict[str, Any], days: set[str]
) -> dict[str, Any]:
    """Return curves of the most important of some features, and what they are curves of.

    Of more than two classes there is a curve for each of the most frequent ones. All curves are
    centred: their mean over the rows is zero. `days` are features that are days since 1970-01-01.
    """
    rows = X.iloc[spread_over(len(X), _MOST_ROWS)]
    # A rare value may be in none of these rows, and one place is no curve.
    varying = [name for name in X.columns if rows[name].nunique() > 1]
    names = [f["name"] for f in features if f["importance"] > 0 and f["name"] in varying]
    classes = target.get("classes", [])
    kept: list[int] = []  # of several outputs
    if len(classes) > 2:
        counts = target["counts"]
        kept = sorted(sorted(range(len(classes)), key=lambda k: -counts[k])[:_MOST_CLASSES])
    curves = []
    for name in names[:_MOST_COLUMNS]:
        found = effect(model, rows, name, n_grid=_PLACES, n_categories=_MOST_CATEGORIES)
        curves.append({**_curve(found, kept), "days": name in days})
    return {
        "of": _what_is_drawn(model, target),
        "outputs": [classes[k] for k in kept],
        "curves": curves,
    }


def _what_is_drawn(model: Any, target: dict[str, Any]) -> str:
    classes = target.get("classes", [])
    if len(classes) == 2:
        return f"log-odds of {classes[1]}"
    if classes:
        return "raw prediction"
    has_log_link = getattr(model, "loss_", None) is not None and model.loss_.has_log_link
    return f"log of {target['name']}" if has_log_link else str(target["name"])


def _curve(found: Effect, kept: list[int]) -> dict[str, Any]:
    """Return one curve for every output that is kept; all values are of the only one for none."""
    values = found.values if found.values.ndim == 2 else found.values[:, None]
    values = values[:, kept] if kept else values
    if found.grid.dtype != object:
        low, high = np.quantile(found.rows, (0.01, 0.99), method="inverted_cdf")
        inside = (low <= found.grid) & (found.grid <= high)  # far ones would take all the width
        inside |= len(found.grid) <= _FEW_PLACES
        grid, values = found.grid[inside].tolist(), values[inside].T.tolist()
        return {"name": found.column, "grid": grid, "values": values}
    counts = Counter(found.rows.tolist())
    weights = np.array([counts[name] for name in found.grid.tolist()], float)
    names = ["missing" if name is None else str(name)[:_MOST_TEXT] for name in found.grid.tolist()]
    centred = _centred(values, weights).T.tolist()
    return {"name": found.column, "names": names, "values": centred}


def _centred(values: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Return values (g, K) less their mean, weighted by numbers of rows (g,)."""
    known = weights if weights.any() else np.ones_like(weights)
    return values - np.average(values, axis=0, weights=known)
