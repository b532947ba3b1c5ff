"""Read a table from a file or the standard input: CSV, Parquet, either compressed with gzip."""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path

from jointleaf.cli._errors import ShellError
from jointleaf.cli._tables.delimited import read_delimited
from jointleaf.cli._tables.raw import RawTable, listed

__all__ = ["read_table"]

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


def read_table(path: str, *, delimiter: str | None = None, encoding: str = "utf-8") -> RawTable:
    """Read a table with a header.

    Parameters
    ----------
    path : str
        "-" is the standard input. What a file holds is seen from its first bytes, not its name.
    delimiter : str, optional
        Between the fields of a CSV file; by default found among comma, semicolon, tab and "|".
    encoding : str
        Of a CSV file.

    Raises
    ------
    ShellError
        With one line about what is wrong: no such file, empty, not UTF-8, rows of different
        lengths, several columns of one name, no rows.
    """
    source = "standard input" if path == "-" else path
    data = _read_bytes(path, source)
    if not data.strip():
        raise ShellError(f"{source}: the file is empty")
    if data.startswith(_PARQUET):
        from jointleaf.cli._tables.parquet import read_parquet

        table = read_parquet(data, source)
    else:
        table = read_delimited(data, source, delimiter=delimiter, encoding=encoding)
    twice = sorted({name for name in table.names if table.names.count(name) > 1})
    if twice:
        raise ShellError(f"{source}: several columns have the name {listed(twice)}; rename them")
    if not len(table):
        raise ShellError(f"{source}: there is a header and no rows")
    return table


def _read_bytes(path: str, source: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except FileNotFoundError:
        raise ShellError(f"{source}: there is no such file") from None
    except IsADirectoryError:
        raise ShellError(f"{source}: is a folder; name a file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as cause:
        raise ShellError(f"{source}: the gzip file is damaged or truncated ({cause})") from None
    except OSError as cause:
        raise ShellError(f"{source}: cannot be read ({cause.strerror or cause})") from None
