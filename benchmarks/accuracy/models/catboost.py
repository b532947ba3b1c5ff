"""CatBoost."""

from typing import Any

from .base import Model

_OPTIONS = {"random_seed": 0, "thread_count": 1, "verbose": False, "allow_writing_files": False}


def regressor() -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(**_OPTIONS)


def classifier() -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(**_OPTIONS)


MODEL = Model("catboost", "CatBoost", "catboost", regressor, classifier)
