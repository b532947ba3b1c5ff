"""BoUTS: boosted trees that select universal and task-specific features."""

from jointleaf.multitask._bouts.estimator import BoUTSClassifier, BoUTSRegressor
from jointleaf.multitask._bouts.partitioner import BoUTSPartitioner

__all__ = ["BoUTSClassifier", "BoUTSPartitioner", "BoUTSRegressor"]
