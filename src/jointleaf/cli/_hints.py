"""Hints: one line where what a table holds suggests another option."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Loss
from jointleaf._data import texts
from jointleaf._data.kinds import ColumnKind
from jointleaf._data.raw_table import RawColumn, RawTable, listed
from jointleaf.cli._columns import Target

if TYPE_CHECKING:
    from jointleaf.cli._preparation import Rows

_FEWEST_TIMES = 10  # different ones, that rows are in the order of
_FEWEST_ROWS = 10  # on both sides, which a column tells apart
_ZEROS = 0.02  # part of counts that are zero, at least
_FEWEST_LABELS, _DIFFERENT = 100, 0.98  # numbers that may be identifiers, part that is different


def table_hints(
    args: argparse.Namespace,
    table: RawTable,
    kinds: Sequence[ColumnKind],
    target: Target,
    rows: Rows,
    loss: Loss | None,
) -> tuple[str, ...]:
    """Return hints on rows with targets; the table of a folder is a sample without an order."""
    y = rows.y
    hints = _leak_hint(rows, target)
    labels = [
        kind.name
        for kind in kinds
        if kind.kind == "number"
        and kind.name not in (*args.keep, args.time)
        and _are_labels(table.column(kind.name).numbers(kind.notation))
    ]
    if labels:
        hints.append(
            f"{listed(labels)} may name the rows (whole numbers of one length, nearly all "
            "different): --drop identifiers"
        )
    same = [] if rows.groups is None else _names_of_groups(rows)
    if same:
        verb = "names" if len(same) == 1 else "name"
        hints.append(
            f"{listed(same)} {verb} the groups of {args.group!r} as well: --drop what does"
        )
    if args.group is None and args.time is None and not os.path.isdir(args.data):
        dates = [kind for kind in kinds if kind.kind == "date"]
        ordered = [k.name for k in dates if _is_in_order(table.column(k.name), k.notation)][:1]
        hints += [
            f"rows are in the order of {name!r}: where new rows come later, use --time {name}"
            for name in ordered
        ]
    if loss is None and target.notation and _are_counts(y):
        hints.append(f"{target.name!r} holds whole numbers from 0: for counts use --loss poisson")
    return tuple(hints)


def _is_in_order(column: RawColumn, notation: str) -> bool:
    """Whether the times of all rows rise or fall."""
    if column.missing.any():
        return False
    times = texts.parse_dates(column.values, notation)
    steps = np.diff(times)
    is_monotone = bool((steps >= 0).all() or (steps <= 0).all())
    return is_monotone and len(np.unique(times)) >= _FEWEST_TIMES


def _are_labels(numbers: NDArray) -> bool:
    """Whether numbers (n,) look like identifiers: whole, of one length, nearly all different.

    Shorter ones than these may well be amounts, longer ones Unix times; days such as 20030919 are
    no identifiers either.
    """
    if len(numbers) < _FEWEST_LABELS or not (numbers == np.floor(numbers)).all():
        return False
    low, high = numbers.min(), numbers.max()
    if not 1e5 <= low <= high < 1e9 or len(f"{low:.0f}") != len(f"{high:.0f}"):
        return False
    year, month, day = numbers // 10_000, numbers // 100 % 100, numbers % 100
    are_days = (year > 1800) & (year < 2200) & (month <= 12) & (day <= 31)
    return not are_days.all() and len(np.unique(numbers)) >= _DIFFERENT * len(numbers)


def _are_counts(y: NDArray) -> bool:
    """Whether targets look like counts: whole numbers from 0 on, some zero, few of them large.

    Codes of classes do not: those of counts are the rarer the larger they are.
    """
    if y.dtype.kind not in "iuf" or y.min() != 0 or (y % 1 != 0).any() or len(np.unique(y)) < 3:
        return False
    if y.dtype.kind in "iu":
        values, counts = np.unique(y, return_counts=True)
        return bool(values[-1] == len(values) - 1 and (np.diff(counts) < 0).all())
    return bool((y == 0).mean() >= _ZEROS and y.mean() > np.median(y))


def _names_of_groups(rows: Rows) -> list[str]:
    """Return the columns of categories that differ exactly where the groups do."""
    groups = np.unique(np.asarray(rows.groups).astype(str), return_inverse=True)[1]
    names = []
    for name in rows.X.columns:
        if rows.X[name].dtype.kind in "fM":
            continue
        codes = rows.X[name].factorize()[0]
        n_pairs = len(set(zip(codes.tolist(), groups.tolist(), strict=True)))
        if n_pairs == groups.max() + 1 == codes.max() + 1:
            names.append(str(name))
    return names


def _leak_hint(rows: Rows, target: Target) -> list[str]:
    """Return a hint on columns that are 0 or missing exactly where targets are one value."""
    y = rows.y
    values = np.unique(y) if target.task == "classification" else np.zeros(1)
    sides = {(y == value).tobytes(): value for value in values.tolist()}
    names, found = [], set()
    for name in rows.X.columns:
        missing = rows.X[name].isna().to_numpy()
        is_number = rows.X[name].dtype.kind == "f"
        blank = missing | (rows.X[name].to_numpy() == 0) if is_number else missing
        if not _FEWEST_ROWS <= blank.sum() <= len(y) - _FEWEST_ROWS:
            continue
        known = {sides[side.tobytes()] for side in (blank, ~blank) if side.tobytes() in sides}
        if known:
            names.append(str(name))
            found |= known
    if not names:
        return []
    of = f"{min(found):g}" if target.task == "regression" else " or ".join(map(str, sorted(found)))
    return [
        f"whether {listed(names)} {'is' if len(names) == 1 else 'are'} 0 or missing tells whether "
        f"{target.name!r} is {of}: --drop what is known only afterwards"
    ]
