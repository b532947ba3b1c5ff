"""Splits of the multitask data: 70 % training, 20 % validation, 10 % test, standardised.

As in the paper: 10 % of the rows are for testing, 22.2 % of the others for validation, shuffled,
with one random state that goes on from call to call. Columns and targets are standardised with
the training part of each task.

SARCOS: the tasks are the seven torques, all on the same rows. Its two official parts are pooled
and split anew, because the official test rows are from the trajectories of the training rows;
rows next to each other in time are then in different parts, so that test errors are rather good.

Molecular properties: molecules recur across tasks, so that molecules are split, not rows: one
that is tested in one task is trained on in none. (The paper splits each task by itself.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from jointleaf.datasets import load_chem_tasks, load_sarcos

__all__ = ["PARTS", "MultitaskData", "Task", "chem_data", "sarcos_data", "three_parts"]

PARTS = ("train", "validation", "test")
TEST_SHARE, VALIDATION_SHARE = 0.1, 0.222  # the second of what the first leaves

#: Descriptors that are themselves fitted estimates of targets: Crippen's logP, and logS.
ESTIMATES = ("md_SLogP", "md_FilterItLogS")
#: A column is left out if more of a task's training rows than this have one and the same value.
MOST_EQUAL = 0.99
#: Standardised columns are clipped here: some descriptors have huge values for a few molecules.
CLIP = 20.0

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Task:
    """One task: standardised rows X[part] (n, d) and targets y[part] (n,) of all `PARTS`."""

    name: str
    X: dict[str, NDArray[np.float64]]
    y: dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class MultitaskData:
    """Tasks with the same features; `dropped` are names of columns that were left out."""

    tasks: list[Task]
    feature_names: list[str]
    dropped: tuple[str, ...] = ()

    def part(self, name: str) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
        """Give the rows and the targets of one part, a list of tasks each."""
        return [task.X[name] for task in self.tasks], [task.y[name] for task in self.tasks]


def three_parts(n: int, rng: np.random.RandomState) -> dict[str, Rows]:
    """Shuffle n rows into the three parts; the same state gives other parts the next time."""
    others, test = train_test_split(np.arange(n), test_size=TEST_SHARE, random_state=rng)
    train, validation = train_test_split(others, test_size=VALIDATION_SHARE, random_state=rng)
    return dict(zip(PARTS, (train, validation, test), strict=True))


def make_task(
    name: str,
    X: NDArray,
    y: NDArray[np.float64],
    rows: dict[str, Rows],
    clip: float = np.inf,
) -> Task:
    """Split and standardise; columns that do not vary in the training part become zero."""
    train = X[rows["train"]].astype(np.float64)
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale[scale == 0] = np.inf
    centre, unit = y[rows["train"]].mean(), y[rows["train"]].std()
    return Task(
        name,
        {part: np.clip((X[at] - mean) / scale, -clip, clip) for part, at in rows.items()},
        {part: (y[at] - centre) / unit for part, at in rows.items()},
    )


def sarcos_data(
    folder: Path | None = None, part: Literal["all", "train", "test"] = "all", seed: int = 0
) -> MultitaskData:
    """Split SARCOS, one task per torque; `part` takes only one of the two official parts."""
    bunch = load_sarcos(folder=folder, part=part)
    rows = three_parts(len(bunch.data), np.random.RandomState(seed))
    tasks = [
        make_task(name, bunch.data, target, rows)
        for name, target in zip(bunch.target_names, bunch.target.T, strict=True)
    ]
    return MultitaskData(tasks, bunch.feature_names)


def chem_data(folder: Path, seed: int = 0, names: Sequence[str] | None = None) -> MultitaskData:
    """Split the molecular properties by molecule, all tasks or those in `names`.

    Two descriptors are left out because they are fitted estimates of two of the properties
    (`ESTIMATES`), and so are columns that hardly vary in the training part of any one task.
    """
    bunches = load_chem_tasks(folder)
    if names is not None:
        bunches = {name: bunches[name] for name in names}
    parts = split_molecules((b.smiles for b in bunches.values()), np.random.RandomState(seed))
    rows = {name: rows_by_molecule(bunch.smiles, parts) for name, bunch in bunches.items()}
    features = next(iter(bunches.values())).feature_names
    use = ~np.isin(features, ESTIMATES)
    for name, bunch in bunches.items():
        use &= varying(bunch.data[rows[name]["train"]])
    tasks = [
        make_task(name, bunch.data[:, use], bunch.target, rows[name], CLIP)
        for name, bunch in bunches.items()
    ]
    named = np.array(features)
    return MultitaskData(tasks, named[use].tolist(), tuple(named[~use].tolist()))


def split_molecules(
    smiles: Iterable[NDArray[np.str_]], rng: np.random.RandomState
) -> dict[str, str]:
    """Give every molecule of any task its part."""
    molecules = np.unique(np.concatenate(list(smiles)))  # in order: independent of the tasks'
    parts = three_parts(len(molecules), rng)
    return {molecule: part for part, at in parts.items() for molecule in molecules[at].tolist()}


def rows_by_molecule(smiles: NDArray[np.str_], parts: dict[str, str]) -> dict[str, Rows]:
    """Give the rows of one task that are in each part."""
    of_rows = np.array([parts[molecule] for molecule in smiles.tolist()])
    return {part: np.flatnonzero(of_rows == part) for part in PARTS}


def varying(X: NDArray) -> NDArray[np.bool_]:
    """Tell which columns have no value that more than `MOST_EQUAL` of the rows share."""
    most = [np.unique(column, return_counts=True)[1].max() for column in X.T]
    return np.array(most) <= MOST_EQUAL * len(X)
