"""LightGBM with linear leaves, fitted one tree after another."""

from typing import Any

from .base import Model

_OPTIONS = {"linear_tree": True, "random_state": 0, "n_jobs": 1, "verbose": -1}


def regressor() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(**_OPTIONS)


def classifier() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**_OPTIONS)


MODEL = Model("lightgbm_linear", "LightGBM linear_tree", "lightgbm", regressor, classifier)
