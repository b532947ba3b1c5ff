"""Perpetual: boosting that chooses its own number of trees."""

from typing import Any

from .base import Model

_OPTIONS = {"num_threads": 1, "seed": 0}


def regressor() -> Any:
    from perpetual import PerpetualRegressor

    return PerpetualRegressor(**_OPTIONS)


def classifier() -> Any:
    from perpetual import PerpetualClassifier

    return PerpetualClassifier(**_OPTIONS)


MODEL = Model("perpetual", "Perpetual", "perpetual", regressor, classifier)
