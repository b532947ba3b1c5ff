"""Estimators with the interface of scikit-learn."""

from jointleaf._fit.recipes import recipe_for
from jointleaf.estimators._joplen import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.estimators._linear_forest import LinearForestClassifier, LinearForestRegressor
from jointleaf.estimators._params import estimate_memory
from jointleaf.estimators._refining import refine

__all__ = [
    "JOPLEnClassifier",
    "JOPLEnRegressor",
    "LinearForestClassifier",
    "LinearForestRegressor",
    "estimate_memory",
    "recipe_for",
    "refine",
]
