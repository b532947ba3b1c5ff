"""A table as it was read: named columns of text, numbers or times, with missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._output import CliError

__all__ = ["RawColumn", "RawTable", "closest_name", "listed", "object_array", "similar_texts"]

_MOST_LISTED = 8


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


@dataclass(frozen=True)
class RawTable:
    """All columns of a file.

    Attributes
    ----------
    source : str
        Name of the file, for messages.
    columns : tuple of RawColumn
    notes : tuple of str
        About the reading, such as which delimiter was detected.
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
        """Return a column by its name, or raise an error that lists the names."""
        for column in self.columns:
            if column.name == name:
                return column
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
