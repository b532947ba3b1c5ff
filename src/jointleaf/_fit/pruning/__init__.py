"""Global pruning: fitted models made smaller by merging cells that contribute little."""

from jointleaf._fit.pruning.pruner import Pruning, prune

__all__ = ["Pruning", "prune"]
