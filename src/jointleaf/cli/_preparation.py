"""From a file and options to the data frame that a model sees, the rows with targets, the loss."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Loss, make_number_loss
from jointleaf._core.progress import ticking
from jointleaf._data.kinds import ColumnKind, row_counters
from jointleaf._data.preparation import Preparation, columns_in_words
from jointleaf._data.raw_table import MISSING_WORDS, RawTable, listed
from jointleaf.cli import _splits as splits
from jointleaf.cli._columns import Target, Task, detect_role, detect_target, row_numbers
from jointleaf.cli._hints import table_hints
from jointleaf.cli._output import CliError, plural, text_table
from jointleaf.cli._tables import read_table

_FEWEST_ROWS = 10


class Objective(NamedTuple):
    """What is minimised: a loss of numbers, and the columns with exposure and weights of rows."""

    loss: Loss | None = None  # None: the squared error, or that of classes
    exposure: str | None = None
    weight: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Objective:
        """Return what the options of a command say; raise if they contradict each other."""
        for option, value, owner in (
            ("--quantile", args.quantile, "quantile"),
            ("--power", args.power, "tweedie"),
        ):
            if value is not None and args.loss != owner:
                raise CliError(
                    f"{option} {value:g} has no effect without --loss {owner}: leave it out, or "
                    f"add --loss {owner}"
                )
        if args.loss is not None and args.task == "classification":
            raise CliError(
                f"--loss {args.loss} is for numbers: leave it out, or --task classification"
            )
        loss = args.loss and make_number_loss(args.loss, args.quantile, args.power)
        if args.exposure is not None and not (loss and loss.has_log_link):
            raise CliError(
                f"--exposure {args.exposure!r} needs a loss whose predictions it multiplies: add "
                "--loss poisson, gamma or tweedie"
            )
        objective = cls(loss, args.exposure, args.weight)
        for role, name in objective.roles.items():
            if name in (args.target, *args.drop, *args.categorical):
                other = "the target" if name == args.target else "also in --drop or --categorical"
                raise CliError(f"--{role} {name!r} is {other}: name another column")
        if args.exposure is not None and args.exposure == args.weight:
            raise CliError(
                f"--exposure and --weight are both {args.weight!r}: leave one of them out, as "
                "exposure weighs rows already"
            )
        return objective

    @property
    def roles(self) -> dict[str, str]:
        """Names of the columns with exposure and weights that there are, by what they hold."""
        roles = {"exposure": self.exposure, "weight": self.weight}
        return {role: name for role, name in roles.items() if name is not None}


#: Where nothing is said: the squared error, or the loss of classes.
DEFAULT = Objective()


def learn_preparation(
    table: RawTable, args: argparse.Namespace, objective: Objective, counters: Collection[str] = ()
) -> Preparation:
    """Detect what the columns of a training table hold; `counters` count the rows of the file."""
    role_of = {name: role for role, name in objective.roles.items()}
    roles = {
        name: detect_role(table.column(name, f"--{role}"), role, table.source)
        for name, role in role_of.items()
    }
    if args.group is not None:
        roles[args.group] = ColumnKind(args.group, "group", note="as requested")
    return Preparation.learn(
        table,
        categorical=args.categorical,
        drop=args.drop,
        keep=[*args.keep, *filter(None, [args.time])],  # rows in order of time count it
        counters=counters,
        roles=roles,
        target=table.column(args.target),
        missing=missing_words(args),
    )


def missing_words(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the texts that count as missing."""
    return MISSING_WORDS if args.na is None else args.na


def read_file(args: argparse.Namespace, missing: Collection[str]) -> RawTable:
    """Read the file that a command is given, as its options say."""
    return read_table(
        args.data,
        delimiter=args.delimiter,
        encoding=args.encoding,
        missing=missing,
        max_unpacked=args.max_unpacked,
        sheet=args.sheet,
    )


def prepared(preparation: Preparation, table: RawTable) -> tuple[Any, list[str]]:
    """Return a data frame of floats and categories, and remarks on values read as missing."""
    columns, remarks = preparation.apply(table)
    try:
        return preparation.frame(columns, "pandas"), remarks
    except ImportError:
        raise CliError("tables need pandas: pip install 'jointleaf[cli]'") from None


def of_model(model: Any, source: str) -> Preparation:
    """Return the preparation of a model saved from Python: its own, or that of its columns."""
    if not hasattr(model, "feature_names_in_"):
        raise CliError(
            f"{source}: the model was fitted on a matrix without column names: fit it on a "
            "data frame, or with `jointleaf fit`"
        )
    known = model.columns_.preparation
    kinds = {}
    for column in model.columns_:
        kind = "number" if column.categories is None else "category"
        is_text = kind == "category" and column.categories.dtype.kind not in "iu"
        kinds[column.label] = ColumnKind(column.label, kind, "" if is_text else "plain")
    if known is None:
        return Preparation(tuple(kinds.values()))
    columns = (kinds[kind.name] if kind.kind == "unchanged" else kind for kind in known.columns)
    return replace(known, columns=tuple(columns))


def check_columns(
    preparation: Preparation, table: RawTable, known: Collection[str], reason: str = ""
) -> None:
    """Raise if a table lacks columns that the model needs, or has unknown ones, for a reason.

    Columns that were left out in training, and those in `known`, may be there or not.
    """
    preparation.check_names(table.source, table.names, table.hint)
    familiar = {kind.name for kind in preparation.columns} | set(known)
    extra = [name for name in table.names if name not in familiar]
    if extra:
        raise CliError(
            f"{table.source}: the model does not know {columns_in_words(extra)}: leave "
            f"{'it' if len(extra) == 1 else 'them'} out, or use --ignore-extra{reason}"
        )


def role_numbers(
    preparation: Preparation, table: RawTable, role: str, is_used: NDArray[np.bool_] | None = None
) -> NDArray[np.float64] | None:
    """Return the exposure or weight of all or some rows; None if the model has none."""
    kind = next((kind for kind in preparation.columns if kind.kind == role), None)
    if kind is None:
        return None
    used = np.ones(len(table), bool) if is_used is None else is_used
    return row_numbers(table.column(kind.name, f"the {role}"), kind, table.source, used)


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

    table: RawTable  # as read, rows without a target left out
    preparation: Preparation
    target: Target
    rows: Rows
    n_without_target: int  # rows that were left out
    n_without_weight: int  # further rows that were left out
    hints: tuple[str, ...] = ()

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
            f"target {target.name!r}: {target.task} ({target.reason}{target.advice})",
        ]
        if self.n_without_target:
            lines.append(f"{plural(self.n_without_target, 'row')} without a target left out")
        if self.n_without_weight:
            lines.append(f"{plural(self.n_without_weight, 'row')} of weight 0 left out")
        rows = [["column", "holds", "missing", ""]]
        for kind in self.preparation.columns:
            missing = int(self.table.column(kind.name).missing.sum())
            note = kind.note
            if kind.kind == "date":  # the remarks come last
                form, *remarks = note.split("; ")
                parts = f"{form}{', ' * bool(form)}as {', '.join(kind.parts)}"
                note = "; ".join([parts, *remarks])
            shown = f"{missing:,}" if missing else ""
            rows.append([kind.name, kind.holds, shown, note])
        lines.append(text_table(rows, right=(2,)))
        left_out = [kind.name for kind in self.preparation.columns if kind.can_be_kept]
        if left_out:
            lines.append(
                f"Left out: {listed(left_out)}. To use such a column anyway, add --keep NAME."
            )
        if any("counts as missing" in kind.note for kind in self.preparation.columns):
            lines.append('where "none" is a category, say what counts as missing: --na WORDS')
        lines += [f"hint: {hint}" for hint in self.hints]
        return "\n".join(lines)


def read_training_data(
    args: argparse.Namespace, objective: Objective = DEFAULT, table: RawTable | None = None
) -> TrainingData:
    """Read a file, detect what its columns and its target hold, and print it.

    A `table` is taken instead of a file.
    """
    with ticking(f"reading {args.data}"):
        data = _read_training_data(args, objective, table)
    if not args.json:
        print(data.describe(), flush=True)
    return data


def _read_training_data(
    args: argparse.Namespace, objective: Objective, table: RawTable | None
) -> TrainingData:
    if table is None:
        table = read_file(args, missing_words(args))
    splits.check_columns(args)
    for option in ("drop", "keep", "categorical"):
        setattr(args, option, _separated(getattr(args, option), table.names))
    if args.target in args.drop:
        raise CliError(f"--drop {args.target!r} is the target: drop another column")
    task: Task | None = args.task if objective.loss is None else "regression"
    option = "--task regression" if objective.loss is None else f"--loss {objective.loss.name}"
    target = detect_target(table.column(args.target, "the target"), table.source, task, option)
    y, present = target.read(table.column(args.target), table.source)
    _check_targets(y, target, objective.loss, table.source)
    whole, table = table, table.take(present)
    # Before rows are left out, behind which the numbers have gaps.
    counters = set() if present.all() else row_counters(whole)
    preparation = learn_preparation(table, args, objective, counters)
    exposure, weight = (
        role_numbers(preparation, whole, role, present) for role in ("exposure", "weight")
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
        positive = "" if weight is None else " in rows of positive weight"
        raise CliError(
            f"{table.source}: the target {target.name!r} has one class only{positive}: at least "
            "two classes are needed"
        )
    X, _ = prepared(preparation, table)
    groups, times = splits.read_groups(table, args.group), splits.read_times(table, args.time)
    rows = Rows(X, y, exposure, weight, groups, times)
    n_without_target, n_without_weight = int((~present).sum()), n_with_target - len(table)
    hints = table_hints(args, table, preparation.columns, target, rows, objective.loss)
    return TrainingData(table, preparation, target, rows, n_without_target, n_without_weight, hints)


def _separated(names: Collection[str], known: Collection[str]) -> list[str]:
    """Return names of columns, of which one with commas may be several."""
    several = (
        [name] if name in known or "," not in name else [part.strip() for part in name.split(",")]
        for name in names
    )
    return [name for some in several for name in some]


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
