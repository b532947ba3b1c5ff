"""Generated functions: what is smooth, has steps, is oblique, an interaction, or has categories.

Rows of the same seed are nested: the first 500 of 1,000 rows are the 500 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

_CATEGORY_COLUMNS = (0, 1)
_CATEGORY_COUNTS = (40, 8)


@dataclass(frozen=True)
class Function:
    """A function of random columns.

    Attributes
    ----------
    label : str
        In pictures.
    n_columns : int
        Of which some have no effect.
    truth : callable
        Uniform numbers (n, d) -> mean of the target (n,), or its log-odds.
    noise : float or None
        Standard deviation around the truth; None for two classes.
    categories : bool
        Whether the first two columns are categories.
    """

    label: str
    n_columns: int
    truth: Callable[[NDArray], NDArray]
    noise: float | None
    categories: bool = False

    @property
    def task(self) -> str:
        """Either "regression" or "binary"."""
        return "binary" if self.noise is None else "regression"


def _friedman(U: NDArray) -> NDArray:
    waves = 10 * np.sin(np.pi * U[:, 0] * U[:, 1]) + 20 * (U[:, 2] - 0.5) ** 2
    return waves + 10 * U[:, 3] + 5 * U[:, 4]


def _steps(U: NDArray) -> NDArray:
    corner = 3.0 * ((U[:, 1] > 0.5) & (U[:, 2] > 0.6))
    return 2.0 * (U[:, 0] > 0.3) + corner + np.floor(4 * U[:, 3]) - 2.0 * (U[:, 4] > 0.8)


def _directions(U: NDArray) -> NDArray:
    weights = np.random.default_rng(0).normal(size=(U.shape[1], 3))
    first, second, third = ((U - 0.5) @ weights).T
    return np.sin(3 * first) + second**2 + np.tanh(3 * third)


def _parity(U: NDArray) -> NDArray:
    return np.prod(np.sign(U[:, :3] - 0.5), axis=1) + U[:, 3]


def _categories(U: NDArray) -> NDArray:
    first, second = _codes(U)
    rng = np.random.default_rng(0)
    effects, slopes = rng.normal(size=_CATEGORY_COUNTS[0]), rng.normal(size=_CATEGORY_COUNTS[1])
    return effects[first] + 2 * slopes[second] * U[:, 2] + np.sin(6 * U[:, 3])


def _log_odds(U: NDArray) -> NDArray:
    return (_friedman(U) - 14.4) / 2


FUNCTIONS = {
    "friedman": Function("Friedman's first", 20, _friedman, 1.0),
    "steps": Function("steps", 10, _steps, 0.5),
    "directions": Function("oblique, smooth", 10, _directions, 0.2),
    "parity": Function("parity of three", 10, _parity, 0.5),
    "categories": Function("categories of 40 and 8", 8, _categories, 0.5, categories=True),
    "classes": Function("two classes", 20, _log_odds, None),
}


def generate(name: str, n: int, seed: int) -> tuple[Any, NDArray, NDArray]:
    """Return the columns (n, d), the target (n,) and its mean (n,), for two classes P(1).

    Columns are a data frame where some are categories.
    """
    function = FUNCTIONS[name]
    columns, target = np.random.default_rng((0, seed)), np.random.default_rng((1, seed))
    U = columns.random((n, function.n_columns))
    truth = function.truth(U)
    if function.noise is not None:
        return _table(U, function), truth + function.noise * target.normal(size=n), truth
    truth = expit(truth)
    return _table(U, function), (target.random(n) < truth).astype(np.int64), truth


def _codes(U: NDArray) -> list[NDArray]:
    """Categories, the first of a column the most frequent."""
    return [
        np.floor(count * U[:, column] ** 2).astype(np.int64)
        for column, count in zip(_CATEGORY_COLUMNS, _CATEGORY_COUNTS, strict=True)
    ]


def _table(U: NDArray, function: Function) -> Any:
    if not function.categories:
        return U
    import pandas as pd

    table = pd.DataFrame(U, columns=[f"x{j}" for j in range(U.shape[1])])
    for column, codes, count in zip(_CATEGORY_COLUMNS, _codes(U), _CATEGORY_COUNTS, strict=True):
        table[f"x{column}"] = pd.Categorical(codes, categories=range(count))
    return table
