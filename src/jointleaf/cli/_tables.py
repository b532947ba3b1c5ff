"""Tables as they are read from CSV or Parquet: named columns of text, numbers or times."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._output import CliError, reading
from jointleaf.cli._values import are_floats, parse_numbers

_MOST_LISTED = 8
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE_LINES = 50
#: How a missing value may be written.
_MISSING = frozenset(
    ["", "?"]
    + [form(word) for word in ("na", "n/a", "nan", "null", "none", "#n/a", "<na>")
       for form in (str.lower, str.upper, str.capitalize)]
    + ["NaN"]
)  # fmt: skip


@dataclass(frozen=True)
class RawColumn:
    """One column: text (dtype object, None where missing), floats (NaN) or datetime64 (NaT)."""

    name: str
    values: NDArray

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
    """All columns of a file."""

    source: str  # name of the file, for messages
    columns: tuple[RawColumn, ...]
    notes: tuple[str, ...] = ()  # about the reading, such as which delimiter was detected

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @cached_property
    def _by_name(self) -> dict[str, RawColumn]:
        """The columns by their names; the first of those that share one."""
        return {column.name: column for column in reversed(self.columns)}

    def column(self, name: str, option: str = "the column") -> RawColumn:
        """Return a column by its name, or raise an error that lists the names."""
        if name in self._by_name:
            return self._by_name[name]
        if len(self.columns) == 1:
            raise CliError(
                f"{self.source}: {option} {name!r} is not there and the only column is "
                f"{self.names[0]!r}: check the --delimiter"
            )
        similar = closest_name(name, self.names)
        hint = f"did you mean {similar!r}?" if similar else f"the columns are {listed(self.names)}"
        raise CliError(f"{self.source}: {option} {name!r} is not there: {hint}")

    def take(self, rows: NDArray) -> RawTable:
        """Return some rows, by number or mask."""
        columns = tuple(RawColumn(column.name, column.values[rows]) for column in self.columns)
        return RawTable(self.source, columns, self.notes)


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
    """Return the first name that is the same but for case and spaces."""
    return next((known for known in names if _folded(known) == _folded(name)), None)


def similar_texts(categories: Sequence[str]) -> list[str]:
    """Return at most one remark, on texts that are the same but for case and spaces."""
    groups: dict[str, list[str]] = {}
    for category in categories:
        groups.setdefault(_folded(category), []).append(category)
    similar = [group for group in groups.values() if len(group) > 1]
    return [f"{listed(similar[0])} differ only in case or spaces"] if similar else []


def _folded(text: str) -> str:
    return "".join(text.casefold().split())


# -- files ---------------------------------------------------------------------------------------


def read_table(path: str, *, delimiter: str | None = None, encoding: str = "utf-8") -> RawTable:
    """Read a table with a header from a file, or from the standard input if it is "-".

    The format is detected from the first bytes, not from the name; delimiter, by default detected
    among comma, semicolon, tab and "|", and encoding are those of a CSV file.
    """
    source = "standard input" if path == "-" else path
    data = _read_bytes(path, source)
    if not data.strip():
        raise CliError(f"{source}: the file is empty")
    is_parquet = data.startswith(_PARQUET)
    table = _parquet(data, source) if is_parquet else _csv(data, source, delimiter, encoding)
    repeated = sorted(name for name, count in Counter(table.names).items() if count > 1)
    if repeated:
        raise CliError(f"{source}: several columns have the name {listed(repeated)}: rename them")
    if not len(table):
        raise CliError(f"{source}: there is a header and no rows")
    return table


def _read_bytes(path: str, source: str) -> bytes:
    with reading(source):
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
        raise CliError(f"{source}: the gzip file is damaged or truncated ({cause})") from None


def _texts(values: list[str | None]) -> NDArray:
    """Return texts (n,) with None where a value is missing."""
    return object_array([None if text in _MISSING else text for text in values])


# -- CSV -----------------------------------------------------------------------------------------


def _csv(data: bytes, source: str, delimiter: str | None, encoding: str) -> RawTable:
    text = _decode(data, source, encoding)
    notes = []
    if delimiter is None:
        delimiter = _detect_delimiter(text)
        if delimiter != ",":
            notes.append(f"the delimiter is {_DELIMITERS[delimiter]}")
    header, rows = _split(text, source, delimiter)
    _check_header(header, source, delimiter)
    columns = (
        RawColumn(name or f"column {j + 1}", _texts([row[j] for row in rows]))
        for j, name in enumerate(header)
    )
    return RawTable(source, tuple(columns), tuple(notes))


def _decode(data: bytes, source: str, encoding: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    try:
        return data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as cause:
        line = data[: cause.start].count(b"\n") + 1
        raise CliError(
            f"{source}: line {line} is not {encoding} (byte 0x{data[cause.start]:02x}): "
            "name the encoding, for example --encoding latin-1"
        ) from None
    except LookupError:
        raise CliError(f"--encoding {encoding!r} is not known: use utf-8 or latin-1") from None


def _detect_delimiter(text: str) -> str:
    """Return the candidate that splits the first lines into most fields, equally many in each."""
    sample = text[:200_000].splitlines(keepends=True)[:_SAMPLE_LINES]
    best, score = ",", (0.0, 1)
    for candidate in _DELIMITERS:
        try:
            counts = [len(row) for row in csv.reader(sample, delimiter=candidate) if row]
        except csv.Error:
            continue
        if counts and counts[0] > 1:
            same = counts.count(counts[0]) / len(counts)
            if (same, counts[0]) > score:
                best, score = candidate, (same, counts[0])
    return best


def _split(text: str, source: str, delimiter: str) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, all with as many fields as the header."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for fields in reader:
            row = [field.strip() for field in fields]
            if not row or (row == [""] and len(header) != 1):
                continue  # a blank line
            if not header:
                header = row
            elif len(row) == len(header):
                rows.append(row)
            elif len(header) == 1:
                name = _DELIMITERS.get(delimiter, repr(delimiter))
                raise CliError(
                    f"{source}: with the delimiter {name} the header is a single field, "
                    f"{header[0]!r}: name the right delimiter with --delimiter"
                )
            else:
                raise CliError(
                    f"{source}: line {reader.line_num} has {len(row)} fields and the header has "
                    f"{len(header)}: correct the line or use another --delimiter"
                )
    except csv.Error as cause:
        raise CliError(f"{source}: line {reader.line_num}: {cause}") from None
    return header, rows


def _check_header(header: list[str], source: str, delimiter: str) -> None:
    if are_floats(header):
        raise CliError(
            f"{source}: the first line must hold the names of the columns and holds numbers, "
            f"{header[0]!r} for example: add a header"
        )
    others = [name for mark, name in _DELIMITERS.items() if mark != delimiter and mark in header[0]]
    if len(header) == 1 and others:
        raise CliError(
            f"{source}: --delimiter {delimiter!r} gives one column, {header[0]!r}: use "
            f"{' or '.join(others)}, or leave it out to have it detected"
        )


# -- Parquet -------------------------------------------------------------------------------------


def _parquet(data: bytes, source: str) -> RawTable:
    """Read a Parquet file; columns of lists and records are left out, with a note."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        remedy = "pip install 'jointleaf[cli]'"
        raise CliError(f"{source}: Parquet files need pyarrow: {remedy}") from None
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as cause:
        first = str(cause).splitlines()[0]
        raise CliError(f"{source}: the Parquet file is damaged or truncated ({first})") from None
    return arrow_table(table, source)


def arrow_table(table: Any, source: str) -> RawTable:
    """Return a table, or a batch, of Arrow; columns of lists and records are left out."""
    import pyarrow as pa

    columns, notes = [], []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            notes.append(f"column {name!r} holds {column.type}: left out")
        else:
            columns.append(RawColumn(name, _arrow_values(column, pa)))
    if not columns:
        raise CliError(f"{source}: no column holds numbers, text or times")
    return RawTable(source, tuple(columns), tuple(notes))


def stacked_tables(tables: Sequence[RawTable], note: str) -> RawTable:
    """Return the rows of tables with the same columns as one, with a note."""
    first = tables[0]
    columns = (
        RawColumn(name, np.concatenate([table.column(name).values for table in tables]))
        for name in first.names
    )
    return RawTable(first.source, tuple(columns), (*first.notes, note))


#: to Arrow's arrays, not to their chunks: values that are missing make a copy necessary
_COPIED = {"zero_copy_only": False}


def _arrow_values(column: Any, pa: Any) -> NDArray:
    """Return floats, datetime64, or text with None."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = column.cast(pa.float64(), safe=False)
        return np.asarray(numbers.to_numpy(**_COPIED if isinstance(column, pa.Array) else {}))
    if pa.types.is_decimal(kind):
        return np.array([np.nan if v is None else float(v) for v in column.to_pylist()], float)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times = column.cast(pa.timestamp("us"))
        times = times.to_numpy(**_COPIED if isinstance(column, pa.Array) else {})
        return times.astype("datetime64[us]")
    return _texts([None if v is None else str(v).strip() for v in column.to_pylist()])
