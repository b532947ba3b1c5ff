"""BoUTS: boosted trees that select universal and task-specific features."""

from jointleaf.multitask.bouts.estimator import BoUTSClassifier, BoUTSRegressor
from jointleaf.multitask.bouts.partitioner import BoUTSPartitioner

__all__ = ["BoUTSClassifier", "BoUTSPartitioner", "BoUTSRegressor"]
