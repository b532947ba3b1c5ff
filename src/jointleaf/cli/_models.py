"""Model files of the command line: the model, and the record of its fit."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jointleaf.cli._output import CliError, finite, plural, print_remark
from jointleaf.cli._tables.preparing import Preparation
from jointleaf.cli._tables.raw import RawTable
from jointleaf.cli._tables.reading import read_table

__all__ = ["RECORD_FORMAT", "LoadedModel", "load_model", "read_rows", "save_model"]

#: The format of records that is written and read.
RECORD_FORMAT = 1
_MOST_SHOWN = 3


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file.

    Attributes
    ----------
    source : str
    model : estimator
    preparation : Preparation
    record : dict or None
        Of its fit (`jointleaf.cli._record`); None if it was saved by `jointleaf.save`.
    """

    source: str
    model: Any
    preparation: Preparation
    record: dict[str, Any] | None

    @property
    def target(self) -> str | None:
        """Name of the target, where it is known."""
        return None if self.record is None else self.record["target"]["name"]

    def need_record(self, command: str) -> dict[str, Any]:
        """Return the record, or raise if the file has none."""
        if self.record is None:
            raise CliError(
                f"{self.source}: was saved from Python and holds no record of its fit: "
                f"`jointleaf {command}` needs a model of `jointleaf fit`"
            )
        return self.record


def save_model(model: Any, record: dict[str, Any], path: Path) -> None:
    """Write a model and its record in one step."""
    import jointleaf

    try:
        jointleaf.save(model, path, metadata={"cli": finite(record)})
    except OSError as cause:
        raise CliError(f"{path}: cannot be written ({cause.strerror or cause})") from None


def load_model(path: str) -> LoadedModel:
    """Read a model file."""
    import jointleaf

    try:
        model, metadata = jointleaf.load(path), jointleaf.load_metadata(path)
    except FileNotFoundError:
        raise CliError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise CliError(f"{path}: is a folder: name a model file") from None
    except OSError as cause:
        raise CliError(f"{path}: cannot be read ({cause.strerror or cause})") from None
    if not isinstance(model, jointleaf.JOPLEnRegressor | jointleaf.JOPLEnClassifier):
        raise CliError(
            f"{path}: holds a {type(model).__name__}, which the command line does not know: "
            "use it from Python with jointleaf.load"
        )
    record = metadata.get("cli")
    if record is None:
        return LoadedModel(path, model, Preparation.of_model(model, path), None)
    if record.get("format", 0) > RECORD_FORMAT:
        raise CliError(f"{path}: was written by a newer jointleaf: upgrade jointleaf")
    try:
        preparation = Preparation.from_dict(record["preparation"])
    except (KeyError, TypeError) as cause:
        raise CliError(f"{path}: the record of the fit is damaged ({cause})") from None
    return LoadedModel(path, model, preparation, record)


def read_rows(
    loaded: LoadedModel, args: argparse.Namespace, *, known: Collection[str] = ()
) -> tuple[RawTable, Any, list[str]]:
    """Read rows for a model, as its training rows were read.

    Parameters
    ----------
    loaded : LoadedModel
    args : Namespace
        With `data`, `delimiter`, `encoding` and `ignore_extra`.
    known : names of further columns that may be there

    Returns
    -------
    table : RawTable
        As read.
    X : DataFrame
        What the model sees.
    remarks : list of str
        About values that are not as in training; also printed to the standard error stream.
    """
    table = read_table(args.data, delimiter=args.delimiter, encoding=args.encoding)
    for name in known:
        table.column(name, "--id")
    familiar = {*known, *([] if loaded.target is None else [loaded.target])}
    if args.ignore_extra:
        familiar |= set(table.names)
    loaded.preparation.check_columns(table, known=familiar)
    X, remarks = loaded.preparation.apply(table)
    remarks += _unseen_categories(loaded.model, X)
    for remark in remarks:
        print_remark(f"{table.source}: {remark}")
    return table, X, remarks


def _unseen_categories(model: Any, X: Any) -> list[str]:
    """Return remarks on categories not seen in training: the model takes them for one more."""
    remarks = []
    for column in model.columns_:
        if column.categories is None:
            continue
        values = X[column.label].dropna()
        unseen = values[~values.isin(column.categories.tolist())]
        if len(unseen):
            different = unseen.astype(object).unique().tolist()
            shown = ", ".join(map(repr, different[:_MOST_SHOWN]))
            dots = ", ..." if len(different) > _MOST_SHOWN else ""
            remarks.append(
                f"column {column.label!r}: {len(unseen):,} of {plural(len(values), 'value')} "
                f"{'was' if len(unseen) == 1 else 'were'} not seen in training ({shown}{dots})"
            )
    return remarks
