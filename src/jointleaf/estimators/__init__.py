"""Estimators that follow the conventions of scikit-learn."""

from jointleaf.estimators.classifier import JOPLEnClassifier
from jointleaf.estimators.refining import refine
from jointleaf.estimators.regressor import JOPLEnRegressor

__all__ = ["JOPLEnClassifier", "JOPLEnRegressor", "refine"]
