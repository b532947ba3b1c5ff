"""Rows of a data set, and which of them are tested."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.generated import generate
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from jointleaf.datasets import load_pmlb

from .fresh import load_fresh
from .sets import DataSet

_TEST_FRACTION = 0.2


@dataclass(frozen=True)
class Table:
    """A data set in memory.

    Attributes
    ----------
    X : (n, d) array or pandas.DataFrame
        A frame where some columns are categories.
    y : (n,) array
        Numbers for regression; classes 0, 1, ..., as not every peer takes other labels.
    test_masks : (n, n_splits) bool array or None
        Test rows of fixed splits; None where rows are drawn.
    """

    X: Any
    y: NDArray
    test_masks: NDArray[np.bool_] | None = None

    def split(self, task: str, seed: int) -> tuple[NDArray, NDArray]:
        """Return the training and the test rows: those of a fixed split, or a fifth at random.

        Rows are drawn so that the shares of classes stay.

        Raises
        ------
        ValueError
            There are fixed splits, and none of this number.
        """
        if self.test_masks is None:
            classes = None if task == "regression" else self.y
            rows = np.arange(len(self.y))
            return train_test_split(
                rows, test_size=_TEST_FRACTION, random_state=seed, stratify=classes
            )
        n_splits = self.test_masks.shape[1]
        if seed >= n_splits:
            raise ValueError(f"seed={seed} is not a fixed split: use 0 to {n_splits - 1}")
        test = self.test_masks[:, seed]
        return np.flatnonzero(~test), np.flatnonzero(test)


def load(entry: DataSet, folder: Path | None) -> Table:
    """Load a listed set.

    Parameters
    ----------
    entry : DataSet
        The set.
    folder : path, optional
        Folder with ``NAME.tsv.gz`` of PMLB, in itself or in ``pmlb``, ``pmlb_large`` or
        ``pmlb_more``, and with ``uci/NAME/data.csv.gz``. Sets of PMLB are downloaded without one.

    Raises
    ------
    ValueError
        It has not the listed number of rows or categories, or a set of UCI without a folder.
    FileNotFoundError
        It is not there.
    """
    test_masks = None
    if entry.group == "fresh":
        X, y = load_fresh(entry.name)
    elif entry.group == "uci":
        X, y, test_masks = _load_uci(entry, folder)
    elif entry.group == "million":
        X, y, _ = generate(entry.bare_name, entry.rows, seed=0)
    else:
        data = load_pmlb(entry.bare_name, folder=folder)
        X, y = data.data, data.target
        if entry.categories:
            X = _with_categories(X, data.feature_names, entry)
    return Table(X, encode_target(entry.task, y), test_masks)


def encode_target(task: str, y: NDArray) -> NDArray:
    """Return numbers for regression, and classes as 0, 1, ... otherwise."""
    if task == "regression":
        return np.asarray(y, dtype=np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    if task == "binary" and len(classes) != 2:
        raise ValueError(f"A binary target must have two classes, not {len(classes)}.")
    return codes


def _load_uci(entry: DataSet, folder: Path | None) -> tuple[NDArray, NDArray, NDArray[np.bool_]]:
    if folder is None:
        raise ValueError(f"Data set {entry.name!r} is not downloaded: name a folder with --data")
    home = Path(folder) / "uci" / entry.bare_name
    rows, masks = (_read_numbers(home / f"{name}.csv.gz") for name in ("data", "test_mask"))
    return np.ascontiguousarray(rows[:, :-1]), rows[:, -1].copy(), masks > 0


def _read_numbers(path: Path) -> NDArray[np.float64]:
    with gzip.open(path, "rt") as file:
        return np.loadtxt(file, delimiter=",", ndmin=2)


def _with_categories(X: NDArray, names: list[str], entry: DataSet) -> Any:
    """Return a frame whose listed columns are categories; PMLB stores them as whole numbers."""
    import pandas as pd

    frame = pd.DataFrame(X, columns=names)
    for name in entry.categories:
        frame[name] = frame[name].astype(int).astype("category")
    return frame
