"""Picture of all scores: every point a data set, one strip per model, as Figure 1 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .comparison import Comparison
from .models import MODELS
from .tables import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {
    "regression": "Regression",
    "binary": "Two classes",
    "multiclass": "Several classes",
    "classes": "Classes",
}
_NMSE_UNIT = "NMSE (1: the training mean)"
_CLASSES_UNIT = "log-loss / log-loss of the class shares"
_OURS_COLOUR, _PEER_COLOUR = "#c1440e", "#33658a"
_SPREAD = 0.3
_QUANTILES = (0.01, 0.99)
_LEAST_SHOWN = 2e-3


def draw_strips(comparisons: Sequence[Comparison], path: Path) -> None:
    """Save the picture, one panel per comparison.

    Parameters
    ----------
    comparisons : sequence of Comparison
        One per task.
    path : path
        A file that matplotlib can write.
    """
    from matplotlib.figure import Figure

    height = 1.5 + 0.34 * max(len(c.models) for c in comparisons)
    figure = Figure(figsize=(5.6 * len(comparisons), height), layout="constrained")
    axes = figure.subplots(1, len(comparisons), squeeze=False)[0]
    for ax, comparison in zip(axes, comparisons, strict=True):
        _draw_panel(ax, comparison)
    figure.savefig(path, dpi=150)


def _draw_panel(ax: Axes, comparison: Comparison) -> None:
    """Strips from the smallest median, at the top, to the largest."""
    values = comparison.ratios
    medians = np.median(values, axis=0)
    order = np.argsort(medians, kind="stable")
    jitter = np.random.default_rng(0).uniform(-_SPREAD, _SPREAD, len(values))
    low, high = _limits(values)
    for position, k in enumerate(order):
        colour = _OURS_COLOUR if comparison.models[k] == OURS else _PEER_COLOUR
        _draw_points(ax, values[:, k], position + jitter, (low, high), colour)
        ax.plot([medians[k]] * 2, [position - 0.42, position + 0.42], color="black", lw=2)
        ax.annotate(
            f"{medians[k]:.3f}", (1.01, position), xycoords=("axes fraction", "data"), va="center",
            fontsize=8,
        )  # fmt: skip
    ax.axvline(1.0, color="grey", lw=0.8, ls=":", zorder=0)
    ax.set_xscale("log")
    ax.set_xlim(low / 1.15, high * 1.15)
    ax.set_yticks(range(len(order)), [MODELS[comparison.models[k]].label for k in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlabel(_NMSE_UNIT if comparison.task == "regression" else _CLASSES_UNIT)
    ax.set_title(f"{_TITLES[comparison.task]}, {len(comparison.sets)} data sets", fontsize=11)
    ax.annotate("median", (1.01, 1.01), xycoords="axes fraction", va="bottom", fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_points(
    ax: Axes, x: NDArray, y: NDArray, limits: tuple[float, float], colour: str
) -> None:
    """Dots; and at the ends of the axis arrowheads for what lies beyond."""
    low, high = limits
    inside = (x >= low) & (x <= high)
    for marker, size, chosen in (("o", 9, inside), ("<", 16, x < low), (">", 16, x > high)):
        shown = np.clip(x[chosen], low, high)
        ax.scatter(shown, y[chosen], s=size, marker=marker, color=colour, alpha=0.4, linewidths=0)


def _limits(values: NDArray) -> tuple[float, float]:
    """Where the axis ends: all but the few smallest and largest scores lie between.

    A perfect score is minus infinity on a logarithmic axis, and a few others would leave
    the rest little room.
    """
    low, high = np.quantile(values, _QUANTILES)
    return max(low, _LEAST_SHOWN), max(high, 1.5)
