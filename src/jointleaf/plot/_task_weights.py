"""The picture of the slopes of several tasks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.solvers import Solution
from jointleaf.multitask._estimators import BaseMultiTaskJOPLEn
from jointleaf.plot._base import (
    DARK,
    FONT,
    Display,
    check_fitted,
    feature_labels,
    height_in_points,
    title_panel,
    width_in_points,
    write_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

__all__ = ["TaskWeightsDisplay"]

Shown = Literal["selected", "all"]

#: from the most negative slope to the most positive; zero is pure white, unlike in "RdBu"
_COLORS = ("#0b3c6f", "#2f77b4", "#9cc6e3", "#ffffff", "#f3b49b", "#c1432e", "#6f1209")
_ROW, _AROUND = 0.25, 0.7  # inches for a feature, and for all that is above and below
_LOWEST, _HIGHEST = 2.2, 11.0
_LINE = 1.35 * FONT  # points from one name to the next
_MAX_LINES = 60  # between features; more would hide the slopes
_KINDS = ("common", "task", "none")


@dataclass(eq=False, repr=False)
class TaskWeightsDisplay(Display):
    r"""Slopes of all tasks: features are rows, cells are columns, grouped by task.

    Blue is negative, red positive, white zero; the range of colors is symmetric. Features
    that all tasks share come first, then those of single tasks, by the task in which their slopes
    are largest: what is specific to a task is seen as blocks along the diagonal. Slopes are those
    of standardized features and targets, W_t = C_t + T_t in the notation of `DirtyLasso`. The last
    cell of a task is its root cell, where there is one. Made by `from_estimator` or
    `from_solution`.

    Parameters
    ----------
    solution : Solution
        Slopes (L, d) of all tasks, and their split into common and task-specific ones.
    task_names : sequence of T names, optional
        By default 0, 1, ...
    feature_names : sequence of d names, optional
        By default x0, x1, ...
    features : {"selected", "all"}
        Only features with a slope in some task, or all.
    max_features : int or None
        Most features to draw: those with the largest slopes. None: no limit.
    split : bool
        Draw common slopes C_t and slopes of single tasks T_t in two panels instead of their sum.
    limit : float, optional
        The slope with the darkest color; by default the largest of those drawn.

    Attributes
    ----------
    ax_ : Axes
        The panel, or the upper one of two.
    axes_ : list of Axes
        All panels, of which there are two with `split`, unless one of the parts is zero.
    figure_ : Figure
    images_ : list of AxesImage
        Of every panel; the array has the shape (rows, C_1 + ... + C_T).
    features_ : list of arrays of int
        Of every panel the features that are drawn, from top to bottom.
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
    [array([0, 1, 2, 3])]
    """

    solution: Solution
    task_names: Sequence[Hashable] | None = None
    feature_names: Sequence[Any] | None = None
    _: KW_ONLY
    features: Shown = "selected"
    max_features: int | None = 40
    split: bool = False
    limit: float | None = None

    @classmethod
    def from_solution(
        cls, solution: Solution, *names: Any, ax: Axes | None = None, **options: Any
    ) -> TaskWeightsDisplay:
        """Draw what `jointleaf.fit_tasks` returned; names and options as of the class."""
        return cls(solution, *names, **options).plot(ax=ax)

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
        ax : Axes, optional
            See `plot`.
        **options
            Of the class: features, max_features, split, limit.
        """
        check_fitted(
            estimator, BaseMultiTaskJOPLEn, "MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier"
        )
        if not isinstance(estimator.solution_, Solution):
            raise ValueError(
                f"penalty={estimator.penalty!r} fits every task alone, its slopes are not "
                "comparable over tasks: fit with a Penalty such as DirtyLasso()"
            )
        names = list(estimator.linear_feature_names_)
        return cls(estimator.solution_, estimator.task_names_, names, **options).plot(ax=ax)

    def _height(self) -> float:
        self._names = self._check()
        self._panels = self._make_panels()
        self.features_ = [rows for _, _, rows in self._panels]
        n_rows = sum(map(len, self.features_))
        return min(max(_AROUND * len(self._panels) + _ROW * n_rows, _LOWEST), _HIGHEST)

    def _draw(self, ax: Axes) -> None:
        tasks, names = self._names
        panels = self._panels
        self.axes_ = _stack(ax, [len(rows) for rows in self.features_])
        self.ax_ = self.axes_[0]
        limit = self.limit or max(np.abs(slopes[rows]).max() for _, slopes, rows in panels) or 1.0
        self.images_ = []
        for panel, (title, slopes, rows) in zip(self.axes_, panels, strict=True):
            self.images_.append(_draw_slopes(panel, slopes[rows], limit))
            self._label(panel, title, tasks, [names[j] for j in rows], rows)
        self._add_colors(ax, limit)

    # -- what is drawn -------------------------------------------------------------------------

    def _check(self) -> tuple[list[Hashable], list[str]]:
        """Return the names of tasks and features."""
        if not isinstance(self.solution, Solution):
            raise TypeError(
                f"solution={self.solution!r} must be a Solution: what fit_tasks returns, or "
                "solution_ of an estimator that was fitted with a Penalty"
            )
        n_tasks, d = len(self.solution.tasks), self.solution.coef.shape[1]
        if self.features not in get_args(Shown):
            raise ValueError(f"features={self.features!r} is not known: use 'selected' or 'all'")
        if self.max_features is not None and self.max_features < 1:
            raise ValueError(f"max_features={self.max_features!r} must be at least 1, or None")
        if self.limit is not None and not self.limit > 0:
            raise ValueError(f"limit={self.limit!r} must be a positive slope, or None")
        if d == 0:
            raise ValueError("constant cells have no slopes to draw: fit with cells='linear'")
        tasks = list(self.task_names if self.task_names is not None else range(n_tasks))
        if len(tasks) != n_tasks:
            raise ValueError(
                f"task_names has {len(tasks)} names for {n_tasks} tasks: use one for each"
            )
        return tasks, feature_labels(self.feature_names, d)

    def _make_panels(self) -> list[tuple[str, NDArray, NDArray[np.intp]]]:
        """Return title, slopes (d, C) and features of every panel."""
        rows = self._rows()
        panels = []
        if self.split:
            parts = {
                "common slopes": self.solution.common,
                "slopes of single tasks": self.solution.specific,
            }
            for title, part in parts.items():
                drawn = rows[part.T[rows].any(axis=1)]
                panels += [(title, part.T, drawn)] if len(drawn) else []
        return panels or [("", self.solution.coef.T, rows)]

    def _rows(self) -> NDArray[np.intp]:
        """Return the features to draw, from top to bottom."""
        norms = np.stack([np.linalg.norm(t.coef, axis=0) for t in self.solution.tasks], axis=1)
        sizes, kind = np.linalg.norm(norms, axis=1), self._kinds()
        shown = self._candidates()
        shown = shown[np.argsort(-sizes[shown], kind="stable")][: self.max_features]
        task = np.where(kind == 1, norms.argmax(axis=1), 0)
        return shown[np.lexsort((shown, task[shown], kind[shown]))]

    def _candidates(self) -> NDArray[np.intp]:
        """Return the features that are drawn unless they are too many."""
        kind = self._kinds()
        if self.features == "all":
            return np.arange(len(kind))
        if not np.any(kind < 2):
            raise ValueError(
                "no feature has a slope in any task: fit with a weaker penalty, or draw zeros "
                "with features='all'"
            )
        return np.flatnonzero(kind < 2)

    def _kinds(self) -> NDArray[np.intp]:
        """Return 0 for features that are common, 1 for those of single tasks, 2 for all others."""
        is_common = self.solution.common_norms.any(axis=1)
        is_specific = self.solution.specific_norms.any(axis=1)
        return np.where(is_common, 0, np.where(is_specific, 1, 2))

    # -- labels --------------------------------------------------------------------------------

    def _label(
        self, ax: Axes, title: str, tasks: list[Hashable], names: list[str], rows: NDArray
    ) -> None:
        """Tasks above, features at the left, what they are at the right, cells below."""
        cells = np.array([len(task.coef) for task in self.solution.tasks])
        ends = np.cumsum(cells)
        for end in ends[:-1]:
            ax.axvline(end - 0.5, color=DARK, lw=1.2)
        ax.xaxis.tick_top()
        if ax is self.ax_:
            write_names(ax, ends - cells / 2 - 0.5, tasks, cells)
        else:
            ax.set_xticks([])
        step = max(1, int(np.ceil(_LINE * len(names) / max(height_in_points(ax), 1.0) * 0.8)))
        ax.set_yticks(np.arange(len(names))[::step], names[::step])
        ax.tick_params(axis="y", labelsize=FONT, length=0)
        if title:
            title_panel(ax, title)
        else:
            _bracket_kinds(ax, self._kinds()[rows])
        if ax is self.axes_[-1]:
            ax.xaxis.set_label_position("bottom")
            ax.set_xlabel(self._x_label(cells), fontsize=FONT)

    def _x_label(self, cells: NDArray) -> str:
        same = len(set(cells.tolist())) == 1
        label = f"{cells[0]} cells of each task" if same else "cells of each task"
        n_left = len(self._candidates()) - len(self._rows())
        return label + (f" ({n_left} features with smaller slopes not shown)" if n_left else "")

    def _add_colors(self, frame: Axes, limit: float) -> None:
        """A bar of colors, right of the words for the kinds of features."""
        room = 16.0 if len(self.axes_) > 1 else 62.0  # in points
        left = 1.0 + room / width_in_points(frame)
        place = frame.inset_axes((left, 0.0, 0.018, 1.0))
        largest = max(np.abs(np.asarray(image.get_array())).max() for image in self.images_)
        extend = "both" if largest > limit else "neither"
        self.colorbar_ = self.figure_.colorbar(self.images_[0], cax=place, extend=extend)
        self.colorbar_.set_label("slope (standardized)", fontsize=FONT)
        self.colorbar_.ax.tick_params(labelsize=FONT)
        self.colorbar_.outline.set_linewidth(0.5)


def _draw_slopes(ax: Axes, slopes: NDArray, limit: float) -> AxesImage:
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list("slopes", _COLORS, N=257)  # odd: a middle for zero
    image = ax.imshow(
        slopes, cmap=colors, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest"
    )
    for spine in ax.spines.values():
        spine.set(color=DARK, lw=0.8)
    if len(slopes) <= _MAX_LINES:
        for between in np.arange(len(slopes) - 1) + 0.5:
            ax.axhline(between, color="#e3e5e8", lw=0.5)
    return image


def _bracket_kinds(ax: Axes, kinds: NDArray) -> None:
    """Lines between common features, those of single tasks and others, with words beside them."""
    for kind in np.unique(kinds):
        first, last = np.flatnonzero(kinds == kind)[[0, -1]]
        if first:
            ax.axhline(first - 0.5, color=DARK, lw=1.2)
        where = ax.get_yaxis_transform()
        ax.plot(
            [1.012, 1.012], [first - 0.35, last + 0.35], color=DARK, lw=1.2, transform=where,
            clip_on=False,
        )  # fmt: skip
        ax.annotate(
            _KINDS[kind], (1.012, (first + last) / 2), (6, 0), xycoords=where,
            textcoords="offset points", va="center", fontsize=FONT, color=DARK,
            annotation_clip=False,
        )  # fmt: skip


def _stack(frame: Axes, n_rows: list[int]) -> list[Axes]:
    """Panels one above the other in the place of axes, rows of all equally high."""
    if len(n_rows) == 1:
        return [frame]
    frame.set_axis_off()
    gap = 0.1
    unit = (1.0 - gap * (len(n_rows) - 1)) / sum(n_rows)
    top, panels = 1.0, []
    for n in n_rows:
        panels.append(frame.inset_axes((0.0, top - n * unit, 1.0, n * unit)))
        top -= n * unit + gap
    return panels
