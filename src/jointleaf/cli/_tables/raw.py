"""A table as it was read: named columns of text, numbers or times, with gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._errors import ShellError

__all__ = ["GAPS", "RawColumn", "RawTable", "closest_name", "listed", "tell_alike"]

#: How a missing value may be written.
GAPS = frozenset(
    ["", "?"]
    + [form(word) for word in ("na", "n/a", "nan", "null", "none", "#n/a", "<na>")
       for form in (str.lower, str.upper, str.capitalize)]
    + ["NaN"]
)  # fmt: skip


@dataclass(frozen=True)
class RawColumn:
    """One column.

    Attributes
    ----------
    name : str
    values : array (n,)
        Text (dtype object, None where missing), floats (NaN where missing) or times
        (datetime64, NaT where missing).
    """

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

    def take(self, rows: NDArray) -> RawColumn:
        """Give some rows, by number or mask."""
        return RawColumn(self.name, self.values[rows])


@dataclass(frozen=True)
class RawTable:
    """All columns of a file.

    Attributes
    ----------
    source : str
        Name of the file, for messages.
    columns : tuple of RawColumn
    notes : tuple of str
        What reading found worth telling, such as the delimiter.
    """

    source: str
    columns: tuple[RawColumn, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    def column(self, name: str, option: str = "the column") -> RawColumn:
        """Find a column, or say which ones there are."""
        for column in self.columns:
            if column.name == name:
                return column
        if len(self.columns) == 1:
            raise ShellError(
                f"{self.source}: {option} {name!r} is not there; the only column is "
                f"{self.names[0]!r}: is the --delimiter right?"
            )
        alike = closest_name(name, self.names)
        hint = f"did you mean {alike!r}?" if alike else f"the columns are {listed(self.names)}"
        raise ShellError(f"{self.source}: {option} {name!r} is not there; {hint}")

    def take(self, rows: NDArray) -> RawTable:
        """Give some rows, by number or mask."""
        columns = tuple(column.take(rows) for column in self.columns)
        return RawTable(self.source, columns, self.notes)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Write names in quotes, the first few of many."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def closest_name(name: str, names: Sequence[str]) -> str | None:
    """The first name that is the same but for case and spaces."""
    return next((known for known in names if _folded(known) == _folded(name)), None)


def tell_alike(levels: Sequence[str]) -> list[str]:
    """Say which texts are the same but for case and spaces: one remark at most."""
    groups: dict[str, list[str]] = {}
    for level in levels:
        groups.setdefault(_folded(level), []).append(level)
    alike = [group for group in groups.values() if len(group) > 1]
    return [f"{listed(alike[0])} differ only in case or spaces"] if alike else []


def _folded(text: str) -> str:
    return "".join(text.casefold().split())
