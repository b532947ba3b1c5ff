"""Explanations of fitted models: contributions, local models, effects and interactions."""

from jointleaf.inspection._effects import Effect, Interactions, effect, interactions
from jointleaf.inspection._explanation import Explanation, explain
from jointleaf.inspection._local import LocalModel, local_model

__all__ = [
    "Effect",
    "Explanation",
    "Interactions",
    "LocalModel",
    "effect",
    "explain",
    "interactions",
    "local_model",
]
