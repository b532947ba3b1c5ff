"""Explanations of fitted models: contributions, local models, effects and interactions."""

from jointleaf.inspection._effects import Effect, effect
from jointleaf.inspection._explaining import explain
from jointleaf.inspection._explanation import Explanation
from jointleaf.inspection._interactions import Interactions, interactions
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
