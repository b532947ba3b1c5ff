"""Explanations of fitted models: contributions, local models, effects and interactions."""

from jointleaf.inspection.explaining import explain
from jointleaf.inspection.explanation import Explanation

__all__ = ["Explanation", "explain"]
