"""What the pictures with one line per column share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jointleaf.plot._drawing import DARK, FONT, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BLUE", "column_axis", "height_of", "label_values", "shortened"]

BLUE = "#4f86b8"
_LONGEST = 34  # characters of a label


def height_of(n_lines: int) -> float:
    """Height in inches of a picture with so many lines."""
    return float(min(12.0, 1.3 + 0.32 * n_lines))


def shortened(text: str) -> str:
    """A label of bounded length."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def column_axis(ax: Axes, labels: list[str], x_label: str) -> None:
    """Labels on the left, the first one on top, and a light grid."""
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_yticks(np.arange(len(labels)), [shortened(label) for label in labels])
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(labelsize=FONT)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=GREY, lw=0.5, alpha=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(x_label, fontsize=FONT)


def label_values(ax: Axes, ends: list[tuple[float, float, str]]) -> None:
    """Write texts beside the ends of bars, given as (place, direction, text), and make room."""
    low, high = ax.get_xlim()
    room = 0.10 * (high - low)
    left, right = low, high
    for y, (x, direction, text) in enumerate(ends):
        side = 1 if direction >= 0 else -1
        ax.annotate(
            text, (x, y), (4 * side, 0), textcoords="offset points", va="center",
            ha="left" if side > 0 else "right", fontsize=FONT - 1, color=DARK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            zorder=5,
        )  # fmt: skip
        left, right = min(left, x + min(0, side) * room), max(right, x + max(0, side) * room)
    ax.set_xlim(left, right)
