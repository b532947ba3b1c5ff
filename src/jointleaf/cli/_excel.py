"""Tables as they are read from Excel files (.xlsx)."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import replace
from typing import Any
from xml.etree.ElementTree import ParseError

from jointleaf._data.raw_table import RawTable, listed, object_column
from jointleaf.cli._output import CliError


def read_excel(
    data: bytes, source: str, sheet: str | None, missing: Collection[str], limit: int
) -> RawTable | None:
    """Read one sheet, by default the first; None for a file that unpacks to more than `limit`.

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
        return None
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
