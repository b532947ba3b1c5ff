"""Read Parquet files, with pyarrow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._errors import ShellError
from jointleaf.cli._tables.raw import GAPS, RawColumn, RawTable

__all__ = ["read_parquet"]


def read_parquet(data: bytes, source: str) -> RawTable:
    """Read the bytes of a Parquet file; columns of lists and records are left out, and named."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ShellError(
            f"{source}: Parquet files need pyarrow: pip install 'jointleaf[cli]'"
        ) from None
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as cause:
        first = str(cause).splitlines()[0]
        raise ShellError(f"{source}: the Parquet file is damaged or truncated ({first})") from None
    columns, notes = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            notes.append(f"column {name!r} holds {column.type}: left out")
        else:
            columns.append(RawColumn(name, _values(column, pa)))
    if not columns:
        raise ShellError(f"{source}: no column holds numbers, text or times")
    return RawTable(source, tuple(columns), tuple(notes))


def _values(column: Any, pa: Any) -> NDArray:
    """Floats, datetime64, or text with None."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return np.array([np.nan if v is None else float(v) for v in column.to_pylist()], float)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(pa.timestamp("us")).to_numpy().astype("datetime64[us]")
    texts = [None if v is None else str(v).strip() for v in column.to_pylist()]
    values = np.empty(len(texts), dtype=object)
    values[:] = [None if text is None or text in GAPS else text for text in texts]
    return values
