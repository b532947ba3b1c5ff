"""From a file to the data frame that a model sees, the same way every time.

A `Preparation` is learnt when a model is fitted and stored in its file, so that ``predict`` reads
numbers, dates and missing values exactly as ``fit`` did.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Loss
from jointleaf.cli import _splits as splits
from jointleaf.cli import _tables as tables
from jointleaf.cli._columns import (
    ColumnKind,
    Target,
    Task,
    detect_kind,
    detect_role,
    detect_target,
    row_numbers,
)
from jointleaf.cli._objective import DEFAULT, Objective
from jointleaf.cli._output import CliError, plural, text_table
from jointleaf.cli._values import date_parts, parse_boolean, parse_dates, without_percent

_FEWEST_ROWS = 10
_MOST_HINTS = 8  # names that others are looked up for


@dataclass(frozen=True)
class Preparation:
    """How the columns of a file become the columns of a model."""

    columns: tuple[ColumnKind, ...]  # all of the training file but the target, in their order

    @classmethod
    def learn(
        cls,
        table: tables.RawTable,
        target: str,
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
        objective: Objective = DEFAULT,
    ) -> Preparation:
        """Detect what the columns of a training table hold."""
        for name in [*categorical, *drop]:
            table.column(name)
        role_of = {name: role for role, name in objective.roles.items()}
        for name, role in role_of.items():
            table.column(name, f"--{role}")
        kinds = []
        for column in table.columns:
            if column.name in role_of:
                kinds.append(detect_role(column, role_of[column.name], table.source))
            elif column.name in drop:
                kinds.append(ColumnKind(column.name, "dropped", note="as requested"))
            elif column.name != target:
                kinds.append(detect_kind(column, is_category=column.name in categorical))
        _check_outputs(kinds, table.source)
        return cls(tuple(kinds))

    @classmethod
    def of_model(cls, model: Any, source: str) -> Preparation:
        """Return one for a model saved from Python: its columns, as numbers or categories."""
        if not hasattr(model, "feature_names_in_"):
            raise CliError(
                f"{source}: the model was fitted on a matrix without column names: fit it on a "
                "data frame, or with `jointleaf fit`"
            )
        kinds = []
        for column in model.columns_:
            kind = "number" if column.categories is None else "category"
            is_text = kind == "category" and column.categories.dtype.kind not in "iu"
            kinds.append(ColumnKind(column.label, kind, "" if is_text else "plain"))
        return cls(tuple(kinds))

    @property
    def names(self) -> list[str]:
        """Columns of a file that the model needs."""
        return [kind.name for kind in self.columns if kind.is_used or kind.kind == "exposure"]

    @property
    def outputs(self) -> list[str]:
        """Columns that the model sees."""
        return [name for kind in self.columns for name in kind.outputs]

    def check_columns(self, table: tables.RawTable, known: Collection[str]) -> None:
        """Raise if a table lacks columns that the model needs, or has unknown ones.

        Columns that were left out in training, and those in `known`, may be there or not.
        """
        there = set(table.names)
        absent = [name for name in self.names if name not in there]
        if absent:
            raise CliError(
                f"{table.source}: the model needs {_columns(absent)}, which the file does not "
                f"have{_hint(absent, table)}"
            )
        familiar = {kind.name for kind in self.columns} | set(known)
        extra = [name for name in table.names if name not in familiar]
        if extra:
            raise CliError(
                f"{table.source}: the model does not know {_columns(extra)}: leave "
                f"{'it' if len(extra) == 1 else 'them'} out, or use --ignore-extra"
            )

    def apply(self, table: tables.RawTable) -> tuple[Any, list[str]]:
        """Return a data frame of floats and categories, and remarks on values read as missing."""
        try:
            import pandas
        except ImportError:
            raise CliError("tables need pandas: pip install 'jointleaf[cli]'") from None
        frame: dict[str, Any] = {}
        remarks: list[str] = []
        for kind in (kind for kind in self.columns if kind.is_used):
            column = table.column(kind.name)
            if kind.kind == "category":
                frame[kind.name] = pandas.Categorical(_categories(column, kind))
                continue
            numbers = _numbers(column, kind)
            remarks += _remarks(column, kind, numbers, table.source)
            if kind.kind == "date":
                parts = date_parts(numbers)
                frame |= {f"{kind.name}: {part}": parts[part] for part in kind.parts}
            else:
                frame[kind.name] = numbers
        return pandas.DataFrame(frame), remarks

    def row_numbers(
        self, table: tables.RawTable, role: str, is_used: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64] | None:
        """Return the exposure or weight of all or some rows; None if the model has none."""
        kind = next((kind for kind in self.columns if kind.kind == role), None)
        if kind is None:
            return None
        used = np.ones(len(table), bool) if is_used is None else is_used
        return row_numbers(table.column(kind.name, f"the {role}"), kind, table.source, used)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Preparation:
        """Return the preparation of which `dataclasses.asdict` made a record."""
        kinds = (ColumnKind(**kind) for kind in record["columns"])
        return cls(tuple(replace(kind, parts=tuple(kind.parts)) for kind in kinds))


def _check_outputs(kinds: list[ColumnKind], source: str) -> None:
    """Raise if no column is left, or if a part of a date has the name of a column."""
    names = [name for kind in kinds for name in kind.outputs]
    if not names:
        reasons = "; ".join(f"{kind.name!r} is left out ({kind.kind})" for kind in kinds[:4])
        raise CliError(f"{source}: no column is left to learn from: {reasons or 'only a target'}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise CliError(
            f"{source}: a part of a date would have the name of column {repeated[0]!r}: rename it"
        )


def _hint(absent: list[str], table: tables.RawTable) -> str:
    """Return what may be wrong with a file that lacks columns."""
    if len(table.names) == 1:
        return f" and whose only column is {table.names[0]!r}: check the --delimiter"
    similar = [
        name for name in (tables.closest_name(a, table.names) for a in absent[:_MOST_HINTS]) if name
    ]
    return f": did you mean {tables.listed(similar)}?" if similar else ""


def _columns(names: list[str]) -> str:
    return f"column{'s' * (len(names) > 1)} {tables.listed(names)}"


def _categories(column: tables.RawColumn, kind: ColumnKind) -> NDArray:
    """Return text, or whole numbers for a model that was fitted on these."""
    values: Any = column.values
    if kind.notation == "plain":
        return tables.object_array(
            [None if np.isnan(v) else int(v) for v in column.numbers("plain")]
        )
    if column.is_text:
        return values
    # Values of a Parquet file as they would be written in a CSV file.
    texts = (f"{v:.0f}" if isinstance(v, float) and v.is_integer() else str(v) for v in values)
    pairs = zip(texts, column.missing, strict=True)
    return tables.object_array([None if is_missing else text for text, is_missing in pairs])


def _numbers(column: tables.RawColumn, kind: ColumnKind) -> NDArray[np.float64]:
    """Return the numbers (n,) of a column (seconds for dates), NaN where there are none."""
    values = column.values
    if values.dtype.kind == "M" or (column.is_text and kind.kind == "date"):
        return parse_dates(values, kind.notation)
    if not column.is_text:
        is_valid = np.isin(values, (0, 1)) if kind.kind == "boolean" else np.isfinite(values)
        return np.where(is_valid, values, np.nan)
    if kind.kind == "boolean":
        booleans = [None if v is None else parse_boolean(v) for v in values.tolist()]
        return np.array(booleans, dtype=float)  # NaN for None
    return column.numbers(kind.notation)


def _remarks(
    column: tables.RawColumn, kind: ColumnKind, numbers: NDArray[np.float64], source: str
) -> list[str]:
    """Return remarks on values that could not be read; raise if none could."""
    remarks = []
    unread = np.flatnonzero(np.isnan(numbers) & ~column.missing)
    if unread.size:
        noun = {"number": "a number", "boolean": "true or false", "date": "such a date"}[kind.kind]
        example = f"{column.values[unread[0]]!r} in row {unread[0] + 1:,}"
        if unread.size == (~column.missing).sum():
            raise CliError(
                f"{source}: column {kind.name!r} held {kind.kind}s in training and holds {example}"
            )
        remarks.append(
            f"column {kind.name!r}: {unread.size:,} not {noun}, {example}: taken as missing"
        )
    # Where the percent signs of training are gone, 0.12 may mean 12 %.
    bare = without_percent(column.values, kind.notation) if column.is_text else []
    if bare:
        remarks.append(
            f"column {kind.name!r}: {len(bare):,} without the percent sign of training, such as "
            f"{bare[0]!r}: taken as percent"
        )
    return remarks


class Rows(NamedTuple):
    """Rows with targets."""

    X: Any  # a data frame (n, d) of floats and categories
    y: NDArray  # (n,), floats or classes
    exposure: NDArray[np.float64] | None = None  # (n,)
    weight: NDArray[np.float64] | None = None  # (n,), positive
    groups: NDArray[np.int64] | None = None  # (n,), of rows that belong together
    times: NDArray[np.float64] | None = None  # (n,), by which rows are in order

    def take(self, rows: NDArray) -> Rows:
        """Return some rows, by number."""
        others = (v if v is None else v[rows] for v in self[2:])
        return Rows(self.X.iloc[rows], self.y[rows], *others)


@dataclass(frozen=True)
class TrainingData:
    """Rows with a target."""

    table: tables.RawTable  # as read, rows without a target left out
    preparation: Preparation
    target: Target
    rows: Rows
    n_without_target: int  # rows that were left out
    n_without_weight: int  # further rows that were left out

    @property
    def y(self) -> NDArray:
        """Targets (n,), floats or classes."""
        return self.rows.y

    @property
    def encoded_rows(self) -> Rows:
        """The rows, with numbers 0..K-1 in place of classes."""
        if self.target.task == "regression":
            return self.rows
        return self.rows._replace(y=np.unique(self.y, return_inverse=True)[1].reshape(-1))

    def describe(self) -> str:
        """Return a text on file, target and columns."""
        target = self.target
        lines = [
            f"{self.table.source}: {plural(len(self.y), 'row')}, "
            f"{plural(len(self.preparation.columns), 'column')} and the target",
            *self.table.notes,
            f"target {target.name!r}: {target.task} ({target.reason})",
        ]
        if self.n_without_target:
            lines.append(f"{plural(self.n_without_target, 'row')} without a target left out")
        if self.n_without_weight:
            lines.append(f"{plural(self.n_without_weight, 'row')} of weight 0 left out")
        rows = [["column", "holds", "missing", ""]]
        for kind in self.preparation.columns:
            missing = int(self.table.column(kind.name).missing.sum())
            notes = [kind.note] * bool(kind.note)
            if kind.kind == "date":
                notes.append(f"as {', '.join(kind.parts)}")
            shown = f"{missing:,}" if missing else ""
            rows.append([kind.name, kind.holds, shown, ", ".join(notes)])
        return "\n".join([*lines, text_table(rows, right=(2,))])


def read_training_data(
    args: argparse.Namespace,
    objective: Objective = DEFAULT,
    table: tables.RawTable | None = None,
) -> TrainingData:
    """Read a file, detect what its columns and its target hold, and print it.

    A `table` is taken instead of a file.
    """
    if table is None:
        table = tables.read_table(args.data, delimiter=args.delimiter, encoding=args.encoding)
    splits.check_columns(args)
    if args.target in args.drop:
        raise CliError(f"--drop {args.target!r} is the target: drop another column")
    task: Task | None = args.task if objective.loss is None else "regression"
    target = detect_target(table.column(args.target, "the target"), table.source, task)
    y, present = target.read(table.column(args.target), table.source)
    _check_targets(y, target, objective.loss, table.source)
    whole, table = table, table.take(present)
    drop = [*args.drop, *filter(None, [args.group])]
    preparation = Preparation.learn(table, args.target, args.categorical, drop, objective)
    exposure, weight = (
        preparation.row_numbers(whole, role, present) for role in ("exposure", "weight")
    )
    n_with_target = len(table)
    if weight is not None:  # a weight of zero is the same as no row
        counts = weight > 0
        table, y, weight = table.take(counts), y[counts], weight[counts]
        exposure = exposure if exposure is None else exposure[counts]
    if len(table) < _FEWEST_ROWS:
        positive = "" if weight is None else " and a positive weight"
        raise CliError(
            f"{table.source}: {plural(len(table), 'row')} with a target{positive}: at least "
            f"{_FEWEST_ROWS} are needed"
        )
    if target.task == "classification" and len(np.unique(y)) < 2:
        raise CliError(f"{table.source}: the target {target.name!r} has one class only")
    X, _ = preparation.apply(table)
    groups, times = splits.read_groups(table, args.group), splits.read_times(table, args.time)
    rows = Rows(X, y, exposure, weight, groups, times)
    n_without_target, n_without_weight = int((~present).sum()), n_with_target - len(table)
    data = TrainingData(table, preparation, target, rows, n_without_target, n_without_weight)
    if not args.json:
        print(data.describe(), flush=True)
    return data


def _check_targets(y: NDArray, target: Target, loss: Loss | None, source: str) -> None:
    """Raise if a loss cannot be that of targets."""
    if loss is None:
        return
    try:
        loss.encode(y)
    except ValueError as cause:
        raise CliError(f"{source}: the target {target.name!r}: {cause}") from None
    if loss.has_log_link and np.count_nonzero(y) < 2:
        raise CliError(
            f"{source}: the target {target.name!r} is positive in one row only: --loss "
            f"{loss.name} needs more to learn from"
        )
