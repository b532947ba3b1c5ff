"""What a column, or the target, holds, detected from its values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli import _values as texts
from jointleaf.cli._output import CliError
from jointleaf.cli._tables import RawColumn, listed, similar_texts

#: What columns that the user names can say of rows, besides features and target.
ROLES = ("exposure", "weight")
_MOST_DIFFERENT = 0.5  # share of different texts above which a text column is no category
_MANY_CATEGORIES = 50
_ROW_NAMES = ("id", "index", "row", "row number", "rownumber", "no", "nr", "column 1")
_ID_NAME = re.compile(r"(.*[\W_])?[iI][dD]|.*[a-z0-9]I[dD]")  # id, flat_id, flatId, but not paid


@dataclass(frozen=True)
class ColumnKind:
    """What a column holds and how it is read.

    Its kind is "number", "category", "boolean" or "date", or "identifier", "constant", "empty" or
    "dropped", which are left out of the model, or "exposure" or "weight" of the rows. Its notation
    is how numbers (see `detect_notation`) or dates ("iso", a format of strptime, "time" for a
    column of times) are written.
    """

    name: str
    kind: str
    notation: str = ""
    parts: Sequence[str] = ()  # what a date becomes, some of `DATE_PARTS`
    note: str = ""  # for the user

    @property
    def is_used(self) -> bool:
        """Whether the model sees the column."""
        return self.kind in ("number", "category", "boolean", "date")

    @property
    def holds(self) -> str:
        """What the column holds, in words."""
        return self.kind if self.is_used or self.kind in ROLES else f"left out: {self.kind}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that the model sees."""
        if self.kind == "date":
            return tuple(f"{self.name}: {part}" for part in self.parts)
        return (self.name,) if self.is_used else ()


def detect_kind(column: RawColumn, *, is_category: bool = False) -> ColumnKind:
    """Detect what a column holds; the user may name it categorical, whatever it looks like."""
    name, missing = column.name, column.missing
    if missing.all():
        return ColumnKind(name, "empty", note="no values")
    if is_category:
        return ColumnKind(name, "category", note="as requested")
    if column.values.dtype.kind == "M":
        return _date(column, "time")
    if not column.is_text:
        return _number(column, "plain")
    categories = sorted(set(texts.present(column.values)))
    if len(categories) == 1 and not missing.any():
        return ColumnKind(name, "constant", note=f"always {column.values[0]!r}")
    if texts.parse_booleans(column.values) is not None:
        return ColumnKind(name, "boolean")
    notation = texts.detect_notation(column.values)
    if notation is not None:
        return _number(column, notation)
    form = texts.detect_format(texts.present(column.values))
    return _text(column, categories) if form is None else _date(column, form)


def _number(column: RawColumn, notation: str) -> ColumnKind:
    numbers = column.numbers(notation)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return ColumnKind(column.name, "empty", note="no finite numbers")
    if finite.min() == finite.max() and finite.size == numbers.size:
        return ColumnKind(column.name, "constant", notation, note=f"always {finite[0]:g}")
    steps = np.diff(numbers)
    counts_rows = len(steps) > 1 and bool((steps == 1.0).all())
    if counts_rows and column.name.lower().replace("_", " ") in _ROW_NAMES:
        return ColumnKind(column.name, "identifier", notation, note="counts the rows")
    if _ID_NAME.fullmatch(column.name) and _all_differ(finite):
        note = "named an id, and whole numbers that all differ"
        return ColumnKind(column.name, "identifier", notation, note=note)
    notes = texts.notation_remarks(column.values, notation) if column.is_text else []
    unread = np.flatnonzero(np.isnan(numbers) & ~column.missing)
    if unread.size:
        notes.append(
            f"{unread.size:,} not a number, such as {column.values[unread[0]]!r} in row "
            f"{unread[0] + 1:,}: taken as missing"
        )
    return ColumnKind(column.name, "number", notation, note="; ".join(notes))


def _all_differ(numbers: NDArray) -> bool:
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and len(numbers) > 2 and len(np.unique(numbers)) == len(numbers)


def _date(column: RawColumn, form: str) -> ColumnKind:
    parts = texts.date_parts(texts.parse_dates(column.values, form))
    varying = tuple(p for p in texts.DATE_PARTS if np.nanmin(parts[p]) < np.nanmax(parts[p]))
    if not varying:
        return ColumnKind(column.name, "constant", form, note=f"always {column.values[0]}")
    note = {"iso": "year-month-day", "time": ""}.get(form, _in_words(form))
    return ColumnKind(column.name, "date", form, varying, note)


def _text(column: RawColumn, categories: list[str]) -> ColumnKind:
    n_present, different = int((~column.missing).sum()), len(categories)
    if different == n_present and n_present > 2:
        kind, note = "identifier", "all values differ"
    elif different > _MANY_CATEGORIES and different > _MOST_DIFFERENT * n_present:
        kind, note = "identifier", f"{different:,} different texts"
    else:
        kind = "category"
        note = "; ".join([f"{different:,} categories", *similar_texts(categories)])
    if texts.look_like_numbers(column.values):
        unread = next(v for v in texts.present(column.values) if not texts.are_floats([v]))
        note += f"; looks like numbers, but {unread!r} cannot be read as one"
    return ColumnKind(column.name, kind, note=note)


def _in_words(form: str) -> str:
    words = {
        "Y": "year", "y": "year", "m": "month", "b": "month", "B": "month", "d": "day",
        "H": "hour", "I": "hour", "M": "minute", "S": "second", "p": "am/pm",
    }  # fmt: skip
    return re.sub("%(.)", lambda mark: words[mark[1]], form)


def row_numbers(
    column: RawColumn, kind: ColumnKind, source: str, is_used: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the exposure or weight of used rows; raise where it is missing or cannot be one."""
    role, numbers = kind.kind, column.numbers(kind.notation)
    is_valid = np.isfinite(numbers) & (numbers > 0 if role == "exposure" else numbers >= 0)
    wrong = np.flatnonzero(is_used & ~is_valid)
    if wrong.size:
        row, must = wrong[0], "a positive number" if role == "exposure" else "zero or positive"
        value = "is missing" if column.missing[row] else f"is {column.values[row]!s}"
        raise CliError(
            f"{source}: the {role} {column.name!r} {value} in row {row + 1:,}: it must be {must} "
            "in every row, so correct such rows or leave them out"
        )
    if role == "weight" and not numbers[is_used].any():
        raise CliError(f"{source}: the weight {column.name!r} is zero in every row: nothing counts")
    return numbers[is_used]


def detect_role(column: RawColumn, role: str, source: str) -> ColumnKind:
    """Return the kind of a column with the exposure or weight of rows, which must be numbers."""
    notation: str | None = "plain"
    if column.is_text:
        notation = texts.detect_notation(column.values)
    if notation is None or column.values.dtype.kind == "M":
        raise CliError(
            f"{source}: --{role} {column.name!r} needs a column of numbers, but it holds "
            f"{column.values[~column.missing][:1].tolist()}: name another column"
        )
    return ColumnKind(column.name, role, notation, note="as requested")


# -- the target ----------------------------------------------------------------------------------

Task = Literal["regression", "classification"]

_FEW = 10  # whole numbers with at most so many different values are classes
_MOST_CLASSES = 100
_FEWEST_ROWS = 5  # a class needs, on average, at least so many rows
_REQUESTED = "as requested"


@dataclass(frozen=True)
class Target:
    """What the target column holds."""

    name: str
    task: Task
    notation: str  # how numbers are written; "" for classes that are text
    reason: str  # why it is this task, in a few words
    labels: Sequence[str] = ()  # names of false and true where the classes are these two

    def read(self, column: RawColumn, source: str) -> tuple[NDArray, NDArray[np.bool_]]:
        """Return targets (m,), floats, whole numbers or text, and a mask (n,) of their rows."""
        has_target = ~column.missing
        if self.labels or not self.notation:
            values = column.values[has_target]
            return np.array([self._label(str(value)) for value in values]), has_target
        numbers = column.numbers(self.notation)
        unread = np.flatnonzero(has_target & ~np.isfinite(numbers))
        if unread.size:
            raise CliError(
                f"{source}: the target {self.name!r} holds {column.values[unread[0]]!r} in row "
                f"{unread[0] + 1:,}, which is not a number: correct it, or use --task "
                "classification"
            )
        kind = np.int64 if self.task == "classification" else float
        return numbers[has_target].astype(kind), has_target

    def _label(self, text: str) -> str:
        boolean = texts.parse_boolean(text) if self.labels else None
        return text if boolean is None else self.labels[int(boolean)]


def detect_target(column: RawColumn, source: str, task: Task | None = None) -> Target:
    """Detect the task of a target, or check the one that the user requests."""
    name, missing = column.name, column.missing
    if missing.all():
        raise CliError(f"{source}: the target {name!r} has no values, so no rows are left")
    notation, is_date = "plain", column.values.dtype.kind == "M"
    if column.is_text:
        is_boolean = texts.parse_booleans(column.values) is not None
        notation = "" if is_boolean else texts.detect_notation(column.values) or ""
        is_date = not notation and texts.detect_format(texts.present(column.values)) is not None
    if is_date:
        raise CliError(f"{source}: the target {name!r} holds dates: use numbers or classes")
    if not notation:
        return _text_target(column, source, task)
    numbers = column.numbers(notation)
    different = np.unique(numbers[np.isfinite(numbers)])
    _check_varies(different, name, source)
    whole = bool((different == np.floor(different)).all() and (np.abs(different) < 2**53).all())
    if task is not None:
        is_text = task == "classification" and not whole
        return Target(name, task, "" if is_text else notation, _REQUESTED)
    if whole and len(different) <= _FEW and (~missing).sum() >= _FEWEST_ROWS * len(different):
        reason = f"whole numbers with {len(different)} different values"
        return Target(name, "classification", notation, reason)
    remarks = texts.notation_remarks(column.values, notation) if column.is_text else []
    reason = "; ".join([f"numbers with {len(different):,} different values", *remarks])
    return Target(name, "regression", notation, reason)


def _text_target(column: RawColumn, source: str, task: Task | None) -> Target:
    name = column.name
    if task == "regression":
        raise CliError(
            f"{source}: --task regression needs numbers, but the target {name!r} holds "
            f"{texts.present(column.values)[0]!r}"
        )
    classes = sorted(set(texts.present(column.values)))
    labels = _boolean_labels(column)
    _check_varies(labels or classes, name, source)
    reason = f"text with {len(classes)} different values"
    if labels:
        if len(classes) > 2:
            reason = f"yes or no, written {listed(classes)}; called {listed(labels)}"
        return Target(name, "classification", "", reason, labels)
    n_present = int((~column.missing).sum())
    if len(classes) > _MOST_CLASSES or (len(classes) > 2 and 2 * len(classes) > n_present):
        raise CliError(
            f"{source}: the target {name!r} has {len(classes):,} different texts in {n_present:,} "
            "rows, too many to be classes"
        )
    return Target(name, "classification", "", "; ".join([reason, *similar_texts(classes)]))


def _boolean_labels(column: RawColumn) -> tuple[str, ...]:
    """Return the most frequent words for false and true, where a column holds nothing else."""
    numbers = texts.parse_booleans(column.values)
    if numbers is None:
        return ()
    counts = [Counter(column.values[numbers == value].tolist()) for value in (0.0, 1.0)]
    # Ties go to the first in the alphabet, so that the order of the rows does not matter.
    return tuple(min(c, key=lambda text: (-c[text], text)) for c in counts if c)


def _check_varies(different: Any, name: str, source: str) -> None:
    if len(different) == 1:
        value = different[0]
        is_large = not isinstance(value, str) and abs(value) >= 2**53
        digits = " (as far as 16 digits tell: subtract a constant)" if is_large else ""
        raise CliError(
            f"{source}: the target {name!r} is always {value!s}{digits}: nothing to learn"
        )
