"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_json", "add_reading", "add_rows", "add_seed", "add_target", "at_least"]


def at_least(least: int) -> Any:
    """A type of argument: whole numbers from `least` on."""

    def whole(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {least} on")
        return value

    return whole


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How a CSV file is read."""
    parser.add_argument(
        "--delimiter",
        metavar="CHAR",
        type=_delimiter,
        help='between fields; found by default (comma, semicolon, tab, "|")',
    )
    parser.add_argument("--encoding", metavar="NAME", default="utf-8", help="utf-8 by default")


def _delimiter(text: str) -> str:
    mark = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(mark) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be one character, or tab")
    return mark


def add_target(parser: argparse.ArgumentParser) -> None:
    """What is learnt from which columns."""
    parser.add_argument("data", metavar="DATA", help='CSV or Parquet, "-" for the standard input')
    parser.add_argument(
        "--target", "-t", metavar="COLUMN", required=True, help="the column to predict"
    )
    parser.add_argument(
        "--task",
        choices=("regression", "classification"),
        help="found by default: text, yes/no and few whole numbers are classes",
    )
    parser.add_argument(
        "--drop",
        metavar="COLUMN",
        action="append",
        default=[],
        help="leave a column out; repeatable",
    )
    parser.add_argument(
        "--categorical",
        metavar="COLUMN",
        action="append",
        default=[],
        help="a column whose numbers are names; repeatable",
    )


def add_rows(parser: argparse.ArgumentParser) -> None:
    """A model and the rows it is used on."""
    parser.add_argument("model", metavar="MODEL", help="a file of `jointleaf fit`")
    parser.add_argument("data", metavar="DATA", help='CSV or Parquet, "-" for the standard input')
    parser.add_argument(
        "--ignore-extra", action="store_true", help="allow columns that the model does not know"
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Random numbers and threads."""
    parser.add_argument("--seed", metavar="N", type=at_least(0), default=0, help="0 by default")
    parser.add_argument(
        "--jobs", metavar="N", type=at_least(1), default=1, help="threads, 1 by default"
    )


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """JSON instead of text."""
    parser.add_argument("--json", action="store_true", help=f"{what} as JSON")
