"""What a column holds, found from its values."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._tables.dates import PARTS, date_parts, find_format, parse_dates
from jointleaf.cli._tables.numbers import (
    find_notation,
    look_like_numbers,
    notation_remarks,
    parse_booleans,
    parse_numbers,
)
from jointleaf.cli._tables.raw import RawColumn, tell_alike

__all__ = ["ColumnKind", "detect_kind"]

_MOST_DIFFERENT = 0.5  # share of different texts above which a text column is no category
_MANY_LEVELS = 50
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
        How numbers (see `find_notation`) or dates ("iso", a format of strptime,
        "time" for a column of times) are written.
    parts : tuple of str
        What a date becomes, see `jointleaf.cli._tables.dates`.
    note : str
        What is worth telling the user.
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
        """Give plain values, for a file."""
        return {**asdict(self), "parts": list(self.parts)}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> ColumnKind:
        """Take plain values from a file."""
        return cls(**{**record, "parts": tuple(record["parts"])})


def detect_kind(column: RawColumn, *, is_category: bool = False) -> ColumnKind:
    """Find out what a column holds.

    Parameters
    ----------
    column : RawColumn
    is_category : bool
        Whether the user says that its values, however they look, are names of categories.
    """
    name, missing = column.name, column.missing
    if missing.all():
        return ColumnKind(name, "empty", note="no values")
    if is_category:
        return ColumnKind(name, "category", note="as you said")
    if column.values.dtype.kind == "M":
        return _date(column, "time")
    if not column.is_text:
        return _number(column, "plain")
    different = len({value for value in column.values if value is not None})
    if different == 1 and not missing.any():
        return ColumnKind(name, "constant", note=f"always {column.values[0]!r}")
    if parse_booleans(column.values) is not None:
        return ColumnKind(name, "boolean")
    notation = find_notation(column.values)
    if notation is not None:
        return _number(column, notation)
    form = find_format([value for value in column.values if value is not None])
    return _text(column, different) if form is None else _date(column, form)


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
    others = np.flatnonzero(np.isnan(numbers) & ~column.missing)
    if others.size:
        notes.append(
            f"{others.size:,} not a number, such as {column.values[others[0]]!r} in row "
            f"{others[0] + 1:,}: taken as missing"
        )
    return ColumnKind(column.name, "number", notation, note="; ".join(notes))


def _all_differ(numbers: NDArray) -> bool:
    """Whether at least three whole numbers (n,) are all different."""
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and len(numbers) > 2 and len(np.unique(numbers)) == len(numbers)


def _date(column: RawColumn, form: str) -> ColumnKind:
    if form == "time":
        seconds = column.values.astype("datetime64[us]").astype(np.int64) / 1e6
        seconds[column.missing] = np.nan
    else:
        seconds = parse_dates(column.values, form)
    parts = date_parts(seconds)
    varying = tuple(p for p in PARTS if np.nanmin(parts[p]) < np.nanmax(parts[p]))
    if not varying:
        return ColumnKind(column.name, "constant", form, note=f"always {column.values[0]}")
    note = {"iso": "year-month-day", "time": ""}.get(form, _in_words(form))
    return ColumnKind(column.name, "date", form, varying, note)


def _text(column: RawColumn, different: int) -> ColumnKind:
    present = int((~column.missing).sum())
    kind, note = "category", f"{different:,} levels"
    if different == present and present > 2:
        kind, note = "identifier", "all values differ"
    elif different > _MANY_LEVELS and different > _MOST_DIFFERENT * present:
        kind, note = "identifier", f"{different:,} different texts"
    if kind == "category":
        levels = sorted({value for value in column.values if value is not None})
        note = "; ".join([note, *tell_alike(levels)])
    if look_like_numbers(column.values):
        strange = [v for v in column.values if v is not None and not _is_plain(v)]
        example = strange[0] if strange else column.values[~column.missing][0]
        note += f"; looks like numbers, but {example!r} cannot be read as one"
    return ColumnKind(column.name, kind, note=note)


def _is_plain(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _in_words(form: str) -> str:
    """Say a format of strptime in words."""
    words = {
        "%Y": "year", "%y": "year", "%m": "month", "%b": "month", "%B": "month", "%d": "day",
        "%H": "hour", "%I": "hour", "%M": "minute", "%S": "second", "%p": "am/pm",
    }  # fmt: skip
    for mark, word in words.items():
        form = form.replace(mark, word)
    return form
