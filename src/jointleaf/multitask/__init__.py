"""Several tasks fitted together: features that all of them share, and features of single ones."""

from jointleaf.multitask.bouts import BoUTSClassifier, BoUTSPartitioner, BoUTSRegressor
from jointleaf.multitask.estimators import MultiTaskJOPLEnClassifier, MultiTaskJOPLEnRegressor
from jointleaf.multitask.fitting import fit_tasks
from jointleaf.multitask.solution import TaskSolution

__all__ = [
    "BoUTSClassifier",
    "BoUTSPartitioner",
    "BoUTSRegressor",
    "MultiTaskJOPLEnClassifier",
    "MultiTaskJOPLEnRegressor",
    "TaskSolution",
    "fit_tasks",
]
