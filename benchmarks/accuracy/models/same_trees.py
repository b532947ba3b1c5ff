"""LightGBM with the 100 x 4 trees that jointleaf's default grows on the target, not refitted."""

from typing import Any

from .base import Model

_OPTIONS = {
    "n_estimators": 100,
    "num_leaves": 4,
    "min_child_samples": 5,
    "subsample": 0.7,
    "subsample_freq": 1,
    "colsample_bytree": 0.7,
    "random_state": 0,
    "n_jobs": 1,
    "verbose": -1,
}


def regressor() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(**_OPTIONS)


def classifier() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**_OPTIONS)


MODEL = Model("same_trees", "the same trees, not refitted", "lightgbm", regressor, classifier)
