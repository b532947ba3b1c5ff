"""jointleaf: tree ensembles with a linear model in every cell, all fitted jointly.

The public names are loaded when they are first used, so that ``import jointleaf`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "JOPLEnRegressor": "jointleaf.estimators",
    "JOPLEnClassifier": "jointleaf.estimators",
    "refine": "jointleaf.estimators",
    "LinearForestRegressor": "jointleaf.estimators",
    "LinearForestClassifier": "jointleaf.estimators",
    "prune": "jointleaf.estimators._pruning",
    "save": "jointleaf.io",
    "load": "jointleaf.io",
    "load_metadata": "jointleaf.io",
    "ModelFileError": "jointleaf.io",
    "to_onnx": "jointleaf.io",
    "estimate_memory": "jointleaf.estimators",
    "fit_cells": "jointleaf._core.fitting",
    "strength_path": "jointleaf._core.path",
    "MultiTaskJOPLEnRegressor": "jointleaf.multitask",
    "MultiTaskJOPLEnClassifier": "jointleaf.multitask",
    "BoUTSRegressor": "jointleaf.multitask",
    "BoUTSClassifier": "jointleaf.multitask",
    "fit_tasks": "jointleaf.multitask",
    "DirtyLasso": "jointleaf.penalties",
    "DirtyLInf": "jointleaf.penalties",
    "PerTask": "jointleaf.penalties",
    "Frobenius": "jointleaf.penalties",
    "L1": "jointleaf.penalties",
    "L21": "jointleaf.penalties",
    "LInf1": "jointleaf.penalties",
    "Lp1": "jointleaf.penalties",
    "GrOWL": "jointleaf.penalties",
    "Nuclear": "jointleaf.penalties",
    "KyFan": "jointleaf.penalties",
    "SchattenP": "jointleaf.penalties",
    "Laplacian": "jointleaf.penalties",
    "Explanation": "jointleaf.inspection",
    "explain": "jointleaf.inspection",
    "ExplanationDisplay": "jointleaf.plot",
    "EffectDisplay": "jointleaf.plot",
    "ImportanceDisplay": "jointleaf.plot",
    "LocalModelDisplay": "jointleaf.plot",
    "InteractionDisplay": "jointleaf.plot",
    "PathDisplay": "jointleaf.plot",
    "CVDisplay": "jointleaf.plot",
    "PruningDisplay": "jointleaf.plot",
    "TaskWeightsDisplay": "jointleaf.plot",
    "SelectionDisplay": "jointleaf.plot",
    "TaskErrorDisplay": "jointleaf.plot",
    "TaskPathDisplay": "jointleaf.plot",
    "LeafDesign": "jointleaf._core.design",
    "Solution": "jointleaf._core.solvers",
}

__all__ = [  # noqa: RUF022
    "__version__",
    "JOPLEnRegressor",
    "JOPLEnClassifier",
    "refine",
    "LinearForestRegressor",
    "LinearForestClassifier",
    "prune",
    "save",
    "load",
    "load_metadata",
    "ModelFileError",
    "to_onnx",
    "estimate_memory",
    "fit_cells",
    "strength_path",
    "MultiTaskJOPLEnRegressor",
    "MultiTaskJOPLEnClassifier",
    "BoUTSRegressor",
    "BoUTSClassifier",
    "fit_tasks",
    "DirtyLasso",
    "DirtyLInf",
    "PerTask",
    "Frobenius",
    "L1",
    "L21",
    "LInf1",
    "Lp1",
    "GrOWL",
    "Nuclear",
    "KyFan",
    "SchattenP",
    "Laplacian",
    "Explanation",
    "explain",
    "ExplanationDisplay",
    "EffectDisplay",
    "ImportanceDisplay",
    "LocalModelDisplay",
    "InteractionDisplay",
    "PathDisplay",
    "CVDisplay",
    "PruningDisplay",
    "TaskWeightsDisplay",
    "SelectionDisplay",
    "TaskErrorDisplay",
    "TaskPathDisplay",
    "LeafDesign",
    "Solution",
]

if TYPE_CHECKING:
    from jointleaf._core.design import LeafDesign
    from jointleaf._core.fitting import fit_cells
    from jointleaf._core.path import strength_path
    from jointleaf._core.penalties import (
        L1,
        L21,
        DirtyLasso,
        DirtyLInf,
        Frobenius,
        GrOWL,
        KyFan,
        Laplacian,
        LInf1,
        Lp1,
        Nuclear,
        PerTask,
        SchattenP,
    )
    from jointleaf._core.solvers import Solution
    from jointleaf.estimators import (
        JOPLEnClassifier,
        JOPLEnRegressor,
        LinearForestClassifier,
        LinearForestRegressor,
        estimate_memory,
        refine,
    )
    from jointleaf.estimators._pruning import prune
    from jointleaf.inspection import Explanation, explain
    from jointleaf.io._model_file import ModelFileError, load, load_metadata, save
    from jointleaf.io._onnx import to_onnx
    from jointleaf.multitask import (
        BoUTSClassifier,
        BoUTSRegressor,
        MultiTaskJOPLEnClassifier,
        MultiTaskJOPLEnRegressor,
        fit_tasks,
    )
    from jointleaf.plot import (
        CVDisplay,
        EffectDisplay,
        ExplanationDisplay,
        ImportanceDisplay,
        InteractionDisplay,
        LocalModelDisplay,
        PathDisplay,
        PruningDisplay,
        SelectionDisplay,
        TaskErrorDisplay,
        TaskPathDisplay,
        TaskWeightsDisplay,
    )


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'jointleaf' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
