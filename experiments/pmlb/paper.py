"""The scores that the paper's authors recorded, beside ours."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from experiments.pmlb.methods import METHODS
from experiments.pmlb.records import Record
from experiments.pmlb.scores import LARGEST, Scores, compare, errors_by_method

__all__ = ["log_losses", "paper_tables", "read_paper"]

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


def paper_tables(records: Iterable[Record], task: str, path: Path) -> list[str]:
    """Medians and tests of ours and of the paper, both on the sets that both have."""
    records = list(records)
    theirs = read_paper(path, task)
    ours: Scores = errors_by_method(records, task)
    measure = "normalised error"
    if task == "binary":
        measure = "log-loss"
        ours = log_losses(records)
    lines = [
        f"Beside the paper's recorded scores: median {measure} on the sets that both have "
        "(other splits). p: the refit is better than its base, in ours and in the paper's.",
        "",
        "| method | sets | ours | paper | ours is lower on | p, ours | p, paper |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [_row(name, ours, theirs) for name in METHODS if name in ours and name in theirs]
    return [*lines, *rows] if rows else ["The paper recorded no scores of these methods."]


def log_losses(records: Iterable[Record]) -> dict[str, dict[str, float]]:
    """Of the test rows of the two-class sets, by method."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        if record.task == "binary" and np.isfinite(record.log_loss):
            found.setdefault(record.method, {})[record.set] = record.log_loss
    return found


def _row(name: str, ours: Scores, theirs: Scores) -> str:
    sets = sorted(ours[name].keys() & theirs[name].keys())
    a, b = (np.array([scores[name][s] for s in sets]) for scores in (ours, theirs))
    base = METHODS[name].base
    tests = ["", ""]
    if base is not None and base in ours and base in theirs:
        shared = {s for s in sets if s in ours[base] and s in theirs[base]}
        tests = [_p(_only(scores[name], shared), scores[base]) for scores in (ours, theirs)]
    lower = f"{np.sum(a < b)}" if sets else "-"
    return (
        f"| {METHODS[name].label} | {len(sets)} | {_median(a)} | {_median(b)} | {lower} "
        f"| {tests[0]} | {tests[1]} |"
    )


def _only(errors: Mapping[str, float], sets: set[str]) -> dict[str, float]:
    return {name: value for name, value in errors.items() if name in sets}


def _p(mine: Mapping[str, float], other: Mapping[str, float]) -> str:
    return f"{compare(mine, other).p:.1e}"


def _median(values: np.ndarray) -> str:
    return f"{np.median(values):.4f}" if len(values) else "-"
