"""Running some (set, method) pairs of a file of results again: the numbers must be the same."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.pmlb.data import load_data
from experiments.pmlb.methods import METHODS
from experiments.pmlb.records import Record
from experiments.pmlb.run import search_method
from experiments.pmlb.sets import PAPER_SETS
from jointleaf._core.progress import Progress

__all__ = ["Repetition", "draw_pairs", "repeat", "repetition_table"]

#: Numbers of the file have six digits.
TOLERANCE = 2e-6


@dataclass(frozen=True)
class Repetition:
    """A row of results and what a second run gave."""

    first: Record
    second: Record

    @property
    def is_same(self) -> bool:
        """Whether chosen parameters, validation loss and errors are those of the first run."""
        numbers = ("valid_loss", "error", "dummy", "log_loss")
        return json.loads(self.first.parameters) == json.loads(self.second.parameters) and all(
            _equal(getattr(self.first, name), getattr(self.second, name)) for name in numbers
        )


def _equal(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=TOLERANCE)


def draw_pairs(records: Sequence[Record], n: int, seed: int) -> list[Record]:
    """Draw n rows at random, among those of the paper's sets."""
    known = [record for record in records if record.set in PAPER_SETS]
    chosen = np.random.default_rng(seed).choice(len(known), min(n, len(known)), replace=False)
    return [known[k] for k in chosen]


def repeat(
    chosen: Sequence[Record], records: Sequence[Record], folder: Path | None
) -> list[Repetition]:
    """Search again what `chosen` rows are of; `records` has the bases of refined ensembles."""
    found = {(record.set, record.method): record for record in records}
    progress = Progress(len(chosen), "second runs")
    repetitions = []
    for first in chosen:
        info, method = PAPER_SETS[first.set], METHODS[first.method]
        data = load_data(info, folder, first.seed)
        if method.twin is not None and not data.categorical:  # its row is a copy of the twin's
            method = METHODS[method.twin]
        tuned = found[first.set, method.tuned_as] if method.tuned_as else None
        second = search_method(info, data, method, first.setting, tuned)
        repetitions.append(Repetition(first, second))
        progress.step(f"{info.name}, {method.label}")
    return repetitions


def repetition_table(repetitions: Sequence[Repetition]) -> str:
    """First and second errors, as Markdown."""
    lines = ["| set | method | error | second run | same |", "|---|---|---|---|---|"]
    for one in repetitions:
        lines.append(
            f"| {one.first.set} | {METHODS[one.first.method].label} | {one.first.error:.6g} "
            f"| {one.second.error:.6g} | {'yes' if one.is_same else 'no'} |"
        )
    same = sum(one.is_same for one in repetitions)
    return "\n".join([*lines, "", f"{same} of {len(repetitions)} pairs are the same."])
