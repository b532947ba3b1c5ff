"""The figure: one point per set, one row per method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import require
from experiments.pmlb.methods import METHODS
from experiments.pmlb.records import Record
from experiments.pmlb.scores import Scores, compare, errors_by_method, with_enough_sets

__all__ = ["draw"]

#: Colours that stay apart for the colour-blind.
COLORS = {
    "linear": "#7a7a7a",
    "GB": "#0072b2",
    "RF": "#009e73",
    "LF": "#8c6d1f",
    "CB": "#d55e00",
    "Vor": "#cc79a7",
    "networks": "#56b4e9",
}
LIMITS = {"regression": 1.5, "binary": 0.75}  # larger errors are drawn at the edge
_LABELS = {
    "regression": "normalised error (RMSE / RMSE of the training mean)",
    "binary": "0/1 loss",
}
_TITLES = {"regression": "(a) regression", "binary": "(b) two classes"}
_ROW = 0.26  # inches


def draw(records: Sequence[Record], path: Path) -> None:
    """Write the two panels, regression left; p-values are of refits against their bases."""
    scores = {task: with_enough_sets(errors_by_method(records, task)) for task in _TITLES}
    # Both panels have the same rows, so that labels stand once.
    names = [name for name in _order() if any(name in of_task for of_task in scores.values())]
    height = 1.5 + _ROW * len(names)
    figure = require("matplotlib.figure").Figure(figsize=(12, height), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, task in zip(panels, _TITLES, strict=True):
        _draw_panel(axes, scores[task], names, task)
    panels[0].set_yticks(range(len(names)), [METHODS[name].label for name in names])
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    if records:
        figure.suptitle(f"PMLB, {records[0].setting}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _order() -> list[str]:
    """Rows from top to bottom: group after group, bases before their refits."""
    groups = list(COLORS)

    def place(name: str) -> tuple[int, bool]:
        return groups.index(METHODS[name].group), METHODS[name].base is not None

    return sorted(METHODS, key=place)


def _draw_panel(axes: Any, scores: Scores, names: Sequence[str], task: str) -> None:
    limit = LIMITS[task]
    n_sets = len({name for of_method in scores.values() for name in of_method})
    axes.set_title(f"{_TITLES[task]}, {n_sets} sets", loc="left", fontsize=11)
    axes.set_xlabel(_LABELS[task])
    axes.set_xlim(-0.02 * limit, 1.02 * limit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if not scores:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color="#7a7a7a")
        return
    if task == "regression":
        axes.axvline(1.0, color="#3d4450", linestyle=":", linewidth=1, zorder=1)
    for row, name in enumerate(names):
        if name in scores:
            _draw_row(axes, row, name, scores, limit)


def _draw_row(axes: Any, row: int, name: str, scores: Scores, limit: float) -> None:
    """Points of a method and their median; at the right their number and the test."""
    method = METHODS[name]
    values = np.array(list(scores[name].values()))
    # The same in every drawing.
    jitter = np.random.default_rng(0).uniform(-0.22, 0.22, len(values))
    axes.scatter(
        np.minimum(values, limit),
        row + jitter,
        s=9,
        alpha=0.55,
        linewidths=0,
        color=COLORS[method.group],
        zorder=2,
        clip_on=False,
    )
    median = min(float(np.median(values)), limit)
    axes.plot([median, median], [row - 0.36, row + 0.36], color="black", linewidth=2, zorder=3)
    # Methods may have been run on different sets: their number belongs to the median.
    note = f"n = {len(values)}"
    if method.base is not None and method.base in scores:
        found = compare(scores[name], scores[method.base])
        note += f", {_text(found.p)}" if found.n else ""
    axes.text(
        1.02,
        row,
        note,
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=8,
        color=COLORS[method.group],
    )


def _text(p: float) -> str:
    if np.isnan(p):
        return "all equal"
    return f"p = {p:.2f}" if p >= 0.01 else f"p = {p:.0e}"
