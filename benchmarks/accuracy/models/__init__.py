"""The models: one file each, with its label, its package and how it is made for a task."""

from __future__ import annotations

from collections.abc import Sequence

from . import (
    catboost,
    constant,
    cubist,
    ebm,
    extra_trees,
    gradient_boosting,
    histogram,
    jointleaf,
    lightgbm,
    lightgbm_linear,
    linear,
    perpetual,
    random_forest,
    realmlp,
    tabm,
    xgboost,
)
from .base import Model

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        jointleaf.MODEL,
        jointleaf.FIVE_SEEDS,
        cubist.MODEL,
        catboost.MODEL,
        catboost.EARLY_STOPPING,
        lightgbm.MODEL,
        lightgbm.EARLY_STOPPING,
        lightgbm_linear.MODEL,
        xgboost.MODEL,
        perpetual.MODEL,
        ebm.MODEL,
        realmlp.MODEL,
        tabm.MODEL,
        gradient_boosting.MODEL,
        histogram.MODEL,
        random_forest.MODEL,
        extra_trees.MODEL,
        linear.MODEL,
        constant.MODEL,
    )
}

# No peer: run with the others, and not shown among them.
REFERENCE = "constant"

# Run and compared only where they are named: slow peers, on a few sets.
ON_REQUEST = ("jointleaf_five", "ebm", "realmlp", "tabm")


def default_peers() -> list[str]:
    """Names of the models that are compared unless others are named."""
    return [name for name in MODELS if name != REFERENCE and name not in ON_REQUEST]


def select_models(names: Sequence[str] | None = None) -> list[Model]:
    """Give the models with these names; by default all but the slow ones.

    Raises
    ------
    ValueError
        There is no model of a name.
    """
    if names is None:
        return [model for name, model in MODELS.items() if name not in ON_REQUEST]
    for name in names:
        if name not in MODELS:
            raise ValueError(f"Unknown model {name!r}; known are {', '.join(MODELS)}.")
    return [MODELS[name] for name in dict.fromkeys(names)]


__all__ = ["MODELS", "ON_REQUEST", "REFERENCE", "Model", "default_peers", "select_models"]
