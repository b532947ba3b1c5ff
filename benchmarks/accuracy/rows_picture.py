"""Picture of errors against the number of rows, relative to the best peer of each data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .models import MODELS
from .sets import DataSet, known_sets
from .store import Key, Result
from .tables import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = (OURS, "catboost", "catboost_es", "lightgbm", "lightgbm_es", "cubist")
_COLOURS = ("#c1440e", "#33658a", "#7fb2d6", "#4a7c3a", "#a3c88f", "#8a6d9e", "#b08d57", "#777777")
_TITLES = {
    "regression": "Regression, NMSE (at least 0.001)",
    "classes": "Classes, log-loss (at least 0.01)",
}
_WIDTH = 0.25  # of the smoothing, in powers of ten of the number of rows
_NEIGHBORS = 6  # as many sets take part everywhere: the smoothing is wider where sets are few
_LIMITS = (0.6, 3.0)

# Errors below are taken as these: where nothing is left to explain, ratios say nothing.
LEAST_NMSE, LEAST_LOG_LOSS = 0.001, 0.01

Points = dict[str, tuple[NDArray, NDArray]]


def draw_rows(results: dict[Key, Result], models: Sequence[str] | None, path: Path) -> None:
    """Save the picture, a panel for regression and one for classes.

    Parameters
    ----------
    results : dict
        What `read_results` returned; sets of all groups are shown.
    models : sequence of str, optional
        By default jointleaf and the strongest peers.
    path : path
        A file that matplotlib can write.
    """
    from matplotlib.figure import Figure

    shown = list(models or _SHOWN)
    panels = {kind: ratios(results, shown, kind) for kind in _TITLES}
    panels = {kind: points for kind, points in panels.items() if points}
    if not panels:
        raise ValueError("There are no results of these models in the file.")
    figure = Figure(figsize=(6.4 * len(panels), 4.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (kind, points) in zip(axes, panels.items(), strict=True):
        _draw_panel(ax, points, shown)
        ax.set_title(_TITLES[kind], fontsize=11)
    axes[0].set_ylabel("error / error of the best peer on the set")
    figure.savefig(path, dpi=150)


def ratios(results: dict[Key, Result], models: Sequence[str], kind: str) -> Points:
    """Return rows and log-ratios to the best peer of every model's sets.

    The best peer is that of those shown which has the smallest mean over seeds on the set. Sets of
    a single peer are left out, and those with categories as numbers where they are also there with
    categories as categories.
    """
    rows: dict[str, list[tuple[int, float]]] = {}
    for entry in _distinct(known_sets(), results):
        if (entry.task == "regression") != (kind == "regression"):
            continue
        scores = _scores(results, entry, models)
        peers = [score for name, score in scores.items() if name != OURS]
        if len(peers) < 2:
            continue
        for name, score in scores.items():
            rows.setdefault(name, []).append((entry.rows, score - min(peers)))
    return {name: tuple(np.array(sorted(pairs)).T) for name, pairs in rows.items()}


def _distinct(sets: list[DataSet], results: dict[Key, Result]) -> list[DataSet]:
    """Sets with results, each under one name: the last is the one with categories."""
    present = {name for name, _, _ in results}
    return list({entry.bare_name: entry for entry in sets if entry.name in present}.values())


def _scores(results: dict[Key, Result], entry: DataSet, models: Sequence[str]) -> dict[str, float]:
    """Mean logarithm of the error over the seeds, of models that have the same as the others."""
    seeds = {name: {s for n, s, m in results if n == entry.name and m == name} for name in models}
    seeds = {name: found for name, found in seeds.items() if found}
    if not seeds:
        return {}
    common = set.intersection(*seeds.values())
    least = LEAST_NMSE if entry.task == "regression" else LEAST_LOG_LOSS

    def mean(name: str) -> float:
        values = [results[entry.name, seed, name].score for seed in common]
        return float(np.mean(np.log(np.maximum(values, least))))

    return {name: mean(name) for name in seeds} if common else {}


def smooth(n: NDArray, values: NDArray, grid: NDArray) -> NDArray:
    """Return means of values weighted by a Gaussian of log10(n)."""
    distances = np.abs(np.log10(grid)[:, None] - np.log10(n)[None, :])
    nearest = np.sort(distances, axis=1)[:, min(_NEIGHBORS, len(n)) - 1]
    weights = np.exp(-0.5 * (distances / np.maximum(_WIDTH, nearest)[:, None]) ** 2)
    return weights @ values / weights.sum(axis=1)


def _draw_panel(ax: Axes, points: Points, models: Sequence[str]) -> None:
    low, high = _LIMITS
    for name, colour in zip(models, _colours(len(models)), strict=True):
        if name not in points:
            continue
        n, values = points[name]
        ax.scatter(n, np.clip(np.exp(values), low, high), s=8, color=colour, alpha=0.15, lw=0)
        grid = np.geomspace(n.min(), n.max(), 200)
        line = np.exp(smooth(n, values, grid))
        width = 2.6 if name == OURS else 1.6
        ax.plot(grid, line, color=colour, lw=width, label=MODELS[name].label)
    ax.axhline(1.0, color="black", lw=0.8, ls=":", zorder=0)
    ax.set(xscale="log", yscale="log", ylim=_LIMITS, xlabel="rows")
    ticks = [0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def _colours(count: int) -> list[str]:
    return [_COLOURS[k % len(_COLOURS)] for k in range(count)]
