"""Extremely randomised trees."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(random_state=0, n_jobs=1)


def classifier() -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(random_state=0, n_jobs=1)


MODEL = Model("extra_trees", "extra trees", "scikit-learn", regressor, classifier)
