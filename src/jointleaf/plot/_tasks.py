"""Checks, colours and labels that the displays of several tasks share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from jointleaf.multitask._estimators import BaseMultiTaskJOPLEn
from jointleaf.plot._drawing import FONT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MARKERS",
    "METHOD_COLORS",
    "check_task_estimator",
    "check_tasks",
    "chosen_from",
    "method_style",
    "width_in_points",
    "write_names",
]

#: Muted colours in the order of Okabe and Ito's: told apart without telling red from green.
METHOD_COLORS = ("#2f6ea5", "#e09f3e", "#1f7a5c", "#c77ba3", "#7fb8e0", "#a8441f")
MARKERS = ("o", "s", "D", "^", "v", "P")

_CHARACTER = 0.56  # mean width of a character, in font sizes


def check_task_estimator(estimator: object) -> None:
    """Refuse what is not a fitted estimator of several tasks."""
    if not isinstance(estimator, BaseMultiTaskJOPLEn):
        raise TypeError(
            f"estimator={estimator!r} must be a MultiTaskJOPLEnRegressor or "
            "MultiTaskJOPLEnClassifier; of a Pipeline give the last step"
        )
    check_is_fitted(estimator)


def chosen_from(name: str, given: object) -> Mapping[str, Any]:
    """Refuse what is not a dict of at least one method."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}={given!r} must be a dict with the methods' names as keys")
    if not given:
        raise ValueError(f"{name}={{}} has no method to draw: give at least one")
    return given


def check_tasks(name: str, by_method: Mapping[str, Mapping[Hashable, Any]]) -> list[Hashable]:
    """Names of the tasks, which all methods must have."""
    first, values = next(iter(by_method.items()))
    tasks = list(values)
    if not tasks:
        raise ValueError(f"{name}[{first!r}] has no task to draw: give at least one")
    for method, own in by_method.items():
        if set(own) != set(tasks):
            odd = next(iter(set(own) ^ set(tasks)))
            lacking, having = (method, first) if odd in set(tasks) else (first, method)
            raise ValueError(
                f"{name}[{lacking!r}] has no task {odd!r}, but {name}[{having!r}] has: give the "
                "same tasks for all methods"
            )
    return tasks


def method_style(k: int) -> dict[str, Any]:
    """Colour and marker of the k-th method."""
    return {
        "color": METHOD_COLORS[k % len(METHOD_COLORS)],
        "marker": MARKERS[(k + k // len(METHOD_COLORS)) % len(MARKERS)],
    }


def width_in_points(ax: Axes) -> float:
    """Width of axes in points."""
    return float(ax.get_window_extent().width) * 72.0 / ax.figure.dpi


def write_names(
    ax: Axes, places: NDArray, names: Sequence[Hashable], room: NDArray | float
) -> None:
    """Write names at the ticks of the x axis, slanted where one is wider than its room.

    `room` is in units of the x axis, one for all names or one for each.
    """
    low, high = ax.get_xlim()
    points = np.broadcast_to(room, len(names)) / abs(high - low) * width_in_points(ax)
    texts = [str(name) for name in names]
    widths = np.array([_CHARACTER * FONT * (len(text) + 1) for text in texts])
    is_slanted = bool(np.any(widths > points))
    ax.set_xticks(places, texts)
    ax.tick_params(axis="x", length=0, labelsize=FONT)
    if is_slanted:
        on_top = ax.xaxis.get_ticks_position() == "top"
        for label in ax.get_xticklabels():
            label.set(rotation=35, rotation_mode="anchor", ha="left" if on_top else "right")
