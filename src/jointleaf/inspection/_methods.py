"""The methods of estimators that explain and summarise; explaining itself is loaded when needed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from jointleaf._model.cell_model import CellModel
    from jointleaf.inspection._explanation import Explanation
    from jointleaf.inspection._local import LocalModel


class Summarized:
    """A fitted estimator with a summary, which notebooks show under scikit-learn's diagram."""

    def summary(self) -> str:
        """Return in a few lines what was fitted: rows, cells, penalty, losses, convergence."""
        check_is_fitted(self)
        lines = summary_lines(self)
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)

    def _shift(self, X: Any, offset: Any, exposure: Any) -> NDArray[np.float64] | None:
        """Return offsets (n,) of rows on the scale of raw predictions, where `predict` has any."""
        raise ValueError(
            f"offset and exposure are for JOPLEnRegressor, and not for {type(self).__name__}, "
            "whose predict does not take them: leave them out"
        )

    @property
    def _repr_html_(self) -> Callable[[], str]:
        # A property, as in scikit-learn: with another display there must be no such attribute.
        if get_config()["display"] != "diagram":
            raise AttributeError("_repr_html_ is there with sklearn.set_config(display='diagram')")
        return self._as_html

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = self._as_html()
        return bundle

    def _as_html(self) -> str:
        diagram = estimator_html_repr(self)
        try:
            check_is_fitted(self)
        except NotFittedError:
            return diagram
        return diagram + _html_table(summary_lines(self))


class Explainable(Summarized):
    """A fitted estimator whose predictions can be explained."""

    cell_model_: CellModel

    def explain(self, X: Any, *, coverage: float | None = None) -> Explanation:
        """Return what every column adds to the predictions of rows X (n, d).

        The baseline, which is the mean prediction over the training rows (4,000 of them where
        there are more), and the values of all columns add up to the prediction exactly: to
        ``predict`` in regression and to ``decision_function`` for classes. Numbers have intervals
        beside them, which hold the target with a probability of `coverage` (0.9), where the fit
        held out rows. See `jointleaf.inspection.explain`.
        """
        from jointleaf.inspection import explain

        return explain(self, X, coverage=coverage)

    def local_model(self, X: Any) -> LocalModel:
        """Return the linear model in force around the one row of X (1, d).

        See `jointleaf.inspection.local_model`.
        """
        from jointleaf.inspection import local_model

        return local_model(self, X)


class ExplainableTasks(Summarized):
    """The same for an estimator of several tasks."""

    task_names_: list

    @abstractmethod
    def _task_number(self, name: Any) -> int:
        """Return the number of a task."""

    @abstractmethod
    def _read_task_rows(self, X: Any, task: Any = None) -> tuple[NDArray, Any]:
        """Return encoded rows (n, d) without the column of tasks, and the tasks asked for."""

    @abstractmethod
    def _raw_of_task(self, rows: NDArray, t: int) -> NDArray:
        """Return raw predictions (n,) or (n, K) of task number t for encoded rows (n, d)."""

    def explain(self, X: Any, task: Any = None, *, coverage: float | None = None) -> Explanation:
        """Return what every column adds to the predictions of rows X (n, d).

        The baseline of a task, the mean prediction over its training rows, and the values of all
        columns add up to its raw prediction: to ``predict`` in regression (with a log link to its
        logarithm), to log-odds for two classes. `task` is as in ``predict``; without it all tasks
        are explained, as outputs. `coverage` (0.9) is that of intervals, where there are any. See
        `jointleaf.inspection.explain`.
        """
        from jointleaf.inspection import explain

        return explain(self, X, task=task, coverage=coverage)

    def local_model(self, X: Any, task: Any = None) -> LocalModel:
        """Return the linear model of a task in force around the one row of X (1, d).

        See `jointleaf.inspection.local_model`.
        """
        from jointleaf.inspection import local_model

        return local_model(self, X, task=task)


def read_shift(model: Summarized, X: Any, offset: Any, exposure: Any) -> NDArray[np.float64] | None:
    """Return offsets (n,) of rows on the scale of raw predictions; None where none are given."""
    return None if offset is None and exposure is None else model._shift(X, offset, exposure)


# -- what explanations ask of estimators of several tasks ------------------------------------------


def task_number(model: ExplainableTasks, name: Any) -> int:
    """Return the number of a task."""
    return model._task_number(name)


def task_numbers(model: ExplainableTasks, labels: NDArray, n_rows: int) -> NDArray[np.intp]:
    """Return the number of the task of every row."""
    if labels.shape != (n_rows,):
        raise ValueError(
            f"task has shape {labels.shape}: give one task, or one for each of the {n_rows} rows"
        )
    return np.array([model._task_number(label) for label in labels.tolist()], np.intp)


def read_task_rows(model: ExplainableTasks, X: Any, task: Any = None) -> tuple[NDArray, Any]:
    """Return encoded rows (n, d) without the column of tasks, and the tasks asked for."""
    return model._read_task_rows(X, task)


def raw_of_task(model: ExplainableTasks, rows: NDArray, t: int) -> NDArray:
    """Return raw predictions (n,) or (n, K) of task number t for encoded rows (n, d)."""
    return model._raw_of_task(rows, t)


# -- summaries -------------------------------------------------------------------------------------


def summary_lines(model: Any) -> list[tuple[str, str]]:
    """Return names and texts of a fitted estimator's summary."""
    if hasattr(model, "cell_models_"):
        return _task_lines(model)
    if hasattr(model, "cell_model_"):
        lines = [*_cell_lines(model.cell_model_, len(model.columns_)), *fit_lines(model)]
        if hasattr(model, "pruning_"):
            lines.append(("pruned", f"from {model.pruning_.n_cells_before:,} cells"))
        return lines
    return _bouts_lines(model)


def fit_lines(model: Any) -> list[tuple[str, str]]:
    """Return names and texts of what was fitted, and of what it was calibrated on."""
    lines = model.report_.lines()
    if model.calibration_ is not None:
        is_regression = not is_classifier(model)
        has_log_link = is_regression and model.loss_.has_log_link
        line = model.calibration_.line(is_regression=is_regression, has_log_link=has_log_link)
        lines.append(line)
    if hasattr(model, "quantiles_"):
        lines.append(model.quantiles_.line())
    if hasattr(model, "source_fit_"):
        lines.append(model.source_fit_.line())
    return lines


def _cell_lines(model: CellModel, n_columns: int) -> list[tuple[str, str]]:
    layout = model.layout
    n_linear = layout.n_linear_cells
    kind = f"linear, {layout.n_features} linear features each" if n_linear else "constant"
    if layout.is_mixed:
        kind = (
            f"{n_linear:,} linear, {layout.n_features} linear features each, "
            f"{layout.n_cells - n_linear:,} constant"
        )
    rows = "" if model.means is None else f"{model.means.n_rows:,} different, "
    return [
        ("rows", f"{rows}{n_columns} columns"),
        ("partitions", f"{layout.n_partitions:,} with {layout.n_cells:,} cells"),
        ("cells", kind),
    ]


def _task_lines(model: Any) -> list[tuple[str, str]]:
    from jointleaf._fit.report import describe_solution, validation_text

    names = [str(name) for name in model.task_names_]
    first_names = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    cells = sum(task.layout.n_cells for task in model.cell_models_)
    partitions = sum(task.layout.n_partitions for task in model.cell_models_)
    rows = sum(task.means.n_rows for task in model.cell_models_)
    lines = [
        ("tasks", f"{len(names)}: {first_names}"),
        ("rows", f"{rows:,} different over all tasks, {len(model.columns_)} columns"),
        ("partitions", f"{partitions:,} with {cells:,} cells"),
        ("features", f"{len(model.selected_features_)} with slopes"),
    ]
    loss = model.report_[0].loss
    if not is_classifier(model) and loss != "squared_error":
        lines.append(("loss", loss))
    if not isinstance(model.solution_, list):  # one fit of all tasks
        lines.append(("penalty", repr(model.penalty_)))
        if model.cv_results_ is not None:
            text = validation_text(model.cv_results_, model.report_[0].loss)
            lines.append(("validation loss", text))
        lines.append(("solver", describe_solution(model.solution_)))
        return lines
    solved = [solution for solution in model.solution_ if solution is not None]
    n_converged = sum(solution.converged for solution in solved)
    text = f"{n_converged} of {len(solved)} converged" if solved else "boosted"
    lines.append(("solver", f"every task on its own, {text}"))
    return lines


def _bouts_lines(model: Any) -> list[tuple[str, str]]:
    counts = [f"{name}: {len(features)}" for name, features in model.task_features_.items()]
    trees = sum(flat.n_trees for flat in model.trees_.values())
    return [
        ("tasks", str(len(model.task_names_))),
        ("trees", f"{trees:,}, of which {model.n_universal_trees_} of every task are universal"),
        ("universal features", str(len(model.universal_features_))),
        ("features of one task", ", ".join(counts)),
    ]


def _html_table(lines: list[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left;padding:1px 10px 1px 0;font-weight:600">{escape(name)}'
        f'</th><td style="text-align:left;padding:1px 0">{escape(text)}</td></tr>'
        for name, text in lines
    )
    style = "font-family:monospace;font-size:small;border-collapse:collapse;margin:6px 0"
    return f'<table class="jointleaf-summary" style="{style}">{rows}</table>'
