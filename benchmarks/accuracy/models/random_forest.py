"""A random forest."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(random_state=0, n_jobs=1)


def classifier() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=0, n_jobs=1)


MODEL = Model("random_forest", "random forest", "scikit-learn", regressor, classifier)
