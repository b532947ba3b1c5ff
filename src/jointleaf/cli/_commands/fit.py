"""``jointleaf fit``: from a table to a model and a report."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointleaf.cli._commands.options import add_json, add_reading, add_seed, add_target

if TYPE_CHECKING:
    from jointleaf.cli._judging import Judgement
    from jointleaf.cli._training import TrainingData

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "fit",
        help="fit a model to a table; write the model and a report",
        description="Find out what the columns hold, compare jointleaf with other models on rows "
        "held out, fit all rows, and write the model and a report.",
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
    add_json(parser, "what was found and written")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Fit, judge, write."""
    from jointleaf.cli._html.report import render_report
    from jointleaf.cli._models import save_model
    from jointleaf.cli._output import check_writable, print_json, write_file
    from jointleaf.cli._training import read_training_data

    model_path = args.output or Path(_stem(args.data) + ".jleaf")
    report_path = args.report or model_path.with_suffix(".html")
    paths = [model_path] if args.no_report else [model_path, report_path]
    for path in paths:
        check_writable(path)
    data = read_training_data(args)
    if not args.json:
        print(data.describe(), flush=True)
    model, record = fit_and_judge(data, args)
    save_model(model, record, model_path)
    if not args.no_report:
        write_file(report_path, render_report(record))
    if args.json:
        print_json({**_short(record), "model_file": str(model_path),
                    "report": None if args.no_report else str(report_path)})  # fmt: skip
    else:
        print(_result(record, paths))


def _stem(data: str) -> str:
    """Name of the data without its folder and endings."""
    name = "model" if data == "-" else Path(data).name
    for ending in (".gz", ".csv", ".tsv", ".txt", ".parquet", ".pq"):
        name = name.removesuffix(ending)
    return name or "model"


def fit_and_judge(data: TrainingData, args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Compare with other models on rows held out, fit all rows, and write down what was found."""
    from jointleaf._core.progress import Progress
    from jointleaf.cli._judging import class_numbers, compare, make_splits
    from jointleaf.cli._peers import FIT_MODELS, Options, installed, jointleaf_estimator

    task = data.target.task
    options = Options(task, args.seed, args.jobs)
    y = data.y if task == "regression" else class_numbers(data.y)[1]
    models = installed(FIT_MODELS)
    splits, how = make_splits(y, task, args.seed)
    progress = Progress(len(splits) * len(models) + 1, "fitting")
    start = time.perf_counter()
    judgement = compare(data.X, y, models, options, splits, how, progress=progress)
    middle = time.perf_counter()
    model = jointleaf_estimator(options).fit(data.X, data.y)
    progress.step("all rows")
    spent = {"comparison": middle - start, "fit": time.perf_counter() - middle}
    return model, make_record(model, data, judgement, spent)


def make_record(
    model: Any, data: TrainingData, judgement: Judgement, spent: dict[str, float]
) -> dict[str, Any]:
    """Everything that ``info`` and ``report`` show, as plain values."""
    import jointleaf
    from jointleaf.cli import _summaries as summaries

    return {
        "format": 1,
        "made": summaries.time_of_day(),
        "version": jointleaf.__version__,
        "command": " ".join(["jointleaf", *sys.argv[1:]]),
        "source": Path(data.table.source).name,
        "n_rows": len(data.y),
        "n_without_target": data.n_without_target,
        "target": summaries.target_summary(data.target, data.y),
        "preparation": data.preparation.to_dict(),
        "columns": summaries.column_summaries(data.table, data.preparation, data.X),
        "judgement": {
            "how": judgement.how,
            "measure": judgement.measure,
            "table": judgement.table(),
            "summary": summaries.prediction_summary(judgement),
        },
        "model": summaries.model_summary(model),
        "features": summaries.feature_summaries(model, data.preparation),
        "cv": summaries.cv_lines(model),
        "convergence": summaries.convergence(model),
        "seconds": spent,
    }


def _short(record: dict[str, Any]) -> dict[str, Any]:
    """The record without what only charts need."""
    judged = {k: v for k, v in record["judgement"].items() if k != "summary"}
    target = {k: v for k, v in record["target"].items() if k != "histogram"}
    left_out = ("cv", "preparation", "format")
    rest = {k: v for k, v in record.items() if k not in left_out}
    convergence = {k: v for k, v in record["convergence"].items() if k != "trace"}
    return {**rest, "target": target, "judgement": judged, "convergence": convergence}


def _result(record: dict[str, Any], paths: list[Path]) -> str:
    from jointleaf.cli._output import plural, seconds
    from jointleaf.cli._showing import error_table

    model, spent = record["model"], record["seconds"]
    return "\n".join(
        [
            f"errors {record['judgement']['how']}:",
            error_table(record["judgement"]["table"]),
            f"fitted: {plural(model['partitions'], 'partition')}, {model['cells']:,} cells, "
            f"{record['convergence']['message']} ({seconds(spent['fit'])})",
            *(f"wrote {path}" for path in paths),
        ]
    )
