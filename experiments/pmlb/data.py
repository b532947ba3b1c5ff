"""Reading a set, splitting it, and putting it into standard units."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.pmlb.sets import SetInfo, Task
from jointleaf.datasets import load_pmlb

__all__ = ["PARTS", "Data", "describe", "load_data", "make_data", "split_rows"]

PARTS = ("train", "valid", "test")
#: Share of the validation rows, and of the test rows.
HELD_OUT = 0.1


@dataclass(frozen=True)
class Data:
    """One set, split, as a method sees it.

    Attributes
    ----------
    X : dict of arrays (n, d)
        By part. Continuous columns are standardised with the training rows.
    y : dict of arrays (n,)
        By part. Standardised in regression, 0 and 1 for two classes.
    categorical : tuple of int
        Columns of X that hold categories, as whole numbers.
    scale : float
        Of the target: errors times this are in its own units.
    """

    task: Task
    X: dict[str, NDArray[np.float64]]
    y: dict[str, NDArray[np.float64]]
    categorical: tuple[int, ...] = ()
    scale: float = 1.0

    @property
    def is_binary(self) -> bool:
        """Two classes, not regression."""
        return self.task == "binary"

    def real_valued(self) -> Data:
        """The same rows without the columns that are not continuous."""
        d = self.X["train"].shape[1]
        keep = np.setdiff1d(np.arange(d), self.categorical)
        X = {part: rows[:, keep] for part, rows in self.X.items()}
        return Data(self.task, X, self.y, (), self.scale)


def split_rows(n: int, seed: int) -> dict[str, NDArray[np.intp]]:
    """Random parts of 0.8, 0.1 and 0.1 of n rows; no part is empty.

    Raises
    ------
    ValueError
        There are fewer than three rows.
    """
    if n < 3:
        raise ValueError(f"{n} rows cannot be split into three parts")
    held = max(1, round(HELD_OUT * n))
    order = np.random.default_rng(seed).permutation(n)
    return {
        "train": np.sort(order[2 * held :]),
        "valid": np.sort(order[held : 2 * held]),
        "test": np.sort(order[:held]),
    }


def make_data(
    X: NDArray, y: NDArray, task: Task, types: str | None = None, *, seed: int = 0
) -> Data:
    """Split rows X (n, d) with targets y (n,) and standardise with the training part.

    Parameters
    ----------
    types : str, optional
        One letter per column, c for continuous; by default all are continuous.
    """
    is_real = np.ones(X.shape[1], bool) if types is None else np.array([t == "c" for t in types])
    rows = split_rows(len(y), seed)
    mean, scale = _mean_and_scale(X[rows["train"]])
    mean, scale = np.where(is_real, mean, 0.0), np.where(is_real, scale, 1.0)
    target = np.asarray(y, float)
    unit = 1.0
    if task == "binary":
        target = np.unique(y, return_inverse=True)[1].astype(float)
    else:
        centre, width = _mean_and_scale(target[rows["train"], None])
        unit = float(width[0])
        target = (target - centre[0]) / unit
    return Data(
        task,
        {part: (X[rows[part]] - mean) / scale for part in PARTS},
        {part: target[rows[part]] for part in PARTS},
        tuple(int(k) for k in np.flatnonzero(~is_real)),
        unit,
    )


def describe(name: str, folder: Path | None, task: Task) -> SetInfo:
    """What can be told of a set that is not one of the paper's: all its columns are numbers."""
    X, _ = load_pmlb(name, folder=folder, return_X_y=True)
    return SetInfo(name, task, len(X), X.shape[1], "c" * X.shape[1])


def load_data(info: SetInfo, folder: Path | None, seed: int) -> Data:
    """Read a set, from `folder` or from PMLB's repository, and split it."""
    X, y = load_pmlb(info.name, folder=folder, return_X_y=True)
    if X.shape[1] != len(info.types):
        raise ValueError(f"{info.name} has {X.shape[1]} columns, {len(info.types)} are known")
    return make_data(X, y, info.task, info.types, seed=seed)


def _mean_and_scale(X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every column; the scale of a constant one is 1."""
    mean, scale = X.mean(axis=0), X.std(axis=0)
    # A constant column may keep a spread of rounding errors, which must not be blown up.
    return mean, np.where(scale > 1e-12 * np.maximum(1.0, np.abs(mean)), scale, 1.0)
