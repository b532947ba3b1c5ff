"""What a model of the benchmark is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

_VALIDATION_FRACTION = 0.1


@dataclass(frozen=True)
class Model:
    """A model out of the box: how it is made, and what must be installed for it.

    Attributes
    ----------
    name : str
        In commands and in the file of results.
    label : str
        In tables and pictures.
    package : str
        What to install, as pip knows it.
    regressor, classifier : callable or None
        Import the package and give a new estimator; None where there is none for the task.
    categories : bool
        Whether columns of pandas' category dtype are used as categories; other models get the
        numbers of the categories.
    max_rows : int or None
        Larger sets are not run, because they take too long.
    multiclass : bool
        Whether more than two classes are run.
    """

    name: str
    label: str
    package: str
    regressor: Callable[[], Any] | None = None
    classifier: Callable[[], Any] | None = None
    categories: bool = False
    max_rows: int | None = None
    multiclass: bool = True

    def takes(self, task: str, rows: int = 0) -> bool:
        """Whether the model can be fitted for the task and is to be with as many rows."""
        if task == "multiclass" and not self.multiclass:
            return False
        return self._maker(task) is not None and (self.max_rows is None or rows <= self.max_rows)

    def make(self, task: str) -> Any:
        """Give a new estimator for the task.

        Raises
        ------
        ImportError
            The package is not installed.
        """
        maker = self._maker(task)
        if maker is None:
            raise ValueError(f"Model {self.name!r} has no estimator for task {task!r}.")
        try:
            return maker()
        except ImportError as error:
            raise ImportError(
                f"Model {self.name!r} needs {self.package} ({error}): pip install {self.package}"
            ) from error

    def columns(self, X: Any) -> Any:
        """Return the columns as the model takes them: frames have categories, arrays have none."""
        if self.categories or isinstance(X, np.ndarray):
            return X
        return X.astype(float).to_numpy()

    def _maker(self, task: str) -> Callable[[], Any] | None:
        return self.regressor if task == "regression" else self.classifier


def category_columns(X: Any) -> list[str]:
    """Return the names of a frame's columns of the category dtype; none of an array."""
    if isinstance(X, np.ndarray):
        return []
    return list(X.select_dtypes("category").columns)


def hold_out(y: NDArray, *, classes: bool) -> tuple[NDArray, NDArray]:
    """Return rows to fit and a tenth of the rows to stop on.

    Shares of classes stay, and classes of a single row are fitted.
    """
    rows = np.arange(len(y))
    if not classes:
        return train_test_split(rows, test_size=_VALIDATION_FRACTION, random_state=0)
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    single = counts[codes] == 1
    size = max(round(_VALIDATION_FRACTION * len(y)), len(counts))
    fitted, held_out = train_test_split(
        rows[~single], test_size=size, random_state=0, stratify=codes[~single]
    )
    return np.concatenate([fitted, rows[single]]), held_out


def take_rows(X: Any, rows: NDArray) -> Any:
    """Return rows of an array or a frame."""
    return X[rows] if isinstance(X, np.ndarray) else X.iloc[rows]
