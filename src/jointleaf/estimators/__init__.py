"""Estimators that follow the conventions of scikit-learn."""

from jointleaf.estimators.classifier import JOPLEnClassifier
from jointleaf.estimators.linear_forest import LinearForestClassifier, LinearForestRegressor
from jointleaf.estimators.refining import refine
from jointleaf.estimators.regressor import JOPLEnRegressor

__all__ = [
    "JOPLEnClassifier",
    "JOPLEnRegressor",
    "LinearForestClassifier",
    "LinearForestRegressor",
    "refine",
]
