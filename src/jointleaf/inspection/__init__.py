"""Explanations of fitted models: contributions, local models, effects and interactions."""

from jointleaf.inspection.effects import Effect, effect
from jointleaf.inspection.explaining import explain
from jointleaf.inspection.explanation import Explanation
from jointleaf.inspection.interactions import Interactions, interactions
from jointleaf.inspection.local import LocalModel, local_model

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
