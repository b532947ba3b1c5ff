"""Commands that learn from a table with a target: ``fit``, ``bench`` and ``select``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jointleaf import L21, JOPLEnClassifier, JOPLEnRegressor, save
from jointleaf._core.progress import Progress, ticking
from jointleaf._data.kinds import ROLES
from jointleaf._fit.budget import expected_seconds
from jointleaf._fit.folds import split_lines
from jointleaf._fit.recipes import recipe_for
from jointleaf.cli import _output as out
from jointleaf.cli._folders import Folder
from jointleaf.cli._models import (
    BENCH_MODELS,
    FIT_MODELS,
    Options,
    absent_peers,
    fit_jointleaf,
    jointleaf_estimator,
)
from jointleaf.cli._preparation import Objective, TrainingData, read_training_data
from jointleaf.cli._record import make_record, without_charts
from jointleaf.cli._report import render_report
from jointleaf.cli._scores import error_table
from jointleaf.cli._validation import SMALL, validate
from jointleaf.estimators._path import follow_strengths

_ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".parquet", ".pq", ".xlsx")
_LONG = 10.0  # seconds, of which users are told before
_PATH_TOL = 3e-5  # looser solves keep slopes of columns that say the same as others

_NONE_SELECTED = (
    "  none: the slope of no column clearly helps on held-out rows. Columns may matter\n"
    "  through the cells all the same: see their importances in the report of jointleaf fit."
)


def fit(args: argparse.Namespace) -> None:
    """Fit a model to a table; write the model and a report."""
    model_path = args.output or Path(_stem(args.data) + ".jleaf")
    report_path = None if args.no_report else args.report or model_path.with_suffix(".html")
    paths = [path for path in (model_path, report_path) if path is not None]
    out.check_outputs({"--output": model_path, "--report": report_path}, args.data)
    if args.recipe == "joint" and args.time_budget is not None:
        raise out.CliError(
            "--time-budget chooses among the components of a default fit, of which --recipe joint "
            "leaves one: leave out one of the two"
        )
    verbs = {path: "replaced" if path.exists() else "wrote" for path in paths}
    objective = Objective.of(args)
    folder = Folder.of(args)
    table = None if folder is None else folder.sample(args.seed)
    data = read_training_data(args, objective, table)
    options = Options(
        data.target.task, args.seed, args.jobs, args.recipe, objective.loss, args.time_budget
    )
    if folder is None and not args.json:
        _announce(data, options, is_quick=args.no_compare)
    model, record = _fit_and_validate(data, options, folder, is_quick=args.no_compare)
    used = tuple(kind for kind in data.preparation.columns if kind.kind not in ROLES)
    model.columns_ = replace(model.columns_, preparation=replace(data.preparation, columns=used))
    with out.writing(model_path):
        save(model, model_path, metadata={"cli": out.finite(record)})
    if report_path is not None:
        out.write_file(report_path, render_report(record))
    files = {"model_file": str(model_path), "report": report_path and str(report_path)}
    lines = [
        error_table(record["validation"]),
        f"fitted all rows in {out.seconds(record['seconds']['fit'])}:",
        out.text_table([line for line in record["model"]["lines"] if line[0] != "penalty"]),
        *(f"{verb} {path}" for path, verb in verbs.items()),
    ]
    out.print_result({**without_charts(record), **files}, "\n".join(lines), is_json=args.json)


def _stem(data: str) -> str:
    """Return the name of the data without its folder and endings."""
    name = "model" if data == "-" else Path(data).name
    for ending in (".gz", *_ENDINGS):
        name = name.removesuffix(ending)
    return name or "model"


def _announce(data: TrainingData, options: Options, *, is_quick: bool) -> None:
    """Print about how long the fits of jointleaf take, unless that is short."""
    n, d = data.rows.X.shape
    n_classes = len(set(data.y)) if options.task == "classification" else 0
    n_folds = 5 if n <= SMALL and not is_quick and data.rows.times is None else 1
    seconds = [expected_seconds(k, d, n_classes, options.recipe) for k in (n, 4 * n // 5)]
    if options.time_budget is not None:
        seconds = [min(value, options.time_budget) for value in seconds]
    total = seconds[0] + n_folds * seconds[1]
    if total >= _LONG:
        is_long = not is_quick and options.time_budget is None
        remedy = "; shorter with --no-compare or --time-budget SECONDS" if is_long else ""
        shown = f"{total:.0f} s" if total < 100 else f"{total / 60:.0f} min"
        out.print_remark(f"fits of jointleaf take about {shown}{remedy}")


def _fit_and_validate(
    data: TrainingData, options: Options, folder: Folder | None, *, is_quick: bool
) -> tuple[Any, dict[str, Any]]:
    """Fit all rows, compare with other models on held-out rows, and return model and record.

    The model comes first: validation fits its recipe, also where the fewer rows of a split would
    mean another one by default. Of a folder the data are a sample.
    """
    start = time.perf_counter()
    model = jointleaf_estimator(data.rows.X, options)
    # The standard output is for the result alone.
    with contextlib.redirect_stdout(sys.stderr):
        if folder is None:
            bar = Progress(100, "fitting all rows")
            with ticking("fitting all rows"), bar.holding("", 100):
                fit_jointleaf(model, data.rows)
        else:
            folder.fit(model.set_params(verbose=1), data)
    model.set_params(verbose=0)
    middle = time.perf_counter()
    options = options._replace(recipe=model.report_.recipe)
    models = FIT_MODELS[:1] if is_quick else FIT_MODELS
    validation = validate(data.encoded_rows, models, options, is_quick=is_quick)
    spent = {"fit": middle - start, "validation": time.perf_counter() - middle}
    with ticking("describing the model"):
        record = make_record(model, data, validation, spent)
    if folder is not None:
        record["n_rows"] = model.source_fit_.n_rows
    return model, record


def bench(args: argparse.Namespace) -> None:
    """Compare jointleaf and other models by cross-validation."""
    objective = Objective.of(args)
    data = read_training_data(args, objective)
    # The recipe of all rows, also where the fewer rows of a split would mean another one.
    n_classes = len(set(data.y)) if data.target.task == "classification" else 0
    recipe = recipe_for(len(data.y), n_classes if n_classes > 2 else 1)
    options = Options(data.target.task, args.seed, args.jobs, recipe, objective.loss)
    absent = absent_peers(objective.loss)
    if absent and not args.json:
        out.print_remark(absent)
    validation = validate(data.encoded_rows, BENCH_MODELS, options, n_folds=args.folds)
    names = {"method": "method", "measure": "measure", "models": "table"}
    contents = {name: validation[key] for name, key in names.items()}
    out.print_result(contents, error_table(validation), is_json=args.json)


def select(args: argparse.Namespace) -> None:
    """Find the columns that matter, by a sparse penalty along a path of strengths."""
    data = read_training_data(args)
    kind = JOPLEnRegressor if data.target.task == "regression" else JOPLEnClassifier
    # Cells that do not depend on the target leave all effects to the linear models.
    model = kind(
        "voronoi", penalty=L21("auto"), random_state=args.seed, n_jobs=args.jobs, verbose=1
    )
    # Progress goes to the standard error stream, all of it: the result alone is for pipes.
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore", UserWarning)  # no feature selected: the table shows it
        fit_jointleaf(model, data.rows)
    contents = {
        "target": data.target.name,
        "task": data.target.task,
        "selected": _selected(model, data.preparation.outputs),
        "strength": float(model.report_.joint_or_raise("a selection").penalty.strength),
        "path": _path(model, data),
        "n_features": len(data.preparation.outputs),
    }
    out.print_result(contents, _path_text(contents), is_json=args.json)


def _selected(model: Any, names: list[str]) -> list[dict[str, Any]]:
    records = [
        {"feature": names[j], "importance": float(model.feature_importances_[j])}
        for j in model.selected_features_.tolist()
    ]
    return sorted(records, key=lambda record: -record["importance"])


def _path(model: Any, data: TrainingData) -> list[dict[str, Any]]:
    """Return the path that cross-validation followed last, from strong to weak.

    Losses are those of cross-validation, features those of the same strengths on all rows: at the
    chosen one those of the model.
    """
    names = data.preparation.outputs
    (line,) = split_lines(model.cv_results_)
    strengths = line["strength"]
    path_of = partial(follow_strengths, model, data.rows.X, data.y, tol=_PATH_TOL)
    norms = path_of(strengths=strengths).feature_norms
    fitted = model.report_.joint_or_raise("a selection").penalty.strength
    path = []
    points = zip(strengths, line["mean_loss"], line["se_loss"], norms > 0, strict=True)
    for strength, loss, error, is_active in points:
        columns = set(model.linear_feature_columns_[is_active])
        if np.isclose(strength, fitted):
            columns = set(model.selected_features_)
        features = [names[j] for j in sorted(columns)]
        path.append({"strength": strength, "features": features, "loss": loss, "error": error})
    return path


def _path_text(contents: dict[str, Any]) -> str:
    path = contents["path"]
    best = min(path, key=lambda point: point["loss"])
    chosen = min(path, key=lambda point: abs(point["strength"] - contents["strength"]))
    rows = [["strength", "features", "CV loss", "std. error", "", "enters"]]
    entered: set[str] = set()
    for point in path:
        marks = ["chosen"] * (point is chosen) + ["smallest loss"] * (point is best)
        rows.append(
            [
                f"{point['strength']:.3g}",
                str(len(point["features"])),
                out.number(point["loss"]),
                out.number(point["error"], 2),
                ", ".join(marks),
                ", ".join(name for name in point["features"] if name not in entered),
            ]
        )
        entered |= set(point["features"])
    units = {"regression": "squared error / 2, target variance 1", "classification": "log-loss"}
    selected = [[r["feature"], f"{r['importance']:.1%}"] for r in contents["selected"]]
    lines = [
        f"path (loss: {units[contents['task']]}):",
        out.text_table(rows, right=(0, 1, 2, 3)),
        f"selected {len(selected)} of {out.plural(contents['n_features'], 'feature')}:",
        out.text_table([["feature", "importance"], *selected], right=(1,))
        if selected
        else _NONE_SELECTED,
    ]
    return "\n".join(lines)
