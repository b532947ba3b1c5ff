"""The pictures of explanations: of one prediction, and of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.inspection import Explanation, explain
from jointleaf.plot._bars import BLUE, column_axis, height_of, label_values
from jointleaf.plot._drawing import DARK, FONT, GREY, RED, new_axes, title_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ExplanationDisplay"]

_HALF = 0.38  # of the height of a line, which dots are spread over
_MAX_DOTS = 2000


class ExplanationDisplay:
    """What every column adds to a prediction, or to many.

    One row: bars that lead from the baseline, the mean prediction over the training rows, to
    the prediction. Several rows: a dot per row and column, with the columns that matter most on
    top, coloured by the column's value from low to high. Made by `from_estimator` or from an
    `Explanation`.

    Parameters
    ----------
    explanation : Explanation
        Of one output; of several choose one with ``explanation.output(name)``.
    n_columns : int
        Columns that are drawn; of one row the others share a bar.
    value_name : str
        Label of the x axis.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    bars_ : BarContainer
        Of one row.
    dots_ : dict from column to PathCollection
        Of several rows.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import ExplanationDisplay, Frobenius, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, X[:, 0])
    >>> display = ExplanationDisplay.from_estimator(model, X[:1])
    >>> len(display.bars_)
    3
    """

    def __init__(
        self, explanation: Explanation, *, n_columns: int = 10, value_name: str = "prediction"
    ) -> None:
        self.explanation = explanation
        self.n_columns = n_columns
        self.value_name = value_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        task: Any = None,
        output: Any = None,
        n_columns: int = 10,
        ax: Axes | None = None,
    ) -> ExplanationDisplay:
        """Draw why a fitted estimator predicts what it predicts.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X : array-like or data frame (n, d)
            One row, or several.
        task : name of a task, optional
        output : class, optional
            Whose raw prediction is explained; needed for more than two classes.
        n_columns : int
        ax : Axes, optional
            See `plot`.
        """
        found = explain(estimator, X, task=task)
        if found.output_names is not None:
            found = found.output(task if output is None and task is not None else output)
        is_class = hasattr(estimator, "classes_")
        name = "prediction" if not is_class else "raw prediction (log-odds)"
        if is_class and output is not None:
            name = f"raw prediction of class {output}"
        return cls(found, n_columns=n_columns, value_name=name).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> ExplanationDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``; by default a new figure.

        Returns
        -------
        self
        """
        found = self.explanation
        if found.output_names is not None:
            raise ValueError(
                f"the explanation has the outputs {list(found.output_names)}: choose one with "
                "explanation.output(name)"
            )
        if not len(found):
            raise ValueError("the explanation has no rows: there is nothing to draw")
        n_lines = min(self.n_columns + 1, len(found.feature_names)) + found.has_rest
        height = height_of(n_lines)
        self.ax_ = new_axes(type(self).__name__, height) if ax is None else ax
        self.figure_ = self.ax_.figure
        if len(found) == 1:
            self._draw_one()
        else:
            self._draw_many()
        return self

    # -- one row -------------------------------------------------------------------------------

    def _draw_one(self) -> None:
        ax, found = self.ax_, self.explanation
        entries = found.entries(self.n_columns)
        steps = np.array([value for _, value in entries])
        base = float(np.reshape(found.baseline, -1)[0])
        # Steps are taken from the bottom up, so that the largest, on top, ends at the prediction.
        ends = base + np.cumsum(steps[::-1])[::-1]
        starts = ends - steps
        places = np.arange(len(steps))
        colors = np.where(steps >= 0, RED, BLUE)
        self.bars_ = ax.barh(places, steps, left=starts, height=0.62, color=colors, zorder=3)
        for y in range(len(steps) - 1):  # from a bar to the one above it
            ax.plot([starts[y]] * 2, [y + 0.31, y + 0.69], color=DARK, lw=0.7, zorder=2)
        ax.axvline(base, color=GREY, lw=1.2, zorder=1)
        ax.axvline(ends[0], color=DARK, lw=1.2, ls="--", zorder=1)
        column_axis(ax, [label for label, _ in entries], self.value_name)
        ax.use_sticky_edges = False  # room also where the first bar begins
        ax.margins(x=0.05)
        label_values(ax, [(e, s, f"{s:+.3g}") for e, s in zip(ends, steps, strict=True)])
        text = f"prediction {ends[0]:.4g} (dashed) = baseline {base:.4g} (grey) + contributions"
        title_panel(ax, text)

    # -- many rows -----------------------------------------------------------------------------

    def _draw_many(self) -> None:
        ax, found = self.ax_, self.explanation
        values, labels = found.values, list(found.feature_names)
        order = np.argsort(-found.importances, kind="stable")[: self.n_columns]
        shown = [(labels[j], values[:, j], _shades(found.data[:, j])) for j in order]
        if found.has_rest:
            shown.append(("cells", found.cells_rest, np.full(len(found), np.nan)))
        self.dots_ = {}
        width = np.ptp(np.concatenate([own for _, own, _ in shown])) or 1.0
        rows = _some(len(found))
        ax.axvline(0.0, color=DARK, lw=0.8, zorder=1)
        for y, (label, own, shades) in enumerate(shown):
            x, shade = own[rows], shades[rows]
            grey = np.isnan(shade)
            places = y + _spread(x, width)
            style: dict[str, Any] = {"s": 9, "lw": 0, "zorder": 3}
            ax.scatter(x[grey], places[grey], color="#9aa3b0", **style)
            self.dots_[label] = ax.scatter(
                x[~grey], places[~grey], c=shade[~grey], cmap=_colors(), vmin=0, vmax=1, **style
            )
        column_axis(ax, list(self.dots_), f"contribution to the {self.value_name}")
        bar = ax.figure.colorbar(
            next(iter(self.dots_.values())), ax=ax, aspect=30, pad=0.02, shrink=0.8, ticks=[0, 1]
        )
        bar.ax.set_yticklabels(["low", "high"], fontsize=FONT)
        bar.set_label("value of the column", fontsize=FONT, labelpad=-12)
        bar.outline.set_visible(False)


def _colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("low to high", [BLUE, "#b8a6ae", RED])


def _shades(column: NDArray) -> NDArray[np.float64]:
    """Ranks in [0, 1] of a column of numbers, NaN where missing and for categories."""
    try:
        x = column.astype(np.float64)
    except (TypeError, ValueError):
        return np.full(len(column), np.nan)
    shades = np.full(len(x), np.nan)
    known = ~np.isnan(x)
    _, place = np.unique(x[known], return_inverse=True)
    shades[known] = place / max(1, place.max(initial=0))
    return shades


def _some(n: int) -> NDArray[np.intp]:
    """At most `_MAX_DOTS` rows, evenly picked."""
    return np.unique(np.linspace(0, n - 1, min(n, _MAX_DOTS)).astype(np.intp))


def _spread(x: NDArray, width: float) -> NDArray[np.float64]:
    """Heights at which the dots of a line do not hide each other: wider where they are dense."""
    bins = np.floor(100 * (x - x.min()) / width).astype(np.intp)
    counts = np.bincount(bins)
    order = np.argsort(bins, kind="stable")
    rank = np.empty(len(x))
    rank[order] = np.arange(len(x)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Alternately above and below the line, from the middle outwards.
    signed = np.where(rank % 2 == 0, 1, -1) * np.ceil(rank / 2)
    return _HALF * signed / max(4.0, counts.max() / 2)
