"""jointleaf's own estimators."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from jointleaf import JOPLEnRegressor

    return JOPLEnRegressor(random_state=0)


def classifier() -> Any:
    from jointleaf import JOPLEnClassifier

    return JOPLEnClassifier(random_state=0)


MODEL = Model("jointleaf", "jointleaf", "jointleaf", regressor, classifier, categories=True)
