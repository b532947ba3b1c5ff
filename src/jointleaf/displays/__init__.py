"""Pictures of strengths, pruning, explanations and selection in several tasks (extra ``plot``)."""

from jointleaf.displays.cv import CVDisplay
from jointleaf.displays.effect import EffectDisplay
from jointleaf.displays.explanation import ExplanationDisplay
from jointleaf.displays.importance import ImportanceDisplay
from jointleaf.displays.interaction import InteractionDisplay
from jointleaf.displays.local import LocalModelDisplay
from jointleaf.displays.path import PathDisplay
from jointleaf.displays.pruning import PruningDisplay
from jointleaf.displays.selection import SelectionDisplay
from jointleaf.displays.task_errors import TaskErrorDisplay
from jointleaf.displays.task_path import TaskPathDisplay
from jointleaf.displays.task_weights import TaskWeightsDisplay

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
