"""Estimators of a single task."""

from __future__ import annotations

from typing import Any

import numpy as np

from jointleaf._trees.encoding import Encoding
from jointleaf.estimators import (
    JOPLEnClassifier,
    JOPLEnRegressor,
    LinearForestClassifier,
    LinearForestRegressor,
)
from jointleaf.estimators._portable_forest import PortableForest
from jointleaf.io._model_file.cells import read_cells, read_solution, write_cells, write_solution
from jointleaf.io._model_file.features import (
    read_columns,
    read_features,
    write_columns,
    write_features,
)
from jointleaf.io._model_file.fields import Arrays, Part, number
from jointleaf.io._model_file.partitioners import read_parameters, write_parameters
from jointleaf.io._model_file.penalties import knows_penalty, read_penalty, write_penalty
from jointleaf.io._model_file.results import (
    read_mix,
    read_pruning,
    read_setting,
    read_shares,
    read_table,
    write_mix,
    write_pruning,
    write_setting,
    write_shares,
    write_table,
)
from jointleaf.io._model_file.trees import read_trees, write_trees
from jointleaf.io._model_file.values import read_labels, write_labels
from jointleaf.partitions._fitted import LeftOut
from jointleaf.partitions._growers.linear_forest import LinearPart

__all__ = [
    "CLASSIFIERS",
    "make",
    "read_fitted_penalty",
    "read_forest",
    "read_joplen",
    "read_names",
    "write_fitted_penalty",
    "write_forest",
    "write_joplen",
    "write_names",
]

CLASSIFIERS = (JOPLEnClassifier, LinearForestClassifier)


# -- what all estimators have --------------------------------------------------------------------


def make(part: Part, cls: Any) -> Any:
    """Make an estimator with the parameters of a file."""
    return cls(**read_parameters(part.child("parameters"), cls))


def write_names(model: Any, arrays: Arrays) -> Any:
    """Give JSON for the names of the columns."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else write_labels(np.asarray(names, dtype=object), arrays)


def read_names(part: Part, model: Any, d: int) -> None:
    """Set the number of columns, and their names if there are some."""
    model.n_features_in_ = d
    if part.is_none("feature_names"):
        return
    names = read_labels(part, "feature_names", d)
    if not all(isinstance(name, str) for name in names.tolist()):
        part.fail("must be text", "feature_names")
    model.feature_names_in_ = names.astype(object)


def write_fitted_penalty(penalty: Any, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for the penalty of a fit; of one that is not ours, the name of its class."""
    if isinstance(penalty, LeftOut):
        return {"left_out": penalty.name}
    if not knows_penalty(penalty):
        return {"left_out": type(penalty).__name__}
    return write_penalty(penalty, arrays)


def read_fitted_penalty(part: Part) -> Any:
    """Read the penalty of a fit."""
    if "left_out" not in part:
        return read_penalty(part)
    name = part.text("left_out")
    part.close()
    return LeftOut(name[:100])


# -- JOPLEn --------------------------------------------------------------------------------------


def write_joplen(model: Any, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for a fitted JOPLEnRegressor or JOPLEnClassifier."""
    data = {
        "parameters": write_parameters(model, arrays),
        "columns": write_columns(model.columns_, arrays),
        "feature_names": write_names(model, arrays),
        "cells": write_cells(model._model, arrays),
        "offset": arrays.add(model._offset),
        "solution": write_solution(model.solution_, arrays),
        "penalty": write_fitted_penalty(model.penalty_, arrays),
        "importances": arrays.add(model.feature_importances_),
        "slope_norms": arrays.add(model.slope_norms_),
        "cv_results": write_table(model.cv_results_, arrays),
        "setting": write_setting(model.setting_),
        "shares": write_shares(model.shares_),
        "mix": write_mix(model.mix_, arrays),
        "pruning": write_pruning(getattr(model, "pruning_", None), arrays),
    }
    if isinstance(model, CLASSIFIERS):
        data["classes"] = write_labels(model.classes_, arrays)
    return data


def read_joplen(part: Part, cls: type[JOPLEnRegressor | JOPLEnClassifier]) -> Any:
    """Read a fitted JOPLEnRegressor or JOPLEnClassifier."""
    model: Any = make(part, cls)
    columns = read_columns(part, "columns")
    d, n_outputs = len(columns), 1
    read_names(part, model, d)
    if issubclass(cls, CLASSIFIERS):
        model.classes_ = _read_classes(part)
        n_outputs = len(model.classes_) if len(model.classes_) > 2 else 1
    model.columns_ = columns
    cells = read_cells(part.child("cells"), columns.n_categories, n_outputs)
    outputs = (n_outputs,) if n_outputs > 1 else ()
    model._offset = part.array("offset", "f4 f8", outputs, finite=True)
    model.solution_ = read_solution(part.child("solution"))
    model.n_iter_ = model.solution_.n_iter
    model.penalty_ = read_fitted_penalty(part.child("penalty"))
    model.feature_importances_ = part.array("importances", "f4 f8", (d,))
    model.slope_norms_ = part.array("slope_norms", "f4 f8", (d,))
    model.cv_results_ = read_table(part, "cv_results")
    model.setting_ = read_setting(part.maybe_child("setting"))
    model.shares_ = read_shares(part.maybe_child("shares"))
    model.mix_ = read_mix(part.maybe_child("mix"))
    pruning = read_pruning(part.maybe_child("pruning"))
    if pruning is not None:
        model.pruning_ = pruning
    with np.errstate(all="ignore"):
        model._take_cells(cells)
    return model


def _read_classes(part: Part) -> np.ndarray:
    classes = read_labels(part, "classes")
    if len(classes) < 2:
        part.fail("has less than two labels", "classes")
    return classes


# -- linear forests ------------------------------------------------------------------------------


def write_forest(model: Any, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for a fitted LinearForestRegressor or LinearForestClassifier."""
    linear: LinearPart = model.linear_
    scores, fills = model._encoding.parts()
    data = {
        "parameters": write_parameters(model, arrays),
        "columns": write_columns(model.columns_, arrays),
        "feature_names": write_names(model, arrays),
        "linear": {
            "features": write_features(linear.features, arrays),
            "coef": arrays.add(linear.coef),
            "intercept": arrays.add(linear.intercept),
            "mean": number(linear.mean),
            "scale": number(linear.scale),
        },
        "trees": write_trees(PortableForest.of(model.forest_).trees, arrays),
        "scores": [{"column": j, "values": arrays.add(v)} for j, v in scores.items()],
        "fills": [{"column": j, "value": number(v)} for j, v in fills.items()],
    }
    if isinstance(model, CLASSIFIERS):
        data["classes"] = write_labels(model.classes_, arrays)
    return data


def read_forest(part: Part, cls: type[LinearForestRegressor | LinearForestClassifier]) -> Any:
    """Read a fitted LinearForestRegressor or LinearForestClassifier; its forest is portable."""
    model: Any = make(part, cls)
    columns = read_columns(part, "columns")
    d, n_classes = len(columns), 0
    read_names(part, model, d)
    if issubclass(cls, CLASSIFIERS):
        model.classes_ = _read_classes(part)
        n_classes = len(model.classes_)
    model.columns_ = columns
    outputs = (n_classes,) if n_classes > 2 else ()
    model.linear_ = _read_linear(part.child("linear"), columns.n_categories, n_classes, outputs)
    trees = read_trees(part.child("trees"), d)
    values, n_outputs = trees.leaf_values, outputs[0] if outputs else 1
    if values is None or values.shape[1] != n_outputs or trees.n_levels.any() or trees.lookups:
        part.fail("are no trees of this forest", "trees")
    if (trees.cell_of_leaf != np.arange(len(values)) - np.repeat(
        trees.leaf_starts[:-1], trees.n_leaves
    )).any():  # fmt: skip
        part.fail("has leaves that are not their own cells", "trees")
    model.forest_ = PortableForest(trees)
    model._encoding = Encoding.of(_read_scores(part, columns.n_categories), _read_fills(part, d))
    return model


def _read_linear(
    part: Part, n_levels: np.ndarray, n_classes: int, outputs: tuple[int, ...]
) -> LinearPart:
    features = read_features(part.child("features"), n_levels, len(n_levels))
    linear = LinearPart(
        features,
        part.array("coef", "f8", (len(features.plan.names), *outputs), finite=True),
        part.array("intercept", "f8", outputs, finite=True),
        n_classes,
        part.number("mean"),
        part.number("scale"),
    )
    part.close()
    return linear


def _read_scores(part: Part, n_levels: np.ndarray) -> dict[int, np.ndarray]:
    scores = {}
    for own in part.children("scores"):
        j = own.integer("column", 0, len(n_levels) - 1)
        if not n_levels[j]:
            own.fail("has no categories", "column")
        scores[j] = own.array("values", "f8", (int(n_levels[j]) + 2,), finite=True)
        own.close()
    return scores


def _read_fills(part: Part, d: int) -> dict[int, float]:
    fills = {}
    for own in part.children("fills"):
        fills[own.integer("column", 0, d - 1)] = own.number("value")
        own.close()
    return fills
