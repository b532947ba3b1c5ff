"""The tuned ensemble itself, refitted with jointleaf's defaults: not in the paper.

The paper's refits search cells of their own, so that a difference to the ensemble may come from
its trees as well as from the joint fit. Here the trees are those of the ensemble's chosen trial,
nothing is searched, and the penalty is chosen by cross-validation on the training rows alone.
"""

from __future__ import annotations

from typing import Any

from experiments.pmlb.data import Data
from experiments.pmlb.ensembles import Fit, Predict, grow_catboost, grow_trees, predictor
from experiments.pmlb.space import Parameters
from jointleaf import JOPLEnClassifier, JOPLEnRegressor, refine
from jointleaf.partitions import LinearForestPartitioner

__all__ = ["refined_fit"]


def refined_fit(base: str) -> Fit:
    """Train the ensemble `base` ("gb", "rf", "lf" or "cb") with given parameters and refine it."""

    def fit(data: Data, parameters: Parameters, seed: int) -> Predict:
        return predictor(_refined(base, data, parameters, seed), data)

    return fit


def _refined(base: str, data: Data, parameters: Parameters, seed: int) -> Any:
    X, y = data.X["train"], data.y["train"]
    if base == "lf":  # its cells have a partitioner; the root cell is its global linear model
        make = JOPLEnClassifier if data.is_binary else JOPLEnRegressor
        options = {name: parameters[name] for name in ("ccp_alpha", "max_depth")}
        sizes = parameters["n_estimators"], parameters["max_leaf_nodes"]
        cells = LinearForestPartitioner(*sizes, options=options)
        return make(cells, random_state=seed).fit(X, y)
    if base == "cb":
        return refine(grow_catboost(data, parameters, seed), X, y, random_state=seed)
    kind = {"gb": "GradientBoosting", "rf": "RandomForest"}[base]
    return refine(grow_trees(kind, data, parameters, seed), X, y, random_state=seed)
