"""Pictures of strength paths, of cross-validated strengths and of pruning (extra ``plot``)."""

from jointleaf.displays.cv import CVDisplay
from jointleaf.displays.path import PathDisplay
from jointleaf.displays.pruning import PruningDisplay

__all__ = ["CVDisplay", "PathDisplay", "PruningDisplay"]
