"""Estimators that follow the conventions of scikit-learn."""

from jointleaf.estimators._classifier import JOPLEnClassifier
from jointleaf.estimators._linear_forest import LinearForestClassifier, LinearForestRegressor
from jointleaf.estimators._refining import refine
from jointleaf.estimators._regressor import JOPLEnRegressor

__all__ = [
    "JOPLEnClassifier",
    "JOPLEnRegressor",
    "LinearForestClassifier",
    "LinearForestRegressor",
    "refine",
]
