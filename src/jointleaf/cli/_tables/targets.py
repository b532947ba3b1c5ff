"""What the target means: numbers for regression or classes for classification."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._output import CliError
from jointleaf.cli._tables.dates import detect_format
from jointleaf.cli._tables.numbers import (
    detect_notation,
    notation_remarks,
    parse_boolean,
    parse_booleans,
    parse_numbers,
)
from jointleaf.cli._tables.raw import RawColumn, listed, similar_texts

__all__ = ["Target", "detect_target"]

Task = Literal["regression", "classification"]

_FEW = 10  # whole numbers with at most so many different values are classes
_MOST_CLASSES = 100
_FEWEST_ROWS = 5  # a class needs, on average, at least so many rows
_REQUESTED = "as requested"


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
        Names of false and true where the classes are these two; empty for others.
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
        present : bool array (n,)
            These rows.
        """
        present = ~column.missing
        values = column.values[present]
        if self.labels or not self.notation:
            return np.array([self._label(str(value)) for value in values]), present
        numbers = parse_numbers(values, self.notation) if column.is_text else values.astype(float)
        unread = np.flatnonzero(~np.isfinite(numbers))
        if unread.size:
            row = int(np.flatnonzero(present)[unread[0]]) + 1
            raise CliError(
                f"{source}: the target {self.name!r} holds {values[unread[0]]!r} in row {row:,}, "
                "which is not a number: correct it, or use --task classification"
            )
        return numbers.astype(np.int64) if self.task == "classification" else numbers, present

    def _label(self, text: str) -> str:
        """Return the name of a class of text."""
        boolean = parse_boolean(text) if self.labels else None
        return text if boolean is None else self.labels[int(boolean)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return {**asdict(self), "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Target:
        """Return the target that `to_dict` described; further entries are ignored."""
        fields = {name: record[name] for name in ("name", "task", "notation", "reason")}
        return cls(**fields, labels=tuple(record["labels"]))


def detect_target(column: RawColumn, source: str, task: Task | None = None) -> Target:
    """Detect the task of a target, or check the one that the user requests."""
    name, missing = column.name, column.missing
    if missing.all():
        raise CliError(f"{source}: the target {name!r} has no values, so no rows are left")
    is_boolean = column.is_text and parse_booleans(column.values) is not None
    notation = "" if is_boolean else "plain"
    if column.is_text and not is_boolean:
        notation = detect_notation(column.values) or ""
    if column.values.dtype.kind == "M" or (
        column.is_text and not notation and detect_format([v for v in column.values if v])
    ):
        raise CliError(f"{source}: the target {name!r} holds dates: use numbers or classes")
    if not notation:
        return _text_target(column, source, task)
    numbers = column.values if not column.is_text else parse_numbers(column.values, notation)
    different = np.unique(numbers[np.isfinite(numbers)])
    _check_varies(different, name, source)
    whole = bool((different == np.floor(different)).all() and (np.abs(different) < 2**53).all())
    if task is not None:
        is_text = task == "classification" and not whole
        return Target(name, task, "" if is_text else notation, _REQUESTED)
    if whole and len(different) <= _FEW and (~missing).sum() >= _FEWEST_ROWS * len(different):
        reason = f"whole numbers with {len(different)} different values"
        return Target(name, "classification", notation, reason)
    remarks = notation_remarks(column.values, notation) if column.is_text else []
    reason = "; ".join([f"numbers with {len(different):,} different values", *remarks])
    return Target(name, "regression", notation, reason)


def _text_target(column: RawColumn, source: str, task: Task | None) -> Target:
    name = column.name
    if task == "regression":
        example = next(v for v in column.values if v is not None)
        raise CliError(
            f"{source}: --task regression needs numbers, but the target {name!r} holds {example!r}"
        )
    classes = np.unique([v for v in column.values if v is not None]).tolist()
    labels = _boolean_labels(column)
    _check_varies(labels or classes, name, source)
    reason = f"text with {len(classes)} different values"
    if labels:
        if len(classes) > 2:
            reason = f"yes or no, written {listed(classes)}; called {listed(labels)}"
        return Target(name, "classification", "", reason, labels)
    present = int((~column.missing).sum())
    if len(classes) > _MOST_CLASSES or (len(classes) > 2 and 2 * len(classes) > present):
        raise CliError(
            f"{source}: the target {name!r} has {len(classes):,} different texts in {present:,} "
            "rows, too many to be classes"
        )
    return Target(name, "classification", "", "; ".join([reason, *similar_texts(classes)]))


def _boolean_labels(column: RawColumn) -> tuple[str, ...]:
    """Return the most frequent words for false and true, where a column holds nothing else."""
    numbers = parse_booleans(column.values)
    if numbers is None:
        return ()
    counts = [Counter(column.values[numbers == value].tolist()) for value in (0.0, 1.0)]
    # Ties go to the first in the alphabet, so that the order of the rows does not matter.
    return tuple(min(c, key=lambda text: (-c[text], text)) for c in counts if c)


def _check_varies(different: Any, name: str, source: str) -> None:
    if len(different) == 1:
        raise CliError(
            f"{source}: the target {name!r} is always {different[0]!s}: nothing to learn"
        )
