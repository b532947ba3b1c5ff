"""Reading the scores that the paper's authors recorded, and ours in the same measure."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from experiments.pmlb.methods import METHODS
from experiments.pmlb.records import Record
from experiments.pmlb.scores import LARGEST

__all__ = ["log_losses", "read_paper"]

_KINDS = {"regression": "regr", "binary": "class"}
_COLUMNS = {"kind", "method", "dataset", "test_score", "dummy_loss"}


def read_paper(path: Path, task: str) -> dict[str, dict[str, float]]:
    """Recorded scores, by our names of methods; several of ours may be one of theirs.

    Regression: RMSE / RMSE of the training mean. Two classes: log-loss, because the 0/1 losses of
    single sets were not recorded.
    """
    names: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        if method.paper:
            names.setdefault(method.paper, []).append(name)
    found: dict[str, dict[str, float]] = {}
    with path.open(newline="") as file:
        table = csv.DictReader(file)
        missing = _COLUMNS - set(table.fieldnames or ())
        if missing:
            raise ValueError(f"{path} lacks the columns {', '.join(sorted(missing))}")
        for row in table:
            if row["kind"] != _KINDS[task] or row["method"] not in names:
                continue
            value = float(row["test_score"])
            if task == "regression":
                value /= float(row["dummy_loss"])
            if np.isfinite(value):
                for name in names[row["method"]]:
                    found.setdefault(name, {})[row["dataset"]] = min(value, LARGEST)
    return found


def log_losses(records: Iterable[Record]) -> dict[str, dict[str, float]]:
    """Of the test rows of the two-class sets, by method."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        if record.task == "binary" and np.isfinite(record.log_loss):
            found.setdefault(record.method, {})[record.set] = record.log_loss
    return found
