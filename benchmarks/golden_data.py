"""Generated data for `golden.py`: training rows and the held-out rows that are predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1

if TYPE_CHECKING:
    import pandas as pd

N_HELD_OUT = 40
"""Rows that are predicted in every configuration."""


class Split(NamedTuple):
    """Training rows, their targets, and held-out rows."""

    X: Any
    y: NDArray
    X_test: Any


class Cells(NamedTuple):
    """Rows with the cells in which they fall, for the functions without estimators."""

    X: NDArray[np.float64]
    codes: NDArray[np.intp]
    y: NDArray[np.float64]
    X_test: NDArray[np.float64]
    codes_test: NDArray[np.intp]


def numbers(n: int, n_features: int = 6, seed: int = 0) -> Split:
    """Return Friedman's first function with unit noise."""
    X, y = make_friedman1(n + N_HELD_OUT, n_features=n_features, noise=1.0, random_state=seed)
    return Split(X[:n], y[:n], X[n:])


def first_feature(split: Split) -> Split:
    """Return the same rows with their first feature alone."""
    return Split(split.X[:, :1], split.y, split.X_test[:, :1])


def classes(n: int, n_classes: int, n_features: int = 5, seed: int = 0) -> Split:
    """Return classes of unequal size: intervals of Friedman's function with noise."""
    X, y, X_test = numbers(n, n_features, seed)
    score = y + np.random.default_rng(seed).normal(0, 1, n)
    edges = np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1] ** 0.8)
    return Split(X, np.searchsorted(edges, score), X_test)


def frames(n: int, *, is_classification: bool = False) -> Split:
    """Return data frames with text, categories, truth values and missing values.

    The held-out rows have a category that the training rows do not have.
    """
    rng = np.random.default_rng(7)
    table = _table(rng, n + N_HELD_OUT)
    pay = table["size"].fillna(90) / 30 + 3 * (table["city"] == "Rome") - table["age"].fillna(20)
    y = pay.to_numpy() * (1 + table["has_lift"].to_numpy()) + rng.normal(0, 2, len(table))
    if is_classification:
        y = np.array(["low", "mid", "top"])[np.searchsorted(np.quantile(y, [0.3, 0.7]), y)]
    held_out = table.iloc[n:].reset_index(drop=True)
    held_out.loc[held_out.index % 7 == 0, "city"] = "Lima"
    return Split(table.iloc[:n], y[:n], held_out)


def _table(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Return a table with columns of every kind."""
    import pandas as pd

    table = pd.DataFrame(
        {
            "size": rng.uniform(20, 200, n),
            "age": rng.exponential(15, n),
            "city": rng.choice(["Oslo", "Rome", "Bern", "Kyiv"], n, p=[0.4, 0.3, 0.2, 0.1]),
            "street": np.char.add("street ", rng.integers(0, 30, n).astype(str)),
            "state": pd.Categorical(rng.choice(["new", "fair", "old"], n)),
            "has_lift": rng.random(n) < 0.5,
        }
    ).astype({"city": object, "street": object})
    table.loc[rng.random(n) < 0.1, "size"] = np.nan
    table.loc[rng.random(n) < 0.05, "age"] = np.nan
    table.loc[rng.random(n) < 0.08, "city"] = None
    return table


def tasks(n_tasks: int, n: int = 150, *, is_classification: bool = False) -> Split:
    """Return tasks that share feature 0 and have one feature each of their own.

    ``X`` is a dictionary of pairs, as `fit` of the estimators for several tasks takes it.
    """
    rng = np.random.default_rng(n_tasks)
    pairs = {}
    for t in range(n_tasks):
        X = rng.standard_normal((n + 20 * t, 6))
        y = 2 * np.sin(X[:, 0]) + X[:, 1 + t] + 0.3 * rng.standard_normal(len(X))
        pairs[f"task {t}"] = X, (y > 0).astype(int) if is_classification else y
    return Split(pairs, np.empty(0), rng.standard_normal((N_HELD_OUT, 6)))


def cells(n: int = 300, target: str = "numbers") -> Cells:
    """Return rows in the cells of four partitions by sign; ``target`` is as for `fit_cells`."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n + N_HELD_OUT, 5))
    codes = np.column_stack([(X[:, :3] > 0), 2 * (X[:, 3] > 0) + (X[:, 4] > 0)]).astype(int)
    y = np.abs(X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.2 * rng.standard_normal(len(X))
    if target == "signs":
        y = np.where(y > np.median(y), 1.0, -1.0)
    elif target == "classes":
        y = np.searchsorted(np.quantile(y, [0.3, 0.6]), y).astype(float)
    return Cells(X[:n], codes[:n], y[:n], X[n:], codes[n:])


def weights(n: int) -> NDArray[np.float64]:
    """Return sample weights, some of them zero."""
    drawn = np.random.default_rng(11).exponential(1.0, n)
    return np.where(drawn < 0.1, 0.0, drawn)
