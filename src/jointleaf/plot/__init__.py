"""Pictures of strengths, pruning, explanations and selection in several tasks (extra ``plot``)."""

from jointleaf.plot._cv import CVDisplay
from jointleaf.plot._effect import EffectDisplay
from jointleaf.plot._explanation import ExplanationDisplay
from jointleaf.plot._importance import ImportanceDisplay
from jointleaf.plot._interaction import InteractionDisplay
from jointleaf.plot._local import LocalModelDisplay
from jointleaf.plot._path import PathDisplay
from jointleaf.plot._pruning import PruningDisplay
from jointleaf.plot._selection import SelectionDisplay
from jointleaf.plot._task_errors import TaskErrorDisplay
from jointleaf.plot._task_path import TaskPathDisplay
from jointleaf.plot._task_weights import TaskWeightsDisplay

__all__ = [
    "CVDisplay",
    "EffectDisplay",
    "ExplanationDisplay",
    "ImportanceDisplay",
    "InteractionDisplay",
    "LocalModelDisplay",
    "PathDisplay",
    "PruningDisplay",
    "SelectionDisplay",
    "TaskErrorDisplay",
    "TaskPathDisplay",
    "TaskWeightsDisplay",
]
