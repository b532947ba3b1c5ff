"""From a table as it was read to the data frame that a model sees, the same way every time.

`Preparation` is learnt when a model is fitted and stored in its file, so that ``predict`` reads
numbers, dates and gaps exactly as ``fit`` did.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.cli._errors import ShellError
from jointleaf.cli._tables.dates import date_parts, parse_dates
from jointleaf.cli._tables.kinds import ColumnKind, detect_kind
from jointleaf.cli._tables.numbers import parse_numbers, read_boolean, without_percent
from jointleaf.cli._tables.raw import RawColumn, RawTable, closest_name, listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Preparation", "need_pandas"]


def need_pandas() -> Any:
    """Give pandas, or say how to get it."""
    try:
        import pandas
    except ImportError:
        raise ShellError("tables need pandas: pip install 'jointleaf[cli]'") from None
    return pandas


@dataclass(frozen=True)
class Preparation:
    """How the columns of a file become the columns of a model.

    Attributes
    ----------
    columns : tuple of ColumnKind
        All columns of the training file but the target, in their order.
    """

    columns: tuple[ColumnKind, ...]

    @classmethod
    def learn(
        cls,
        table: RawTable,
        *,
        target: str,
        categorical: Collection[str] = (),
        drop: Collection[str] = (),
    ) -> Preparation:
        """Find out what the columns of a training table hold."""
        for name in [*categorical, *drop]:
            table.column(name, "the column")
        kinds = []
        for column in table.columns:
            if column.name == target:
                continue
            if column.name in drop:
                kinds.append(ColumnKind(column.name, "dropped", note="as you said"))
            else:
                kinds.append(detect_kind(column, is_category=column.name in categorical))
        _check_outputs(kinds, table.source)
        return cls(tuple(kinds))

    @classmethod
    def of_model(cls, model: Any, source: str) -> Preparation:
        """Make one for a model that was saved without: its own columns, as numbers or categories.

        Parameters
        ----------
        model : estimator
            Fitted on a data frame.
        source : str
            Its file, for messages.
        """
        if not hasattr(model, "feature_names_in_"):
            raise ShellError(
                f"{source}: the model was fitted on a matrix without column names; fit it on a "
                "data frame, or with `jointleaf fit`"
            )
        kinds = []
        for column in model.columns_:
            is_number = column.categories is None
            kind = "number" if is_number else "category"
            whole = not is_number and column.categories.dtype.kind in "iu"
            kinds.append(ColumnKind(column.label, kind, "plain" if is_number or whole else ""))
        return cls(tuple(kinds))

    @property
    def names(self) -> list[str]:
        """Columns of a file that the model needs."""
        return [kind.name for kind in self.columns if kind.is_used]

    @property
    def outputs(self) -> list[str]:
        """Columns that the model sees."""
        return [name for kind in self.columns for name in kind.outputs]

    @property
    def origins(self) -> dict[str, str]:
        """From the columns that the model sees to those of the file."""
        return {name: kind.name for kind in self.columns for name in kind.outputs}

    def check_columns(self, table: RawTable, *, known: Collection[str] = ()) -> None:
        """Refuse a table without the columns that the model needs, or with others.

        Columns that were left out in training, and those in `known`, may be there or not.
        """
        missing = [name for name in self.names if name not in table.names]
        if missing:
            raise ShellError(
                f"{table.source}: the model needs {_columns(missing)}, which the file does not "
                f"have{_hint(missing, table)}"
            )
        familiar = {kind.name for kind in self.columns} | set(known)
        extra = [name for name in table.names if name not in familiar]
        if extra:
            raise ShellError(
                f"{table.source}: the model does not know {_columns(extra)}; leave "
                f"{'it' if len(extra) == 1 else 'them'} out, or say --ignore-extra"
            )

    def apply(self, table: RawTable) -> tuple[pd.DataFrame, list[str]]:
        """Make a table ready.

        Returns
        -------
        frame : DataFrame
            Floats and categories.
        notes : list of str
            What is worth telling: values that could not be read and count as missing.
        """
        pandas = need_pandas()
        frame: dict[str, Any] = {}
        notes: list[str] = []
        for kind in self.columns:
            if not kind.is_used:
                continue
            column = table.column(kind.name)
            if kind.kind == "category":
                frame[kind.name] = pandas.Categorical(_levels(column, kind))
                continue
            numbers, lost = _read(column, kind)
            notes += _tell_lost(column, kind, lost, table.source) + _tell_percent(column, kind)
            if kind.kind == "date":
                parts = date_parts(numbers)
                frame |= {f"{kind.name}: {part}": parts[part] for part in kind.parts}
            else:
                frame[kind.name] = numbers
        return pandas.DataFrame(frame), notes

    def to_dict(self) -> dict[str, Any]:
        """Give plain values, for a file."""
        return {"columns": [kind.to_dict() for kind in self.columns]}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Preparation:
        """Take plain values from a file."""
        return cls(tuple(ColumnKind.from_dict(kind) for kind in record["columns"]))


def _check_outputs(kinds: list[ColumnKind], source: str) -> None:
    """Something must be left, and what dates become must not have the name of a column."""
    names = [name for kind in kinds for name in kind.outputs]
    if not names:
        reasons = "; ".join(f"{kind.name!r} is left out ({kind.kind})" for kind in kinds[:4])
        raise ShellError(f"{source}: no column is left to learn from: {reasons or 'only a target'}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ShellError(
            f"{source}: a part of a date would have the name of column {twice[0]!r}; rename it"
        )


def _hint(missing: list[str], table: RawTable) -> str:
    """What may be wrong with a file that does not have the columns a model needs."""
    if len(table.names) == 1:
        return f"; its only column is {table.names[0]!r}: is the --delimiter right?"
    alike = [name for name in (closest_name(m, table.names) for m in missing) if name]
    return f"; names must be as in training: did you mean {listed(alike)}?" if alike else ""


def _columns(names: list[str]) -> str:
    return f"column{'s' * (len(names) > 1)} {listed(names)}"


def _levels(column: RawColumn, kind: ColumnKind) -> NDArray:
    """Levels of a column with categories: text, or whole numbers for a model that has these."""
    if kind.notation == "plain":
        numbers = parse_numbers(column.values, "plain") if column.is_text else column.values
        whole = np.empty(len(numbers), dtype=object)
        whole[:] = [None if np.isnan(v) else int(v) for v in numbers]
        return whole
    if column.is_text:
        return column.values
    texts = np.empty(len(column.values), dtype=object)
    gone = column.missing
    texts[:] = [None if no else _as_text(v) for v, no in zip(column.values, gone, strict=True)]
    return texts


def _as_text(value: Any) -> str:
    """A number of a Parquet file as it would be written in a CSV file."""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _read(column: RawColumn, kind: ColumnKind) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Numbers (n,) of a column (seconds for dates), and the rows that could not be read."""
    values = column.values
    if values.dtype.kind == "M":
        numbers = values.astype("datetime64[us]").astype(np.int64) / 1e6
        numbers[column.missing] = np.nan
    elif not column.is_text:
        is_fine = np.isin(values, (0, 1)) if kind.kind == "boolean" else np.isfinite(values)
        numbers = np.where(is_fine, values, np.nan)
    elif kind.kind == "date":
        numbers = parse_dates(values, "iso" if kind.notation == "time" else kind.notation)
    elif kind.kind == "boolean":
        known = [None if v is None else read_boolean(v) for v in values.tolist()]
        numbers = np.array([np.nan if v is None else v for v in known], dtype=float)
    else:
        numbers = parse_numbers(values, kind.notation)
    return numbers, np.flatnonzero(np.isnan(numbers) & ~column.missing)


def _tell_lost(
    column: RawColumn, kind: ColumnKind, lost: NDArray[np.intp], source: str
) -> list[str]:
    """Say what could not be read; refuse a column of which nothing could."""
    if not lost.size:
        return []
    what = {"number": "a number", "boolean": "true or false", "date": "such a date"}[kind.kind]
    example = f"{column.values[lost[0]]!r} in row {lost[0] + 1:,}"
    if lost.size == (~column.missing).sum():
        raise ShellError(
            f"{source}: column {kind.name!r} held {kind.kind}s in training and holds {example}"
        )
    return [f"column {kind.name!r}: {lost.size:,} not {what}, {example}: taken as missing"]


def _tell_percent(column: RawColumn, kind: ColumnKind) -> list[str]:
    """Say where the percent signs of training are gone, as 0.12 may then mean 12 %."""
    bare = without_percent(column.values, kind.notation) if column.is_text else []
    if not bare:
        return []
    return [
        f"column {kind.name!r}: {len(bare):,} without the percent sign of training, such as "
        f"{bare[0]!r}: taken as percent"
    ]
