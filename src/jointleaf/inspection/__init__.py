"""Explanations of fitted models: contributions, local models, effects and interactions.

Names are loaded when they are first used: estimators have methods that need a part of the package.
"""

from typing import TYPE_CHECKING

from jointleaf._core.lazy import lazy_names

if TYPE_CHECKING:
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
else:
    _MODULES = {
        "_effects": "Effect Interactions effect interactions",
        "_explanation": "Explanation explain",
        "_local": "LocalModel local_model",
    }
    __all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
