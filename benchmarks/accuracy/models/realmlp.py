"""RealMLP, a multilayer perceptron with tuned defaults; minutes a fit on one core."""

from typing import Any

from .base import Model

_OPTIONS = {"random_state": 0, "device": "cpu", "n_threads": 1, "verbosity": 0}


def regressor() -> Any:
    from pytabkit import RealMLP_TD_Regressor

    return RealMLP_TD_Regressor(**_OPTIONS)


def classifier() -> Any:
    from pytabkit import RealMLP_TD_Classifier

    return RealMLP_TD_Classifier(**_OPTIONS)


MODEL = Model("realmlp", "RealMLP", "pytabkit", regressor, classifier)
