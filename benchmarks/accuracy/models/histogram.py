"""scikit-learn's histogram gradient boosting; its threads are OpenMP's, of which there is one."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


def classifier() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


MODEL = Model(
    "histogram", "histogram boosting", "scikit-learn", regressor, classifier, categories=True
)
