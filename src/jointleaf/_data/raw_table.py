"""Tables before anyone knows what they mean: named columns of text, numbers or times.

Files that the shell reads and data frames of every library come to this form, so that both are
prepared for a model in the same way.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import as_frame, is_missing
from jointleaf._data.texts import parse_numbers

_MOST_LISTED = 8
_MOST_COMPARED = 1000  # names, and letters of one
_LEAST_SIMILAR = 0.8  # of difflib; "pricee" and "price" have 0.91
#: How a missing value may be written, besides nothing at all.
MISSING_WORDS = (
    "?", "NaN",
    *(form(word) for word in ("na", "n/a", "nan", "null", "none", "#n/a", "<na>")
      for form in (str.lower, str.upper, str.capitalize)),
)  # fmt: skip


@dataclass(frozen=True)
class RawColumn:
    """One column: text (dtype object, None where missing), floats (NaN) or datetime64 (NaT)."""

    name: str
    values: NDArray
    is_category: bool = False  # by its type, whatever the values look like
    words: tuple[str, ...] = ()  # texts that were taken as missing

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return self.values.dtype == object

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where values are missing, (n,)."""
        if self.is_text:
            return np.array([value is None for value in self.values], dtype=bool)
        return np.isnat(self.values) if self.values.dtype.kind == "M" else np.isnan(self.values)

    def numbers(self, notation: str) -> NDArray[np.float64]:
        """Return floats (n,), of text in a notation (see `detect_notation`)."""
        return parse_numbers(self.values, notation) if self.is_text else self.values


@dataclass(frozen=True)
class RawTable:
    """All columns of a table."""

    source: str  # name of the file, or of the argument, for messages
    columns: tuple[RawColumn, ...]
    notes: tuple[str, ...] = ()  # about the reading, such as which delimiter was detected
    hint: str = ""  # what to check where a table has one column only
    elsewhere: str = ""  # where a column may be that is not here

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @cached_property
    def _by_name(self) -> dict[str, RawColumn]:
        """The columns by their names; the first of those that share one."""
        return {column.name: column for column in reversed(self.columns)}

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    def column(self, name: str, option: str = "the column") -> RawColumn:
        """Return a column by its name, or raise an error that lists the names."""
        if name in self._by_name:
            return self._by_name[name]
        if len(self.columns) == 1:
            raise ValueError(
                f"{self.source}: {option} {name!r} is not there and the only column is "
                f"{self.names[0]!r}{self.hint}"
            )
        similar = closest_name(name, self.names)
        known = f"the columns are {listed(self.names)}{self.elsewhere}"
        remedy = f"did you mean {similar!r}?" if similar else known
        raise ValueError(f"{self.source}: {option} {name!r} is not there: {remedy}")

    def take(self, rows: NDArray) -> RawTable:
        """Return some rows, by number or mask."""
        columns = tuple(replace(column, values=column.values[rows]) for column in self.columns)
        return replace(self, columns=columns)


def object_array(values: list) -> NDArray:
    """Return an array (n,) of dtype object."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def listed(names: Sequence[str]) -> str:
    """Return names in quotes, the first few of many."""
    shown = ", ".join(map(repr, names[:_MOST_LISTED]))
    n_others = len(names) - _MOST_LISTED
    return f"{shown} and {n_others} more" if n_others > 0 else shown


def closest_name(name: str, names: Sequence[str]) -> str | None:
    """Return the first name that is the same but for case and spaces, or else a similar one."""
    folded = {_folded(known): known for known in reversed(names)}
    wanted = _folded(name)
    if wanted in folded or max(len(folded), len(wanted)) > _MOST_COMPARED:
        return folded.get(wanted)
    pairs = ((k, wanted[k : k + 2]) for k in range(len(wanted) - 1))
    swapped = {wanted[:k] + pair[::-1] + wanted[k + 2 :] for k, pair in pairs if pair.isalpha()}
    # difflib takes two letters that are swapped for two errors.
    similar = [known for known in folded if known in swapped] or difflib.get_close_matches(
        wanted, folded, 1, _LEAST_SIMILAR
    )
    return folded[similar[0]] if similar else None


def similar_texts(categories: Sequence[str]) -> list[str]:
    """Return at most one remark, on texts that are the same but for case and spaces."""
    groups: dict[str, list[str]] = {}
    for category in categories:
        groups.setdefault(_folded(category), []).append(category)
    similar = [group for group in groups.values() if len(group) > 1]
    return [f"{listed(similar[0])} differ only in case or spaces"] if similar else []


def _folded(text: str) -> str:
    return "".join(text.casefold().split())


# -- from values and data frames -----------------------------------------------------------------


def text_column(
    name: str, values: list[str | None], missing: Collection[str] = MISSING_WORDS
) -> RawColumn:
    """Return a column of texts; empty ones and those that count as missing become None."""
    absent = {"", *missing}
    texts = [None if text is None else text.strip() for text in values]
    words = tuple(sorted({text for text in texts if text and text in absent}))
    return RawColumn(name, object_array([None if t in absent else t for t in texts]), words=words)


def object_column(name: str, values: list, missing: Collection[str] = MISSING_WORDS) -> RawColumn:
    """Return a column of Python objects: floats, times, or text where it is anything else."""
    present = [value for value in values if not is_missing(value)]
    if present and all(isinstance(v, Real) and not isinstance(v, bool) for v in present):
        return RawColumn(name, np.array([np.nan if is_missing(v) else v for v in values], float))
    if present and all(isinstance(v, datetime.date) for v in present):
        times = [None if is_missing(v) else _utc(v) for v in values]
        return RawColumn(name, np.array(times, "datetime64[us]"))
    texts = [None if is_missing(v) else as_text(v) for v in values]
    return text_column(name, texts, missing)


def raw_table(X: Any, missing: Collection[str] = MISSING_WORDS) -> RawTable:
    """Return a data frame of any library, or an array (n, d) with columns x0, x1, ..."""
    frame = as_frame(X)
    if frame is not None:
        columns = [_series_column(frame[name], missing) for name in frame.columns]
        return RawTable("X", tuple(columns))
    columns = []
    for j, values in enumerate(np.asarray(X).T):
        if values.dtype.kind in "biuf":
            columns.append(RawColumn(f"x{j}", values.astype(float)))
        else:
            columns.append(object_column(f"x{j}", values.tolist(), missing))
    return RawTable("X", tuple(columns))


def _series_column(series: nw.Series, missing: Collection[str]) -> RawColumn:
    name, dtype = str(series.name), series.dtype
    if dtype.is_integer() or dtype.is_float():
        numbers = series.cast(nw.Float64).to_numpy()
        return RawColumn(name, np.array(numbers, dtype=float))
    if isinstance(dtype, nw.Datetime | nw.Date):
        return RawColumn(name, series_times(series))
    if isinstance(dtype, nw.Categorical | nw.Enum):
        texts = [None if is_missing(v) else as_text(v) for v in series.to_list()]
        return replace(text_column(name, texts, ()), is_category=True)
    return object_column(name, series.to_list(), missing)


def holds_dates(series: nw.Series) -> bool:
    """Whether a column of Python objects holds dates or times alone, apart from missing values."""
    if series.dtype != nw.Object:
        return False
    present = (value for value in series.to_list() if not is_missing(value))
    first = next(present, None)
    return isinstance(first, datetime.date) and all(isinstance(v, datetime.date) for v in present)


def series_times(series: nw.Series) -> NDArray:
    """Return a column of times or dates as datetime64[us] in UTC, NaT where missing."""
    dtype = series.dtype
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    values = series.to_numpy()
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    return np.array([None if is_missing(v) else _utc(v) for v in values.tolist()], "datetime64[us]")


def _utc(time: Any) -> Any:
    if isinstance(time, datetime.datetime) and time.tzinfo is not None:
        return time.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return time


def as_text(value: Any) -> str:
    """Return a value as it would be written in a CSV file."""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
