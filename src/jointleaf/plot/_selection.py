"""The picture of how many features were selected for several tasks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from jointleaf.plot._drawing import DARK, FONT, legend_beside, new_axes, style_axes
from jointleaf.plot._tasks import (
    check_tasks,
    chosen_from,
    method_style,
    width_in_points,
    write_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

__all__ = ["SelectionDisplay"]

Counts = Mapping[str, tuple[int, Mapping[Hashable, int]]]

_GROUP = 0.8  # width of all bars of a task
_NEUTRAL = "#7a818c"
_PALE = 0.65  # how far the upper parts of bars are from their colour towards white


class SelectionDisplay:
    """Numbers of selected features: a bar per task and method, common ones below, others above.

    The height of a bar is the number of all features of the task, common + task-specific. Made by
    `from_counts` or `from_estimators`.

    Parameters
    ----------
    counts : dict from method to (n_common, dict from task to n_specific)
        For every method the number of features that all tasks share, and of those that
        a task has besides.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    common_bars_ : dict from method to BarContainer (T bars)
        From 0 to n_common.
    specific_bars_ : dict from method to BarContainer (T bars)
        From n_common to n_common + n_specific.

    Examples
    --------
    >>> from jointleaf import SelectionDisplay
    >>> counts = {"JOPLEn": (2, {"a": 1, "b": 0}), "BoUTS": (3, {"a": 1, "b": 4})}
    >>> display = SelectionDisplay.from_counts(counts)
    >>> [int(bar.get_y() + bar.get_height()) for bar in display.specific_bars_["BoUTS"]]
    [4, 7]
    """

    def __init__(self, counts: Counts) -> None:
        self.counts = counts

    @classmethod
    def from_counts(cls, counts: Counts, *, ax: Axes | None = None) -> SelectionDisplay:
        """Draw numbers of features; parameters as of the class and of `plot`."""
        return cls(counts).plot(ax=ax)

    @classmethod
    def from_estimators(
        cls, estimators: Mapping[str, Any], *, ax: Axes | None = None
    ) -> SelectionDisplay:
        """Draw how many features fitted estimators selected.

        Of JOPLEn these are features with slopes: trees may split on others besides, cells that
        know nothing of y ("voronoi") do not select any.

        Parameters
        ----------
        estimators : dict from name to estimator
            Fitted, with ``task_features_`` and ``common_features_`` (MultiTaskJOPLEnRegressor,
            MultiTaskJOPLEnClassifier) or ``universal_features_`` (BoUTSRegressor,
            BoUTSClassifier).
        ax : Axes, optional
            See `plot`.
        """
        chosen = chosen_from("estimators", estimators)
        return cls({name: _count(name, model) for name, model in chosen.items()}).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> SelectionDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``, which leaves room for
            the legend; by default a new figure.

        Returns
        -------
        self
        """
        counts = _checked(self.counts)
        tasks = check_tasks("counts", {name: own for name, (_, own) in counts.items()})
        self.ax_ = new_axes(type(self).__name__, 3.5) if ax is None else ax
        self.figure_ = self.ax_.figure
        self.common_bars_: dict[str, BarContainer] = {}
        self.specific_bars_: dict[str, BarContainer] = {}
        for k, (name, (n_common, own)) in enumerate(counts.items()):
            self._draw(k, name, n_common, np.array([own[task] for task in tasks]))
        self._finish(tasks)
        self._write_totals(tasks)
        return self

    def _draw(self, k: int, name: str, n_common: int, specific: np.ndarray) -> None:
        """Draw the bars of the k-th method."""
        from matplotlib.colors import to_rgb

        width = _GROUP / len(self.counts)
        x = np.arange(len(specific)) - _GROUP / 2 + (k + 0.5) * width
        color = np.array(to_rgb(method_style(k)["color"]))
        style: dict[str, Any] = {"width": 0.88 * width, "edgecolor": color, "lw": 1.0, "zorder": 2}
        common = np.full(len(specific), float(n_common))
        self.common_bars_[name] = self.ax_.bar(x, common, color=color, label=name, **style)
        self.specific_bars_[name] = self.ax_.bar(
            x, specific.astype(float), bottom=common, color=color + _PALE * (1 - color), **style
        )

    def _finish(self, tasks: list[Hashable]) -> None:
        from matplotlib.patches import Patch
        from matplotlib.ticker import MaxNLocator

        ax = self.ax_
        style_axes(ax, "selected features")
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        tops = [bar.get_y() + bar.get_height() for bars in self.specific_bars_.values()
                for bar in bars]  # fmt: skip
        ax.set_ylim(0, 1.12 * max(*tops, 1.0))
        ax.set_xlim(-0.55, len(tasks) - 0.45)
        write_names(ax, np.arange(len(tasks)), tasks, 1.0)
        kinds = [
            Patch(alpha=0.0, label=""),  # a blank line
            Patch(facecolor="#e3e5e8", edgecolor=_NEUTRAL, label="task-specific"),
            Patch(facecolor=_NEUTRAL, edgecolor=_NEUTRAL, label="common"),
        ]
        legend_beside(ax, handles=[*self.common_bars_.values(), *kinds], handlelength=1.2)

    def _write_totals(self, tasks: list[Hashable]) -> None:
        """Write the height of every bar above it, where there is room for all."""
        room = width_in_points(self.ax_) / len(tasks) * _GROUP / len(self.counts)
        totals = {
            name: [f"{part.get_y() + part.get_height():.0f}" for part in bars]
            for name, bars in self.specific_bars_.items()
        }
        if max(len(text) for texts in totals.values() for text in texts) * 0.8 * FONT > room:
            return
        for name, texts in totals.items():
            bars = self.specific_bars_[name]
            self.ax_.bar_label(bars, texts, padding=2, fontsize=FONT, color=DARK)


def _count(name: str, model: Any) -> tuple[int, dict[Hashable, int]]:
    """Numbers of common and of task-specific features of a fitted estimator."""
    if not hasattr(model, "fit"):
        raise TypeError(f"estimators[{name!r}]={model!r} is not an estimator")
    check_is_fitted(model)
    for attribute in ("common_features_", "universal_features_"):
        if hasattr(model, attribute) and hasattr(model, "task_features_"):
            own = {task: len(features) for task, features in model.task_features_.items()}
            return len(getattr(model, attribute)), own
    raise TypeError(
        f"estimators[{name!r}]={model!r} does not say what it selected: it must have "
        "task_features_ and common_features_ or universal_features_; use from_counts for others"
    )


def _checked(counts: Counts) -> dict[str, tuple[int, Mapping[Hashable, int]]]:
    """Refuse what are not counts."""
    found = {}
    for name, pair in chosen_from("counts", counts).items():
        try:
            n_common, own = pair
            numbers = [n_common, *own.values()]
        except (TypeError, ValueError, AttributeError):
            raise TypeError(
                f"counts[{name!r}]={pair!r} must be a pair (n_common, dict from task to n_specific)"
            ) from None
        for number in numbers:
            if not isinstance(number, int | float | np.number) or not number >= 0:
                raise ValueError(f"counts[{name!r}] holds {number!r}: give numbers of features")
        found[name] = n_common, own
    return found
