"""Scores of several models on the same splits, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .models import MODELS, REFERENCE, default_peers
from .sets import TASKS, DataSet
from .store import Key, Result

Pairs = set[tuple[str, int]]

# Tasks, and two classes and more together.
KINDS = (*TASKS, "classes")

# Errors below are taken as this, as good as perfect: on one set the target is linear in the
# columns, and an NMSE of 1e-10 there would weigh as much in a geometric mean as ten sets of 0.1.
LEAST_NMSE = 1e-6


@dataclass(frozen=True)
class Comparison:
    """Scores per data set, averaged over its seeds, of models that all have them.

    Attributes
    ----------
    task : str
        One of `KINDS`.
    models : list of str
        The columns.
    sets : list of str
        The rows.
    scores : (n_sets, n_models) array
        Regression: logarithm of the NMSE, of `LEAST_NMSE` where it is smaller; classes: log-loss.
        Means over seeds, lower is better.
    errors : (n_sets, n_models) array or None
        Classes: share of wrong ones, mean over seeds.
    reference : (n_sets,) array or None
        Scores of the model that predicts a constant, in the unit of `scores`; None if it has
        not been run on all pairs.
    rows : (n_sets,) array
        Numbers of rows of the sets.
    fit_seconds : (n_sets, n_models) array
        Sums over seeds.
    n_pairs : int
        How many (set, seed) pairs all models have.
    incomplete : dict of str to int
        Models that have fewer pairs than the most, with how many they lack.
    """

    task: str
    models: list[str]
    sets: list[str]
    scores: NDArray
    errors: NDArray | None
    reference: NDArray | None
    rows: NDArray
    fit_seconds: NDArray
    n_pairs: int
    incomplete: dict[str, int]

    @property
    def ratios(self) -> NDArray:
        """Scores divided by those of a constant: NMSE, which is one already, or of log-losses.

        Raises
        ------
        ValueError
            The constant has not been run for classes.
        """
        if self.task == "regression":
            return np.exp(self.scores)
        if self.reference is None:
            raise ValueError(f"Run --models {REFERENCE} first: log-losses are divided by its own.")
        return self.scores / self.reference[:, None]


def compare(
    results: dict[Key, Result],
    sets: Sequence[DataSet],
    task: str,
    models: Sequence[str] | None = None,
    seeds: Iterable[int] | None = None,
) -> Comparison:
    """Compare models over the pairs of set and seed that all of them have.

    Parameters
    ----------
    results : dict
        What `read_results` gave.
    sets : sequence of DataSet
        Those to compare on; of other tasks are left out.
    task : str
        One of `KINDS`.
    models : sequence of str, optional
        By default all peers that have results for the task, but those of `ON_REQUEST`.
    seeds : iterable of int, optional
        By default all.

    Raises
    ------
    ValueError
        There is nothing that all models have.
    """
    rows_of = {entry.name: entry.rows for entry in sets if _is_of(entry.task, task)}
    pairs_of = _pairs_by_model(results, set(rows_of), None if seeds is None else set(seeds))
    shown = _shown_models(pairs_of, task, models)
    common = set.intersection(*(pairs_of[m] for m in shown)) if shown else set()
    if not common:
        who = f"that all models have ({', '.join(shown)})" if shown else "of these sets and seeds"
        raise ValueError(f"No results of task {task!r} {who}: see --group, --models and --seeds.")
    most = max(len(pairs_of[m]) for m in shown)
    lacking = {m: most - len(pairs_of[m]) for m in shown if len(pairs_of[m]) < most}
    with_reference = common <= pairs_of.get(REFERENCE, set())
    return _collect(results, task, shown, rows_of, common, lacking, with_reference)


def _is_of(task: str, kind: str) -> bool:
    return task == kind or (kind == "classes" and task != "regression")


def _pairs_by_model(
    results: dict[Key, Result], names: set[str], seeds: set[int] | None
) -> dict[str, Pairs]:
    """Pairs of set and seed that each model has."""
    pairs_of: dict[str, Pairs] = {}
    for name, seed, model in results:
        if name in names and (seeds is None or seed in seeds):
            pairs_of.setdefault(model, set()).add((name, seed))
    return pairs_of


def _shown_models(pairs_of: dict[str, Pairs], task: str, models: Sequence[str] | None) -> list[str]:
    """Models that have results; one that is named, could have some and has none is an error."""
    if models is None:
        return [name for name in default_peers() if name in pairs_of]
    for name in models:
        if name not in pairs_of and MODELS[name].takes(task):
            raise ValueError(f"Model {name!r} has no results of task {task!r} in the file.")
    return [name for name in models if name in pairs_of]


def _collect(
    results: dict[Key, Result],
    task: str,
    models: list[str],
    rows_of: dict[str, int],
    pairs: Pairs,
    incomplete: dict[str, int],
    with_reference: bool,
) -> Comparison:
    """Average over seeds, set by set."""
    seeds_of = {name: sorted(seed for other, seed in pairs if other == name) for name in rows_of}
    sets = [name for name in rows_of if seeds_of[name]]

    def table(value: Callable[[Result], float], columns: Sequence[str]) -> NDArray:
        def mean(name: str, model: str) -> float:
            return np.mean([value(results[name, seed, model]) for seed in seeds_of[name]])

        return np.array([[mean(name, model) for model in columns] for name in sets])

    n_seeds = np.array([[len(seeds_of[name])] for name in sets])
    return Comparison(
        task=task,
        models=models,
        sets=sets,
        scores=table(_score, models),
        errors=None if task == "regression" else table(lambda r: r.error, models),
        reference=table(_score, [REFERENCE])[:, 0] if with_reference else None,
        rows=np.array([rows_of[name] for name in sets]),
        fit_seconds=n_seeds * table(lambda r: r.fit_s, models),
        n_pairs=len(pairs),
        incomplete=incomplete,
    )


def _score(result: Result) -> float:
    if result.task == "regression":
        return float(np.log(max(result.score, LEAST_NMSE)))
    return result.score
