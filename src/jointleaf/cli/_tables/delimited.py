"""Read text files with one row a line and a delimiter between fields."""

from __future__ import annotations

import csv
import io
from collections import Counter

import numpy as np

from jointleaf.cli._errors import ShellError
from jointleaf.cli._tables.raw import GAPS, RawColumn, RawTable

__all__ = ["read_delimited"]

_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE_LINES = 50


def read_delimited(
    data: bytes, source: str, *, delimiter: str | None = None, encoding: str = "utf-8"
) -> RawTable:
    """Read the bytes of a CSV file; see `jointleaf.cli._tables.reading.read_table`."""
    text = _decode(data, source, encoding)
    notes = []
    if delimiter is None:
        delimiter = _find_delimiter(text)
        if delimiter != ",":
            notes.append(f"the delimiter is {_NAMES[delimiter]}")
    header, rows = _split(text, source, delimiter)
    _check_header(header, source, delimiter)
    columns = []
    for j, name in enumerate(header):
        values = np.empty(len(rows), dtype=object)
        values[:] = [None if row[j] in GAPS else row[j] for row in rows]
        columns.append(RawColumn(name or f"column {j + 1}", values))
    return RawTable(source, tuple(columns), tuple(notes))


def _decode(data: bytes, source: str, encoding: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    try:
        return data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as cause:
        line = data[: cause.start].count(b"\n") + 1
        raise ShellError(
            f"{source}: line {line} is not {encoding} (byte 0x{data[cause.start]:02x}); "
            "say how it is encoded, for example --encoding latin-1"
        ) from None
    except LookupError:
        raise ShellError(f"--encoding {encoding!r} is not known; try utf-8 or latin-1") from None


def _find_delimiter(text: str) -> str:
    """The candidate that splits the first lines into most fields, equally many in each."""
    sample = text[:200_000].splitlines(keepends=True)[:_SAMPLE_LINES]
    best, score = ",", (0.0, 1)
    for candidate in _NAMES:
        try:
            counts = [len(row) for row in csv.reader(sample, delimiter=candidate) if row]
        except csv.Error:
            continue
        if not counts or counts[0] < 2:
            continue
        same = Counter(counts)[counts[0]] / len(counts)
        if (same, counts[0]) > score:
            best, score = candidate, (same, counts[0])
    return best


def _split(text: str, source: str, delimiter: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows, all with as many fields as the header."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for fields in reader:
            if not fields or (len(fields) == 1 and not fields[0].strip() and len(header) != 1):
                continue  # a blank line
            row = [field.strip() for field in fields]
            if not header:
                header = row
            elif len(row) != len(header):
                if len(header) == 1:
                    used = _NAMES.get(delimiter, repr(delimiter))
                    raise ShellError(
                        f"{source}: with the delimiter {used} the header is a single field, "
                        f"{header[0]!r}: is that the right delimiter? Say it with --delimiter"
                    )
                raise ShellError(
                    f"{source}: line {reader.line_num} has {len(row)} fields and the header has "
                    f"{len(header)}; mend the line or give another --delimiter"
                )
            else:
                rows.append(row)
    except csv.Error as cause:
        raise ShellError(f"{source}: line {reader.line_num}: {cause}") from None
    return header, rows


def _check_header(header: list[str], source: str, delimiter: str) -> None:
    if all(_is_number(name) for name in header):
        raise ShellError(
            f"{source}: the first line must hold the names of the columns and holds numbers, "
            f"{header[0]!r} for example; put a header there"
        )
    others = [name for mark, name in _NAMES.items() if mark != delimiter and mark in header[0]]
    if len(header) == 1 and others:
        raise ShellError(
            f"{source}: the delimiter {delimiter!r} gives one column, {header[0]!r}; "
            f"is it {' or '.join(others)}? Leave --delimiter out to have it found"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
