"""XGBoost."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from xgboost import XGBRegressor

    return XGBRegressor(random_state=0, n_jobs=1)


def classifier() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(random_state=0, n_jobs=1)


MODEL = Model("xgboost", "XGBoost", "xgboost", regressor, classifier)
