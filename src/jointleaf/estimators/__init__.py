"""Estimators with the interface of scikit-learn; those that are not used are not loaded."""

from typing import TYPE_CHECKING

from jointleaf._core.lazy import lazy_names

if TYPE_CHECKING:
    from jointleaf.estimators._joplen import JOPLEnClassifier, JOPLEnRegressor
    from jointleaf.estimators._linear_forest import LinearForestClassifier, LinearForestRegressor
    from jointleaf.estimators._memory import estimate_memory
    from jointleaf.estimators._refining import refine

    __all__ = [
        "JOPLEnClassifier",
        "JOPLEnRegressor",
        "LinearForestClassifier",
        "LinearForestRegressor",
        "estimate_memory",
        "refine",
    ]
else:
    _MODULES = {
        "_joplen": "JOPLEnClassifier JOPLEnRegressor",
        "_linear_forest": "LinearForestClassifier LinearForestRegressor",
        "_memory": "estimate_memory",
        "_refining": "refine",
    }
    __all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
