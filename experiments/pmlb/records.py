"""The file of results: one row per (set, method), appended when it is done."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from experiments.pmlb.search import SearchName

__all__ = ["Record", "ResultFile", "Setting", "read_records"]


@dataclass(frozen=True)
class Setting:
    """What all rows of a file have in common."""

    search: SearchName
    trials: int
    seed: int

    def __str__(self) -> str:
        return f"{self.search} search, {self.trials} trials, seed {self.seed}"


@dataclass(frozen=True)
class Record:
    """One row.

    Attributes
    ----------
    valid_loss : float
        Of the chosen trial: RMSE in standard units, or log-loss.
    error, dummy, log_loss : float
        See `experiments.pmlb.losses.Score`.
    fit_seconds, seconds : float
        Of the chosen trial, and of the whole search.
    parameters : str
        Of the chosen trial, as JSON.
    """

    task: str
    set: str
    method: str
    search: SearchName
    trials: int
    seed: int
    rows: int
    columns: int
    valid_loss: float
    error: float
    dummy: float
    log_loss: float
    fit_seconds: float
    seconds: float
    parameters: str

    @property
    def setting(self) -> Setting:
        """How it was searched and split."""
        return Setting(self.search, self.trials, self.seed)


_NAMES = [field.name for field in fields(Record)]
_TYPES = {"trials": int, "seed": int, "rows": int, "columns": int} | dict.fromkeys(
    ("valid_loss", "error", "dummy", "log_loss", "fit_seconds", "seconds"), float
)


def read_records(path: Path) -> list[Record]:
    """All rows of a file; a last line that was cut off is left out.

    Raises
    ------
    ValueError
        The file is not one of results, or holds rows of several settings.
    """
    with path.open(newline="") as file:
        table = csv.DictReader(file)
        if table.fieldnames != _NAMES:
            raise ValueError(f"{path} does not have the columns {', '.join(_NAMES)}")
        rows = [row for row in table if None not in row.values()]
    records = [_record(row) for row in rows]
    settings = {record.setting for record in records}
    if len(settings) > 1:
        raise ValueError(f"{path} holds results of several settings: {_listed(settings)}")
    return records


def _record(row: dict[str, str]) -> Record:
    values: dict[str, Any] = {name: _TYPES.get(name, str)(row[name]) for name in _NAMES}
    return Record(**values)


def _listed(settings: Iterable[Setting]) -> str:
    return "; ".join(sorted(map(str, settings)))


class ResultFile:
    """A file of results that is appended to.

    Parameters
    ----------
    path : Path
        Made, with its folder, where it is not there.
    setting : Setting
        Of the rows that will be added; those in the file must have the same.
    """

    def __init__(self, path: Path, setting: Setting) -> None:
        self.path = path
        records = read_records(path) if path.exists() else []
        if records and records[0].setting != setting:
            raise ValueError(f"{path} holds results of {records[0].setting}, not of {setting}")
        self._records = {(record.set, record.method): record for record in records}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _end_last_line(path)
        else:
            path.write_text(",".join(_NAMES) + "\n")

    def records(self) -> list[Record]:
        """All rows."""
        return list(self._records.values())

    def find(self, name: str, method: str | None) -> Record | None:
        """The row of a set and a method, if it is there."""
        return None if method is None else self._records.get((name, method))

    def add(self, record: Record) -> None:
        """Append a row, at once."""
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, _NAMES, lineterminator="\n").writerow(asdict(record))
        self._records[record.set, record.method] = record


def _end_last_line(path: Path) -> None:
    """Cut off what a run that was killed while writing has left of a line."""
    text = path.read_text()
    if not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])
