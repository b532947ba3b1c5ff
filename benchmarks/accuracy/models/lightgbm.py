"""LightGBM with constant leaves."""

from typing import Any

from .base import Model

_OPTIONS = {"random_state": 0, "n_jobs": 1, "verbose": -1}


def regressor() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(**_OPTIONS)


def classifier() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**_OPTIONS)


MODEL = Model("lightgbm", "LightGBM", "lightgbm", regressor, classifier)
