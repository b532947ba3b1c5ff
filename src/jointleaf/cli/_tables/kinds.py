"""What a column holds, detected from its values."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._tables.dates import PARTS, date_parts, detect_format, parse_dates
from jointleaf.cli._tables.numbers import (
    are_floats,
    detect_notation,
    look_like_numbers,
    notation_remarks,
    parse_booleans,
    parse_numbers,
)
from jointleaf.cli._tables.raw import RawColumn, similar_texts

__all__ = ["ColumnKind", "detect_kind"]

_MOST_DIFFERENT = 0.5  # share of different texts above which a text column is no category
_MANY_CATEGORIES = 50
_ROW_NAMES = ("id", "index", "row", "row number", "rownumber", "no", "nr", "column 1")
_ID_NAME = re.compile(r"(.*[\W_])?[iI][dD]|.*[a-z0-9]I[dD]")  # id, flat_id, flatId, but not paid


@dataclass(frozen=True)
class ColumnKind:
    """What a column holds and how it is read.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "boolean", "date", "identifier", "constant", "empty", "dropped"}
        The last four are left out of the model.
    notation : str
        How numbers (see `detect_notation`) or dates ("iso", a format of strptime, "time" for a
        column of times) are written.
    parts : tuple of str
        What a date becomes, see `jointleaf.cli._tables.dates`.
    note : str
        For the user.
    """

    name: str
    kind: str
    notation: str = ""
    parts: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_used(self) -> bool:
        """Whether the model sees the column."""
        return self.kind in ("number", "category", "boolean", "date")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that the model sees."""
        if self.kind == "date":
            return tuple(f"{self.name}: {part}" for part in self.parts)
        return (self.name,) if self.is_used else ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return {**asdict(self), "parts": list(self.parts)}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> ColumnKind:
        """Return the kind that `to_dict` described."""
        return cls(**{**record, "parts": tuple(record["parts"])})


def detect_kind(column: RawColumn, *, is_category: bool = False) -> ColumnKind:
    """Detect what a column holds.

    Parameters
    ----------
    column : RawColumn
    is_category : bool
        Whether the user names it categorical, whatever its values look like.
    """
    name, missing = column.name, column.missing
    if missing.all():
        return ColumnKind(name, "empty", note="no values")
    if is_category:
        return ColumnKind(name, "category", note="as requested")
    if column.values.dtype.kind == "M":
        return _date(column, "time")
    if not column.is_text:
        return _number(column, "plain")
    categories = sorted({value for value in column.values if value is not None})
    if len(categories) == 1 and not missing.any():
        return ColumnKind(name, "constant", note=f"always {column.values[0]!r}")
    if parse_booleans(column.values) is not None:
        return ColumnKind(name, "boolean")
    notation = detect_notation(column.values)
    if notation is not None:
        return _number(column, notation)
    form = detect_format([value for value in column.values if value is not None])
    return _text(column, categories) if form is None else _date(column, form)


def _number(column: RawColumn, notation: str) -> ColumnKind:
    is_text = column.is_text
    numbers = parse_numbers(column.values, notation) if is_text else column.values
    present = numbers[np.isfinite(numbers)]
    if not present.size:
        return ColumnKind(column.name, "empty", note="no finite numbers")
    if present.min() == present.max() and present.size == numbers.size:
        return ColumnKind(column.name, "constant", notation, note=f"always {present[0]:g}")
    steps = np.diff(numbers)
    counts_rows = len(steps) > 1 and bool((steps == 1.0).all())
    if counts_rows and column.name.lower().replace("_", " ") in _ROW_NAMES:
        return ColumnKind(column.name, "identifier", notation, note="counts the rows")
    if _ID_NAME.fullmatch(column.name) and _all_differ(present):
        note = "named an id, and whole numbers that all differ"
        return ColumnKind(column.name, "identifier", notation, note=note)
    notes = notation_remarks(column.values, notation) if is_text else []
    unread = np.flatnonzero(np.isnan(numbers) & ~column.missing)
    if unread.size:
        notes.append(
            f"{unread.size:,} not a number, such as {column.values[unread[0]]!r} in row "
            f"{unread[0] + 1:,}: taken as missing"
        )
    return ColumnKind(column.name, "number", notation, note="; ".join(notes))


def _all_differ(numbers: NDArray) -> bool:
    """Whether at least three whole numbers (n,) are all different."""
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and len(numbers) > 2 and len(np.unique(numbers)) == len(numbers)


def _date(column: RawColumn, form: str) -> ColumnKind:
    parts = date_parts(parse_dates(column.values, form))
    varying = tuple(p for p in PARTS if np.nanmin(parts[p]) < np.nanmax(parts[p]))
    if not varying:
        return ColumnKind(column.name, "constant", form, note=f"always {column.values[0]}")
    note = {"iso": "year-month-day", "time": ""}.get(form, _in_words(form))
    return ColumnKind(column.name, "date", form, varying, note)


def _text(column: RawColumn, categories: list[str]) -> ColumnKind:
    present, different = int((~column.missing).sum()), len(categories)
    if different == present and present > 2:
        kind, note = "identifier", "all values differ"
    elif different > _MANY_CATEGORIES and different > _MOST_DIFFERENT * present:
        kind, note = "identifier", f"{different:,} different texts"
    else:
        kind = "category"
        note = "; ".join([f"{different:,} categories", *similar_texts(categories)])
    if look_like_numbers(column.values):
        unread = [v for v in column.values if v is not None and not are_floats([v])]
        note += f"; looks like numbers, but {unread[0]!r} cannot be read as one"
    return ColumnKind(column.name, kind, note=note)


def _in_words(form: str) -> str:
    """Return a format of strptime in words."""
    words = {
        "%Y": "year", "%y": "year", "%m": "month", "%b": "month", "%B": "month", "%d": "day",
        "%H": "hour", "%I": "hour", "%M": "minute", "%S": "second", "%p": "am/pm",
    }  # fmt: skip
    for mark, word in words.items():
        form = form.replace(mark, word)
    return form
