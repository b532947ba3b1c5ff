"""The pictures of explanations, of the linear model around a row, and of importances."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.inspection import permutation_importance
from sklearn.pipeline import Pipeline

from jointleaf._data.columns import column_names
from jointleaf._data.formatting import day_text, number, short_number, signed
from jointleaf.inspection import Explanation, explain
from jointleaf.inspection._local import LocalModel, local_model
from jointleaf.inspection._parts import last_estimator, main_output, named_raw_model
from jointleaf.plot import _base as base

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR: dict[str, Any] = {"height": 0.62, "zorder": 3}
_HALF = 0.38  # of the height of a line, which dots are spread over
_MAX_DOTS = 2000

ImportanceKind = Literal["model", "explanation", "permutation"]
_KINDS = {
    "model": "importance in the model (adds up to 1)",
    "explanation": "mean size of the contributions to predictions",
    "permutation": "loss of score when the column is shuffled",
}


@dataclass(eq=False, repr=False)
class ExplanationDisplay(base.Display):
    """What every column adds to a prediction, or to many.

    One row: bars that lead from the baseline, the mean prediction over the training rows, to
    the prediction. Several rows: a dot per row and column, with the columns that matter most on
    top, colored by the column's value from low to high. Made by `from_estimator` or from an
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
    bars_ : BarContainer
        Of one row.
    dots_ : dict from column to PathCollection
        Of several rows.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import ExplanationDisplay, Frobenius, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, X[:, 0] ** 2)
    >>> display = ExplanationDisplay.from_estimator(model, X[:1])
    >>> len(display.bars_)
    3
    """

    explanation: Explanation
    _: KW_ONLY
    n_columns: int = 10
    value_name: str = "prediction"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        task: Any = None,
        output: Any = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> ExplanationDisplay:
        """Draw why a fitted estimator predicts what it predicts.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X : array-like or data frame (n, d)
            One row, or several.
        task : name of a task, optional
        output : class, optional
            Of more than two classes, by default the one that is predicted for most rows.
        **options
            Of the class: n_columns.
        """
        explanation = explain(estimator, X, task=task)
        if explanation.output_names is not None:
            output = task if output is None else output
            if output is None and explanation.classes is not None:
                output = explanation.output_names[main_output(explanation.prediction)]
            explanation = explanation.output(output)
        name = _raw_name(estimator, output, has_log_link=explanation.has_log_link)
        return cls(explanation, value_name=name, **options).plot(ax=ax)

    def _height(self) -> float:
        explanation = self.explanation
        if explanation.output_names is not None:
            raise ValueError(
                f"the explanation has the outputs {list(explanation.output_names)}: choose one "
                "with explanation.output(name)"
            )
        if not len(explanation):
            raise ValueError("the explanation has no rows, there is nothing to draw: pass some")
        n_lines = min(self.n_columns + 1, len(explanation.feature_names))
        return base.height_of(n_lines + explanation.has_rest)

    def _draw(self, ax: Axes) -> None:
        (self._draw_one if len(self.explanation) == 1 else self._draw_many)(ax)

    def _draw_one(self, ax: Axes) -> None:
        explanation = self.explanation
        entries = explanation.entries(self.n_columns)
        steps = np.array([value for _, value in entries])
        baseline = float(np.reshape(explanation.baseline, -1)[0])
        # Steps are taken from the bottom up, so that the largest, on top, ends at the prediction.
        ends = baseline + np.cumsum(steps[::-1])[::-1]
        starts = ends - steps
        places = np.arange(len(steps))
        colors = np.where(steps >= 0, base.RED, base.BLUE)
        self.bars_ = ax.barh(places, steps, left=starts, color=colors, **_BAR)
        for y in range(len(steps) - 1):  # from a bar to the one above it
            ax.plot([starts[y]] * 2, [y + 0.31, y + 0.69], color=base.DARK, lw=0.7, zorder=2)
        ax.axvline(baseline, color=base.GREY, lw=1.2, zorder=1)
        ax.axvline(ends[0], color=base.DARK, lw=1.2, ls="--", zorder=1)
        base.column_axis(ax, [label for label, _ in entries], self.value_name)
        ax.use_sticky_edges = False  # room also where the first bar begins
        ax.margins(x=0.05)
        base.label_values(ax, [(e, s, signed(number(s))) for e, s in zip(ends, steps, strict=True)])
        kind = "" if self.value_name.endswith("prediction") else "raw "  # log-odds, one class
        kind = "log " if explanation.has_log_link else kind
        text = f"{kind}prediction {number(ends[0])} (dashed) = baseline {number(baseline)} (grey)"
        text += " + contributions"
        if explanation.interval is not None:
            text += f"\n{explanation.interval_text()}"
        base.title_panel(ax, text)

    def _draw_many(self, ax: Axes) -> None:
        explanation = self.explanation
        values, labels = explanation.values, list(explanation.feature_names)
        order = np.argsort(-explanation.importances, kind="stable")[: self.n_columns]
        shown = [(labels[j], values[:, j], _shades(explanation.data[:, j])) for j in order]
        if explanation.has_rest:
            shown.append(("cells", explanation.cells_rest, np.full(len(explanation), np.nan)))
        self.dots_ = {}
        width = np.ptp(np.concatenate([contributions for _, contributions, _ in shown])) or 1.0
        n = len(explanation)
        rows = np.unique(np.linspace(0, n - 1, min(n, _MAX_DOTS)).astype(np.intp))
        ax.axvline(0.0, color=base.DARK, lw=0.8, zorder=1)
        for y, (label, contributions, shades) in enumerate(shown):
            x, shade = contributions[rows], shades[rows]
            grey = np.isnan(shade)
            places = y + _spread(x, width)
            style: dict[str, Any] = {"s": 9, "lw": 0, "zorder": 3}
            ax.scatter(x[grey], places[grey], color="#9aa3b0", **style)
            self.dots_[label] = ax.scatter(
                x[~grey], places[~grey], c=shade[~grey], cmap=_colors(), vmin=0, vmax=1, **style
            )
        base.column_axis(ax, list(self.dots_), f"contribution to the {self.value_name}")
        bar = ax.figure.colorbar(
            next(iter(self.dots_.values())), ax=ax, aspect=30, pad=0.02, shrink=0.8, ticks=[0, 1]
        )
        bar.ax.set_yticklabels(["low", "high"], fontsize=base.FONT)
        text = "value of the column"
        room = 0.8 * base.height_in_points(ax) - 2 * base.LINE_HEIGHT  # between low and high
        bar.set_label(
            text, fontsize=base.FONT, labelpad=-12 if base.text_points(text) <= room else 2
        )
        bar.outline.set_visible(False)


def _raw_name(estimator: Any, output: Any, *, has_log_link: bool) -> str:
    """Return what the raw predictions of an estimator, or of one output of it, are called."""
    if hasattr(estimator, "classes_"):
        return f"raw prediction{' (log-odds)' if output is None else f' of class {output}'}"
    return "log of the prediction" if has_log_link else "prediction"


@dataclass(eq=False, repr=False)
class LocalModelDisplay(base.Display):
    """The slopes in force around one row, the largest on top.

    Bars are slopes times the standard deviation of the feature over the training rows, so that
    features in different units compare; the slopes themselves, in the units of the data, are
    written beside them. Made by `from_estimator`.

    Parameters
    ----------
    local : LocalModel
    output : class, optional
        Of more than two classes, by default the predicted one.
    n_columns : int
        Linear features that are drawn.
    value_name : str
        What the raw prediction of the row is called.

    Attributes
    ----------
    bars_ : BarContainer
    """

    local: LocalModel
    _: KW_ONLY
    output: Any = None
    n_columns: int = 12
    value_name: str = "prediction"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, task: Any = None, ax: Axes | None = None, **options: Any
    ) -> LocalModelDisplay:
        """Draw the linear model of a fitted estimator around one row.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X : array-like or data frame (1, d)
        task : name of a task, optional
        **options
            Of the class: output, n_columns, value_name.
        """
        local, loss = local_model(estimator, X, task=task), named_raw_model(estimator, task).loss
        has_log_link = loss is not None and loss.has_log_link
        if local.output_names is not None and options.get("output") is None:
            options["output"] = local.output_names[int(np.argmax(local.value))]
        name = _raw_name(estimator, options.get("output"), has_log_link=has_log_link)
        return cls(local, **{"value_name": name, **options}).plot(ax=ax)

    def _height(self) -> float:
        self._coef, self._value = self.local.of_output(self.output)
        sizes = self._coef * self.local.scale
        self._order = np.argsort(-np.abs(sizes), kind="stable")[: self.n_columns]
        return base.height_of(len(self._order))

    def _draw(self, ax: Axes) -> None:
        coef, order = self._coef[self._order], self._order
        sizes = coef * self.local.scale[order]
        colors = np.where(sizes >= 0, base.RED, base.BLUE)
        self.bars_ = ax.barh(np.arange(len(order)), sizes, color=colors, **_BAR)
        ax.axvline(0.0, color=base.DARK, lw=0.8, zorder=2)
        x_label = "slope times the standard deviation of the feature"
        base.column_axis(ax, [self._label(int(j)) for j in order], x_label)
        base.label_values(
            ax, [(x, x, signed(short_number(b, 3))) for x, b in zip(sizes, coef, strict=True)]
        )
        value = short_number(self._value)
        base.title_panel(ax, f"{self.value_name} {value}; slopes beside the bars")

    def _label(self, j: int) -> str:
        local = self.local
        x = local.x[j]
        if local.is_number[j]:
            text = day_text(x) if j in local.days else short_number(x)
            return f"{local.names[j]} = {'missing' if np.isnan(x) else text}"
        return f"{local.names[j]}: {'unknown' if np.isnan(x) else 'yes' if x else 'no'}"


@dataclass(eq=False, repr=False)
class ImportanceDisplay(base.Display):
    """How much every column matters, the most important one on top.

    Made by `from_estimator`.

    Parameters
    ----------
    importances : array (d,)
    feature_names : sequence of str, length d
    errors : array (d,), optional
        Standard deviations, drawn as thin lines.
    kind_name : str
        Label of the x axis.
    n_columns : int
        Columns that are drawn.

    Attributes
    ----------
    bars_ : BarContainer
    """

    importances: ArrayLike
    feature_names: Any
    _: KW_ONLY
    errors: NDArray | None = None
    kind_name: str = "importance"
    n_columns: int = 15

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        kind: ImportanceKind | None = None,
        output: Any = None,
        n_columns: int = 15,
        ax: Axes | None = None,
        **options: Any,
    ) -> ImportanceDisplay:
        """Draw the importances of a fitted estimator.

        Parameters
        ----------
        estimator : JOPLEnRegressor or JOPLEnClassifier, or a Pipeline that ends in one
            Columns are those that the last step of a pipeline sees, of "permutation" those of X
            that the model uses.
        X : array-like or data frame (n, d), optional
            For all kinds but "model".
        y : array-like (n,), optional
            For "permutation"; best with rows that the model has not seen.
        kind : {"model", "explanation", "permutation"}, optional
            ``feature_importances_``, mean absolute values of `explain`, or
            `sklearn.inspection.permutation_importance`. By default the last one that X and
            y allow.
        output : class, optional
            Of "explanation"; by default the mean over all outputs.
        n_columns : int
        **options
            Of `sklearn.inspection.permutation_importance`, for example ``n_repeats``.
        """
        if kind is None:
            kind = "model" if X is None else "explanation" if y is None else "permutation"
        if kind not in _KINDS:
            raise ValueError(f"kind={kind!r} is not known: use {', '.join(map(repr, _KINDS))}")
        if (kind != "model" and X is None) or (kind == "permutation" and y is None):
            needed = "X and y" if kind == "permutation" else "X"
            raise ValueError(f"kind={kind!r} needs {needed}: pass the rows to explain")
        names, errors = list(named_raw_model(estimator).names), None
        if kind == "model":
            sizes = last_estimator(estimator).feature_importances_
        elif kind == "explanation":
            explanation = explain(estimator, X)
            sizes = (explanation if output is None else explanation.output(output)).importances
            sizes = sizes.mean(axis=1) if sizes.ndim == 2 else sizes
        else:
            drop = permutation_importance(estimator, X, y, **{"random_state": 0, **options})
            names = _input_names(estimator, X, len(drop["importances_mean"]))
            used = _used_inputs(estimator, names)
            sizes, errors = drop["importances_mean"][used], drop["importances_std"][used]
            names = [names[j] for j in used]
        display = cls(sizes, names, errors=errors, kind_name=_KINDS[kind], n_columns=n_columns)
        return display.plot(ax=ax)

    def _height(self) -> float:
        sizes = np.asarray(self.importances, float)
        self._order = np.argsort(-sizes, kind="stable")[: self.n_columns]
        return base.height_of(len(self._order))

    def _draw(self, ax: Axes) -> None:
        order = self._order
        sizes = np.asarray(self.importances, float)[order]
        errors = None if self.errors is None else np.asarray(self.errors)[order]
        lines = {"ecolor": base.DARK, "elinewidth": 1.0, "zorder": 4}
        self.bars_ = ax.barh(
            np.arange(len(order)), sizes, xerr=errors, color=base.BLUE, error_kw=lines, **_BAR
        )
        if sizes.min() < 0:
            ax.axvline(0.0, color=base.DARK, lw=0.8, zorder=2)
        base.column_axis(ax, [str(self.feature_names[j]) for j in order], self.kind_name)


def _input_names(estimator: Any, X: Any, d: int) -> list[str]:
    """Return the names of the d columns of X, which an estimator or a pipeline takes."""
    names = column_names(X)
    return base.feature_labels(
        getattr(estimator, "feature_names_in_", None) if names is None else names, d
    )


def _used_inputs(estimator: Any, names: list[str]) -> list[int]:
    """Return the numbers of the columns that a model reads: not the target, nor those left out."""
    first = estimator[0] if isinstance(estimator, Pipeline) else estimator
    preparation = getattr(first, "preparation_", None) or getattr(
        getattr(first, "columns_", None), "preparation", None
    )
    needed = set(names) if preparation is None else set(map(str, preparation.names))
    return [j for j, name in enumerate(names) if name in needed]


# -- dots --------------------------------------------------------------------------------------


def _colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("low to high", [base.BLUE, "#b8a6ae", base.RED])


def _shades(column: NDArray) -> NDArray[np.float64]:
    """Return the ranks in [0, 1] of a column of numbers, NaN where missing and for categories."""
    try:
        x = column.astype(np.float64)
    except (TypeError, ValueError):
        return np.full(len(column), np.nan)
    shades = np.full(len(x), np.nan)
    is_number = ~np.isnan(x)
    _, place = np.unique(x[is_number], return_inverse=True)
    shades[is_number] = place / max(1, place.max(initial=0))
    return shades


def _spread(x: NDArray, width: float) -> NDArray[np.float64]:
    """Return heights at which the dots of a line do not hide each other, wider where dense."""
    bins = np.floor(100 * (x - x.min()) / width).astype(np.intp)
    counts = np.bincount(bins)
    order = np.argsort(bins, kind="stable")
    rank = np.empty(len(x))
    rank[order] = np.arange(len(x)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Alternately above and below the line, from the middle outwards.
    signed = np.where(rank % 2 == 0, 1, -1) * np.ceil(rank / 2)
    return _HALF * signed / max(4.0, counts.max() / 2)
