"""What a fit found, in a few lines, for people and for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from jointleaf._fit.report import describe_solution, validation_text

if TYPE_CHECKING:
    from jointleaf._model.cell_model import CellModel

__all__ = ["html", "summary_lines", "summary_text"]


def summary_text(model: Any) -> str:
    """The lines below each other, their names in a column."""
    lines = summary_lines(model)
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def summary_lines(model: Any) -> list[tuple[str, str]]:
    """Names and texts of a fitted estimator's summary."""
    if hasattr(model, "cell_models_"):
        return _of_tasks(model)
    if hasattr(model, "cell_model_"):
        return [*_of_cells(model.cell_model_, len(model.columns_)), *_of_fit(model)]
    return _of_bouts(model)


def _of_cells(fitted: CellModel, n_columns: int) -> list[tuple[str, str]]:
    layout = fitted.layout
    n_linear = layout.n_linear_cells
    kind = f"linear, {layout.n_features} linear features each" if n_linear else "constant"
    if layout.is_mixed:
        kind = (
            f"{n_linear:,} linear, {layout.n_features} linear features each, "
            f"{layout.n_cells - n_linear:,} constant"
        )
    rows = "" if fitted.means is None else f"{fitted.means.n_rows:,} different, "
    return [
        ("rows", f"{rows}{n_columns} columns"),
        ("partitions", f"{layout.n_partitions:,} with {layout.n_cells:,} cells"),
        ("cells", kind),
    ]


def _of_fit(model: Any) -> list[tuple[str, str]]:
    lines = model.report_.lines()
    if hasattr(model, "pruning_"):
        lines.append(("pruned", f"from {model.pruning_.n_cells_before:,} cells"))
    return lines


def _of_tasks(model: Any) -> list[tuple[str, str]]:
    names = [str(name) for name in model.task_names_]
    shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    cells = sum(fitted.layout.n_cells for fitted in model.cell_models_)
    partitions = sum(fitted.layout.n_partitions for fitted in model.cell_models_)
    rows = sum(fitted.means.n_rows for fitted in model.cell_models_)
    lines = [
        ("tasks", f"{len(names)}: {shown}"),
        ("rows", f"{rows:,} different over all tasks, {len(model.columns_)} columns"),
        ("partitions", f"{partitions:,} with {cells:,} cells"),
        ("features", f"{len(model.selected_features_)} with slopes"),
    ]
    if not isinstance(model.solution_, list):  # one fit of all tasks
        lines.append(("penalty", repr(model.penalty_)))
        if model.cv_results_ is not None:
            lines.append(
                ("validation loss", validation_text(model.cv_results_, model._target_type))
            )
        lines.append(("solver", describe_solution(model.solution_)))
        return lines
    solved = [solution for solution in model.solution_ if solution is not None]
    text = "every task on its own, "
    text += (
        f"{sum(s.converged for s in solved)} of {len(solved)} converged" if solved else "boosted"
    )
    lines.append(("solver", text))
    return lines


def _of_bouts(model: Any) -> list[tuple[str, str]]:
    own = ", ".join(f"{name}: {len(found)}" for name, found in model.task_features_.items())
    trees = sum(flat.n_trees for flat in model.trees_.values())
    return [
        ("tasks", str(len(model.task_names_))),
        ("trees", f"{trees:,}, of which {model.n_universal_trees_} of every task are universal"),
        ("universal features", str(len(model.universal_features_))),
        ("features of one task", own),
    ]


def html(model: Any, diagram: str) -> str:
    """The summary as a small table under scikit-learn's diagram."""
    rows = "".join(
        f'<tr><th style="text-align:left;padding:1px 10px 1px 0;font-weight:600">{escape(name)}'
        f'</th><td style="text-align:left;padding:1px 0">{escape(text)}</td></tr>'
        for name, text in summary_lines(model)
    )
    style = "font-family:monospace;font-size:small;border-collapse:collapse;margin:6px 0"
    return f'{diagram}<table class="jointleaf-summary" style="{style}">{rows}</table>'
