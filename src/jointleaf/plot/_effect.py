"""The pictures of an effect curve, and of interactions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jointleaf._data.formatting import short_number
from jointleaf._data.texts import as_days
from jointleaf.inspection._effects import Effect, EffectKind, Interactions, effect, interactions
from jointleaf.inspection._parts import named_raw_model
from jointleaf.plot import _base as base

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {
    "ale": "change of the {}\n(accumulated local effect)",
    "partial_dependence": "mean {}\n(partial dependence)",
}
_MAX_RUG = 500
_MOST_NUMBERS = 12  # columns up to which strengths are written into the map


@dataclass(eq=False, repr=False)
class EffectDisplay(base.Display):
    """How the prediction moves with one column, with marks for the rows on the axis.

    Columns with categories have a mark per category instead of a curve. Made by `from_estimator`.

    Parameters
    ----------
    effect : Effect
        From `jointleaf.inspection.effect`.
    value_name : str
        What the curve is of.

    Attributes
    ----------
    lines_ : list of Line2D
        One for every output; of categories their marks.
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

    effect: Effect
    _: KW_ONLY
    value_name: str = "prediction"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, column: Any, *, ax: Axes | None = None, **options: Any
    ) -> EffectDisplay:
        """Draw the effect of one column on the predictions of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X, column, **options
            Of `jointleaf.inspection.effect`: kind, n_grid, n_categories, task.
        """
        name = _value_name(estimator, options.get("task"))
        return cls(effect(estimator, X, column, **options), value_name=name).plot(ax=ax)

    @property
    def _has_categories(self) -> bool:
        return self.effect.grid.dtype == object

    def _height(self) -> float:
        return base.height_of(len(self.effect.grid)) if self._has_categories else 3.4

    def _draw(self, ax: Axes) -> None:
        self.rug_: Any = None
        self.lines_: list[Any] = []
        if self._has_categories:
            self._draw_categories(ax)
        else:
            self._draw_curve(ax)
        if self.effect.output_names is not None:
            base.legend_beside(ax)

    def _outputs(self) -> list[tuple[str, Any, str]]:
        names = self.effect.output_names
        if names is None:
            return [("", self.effect.values, base.RED)]
        return [
            (f"class {name}", self.effect.values[:, k], base.COLORS[k % len(base.COLORS)])
            for k, name in enumerate(names)
        ]

    def _draw_curve(self, ax: Axes) -> None:
        effect = self.effect
        grid, rows = as_days(effect.grid), as_days(effect.rows)
        for label, values, color in self._outputs():
            style: dict[str, Any] = {"color": color, "lw": 1.8, "zorder": 3, "label": label}
            if len(grid) == 1:
                style["marker"] = "o"
            self.lines_ += ax.plot(grid, values, **style)
        if effect.kind == "ale":
            ax.axhline(0.0, color=base.GREY, lw=1, zorder=1)
        base.style_axes(ax, self._label(effect.kind))
        ax.set_xlabel(effect.column, fontsize=base.FONT)
        base.plain_numbers(ax, "y")
        if effect.is_day:
            base.date_axis(ax)
        else:
            base.plain_numbers(ax, "x")
        low, high = ax.get_ylim()
        low -= 0.06 * (high - low)
        ax.set_ylim(low, high)
        picked = np.linspace(0, len(rows) - 1, min(_MAX_RUG, len(rows))).astype(int)
        marks = np.sort(rows)[picked]
        self.rug_ = ax.vlines(
            marks, low, low + 0.035 * (high - low), color=base.DARK, lw=0.6, alpha=0.35, zorder=2
        )

    def _draw_categories(self, ax: Axes) -> None:
        effect = self.effect
        places = np.arange(len(effect.grid))
        several = effect.output_names is not None
        for label, values, color in self._outputs():
            shade = color if several else base.BLUE
            self.lines_ += ax.plot(values, places, "o", ms=7, color=shade, zorder=3, label=label)
        labels = []
        rows = list(effect.rows)
        for category in effect.grid:
            count = rows.count(category)
            name = "missing" if category is None else category
            labels.append(f"{name} ({count} {'row' if count == 1 else 'rows'})")
        base.column_axis(ax, labels, self._label("partial_dependence").replace("\n", " "))
        ax.set_title(effect.column, loc="left", fontsize=base.FONT)

    def _label(self, kind: EffectKind) -> str:
        return _LABELS[kind].format(self.value_name)


@dataclass(eq=False, repr=False)
class InteractionDisplay(base.Display):
    """How strongly pairs of columns act together, as a heat map.

    Made by `from_estimator`.

    Parameters
    ----------
    interactions : Interactions
        From `jointleaf.inspection.interactions`.
    value_name : str
        What the strengths are of.

    Attributes
    ----------
    image_ : AxesImage
        The lower half of the strengths.
    """

    interactions: Interactions
    _: KW_ONLY
    value_name: str = "prediction"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, ax: Axes | None = None, **options: Any
    ) -> InteractionDisplay:
        """Draw the interactions in a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X : array-like or data frame (n, d)
        **options
            Of `jointleaf.inspection.interactions`: columns, n_rows, output, task, random_state.
        """
        found = interactions(estimator, X, **options)
        name = _value_name(estimator, options.get("task"))
        name += "" if found.output_name is None else f" of class {found.output_name}"
        return cls(found, value_name=name).plot(ax=ax)

    def _height(self) -> float:
        return min(9.0, 0.5 + self._side() + 0.8 * self._longest())  # above slanted names

    def _width(self) -> float:
        return min(8.0, 1.3 + self._side() + self._longest())  # beside a color bar

    def _side(self) -> float:
        """Return how wide the map should be, in inches."""
        c = len(self.interactions.feature_names)
        return max(1.6, min(0.5 * (c - 1), 6.7 - self._longest()))

    def _longest(self) -> float:
        """Return how long the longest name is, in inches."""
        names = map(base.shortened, self.interactions.feature_names)
        return max(map(base.text_points, names)) / 72

    def _draw(self, ax: Axes) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        interactions = self.interactions
        c = len(interactions.feature_names)
        lower = np.tril(np.ones((c, c), bool), -1)
        shown = np.ma.masked_where(~lower, interactions.strengths)[1:, :-1]
        colors = LinearSegmentedColormap.from_list("strength", ["#f4f1ee", base.RED])
        largest = float(interactions.strengths.max()) or 1.0
        self.image_ = ax.imshow(shown, cmap=colors, vmin=0, vmax=largest)
        names = [base.shortened(name) for name in interactions.feature_names]
        if c <= _MOST_NUMBERS:
            self._write(ax, shown, largest, base.cell_points(ax, names))
        ax.set_yticks(np.arange(c - 1), names[1:], fontsize=base.FONT)
        ax.set_xticks(np.arange(c - 1), names[:-1], fontsize=base.FONT, rotation=45, ha="right")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        bar = self.figure_.colorbar(self.image_, ax=ax, shrink=0.8, pad=0.02)
        bar.ax.tick_params(labelsize=base.FONT)
        base.plain_numbers(bar.ax, "y")
        bar.outline.set_visible(False)
        side = 72 * self._side()
        text = f"strength, in units of the {self.value_name}"
        bar.set_label(base.filled(text, side), fontsize=base.FONT)
        spread = short_number(interactions.spread, 3)
        text = f"spread of the {self.value_name}: {spread}"
        base.title_panel(ax, base.filled(text, side + 90))  # also above the color bar

    def _write(self, ax: Axes, shown: np.ma.MaskedArray, largest: float, room: float) -> None:
        """Write the strengths into their cells, smaller where one is wider than its cell."""
        places = np.argwhere(~np.ma.getmaskarray(shown))
        values = [float(shown[row, column]) for row, column in places]
        texts = [short_number(value, 2) for value in values]
        font = base.fitting_font(texts, room)
        for (row, column), value, text in zip(places, values, texts, strict=True):
            color = "white" if value > 0.6 * largest else base.DARK
            ax.text(column, row, text, ha="center", va="center", fontsize=font, color=color)


def _value_name(estimator: Any, task: Any) -> str:
    """Return what the raw predictions of an estimator are called."""
    if hasattr(estimator, "classes_"):
        return "raw prediction"
    loss = named_raw_model(estimator, task).loss
    return "log of the prediction" if loss is not None and loss.has_log_link else "prediction"
