"""Which sets there are, what their columns hold, and in which order they are run."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["PAPER_SETS", "SetInfo", "Task", "run_order"]

Task = Literal["regression", "binary"]

#: PMLB's metadata of the paper's sets (EpistasisLab/pmlb at 0820182a): one letter per column,
#: c continuous, k categorical, b binary, o ordinal. The file of titanic names no types.
_TABLE = Path(__file__).with_name("sets.csv")


@dataclass(frozen=True)
class SetInfo:
    """What is known of a set before it is read."""

    name: str
    task: Task
    rows: int
    columns: int
    types: str

    @property
    def family(self) -> str:
        """Friedman's functions by generator, the others together."""
        found = re.search(r"fri_c\d", self.name)
        return found.group() if found else "other"

    @property
    def cost(self) -> int:
        """Entries of the table: growing trees takes about so long."""
        return self.rows * self.columns


def _read() -> dict[str, SetInfo]:
    with _TABLE.open(newline="") as file:
        return {
            row["name"]: SetInfo(
                row["name"],
                "regression" if row["task"] == "regression" else "binary",
                int(row["rows"]),
                int(row["columns"]),
                row["types"],
            )
            for row in csv.DictReader(file)
        }


#: The paper's 90 regression and 60 binary sets.
PAPER_SETS: dict[str, SetInfo] = _read()


def run_order(sets: Iterable[SetInfo]) -> list[SetInfo]:
    """Cheap sets first, every family spread evenly over the whole.

    A run that is stopped early has then seen each family in its proportion; by cost alone the
    functions of Friedman's, which are larger, would all come last.
    """
    families: dict[str, list[SetInfo]] = {}
    for info in sorted(sets, key=lambda info: (info.cost, info.name)):
        families.setdefault(info.family, []).append(info)
    places = [
        ((rank + 0.5) / len(family), info.cost, info.name, info)
        for family in families.values()
        for rank, info in enumerate(family)
    ]
    return [info for *_, info in sorted(places, key=lambda place: place[:3])]
