"""The file of results: one line per (set, seed, model), appended as soon as it is known."""

from __future__ import annotations

import csv
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from io import StringIO
from pathlib import Path

Key = tuple[str, int, str]


@dataclass(frozen=True)
class Result:
    """Scores and seconds of one model on one split; what a task has not is None.

    Attributes
    ----------
    task, set, seed, model
        What was run.
    nmse : float or None
        Regression: test mean squared error, divided by that of the training mean.
    error, log_loss : float or None
        Classes: share of wrong ones, and log-loss, on the test rows.
    fit_s, predict_s : float
        Processor seconds of the fit, and of predicting the test rows.
    """

    task: str
    set: str
    seed: int
    model: str
    nmse: float | None
    error: float | None
    log_loss: float | None
    fit_s: float
    predict_s: float

    @property
    def key(self) -> Key:
        """What makes the run unique."""
        return self.set, self.seed, self.model

    @property
    def score(self) -> float:
        """What models are ranked by, lower is better: NMSE or log-loss."""
        value = self.nmse if self.task == "regression" else self.log_loss
        if value is None:
            raise ValueError(f"No score of task {self.task!r} in {self}.")
        return value


FIELDS = tuple(field.name for field in fields(Result))


def read_results(path: Path) -> dict[Key, Result]:
    """All results of the file, the last where one was run twice; none if there is no file.

    Raises
    ------
    ValueError
        A line does not have the expected columns.
    """
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        results = []
        for row in reader:
            if set(row) != set(FIELDS) or None in row.values():
                raise ValueError(f"{path}, line {reader.line_num}: expected {','.join(FIELDS)}.")
            results.append(_parse(row))
    return {result.key: result for result in results}


def append_result(path: Path, result: Result) -> None:
    """Append one line in one write, so that several processes may share the file."""
    _ensure_header(path)
    values = {k: "" if v is None else v for k, v in asdict(result).items()}
    line = StringIO()
    csv.DictWriter(line, FIELDS, lineterminator="\n").writerow(values)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, line.getvalue().encode())
    finally:
        os.close(descriptor)


def _ensure_header(path: Path) -> None:
    """Make the file with its header in one step: a link appears whole, and to one process only."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = Path(folder) / path.name
        draft.write_text(",".join(FIELDS) + "\n")
        with suppress(FileExistsError):  # Another process was first.
            os.link(draft, path)


def _parse(row: dict[str, str]) -> Result:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return Result(
        task=row["task"],
        set=row["set"],
        seed=int(row["seed"]),
        model=row["model"],
        nmse=number("nmse"),
        error=number("error"),
        log_loss=number("log_loss"),
        fit_s=float(row["fit_s"]),
        predict_s=float(row["predict_s"]),
    )
