"""Several tasks fitted together: features that all of them share, and features of single ones."""

from jointleaf._core.tasks import fit_tasks
from jointleaf.multitask._bouts.estimators import BoUTSClassifier, BoUTSPartitioner, BoUTSRegressor
from jointleaf.multitask._estimators import MultiTaskJOPLEnClassifier, MultiTaskJOPLEnRegressor

__all__ = [
    "BoUTSClassifier",
    "BoUTSPartitioner",
    "BoUTSRegressor",
    "MultiTaskJOPLEnClassifier",
    "MultiTaskJOPLEnRegressor",
    "fit_tasks",
]
