"""The picture of an effect curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jointleaf.inspection._effects import Effect, EffectKind, effect
from jointleaf.plot._bars import BLUE, column_axis, height_of
from jointleaf.plot._drawing import (
    COLORS,
    DARK,
    FONT,
    GREY,
    RED,
    legend_beside,
    new_axes,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["EffectDisplay"]

_LABELS = {
    "ale": "change of the {}\n(accumulated local effect)",
    "partial_dependence": "mean {}\n(partial dependence)",
}
_MAX_RUG = 500


class EffectDisplay:
    """How the prediction moves with one column, with marks for the rows on the axis.

    Columns with categories have a bar per level instead of a curve. Made by `from_estimator`.

    Parameters
    ----------
    effect : Effect
        From `jointleaf.inspection.effect`.
    value_name : str
        What the curve is of.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    lines_ : list of Line2D
        One for every output; of levels their marks.
    rug_ : LineCollection or None
        Marks of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import EffectDisplay, Frobenius, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, X[:, 0] ** 2)
    >>> display = EffectDisplay.from_estimator(model, X, 0)
    >>> len(display.lines_)
    1
    """

    def __init__(self, effect: Effect, *, value_name: str = "prediction") -> None:
        self.effect = effect
        self.value_name = value_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        column: Any,
        *,
        kind: EffectKind = "ale",
        n_grid: int = 40,
        task: Any = None,
        ax: Axes | None = None,
    ) -> EffectDisplay:
        """Draw the effect of one column on the predictions of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X, column, kind, n_grid, task
            See `jointleaf.inspection.effect`.
        ax : Axes, optional
            See `plot`.
        """
        found = effect(estimator, X, column, kind=kind, n_grid=n_grid, task=task)
        is_class = hasattr(estimator, "classes_")
        name = "raw prediction" if is_class else "prediction"
        return cls(found, value_name=name).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> EffectDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``; by default a new figure.

        Returns
        -------
        self
        """
        is_levels = self.effect.grid.dtype == object
        height = height_of(len(self.effect.grid)) if is_levels else 3.4
        self.ax_ = new_axes(type(self).__name__, height) if ax is None else ax
        self.figure_ = self.ax_.figure
        self.rug_: Any = None
        self.lines_: list[Any] = []
        if is_levels:
            self._draw_levels()
        else:
            self._draw_curve()
        if self.effect.output_names is not None:
            legend_beside(self.ax_)
        return self

    def _outputs(self) -> list[tuple[str, Any, str]]:
        """Label, values and colour of every output."""
        names = self.effect.output_names
        if names is None:
            return [("", self.effect.values, RED)]
        return [
            (f"class {name}", self.effect.values[:, k], COLORS[k % len(COLORS)])
            for k, name in enumerate(names)
        ]

    def _draw_curve(self) -> None:
        ax, found = self.ax_, self.effect
        for label, values, color in self._outputs():
            style: dict[str, Any] = {"color": color, "lw": 1.8, "zorder": 3, "label": label}
            if len(found.grid) == 1:
                style["marker"] = "o"
            self.lines_ += ax.plot(found.grid, values, **style)
        if found.kind == "ale":
            ax.axhline(0.0, color=GREY, lw=1, zorder=1)
        style_axes(ax, self._label(found.kind))
        ax.set_xlabel(found.column, fontsize=FONT)
        low, high = ax.get_ylim()
        low -= 0.06 * (high - low)
        ax.set_ylim(low, high)
        picked = np.linspace(0, len(found.rows) - 1, min(_MAX_RUG, len(found.rows))).astype(int)
        marks = np.sort(found.rows)[picked]
        self.rug_ = ax.vlines(
            marks, low, low + 0.035 * (high - low), color=DARK, lw=0.6, alpha=0.35, zorder=2
        )

    def _draw_levels(self) -> None:
        ax, found = self.ax_, self.effect
        places = np.arange(len(found.grid))
        several = found.output_names is not None
        for label, values, color in self._outputs():
            shade = color if several else BLUE
            self.lines_ += ax.plot(values, places, "o", ms=7, color=shade, zorder=3, label=label)
        labels = []
        rows = list(found.rows)
        for level in found.grid:
            count = sum(row is None for row in rows) if level is None else rows.count(level)
            name = "missing" if level is None else level
            labels.append(f"{name} ({count} {'row' if count == 1 else 'rows'})")
        column_axis(ax, labels, self._label("partial_dependence").replace("\n", " "))
        ax.set_title(found.column, loc="left", fontsize=FONT)

    def _label(self, kind: EffectKind) -> str:
        return _LABELS[kind].format(self.value_name)
