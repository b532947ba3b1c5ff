"""Tables as they are read from CSV, JSON Lines, Parquet or Excel."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np

from jointleaf._data.raw_table import (
    MISSING_WORDS,
    RawColumn,
    RawTable,
    listed,
    object_column,
    text_column,
)
from jointleaf._data.texts import are_floats
from jointleaf.cli._output import CliError, reading

_MB = 2**20
#: Bytes that a compressed file may unpack to, or times its own length if that is more.
_UNPACKED, _MOST_RATIO = 256 * _MB, 50
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
#: How files begin that are no tables here; a pickle begins with its protocol.
_OTHERS = {
    b"ARROW1": "an Arrow (Feather) file", b"FEA1": "a Feather file", b"ORC": "an ORC file",
    b"SQLite format 3": "an SQLite database", b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a NumPy file",
    b"\x80\x04\x95": "a pickle", b"\x80\x05\x95": "a pickle", b"%PDF": "a PDF file",
}  # fmt: skip
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE_LINES = 50
_NO_NAME = re.compile(r"column \d+")  # what columns are called that have none


# -- files ---------------------------------------------------------------------------------------


def read_table(
    path: str,
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    missing: Collection[str] = MISSING_WORDS,
    max_unpacked: int | None = None,
    sheet: str | None = None,
) -> RawTable:
    """Read a table with a header from a file, or from the standard input if it is "-".

    The format is detected from the first bytes, not from the name; delimiter, by default detected
    among comma, semicolon, tab and "|", and encoding are those of a CSV file, `sheet` is the name
    of one in an Excel file, by default the first. Texts in `missing`
    count as missing, and so do empty ones. A compressed file may unpack to so many megabytes; by
    default 256, and more for large files.
    """
    source = "standard input" if path == "-" else path
    data = _read_bytes(path, source)
    limit = max(_UNPACKED, _MOST_RATIO * len(data)) if max_unpacked is None else max_unpacked * _MB
    if data.startswith(_GZIP):
        data = _unzip(data, source, limit)
    if not data.strip():
        raise CliError(f"{source}: the file is empty")
    other = next((name for start, name in _OTHERS.items() if data.startswith(start)), None)
    if other is not None:
        raise CliError(
            f"{source}: is {other}, which is not read here: write CSV, JSON Lines, Parquet or Excel"
        )
    is_excel = data.startswith((_ZIP, _OLD_EXCEL))
    if sheet is not None and not is_excel:
        raise CliError(f"{source}: --sheet {sheet!r} is for Excel files: leave it out")
    if is_excel:
        table = _excel(data, source, sheet, missing, limit)
    elif data.startswith(_PARQUET):
        table = _parquet(data, source, missing, limit)
    else:
        text = _decode(data, source, encoding)
        table = _json(text, source, missing) or _csv(text, source, delimiter, missing)
    _check_table(table, source)
    return replace(table, elsewhere=table.elsewhere + _title_hint(table))


def _title_hint(table: RawTable) -> str:
    """Return what to do where the first row has a title and not the names of columns."""
    titles = [name for name in table.names if not _NO_NAME.fullmatch(name)]
    if len(titles) != 1 or len(table.names) == 1:
        return ""
    return f"; {titles[0]!r} looks like a title: delete what is above the names of the columns"


def _check_table(table: RawTable, source: str) -> None:
    """Raise for names that are not clear, and for a table without rows."""
    repeated = sorted(name for name, count in Counter(table.names).items() if count > 1)
    if repeated:
        raise CliError(f"{source}: several columns have the name {listed(repeated)}: rename them")
    unclear = [name for name in table.names if "\0" in name]
    if unclear:
        raise CliError(f"{source}: the column {unclear[0]!r} has a NUL character: rename it")
    if not len(table):
        raise CliError(f"{source}: there is a header and no rows")


def _read_bytes(path: str, source: str) -> bytes:
    if path == "-" and sys.stdin is None:
        raise CliError("the standard input is closed: name a file, or send one to it")
    with reading(source):
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()


def _unzip(data: bytes, source: str, limit: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
        raise CliError(f"{source}: the gzip file is damaged or truncated ({cause})") from None
    if len(unpacked) > limit:
        raise _too_large(source, limit)
    return unpacked


def _too_large(source: str, limit: int) -> CliError:
    return CliError(
        f"{source}: unpacks to more than {limit / _MB:,.0f} MB: if you expect that, raise it with "
        "--max-unpacked"
    )


# -- JSON ----------------------------------------------------------------------------------------


def _json(text: str, source: str, missing: Collection[str]) -> RawTable | None:
    """Read JSON Lines, or a list of objects; None for another format."""
    rows = _json_rows(text, source)
    if rows is None:
        return None
    columns, notes = [], []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, dict | list) for value in values):
            notes.append(f"column {name!r} holds lists or objects: left out")
        else:
            columns.append(object_column(name, values, missing))
    if not columns:
        raise CliError(f"{source}: no column holds numbers or text")
    return RawTable(source, tuple(columns), tuple(notes))


def _json_rows(text: str, source: str) -> list[dict[str, Any]] | None:
    """Return the objects of a file; None if it is no JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    lines = [(k + 1, line) for k, line in enumerate(text.split("\n")) if line.strip()]
    try:
        is_lines = isinstance(json.loads(lines[0][1]), dict)
    except ValueError:
        is_lines = False
    if not is_lines:
        try:
            rows = json.loads(text)
        except ValueError as cause:
            if not source.lower().endswith((".json", ".jsonl", ".ndjson")):
                return None
            raise CliError(
                f"{source}: this is no JSON ({cause}): write one object per row and line, or a "
                "list of objects"
            ) from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise CliError(
                f"{source}: this JSON is no list of objects: write one object per row and line, "
                "for example with jq -c"
            )
        return rows
    rows = []
    for k, line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError as cause:
            raise CliError(f"{source}: line {k} is no JSON object ({cause})") from None
        if not isinstance(rows[-1], dict):
            raise CliError(f"{source}: line {k} is no JSON object: write one object per line")
    return rows


# -- CSV -----------------------------------------------------------------------------------------


def _csv(text: str, source: str, delimiter: str | None, missing: Collection[str]) -> RawTable:
    notes = []
    if delimiter is None:
        delimiter = _detect_delimiter(text)
        if delimiter != ",":
            notes.append(f"the delimiter is {_DELIMITERS[delimiter]}")
    header, rows = _split(text, source, delimiter)
    _check_header(header, source, delimiter)
    columns = (
        text_column(name or f"column {j + 1}", [row[j] for row in rows], missing)
        for j, name in enumerate(header)
    )
    return RawTable(source, tuple(columns), tuple(notes), hint=": check the --delimiter")


def _decode(data: bytes, source: str, encoding: str) -> str:
    if data.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        encoding = "utf-32"
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    try:
        text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as cause:
        line = data[: cause.start].count(b"\n") + 1
        raise CliError(
            f"{source}: line {line} is not {encoding} (byte 0x{data[cause.start]:02x}): "
            f"name the encoding, for example --encoding {_likely_encoding(data) or 'latin-1'}"
        ) from None
    except LookupError:
        raise CliError(f"--encoding {encoding!r} is not known: use utf-8 or latin-1") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        likely = _likely_encoding(data)
        remedy = f"name the encoding, --encoding {likely}" if likely else "remove it"
        raise CliError(f"{source}: line {line} holds a NUL character, which is no text: {remedy}")
    return text


def _likely_encoding(data: bytes) -> str | None:
    """Return the encoding of text without a mark in which most characters have NUL bytes."""
    samples = [data[k : 4 * _SAMPLE_LINES : 4] for k in range(4)]
    is_zero = [2 * sample.count(0) > len(sample) for sample in samples]
    names = {"utf-32-le": "0111", "utf-32-be": "1110", "utf-16-le": "0101", "utf-16-be": "1010"}
    pattern = "".join(str(int(zero)) for zero in is_zero)
    return next((name for name, zeros in names.items() if zeros == pattern), None)


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
                    f"{header[0]!r}: name the right delimiter with --delimiter, or delete what is "
                    "above the names of the columns"
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


def _parquet(data: bytes, source: str, missing: Collection[str], limit: int) -> RawTable:
    """Read a Parquet file; columns of lists and records are left out, with a note."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        remedy = "pip install 'jointleaf[cli]'"
        raise CliError(f"{source}: Parquet files need pyarrow: {remedy}") from None
    try:
        shape = pq.read_metadata(pa.BufferReader(data))
        if 8 * shape.num_rows * shape.num_columns > limit:
            raise _too_large(source, limit)
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as cause:
        first = str(cause).splitlines()[0]
        raise CliError(f"{source}: the Parquet file is damaged or truncated ({first})") from None
    return arrow_table(table, source, missing)


def arrow_table(table: Any, source: str, missing: Collection[str] = MISSING_WORDS) -> RawTable:
    """Return a table, or a batch, of Arrow; columns of lists and records are left out."""
    import pyarrow as pa

    columns, notes = [], []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            notes.append(f"column {name!r} holds {column.type}: left out")
        else:
            columns.append(_arrow_column(name, column, missing))
    if not columns:
        raise CliError(f"{source}: no column holds numbers, text or times")
    return RawTable(source, tuple(columns), tuple(notes))


def stacked_tables(tables: Sequence[RawTable], note: str) -> RawTable:
    """Return the rows of tables with the same columns as one, with a note."""
    first = tables[0]
    columns = (
        replace(
            column,
            values=np.concatenate([table.column(column.name).values for table in tables]),
            words=tuple(sorted({w for t in tables for w in t.column(column.name).words})),
        )
        for column in first.columns
    )
    return replace(first, columns=tuple(columns), notes=(*first.notes, note))


#: to Arrow's arrays, not to their chunks: values that are missing make a copy necessary
_COPIED = {"zero_copy_only": False}


def _arrow_column(name: str, column: Any, missing: Collection[str]) -> RawColumn:
    """Return floats, datetime64, or text with None."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = column.cast(pa.float64(), safe=False)
        values = np.asarray(numbers.to_numpy(**_COPIED if isinstance(column, pa.Array) else {}))
        return RawColumn(name, values)
    if pa.types.is_decimal(kind):
        floats = [np.nan if v is None else float(v) for v in column.to_pylist()]
        return RawColumn(name, np.array(floats, float))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times = column.cast(pa.timestamp("us"), safe=False)  # nanoseconds are cut off
        times = times.to_numpy(**_COPIED if isinstance(column, pa.Array) else {})
        return RawColumn(name, times.astype("datetime64[us]"))
    stripped = [None if v is None else str(v).rstrip("\0") for v in column.to_pylist()]
    return text_column(name, stripped, missing)


# -- Excel ---------------------------------------------------------------------------------------


def _excel(
    data: bytes, source: str, sheet: str | None, missing: Collection[str], limit: int
) -> RawTable:
    """Read one sheet, by default the first.

    The first row that is not empty has the names of the columns.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile:
        members = []
    if not any(member.filename == "xl/workbook.xml" for member in members):
        raise CliError(
            f"{source}: this is an old Excel file, a damaged one or an archive, which is not read: "
            "save the sheet as .xlsx or CSV"
        )
    if sum(member.file_size for member in members) > limit:
        raise _too_large(source, limit)
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise CliError(
            f"{source}: Excel files need openpyxl: pip install 'jointleaf[cli]', or save the sheet "
            "as CSV"
        ) from None
    try:
        book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        names = [page.title for page in book.worksheets]
        if not names or (sheet is not None and sheet not in names):
            raise CliError(f"{source}: --sheet {sheet!r} is not there: sheets are {listed(names)}")
        rows = list(book[sheet or names[0]].iter_rows(values_only=True))
    except (KeyError, ValueError, TypeError, ParseError, zipfile.BadZipFile, zlib.error) as cause:
        raise CliError(f"{source}: the Excel file is damaged ({cause})") from None
    notes, elsewhere = [], ""
    if sheet is None and len(names) > 1:
        notes.append(f"sheet {names[0]!r} of {len(names)}: name another one with --sheet")
        elsewhere = f"; name another sheet with --sheet: {listed(names[1:])}"
    table = _sheet_table(rows, source, missing, notes)
    return replace(table, hint=elsewhere, elsewhere=elsewhere)


def _sheet_table(
    rows: list[tuple[Any, ...]], source: str, missing: Collection[str], notes: list[str]
) -> RawTable:
    """Return the table of a sheet's rows; empty rows and columns without a name and values go."""
    filled = [row for row in rows if any(value is not None for value in row)]
    if not filled:
        raise CliError(f"{source}: the sheet is empty: name another one with --sheet")
    header, *body = filled
    width = max(map(len, filled))
    columns = []
    for j in range(width):
        name, values = _cell(header, j), [_cell(row, j) for row in body]
        if name is None and all(value is None for value in values):
            continue
        if isinstance(name, float | int):
            raise CliError(
                f"{source}: the first row must hold the names of the columns and holds {name!r}: "
                "add a header, as text"
            )
        label = f"column {j + 1}" if name is None else str(name).strip()
        columns.append(object_column(label, values, missing))
    return RawTable(source, tuple(columns), tuple(notes))


def _cell(row: tuple[Any, ...], j: int) -> Any:
    """Return a value, without blanks around it; None where there is none."""
    value = row[j] if j < len(row) else None
    if isinstance(value, str):
        return value.strip() or None
    return value
