"""TabM: 32 multilayer perceptrons that share most of their weights, their predictions averaged."""

from typing import Any

from .base import Model

_OPTIONS = {"device": "cpu", "random_state": 0, "n_threads": 1}


def regressor() -> Any:
    from pytabkit import TabM_D_Regressor

    return TabM_D_Regressor(**_OPTIONS)


def classifier() -> Any:
    from pytabkit import TabM_D_Classifier

    return TabM_D_Classifier(**_OPTIONS)


MODEL = Model("tabm", "TabM", "pytabkit", regressor, classifier)
