"""How much memory there is, and sparse matrices made dense within it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

#: Bytes that may be used, where the system's own word is not to be taken.
VARIABLE = "JOINTLEAF_MAX_MEMORY"

_UNKNOWN = 2**32  # bytes for a dense table, where the system says nothing
_BLOCK = 2**28  # bytes of the dense rows that are predicted at a time
#: Files with the limit of the group of processes and what it uses, in two generations of Linux, and
#: the name of what of that is a copy of files and can be given up.
_LIMITS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
)


def readable_bytes(n_bytes: float) -> str:
    """Return bytes as text, in MB or GB."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"


def available_memory() -> int | None:
    """Return the bytes that this process can still use; None where that is not known.

    The environment variable JOINTLEAF_MAX_MEMORY (bytes) is believed where it is set, else the
    system (Linux) and the limit of the group of processes (containers).
    """
    text = os.environ.get(VARIABLE, "")
    if text:
        try:
            return int(float(text))
        except (ValueError, OverflowError):
            raise ValueError(f"{VARIABLE}={text!r} must be a number of bytes") from None
    limits = [_system_memory(), *(_group_memory(*paths) for paths in _LIMITS)]
    known = [n for n in limits if n is not None]
    return min(known) if known else None


def _system_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if "MemAvailable:" in line)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _group_memory(place: str, limit: str, used: str, cached: str) -> int | None:
    try:
        most, now = (int((Path(place) / name).read_text()) for name in (limit, used))
        lines = (Path(place) / "memory.stat").read_text().splitlines()
        freed = next(int(line.split()[1]) for line in lines if line.startswith(f"{cached} "))
    except (OSError, ValueError, IndexError, StopIteration):  # there is no limit: "max"
        return None
    return max(0, most - now + freed)


# -- sparse matrices -----------------------------------------------------------------------------


def as_dense(X: Any) -> Any:
    """Return a sparse matrix as an array, anything else as it is.

    Raises MemoryError for one that would not fit into memory.
    """
    if not sparse.issparse(X):
        return X
    needed = dense_bytes(X)
    free = available_memory()
    limit = _UNKNOWN if free is None else free
    if needed > limit:
        raise MemoryError(
            f"X is a sparse matrix of shape {X.shape}, which takes {readable_bytes(needed)} as the "
            f"dense table that is fitted, and {readable_bytes(limit)} are available: use fewer "
            "columns, for example those of SelectKBest or TruncatedSVD, fewer rows, or float32; "
            f"{VARIABLE} (bytes) overrules what is available"
        )
    return X.toarray()


def dense_bytes(X: Any) -> int:
    """Return the bytes of a sparse matrix as an array of floats."""
    itemsize = 4 if X.dtype == np.float32 else 8
    return int(np.prod(X.shape, dtype=float)) * itemsize


def row_blocks(X: Any) -> Iterator[Any]:
    """Yield blocks of the rows of a sparse matrix that is large as an array; else X itself."""
    if not sparse.issparse(X) or X.ndim != 2 or dense_bytes(X) <= _BLOCK:
        yield X
        return
    rows = X.tocsr()
    step = max(1, _BLOCK * X.shape[0] // dense_bytes(X))
    for start in range(0, X.shape[0], step):
        yield rows[start : start + step]
