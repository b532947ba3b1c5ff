"""Arguments in, exit code out: errors are one line, never a traceback.

The arguments of all commands are described here, so that ``--help`` loads nothing else.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any

import jointleaf
from jointleaf.cli._output import CliError, printable

# Exit codes; the last two are 128 plus the number of the signal, as shells have it.
_OK, _DATA_ERROR, _USAGE_ERROR, _INTERRUPTED, _PIPE_CLOSED = 0, 1, 2, 130, 141

_DESCRIPTION = """\
Tree ensembles with a linear model in every leaf, all fitted jointly: from a table in a file to a
model, predictions, explanations and a report."""
_EPILOG = """\
example:
  jointleaf fit houses.csv --target price        writes houses.jleaf and houses.html
  jointleaf predict houses.jleaf new.csv -o out.csv
  jointleaf explain houses.jleaf new.csv --row 12

Files are CSV (the delimiter is detected), JSON, JSON Lines, Parquet or Excel (.xlsx), also
compressed with gzip; "-" is the standard input or output. Exit codes: 0 for success, 1 for an
error of the data or the model, 2 for wrong arguments."""


_EXAMPLES = {
    "fit": """\
examples:
  jointleaf fit flats.csv -t price --drop flat,agent      without two columns
  jointleaf fit visits.csv -t days --group patient        new rows are of other patients
  jointleaf fit sales.xlsx -t units --time day            new rows come later
  jointleaf fit flats.csv -t price --json > flats.json    the description as JSON""",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default with the arguments of the process, and return the exit code.

    It is 0 for success, 1 for an error of data or model, 2 for wrong arguments, 130 after Ctrl-C,
    141 where the reader of the output closed the pipe.
    """
    if sys.stderr is None:  # closed: print would write to the standard output
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return _fail("the standard output is closed: send it to a file or to /dev/null")
    if hasattr(sys.stdout, "reconfigure"):
        # Names that a terminal's encoding lacks are written as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        parser = _make_parser()
        args, unknown = parser.parse_known_args(arguments)
        if unknown:  # with the usage of the command
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        module = import_module(f"jointleaf.cli.{_COMMANDS[args.command][0]}")
        getattr(module, args.command)(args)
        sys.stdout.flush()
    except SystemExit as end:  # of argparse: --help, --version and wrong arguments
        return int(end.code or _OK) if isinstance(end.code, int | None) else _USAGE_ERROR
    except BrokenPipeError:
        # The rest of the buffer has no reader: drop it without a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _fail("interrupted", _INTERRUPTED)
    except MemoryError:
        return _fail("there is not enough memory for this data")
    except (CliError, ValueError, TypeError, ImportError, OSError) as error:
        return _fail(str(error))
    except Exception as error:  # a defect: users still get one line, and how to see more
        name = type(error).__name__
        return _fail(f"unexpected {name}: {error}: set JOINTLEAF_TRACEBACK=1 to see it")
    return _OK


def _fail(message: str, code: int = _DATA_ERROR) -> int:
    if os.environ.get("JOINTLEAF_TRACEBACK") and sys.exc_info()[0]:  # for reports of defects
        raise
    line = printable(" ".join(message.split()))
    print(f"jointleaf: error: {line or 'no message'}", file=sys.stderr)
    return code


def _make_parser() -> argparse.ArgumentParser:
    """Return the parser; `command` of its result is a key of `_COMMANDS`."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="jointleaf", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=form
    )
    version = f"jointleaf {jointleaf.__version__}"
    parser.add_argument("--version", action="version", version=version)
    names = {"title": "commands", "metavar": "COMMAND", "dest": "command"}
    commands = parser.add_subparsers(**names, required=True)
    for name, (_, text, description, arguments) in _COMMANDS.items():
        command = commands.add_parser(
            name, help=text, description=fill(description, 78), epilog=_EXAMPLES.get(name),
            formatter_class=form,
        )  # fmt: skip
        command.set_defaults(parser=command)
        for flags, options in arguments:
            command.add_argument(*flags, **options)
    return parser


# -- arguments -----------------------------------------------------------------------------------

_Argument = tuple[tuple[str, ...], dict[str, Any]]


def _argument(*flags: str, **options: Any) -> _Argument:
    return flags, options


_DATA = 'CSV, JSON, JSON Lines, Parquet or Excel, "-" for the standard input'
_FIT_DATA = f"{_DATA}, or a folder of Parquet files that need not fit into memory"
_MODEL = _argument("model", metavar="MODEL", help="a file of `jointleaf fit`, or of jointleaf.save")
# Options of several arguments.
_FLAG = {"action": "store_true"}
_FILE = {"metavar": "FILE", "type": Path}
_COLUMNS: dict[str, Any] = {"metavar": "COLUMN", "action": "append", "default": []}


def _number(option: str, least: int, default: int | None, text: str) -> _Argument:
    def whole(value: str) -> int:
        if not value.isdecimal() or int(value) < least:
            raise argparse.ArgumentTypeError(f"{value!r} must be a whole number from {least} on")
        return int(value)

    return _argument(option, metavar="N", type=whole, default=default, help=text)


def _checked_float(text: str, is_possible: Callable[[float], bool], bounds: str) -> float:
    with suppress(ValueError):
        number = float(text)
        if is_possible(number):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} must be a number {bounds}")


def _probability(text: str) -> float:
    return _checked_float(text, lambda number: 0 < number < 1, "between 0 and 1, such as 0.9")


def _power(text: str) -> float:
    return _checked_float(text, lambda number: 1 <= number <= 2, "from 1 to 2, such as 1.5")


def _seconds(text: str) -> float:
    return _checked_float(text, lambda number: 0 < number < math.inf, "above 0, such as 60")


def _delimiter(text: str) -> str:
    mark = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(mark) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be one character, or tab")
    return mark


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _reading_and_json(contents: str) -> list[_Argument]:
    text = 'between fields; detected by default (comma, semicolon, tab, "|")'
    return [
        _argument("--delimiter", metavar="CHAR", type=_delimiter, help=text),
        _argument("--encoding", metavar="NAME", default="utf-8", help="utf-8 by default"),
        _argument("--sheet", metavar="NAME", help="of an Excel file; the first by default"),
        _number(
            "--max-unpacked",
            1,
            None,
            "megabytes that a compressed file may unpack to; by default 256, or 50 times the file",
        ),
        _argument("--json", **_FLAG, help=f"{contents} as JSON"),
    ]


def _training(contents: str, data: str = _DATA) -> list[_Argument]:
    """Return a training table, its target and columns, seed and threads."""
    task = "detected by default: text, yes/no and few whole numbers are classes"
    return [
        _argument("data", metavar="DATA", help=data),
        _argument("--target", "-t", metavar="COLUMN", required=True, help="the column to predict"),
        _argument("--task", choices=("regression", "classification"), help=task),
        _argument("--drop", **_COLUMNS, help="leave a column out; repeatable, or with commas"),
        _argument(
            "--keep", **_COLUMNS,
            help="use a column although it counts or names the rows or equals the target; "
            "repeatable",
        ),
        _argument("--categorical", **_COLUMNS, help="a column whose numbers are names; repeatable"),
        _argument(
            "--na", metavar="WORDS", type=_words,
            help="what counts as missing, besides empty fields: words with commas between them, "
            'such as "NA,-"; by default NA, N/A, NaN, null, none, ? and the like',
        ),
        _argument(
            "--group", metavar="COLUMN",
            help="rows with the same value belong together: they are never fitted and validated on "
            "at once, and the model does not see the column",
        ),
        _argument(
            "--time", metavar="COLUMN",
            help="dates or numbers: what is validated on comes later than what is fitted",
        ),
        _number("--seed", 0, 0, "0 by default"),
        _number("--jobs", 1, 1, "threads, 1 by default"),
        *_reading_and_json(contents),
    ]  # fmt: skip


#: Names of `jointleaf._core.losses.NUMBER_LOSSES`, so that ``--help`` does not load them.
_LOSSES = (
    "squared_error", "absolute_error", "huber", "quantile", "poisson", "gamma", "tweedie",
)  # fmt: skip
_OBJECTIVE = [
    _argument(
        "--loss", choices=_LOSSES,
        help="what to minimise, for all models: squared_error (the default for numbers) or "
        "absolute_error, huber, quantile; poisson (counts), gamma (amounts), tweedie (amounts, "
        "many zero), whose predictions are never negative",
    ),
    _argument(
        "--quantile", metavar="Q", type=_probability, help="of --loss quantile, 0.5 by default"
    ),
    _argument(
        "--power", metavar="P", type=_power,
        help="of --loss tweedie, 1.5 by default: 1 is poisson, 2 gamma",
    ),
    _argument(
        "--exposure", metavar="COLUMN",
        help="the time or amount in which the target was counted, for poisson, gamma and tweedie; "
        "predictions are multiplied by it",
    ),
    _argument("--weight", metavar="COLUMN", help="how much every row counts"),
]  # fmt: skip


def _rows(contents: str, data: str = _DATA, **options: Any) -> list[_Argument]:
    """Return a model and the rows it is used on."""
    return [
        _MODEL,
        _argument("data", metavar="DATA", help=data, **options),
        _argument("--ignore-extra", **_FLAG, help="allow columns that the model does not know"),
        *_reading_and_json(contents),
    ]


#: Module, in which a command is the function of its name; help; description; arguments.
_COMMANDS: dict[str, tuple[str, str, str, list[_Argument]]] = {
    "fit": (
        "_fitting",
        "fit a model to a table; write the model and a report",
        "Detect what the columns hold, fit all rows, compare jointleaf with other models on "
        "held-out rows, and write the model and a report.",
        [
            *_training("the description of data, model and files", _FIT_DATA),
            *_OBJECTIVE,
            _number(
                "--sample-rows", 1, None,
                "rows of a folder that columns are detected and partitions grown on, 100,000 by "
                "default",
            ),
            _argument(
                "--checkpoint", metavar="FOLDER",
                help="where a fit of a folder that is interrupted goes on from, by the same "
                "command",
            ),
            _argument(
                "--recipe", choices=("auto", "joint", "blend"), default="auto",
                help="auto chooses by the number of rows; a joint fit can be exported to SQL and "
                "pruned, a blend of larger trees predicts better with many rows",
            ),
            _argument(
                "--time-budget", metavar="SECONDS", type=_seconds,
                help="about how long each fit of jointleaf may take, that of all rows and that of "
                "every split; by default as long as it takes",
            ),
            _argument(
                "--no-compare", **_FLAG,
                help="fit no other models, and measure the errors of jointleaf on one fifth of the "
                "rows",
            ),
            _argument("--output", "-o", **_FILE, help="the model; by default DATA.jleaf, here"),
            _argument("--report", **_FILE, help="the report; by default beside the model, .html"),
            _argument("--no-report", **_FLAG, help="write no report"),
        ],
    ),
    "predict": (
        "_using",
        "predict the target of new rows",
        "Write one prediction for every row, in the order of the rows; for classes also the "
        "probabilities of all.",
        [
            *_rows("predictions"),
            _argument(
                "--output", "-o", metavar="FILE", default="-",
                help='CSV, with gzip if its name ends in .gz; "-", the standard output, by default',
            ),
            _argument("--id", **_COLUMNS, help="a column of DATA to write along; repeatable"),
            _argument(
                "--escape-formulas", **_FLAG,
                help="write ' before texts that spreadsheets would run: those that begin with =, "
                "+, - or @ and are no numbers",
            ),
            _argument(
                "--interval", metavar="P", type=_probability,
                help="also write intervals that hold the target with this probability, such as "
                "0.9; for classes the set of classes",
            ),
        ],
    ),
    "explain": (
        "_using",
        "show what every column adds to a prediction",
        "Show what every column adds to the prediction of one row. The baseline, the mean "
        "prediction in training, and all contributions add up to the prediction: the target "
        "itself, log-odds for classes.",
        [
            *_rows("all contributions"),
            _number("--row", 1, 1, "number of the row; 1, the default, is the first below the "
                    "header"),
            _number("--top", 1, 10, "columns to show, 10 by default"),
            _argument(
                "--interval", metavar="P", type=_probability,
                help="the probability of the interval, for classes of the set; by default 0.9, and "
                "shown if the model knows it",
            ),
            _argument(
                "--class", dest="label", metavar="NAME",
                help="explain this class; by default the second of two, the predicted one of more",
            ),
            _argument("--plot", **_FILE, help="draw a picture, .png or .svg"),
        ],
    ),
    "select": (
        "_fitting",
        "find the columns that matter, with the whole path",
        "Fit piecewise linear models under the l2,1 penalty, with which whole columns vanish, at "
        "many strengths, for the squared error or the log-loss of classes; choose the strength by "
        "cross-validation (the sparsest model within one standard error of the best) and show the "
        "path.",
        _training("the path and the selected columns"),
    ),
    "report": (
        "_using",
        "write the HTML report of a model, also on further data",
        "Write the report of a fit once more, as one HTML file. With DATA, which must have the "
        "target, it also shows the errors of the model there.",
        [
            *_rows("the errors on DATA", data="rows with the target", nargs="?"),
            _argument("--output", "-o", **_FILE, help="by default beside the model, .html"),
        ],
    ),
    "bench": (
        "_fitting",
        "compare with LightGBM, CatBoost, XGBoost and linear models",
        "Compare jointleaf with those of LightGBM, CatBoost and XGBoost that are installed and "
        "have the loss, a linear model and a constant, all with their defaults, on the same folds.",
        [*_training("all errors"), *_OBJECTIVE, _number("--folds", 2, 5, "5 by default")],
    ),
    "export": (
        "_using",
        "write a model as ONNX or SQL",
        "Write a model as an ONNX graph, or as one SELECT statement, which take the columns that "
        "the model sees: of dates their parts, of text with numbers the numbers.",
        [
            _MODEL,
            _argument("output", metavar="OUT", type=Path, help="a file that ends in .onnx or .sql"),
            _argument("--table", metavar="NAME", default="rows", help="of SQL, rows by default"),
        ],
    ),
    "info": (
        "_using",
        "show what a model file holds",
        "Show what a model file holds.",
        [_MODEL, _argument("--json", **_FLAG, help="everything as JSON")],
    ),
}  # fmt: skip
