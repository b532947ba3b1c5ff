"""The pictures of one fit of several tasks: the strengths that were tried, and the slopes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.solvers.solution import Solution
from jointleaf._core.tasks import task_strengths
from jointleaf._fit.folds import loss_table
from jointleaf.multitask._joint_base import BaseMultiTaskJOPLEn
from jointleaf.plot import _base as base

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D

_MARKERS = ("o", "s", "^", "D", "v")
#: from the most negative slope to the most positive; zero is pure white, unlike in "RdBu"
_COLORS = ("#0b3c6f", "#2f77b4", "#9cc6e3", "#ffffff", "#f3b49b", "#c1432e", "#6f1209")
_ROW, _AROUND = 0.25, 0.7  # inches for a feature, and for all that is above and below
_LOWEST, _HIGHEST = 2.2, 11.0
_MAX_LINES = 60  # between features; more would hide the slopes


@dataclass(eq=False, repr=False)
class TaskPathDisplay(base.Display):
    """Validation loss against the number of features, along all paths of strengths.

    A Dirty LASSO has two strengths. For every ratio common / task there is a line along which both
    fall together, from no features on the left to many on the right. A ratio of
    min_t gamma_t makes every feature common, and one of |gamma| none beyond those that all tasks
    need: with T tasks of equal weight, 1 and sqrt(T). Where features were also scored with relaxed
    strengths, every point has the smallest of its losses, and a dotted line shows those of the
    chosen ratio without relaxing. The chosen strengths and the smallest loss are marked; with
    ``one_se`` the chosen point has the fewest features of all below the dashed line, one standard
    error above the smallest loss. Made by `from_estimator`.

    Parameters
    ----------
    table : dict of arrays
        ``cv_results_`` of an estimator of several tasks.
    chosen : pair of float
        The strengths ``common`` and ``task`` of the fit; NaN where the penalty has none. The
        best of their relaxations is meant.
    loss_name : str
        Label of the losses.

    Attributes
    ----------
    ratios_ : list of float
        common / task of every line; NaN where the penalty has a single strength.
    lines_ : list of Line2D
        Mean validation loss (y), the smallest of all relaxations, against the mean number of
        selected features of a task (x).
    unrelaxed_ : Line2D or None
        The losses of the chosen ratio without relaxing, where some are relaxed.
    chosen_ : Line2D
        The point of the fit.
    band_ : PolyCollection
        One standard error on both sides of the chosen line.
    """

    table: Mapping[str, Any]
    chosen: tuple[float, float]
    _: KW_ONLY
    loss_name: str = "validation loss"

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> TaskPathDisplay:
        """Draw how the strengths of a fitted estimator were chosen.

        Parameters
        ----------
        estimator : MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier
            Fitted with a penalty whose strengths are "auto", such as ``DirtyLasso()`` or
            ``L21("auto")``.
        """
        _check_estimator(estimator)
        if isinstance(estimator.cv_results_, list):
            raise ValueError(
                f"penalty={estimator.penalty!r} chooses a penalty for every task alone, there is "
                "no common path to draw: fit with DirtyLasso()"
            )
        if estimator.cv_results_ is None:
            raise ValueError(
                f"penalty={estimator.penalty!r} has fixed strengths, there is no choice to draw: "
                "fit with DirtyLasso() or another strength that is 'auto'"
            )
        name = base.loss_label("validation loss", estimator)
        chosen = task_strengths(estimator.penalty_)
        return cls(estimator.cv_results_, chosen, loss_name=name).plot(ax=ax)

    def _height(self) -> float:
        self._lines = _lines(loss_table(self.table))
        if all(np.ptp(line["mean_selected"]) == 0 for line in self._lines):
            raise ValueError(
                "every strength has the same number of features, there is no path to draw: fit "
                "with a penalty that makes features vanish, such as DirtyLasso() or L21('auto')"
            )
        return 4.0

    def _draw(self, ax: Axes) -> None:
        lines = self._lines
        self.ratios_ = [_ratio(line) for line in lines]
        best = self._chosen_line(lines)
        self.lines_ = [
            _draw_line(ax, line, k, len(lines), is_chosen=line is best)
            for k, line in enumerate(lines)
        ]
        self.unrelaxed_ = self._draw_unrelaxed(best)
        self._mark(lines, best)
        self._finish(lines)

    def _chosen_line(self, lines: list[base.Table]) -> base.Table:
        distances = [np.min(self._distances(line)) for line in lines]
        return lines[int(np.argmin(distances))]

    def _distances(self, line: base.Table) -> NDArray[np.float64]:
        """Return the distance of every point of a line from the chosen strengths, in logarithms."""
        total = np.zeros(len(line["common"]))
        for name, value in zip(("common", "task"), self.chosen, strict=True):
            if np.isfinite(value):
                total += np.abs(np.log(line[name] / value))
        return total

    def _draw_unrelaxed(self, best: base.Table) -> Line2D | None:
        """Draw what shrinkage costs along the chosen line."""
        if np.all(best["relax"] == 1):
            return None
        plain = next(
            line
            for line in _lines(loss_table(self.table), relaxed=False)
            if np.isclose(_ratio(line), _ratio(best))
        )
        style: dict[str, Any] = {"color": base.DARK, "lw": 1.2, "ls": ":", "zorder": 2}
        label = f"{_ratio(best):.3g}, not relaxed"
        return self.ax_.plot(plain["mean_selected"], plain["mean_loss"], label=label, **style)[0]

    def _mark(self, lines: list[base.Table], best: base.Table) -> None:
        """Draw the band, the smallest loss, one standard error above it, and the choice."""
        x, mean, error = best["mean_selected"], best["mean_loss"], best["se_loss"]
        order = np.argsort(x, kind="stable")
        low, high = (mean - error)[order], (mean + error)[order]
        style: dict[str, Any] = {"color": base.DARK, "zorder": 1}
        self.band_ = self.ax_.fill_between(
            x[order], low, high, alpha=0.13, lw=0, label="± 1 std. error", **style
        )
        joined = {name: np.concatenate([line[name] for line in lines]) for name in best}
        k = int(np.argmin(joined["mean_loss"]))
        smallest, bound = joined["mean_loss"][k], joined["mean_loss"][k] + joined["se_loss"][k]
        self.ax_.axhline(bound, lw=1, ls="--", label="smallest + 1 std. error", **style)
        ring: dict[str, Any] = {"ms": 13, "mfc": "none", "mec": base.DARK, "mew": 1.5, "zorder": 5}
        x_smallest = joined["mean_selected"][k]
        self.ax_.plot(x_smallest, smallest, "o", ls="none", label="smallest loss", **ring)
        at = int(np.argmin(self._distances(best)))
        star: dict[str, Any] = {"ms": 15, "color": base.RED, "mec": "white", "mew": 0.8}
        label = f"chosen: {self._words(best['relax'][at])}"
        (self.chosen_,) = self.ax_.plot(
            x[at], mean[at], "*", ls="none", zorder=6, label=label, **star
        )

    def _words(self, relax: float) -> str:
        pairs = zip(("common", "task"), self.chosen, strict=True)
        words = [f"{name} {value:.2g}" for name, value in pairs if np.isfinite(value)]
        if len(words) == 1:
            words = words[0].split()[1:]
        return ", ".join(words) + (f",\nrelax {relax:.2g}" if relax != 1 else "")

    def _finish(self, lines: list[base.Table]) -> None:
        ax = self.ax_
        base.style_axes(ax, self.loss_name)
        ax.set_xlabel(
            "selected features of a task, common and its own (mean over tasks and folds)",
            fontsize=base.FONT,
        )
        ax.grid(color=base.GREY, lw=0.5, alpha=0.5)
        ax.set_axisbelow(True)
        ax.set_xlim(left=-0.015 * max(line["mean_selected"].max() for line in lines))
        has_ratios = np.isfinite(self.ratios_).all()
        title = "common / task\n(small: more is common)" if has_ratios else None
        base.legend_beside(ax, title=title, title_fontsize=base.FONT, alignment="left")


def _lines(table: base.Table, *, relaxed: bool = True) -> list[base.Table]:
    """Return the path of every ratio, strong to weak, with the best relaxation of every point."""
    is_drawn = table["on_path"] & np.isfinite(table["mean_loss"])
    if not relaxed:
        is_drawn &= table["relax"] == 1
    drawn = {name: column[is_drawn] for name, column in table.items()}
    # A path has one ratio, which rounding may blur; rows of one point follow each other.
    ratio = np.nan_to_num(drawn["common"] / drawn["task"], nan=1.0)
    strength = np.where(np.isnan(drawn["common"]), drawn["task"], drawn["common"])
    is_new_path = np.abs(np.diff(np.log(ratio))) > 1e-9
    is_new = np.concatenate([[True], is_new_path | (np.diff(strength) != 0)])
    points = np.cumsum(is_new) - 1
    order = np.lexsort((drawn["mean_loss"], points))
    best = order[np.searchsorted(points[order], np.arange(points[-1] + 1))]
    ends = np.flatnonzero(np.diff(np.cumsum([0, *is_new_path])[best])) + 1
    return [{name: column[part] for name, column in drawn.items()} for part in np.split(best, ends)]


def _ratio(line: base.Table) -> float:
    return float(line["common"][0] / line["task"][0])


def _draw_line(ax: Axes, line: base.Table, k: int, n_lines: int, *, is_chosen: bool) -> Line2D:
    """Draw a path; ratios in order have colors in order, from light to dark."""
    from matplotlib import colormaps

    color = colormaps["viridis_r"](0.12 + 0.85 * k / max(n_lines - 1, 1))
    ratio = _ratio(line)
    return ax.plot(
        line["mean_selected"],
        line["mean_loss"],
        color=color,
        marker=_MARKERS[k % len(_MARKERS)],
        ms=4.5 if is_chosen else 3.5,
        lw=2.2 if is_chosen else 1.2,
        zorder=4 if is_chosen else 3,
        label=f"{ratio:.3g}" if np.isfinite(ratio) else "mean loss",
    )[0]


@dataclass(eq=False, repr=False)
class TaskWeightsDisplay(base.Display):
    r"""Slopes of all tasks: features are rows, cells are columns, grouped by task.

    Blue is negative, red positive, white zero; the range of colors is symmetric. Features
    that all tasks share come first, then those of single tasks, by the task in which their slopes
    are largest: what is specific to a task is seen as blocks along the diagonal. Slopes are those
    of standardized features and targets, W_t = C_t + T_t in the notation of `DirtyLasso`. The last
    cell of a task is its root cell, where there is one. `from_estimator`
    takes those of a fitted estimator.

    Parameters
    ----------
    solution : Solution
        From `jointleaf.fit_tasks`: slopes (L, d) of all tasks, split into common and
        task-specific ones.
    task_names : sequence of T names, optional
        By default 0, 1, ...
    feature_names : sequence of d names, optional
        By default x0, x1, ...
    max_features : int or None
        Most features to draw: those with the largest slopes. None: no limit.

    Attributes
    ----------
    image_ : AxesImage
        Its array has the shape (rows, C_1 + ... + C_T).
    features_ : array of int
        The features that are drawn, from top to bottom: those with a slope in some task.
    colorbar_ : Colorbar

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor, TaskWeightsDisplay
    >>> rng = np.random.default_rng(0)
    >>> tasks = {}
    >>> for j, name in ((1, "a"), (2, "b"), (3, "c")):
    ...     X = rng.standard_normal((150, 8))
    ...     tasks[name] = X, 2 * np.sin(X[:, 0]) + X[:, j]
    >>> penalty = DirtyLasso(common=0.2, task=0.12, bias_strength=1.0)
    >>> model = MultiTaskJOPLEnRegressor("voronoi", penalty=penalty, random_state=0).fit(tasks)
    >>> TaskWeightsDisplay.from_estimator(model).features_
    array([0, 1, 2, 3])
    """

    solution: Solution
    task_names: Sequence[Hashable] | None = None
    feature_names: Sequence[Any] | None = None
    _: KW_ONLY
    max_features: int | None = 40

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Axes | None = None, **options: Any
    ) -> TaskWeightsDisplay:
        """Draw the slopes of a fitted estimator.

        Parameters
        ----------
        estimator : MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier
            Fitted with a Penalty such as ``DirtyLasso()``. Rows are its ``linear_feature_names_``:
            a categorical column has one per category.
        **options
            Of the class: max_features.
        """
        _check_estimator(estimator)
        if not isinstance(estimator.solution_, Solution):
            raise ValueError(
                f"penalty={estimator.penalty!r} fits every task alone, its slopes are not "
                "comparable over tasks: fit with a Penalty such as DirtyLasso()"
            )
        names = list(estimator.linear_feature_names_)
        return cls(estimator.solution_, estimator.task_names_, names, **options).plot(ax=ax)

    def _height(self) -> float:
        self._names = self._check()
        self.features_ = self._choose_features()
        return min(max(_AROUND + _ROW * len(self.features_), _LOWEST), _HIGHEST)

    def _draw(self, ax: Axes) -> None:
        self.image_ = _draw_slopes(ax, self.solution.coef.T[self.features_])
        self._label(ax)
        self._add_colors(ax)

    # -- what is drawn -------------------------------------------------------------------------

    def _check(self) -> tuple[list[Hashable], list[str]]:
        if not isinstance(self.solution, Solution):
            raise TypeError(
                f"solution={self.solution!r} must be a Solution: what fit_tasks returns, or "
                "solution_ of an estimator that was fitted with a Penalty"
            )
        n_tasks, d = len(self.solution.tasks), self.solution.coef.shape[1]
        if self.max_features is not None and self.max_features < 1:
            raise ValueError(f"max_features={self.max_features!r} must be at least 1, or None")
        if d == 0:
            raise ValueError("constant cells have no slopes to draw: fit with cells='linear'")
        tasks = list(self.task_names if self.task_names is not None else range(n_tasks))
        if len(tasks) != n_tasks:
            raise ValueError(
                f"task_names has {len(tasks)} names for {n_tasks} tasks: use one for each"
            )
        return tasks, base.feature_labels(self.feature_names, d)

    def _choose_features(self) -> NDArray[np.intp]:
        solution = self.solution
        is_common: NDArray[np.bool_] = np.any(solution.common_norms, axis=1)
        shown = np.flatnonzero(is_common | np.any(solution.specific_norms, axis=1))
        if not len(shown):
            raise ValueError("no feature has a slope in any task: fit with a weaker penalty")
        norms = np.stack([np.linalg.norm(t.coef, axis=0) for t in solution.tasks], axis=1)
        sizes = np.linalg.norm(norms, axis=1)[shown]
        rows = shown[np.argsort(-sizes, kind="stable")][: self.max_features]
        self._n_left_out = len(shown) - len(rows)
        task = np.where(is_common, -1, norms.argmax(axis=1))
        rows = rows[np.lexsort((rows, task[rows]))]
        self._is_common = is_common[rows]
        return rows

    # -- labels --------------------------------------------------------------------------------

    def _label(self, ax: Axes) -> None:
        """Tasks above, features at the left, what they are at the right, cells below."""
        tasks, labels = self._names
        names = [labels[j] for j in self.features_]
        cells = np.array([len(task.coef) for task in self.solution.tasks])
        ends = np.cumsum(cells)
        for end in ends[:-1]:
            ax.axvline(end - 0.5, color=base.DARK, lw=1.2)
        ax.xaxis.tick_top()
        base.write_names(ax, ends - cells / 2 - 0.5, tasks, cells)
        step = max(
            1,
            int(np.ceil(base.LINE_HEIGHT * len(names) / max(base.height_in_points(ax), 1.0) * 0.8)),
        )
        ax.set_yticks(np.arange(len(names))[::step], names[::step])
        ax.tick_params(axis="y", labelsize=base.FONT, length=0)
        _bracket_kinds(ax, self._is_common)
        ax.xaxis.set_label_position("bottom")
        ax.set_xlabel(self._x_label(cells), fontsize=base.FONT)

    def _x_label(self, cells: NDArray) -> str:
        same = len(set(cells.tolist())) == 1
        label = f"{cells[0]} cells of each task" if same else "cells of each task"
        n_left = self._n_left_out
        return label + (f" ({n_left} features with smaller slopes not shown)" if n_left else "")

    def _add_colors(self, ax: Axes) -> None:
        """A bar of colors, right of the words for the kinds of features."""
        left = 1.0 + 62.0 / base.width_in_points(ax)
        place = ax.inset_axes((left, 0.0, 0.018, 1.0))
        self.colorbar_ = self.figure_.colorbar(self.image_, cax=place)
        self.colorbar_.set_label("slope (standardized)", fontsize=base.FONT)
        self.colorbar_.ax.tick_params(labelsize=base.FONT)
        self.colorbar_.outline.set_linewidth(0.5)


def _draw_slopes(ax: Axes, slopes: NDArray) -> AxesImage:
    from matplotlib.colors import LinearSegmentedColormap

    limit = np.abs(slopes).max()
    colors = LinearSegmentedColormap.from_list("slopes", _COLORS, N=257)  # odd: a middle for zero
    image = ax.imshow(
        slopes, cmap=colors, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    for spine in ax.spines.values():
        spine.set(color=base.DARK, lw=0.8)
    if len(slopes) <= _MAX_LINES:
        for between in np.arange(len(slopes) - 1) + 0.5:
            ax.axhline(between, color="#e3e5e8", lw=0.5)
    return image


def _bracket_kinds(ax: Axes, is_common: NDArray[np.bool_]) -> None:
    """A line between common features and those of single tasks, with words beside them."""
    for word, chosen in (("common", is_common), ("task", ~is_common)):
        if not chosen.any():
            continue
        first, last = np.flatnonzero(chosen)[[0, -1]]
        if first:
            ax.axhline(first - 0.5, color=base.DARK, lw=1.2)
        where = ax.get_yaxis_transform()
        ax.plot(
            [1.012, 1.012], [first - 0.35, last + 0.35], color=base.DARK, lw=1.2, transform=where,
            clip_on=False,
        )  # fmt: skip
        ax.annotate(
            word, (1.012, (first + last) / 2), (6, 0), xycoords=where,
            textcoords="offset points", va="center", fontsize=base.FONT, color=base.DARK,
            annotation_clip=False,
        )  # fmt: skip


def _check_estimator(estimator: object) -> None:
    names = "MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier"
    base.check_fitted(estimator, BaseMultiTaskJOPLEn, names)
