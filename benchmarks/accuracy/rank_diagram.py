"""Critical-difference diagram: mean ranks, and bars over models that do not differ.

J. Demsar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006), with
Wilcoxon's tests and Holm's correction in place of Nemenyi's test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .comparison import Comparison
from .models import MODELS
from .ranking import alike_groups, holm_different, mean_ranks
from .tables import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEP = 0.3  # inches between two labels
_BAR_STEP = 0.13  # inches between two bars
_TITLES = {
    "regression": "Regression, NMSE",
    "binary": "Two classes, log-loss",
    "multiclass": "Several classes, log-loss",
    "classes": "Classes, log-loss",
}


def draw_ranks(comparisons: Sequence[Comparison], path: Path) -> None:
    """Save one diagram per comparison, side by side; two models at least."""
    from matplotlib.figure import Figure

    laid_out = [_layout(comparison) for comparison in comparisons]
    height = max(depth for *_, depth in laid_out) + 0.45
    figure = Figure(figsize=(6.2 * len(comparisons), height), layout="constrained")
    axes = figure.subplots(1, len(comparisons), squeeze=False)[0]
    for ax, comparison, (ranks, groups, _) in zip(axes, comparisons, laid_out, strict=True):
        _draw_axis(ax, len(ranks), height)
        _draw_labels(ax, comparison, ranks, len(groups))
        _draw_bars(ax, np.sort(ranks), groups)
        ax.set_title(f"{_TITLES[comparison.task]}, {len(comparison.sets)} data sets", fontsize=11)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _layout(comparison: Comparison) -> tuple[np.ndarray, list[tuple[int, int]], float]:
    """Mean ranks, groups that do not differ, and the inches below the axis."""
    ranks = mean_ranks(comparison.scores)
    groups = alike_groups(ranks, holm_different(comparison.scores))
    return ranks, groups, _first_label(len(groups)) + _STEP * ((len(ranks) + 1) // 2)


def _first_label(n_groups: int) -> float:
    """Inches from the axis to the first label: the bars lie between."""
    return 0.25 + _BAR_STEP * n_groups


def _draw_axis(ax: Axes, n_models: int, height: float) -> None:
    """Ranks from 1, on the left, to the number of models; depth counts in inches."""
    margin = 0.45 * n_models
    ax.set_xlim(1 - margin, n_models + margin)
    ax.set_ylim(height - 0.6, -0.4)
    ax.set_axis_off()
    ax.plot([1, n_models], [0, 0], color="black", lw=1)
    for rank in range(1, n_models + 1):
        ax.plot([rank, rank], [-0.06, 0], color="black", lw=1)
        ax.text(rank, -0.09, str(rank), ha="center", va="bottom", fontsize=8)


def _draw_labels(ax: Axes, comparison: Comparison, ranks: np.ndarray, n_groups: int) -> None:
    """The better half on the left from top to bottom, the other on the right from bottom to top."""
    order = np.argsort(ranks, kind="stable")
    half = (len(order) + 1) // 2
    for position, k in enumerate(order):
        left = position < half
        row = position if left else len(order) - 1 - position
        depth = _first_label(n_groups) + _STEP * row
        edge = 0.8 if left else len(order) + 0.2
        ours = comparison.models[k] == OURS
        label = MODELS[comparison.models[k]].label
        ax.plot([ranks[k], ranks[k], edge], [0, depth, depth], color="grey", lw=0.8)
        ax.text(
            edge, depth, f"{label} {ranks[k]:.2f} " if left else f" {ranks[k]:.2f} {label}",
            ha="right" if left else "left", va="center", fontsize=9,
            fontweight="bold" if ours else "normal",
        )  # fmt: skip


def _draw_bars(ax: Axes, sorted_ranks: np.ndarray, groups: list[tuple[int, int]]) -> None:
    for level, (first, last) in enumerate(groups):
        ends = [sorted_ranks[first] - 0.08, sorted_ranks[last] + 0.08]
        depth = 0.14 + _BAR_STEP * level
        ax.plot(ends, [depth, depth], color="black", lw=3, solid_capstyle="butt")
