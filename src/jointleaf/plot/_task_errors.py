"""The picture of the errors of several tasks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from jointleaf.plot._drawing import DARK, FONT, GREY, legend_beside, need_matplotlib, new_axes
from jointleaf.plot._tasks import check_tasks, chosen_from, method_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["TaskErrorDisplay"]

_GROUP = 0.5  # height over which the dots of a task are spread
#: label of the errors, and the error of the best constant
_REGRESSION = ("mean squared error / variance of the test targets (lower is better)", 1.0)
_CLASSES = ("share of wrong classes (lower is better)", None)


class TaskErrorDisplay:
    """Errors of several methods, a row per task, so that methods are compared task by task.

    Lower is better; the mean over tasks is in the legend. Made by `from_errors` or
    `from_estimators`.

    Parameters
    ----------
    errors : dict from method to dict from task to float
        Comparable over tasks: normalised ones.
    error_name : str
        Label of the errors.
    reference : float, optional
        An error to mark with a line, such as 1 where predicting the mean gives 1. It is left
        out where all errors are far below it.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    dots_ : dict from method to Line2D
        Its x data (T,) are the errors, in the order of the tasks, the first task on top.

    Examples
    --------
    >>> from jointleaf import TaskErrorDisplay
    >>> errors = {"JOPLEn": {"a": 0.2, "b": 0.3}, "BoUTS": {"a": 0.25, "b": 0.31}}
    >>> display = TaskErrorDisplay.from_errors(errors)
    >>> display.dots_["JOPLEn"].get_xdata().tolist()
    [0.2, 0.3]
    """

    def __init__(
        self,
        errors: Mapping[str, Mapping[Hashable, float]],
        *,
        error_name: str = "normalised error (lower is better)",
        reference: float | None = None,
    ) -> None:
        self.errors = errors
        self.error_name = error_name
        self.reference = reference

    @classmethod
    def from_errors(
        cls,
        errors: Mapping[str, Mapping[Hashable, float]],
        *,
        error_name: str = "normalised error (lower is better)",
        reference: float | None = None,
        ax: Axes | None = None,
    ) -> TaskErrorDisplay:
        """Draw given errors; parameters as of the class and of `plot`."""
        return cls(errors, error_name=error_name, reference=reference).plot(ax=ax)

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

        with the mean of the *test* targets; for classifiers the share of wrong classes.

        Parameters
        ----------
        estimators : dict from name to estimator, or to dict from task to estimator
            Fitted, with ``predict(X, task=name)``; or one estimator per task, with
            ``predict(X)``.
        tasks : dict from name to pair (X, y), or list of pairs
            Test rows (n_t, d) and targets (n_t,) of every task; of a list the names are 0, 1, ...
        ax : Axes, optional
            See `plot`.
        """
        need_matplotlib(cls.__name__)  # before the work
        chosen, rows = chosen_from("estimators", estimators), _read_tasks(tasks)
        kinds = {_is_classifier(model) for model in chosen.values()}
        if len(kinds) > 1:
            raise ValueError(
                "estimators has classifiers and regressors: their errors cannot be compared, draw "
                "them apart"
            )
        is_class = kinds.pop()
        errors: dict[str, dict[Hashable, float]] = {}
        for name, model in chosen.items():
            predict = _predictor(name, model, rows)
            errors[name] = {
                task: _error(task, np.asarray(y), predict(X, task), is_class)
                for task, (X, y) in rows.items()
            }
        label, reference = _CLASSES if is_class else _REGRESSION
        return cls(errors, error_name=label, reference=reference).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> TaskErrorDisplay:
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
        tasks, values = _checked(self.errors)
        height = min(1.0 + 0.5 * len(tasks), 12.0)
        self.ax_ = new_axes(type(self).__name__, max(2.2, height)) if ax is None else ax
        self.figure_ = self.ax_.figure
        self.dots_: dict[str, Line2D] = {}
        places = np.arange(len(tasks), dtype=float)
        shifts = _GROUP * ((np.arange(len(values)) + 0.5) / len(values) - 0.5)
        for k, (name, own) in enumerate(values.items()):
            label = f"{name} (mean {own.mean():.3g})" if len(own) > 1 else name
            (self.dots_[name],) = self.ax_.plot(
                own, places + shifts[k], ls="none", ms=8, mec="white", mew=0.6, zorder=3,
                label=label, **method_style(k),
            )  # fmt: skip
        self._finish(tasks, max(own.max() for own in values.values()))
        return self

    def _finish(self, tasks: list[Hashable], largest: float) -> None:
        ax = self.ax_
        ax.spines[["top", "right", "left"]].set_visible(False)
        for between in np.arange(len(tasks) - 1) + 0.5:
            ax.axhline(between, color=GREY, lw=0.8, zorder=1)
        ax.set_yticks(np.arange(len(tasks)), [str(task) for task in tasks])
        ax.set_ylim(len(tasks) - 0.5, -0.5)  # the first task on top
        right = 1.06 * largest or 1.0
        if self.reference is not None and self.reference < 1.6 * largest:
            label = f"reference: {self.reference:g}"
            ax.axvline(self.reference, color=DARK, lw=1, ls="--", zorder=1, label=label)
            right = max(right, 1.06 * self.reference)
        ax.set_xlim(0, right)
        ax.tick_params(labelsize=FONT)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=GREY, lw=0.5, alpha=0.6)
        ax.set_axisbelow(True)
        ax.set_xlabel(self.error_name, fontsize=FONT)
        legend_beside(ax)


# -- errors of estimators -------------------------------------------------------------------------


def _read_tasks(tasks: Any) -> dict[Hashable, tuple[Any, Any]]:
    """Test rows by task name."""
    named = dict(tasks) if isinstance(tasks, Mapping) else dict(enumerate(tasks))
    if not named:
        raise ValueError("tasks has no test rows: give pairs (X, y), at least one")
    for task, pair in named.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"tasks[{task!r}] must be a pair (X, y) of test rows and targets")
    return named


def _is_classifier(model: Any) -> bool:
    models = model.values() if isinstance(model, Mapping) else [model]
    return any(hasattr(own, "fit") and is_classifier(own) for own in models)


def _predictor(name: str, model: Any, rows: Mapping[Hashable, Any]) -> Any:
    """A function of X and a task that predicts, after a check that all tasks are known."""
    each = isinstance(model, Mapping)
    for own in model.values() if each else [model]:
        if not hasattr(own, "predict"):
            raise TypeError(f"estimators[{name!r}]={own!r} has no predict")
        if hasattr(own, "fit"):
            check_is_fitted(own)
    known = list(model) if each else getattr(model, "task_names_", list(rows))
    for task in rows:
        if task not in known:
            raise ValueError(
                f"tasks has a task {task!r} that estimators[{name!r}] does not know: its tasks are "
                f"{known}"
            )
    if each:
        return lambda X, task: model[task].predict(X)
    return lambda X, task: model.predict(X, task=task)


def _error(task: Hashable, y: NDArray, predicted: Any, is_class: bool) -> float:
    """Share of wrong classes, or squared error over that of the mean of y."""
    found = np.asarray(predicted)
    if found.shape != y.shape or y.ndim != 1 or not len(y):
        raise ValueError(
            f"task {task!r}: predictions have shape {found.shape}, test targets {y.shape}: both "
            "must be (n,), with n > 0"
        )
    if is_class:
        return float(np.mean(found != y))
    whole = float(np.sum((y - y.mean()) ** 2))
    if whole == 0:
        raise ValueError(
            f"task {task!r}: all test targets are {y[0]}, errors have no scale: give more rows, or "
            "compute errors yourself and use from_errors"
        )
    return float(np.sum((y - found) ** 2)) / whole


def _checked(
    errors: Mapping[str, Mapping[Hashable, float]],
) -> tuple[list[Hashable], dict[str, NDArray[np.float64]]]:
    """Names of the tasks, and errors (T,) of every method."""
    for name, own in chosen_from("errors", errors).items():
        if not isinstance(own, Mapping):
            raise TypeError(f"errors[{name!r}]={own!r} must be a dict from task to error")
    tasks = check_tasks("errors", errors)
    for name, own in errors.items():
        for task in tasks:
            if not np.isfinite(own[task]) or own[task] < 0:
                raise ValueError(
                    f"errors[{name!r}][{task!r}]={own[task]!r} must be a finite number, at least 0"
                )
    return tasks, {name: np.array([own[t] for t in tasks], float) for name, own in errors.items()}
