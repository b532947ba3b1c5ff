"""What has to be known about the models of a tree library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees

__all__ = [
    "EnsembleAdapter",
    "is_fitted_estimator",
    "native_codes",
    "own_labels",
    "set_bits",
    "threads",
]


class EnsembleAdapter(ABC):
    """What has to be known about the models of one tree library.

    No adapter imports its library before it is needed: a model of a library can only be there if
    that library has been imported already.
    """

    #: The model types, as they are named in error messages.
    supported: tuple[str, ...]

    @abstractmethod
    def matches(self, model: object) -> bool:
        """Tell whether `model` is of this library, without importing the library."""

    def is_fitted(self, model: Any) -> bool:
        """Tell whether `model` has been trained."""
        return is_fitted_estimator(model)

    @abstractmethod
    def is_classifier(self, model: Any) -> bool:
        """Tell whether `model` was trained to tell classes apart."""

    @abstractmethod
    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""

    @abstractmethod
    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""

    def classes(self, model: Any) -> NDArray | None:
        """Give the class labels (K,) that a classifier knows, None where it does not keep them."""
        classes = getattr(model, "classes_", None)
        return classes if isinstance(classes, np.ndarray) else None

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Give the columns that the model treats as categories, with the levels it knows.

        The levels are the values as the user gave them (text or whole numbers), None where the
        model does not keep them.
        """
        return {}

    @abstractmethod
    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        """Give the model's trees in portable form, in the order of the library's own leaf ids.

        Trees of one boosting round lie side by side, and a model that stopped early is used up
        to its best round, as its own ``predict`` does.

        Parameters
        ----------
        model : fitted model
        columns : Columns
            What the columns of the rows hold: `FlatTrees` speaks of codes, so that splits on
            categories are translated from the model's numbering to ``columns[j].categories``.
        """

    @abstractmethod
    def split_gains(self, model: Any) -> NDArray:
        """Give the gain of each feature's splits (d,), not negative; zeros without splits."""

    @abstractmethod
    def regrow(
        self,
        model: Any,
        X: NDArray,
        y: NDArray,
        weight: NDArray | None,
        *,
        categorical: NDArray[np.intp],
        random_state: int | None,
        n_jobs: int | None,
    ) -> Any:
        """Train a new model the way `model` was trained and leave `model` alone.

        Rows `X` (n, d) are a float matrix with codes 0..L-1 in the columns `categorical` and
        NaN for missing values. `random_state` is used where the model would otherwise draw
        without a seed, `n_jobs` where the model has no setting of its own.
        """


def own_labels(model: Any, y: NDArray) -> NDArray:
    """Give class numbers the labels `model` knows, so that its class_weight keeps its meaning."""
    classes = model.classes_  # a list where the model has several outputs
    known = isinstance(classes, np.ndarray) and y.max() < len(classes)
    return classes[y] if known else y


def is_fitted_estimator(model: Any) -> bool:
    """Tell whether a scikit-learn style estimator has been fitted."""
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


def threads(n_jobs: int | None) -> int:
    """Give a number of threads for `n_jobs`: None is 1, -1 all cores this process may use."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


def native_codes(levels: NDArray, known: Sequence[Any] | None) -> NDArray[np.int64]:
    """Give the number that a library has for each of our levels, then for unseen ones, (L + 1,).

    Parameters
    ----------
    levels : array (L,)
        Levels in the order of our codes.
    known : sequence or None
        Levels in the order of the library's own numbers; None where a level is its own number.

    Returns
    -------
    array (L + 1,)
        -1 where the library knows no such level.
    """
    if known is None:
        return np.append(levels.astype(np.int64), -1)
    number = {level: k for k, level in enumerate(known)}
    return np.array([*(number.get(level, -1) for level in levels.tolist()), -1], dtype=np.int64)


def set_bits(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Give the bits of 32-bit words, the lowest of the first word first."""
    return (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool).ravel()
