"""Pictures of strengths, pruning and selection in several tasks (extra ``plot``)."""

from jointleaf.displays.cv import CVDisplay
from jointleaf.displays.path import PathDisplay
from jointleaf.displays.pruning import PruningDisplay
from jointleaf.displays.selection import SelectionDisplay
from jointleaf.displays.task_errors import TaskErrorDisplay
from jointleaf.displays.task_path import TaskPathDisplay
from jointleaf.displays.task_weights import TaskWeightsDisplay

__all__ = [
    "CVDisplay",
    "PathDisplay",
    "PruningDisplay",
    "SelectionDisplay",
    "TaskErrorDisplay",
    "TaskPathDisplay",
    "TaskWeightsDisplay",
]
