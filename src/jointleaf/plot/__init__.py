"""Pictures of strengths, pruning, explanations and selection in several tasks (extra ``plot``)."""

from jointleaf.plot._effect import EffectDisplay, InteractionDisplay
from jointleaf.plot._explanation import ExplanationDisplay, ImportanceDisplay, LocalModelDisplay
from jointleaf.plot._intervals import IntervalDisplay
from jointleaf.plot._strengths import CVDisplay, PathDisplay, PruningDisplay
from jointleaf.plot._task_fits import TaskPathDisplay, TaskWeightsDisplay
from jointleaf.plot._tasks import SelectionDisplay, TaskErrorDisplay

__all__ = [
    "CVDisplay",
    "EffectDisplay",
    "ExplanationDisplay",
    "ImportanceDisplay",
    "InteractionDisplay",
    "IntervalDisplay",
    "LocalModelDisplay",
    "PathDisplay",
    "PruningDisplay",
    "SelectionDisplay",
    "TaskErrorDisplay",
    "TaskPathDisplay",
    "TaskWeightsDisplay",
]
