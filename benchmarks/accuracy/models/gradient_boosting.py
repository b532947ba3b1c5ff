"""scikit-learn's gradient boosting."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from sklearn.ensemble import GradientBoostingRegressor

    return GradientBoostingRegressor(random_state=0)


def classifier() -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(random_state=0)


MODEL = Model("gradient_boosting", "gradient boosting", "scikit-learn", regressor, classifier)
