"""Trees of other libraries in portable form: one adapter class and one file per library.

A new library is one subclass of `EnsembleAdapter` and one line here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import NotFittedError

from jointleaf._data.columns import column_names
from jointleaf._trees.importers.base import EnsembleAdapter
from jointleaf._trees.importers.catboost import CatBoostAdapter
from jointleaf._trees.importers.histogram import HistogramAdapter
from jointleaf._trees.importers.lightgbm import LightGBMAdapter
from jointleaf._trees.importers.sklearn import ScikitLearnAdapter
from jointleaf._trees.importers.xgboost import XGBoostAdapter

#: One adapter per library; the first that matches is used.
ADAPTERS: list[EnsembleAdapter] = [
    ScikitLearnAdapter(),
    HistogramAdapter(),
    LightGBMAdapter(),
    XGBoostAdapter(),
    CatBoostAdapter(),
]


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
    if issparse(X) and isinstance(adapter, XGBoostAdapter):
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
