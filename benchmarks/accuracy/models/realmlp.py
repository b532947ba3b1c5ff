"""RealMLP: a multilayer perceptron with defaults that were tuned over many data sets."""

from typing import Any

from .base import Model

_OPTIONS = {"device": "cpu", "random_state": 0, "n_threads": 1}


def regressor() -> Any:
    from pytabkit import RealMLP_TD_Regressor

    return RealMLP_TD_Regressor(**_OPTIONS)


def classifier() -> Any:
    from pytabkit import RealMLP_TD_Classifier

    return RealMLP_TD_Classifier(**_OPTIONS)


MODEL = Model("realmlp", "RealMLP", "pytabkit", regressor, classifier)
