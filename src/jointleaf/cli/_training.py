"""From a file to training rows, with a description of what was detected."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._output import CliError, plural, text_table
from jointleaf.cli._tables.preparing import Preparation
from jointleaf.cli._tables.raw import RawTable
from jointleaf.cli._tables.reading import read_table
from jointleaf.cli._tables.targets import Target, detect_target

__all__ = ["TrainingData", "read_training_data"]

_FEWEST_ROWS = 10


@dataclass(frozen=True)
class TrainingData:
    """Rows with a target.

    Attributes
    ----------
    table : RawTable
        As read, rows without a target left out.
    preparation : Preparation
    target : Target
    X : DataFrame (n, d)
        Floats and categories.
    y : array (n,)
        Floats, or classes.
    n_without_target : int
        Rows that were left out.
    """

    table: RawTable
    preparation: Preparation
    target: Target
    X: Any
    y: NDArray
    n_without_target: int

    @property
    def encoded_y(self) -> NDArray:
        """Targets, or the numbers 0..K-1 of the classes, (n,)."""
        if self.target.task == "regression":
            return self.y
        return np.unique(self.y, return_inverse=True)[1].reshape(-1)

    def describe(self) -> str:
        """Return a text on file, target and columns."""
        target = self.target
        lines = [
            f"{self.table.source}: {plural(len(self.y), 'row')}, "
            f"{plural(len(self.preparation.columns), 'column')} and the target",
            *self.table.notes,
            f"target {target.name!r}: {target.task} ({target.reason})",
        ]
        if self.n_without_target:
            lines.append(f"{plural(self.n_without_target, 'row')} without a target left out")
        rows = [["column", "holds", "missing", ""]]
        for kind in self.preparation.columns:
            missing = int(self.table.column(kind.name).missing.sum())
            holds = kind.kind if kind.is_used else f"left out: {kind.kind}"
            note = kind.note
            if kind.kind == "date":
                note = f"{note}{', ' if note else ''}as {', '.join(kind.parts)}"
            rows.append([kind.name, holds, f"{missing:,}" if missing else "", note])
        return "\n".join([*lines, text_table(rows, right=(2,))])


def read_training_data(args: argparse.Namespace) -> TrainingData:
    """Read a file, detect what its columns and its target hold, and print it."""
    table = read_table(args.data, delimiter=args.delimiter, encoding=args.encoding)
    if args.target in args.drop:
        raise CliError(f"--drop {args.target!r} is the target: drop another column")
    target = detect_target(table.column(args.target, "the target"), table.source, args.task)
    y, present = target.read(table.column(args.target), table.source)
    if not present.all():
        table = table.take(present)
    if len(table) < _FEWEST_ROWS:
        raise CliError(
            f"{table.source}: {plural(len(table), 'row')} with a target: at least {_FEWEST_ROWS} "
            "are needed"
        )
    preparation = Preparation.learn(
        table, target=args.target, categorical=args.categorical, drop=args.drop
    )
    X, _ = preparation.apply(table)
    if target.task == "classification" and len(np.unique(y)) < 2:
        raise CliError(f"{table.source}: the target {target.name!r} has one class only")
    data = TrainingData(table, preparation, target, X, y, int((~present).sum()))
    if not args.json:
        print(data.describe(), flush=True)
    return data
