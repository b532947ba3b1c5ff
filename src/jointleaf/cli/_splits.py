"""Splits of rows that belong together or come one after the other: ``--group`` and ``--time``."""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from jointleaf._data import texts
from jointleaf._data.raw_table import RawColumn, RawTable
from jointleaf._data.rows import deal_groups
from jointleaf.cli._output import CliError

Pairs = list[tuple[NDArray, NDArray]]


def check_columns(args: argparse.Namespace) -> None:
    """Raise if the columns of ``--group`` and ``--time`` cannot be meant."""
    for option, name in (("--group", args.group), ("--time", args.time)):
        if name is not None and name == args.target:
            raise CliError(f"{option} {name!r} is the target: name another column")
    if args.group is not None and args.time is not None:
        raise CliError("--group and --time are two ways to hold rows out: give one of them")


def read_groups(table: RawTable, name: str | None) -> NDArray[np.int64] | None:
    """Return numbers of the groups of rows; None without a column."""
    if name is None:
        return None
    column = table.column(name, "--group")
    _check_complete(column, "--group", table.source)
    numbers = np.unique(column.values.astype(str), return_inverse=True)[1].astype(np.int64)
    if numbers.max() == 0:
        raise CliError(
            f"{table.source}: --group {name!r} has all rows in one group, so that none is left to "
            "validate on: name another column"
        )
    return numbers


def read_times(table: RawTable, name: str | None) -> NDArray[np.float64] | None:
    """Return the times of rows as numbers, seconds for dates; None without a column."""
    if name is None:
        return None
    column = table.column(name, "--time")
    _check_complete(column, "--time", table.source)
    times, values = np.full(len(table), np.nan), column.values
    notation = texts.detect_notation(values) if column.is_text else "plain"
    form = "time" if values.dtype.kind == "M" else None
    if column.is_text and notation is None:
        form = texts.detect_format(texts.present(values))
    if form is not None:
        times = texts.parse_dates(values, form)
    elif notation is not None:
        times = column.numbers(notation)
    if not np.isfinite(times).all():
        value = values[np.flatnonzero(~np.isfinite(times))[0]]
        raise CliError(
            f"{table.source}: --time {name!r} needs dates or numbers in every row, but it holds "
            f"{value!s}: name another column"
        )
    if np.ptp(times) == 0:
        raise CliError(
            f"{table.source}: --time {name!r} is the same in every row: name another column"
        )
    return times


def _check_complete(column: RawColumn, option: str, source: str) -> None:
    if column.missing.any():
        row = int(np.flatnonzero(column.missing)[0]) + 1
        raise CliError(
            f"{source}: {option} {column.name!r} is missing in row {row:,}: fill it in, or leave "
            "such rows out"
        )


def time_splits(times: NDArray[np.float64], n_splits: int, n_parts: int) -> Pairs:
    """Return pairs of earlier and later rows, of about 1 / `n_parts` of all rows each.

    Rows of one time are never on both sides; the first rows are never held out.
    """
    ordered = np.sort(times)
    cuts = [int(len(ordered) * (1 - k / n_parts)) for k in range(n_splits, 0, -1)]
    starts = np.unique(ordered[cuts])
    starts = starts[starts > ordered[0]]
    if not starts.size:  # one time has most rows
        starts = np.unique(times)[1:2]
    ends = np.append(starts[1:], np.inf)
    return [
        (np.flatnonzero(times < start), np.flatnonzero((start <= times) & (times < end)))
        for start, end in zip(starts, ends, strict=True)
    ]


def group_splits(groups: NDArray[np.int64], n_folds: int, classes: NDArray | None) -> Pairs:
    """Return folds of whole groups, the smallest part held out first."""
    part = deal_groups(groups, n_folds, classes)
    order = np.argsort(np.bincount(part), kind="stable")
    return [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in order]
