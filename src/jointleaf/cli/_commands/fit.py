"""``jointleaf fit``: from a table to a model and a report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from jointleaf.cli._html.report import render_report
from jointleaf.cli._models import save_model
from jointleaf.cli._output import check_writable, print_json, seconds, text_table, write_file
from jointleaf.cli._peers import FIT_MODELS, Options, jointleaf_estimator
from jointleaf.cli._record import make_record, without_charts
from jointleaf.cli._training import TrainingData, read_training_data
from jointleaf.cli._validation import error_table, validate

__all__ = ["fit_and_validate", "run"]


def run(args: argparse.Namespace) -> None:
    """Fit, validate, write."""
    model_path = args.output or Path(_stem(args.data) + ".jleaf")
    report_path = None if args.no_report else args.report or model_path.with_suffix(".html")
    paths = [model_path] if report_path is None else [model_path, report_path]
    for path in paths:
        check_writable(path)
    data = read_training_data(args)
    model, record = fit_and_validate(data, seed=args.seed, n_jobs=args.jobs)
    save_model(model, record, model_path)
    if report_path is not None:
        write_file(report_path, render_report(record))
    if args.json:
        files = {"model_file": str(model_path), "report": report_path and str(report_path)}
        print_json({**without_charts(record), **files})
        return
    print(error_table(record["validation"]))
    print(f"fitted all rows in {seconds(record['seconds']['fit'])}:")
    print(text_table([line for line in record["model"]["lines"] if line[0] != "penalty"]))
    for path in paths:
        print(f"wrote {path}")


def _stem(data: str) -> str:
    """Return the name of the data without its folder and endings."""
    name = "model" if data == "-" else Path(data).name
    for ending in (".gz", ".csv", ".tsv", ".txt", ".parquet", ".pq"):
        name = name.removesuffix(ending)
    return name or "model"


def fit_and_validate(
    data: TrainingData, *, seed: int = 0, n_jobs: int = 1
) -> tuple[Any, dict[str, Any]]:
    """Fit all rows, compare with other models on held-out rows, and return model and record.

    The model comes first: validation fits its recipe, also where the fewer rows of a split would
    mean another one by default.
    """
    options = Options(data.target.task, seed, n_jobs)
    start = time.perf_counter()
    model = jointleaf_estimator(data.X, options).fit(data.X, data.y)
    middle = time.perf_counter()
    options = options._replace(recipe=model.report_.recipe)
    validation = validate(data.X, data.encoded_y, FIT_MODELS, options)
    spent = {"fit": middle - start, "validation": time.perf_counter() - middle}
    return model, make_record(model, data, validation, spent)
