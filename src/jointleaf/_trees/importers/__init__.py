"""What jointleaf knows about each tree library: one adapter class and one file per library.

A new library is one subclass of `EnsembleAdapter` added to `ADAPTERS`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from jointleaf._data.columns import column_names
from jointleaf._trees.importers.base import EnsembleAdapter
from jointleaf._trees.importers.catboost import CatBoostAdapter
from jointleaf._trees.importers.histogram import HistogramAdapter
from jointleaf._trees.importers.lightgbm import LightGBMAdapter
from jointleaf._trees.importers.sklearn import ScikitLearnAdapter
from jointleaf._trees.importers.xgboost import XGBoostAdapter

__all__ = ["ADAPTERS", "EnsembleAdapter", "check_fitted_model", "find_adapter", "is_ensemble"]

#: One adapter per library; the first that matches is used.
ADAPTERS: list[EnsembleAdapter] = [
    ScikitLearnAdapter(),
    HistogramAdapter(),
    LightGBMAdapter(),
    XGBoostAdapter(),
    CatBoostAdapter(),
]


def is_ensemble(model: object) -> bool:
    """Whether this is a tree ensemble of a library that is known."""
    return any(adapter.matches(model) for adapter in ADAPTERS)


def find_adapter(model: object) -> EnsembleAdapter:
    """Give the adapter of the library that `model` comes from, or say which are supported."""
    for adapter in ADAPTERS:
        if adapter.matches(model):
            return adapter
    if isinstance(model, type):
        raise TypeError(f"model is the class {model.__name__} itself; give a fitted model of it.")
    if hasattr(model, "best_estimator_"):
        raise TypeError(
            f"model is of type {type(model).__name__}, a search; give what it found, "
            "model.best_estimator_."
        )
    names = ", ".join(name for adapter in ADAPTERS for name in adapter.supported)
    raise TypeError(
        f"model is of type {type(model).__name__}, whose cells jointleaf cannot read; "
        f"give a fitted model of one of these types: {names}."
    )


def check_fitted_model(model: object, X: Any = None) -> EnsembleAdapter:
    """Give the adapter of a supported, fitted model that knows the columns of `X` (n, d).

    Raises
    ------
    TypeError
        Where the type of `model` is not supported.
    sklearn.exceptions.NotFittedError
        Where it has not been fitted (a kind of ValueError).
    ValueError
        Where `X` has another number of columns, or other column names.
    """
    adapter = find_adapter(model)
    if not adapter.is_fitted(model):
        name = type(model).__name__
        raise NotFittedError(f"model is a {name} that is not fitted; call its fit first.")
    if X is None:
        return adapter
    shape = np.shape(X)
    d = adapter.n_features(model)
    if len(shape) == 2 and shape[1] != d:
        raise ValueError(
            f"X has {shape[1]} features, but the {type(model).__name__} was fitted on {d} "
            "features; give the columns it was fitted on."
        )
    names = adapter.feature_names(model)
    labels = column_names(X)
    if names is not None and labels is not None:
        # LightGBM stores a blank in a name as an underscore.
        given = [str(name).replace(" ", "_") for name in labels]
        if given != [name.replace(" ", "_") for name in names]:
            raise ValueError(
                f"The columns of X are {given}, but the {type(model).__name__} was fitted on "
                f"{names}; give the same columns in the same order."
            )
    return adapter
