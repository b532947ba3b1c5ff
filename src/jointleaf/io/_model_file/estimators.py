"""Schemas of the estimators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from jointleaf import estimators, multitask
from jointleaf._data.tasks import Form
from jointleaf.estimators._linear_forest import PortableForest
from jointleaf.io._model_file.fits import (
    CALIBRATION,
    CELL_MODEL,
    FLOATS,
    JOINT_SOLUTION,
    PRUNING,
    QUANTILES,
    REPORT,
    has_leaf_values,
)
from jointleaf.io._model_file.objects import COLUMNS, FEATURES, TREES, fitted
from jointleaf.io._model_file.parameters import LOSS
from jointleaf.io._model_file.schema import (
    Array,
    Arrays,
    ByTask,
    Each,
    Field,
    Integer,
    Let,
    Made,
    Maybe,
    Number,
    Place,
    Scope,
    Text,
    Variants,
    indices,
    record,
)
from jointleaf.io._model_file.values import Labels, Plain, check_keys
from jointleaf.multitask._joint_base import describe_fit
from jointleaf.partitions._growers.base import Encoding
from jointleaf.partitions._union import LinearPart

_Steps = dict[str, Field | Let]


def _are_names(s: Scope) -> bool:
    names = s.feature_names
    return names is None or (
        len(names) == len(s.columns) and all(isinstance(n, str) for n in names)
    )


_COLUMNS: _Steps = {
    "columns": COLUMNS,
    "d": Let(lambda s: len(s.columns.of_matrix())),
    "n_categories": Let(lambda s: s.columns.of_matrix().n_categories),
    "feature_names": Maybe(Labels(types="O"))
    .of("feature_names_in_", optional=True)
    .must(_are_names, "must be a text for every column"),
}
_CLASSES: _Steps = {
    "classes": Labels(2),
    "n_classes": Let(lambda s: len(s.classes)),
    "n_outputs": Let(lambda s: s.n_classes if s.n_classes > 2 else 1),
    "outputs": Let(lambda s: (s.n_outputs,) if s.n_outputs > 1 else ()),
}
_NUMBERS: _Steps = {
    "n_classes": Let(lambda s: 0),
    "n_outputs": Let(lambda s: 1),
    "outputs": Let(lambda s: ()),
}


# -- JOPLEn --------------------------------------------------------------------------------------

_JOPLEN: _Steps = {
    "cell_model": CELL_MODEL,
    "report": REPORT,
    "calibration": Maybe(CALIBRATION),
    "quantiles": Maybe(QUANTILES).of("quantiles_", optional=True),
    "feature_importances": Array(FLOATS, "#columns"),
    "pruning": Maybe(PRUNING).of("pruning_", optional=True),
}


def _fill_joplen(model: Any, s: Scope) -> None:
    model.n_features_in_ = len(s.columns)  # its partitions may see more


# -- linear forests ------------------------------------------------------------------------------


def _are_forest_trees(s: Scope) -> bool:
    has_categories = s.trees.n_categories.any() or s.trees.lookups
    return has_leaf_values(s.trees, s.n_outputs) and not has_categories


_LINEAR = record(
    LinearPart,
    features=FEATURES,
    m=Let(lambda s: len(s.features.plan.names)),
    coef=Array("f8", "m *outputs", finite=True),
    intercept=Array("f8", "*outputs", finite=True),
    mean=Number(),
    scale=Number(),
    make=lambda s: LinearPart(s.features, s.coef, s.intercept, s.n_classes, s.mean, s.scale),
)
_COLUMN = Integer(0, lambda s: s.d - 1).of(lambda pair: pair[0])
_SCORES = record(
    tuple,
    column=_COLUMN.must(lambda s: s.n_categories[s.column] > 0, "has no categories"),
    n_scores=Let(lambda s: int(s.n_categories[s.column]) + 2),
    values=Array("f8", "n_scores", finite=True).of(lambda pair: pair[1]),
    make=lambda s: (s.column, s.values),
)
_FILL = record(
    tuple,
    column=_COLUMN,
    value=Number().of(lambda pair: pair[1]),
    make=lambda s: (s.column, s.value),
)
_ENCODING = record(
    Encoding,
    scores=Made(Each(_SCORES), dict, dict.items).of(lambda encoding: encoding.parts()[0]),
    fills=Made(Each(_FILL), dict, dict.items).of(lambda encoding: encoding.parts()[1]),
    make=lambda s: Encoding.of(s.scores, s.fills),
)
_FOREST: _Steps = {
    "linear": _LINEAR,
    "trees": TREES.of(lambda model: PortableForest.of(model.forest_).trees).must(
        _are_forest_trees, "are no trees of this forest"
    ),
    "encoding": _ENCODING,
}


def _fill_forest(model: Any, s: Scope) -> None:
    model.forest_ = PortableForest(s.trees)


# -- several tasks -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TaskNames(Field):
    """A list of different names, which may be anything that a dict may have as a key."""

    def write(self, value: Any, arrays: Arrays) -> Any:
        return Plain().write(value, arrays)

    def read(self, data: Any, place: Place, scope: Scope) -> list:
        names = Plain().read(data, place, scope)
        if not isinstance(names, list) or not names:
            place.fail("must be a list of names")
        check_keys(names, place)
        if len(set(names)) < len(names):
            place.fail("holds a name twice")
        return names


_TASKS: _Steps = {
    **_COLUMNS,
    "task_names": _TaskNames(),
    "n_tasks": Let(lambda s: len(s.task_names)),
    "task_form": Text(get_args(Form)).must(
        lambda s: s.task_form != "single" or s.n_tasks == 1,
        "says single, but there are several tasks",
    ),
    "task_column": Plain().must(
        lambda s: s.task_column is None or isinstance(s.task_column, str | int | np.integer),
        "must be a name or a number",
    ),
}


_NORMS = Array(FLOATS, "d n_tasks")
_JOPLEN_TASKS: _Steps = {
    "task_weights": Array(FLOATS, "n_tasks", finite=True),
    **_NUMBERS,
    "cell_models": Made(Each(CELL_MODEL, "n_tasks"), list),
    "report": Made(Each(REPORT, "n_tasks"), list),
    "slope_norms": _NORMS,
    "common_norms": _NORMS,
    "task_features": ByTask(indices("d", rising=True)),
    "feature_importances": Array(FLOATS, "d"),
    "task_solutions": Let(lambda s: tuple(report.solution for report in s.report)),
    "solution": Maybe(JOINT_SOLUTION).of(
        lambda model: None if isinstance(model.solution_, list) else model.solution_
    ),
}


_TASK_NUMBERS: _Steps = {
    "losses": Made(Each(LOSS, "n_tasks"), list),
    "calibrations": Made(Each(Maybe(CALIBRATION), "n_tasks"), list),
}


def _fill_tasks(model: Any, s: Scope) -> None:
    if s.solution is not None:  # all tasks were fitted together
        model.report_ = [
            replace(report, joint=replace(report.joint, solution=task))
            for report, task in zip(s.report, s.solution.tasks, strict=True)
        ]
    describe_fit(model, s.solution)


def _fit_leaves(s: Scope) -> bool:
    pairs = zip(s.leaf_weights.values(), s.trees.values(), strict=True)
    return all(len(weights) == len(trees.cell_of_leaf) for weights, trees in pairs)


_BOUTS: _Steps = {
    "universal_features": indices("d", rising=True),
    "n_universal_trees": Integer(),
    "trees": ByTask(TREES).must(
        lambda s: all(map(has_leaf_values, s.trees.values(), s.numbers_of_outputs)),
        "must have leaf values of every output",
    ),
    "leaf_weights": ByTask(Array("f8", finite=True, low=0)).must(
        _fit_leaves, "does not fit the leaves"
    ),
    "task_features": ByTask(indices("d", rising=True)),
    "task_importances": ByTask(Array("f8", "d")),
}
_BOUTS_NUMBERS: _Steps = {"numbers_of_outputs": Let(lambda s: [1] * s.n_tasks)}
_BOUTS_CLASSES: _Steps = {
    "task_classes": Made(Each(Labels(1), "n_tasks"), list),
    "numbers_of_outputs": Let(
        lambda s: [len(labels) if len(labels) > 2 else 1 for labels in s.task_classes]
    ),
}
_PAIRS: _Steps = {
    "task_classes": Made(Each(Labels(2), "n_tasks"), list).must(
        lambda s: all(len(labels) == 2 for labels in s.task_classes), "must be two for every task"
    )
}


def _fill_bouts(model: Any, s: Scope) -> None:
    # One after the other: a file may have one array for very many tasks.
    model.feature_importances_ = sum(s.task_importances.values()) / s.n_tasks


ESTIMATOR = Variants({})
ESTIMATOR.add(
    fitted(estimators.JOPLEnRegressor, _fill_joplen, **_COLUMNS, **_NUMBERS, **_JOPLEN, loss=LOSS),
    fitted(estimators.JOPLEnClassifier, _fill_joplen, **_COLUMNS, **_CLASSES, **_JOPLEN),
    fitted(estimators.LinearForestRegressor, _fill_forest, **_COLUMNS, **_NUMBERS, **_FOREST),
    fitted(estimators.LinearForestClassifier, _fill_forest, **_COLUMNS, **_CLASSES, **_FOREST),
    fitted(
        multitask.MultiTaskJOPLEnRegressor, _fill_tasks, **_TASKS, **_JOPLEN_TASKS, **_TASK_NUMBERS
    ),
    fitted(multitask.MultiTaskJOPLEnClassifier, _fill_tasks, **_TASKS, **_PAIRS, **_JOPLEN_TASKS),
    fitted(multitask.BoUTSRegressor, _fill_bouts, **_TASKS, **_BOUTS_NUMBERS, **_BOUTS),
    fitted(multitask.BoUTSClassifier, _fill_bouts, **_TASKS, **_BOUTS_CLASSES, **_BOUTS),
)
