"""From a raw table to the one that a model sees, the same way every time.

A `Preparation` is learned from training rows and kept with the model, so that new rows are read
exactly as they were: numbers with their marks, dates, categories and missing values.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from jointleaf._data import texts
from jointleaf._data.columns import as_frame
from jointleaf._data.kinds import ColumnKind, detect_kind, varying_parts
from jointleaf._data.raw_table import (
    MISSING_WORDS,
    RawColumn,
    RawTable,
    as_text,
    closest_name,
    holds_dates,
    listed,
    object_array,
    raw_table,
    series_times,
)

_MOST_HINTS = 8  # missing columns for which similar names are looked for


@dataclass(frozen=True)
class Preparation:
    """How the columns of a table become the columns of a model."""

    columns: tuple[ColumnKind, ...]  # all of the training table but the target, in their order
    missing: tuple[str, ...] = field(default=MISSING_WORDS)  # texts that count as missing

    @classmethod
    def learn(
        cls,
        table: RawTable,
        *,
        categorical: Collection[str] = (),
        drop: Collection[str] = (),
        keep: Collection[str] = (),
        counters: Collection[str] = (),
        roles: Mapping[str, ColumnKind] | None = None,
        target: RawColumn | None = None,
        missing: tuple[str, ...] = MISSING_WORDS,
    ) -> Preparation:
        """Detect what the columns of a training table, which may have the target, hold.

        Names in `categorical` and `keep` are as for `detect_kind`, those in `drop` are left out,
        `counters` count the rows of the whole table, `roles` are columns whose kind is known.
        """
        for name in (*categorical, *drop, *keep):
            table.column(name)
        kinds = []
        for column in table.columns:
            if roles is not None and column.name in roles:
                kinds.append(roles[column.name])
            elif column.name in drop:
                kinds.append(ColumnKind(column.name, "dropped", note="as requested"))
            elif target is None or column.name != target.name:
                options = {
                    "is_category": column.name in categorical,
                    "is_kept": column.name in keep,
                    "is_counter": column.name in counters,
                }
                kinds.append(detect_kind(column, **options, target=target))
        _check_outputs(kinds, table.source)
        return cls(tuple(kinds), missing)

    @classmethod
    def of_times(cls, frame: nw.DataFrame) -> Preparation | None:
        """Return one that makes numbers of columns of times, and leaves all others unchanged.

        None for a data frame without such columns.
        """
        kinds = []
        for j, (name, dtype) in enumerate(frame.schema.items()):
            series = frame[:, j]  # names may be numbers
            if not (isinstance(dtype, nw.Datetime | nw.Date) or holds_dates(series)):
                kinds.append(ColumnKind(name, "unchanged"))
                continue
            parts = varying_parts(texts.parse_dates(series_times(series), "time"))
            kinds.append(ColumnKind(name, "date", "time", parts or texts.DATE_PARTS[:1]))
        if all(kind.kind == "unchanged" for kind in kinds):
            return None
        _check_outputs(kinds, "X")
        return cls(tuple(kinds))

    @property
    def names(self) -> list[str]:
        """Columns of a table that the model needs."""
        return [kind.name for kind in self.columns if kind.is_used or kind.kind == "exposure"]

    @property
    def is_of_raw_tables(self) -> bool:
        """Whether all columns are read, and not those of times alone."""
        return all(kind.kind != "unchanged" for kind in self.columns)

    @property
    def outputs(self) -> list[str]:
        """Columns that the model sees."""
        return [name for kind in self.columns for name in kind.outputs]

    @property
    def days(self) -> set[str]:
        """Those among `outputs` that are days since 1970-01-01."""
        return {name for kind in self.columns for name in kind.outputs if kind.is_day(name)}

    def is_done(self, names: Collection[str]) -> bool:
        """Whether a table with these columns is one that the model sees."""
        return set(self.outputs) <= set(names) and not set(self.names) <= set(names)

    def check_names(self, source: str, names: list[str], hint: str = "") -> None:
        """Raise if a table lacks columns; `hint` is added where it has a single one."""
        there = set(names)
        absent = [name for name in self.names if name not in there]
        if absent:
            needed = set(self.names)
            free = [name for name in names if name not in needed]
            similar = [n for n in (closest_name(a, free) for a in absent[:_MOST_HINTS]) if n]
            remedy = f": did you mean {listed(similar)}?" if similar else ""
            if len(names) == 1 and hint:
                remedy = f" and whose only column is {names[0]!r}{hint}"
            raise ValueError(
                f"{source}: the model needs {columns_in_words(absent)}, which the table does not "
                f"have{remedy}"
            )

    def apply(self, table: RawTable) -> tuple[dict[str, NDArray], list[str]]:
        """Return floats, or text with None, by column, and remarks on values read as missing."""
        columns: dict[str, NDArray] = {}
        remarks: list[str] = []
        for kind in (kind for kind in self.columns if kind.is_used):
            column = table.column(kind.name)
            if kind.kind == "category":
                columns[kind.name] = _categories(column, kind)
                continue
            numbers = _numbers(column, kind)
            remarks += _remarks(column, kind, numbers, table.source)
            if kind.kind == "date":
                parts = texts.date_parts(numbers)
                columns |= {f"{kind.name}: {part}": parts[part] for part in kind.parts}
            else:
                columns[kind.name] = numbers
        return columns, remarks

    def frame(self, columns: Mapping[str, NDArray], backend: Any) -> Any:
        """Return what `apply` returns as a data frame of a library, text as its categories."""
        series = {
            name: nw.new_series(name, v.tolist() if v.dtype == object else v, backend=backend)
            for name, v in columns.items()
        }
        text = [name for name, values in columns.items() if _is_text(values)]
        frame = nw.from_dict(series, backend=backend)
        return frame.with_columns(nw.col(name).cast(nw.Categorical()) for name in text).to_native()

    def transform(self, X: Any) -> Any:
        """Return the data frame that the model sees, of the same library; arrays as they are.

        A data frame that is prepared already is returned as it is.
        """
        frame = as_frame(X)
        if frame is None:
            return X
        names = list(frame.columns)
        if self.is_done(names):
            return X
        self.check_names("X", names)
        if not self.is_of_raw_tables:
            return self._with_times(frame)
        columns, remarks = self.apply(raw_table(frame.select(self.names), self.missing))
        if remarks:
            warnings.warn(f"X: {'; '.join(remarks)}", UserWarning, stacklevel=2)
        return self.frame(columns, frame.implementation)

    def _with_times(self, frame: nw.DataFrame) -> Any:
        """Return a data frame with numbers in place of columns of times."""
        new = []
        for kind in (kind for kind in self.columns if kind.kind == "date"):
            column = raw_table(frame.select(kind.name)).columns[0]
            parts = texts.date_parts(_numbers(column, kind))
            new += [
                nw.new_series(f"{kind.name}: {part}", parts[part], backend=frame.implementation)
                for part in kind.parts
            ]
        index = getattr(frame.to_native(), "index", None)
        if index is not None:  # of pandas, by which it would align
            new = [nw.from_native(s.to_native().set_axis(index), series_only=True) for s in new]
        return frame.with_columns(*new).select(self.outputs).to_native()


def columns_in_words(names: list[str]) -> str:
    """Return "column 'a'" or "columns 'a', 'b'"."""
    return f"column{'s' * (len(names) > 1)} {listed(names)}"


def _check_outputs(kinds: list[ColumnKind], source: str) -> None:
    """Raise if no column is left, or if a part of a date has the name of a column."""
    names = [name for kind in kinds for name in kind.outputs]
    if not names:
        reasons = "; ".join(f"{kind.name!r} is left out ({kind.kind})" for kind in kinds[:4])
        raise ValueError(f"{source}: no column is left to learn from: {reasons or 'only a target'}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(
            f"{source}: a part of a date would have the name of column {repeated[0]!r}: rename it"
        )


def _is_text(values: NDArray) -> bool:
    return values.dtype == object and any(isinstance(value, str) for value in values.tolist())


def _categories(column: RawColumn, kind: ColumnKind) -> NDArray:
    """Return text, or whole numbers for a model that was fitted on these."""
    values: Any = column.values
    if kind.notation == "plain":
        if values.dtype.kind == "M":
            raise ValueError(
                f"column {kind.name!r} held whole numbers as categories in training and holds "
                "times now: use the type that it had in training"
            )
        return object_array([None if np.isnan(v) else int(v) for v in column.numbers("plain")])
    if column.is_text:
        return values
    pairs = zip(values, column.missing, strict=True)
    return object_array([None if is_missing else as_text(v) for v, is_missing in pairs])


def _numbers(column: RawColumn, kind: ColumnKind) -> NDArray[np.float64]:
    """Return the numbers (n,) of a column (seconds for dates), NaN where there are none."""
    values = column.values
    if column.is_text and kind.kind == "date" and kind.notation == "time":
        form = texts.detect_format(texts.present(values))
        return texts.parse_dates(values, form or "iso")
    if values.dtype.kind == "M" or (column.is_text and kind.kind == "date"):
        return texts.parse_dates(values, kind.notation)
    if not column.is_text:
        is_valid = np.isin(values, (0, 1)) if kind.kind == "boolean" else np.isfinite(values)
        return np.where(is_valid, values, np.nan)
    if kind.kind == "boolean":
        booleans = [None if v is None else texts.parse_boolean(v) for v in values.tolist()]
        return np.array(booleans, dtype=float)  # NaN for None
    numbers = column.numbers(kind.notation)
    if np.isnan(numbers).all():  # numbers may have been truth values in training
        booleans_of_text = texts.parse_booleans(values)
        return numbers if booleans_of_text is None else booleans_of_text
    return numbers


def _remarks(
    column: RawColumn, kind: ColumnKind, numbers: NDArray[np.float64], source: str
) -> list[str]:
    """Return remarks on values that could not be read; raise if none could."""
    remarks = []
    unread = np.flatnonzero(np.isnan(numbers) & ~column.missing)
    if unread.size:
        noun = {"number": "a number", "boolean": "true or false", "date": "such a date"}[kind.kind]
        example = f"{column.values[unread[0]]!r} in row {unread[0] + 1:,}"
        if unread.size == (~column.missing).sum():
            form = texts.form_in_words(kind.notation) if kind.kind == "date" else ""
            written = f" written as {form}" if form else ""
            remedy = ": write them so, or as 2003-09-19" if form else ""
            raise ValueError(
                f"{source}: column {kind.name!r} held {kind.kind}s{written} in training and holds "
                f"{example}{remedy}"
            )
        remarks.append(
            f"column {kind.name!r}: {unread.size:,} not {noun}, {example}: taken as missing"
        )
    # Where the percent signs of training are gone, 0.12 may mean 12 %.
    bare = texts.without_percent(column.values, kind.notation) if column.is_text else []
    if bare:
        remarks.append(
            f"column {kind.name!r}: {len(bare):,} without the percent sign of training, such as "
            f"{bare[0]!r}: taken as percent"
        )
    return remarks
