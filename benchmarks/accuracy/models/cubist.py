"""Cubist: rules with linear models; ten committees, as its documentation advises."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from cubist import Cubist

    return Cubist(n_committees=10, random_state=0)


MODEL = Model("cubist", "Cubist", "cubist", regressor, categories=True)
