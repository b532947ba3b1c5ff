"""Axes, scales and labels that the displays share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLORS",
    "DARK",
    "FONT",
    "GREY",
    "RED",
    "UNITS",
    "count_axis",
    "label_ends",
    "label_room",
    "legend_beside",
    "log_axis",
    "need_matplotlib",
    "new_axes",
    "strength_axis",
    "style_axes",
    "title_panel",
    "two_panels",
]

COLORS = (
    "#c1432e", "#4f86b8", "#6a994e", "#e09f3e", "#7a5195",
    "#2a9d8f", "#d1779b", "#8c6d4f", "#3d4450", "#5b6cc9",
)  # fmt: skip
RED, DARK, GREY = "#c1432e", "#3d4450", "#c9ced6"
#: what losses of estimators are measured in
UNITS = {
    "regression": "(squared error / 2,\ntarget variance = 1)",
    "classification": "(log-loss)",
}

FONT = 9
_LINE_HEIGHT = 1.35 * FONT  # points from one label to the next
_MAX_LABELS = len(COLORS)
_MAX_COUNTS = 8


def need_matplotlib(name: str) -> Any:
    """Give pyplot, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as cause:
        message = f"{name} needs matplotlib: pip install 'jointleaf[plot]'"
        raise ImportError(message) from cause
    return plt


def new_axes(name: str, height: float) -> Axes:
    """Axes in a new figure of a height in inches."""
    plt = need_matplotlib(name)
    return plt.subplots(figsize=(8.0, height), layout="constrained")[1]


def two_panels(frame: Axes, above: float) -> tuple[Axes, Axes]:
    """Put two panels with a common x axis in the place of axes, with points of room above."""
    frame.set_axis_off()
    top = 1.0 - min(0.3, above / _height(frame))
    upper = frame.inset_axes((0.0, 0.42 * top, 1.0, 0.58 * top))
    lower = frame.inset_axes((0.0, 0.0, 1.0, 0.35 * top), sharex=upper)
    upper.xaxis.label.set_visible(False)
    upper.tick_params(labelbottom=False)
    return upper, lower


def style_axes(ax: Axes, y_label: str) -> None:
    """Thin frame, small font, the label of the y axis."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT)
    ax.set_ylabel(y_label, fontsize=FONT)


def strength_axis(ax: Axes, strengths: NDArray) -> None:
    """Logarithmic x axis from the strongest strength to the weakest."""
    margin = 1.02 if len(np.unique(strengths)) > 1 else 2.0
    log_axis(ax, "x", strengths.max() * margin, strengths.min() / margin)
    ax.set_xlabel("strength of the penalty (weaker to the right)", fontsize=FONT)


def log_axis(ax: Axes, which: str, first: float, last: float) -> None:
    """Logarithmic axis between two limits, with plain numbers where it spans few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    getattr(ax, f"set_{which}lim")(first, last)
    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    decades = abs(np.log10(last / first))
    if decades < 2.5:
        subs = (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=20))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


def count_axis(ax: Axes, strengths: NDArray, counts: ArrayLike, label: str) -> None:
    """Write numbers of features on the upper edge, at a few strengths; not where all are equal."""
    if np.ptp(counts) == 0:
        return
    picked = np.linspace(0, len(strengths) - 1, min(_MAX_COUNTS, len(strengths))).round()
    index = picked.astype(int)
    top = ax.secondary_xaxis("top")
    top.set_xticks(strengths[index], [f"{count:.0f}" for count in np.asarray(counts)[index]])
    top.minorticks_off()
    top.tick_params(labelsize=FONT, length=3, color=DARK)
    top.spines["top"].set_visible(False)
    top.set_xlabel(label, fontsize=FONT, labelpad=5)


def title_panel(ax: Axes, text: str) -> None:
    """Say in a few words what a panel shows."""
    ax.set_title(text, loc="left", fontsize=FONT)


def legend_beside(ax: Axes, **options: Any) -> None:
    """A legend on the right of the axes, where it hides nothing, with options of `Axes.legend`."""
    settings: dict[str, Any] = {"fontsize": FONT, "handlelength": 1.8, **options}
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), frameon=False, **settings)


def label_room(ax: Axes) -> int:
    """How many labels fit one above the other beside the axes, at most ten."""
    return min(_MAX_LABELS, max(1, int(_height(ax) / _LINE_HEIGHT)))


def label_ends(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Name lines beside their right ends, given as (y, name, colour)."""
    right = ax.get_xlim()[1]
    low, high = ax.get_ylim()
    heights = np.array([(y - low) / (high - low) for y, _, _ in ends])
    places = _spread(heights, _LINE_HEIGHT / _height(ax))
    for (y, name, color), place in zip(ends, places, strict=True):
        ax.annotate(
            name, (right, y), (1.04, place), textcoords="axes fraction", va="center", color=color,
            fontsize=FONT, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.6, "relpos": (0.0, 0.5),
                        "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


def _height(ax: Axes) -> float:
    """Height of axes in points."""
    return float(ax.get_window_extent().height) * 72.0 / ax.figure.dpi


def _spread(values: NDArray, gap: float) -> NDArray:
    """Move values in [0, 1] apart until neighbours differ by a gap; keeps their order."""
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(values))
    sunk = values[order] - steps
    # The least that pushes up, and the least that pushes down: their mean keeps the gaps.
    up = np.maximum.accumulate(sunk)
    down = np.minimum.accumulate(sunk[::-1])[::-1]
    places = np.clip((up + down) / 2, 0.0, max(0.0, 1.0 - steps[-1:].sum())) + steps
    out = np.empty_like(places)
    out[order] = places
    return out
