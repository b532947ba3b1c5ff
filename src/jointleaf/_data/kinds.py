"""What a column holds, detected from its values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._data import texts
from jointleaf._data.raw_table import RawColumn, RawTable, listed, similar_texts

#: What columns that the user names can say of rows, besides features and target.
ROLES = ("exposure", "weight")
MOST_DIFFERENT = 0.5  # share of different texts above which a text column is no category
MANY_CATEGORIES = 50
_FEWEST_COUNTED = 3  # rows; two consecutive numbers are no count
_FEWEST_SHUFFLED = 50  # rows; the numbers 1 to n in any order are no coincidence then
_ROW_NAMES = ("id", "index", "row", "row number", "rownumber", "no", "nr", "column 1")
_RANK_NAME = re.compile(r"rank|place|position", re.IGNORECASE)  # counts, but of something else
_ID_NAME = re.compile(r"(.*[\W_])?[iI][dD]|.*[a-z0-9]I[dD]")  # id, flat_id, flatId, but not paid
_USED = ("number", "category", "boolean", "date", "unchanged")
#: All kinds of columns; see `ColumnKind`.
KINDS = (*_USED, "identifier", "copy", "constant", "empty", "dropped", "group", *ROLES)


@dataclass(frozen=True)
class ColumnKind:
    """What a column holds and how it is read.

    Its kind is "number", "category", "boolean" or "date", or "identifier", "copy", "constant",
    "empty" or "dropped", which are left out of the model, or "exposure", "weight" or "group" of the
    rows, or "unchanged" where a model takes it as it is. Its notation is how numbers (see
    `detect_notation`) or dates ("iso", a format of strptime, "time" for a column of times) are
    written.
    """

    name: str
    kind: str
    notation: str = ""
    parts: Sequence[str] = ()  # what a date becomes, some of `DATE_PARTS`
    note: str = ""  # for the user

    @property
    def is_used(self) -> bool:
        """Whether the model sees the column."""
        return self.kind in _USED

    @property
    def can_be_kept(self) -> bool:
        """Whether the column was left out because it looks useless, not because it is."""
        return self.kind in ("identifier", "copy")

    @property
    def holds(self) -> str:
        """What the column holds, in words."""
        if self.is_used or self.kind in ("group", *ROLES):
            return self.kind
        # Such as 20 m2, or 19 Sept 2003.
        is_unread = texts.LIKE_NUMBERS in self.note or texts.LIKE_DATES in self.note
        return f"left out: {'text' if is_unread else self.kind}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns that the model sees."""
        if self.kind == "date":
            return tuple(f"{self.name}: {part}" for part in self.parts)
        return (self.name,) if self.is_used else ()

    def is_day(self, output: str) -> bool:
        """Whether a column that the model sees holds days since 1970-01-01."""
        return self.kind == "date" and output == f"{self.name}: {texts.DATE_PARTS[0]}"


def detect_kind(
    column: RawColumn,
    *,
    is_category: bool = False,
    is_kept: bool = False,
    is_counter: bool = False,
    target: RawColumn | None = None,
) -> ColumnKind:
    """Detect what a column holds.

    The user may name it categorical, whatever it looks like, or have it kept although it counts the
    rows, names them, or is equal to the target. With `is_counter` it is known to count the rows of
    a table of which these are a part.
    """
    name, missing = column.name, column.missing
    if missing.all():
        return ColumnKind(name, "empty", note="no values")
    if not is_kept and target is not None and _are_equal(column, target):
        return ColumnKind(name, "copy", note="equal to the target in every row")
    if is_category or column.is_category:
        note = "as requested" if is_category else _counted(len(set(column.values) - {None}))
        return ColumnKind(name, "category", note=note)
    if column.values.dtype.kind == "M":
        return _date(column, "time")
    if not column.is_text:
        return _number(column, "plain", is_kept, is_counter)
    categories = sorted(set(texts.present(column.values)))
    if len(categories) == 1 and not missing.any():
        return ColumnKind(name, "constant", note=f"always {column.values[0]!r}")
    if texts.parse_booleans(column.values) is not None:
        return ColumnKind(name, "boolean")
    notation = texts.detect_notation(column.values)
    if notation is not None:
        return _number(column, notation, is_kept, is_counter)
    form = texts.detect_format(texts.present(column.values))
    return _text(column, categories, is_kept) if form is None else _date(column, form)


def _are_equal(column: RawColumn, target: RawColumn) -> bool:
    """Whether two columns hold the same in every row, numbers however they are written."""
    if "M" in (column.values.dtype.kind, target.values.dtype.kind):
        return False
    if len(column.values) < _FEWEST_COUNTED or (column.missing != target.missing).any():
        return False
    notations = [
        texts.detect_notation(c.values) if c.is_text else "plain" for c in (column, target)
    ]
    if None in notations:
        return column.is_text and target.is_text and bool((column.values == target.values).all())
    numbers, targets = column.numbers(str(notations[0])), target.numbers(str(notations[1]))
    return np.array_equal(numbers, targets, equal_nan=True)


def _number(column: RawColumn, notation: str, is_kept: bool, is_counter: bool) -> ColumnKind:
    numbers = column.numbers(notation)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return ColumnKind(column.name, "empty", note="no finite numbers")
    if finite.min() == finite.max() and finite.size == numbers.size:
        return ColumnKind(column.name, "constant", notation, note=f"always {finite[0]:g}")
    notes = texts.notation_remarks(column.values, notation) if column.is_text else []
    if not is_kept and (is_counter or _is_counter(column.name, numbers)):
        is_in_order = is_counter or counts_rows(numbers)
        note = (
            "counts the rows" if is_in_order else "counts the rows, in another order, or ranks them"
        )
        return ColumnKind(column.name, "identifier", notation, note=note)
    if counts_rows(numbers):
        notes.append("counts the rows")
    elif not is_kept and _ID_NAME.fullmatch(column.name) and _all_differ(finite):
        note = "named an id, and whole numbers that all differ"
        return ColumnKind(column.name, "identifier", notation, note=note)
    days = texts.looks_like_days(finite)
    if days:
        notes.append(f"looks like {days}: to have dates, write them as 2003-09-19")
    notes += _unread(column, numbers, "a number")
    return ColumnKind(column.name, "number", notation, note="; ".join(notes))


def _unread(column: RawColumn, numbers: NDArray[np.float64], what: str) -> list[str]:
    """Return at most one remark, on values of a column that are not read."""
    unread = np.flatnonzero(np.isnan(numbers) & ~column.missing)
    if not unread.size:
        return []
    return [
        f"{unread.size:,} not {what}, such as {column.values[unread[0]]!r} in row "
        f"{unread[0] + 1:,}: taken as missing"
    ]


def counts_rows(numbers: NDArray) -> bool:
    """Whether numbers (n,) count the rows in their order, from any number on."""
    return len(numbers) >= _FEWEST_COUNTED and bool((np.diff(numbers) == 1.0).all())


def row_counters(table: RawTable) -> set[str]:
    """Return the names of the columns of plain numbers that count all rows of a table."""
    return {
        column.name
        for column in table.columns
        if _holds_plain_numbers(column) and _is_counter(column.name, column.numbers("plain"))
    }


def _holds_plain_numbers(column: RawColumn) -> bool:
    if not column.is_text:
        return column.values.dtype.kind != "M"
    return not column.missing.any() and texts.are_floats(column.values.tolist())


def _is_counter(name: str, numbers: NDArray) -> bool:
    """Whether numbers (n,) count the rows: from 0 or 1 on, or under a name such as "nr".

    Others, such as years, may well be features. Many rows may be in any order, unless the name says
    that these are ranks, and with such a name some may be missing between them, as in the training
    part of a shuffled table.
    """
    is_name = name.lower().replace("_", " ") in _ROW_NAMES
    if counts_rows(numbers):
        return is_name or numbers[0] in (0.0, 1.0)
    is_rank = _RANK_NAME.search(name) is not None
    if is_rank or len(numbers) < _FEWEST_SHUFFLED or not _all_differ(numbers):
        return False
    low, span = numbers.min(), np.ptp(numbers) + 1
    return span <= 2 * len(numbers) if is_name else low in (0.0, 1.0) and span == len(numbers)


def _all_differ(numbers: NDArray) -> bool:
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and len(numbers) > 2 and len(np.unique(numbers)) == len(numbers)


def _date(column: RawColumn, form: str) -> ColumnKind:
    seconds = texts.parse_dates(column.values, form)
    varying = varying_parts(seconds)
    if not varying:
        return ColumnKind(column.name, "constant", form, note=f"always {column.values[0]}")
    notes = filter(None, [texts.form_in_words(form), *_unread(column, seconds, "a date")])
    return ColumnKind(column.name, "date", form, varying, "; ".join(notes))


def varying_parts(seconds: NDArray[np.float64]) -> tuple[str, ...]:
    """Return those of `DATE_PARTS` that differ between times (n,) in seconds."""
    known = seconds[~np.isnan(seconds)]
    parts = texts.date_parts(known) if known.size else {}
    return tuple(part for part, values in parts.items() if values.min() < values.max())


def _text(column: RawColumn, categories: list[str], is_kept: bool) -> ColumnKind:
    n_present, different = int((~column.missing).sum()), len(categories)
    if not is_kept and different == n_present and n_present > 2:
        kind, note = "identifier", "all values differ"
    elif not is_kept and different > MANY_CATEGORIES and different > MOST_DIFFERENT * n_present:
        kind, note = "identifier", f"{different:,} different texts"
    else:
        kind = "category"
        # "none" may be the name of a category, unlike the other words.
        words = [word for word in column.words if word.lower() == "none"]
        missing = [f"{listed(words)} counts as missing"] if words else []
        note = "; ".join([_counted(different), *missing, *similar_texts(categories)])
    remarks = texts.date_like_remarks(categories)
    if not remarks and texts.look_like_numbers(column.values):
        remarks = [texts.number_like_remark(column.values)]
    note = "; ".join([note, *remarks])
    return ColumnKind(column.name, kind, note=note)


def _counted(n_categories: int) -> str:
    return "1 category" if n_categories == 1 else f"{n_categories:,} categories"
