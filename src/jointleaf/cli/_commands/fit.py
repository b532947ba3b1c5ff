"""``jointleaf fit``: from a table to a model and a report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointleaf.cli._commands.options import add_json, add_reading, add_seed, add_target

if TYPE_CHECKING:
    from jointleaf.cli._training import TrainingData

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "fit",
        help="fit a model to a table; write the model and a report",
        description="Detect what the columns hold, fit all rows, compare jointleaf with other "
        "models on held-out rows, and write the model and a report.",
    )
    add_target(parser)
    parser.add_argument(
        "--output", "-o", metavar="FILE", type=Path, help="the model; by default DATA.jleaf, here"
    )
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="the report; by default beside the model, .html"
    )
    parser.add_argument("--no-report", action="store_true", help="write no report")
    add_seed(parser)
    add_reading(parser)
    add_json(parser, "the description of data, model and files")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, validate, write."""
    from jointleaf.cli._html.report import render_report
    from jointleaf.cli._models import save_model
    from jointleaf.cli._output import check_writable, print_json, write_file
    from jointleaf.cli._record import without_charts
    from jointleaf.cli._training import read_training_data

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
    else:
        print(_result(record, paths))


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

    The model comes first: validation fits the same recipe, also where the fewer rows of a split
    would mean another one by default.
    """
    from jointleaf.cli._peers import FIT_MODELS, Options, installed, jointleaf_estimator
    from jointleaf.cli._record import make_record
    from jointleaf.cli._validation import validate

    options = Options(data.target.task, seed, n_jobs)
    start = time.perf_counter()
    model = jointleaf_estimator(options).fit(data.X, data.y)
    middle = time.perf_counter()
    validation = validate(data.X, data.encoded_y, installed(FIT_MODELS), options)
    seconds = {"fit": middle - start, "validation": time.perf_counter() - middle}
    return model, make_record(model, data, validation, seconds)


def _result(record: dict[str, Any], paths: list[Path]) -> str:
    from jointleaf.cli._output import seconds, text_table
    from jointleaf.cli._record import fit_lines
    from jointleaf.cli._validation import error_table

    return "\n".join(
        [
            error_table(record["validation"]),
            f"fitted all rows in {seconds(record['seconds']['fit'])}:",
            text_table(fit_lines(record["model"])),
            *(f"wrote {path}" for path in paths),
        ]
    )
