"""The record of a fit: one dictionary of plain values, stored in the model file.

Whatever ``info`` and ``report`` show comes from it. It is checked as all of a file is when a model
is loaded.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import jointleaf
from jointleaf._data.kinds import ROLES, ColumnKind
from jointleaf._data.preparation import Preparation
from jointleaf._data.raw_table import MISSING_WORDS, RawColumn
from jointleaf._data.texts import NOTATIONS, as_days
from jointleaf._fit.folds import LINE_PARAMETERS, split_lines
from jointleaf.cli._columns import Target
from jointleaf.cli._output import CliError, number, reading
from jointleaf.cli._preparation import TrainingData, of_model
from jointleaf.cli._scores import histogram, spread_over
from jointleaf.inspection import Effect, effect
from jointleaf.inspection._methods import fit_lines
from jointleaf.io._model_file.container import Budget
from jointleaf.io._model_file.objects import PREPARATION
from jointleaf.io._model_file.schema import Each, Integer, Place, Scope, Text, record

_FORMAT = 1  # of records, that is written and read
_CHARTS = ("effects", "search", "preparation", "format")
_MOST_TRACE = 200
_MOST_TEXT = 200  # characters of a category
# Of effects: columns, rows, places on the axis, categories, classes.
_MOST_COLUMNS, _MOST_ROWS, _PLACES, _MOST_CATEGORIES, _MOST_CLASSES = 6, 400, 24, 8, 4
_FEW_PLACES = 5  # which are all drawn


def make_record(
    model: Any, data: TrainingData, validation: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """Return everything that ``info`` and ``report`` show, as plain values."""
    target = _target_summary(data.target, data.y)
    features = _feature_summaries(model, data.preparation)
    booleans = {kind.name for kind in data.preparation.columns if kind.kind == "boolean"}
    drawn = features, target, data.preparation.days, booleans
    return {
        "format": _FORMAT,
        "created": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": jointleaf.__version__,
        "command": " ".join(["jointleaf", *sys.argv[1:]]),
        "source": Path(data.table.source).name,
        "n_rows": len(data.y),
        "n_without_target": data.n_without_target,
        "n_without_weight": data.n_without_weight,
        "target": target,
        "hints": list(data.hints),
        "preparation": asdict(data.preparation),
        "columns": [
            _column_summary(data.table.column(kind.name), kind, data.rows.X)
            for kind in data.preparation.columns
        ],
        "validation": validation,
        "model": model_summary(model),
        "features": features,
        "effects": effect_summary(model, data.rows.X, *drawn),
        "search": _search_lines(model.cv_results_),
        "seconds": seconds,
    }


def without_charts(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without what only charts and ``predict`` need."""
    short = {k: v for k, v in record.items() if k not in _CHARTS}
    for name, chart in (("target", "histogram"), ("validation", "summary")):
        short[name] = {k: v for k, v in record[name].items() if k != chart}
    joint = record["model"]["joint"]
    return {**short, "model": {**record["model"], "joint": joint and {**joint, "trace": None}}}


def _column_summary(column: RawColumn, kind: ColumnKind, frame: Any) -> dict[str, Any]:
    present = column.values[~column.missing]
    text = ""
    if kind.kind in ("number", "boolean", *ROLES):
        has_role = kind.kind in ROLES
        numbers = column.numbers(kind.notation) if has_role else frame[kind.name].to_numpy()
        low, middle, high = np.nanquantile(numbers, (0.0, 0.5, 1.0))
        text = f"{number(low)} to {number(high)}, median {number(middle)}"
    elif kind.kind == "date":
        times = frame[kind.outputs[0]].to_numpy()
        first, last = np.nanargmin(times), np.nanargmax(times)
        text = f"{column.values[first]} to {column.values[last]}"
    elif kind.kind == "category":
        counts = Counter(map(str, present.tolist()))
        top = sorted(counts, key=lambda name: (-counts[name], name))[:3]
        text = ", ".join(f"{name[:_MOST_TEXT]} ({counts[name]:,})" for name in top)
        text += f" and {len(counts) - 3} more" if len(counts) > 3 else ""
    return {
        "name": kind.name,
        "kind": kind.kind,
        "note": kind.note,
        "used": kind.is_used,
        "holds": kind.holds,
        "missing": int(column.missing.sum()),
        "different": len(set(present.tolist())),
        "values": text,
    }


def _target_summary(target: Target, y: NDArray) -> dict[str, Any]:
    """Return the task of the target, and how its values are distributed."""
    if target.task == "classification":
        classes, counts = np.unique(y, return_counts=True)
        return {**asdict(target), "classes": [str(c) for c in classes], "counts": counts.tolist()}
    quantiles, mean = np.quantile(y, (0, 0.25, 0.5, 0.75, 1)).tolist(), float(y.mean())
    return {**asdict(target), "quantiles": quantiles, "mean": mean, "histogram": histogram(y)}


def model_summary(model: Any) -> dict[str, Any]:
    """Return what kind of model it is, how large, and how it was fitted."""
    report, n_cells = model.report_, model.partitioner_.n_cells_
    return {
        "kind": type(model).__name__,
        "partitions": len(n_cells),
        "cells": int(np.sum(n_cells)),
        "linear_features": len(model.linear_feature_names_),
        "recipe": report.recipe,
        "components": [asdict(component) for component in report.components],
        "validation_loss": report.validation_loss,
        "joint": None if report.joint is None else _joint_summary(report.joint),
        "lines": [list(line) for line in fit_lines(model)],
    }


def _joint_summary(joint: Any) -> dict[str, Any]:
    solution = joint.solution
    trace = [(int(p[0]), float(p[3])) for p in getattr(solution, "trace", None) or [] if p[3] > 0]
    return {
        "penalty": repr(joint.penalty),
        "setting": dict(joint.setting or {}),
        "solver": solution.solver,
        "status": solution.status,
        "message": solution.message,
        "iterations": int(solution.n_iter),
        "objective": float(solution.objective),
        "optimality": float(solution.optimality),
        "trace": [trace[k] for k in spread_over(len(trace), _MOST_TRACE)],
    }


def _feature_summaries(model: Any, preparation: Preparation) -> list[dict[str, Any]]:
    """Return one record for each column that the model sees, most important first."""
    split = set(np.asarray(model.split_features_).tolist())
    linear = set(np.asarray(model.selected_features_).tolist())
    records = [
        {
            "name": name,
            "importance": float(model.feature_importances_[j]),
            "in_splits": j in split,
            "in_linear_models": j in linear,
            "slope_norm": float(model.slope_norms_[j]),
        }
        for j, name in enumerate(preparation.outputs)
    ]
    return sorted(records, key=lambda record: -record["importance"])


def _search_lines(cv_results: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the validation losses of the strengths that were compared, one record for each line.

    Lines whose "exact" is False were compared more cheaply, by the squared error for classes.
    """
    if cv_results is None or "param_strength" not in cv_results:
        return []
    names = [name for name in LINE_PARAMETERS if f"param_{name}" in cv_results]
    lines: dict[tuple, dict[float, tuple[float, ...]]] = {}
    for line in split_lines(cv_results):
        key = (bool(line["is_exact"][0]), *(float(line[name][0]) for name in names))
        errors = np.nan_to_num(line["se_loss"])
        # Of a strength that was compared twice the later loss counts, which is more accurate.
        for point in zip(line["strength"], line["mean_loss"], errors, strict=True):
            lines.setdefault(key, {})[point[0]] = point
    records = []
    for key, points in lines.items():
        strong_to_weak = [points[strength] for strength in sorted(points, reverse=True)]
        values = [*key, *np.array(strong_to_weak, float).T.tolist()]
        records.append(
            dict(zip(("exact", *names, "strength", "loss", "error"), values, strict=True))
        )
    return records


# -- effect curves ---------------------------------------------------------------------------------


def effect_summary(
    model: Any,
    X: Any,
    features: list[dict[str, Any]],
    target: dict[str, Any],
    days: set[str],
    booleans: Collection[str] = (),
) -> dict[str, Any]:
    """Return curves of the most important of some features, and what they are curves of.

    Of more than two classes there is a curve for each of the most frequent ones. All curves are
    centred: their mean over the rows is zero. `days` are features that are days since 1970-01-01,
    `booleans` those that are yes or no.
    """
    rows = X.iloc[spread_over(len(X), _MOST_ROWS)]
    # A rare value may be in none of these rows, and one place is no curve.
    varying = [name for name in X.columns if rows[name].nunique() > 1]
    names = [f["name"] for f in features if f["importance"] > 0 and f["name"] in varying]
    classes = target.get("classes", [])
    outputs: list[int] = []  # of several
    if len(classes) > 2:
        counts = target["counts"]
        outputs = sorted(sorted(range(len(classes)), key=lambda k: -counts[k])[:_MOST_CLASSES])
    curves = []
    for name in names[:_MOST_COLUMNS]:
        curve = effect(model, rows, name, n_grid=_PLACES, n_categories=_MOST_CATEGORIES)
        summary = {**_curve(curve, outputs), "days": name in days}
        if name in booleans and summary.get("grid") == [0.0, 1.0]:
            del summary["grid"]
            summary["names"] = ["no", "yes"]
        curves.append(summary)
    return {
        "of": _what_is_drawn(model, target),
        "outputs": [classes[k] for k in outputs],
        "curves": curves,
    }


def _what_is_drawn(model: Any, target: dict[str, Any]) -> str:
    classes = target.get("classes", [])
    if len(classes) == 2:
        return f"log-odds of {classes[1]}"
    if classes:
        return "raw prediction"
    has_log_link = getattr(model, "loss_", None) is not None and model.loss_.has_log_link
    return f"log of {target['name']}" if has_log_link else str(target["name"])


def _curve(curve: Effect, outputs: list[int]) -> dict[str, Any]:
    """Return the curves of some outputs; of none where all values are of the only one."""
    values = curve.values if curve.values.ndim == 2 else curve.values[:, None]
    values = values[:, outputs] if outputs else values
    if curve.grid.dtype != object:
        grid = as_days(curve.grid)
        low, high = np.quantile(as_days(curve.rows), (0.01, 0.99), method="inverted_cdf")
        inside = (low <= grid) & (grid <= high)  # far ones would take all the width
        inside |= len(grid) <= _FEW_PLACES
        values = values[inside].T.tolist()
        return {"name": curve.column, "grid": grid[inside].tolist(), "values": values}
    counts = Counter(curve.rows.tolist())
    weights = np.array([counts[name] for name in curve.grid.tolist()], float)
    names = ["missing" if name is None else str(name)[:_MOST_TEXT] for name in curve.grid.tolist()]
    centred = _centred(values, weights).T.tolist()
    return {"name": curve.column, "names": names, "values": centred}


def _centred(values: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Return values (g, K) less their mean, weighted by numbers of rows (g,)."""
    known = weights if weights.any() else np.ones_like(weights)
    return values - np.average(values, axis=0, weights=known)


# -- models from files -----------------------------------------------------------------------------

_TARGET = record(
    Target,
    name=Text(),
    task=Text(("regression", "classification")),
    notation=Text(("", *NOTATIONS)),
    reason=Text(),
    labels=Each(Text()).must(lambda s: len(s.labels) in (0, 2), "must be none or two"),
)


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file, and how its data are read."""

    path: str
    model: Any
    preparation: Preparation
    record: dict[str, Any] | None = None  # of its fit; None if it was saved by `jointleaf.save`
    target: Target | None = None

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Raise an error that says so where what is shown of the record is damaged."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, RuntimeError) as cause:
            raise _damaged(self.path, f"{type(cause).__name__}: {cause}") from None
        except (TypeError, ValueError) as cause:
            raise _damaged(self.path, str(cause)) from None


def load_model(path: str) -> LoadedModel:
    """Read a model file."""
    with reading(path, "model file"):
        model, metadata = jointleaf.load(path), jointleaf.load_metadata(path)
    if not isinstance(model, jointleaf.JOPLEnRegressor | jointleaf.JOPLEnClassifier):
        raise CliError(
            f"{path}: holds a {type(model).__name__}, which the command line does not know: "
            "use it from Python with jointleaf.load"
        )
    fit = metadata.get("cli")
    if fit is None:
        return LoadedModel(path, model, of_model(model, path))
    if not isinstance(fit, dict):
        raise _damaged(path, "it is no object")
    place = Place("", [], Budget(0, 0, math.inf))
    try:
        version = Integer(1).read(fit.get("format"), place.at("format"), Scope())
        if version > _FORMAT:
            raise CliError(f"{path}: was written by a newer jointleaf: upgrade jointleaf")
        preparation = fit.get("preparation")
        if isinstance(preparation, dict):  # of files that had no words of their own
            preparation = {"missing": list(MISSING_WORDS), **preparation}
        columns = PREPARATION.read(preparation, place.at("preparation"), Scope())
        summary = fit["target"] if isinstance(fit.get("target"), dict) else {}
        fields = {name: value for name, value in summary.items() if name in _TARGET.fields}
        target = _TARGET.read(fields, place.at("target"), Scope())
    except jointleaf.ModelFileError as cause:
        raise _damaged(path, str(cause).lstrip(".")) from None
    if columns.outputs != list(getattr(model, "feature_names_in_", ())):
        raise _damaged(path, "preparation.columns are not those of the model")
    return LoadedModel(path, model, columns, fit, target)


def _damaged(path: str, problem: str) -> CliError:
    return CliError(f"{path}: the record of the fit is damaged ({problem})")
