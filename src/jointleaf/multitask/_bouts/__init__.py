"""BoUTS: boosted trees that select universal and task-specific features."""

from jointleaf.multitask._bouts.estimators import BoUTSClassifier, BoUTSPartitioner, BoUTSRegressor

__all__ = ["BoUTSClassifier", "BoUTSPartitioner", "BoUTSRegressor"]
