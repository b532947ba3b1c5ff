"""What the target means: numbers to estimate or classes to tell apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._errors import ShellError
from jointleaf.cli._tables.dates import find_format
from jointleaf.cli._tables.numbers import (
    find_notation,
    notation_remarks,
    parse_booleans,
    parse_numbers,
    read_boolean,
)
from jointleaf.cli._tables.raw import RawColumn, listed, tell_alike

__all__ = ["Target", "detect_target"]

Task = Literal["regression", "classification"]

_FEW = 10  # whole numbers with at most so many different values are classes
_MOST_CLASSES = 100
_FEWEST_ROWS = 5  # a class needs, on average, at least so many rows


@dataclass(frozen=True)
class Target:
    """What the target column holds.

    Attributes
    ----------
    name : str
    task : {"regression", "classification"}
    notation : str
        How numbers are written; "" for classes that are text.
    reason : str
        Why it is this task, in a few words.
    labels : tuple of two str
        How false and true are called where the classes are these two; empty for others.
    """

    name: str
    task: Task
    notation: str
    reason: str
    labels: tuple[str, ...] = ()

    def read(self, column: RawColumn, source: str) -> tuple[NDArray, NDArray[np.bool_]]:
        """Read targets.

        Returns
        -------
        y : array (m,)
            Floats, whole numbers or text, of the rows that have a target.
        has : bool array (n,)
            These rows.
        """
        has = ~column.missing
        values = column.values[has]
        if self.labels:
            known = [read_boolean(str(v)) for v in values]
            texts = [
                str(v) if k is None else self.labels[int(k)]
                for v, k in zip(values, known, strict=True)
            ]
            return np.array(texts), has
        if not self.notation:
            return np.array([str(v) for v in values]), has
        numbers = parse_numbers(values, self.notation) if column.is_text else values.astype(float)
        good = np.isfinite(numbers)
        if not good.all():
            k = int(np.flatnonzero(~good)[0])
            raise ShellError(
                f"{source}: the target {self.name!r} holds {values[k]!r} in row "
                f"{int(np.flatnonzero(has)[k]) + 1:,}, which is not a number; mend it, or say "
                "--task classification"
            )
        return numbers.astype(np.int64) if self.task == "classification" else numbers, has

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, for a file."""
        return {**asdict(self), "labels": list(self.labels)}


def detect_target(column: RawColumn, source: str, task: Task | None = None) -> Target:
    """Find the task of a target, or check the one that the user wants."""
    name, missing = column.name, column.missing
    if missing.all():
        raise ShellError(f"{source}: the target {name!r} has no values, so no rows are left")
    is_bool = column.is_text and parse_booleans(column.values) is not None
    notation = "" if is_bool else "plain"
    if column.is_text and not is_bool:
        notation = find_notation(column.values) or ""
    if column.values.dtype.kind == "M" or (
        column.is_text and not notation and find_format([v for v in column.values if v]) is not None
    ):
        raise ShellError(
            f"{source}: the target {name!r} holds dates; only numbers and classes work"
        )
    if not notation:
        return _classes_of_text(column, source, task)
    numbers = column.values if not column.is_text else parse_numbers(column.values, notation)
    levels = np.unique(numbers[np.isfinite(numbers)])
    _check_levels(levels, name, source)
    whole = bool((levels == np.floor(levels)).all()) and bool((np.abs(levels) < 2**53).all())
    if task == "classification" and not whole:
        return Target(name, task, "", "as you said")
    few = len(levels) <= _FEW and int((~missing).sum()) >= _FEWEST_ROWS * len(levels)
    if task is not None:
        return Target(name, task, notation, "as you said")
    if whole and few:
        reason = f"whole numbers with {len(levels)} different values"
        return Target(name, "classification", notation, reason)
    remarks = notation_remarks(column.values, notation) if column.is_text else []
    reason = "; ".join([f"numbers with {len(levels):,} different values", *remarks])
    return Target(name, "regression", notation, reason)


def _classes_of_text(column: RawColumn, source: str, task: Task | None) -> Target:
    name = column.name
    if task == "regression":
        example = next(v for v in column.values if v is not None)
        raise ShellError(
            f"{source}: --task regression needs numbers, but the target {name!r} holds {example!r}"
        )
    levels = np.unique([v for v in column.values if v is not None])
    labels = _boolean_labels(column)
    _check_levels(np.array(labels) if labels else levels, name, source)
    if labels:
        return _yes_or_no(name, levels.tolist(), labels)
    present = int((~column.missing).sum())
    if len(levels) > _MOST_CLASSES or (len(levels) > 2 and 2 * len(levels) > present):
        raise ShellError(
            f"{source}: the target {name!r} has {len(levels):,} different texts in {present:,} "
            "rows, too many to be classes"
        )
    reason = "; ".join([f"text with {len(levels)} different values", *tell_alike(levels.tolist())])
    return Target(name, "classification", "", reason)


def _yes_or_no(name: str, levels: list[str], labels: tuple[str, ...]) -> Target:
    """Two classes, however they are written."""
    reason = f"text with {len(levels)} different values"
    if len(levels) > 2:
        reason = f"yes or no, written {listed(levels)}; called {listed(labels)}"
    return Target(name, "classification", "", reason, labels)


def _boolean_labels(column: RawColumn) -> tuple[str, ...]:
    """The most frequent ways to write false and true, where a column holds nothing else."""
    numbers = parse_booleans(column.values)
    if numbers is None:
        return ()
    counts = [Counter(column.values[numbers == value].tolist()) for value in (0.0, 1.0)]
    # Ties go to the first in the alphabet, so that the order of the rows says nothing.
    return tuple(min(c, key=lambda text: (-c[text], text)) for c in counts if c)


def _check_levels(levels: NDArray, name: str, source: str) -> None:
    if len(levels) == 1:
        raise ShellError(f"{source}: the target {name!r} is always {levels[0]!s}: nothing to learn")
