"""Pictures of strength paths and of cross-validated strengths (extra ``plot``)."""

from jointleaf.displays.cv import CVDisplay
from jointleaf.displays.path import PathDisplay

__all__ = ["CVDisplay", "PathDisplay"]
