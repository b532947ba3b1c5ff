"""What a fit found, in a few lines, for people and for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jointleaf._model.cell_model import CellModel

__all__ = ["html", "summary_lines", "summary_text"]

_UNITS = {
    "regression": "squared error / 2, target variance = 1",
    "classification": "log-loss",
}


def summary_text(model: Any) -> str:
    """The lines below each other, their names in a column."""
    lines = summary_lines(model)
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def summary_lines(model: Any) -> list[tuple[str, str]]:
    """Names and texts of a fitted estimator's summary."""
    if hasattr(model, "cell_models_"):
        return _of_tasks(model)
    if hasattr(model, "_model"):
        return [*_of_cells(model._model, len(model.columns_)), *_of_fit(model)]
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
    if model.shares_ is not None and model.solution_.layout.n_cells == 1:
        return _of_boosting(model)
    lines = [("penalty", repr(model.penalty_))]
    if model.setting_ is not None:
        setting = model.setting_._asdict()
        lines.append(("setting", ", ".join(f"{k} {v:.3g}" for k, v in setting.items())))
    if model.shares_ is not None:
        shares = model.shares_
        text = f"joint fit {shares.joint:.2g}, linear {shares.linear:.2g}, own {shares.own:.2g}"
        text += "".join(f", boosted trees {share:.2g}" for share in shares.boosted)
        text += f", levels {shares.levels:.2g}" if shares.levels > 0 else ""
        lines.append(("shares", text))
    lines += _validation(model.cv_results_, model._target_type)
    lines.append(("solver", _solved(model.solution_)))
    if hasattr(model, "pruning_"):
        record = model.pruning_
        lines.append(("pruned", f"from {record.n_cells_before:,} cells"))
    return lines


def _of_boosting(model: Any) -> list[tuple[str, str]]:
    """Of the default with very many rows: no joint fit takes part."""
    *stages, _ = model.partitioner_.partitioners_
    first, texts = 0, []
    for stage in stages:
        is_linear = model._model.layout.kinds[first] == "linear"
        kind = "linear models" if is_linear else "constants"
        texts.append(f"{len(stage.n_cells_):,} trees with {kind}")
        first += len(stage.n_cells_)
    start = "a global linear model" if model.shares_.joint else "a constant"
    loss = _best_loss(model.cv_results_, model._target_type) + ", of a small part"
    return [("boosting", f"from {start}: {', then '.join(texts)}"), ("validation loss", loss)]


def _validation(table: Any, target_type: str) -> list[tuple[str, str]]:
    """The smallest validation loss of those that were tried."""
    if table is None:
        return []
    text = f"{_best_loss(table, target_type)}, best of {len(table['mean_loss'])} settings"
    return [("validation loss", text)]


def _best_loss(table: Any, target_type: str) -> str:
    """The smallest loss with its standard error and unit."""
    losses = np.asarray(table["mean_loss"], float)
    own = np.asarray(table.get("own_loss", np.ones(len(losses), bool)))
    k = int(np.nanargmin(np.where(own, losses, np.inf)))  # others are squared errors
    error = table.get("se_loss", np.full(len(losses), np.nan))[k]
    error = "" if np.isnan(error) else f" ± {error:.2g}"
    return f"{losses[k]:.4g}{error} ({_UNITS[target_type]})"


def _solved(solution: Any) -> str:
    return (
        f"{solution.solver}, {solution.status} after {solution.n_iter} iterations, optimality "
        f"{solution.optimality:.1e}"
    )


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
        lines += _validation(model.cv_results_, model._target_type)
        lines.append(("solver", _solved(model.solution_)))
        return lines
    done = sum(solution.converged for solution in model.solution_)
    lines.append(("solver", f"every task on its own, {done} of {len(names)} converged"))
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
