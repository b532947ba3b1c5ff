"""What has to be known about the models of a tree library, which library a model is of."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns, column_names
from jointleaf._trees.flat import FlatTrees, TrainingRows


class EnsembleAdapter(ABC):
    """What has to be known about the models of one tree library.

    No adapter imports its library before it is needed: a model of a library can only be there if
    that library has been imported already.
    """

    #: The module of the library, and the classes of it that are supported.
    library: str
    model_classes: tuple[str, ...]
    #: whether numbers that a sparse matrix does not store are missing values to it, and not zeros
    sparse_is_missing: bool = False
    #: Classes of jointleaf that stand for a model of the library.
    stand_ins: tuple[type, ...] = ()

    @property
    def supported(self) -> tuple[str, ...]:
        """The model types, as they are named in error messages."""
        return self.model_classes

    def matches(self, model: object) -> bool:
        """Return whether `model` is of a supported class or a subclass of one."""
        library = sys.modules.get(self.library)
        names = () if library is None else self.model_classes
        return isinstance(model, (*self.stand_ins, *(getattr(library, name) for name in names)))

    def is_fitted(self, model: Any) -> bool:
        """Return whether `model` has been trained."""
        try:
            check_is_fitted(model)
        except NotFittedError:
            return False
        return True

    def is_classifier(self, model: Any) -> bool:
        """Return whether `model` was trained for classification."""
        return is_classifier(model)

    @abstractmethod
    def n_features(self, model: Any) -> int:
        """Return the number of features the model was trained on."""

    @abstractmethod
    def feature_names(self, model: Any) -> list[str] | None:
        """Return the column names the model was trained with, None where it had none."""

    def classes(self, model: Any) -> NDArray | None:
        """Return the class labels (K,) of a classifier, None where it does not hold them."""
        classes = getattr(model, "classes_", None)
        return classes if isinstance(classes, np.ndarray) else None

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Return the columns that the model treats as categories, with these categories.

        Categories are the values as the user gave them (text or whole numbers), None where the
        model does not hold them.
        """
        return {}

    @abstractmethod
    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        """Return the trees in portable form, in the order of the library's leaf numbers.

        Trees of one boosting round lie side by side, and a model that stopped early is used up
        to its best round, as its own ``predict`` does. `FlatTrees` speaks of codes: splits on
        categories are translated from the model's numbering to ``columns[j].categories``.
        """

    @abstractmethod
    def split_gains(self, model: Any) -> NDArray:
        """Return the gain of each feature's splits (d,), not negative; zeros without splits."""

    def regrow(
        self, model: Any, rows: TrainingRows, *, random_state: int | None, n_jobs: int | None
    ) -> Any:
        """Train a new model the way `model` was trained and leave `model` alone.

        `random_state` is used where the model would otherwise draw without a seed, `n_jobs` where
        the model has no setting of its own. By default a clone is fitted.
        """
        params = model.get_params(deep=False)
        defaults = {"random_state": random_state, "n_jobs": n_jobs}
        unset = {name: value for name, value in defaults.items() if params.get(name, 0) is None}
        return fit_clone(model, unset, with_labels(model, rows))


#: One adapter per library, the first that matches is used; `jointleaf._trees.importers` fills it.
ADAPTERS: list[EnsembleAdapter] = []


def is_ensemble(model: object) -> bool:
    """Return whether this is a tree ensemble of a supported library."""
    return any(adapter.matches(model) for adapter in ADAPTERS)


def find_adapter(model: object) -> EnsembleAdapter:
    """Return the adapter of the library that `model` comes from; TypeError where there is none."""
    for adapter in ADAPTERS:
        if adapter.matches(model):
            return adapter
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__} itself: use a fitted model of it")
    name = type(model).__name__
    if hasattr(model, "best_estimator_"):
        raise TypeError(f"model is a {name}, a search: use its result, model.best_estimator_")
    names = ", ".join(name for adapter in ADAPTERS for name in adapter.supported)
    raise TypeError(
        f"model is of type {name}, whose cells jointleaf cannot read: use a fitted model of one "
        f"of these types: {names}"
    )


def check_fitted_model(model: object, X: Any = None) -> EnsembleAdapter:
    """Return the adapter of a fitted model on the columns of `X` (n, d).

    Raise TypeError where its type is not supported, NotFittedError where it is not fitted, and
    ValueError where `X` has another number of columns, or other column names.
    """
    adapter = find_adapter(model)
    name = type(model).__name__
    if not adapter.is_fitted(model):
        raise NotFittedError(f"model is a {name} that is not fitted: call its fit first")
    if X is None:
        return adapter
    if issparse(X) and adapter.sparse_is_missing:
        raise ValueError(
            f"X is a sparse matrix, of which XGBoost read as missing what is not stored, and "
            f"jointleaf reads zero: give an array, with NaN or 0 as the {name} was trained"
        )
    shape = np.shape(X)
    d = adapter.n_features(model)
    if len(shape) == 2 and shape[1] != d:
        raise ValueError(
            f"X has {shape[1]} features, but the {name} was fitted on {d} features: use the "
            "columns it was fitted on"
        )
    names = adapter.feature_names(model)
    labels = column_names(X)
    if names is not None and labels is not None:
        # LightGBM stores a blank in a name as an underscore.
        columns = [str(label).replace(" ", "_") for label in labels]
        if columns != [column.replace(" ", "_") for column in names]:
            raise ValueError(
                f"The columns of X are {columns}, but the {name} was fitted on {names}: use the "
                "same columns in the same order"
            )
    return adapter


class ParamAliases:
    """The names under which a library takes its parameters.

    `aliases` are other names of a parameter; of the `exclusive` ones it takes one at a time.
    """

    def __init__(
        self, aliases: Mapping[str, tuple[str, ...]], exclusive: Iterable[str] = ()
    ) -> None:
        self._names = {alias: name for name, others in aliases.items() for alias in others}
        self._exclusive = frozenset(exclusive)

    def name(self, alias: str) -> str:
        """Return the one name that is used here."""
        return self._names.get(alias, alias)

    def merge(self, params: Mapping[str, Any], *overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Merge sets of parameters; the later ones win under any of their names."""
        merged = {self.name(alias): value for alias, value in params.items()}
        for override in overrides:
            if self._exclusive & set(override):
                merged = {k: v for k, v in merged.items() if k not in self._exclusive}
            merged |= {self.name(alias): value for alias, value in override.items()}
        return merged


def fit_clone(model: Any, params: Mapping[str, Any], rows: TrainingRows, **fit_params: Any) -> Any:
    """Fit a clone of a scikit-learn style model with some other parameters."""
    clone_ = clone(model).set_params(**params)
    return clone_.fit(rows.X, rows.y, sample_weight=rows.weight, **fit_params)


def with_labels(model: Any, rows: TrainingRows) -> TrainingRows:
    """Return rows with the class labels of `model`, so that its class_weight keeps its meaning."""
    if not is_classifier(model):
        return rows
    classes = model.classes_  # a list where the model has several outputs
    has_all = isinstance(classes, np.ndarray) and rows.y.max() < len(classes)
    return rows._replace(y=classes[rows.y]) if has_all else rows


def native_codes(categories: NDArray, native_categories: Sequence[Any] | None) -> NDArray[np.int64]:
    """Return the library's number (L + 1,) of our categories, then of unseen ones; -1 for none.

    `native_categories` are in the order of the library's numbers; None where a category is its own
    number.
    """
    if native_categories is None:
        return np.append(categories.astype(np.int64), -1)
    number = {category: k for k, category in enumerate(native_categories)}
    codes = [number.get(category, -1) for category in categories.tolist()]
    return np.array([*codes, -1], dtype=np.int64)


def column_codes(
    model_name: str, columns: Columns, categories: Mapping[int, NDArray | None]
) -> dict[int, NDArray[np.int64]]:
    """Return `native_codes` by column, where the model's `categories` are those of our columns."""
    codes = {}
    for j, column in enumerate(columns):
        if (column.categories is None) == (j in categories):
            kind = "categories" if j in categories else "numbers"
            raise ValueError(
                f"The {model_name} was trained with {kind} in column {column.label}: use them here "
                "as well"
            )
        if column.categories is not None:
            native = categories[j]
            codes[j] = native_codes(column.categories, None if native is None else native.tolist())
    return codes


def set_bits(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return the bits of 32-bit words, the lowest of the first word first."""
    return (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool).ravel()
