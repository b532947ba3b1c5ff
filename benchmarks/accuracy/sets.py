"""The data sets, in groups; every run and every report means the same ones.

======== ===========================================================================================
paper    the paper's 150 sets of PMLB, all columns as numbers
large    five large sets of PMLB, all columns as numbers
fresh    179 tables of R packages
uci      28 UCI regression sets with fixed splits: seed k is split k, a tenth of the rows is tested
medium   all sets of 2,000 to 120,000 rows of uci and PMLB, categories as categories, split 0
more     sets of PMLB with fewer rows that are not the paper's, most of several classes
million  generated functions, a million training rows
======== ===========================================================================================

They are listed in ``sets.csv`` and ``fresh.csv``. ``pmlb.NAME`` is a set of PMLB with its
categories as categories, ``NAME`` alone the same set with all columns as numbers.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from . import fresh

TASKS = ("regression", "binary", "multiclass")
GROUPS = ("paper", "large", "fresh", "uci", "medium", "more", "million")
HALVES = ("choice", "report")
MEDIUM_ROWS = (2_000, 120_000)

HALF_RULE = {
    "paper": "Halves: every second of the paper's sets in alphabetical order within a task.",
    "crc32": (
        "Halves: every second set in the order of the CRC-32 of its name, within a task and "
        "separately for sets of the group medium and smaller ones."
    ),
}

_LIST = Path(__file__).with_name("sets.csv")
_SEEDS = {"medium": (0,), "million": (0,)}


@dataclass(frozen=True)
class DataSet:
    """A listed data set.

    Attributes
    ----------
    name : str
        In PMLB or of an R table, or with its source before a dot: ``uci.kin40k``.
    task : str
        One of `TASKS`.
    group : str
        One of `GROUPS`; see also `belongs_to`.
    rows : int
        How many there are.
    categories : tuple of str
        Names of the columns that are categories.
    """

    name: str
    task: str
    group: str
    rows: int
    categories: tuple[str, ...] = ()

    @property
    def bare_name(self) -> str:
        """The name without its source."""
        known = self.group not in ("paper", "large", "fresh")
        return self.name.split(".", 1)[1] if known else self.name

    def belongs_to(self, group: str) -> bool:
        """Whether the set is in a group: sets of `uci` may also be in `medium`."""
        return group == self.group or (group == "medium" and self.group == "uci" and self.is_medium)

    @property
    def is_medium(self) -> bool:
        """Whether the set has as many rows as those of the group `medium`."""
        return MEDIUM_ROWS[0] <= self.rows <= MEDIUM_ROWS[1]


def default_seeds(group: str) -> tuple[int, ...]:
    """Seeds of the splits that a group is run and reported with."""
    return _SEEDS.get(group, (0, 1))


def known_sets() -> list[DataSet]:
    """All listed sets, in alphabetical order within group and task."""
    with _LIST.open(newline="") as file:
        known = [
            DataSet(
                row["set"], row["task"], row["group"], int(row["rows"]),
                tuple(filter(None, row["categories"].split("|"))),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
    return known + [
        DataSet(name, row["task"], "fresh", int(row["rows"]))
        for name, row in fresh.listed().items()
    ]


def select_sets(
    names: Sequence[str] | None = None, *, task: str = "all", group: str = "paper"
) -> list[DataSet]:
    """Return the sets with these names, or all of a group, of one task or of all.

    Parameters
    ----------
    names : sequence of str, optional
        Full names, or those of sets of the group without their source.
    task : str
        One of `TASKS`, or "all".
    group : str
        One of `GROUPS`.

    Raises
    ------
    ValueError
        A name is not listed.
    """
    known = known_sets()
    members = [entry for entry in known if entry.belongs_to(group)]
    if names is None:
        chosen = members
    else:
        by_name = {entry.name: entry for entry in known}
        by_name |= {entry.bare_name: entry for entry in members}
        for name in names:
            if name not in by_name:
                near = get_close_matches(name, by_name, 5) or list(by_name)[:5]
                raise ValueError(
                    f"Unknown data set {name!r}: did you mean {', '.join(near)}? All are listed in "
                    "sets.csv and fresh.csv."
                )
        chosen = [by_name[name] for name in dict.fromkeys(names)]
    return [entry for entry in chosen if task in ("all", entry.task)]


def half_rule(group: str) -> str | None:
    """Return the sentence that says how a group is halved; None for groups that are not."""
    if group == "paper":
        return HALF_RULE["paper"]
    return HALF_RULE["crc32"] if group in ("uci", "medium", "more") else None


def select_half(sets: Sequence[DataSet], half: str) -> list[DataSet]:
    """Keep one half of the sets: `choice`, to choose defaults on, or `report`.

    See `HALF_RULE`. Of the paper's sets neighbours in the alphabet are often alike (the ``fri``
    family), so that both halves have sets of every kind. Sets of `large`, `fresh` and `million`
    are in neither half.
    """
    start = HALVES.index(half)
    strata: dict[tuple, list[DataSet]] = {}
    for entry in known_sets():
        if half_rule(entry.group) is not None:
            stratum = (
                entry.group == "paper",
                entry.task,
                entry.group != "paper" and entry.is_medium,
            )
            strata.setdefault(stratum, []).append(entry)
    names = {entry.name for members in strata.values() for entry in _ordered(members)[start::2]}
    return [entry for entry in sets if entry.name in names]


def _ordered(members: list[DataSet]) -> list[DataSet]:
    if members[0].group == "paper":
        return sorted(members, key=lambda entry: entry.name)
    return sorted(members, key=lambda entry: zlib.crc32(entry.bare_name.encode()))
