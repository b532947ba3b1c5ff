"""All runs that are not in the file of results yet, one after another, each in a process."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from .isolation import run_isolated
from .loading import Table, load
from .models import Model
from .scoring import evaluate
from .sets import DataSet
from .store import append_result, read_results


@dataclass(frozen=True)
class Run:
    """One model on one split of one data set."""

    seed: int
    entry: DataSet
    model: Model

    def __str__(self) -> str:
        return f"{self.entry.name}, seed {self.seed}, {self.model.name}"


@dataclass
class Progress:
    """Counts runs, and says how long the rest may take at the mean speed so far."""

    total: int
    done: int = 0
    failed: int = 0
    start: float = field(default_factory=time.monotonic)

    def step(self, text: str) -> None:
        """Report that one run has ended."""
        self.done += 1
        left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
        minutes, seconds = divmod(round(left), 60)
        print(f"{self.done} of {self.total}, {minutes}:{seconds:02d} left: {text}", flush=True)


def plan(
    sets: Sequence[DataSet], models: Sequence[Model], seeds: Sequence[int], output: Path
) -> list[Run]:
    """Runs that are missing: models inside sets inside seeds, so that any start is comparable."""
    done = read_results(output)
    return [
        Run(seed, entry, model)
        for seed in seeds
        for entry in sets
        for model in models
        if model.takes(entry.task, entry.rows) and (entry.name, seed, model.name) not in done
    ]


def run_all(runs: Sequence[Run], output: Path, data: Path | None) -> Progress:
    """Run what is planned; a model that fails is reported on stderr and is missing from the file.

    Parameters
    ----------
    runs : sequence of Run
        What `plan` gave.
    output : path
        The file of results.
    data : path, optional
        Folder with the files of sets, as `load` takes it.

    Raises
    ------
    ImportError
        The package of a model is not installed: said before the first run.
    """
    for model, task in {(run.model, run.entry.task) for run in runs}:
        model.make(task)
    progress = Progress(len(runs))
    for entry, group in groupby(runs, key=lambda run: run.entry):
        table = load(entry, data)
        for run in group:
            _run_one(run, table, output, progress)
    return progress


def _run_one(run: Run, table: Table, output: Path, progress: Progress) -> None:
    try:
        result = run_isolated(evaluate, run.model, run.entry, table, run.seed)
    except Exception as error:  # Of any kind: a peer's failure must not end a run of hours.
        progress.failed += 1
        print(f"{run} failed: {error}", file=sys.stderr, flush=True)
        progress.step(f"{run}: missing")
        return
    append_result(output, result)
    progress.step(f"{run}: {result.score:.4f} in {result.fit_s:.1f} s")
