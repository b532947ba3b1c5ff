"""The data sets: the paper's 150 of PMLB, five large ones, and 179 that are not of PMLB.

They are listed in ``sets.csv`` and ``fresh.csv``, so that every run and every report means the same
ones.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from . import fresh

TASKS = ("regression", "binary")
GROUPS = ("paper", "large", "fresh")
HALVES = ("choice", "report")

_LIST = Path(__file__).with_name("sets.csv")


@dataclass(frozen=True)
class DataSet:
    """A data set's name (in PMLB, or of an R table), its task and the group it belongs to."""

    name: str
    task: str
    group: str


def known_sets() -> list[DataSet]:
    """All listed sets, in alphabetical order within group and task."""
    with _LIST.open(newline="") as file:
        known = [DataSet(row["set"], row["task"], row["group"]) for row in csv.DictReader(file)]
    return known + [DataSet(name, row["task"], "fresh") for name, row in fresh.listed().items()]


def select_sets(
    names: Sequence[str] | None = None, *, task: str = "all", group: str = "paper"
) -> list[DataSet]:
    """Give the sets with these names, or all of a group, of one task or of both.

    Raises
    ------
    ValueError
        A name is not listed.
    """
    known = known_sets()
    if names is None:
        chosen = [entry for entry in known if entry.group == group]
    else:
        by_name = {entry.name: entry for entry in known}
        for name in names:
            if name not in by_name:
                near = get_close_matches(name, by_name, 5) or list(by_name)[:5]
                raise ValueError(
                    f"Unknown data set {name!r}: did you mean {', '.join(near)}? All are listed in "
                    "sets.csv and fresh.csv."
                )
        chosen = [by_name[name] for name in dict.fromkeys(names)]
    return [entry for entry in chosen if task in ("all", entry.task)]


def select_half(sets: Sequence[DataSet], half: str) -> list[DataSet]:
    """Keep one half of the paper's sets: `choice`, to choose defaults on, or `report`.

    Sets at even positions of the alphabetical order within a task are for choosing, those at
    odd positions for reporting. Neighbours are often alike (the ``fri`` family), so that both
    halves have sets of every kind.
    """
    start = HALVES.index(half)
    names: set[str] = set()
    for task in TASKS:
        names.update(sorted(entry.name for entry in select_sets(task=task))[start::2])
    return [entry for entry in sets if entry.name in names]
