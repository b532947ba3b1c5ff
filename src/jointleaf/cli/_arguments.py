"""Arguments of all commands: described here, so that ``--help`` loads nothing else."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jointleaf

__all__ = ["make_parser"]

_DESCRIPTION = """\
Tree ensembles with a linear model in every leaf, all fitted jointly: from a table in a file to a
model, predictions, explanations and a report."""
_EPILOG = """\
example:
  jointleaf fit houses.csv --target price        writes houses.jleaf and houses.html
  jointleaf predict houses.jleaf new.csv -o out.csv
  jointleaf explain houses.jleaf new.csv --row 12

Files are CSV (the delimiter is detected) or Parquet, as they are or compressed with gzip; "-" is
the standard input or output. Exit codes: 0 for success, 1 for an error of the data or the model,
2 for wrong arguments."""
_DATA = 'CSV or Parquet, "-" for the standard input'


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; `command` of its result is the name of a module of `_commands`."""
    parser = argparse.ArgumentParser(
        prog="jointleaf",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"jointleaf {jointleaf.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, dest="command"
    )
    for add in (_add_fit, _add_predict, _add_explain, _add_select, _add_report, _add_bench):
        add(commands)
    info = commands.add_parser(
        "info", help="show what a model file holds", description="Show what a model file holds."
    )
    _add_model(info)
    _add_json(info, "everything")
    return parser


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="fit a model to a table; write the model and a report",
        description="Detect what the columns hold, fit all rows, compare jointleaf with other "
        "models on held-out rows, and write the model and a report.",
    )
    _add_training(parser, "the description of data, model and files")
    parser.add_argument(
        "--output", "-o", metavar="FILE", type=Path, help="the model; by default DATA.jleaf, here"
    )
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="the report; by default beside the model, .html"
    )
    parser.add_argument("--no-report", action="store_true", help="write no report")


def _add_predict(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="predict the target of new rows",
        description="Write one prediction for every row, in the order of the rows; for classes "
        "also the probabilities of all.",
    )
    _add_rows(parser, "predictions")
    parser.add_argument(
        "--output", "-o", metavar="FILE", default="-",
        help='CSV, with gzip if its name ends in .gz; "-", the standard output, by default',
    )  # fmt: skip
    _add_columns(parser, "--id", "a column of DATA to write along; repeatable")


def _add_explain(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="show what every column adds to a prediction",
        description="Show what every column adds to the prediction of one row. The baseline, the "
        "mean prediction in training, and all contributions add up to the prediction: the target "
        "itself, log-odds for classes.",
    )
    _add_rows(parser, "all contributions")
    row = "number of the row; 1, the default, is the first below the header"
    _add_number(parser, "--row", 1, 1, row)
    _add_number(parser, "--top", 1, 10, "columns to show, 10 by default")
    parser.add_argument(
        "--class", dest="label", metavar="NAME",
        help="explain this class; by default the second of two, the predicted one of more",
    )  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw a picture, .png or .svg")


def _add_select(commands: Any) -> None:
    parser = commands.add_parser(
        "select",
        help="find the columns that matter, with the whole path",
        description="Fit piecewise linear models under the l2,1 penalty, with which whole columns "
        "vanish, at many strengths; choose the strength by cross-validation (the sparsest model "
        "within one standard error of the best) and show the path.",
    )
    _add_training(parser, "the path and the selected columns")


def _add_report(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write the HTML report of a model, also on further data",
        description="Write the report of a fit once more, as one HTML file. With DATA, which must "
        "have the target, it also shows the errors of the model there.",
    )
    _add_rows(parser, "the errors on DATA", data="rows with the target", nargs="?")
    parser.add_argument(
        "--output", "-o", metavar="FILE", type=Path, help="by default beside the model, .html"
    )


def _add_bench(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="compare with LightGBM, CatBoost, XGBoost and linear models",
        description="Compare jointleaf with those of LightGBM, CatBoost and XGBoost that are "
        "installed, a linear model and a constant, all with their defaults, on the same folds.",
    )
    _add_training(parser, "all errors")
    _add_number(parser, "--folds", 2, 5, "5 by default")


# -- arguments that several commands share -------------------------------------------------------


def _add_training(parser: argparse.ArgumentParser, contents: str) -> None:
    """Add a training table, its target and columns, seed and threads."""
    parser.add_argument("data", metavar="DATA", help=_DATA)
    parser.add_argument(
        "--target", "-t", metavar="COLUMN", required=True, help="the column to predict"
    )
    parser.add_argument(
        "--task",
        choices=("regression", "classification"),
        help="detected by default: text, yes/no and few whole numbers are classes",
    )
    _add_columns(parser, "--drop", "leave a column out; repeatable")
    _add_columns(parser, "--categorical", "a column whose numbers are names; repeatable")
    _add_number(parser, "--seed", 0, 0, "0 by default")
    _add_number(parser, "--jobs", 1, 1, "threads, 1 by default")
    _add_reading(parser)
    _add_json(parser, contents)


def _add_rows(
    parser: argparse.ArgumentParser, contents: str, data: str = _DATA, **options: Any
) -> None:
    """Add a model and the rows it is used on."""
    _add_model(parser)
    parser.add_argument("data", metavar="DATA", help=data, **options)
    parser.add_argument(
        "--ignore-extra", action="store_true", help="allow columns that the model does not know"
    )
    _add_reading(parser)
    _add_json(parser, contents)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a file of `jointleaf fit`")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    text = 'between fields; detected by default (comma, semicolon, tab, "|")'
    parser.add_argument("--delimiter", metavar="CHAR", type=_delimiter, help=text)
    parser.add_argument("--encoding", metavar="NAME", default="utf-8", help="utf-8 by default")


def _add_columns(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    parser.add_argument(option, metavar="COLUMN", action="append", default=[], help=text)


def _add_number(
    parser: argparse.ArgumentParser, option: str, least: int, default: int, text: str
) -> None:
    def whole(value: str) -> int:
        if not value.isdecimal() or int(value) < least:
            raise argparse.ArgumentTypeError(f"{value!r} must be a whole number from {least} on")
        return int(value)

    parser.add_argument(option, metavar="N", type=whole, default=default, help=text)


def _add_json(parser: argparse.ArgumentParser, contents: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"{contents} as JSON")


def _delimiter(text: str) -> str:
    mark = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(mark) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be one character, or tab")
    return mark
