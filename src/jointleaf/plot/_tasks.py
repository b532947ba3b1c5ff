"""The pictures that compare methods over several tasks: errors, and numbers of features."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from jointleaf.plot import _base as base

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.lines import Line2D

Counts = Mapping[str, tuple[int, Mapping[Hashable, int]]]
Errors = Mapping[str, Mapping[Hashable, float]]

#: Muted colors in the order of Okabe and Ito's: told apart without telling red from green.
METHOD_COLORS = ("#2f6ea5", "#e09f3e", "#1f7a5c", "#c77ba3", "#7fb8e0", "#a8441f")
MARKERS = ("o", "s", "D", "^", "v", "P")

_BARS = 0.8  # width of all bars of a task
_DOTS = 0.5  # height over which the dots of a task are spread
_NEUTRAL = "#7a818c"
_PALE = 0.65  # how far the upper parts of bars are from their color towards white
#: label of the errors, and the error of the best constant
_REGRESSION = ("mean squared error / variance of the test targets (lower is better)", 1.0)
_CLASSES = ("fraction of wrong classes (lower is better)", None)


@dataclass(eq=False, repr=False)
class SelectionDisplay(base.Display):
    """Numbers of selected features: a bar per task and method, common ones below, others above.

    The height of a bar is the number of all features of the task, common + task-specific.
    `from_estimators` counts the features of fitted estimators.

    Parameters
    ----------
    counts : dict from method to (n_common, dict from task to n_specific)
        For every method the number of features that all tasks share, and of those that
        a task has besides.

    Attributes
    ----------
    common_bars_ : dict from method to BarContainer (T bars)
        From 0 to n_common.
    specific_bars_ : dict from method to BarContainer (T bars)
        From n_common to n_common + n_specific.

    Examples
    --------
    >>> from jointleaf import SelectionDisplay
    >>> counts = {"JOPLEn": (2, {"a": 1, "b": 0}), "BoUTS": (3, {"a": 1, "b": 4})}
    >>> display = SelectionDisplay(counts).plot()
    >>> [int(bar.get_y() + bar.get_height()) for bar in display.specific_bars_["BoUTS"]]
    [4, 7]
    """

    counts: Counts

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
        """
        methods = check_methods("estimators", estimators)
        return cls({name: _count(name, model) for name, model in methods.items()}).plot(ax=ax)

    def _height(self) -> float:
        counts = _checked_counts(self.counts)
        by_method = {name: by_task for name, (_, by_task) in counts.items()}
        self._tasks = check_tasks("counts", by_method)
        return 3.5

    def _draw(self, ax: Axes) -> None:
        self.common_bars_: dict[str, BarContainer] = {}
        self.specific_bars_: dict[str, BarContainer] = {}
        for k, (name, (n_common, by_task)) in enumerate(self.counts.items()):
            n_specific = np.array([by_task[task] for task in self._tasks])
            self._draw_bars(k, name, n_common, n_specific)
        self._finish(self._tasks)
        self._write_totals(self._tasks)

    def _draw_bars(self, k: int, name: str, n_common: int, specific: NDArray) -> None:
        from matplotlib.colors import to_rgb

        width = _BARS / len(self.counts)
        x = np.arange(len(specific)) - _BARS / 2 + (k + 0.5) * width
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
        base.style_axes(ax, "selected features")
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        tops = [bar.get_y() + bar.get_height() for bars in self.specific_bars_.values()
                for bar in bars]  # fmt: skip
        ax.set_ylim(0, 1.12 * max(*tops, 1.0))
        ax.set_xlim(-0.55, len(tasks) - 0.45)
        base.write_names(ax, np.arange(len(tasks)), tasks, 1.0)
        kinds = [
            Patch(alpha=0.0, label=""),  # a blank line
            Patch(facecolor="#e3e5e8", edgecolor=_NEUTRAL, label="task-specific"),
            Patch(facecolor=_NEUTRAL, edgecolor=_NEUTRAL, label="common"),
        ]
        base.legend_beside(ax, handles=[*self.common_bars_.values(), *kinds], handlelength=1.2)

    def _write_totals(self, tasks: list[Hashable]) -> None:
        """Write the height of every bar above it, where there is room for all."""
        room = base.width_in_points(self.ax_) / len(tasks) * _BARS / len(self.counts)
        totals = {
            name: [f"{part.get_y() + part.get_height():.0f}" for part in bars]
            for name, bars in self.specific_bars_.items()
        }
        if max(len(text) for texts in totals.values() for text in texts) * 0.8 * base.FONT > room:
            return
        for name, texts in totals.items():
            bars = self.specific_bars_[name]
            self.ax_.bar_label(bars, texts, padding=2, fontsize=base.FONT, color=base.DARK)


def _count(name: str, model: Any) -> tuple[int, dict[Hashable, int]]:
    """Return the numbers of common and of task-specific features of a fitted estimator."""
    if not hasattr(model, "fit"):
        raise TypeError(f"estimators[{name!r}]={model!r} is not an estimator")
    check_is_fitted(model)
    for attribute in ("common_features_", "universal_features_"):
        if hasattr(model, attribute) and hasattr(model, "task_features_"):
            counts = {task: len(features) for task, features in model.task_features_.items()}
            return len(getattr(model, attribute)), counts
    raise TypeError(
        f"estimators[{name!r}]={model!r} does not name what it selected: it must have "
        "task_features_ and common_features_ or universal_features_: draw SelectionDisplay(counts) "
        "for others"
    )


def _checked_counts(counts: Counts) -> Counts:
    for name, pair in check_methods("counts", counts).items():
        try:
            n_common, by_task = pair
            numbers = [n_common, *by_task.values()]
        except (TypeError, ValueError, AttributeError):
            raise TypeError(
                f"counts[{name!r}]={pair!r} must be a pair (n_common, dict from task to n_specific)"
            ) from None
        for number in numbers:
            if not isinstance(number, int | float | np.number) or not number >= 0:
                raise ValueError(f"counts[{name!r}] holds {number!r}: use numbers of features")
    return counts


@dataclass(eq=False, repr=False)
class TaskErrorDisplay(base.Display):
    """Errors of several methods, a row per task, so that methods are compared task by task.

    Lower is better; the mean over tasks is in the legend. `from_estimators`
    computes them.

    Parameters
    ----------
    errors : dict from method to dict from task to float
        Comparable over tasks: normalized ones.
    error_name : str
        Label of the errors.
    reference : float, optional
        An error to mark with a line, such as 1 for that of predicting the mean. It is left out
        where all errors are far below it.

    Attributes
    ----------
    dots_ : dict from method to Line2D
        Its x data (T,) are the errors, in the order of the tasks, the first task on top.

    Examples
    --------
    >>> from jointleaf import TaskErrorDisplay
    >>> errors = {"JOPLEn": {"a": 0.2, "b": 0.3}, "BoUTS": {"a": 0.25, "b": 0.31}}
    >>> display = TaskErrorDisplay(errors).plot()
    >>> display.dots_["JOPLEn"].get_xdata().tolist()
    [0.2, 0.3]
    """

    errors: Errors
    _: KW_ONLY
    error_name: str = "normalized error (lower is better)"
    reference: float | None = None

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Any],
        tasks: Mapping[Hashable, tuple[Any, Any]] | Sequence[tuple[Any, Any]],
        *,
        ax: Axes | None = None,
    ) -> TaskErrorDisplay:
        r"""Draw the errors of fitted estimators on test rows.

        For regression the error of a task with test targets y and predictions f is

        .. math::

            \sum_i (y_i - f_i)^2 \Big/ \sum_i (y_i - \bar y)^2 = 1 - R^2

        with the mean of the *test* targets; for classifiers the fraction of wrong classes.

        Parameters
        ----------
        estimators : dict from name to estimator, or to dict from task to estimator
            Fitted, with ``predict(X, task=name)``; or one estimator per task, with
            ``predict(X)``.
        tasks : dict from name to pair (X, y), or list of pairs
            Test rows (n_t, d) and targets (n_t,) of every task; of a list the names are 0, 1, ...
        """
        base.need_matplotlib(cls.__name__)  # before the work
        methods, rows = check_methods("estimators", estimators), _read_tasks(tasks)
        kinds = {_is_classifier(model) for model in methods.values()}
        if len(kinds) > 1:
            raise ValueError(
                "estimators has classifiers and regressors: their errors cannot be compared, draw "
                "them apart"
            )
        is_class = kinds.pop()
        errors: dict[str, dict[Hashable, float]] = {}
        for name, model in methods.items():
            predict = _predictor(name, model, rows)
            errors[name] = {
                task: _error(task, np.asarray(y), predict(X, task), is_class)
                for task, (X, y) in rows.items()
            }
        label, reference = _CLASSES if is_class else _REGRESSION
        return cls(errors, error_name=label, reference=reference).plot(ax=ax)

    def _height(self) -> float:
        self._tasks = _checked_tasks(self.errors)
        return max(2.2, min(1.0 + 0.5 * len(self._tasks), 12.0))

    def _draw(self, ax: Axes) -> None:
        self.dots_: dict[str, Line2D] = {}
        places = np.arange(len(self._tasks), dtype=float)
        largest = 0.0
        for k, (name, by_task) in enumerate(self.errors.items()):
            errors = np.array([by_task[task] for task in self._tasks], float)
            shift = _DOTS * ((k + 0.5) / len(self.errors) - 0.5)
            (self.dots_[name],) = ax.plot(
                errors, places + shift, ls="none", ms=8, mec="white", mew=0.6, zorder=3,
                label=f"{name} (mean {errors.mean():.3g})" if len(errors) > 1 else name,
                **method_style(k),
            )  # fmt: skip
            largest = max(largest, errors.max())
        self._finish(ax, self._tasks, largest)

    def _finish(self, ax: Axes, tasks: list[Hashable], largest: float) -> None:
        base.column_axis(ax, [str(task) for task in tasks], self.error_name)
        ax.set_yticks(np.arange(len(tasks)), [str(task) for task in tasks])  # in full length
        ax.set_ylim(len(tasks) - 0.5, -0.5)  # the first task on top
        for between in np.arange(len(tasks) - 1) + 0.5:
            ax.axhline(between, color=base.GREY, lw=0.8, zorder=1)
        right = 1.06 * largest or 1.0
        if self.reference is not None and self.reference < 1.6 * largest:
            label = f"reference: {self.reference:g}"
            ax.axvline(self.reference, color=base.DARK, lw=1, ls="--", zorder=1, label=label)
            right = max(right, 1.06 * self.reference)
        ax.set_xlim(0, right)
        base.legend_beside(ax)


def _read_tasks(tasks: Any) -> dict[Hashable, tuple[Any, Any]]:
    named = dict(tasks) if isinstance(tasks, Mapping) else dict(enumerate(tasks))
    if not named:
        raise ValueError("tasks has no test rows: pass pairs (X, y), at least one")
    for task, pair in named.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"tasks[{task!r}] must be a pair (X, y) of test rows and targets")
    return named


def _is_classifier(model: Any) -> bool:
    models = model.values() if isinstance(model, Mapping) else [model]
    return any(hasattr(m, "fit") and is_classifier(m) for m in models)


def _predictor(name: str, model: Any, rows: Mapping[Hashable, Any]) -> Any:
    """Return a function of X and a task that predicts; raise for tasks that are not known."""
    has_one_per_task = isinstance(model, Mapping)
    for estimator in model.values() if has_one_per_task else [model]:
        if not hasattr(estimator, "predict"):
            raise TypeError(f"estimators[{name!r}]={estimator!r} has no predict")
        if hasattr(estimator, "fit"):
            check_is_fitted(estimator)
    task_names = list(model) if has_one_per_task else getattr(model, "task_names_", list(rows))
    for task in rows:
        if task not in task_names:
            raise ValueError(
                f"tasks has a task {task!r} that estimators[{name!r}] does not know: its tasks are "
                f"{task_names}"
            )
    if has_one_per_task:
        return lambda X, task: model[task].predict(X)
    return lambda X, task: model.predict(X, task=task)


def _error(task: Hashable, y: NDArray, predicted: Any, is_class: bool) -> float:
    """Return the fraction of wrong classes, or the squared error over that of the mean of y."""
    predictions = np.asarray(predicted)
    if predictions.shape != y.shape or y.ndim != 1 or not len(y):
        raise ValueError(
            f"task {task!r}: predictions have shape {predictions.shape}, test targets {y.shape}: "
            "both must be (n,), with n > 0"
        )
    if is_class:
        return float(np.mean(predictions != y))
    total = float(np.sum((y - y.mean()) ** 2))
    if total == 0:
        raise ValueError(
            f"task {task!r}: all test targets are {y[0]}, errors have no scale: use more rows, or "
            "compute errors yourself and draw TaskErrorDisplay(errors)"
        )
    return float(np.sum((y - predictions) ** 2)) / total


def _checked_tasks(errors: Errors) -> list[Hashable]:
    """Return the names of the tasks; raise for what are not errors."""
    for name, by_task in check_methods("errors", errors).items():
        if not isinstance(by_task, Mapping):
            raise TypeError(f"errors[{name!r}]={by_task!r} must be a dict from task to error")
    tasks = check_tasks("errors", errors)
    for name, by_task in errors.items():
        for task in tasks:
            if not np.isfinite(by_task[task]) or by_task[task] < 0:
                raise ValueError(
                    f"errors[{name!r}][{task!r}]={by_task[task]!r} must be a finite number, at "
                    "least 0"
                )
    return tasks


# -- methods -----------------------------------------------------------------------------------


def check_methods(name: str, methods: object) -> Mapping[str, Any]:
    """Return a dict of at least one method; raise for anything else."""
    if not isinstance(methods, Mapping):
        raise TypeError(f"{name}={methods!r} must be a dict with the methods' names as keys")
    if not methods:
        raise ValueError(f"{name}={{}} has no method to draw: pass at least one")
    return methods


def check_tasks(name: str, by_method: Mapping[str, Mapping[Hashable, Any]]) -> list[Hashable]:
    """Return the names of the tasks; raise where methods have different ones."""
    first, values = next(iter(by_method.items()))
    tasks = list(values)
    if not tasks:
        raise ValueError(f"{name}[{first!r}] has no task to draw: pass at least one")
    for method, by_task in by_method.items():
        if set(by_task) != set(tasks):
            odd = next(iter(set(by_task) ^ set(tasks)))
            lacking, having = (method, first) if odd in set(tasks) else (first, method)
            raise ValueError(
                f"{name}[{lacking!r}] has no task {odd!r}, but {name}[{having!r}] has: use the "
                "same tasks for all methods"
            )
    return tasks


def method_style(k: int) -> dict[str, Any]:
    """Return color and marker of the k-th method."""
    return {
        "color": METHOD_COLORS[k % len(METHOD_COLORS)],
        "marker": MARKERS[(k + k // len(METHOD_COLORS)) % len(MARKERS)],
    }
