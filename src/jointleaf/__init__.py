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
    "prune": "jointleaf.pruning",
    "save": "jointleaf.model_file",
    "load": "jointleaf.model_file",
    "load_metadata": "jointleaf.model_file",
    "ModelFileError": "jointleaf.model_file",
    "to_onnx": "jointleaf.onnx_export",
    "estimate_memory": "jointleaf.memory",
    "fit_cells": "jointleaf.fitting",
    "strength_path": "jointleaf.path",
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
    "ExplanationDisplay": "jointleaf.displays",
    "EffectDisplay": "jointleaf.displays",
    "ImportanceDisplay": "jointleaf.displays",
    "LocalModelDisplay": "jointleaf.displays",
    "InteractionDisplay": "jointleaf.displays",
    "PathDisplay": "jointleaf.displays",
    "CVDisplay": "jointleaf.displays",
    "PruningDisplay": "jointleaf.displays",
    "TaskWeightsDisplay": "jointleaf.displays",
    "SelectionDisplay": "jointleaf.displays",
    "TaskErrorDisplay": "jointleaf.displays",
    "TaskPathDisplay": "jointleaf.displays",
    "LeafDesign": "jointleaf.design",
    "Solution": "jointleaf.solvers",
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
    from jointleaf.design import LeafDesign
    from jointleaf.displays import (
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
    from jointleaf.estimators import (
        JOPLEnClassifier,
        JOPLEnRegressor,
        LinearForestClassifier,
        LinearForestRegressor,
        refine,
    )
    from jointleaf.fitting import fit_cells
    from jointleaf.inspection import Explanation, explain
    from jointleaf.memory import estimate_memory
    from jointleaf.model_file import ModelFileError, load, load_metadata, save
    from jointleaf.multitask import (
        BoUTSClassifier,
        BoUTSRegressor,
        MultiTaskJOPLEnClassifier,
        MultiTaskJOPLEnRegressor,
        fit_tasks,
    )
    from jointleaf.onnx_export import to_onnx
    from jointleaf.path import strength_path
    from jointleaf.penalties import (
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
    from jointleaf.pruning import prune
    from jointleaf.solvers import Solution


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'jointleaf' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
