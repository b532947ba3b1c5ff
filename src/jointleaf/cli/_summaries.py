"""What a file holds about its model besides the model: plain values for people and the report.

The record of a fit is one dictionary of plain values, stored in the model file. Whatever ``info``
and ``report`` show comes from it.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._judging import Judgement
from jointleaf.cli._output import number
from jointleaf.cli._tables.preparing import Preparation
from jointleaf.cli._tables.raw import RawTable
from jointleaf.cli._tables.targets import Target

__all__ = [
    "column_summaries",
    "convergence",
    "cv_lines",
    "feature_summaries",
    "histogram",
    "model_summary",
    "prediction_summary",
    "target_summary",
    "time_of_day",
]

_MOST_POINTS = 1000
_MOST_TRACE = 200
_BINS = 10


def time_of_day() -> str:
    """Give the time, as ISO 8601 in UTC."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def column_summaries(table: RawTable, preparation: Preparation, frame: Any) -> list[dict[str, Any]]:
    """One record a column of the file: kind, gaps, what its values are."""
    found = []
    for kind in preparation.columns:
        column = table.column(kind.name)
        missing = column.missing
        values = column.values[~missing]
        if kind.kind in ("number", "boolean"):
            values = frame[kind.name].to_numpy()
            values = values[np.isfinite(values)]
            low, middle, high = np.quantile(values, (0.0, 0.5, 1.0))
            text = f"{number(low)} to {number(high)}, median {number(middle)}"
        elif kind.kind == "date":
            ordered = frame[kind.outputs[0]].to_numpy()
            first, last = np.nanargmin(ordered), np.nanargmax(ordered)
            text = f"{column.values[first]} to {column.values[last]}"
        elif kind.kind == "category":
            levels, counts = np.unique(values.astype(str), return_counts=True)
            top = np.argsort(-counts, kind="stable")[:3]
            text = ", ".join(f"{levels[k]} ({counts[k]:,})" for k in top)
            text += f" and {len(levels) - 3} more" if len(levels) > 3 else ""
        else:
            text = ""
        found.append(
            {
                "name": kind.name,
                "kind": kind.kind,
                "note": kind.note,
                "used": kind.is_used,
                "missing": int(missing.sum()),
                "different": len(set(column.values[~missing].tolist())),
                "values": text,
            }
        )
    return found


def histogram(values: NDArray, bins: int = 30) -> dict[str, list]:
    """Edges and counts of a histogram; the outer hundredths of long tails share the last bars."""
    low, high = np.quantile(values, (0.005, 0.995))
    if high <= low:
        low, high = values.min(), values.max()
    counts, edges = np.histogram(np.clip(values, low, high), bins=bins)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def target_summary(target: Target, y: NDArray) -> dict[str, Any]:
    """The target: its task, and how its values are distributed."""
    found: dict[str, Any] = {**target.to_dict()}
    if target.task == "classification":
        classes, counts = np.unique(y, return_counts=True)
        found["classes"] = [str(c) for c in classes]
        found["counts"] = counts.tolist()
    else:
        found["quantiles"] = np.quantile(y, (0, 0.25, 0.5, 0.75, 1)).tolist()
        found["mean"] = float(y.mean())
        found["histogram"] = histogram(y)
    return found


def prediction_summary(judgement: Judgement) -> dict[str, Any]:
    """How good predictions are: pairs and residuals, or calibration and confusion."""
    truth, ours = judgement.truth, judgement.ours
    if ours.ndim == 1:
        kept = _spread_over(len(truth), _MOST_POINTS)
        return {
            "truth": truth[kept].tolist(),
            "predicted": ours[kept].tolist(),
            "n_all": len(truth),
            "residuals": histogram(truth - ours),
        }
    n_classes = ours.shape[1]
    is_class = truth[:, None] == np.arange(n_classes)
    # Two classes: the probability of the second; more: those of all classes together.
    columns = slice(1, 2) if n_classes == 2 else slice(None)
    confusion = np.zeros((n_classes, n_classes), int)
    np.add.at(confusion, (truth, ours.argmax(axis=1)), 1)
    return {
        "calibration": _calibration(ours[:, columns].ravel(), is_class[:, columns].ravel()),
        "confusion": confusion.tolist(),
    }


def _calibration(shares: NDArray, happened: NDArray) -> list[dict[str, float]]:
    """Mean probability and share of hits in up to ten groups of equal size."""
    order = np.argsort(shares, kind="stable")
    groups = [g for g in np.array_split(order, min(_BINS, max(1, len(order) // 10))) if g.size]
    return [
        {
            "probability": float(shares[g].mean()),
            "share": float(happened[g].mean()),
            "error": float(np.sqrt(max(shares[g].mean() * (1 - shares[g].mean()), 0) / g.size)),
            "count": int(g.size),
        }
        for g in groups
    ]


def _spread_over(n: int, most: int) -> NDArray[np.intp]:
    """At most so many of n numbers, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def model_summary(model: Any) -> dict[str, Any]:
    """What kind of model it is, how large, and what cross-validation chose."""
    n_cells = model.partitioner_.n_cells_
    setting = None if model.setting_ is None else model.setting_._asdict()
    return {
        "kind": type(model).__name__,
        "partitions": len(n_cells),
        "cells": int(np.sum(n_cells)),
        "linear_features": len(model.linear_feature_names_),
        "penalty": repr(model.penalty_),
        "setting": None if setting is None else {k: float(v) for k, v in setting.items()},
    }


def feature_summaries(model: Any, preparation: Preparation) -> list[dict[str, Any]]:
    """One record a column that the model sees, most important first."""
    split = set(np.asarray(model.split_features_).tolist())
    linear = set(np.asarray(model.selected_features_).tolist())
    origins = preparation.origins
    found = [
        {
            "name": name,
            "column": origins.get(name, name),
            "importance": float(model.feature_importances_[j]),
            "in_splits": j in split,
            "in_linear_models": j in linear,
            "slope_norm": float(model.slope_norms_[j]),
        }
        for j, name in enumerate(preparation.outputs)
    ]
    return sorted(found, key=lambda record: -record["importance"])


def cv_lines(model: Any) -> list[dict[str, Any]]:
    """The losses that cross-validation found, one record a line, from strong to weak.

    Lines whose "own" is False were compared more cheaply, by the squared error for classes.
    """
    table = model.cv_results_
    if not table:
        return []
    strengths, losses = table["strength"], table["mean_loss"]
    rows = np.isfinite(strengths) & np.isfinite(losses) & (strengths > 0)
    rows &= table.get("share", np.ones(len(rows))) == 1.0
    own = table.get("own_loss", np.ones(len(rows), bool)).astype(bool)
    rows &= table.get("on_path", np.ones(len(rows), bool)).astype(bool)
    names = [name for name in ("slope_scale", "feature_power") if name in table]
    lines: dict[tuple, dict[float, tuple[float, float]]] = {}
    for k in np.flatnonzero(rows):
        key = (bool(own[k]), *(float(table[name][k]) for name in names))
        # A strength that was judged twice counts as judged last, which was more careful.
        lines.setdefault(key, {})[float(strengths[k])] = (
            float(losses[k]),
            float(table["se_loss"][k]),
        )
    found = []
    for key, points in lines.items():
        ordered = sorted(points, reverse=True)
        found.append(
            {
                **dict(zip(("own", *names), key, strict=True)),
                "strength": ordered,
                "loss": [points[s][0] for s in ordered],
                "error": [points[s][1] for s in ordered],
            }
        )
    return found


def convergence(model: Any) -> dict[str, Any]:
    """How the last solve ended, and the way there."""
    solution = model.solution_
    trace = [[float(v) for v in point] for point in getattr(solution, "trace", None) or []]
    kept = _spread_over(len(trace), _MOST_TRACE).tolist() if trace else []
    return {
        "solver": solution.solver,
        "status": solution.status,
        "message": solution.message,
        "iterations": int(solution.n_iter),
        "objective": float(solution.objective),
        "optimality": float(solution.optimality),
        "trace": [trace[k] for k in kept],
    }
