"""jointleaf: tree ensembles with a linear model in every cell, all fitted jointly.

The public names are loaded when they are first used, so that ``import jointleaf`` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jointleaf._core.lazy import lazy_names

__version__ = "0.1.0"

# Public names by the module that is loaded for them; again below, for editors and type checkers.
_MODULES = {
    "estimators": (
        "JOPLEnRegressor JOPLEnClassifier refine LinearForestRegressor LinearForestClassifier "
        "estimate_memory"
    ),
    "estimators._pruning": "prune",
    "_sources.fitting": "fit_source",
    "_data.sources": "ParquetRows BatchRows",
    "_data.preprocessor": "TablePreprocessor",
    "io": "save load load_metadata ModelFileError to_onnx to_sql",
    "_core.fitting": "fit_cells",
    "_core.path": "strength_path",
    "multitask": (
        "MultiTaskJOPLEnRegressor MultiTaskJOPLEnClassifier BoUTSRegressor BoUTSClassifier "
        "fit_tasks"
    ),
    "penalties": (
        "DirtyLasso DirtyLInf PerTask Frobenius L1 L21 LInf1 Lp1 GrOWL Nuclear KyFan SchattenP "
        "Laplacian"
    ),
    "inspection": "Explanation explain",
    "plot": (
        "ExplanationDisplay EffectDisplay ImportanceDisplay LocalModelDisplay "
        "InteractionDisplay IntervalDisplay PathDisplay CVDisplay PruningDisplay "
        "TaskWeightsDisplay SelectionDisplay TaskErrorDisplay TaskPathDisplay"
    ),
    "_core.design": "LeafDesign",
    "_core.solvers": "Solution",
}

if TYPE_CHECKING:
    from jointleaf._core.design import LeafDesign as LeafDesign
    from jointleaf._core.fitting import fit_cells as fit_cells
    from jointleaf._core.path import strength_path as strength_path
    from jointleaf._core.solvers.solution import Solution as Solution
    from jointleaf._data.preprocessor import TablePreprocessor as TablePreprocessor
    from jointleaf._data.sources import BatchRows as BatchRows
    from jointleaf._data.sources import ParquetRows as ParquetRows
    from jointleaf._sources.fitting import fit_source as fit_source
    from jointleaf.estimators import JOPLEnClassifier as JOPLEnClassifier
    from jointleaf.estimators import JOPLEnRegressor as JOPLEnRegressor
    from jointleaf.estimators import LinearForestClassifier as LinearForestClassifier
    from jointleaf.estimators import LinearForestRegressor as LinearForestRegressor
    from jointleaf.estimators import estimate_memory as estimate_memory
    from jointleaf.estimators import refine as refine
    from jointleaf.estimators._pruning import prune as prune
    from jointleaf.inspection import Explanation as Explanation
    from jointleaf.inspection import explain as explain
    from jointleaf.io import *  # noqa: F403
    from jointleaf.multitask import BoUTSClassifier as BoUTSClassifier
    from jointleaf.multitask import BoUTSRegressor as BoUTSRegressor
    from jointleaf.multitask import MultiTaskJOPLEnClassifier as MultiTaskJOPLEnClassifier
    from jointleaf.multitask import MultiTaskJOPLEnRegressor as MultiTaskJOPLEnRegressor
    from jointleaf.multitask import fit_tasks as fit_tasks
    from jointleaf.penalties import L1 as L1
    from jointleaf.penalties import L21 as L21
    from jointleaf.penalties import DirtyLasso as DirtyLasso
    from jointleaf.penalties import DirtyLInf as DirtyLInf
    from jointleaf.penalties import Frobenius as Frobenius
    from jointleaf.penalties import GrOWL as GrOWL
    from jointleaf.penalties import KyFan as KyFan
    from jointleaf.penalties import Laplacian as Laplacian
    from jointleaf.penalties import LInf1 as LInf1
    from jointleaf.penalties import Lp1 as Lp1
    from jointleaf.penalties import Nuclear as Nuclear
    from jointleaf.penalties import PerTask as PerTask
    from jointleaf.penalties import SchattenP as SchattenP
    from jointleaf.plot import *  # noqa: F403
else:  # `__getattr__` would make every name pass type checkers
    _names, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
    __all__ = ["__version__", *_names]
