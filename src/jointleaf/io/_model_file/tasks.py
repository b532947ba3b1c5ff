"""Estimators of several tasks."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from jointleaf._core.solvers.base import Status
from jointleaf._core.task_solution import TaskSolution
from jointleaf._data.columns import Columns
from jointleaf._data.tasks import Form
from jointleaf.io._model_file.cells import (
    read_cells,
    read_solution,
    read_trace,
    write_cells,
    write_solution,
    write_trace,
)
from jointleaf.io._model_file.estimators import (
    make,
    read_fitted_penalty,
    read_names,
    write_fitted_penalty,
    write_names,
)
from jointleaf.io._model_file.features import read_columns, read_plan, write_columns, write_plan
from jointleaf.io._model_file.fields import Arrays, Part, number
from jointleaf.io._model_file.partitioners import write_parameters
from jointleaf.io._model_file.results import read_table, write_table
from jointleaf.io._model_file.trees import read_trees, write_trees
from jointleaf.io._model_file.values import read_labels, read_plain, write_labels, write_plain
from jointleaf.multitask._bouts import BoUTSClassifier, BoUTSRegressor
from jointleaf.multitask._estimators import MultiTaskJOPLEnClassifier, MultiTaskJOPLEnRegressor

__all__ = ["read_bouts", "read_tasks", "write_bouts", "write_tasks"]

_FLOATS = "f4 f8"


def _read_task_names(part: Part) -> list:
    names = read_plain(part, "task_names")
    if not isinstance(names, list) or not names:
        part.fail("must be a list", "task_names")
    try:
        is_twice = len(set(names)) < len(names)
    except TypeError:
        part.fail("holds something that is no name", "task_names")
    if is_twice:
        part.fail("holds a name twice", "task_names")
    return names


# -- JOPLEn --------------------------------------------------------------------------------------


def write_tasks(model: Any, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for a fitted MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier."""
    data = {
        "parameters": write_parameters(model, arrays),
        "columns": write_columns(model.columns_, arrays),
        "feature_names": write_names(model, arrays),
        "task_names": write_plain(model.task_names_, arrays),
        "task_weights": arrays.add(model.task_weights_),
        "form": model.task_form_,
        "task_column": write_plain(model.task_column_, arrays),
        "models": [write_cells(own, arrays) for own in model.cell_models_],
        "plan": write_plan(model.cell_models_[0].features.plan, arrays),
        "n_iter": int(model.n_iter_),
        "cv_results": write_table(model.cv_results_, arrays),
        "slope_norms": arrays.add(model.slope_norms_),
        "common_norms": arrays.add(model.common_norms_),
        "task_features": [arrays.add(own) for own in model.task_features_.values()],
        "importances": arrays.add(model.feature_importances_),
        "solution": None,
        "solutions": None,
    }
    if isinstance(model.solution_, list):  # every task was fitted alone
        data["solutions"] = [write_solution(own, arrays) for own in model.solution_]
        data["penalties"] = [write_fitted_penalty(own, arrays) for own in model.penalty_]
    else:
        data["solution"] = _write_joint(model.solution_, arrays)
        data["penalties"] = [write_fitted_penalty(model.penalty_, arrays)]
    if isinstance(model, MultiTaskJOPLEnClassifier):
        data["classes"] = [{"labels": write_labels(own, arrays)} for own in model.task_classes_]
    return data


def read_tasks(part: Part, cls: type[MultiTaskJOPLEnRegressor | MultiTaskJOPLEnClassifier]) -> Any:
    """Read a fitted MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier."""
    model: Any = make(part, cls)
    columns = read_columns(part, "columns")
    d = len(columns)
    read_names(part, model, d)
    names = _read_task_names(part)
    model.task_names_, n_tasks = names, len(names)
    model.columns_ = columns
    _read_form(part, model)
    model.cell_models_ = [read_cells(p, columns.n_categories, 1) for p in part.children("models")]
    if len(model.cell_models_) != n_tasks:
        part.fail(f"are {len(model.cell_models_)} for {n_tasks} tasks", "models")
    model.partitioners_ = [own.partitioner for own in model.cell_models_]
    plan = read_plan(part.child("plan"), columns.n_categories, d)
    model.linear_feature_names_ = np.array(plan.names, dtype=object)
    model.linear_feature_columns_ = plan.sources
    _read_norms(part, model, d)
    _read_solutions(part, model)
    if issubclass(cls, MultiTaskJOPLEnClassifier):
        model.task_classes_ = [_read_pair(own) for own in part.children("classes")]
        if len(model.task_classes_) != n_tasks:
            part.fail(f"are {len(model.task_classes_)} for {n_tasks} tasks", "classes")
    return model


def _read_form(part: Part, model: Any) -> None:
    _read_task_column(part, model)
    n_tasks = (len(model.task_names_),)
    model.task_weights_ = part.array("task_weights", _FLOATS, n_tasks, finite=True)


def _read_task_column(part: Part, model: Any) -> None:
    model.task_form_ = part.choice("form", get_args(Form))
    model.task_column_ = read_plain(part, "task_column")
    if not (model.task_column_ is None or isinstance(model.task_column_, str | int | np.integer)):
        part.fail("must be a name or a number", "task_column")
    if model.task_form_ == "single" and len(model.task_names_) != 1:
        part.fail("says single, but there are several tasks", "form")


def _read_norms(part: Part, model: Any, d: int) -> None:
    """Which features have slopes, by task."""
    shape = (d, len(model.task_names_))
    model.slope_norms_ = part.array("slope_norms", _FLOATS, shape)
    model.common_norms_ = part.array("common_norms", _FLOATS, shape)
    model.common_features_ = np.flatnonzero(model.common_norms_.any(axis=1))
    model.selected_features_ = np.flatnonzero(model.slope_norms_.any(axis=1))
    listed = part.get("task_features")
    if not isinstance(listed, list) or len(listed) != shape[1]:
        part.fail("must have a list for every task", "task_features")
    own = Part(
        {str(t): reference for t, reference in enumerate(listed)},
        part.arrays,
        f"{part.path}.task_features",
    )
    model.task_features_ = {
        name: own.indices(str(t), d, rising=True) for t, name in enumerate(model.task_names_)
    }
    model.feature_importances_ = part.array("importances", _FLOATS, (d,))


def _read_solutions(part: Part, model: Any) -> None:
    """What was solved: every task alone, or all together."""
    model.n_iter_ = part.integer("n_iter")
    model.cv_results_ = read_table(part, "cv_results", with_list=True)
    penalties = [read_fitted_penalty(own) for own in part.children("penalties")]
    n_tasks = len(model.task_names_)
    if not part.is_none("solutions"):
        model.solution_ = [read_solution(own) for own in part.children("solutions")]
        if len(model.solution_) != n_tasks or len(penalties) != n_tasks:
            part.fail(f"are not those of {n_tasks} tasks", "solutions")
        if not part.is_none("solution"):
            part.fail("stands next to solutions", "solution")
        model.penalty_ = penalties
        return
    if len(penalties) != 1:
        part.fail("must be one", "penalties")
    (model.penalty_,) = penalties
    model.solution_ = _read_joint(part.child("solution"), n_tasks)


def _read_pair(part: Part) -> np.ndarray:
    labels = read_labels(part, "labels", 2)
    part.close()
    return labels


def _write_joint(solution: TaskSolution, arrays: Arrays) -> dict[str, Any]:
    return {
        "tasks": [write_solution(own, arrays) for own in solution.tasks],
        "common": [{"slopes": arrays.add(own)} for own in solution.common],
        "specific": [{"slopes": arrays.add(own)} for own in solution.specific],
        **{name: getattr(solution, name) for name in ("status", "message", "solver")},
        "n_iter": int(solution.n_iter),
        "objective": number(solution.objective),
        "optimality": number(solution.optimality),
        "trace": write_trace(solution.trace, arrays),
    }


def _read_joint(part: Part, n_tasks: int) -> TaskSolution:
    tasks = tuple(read_solution(own) for own in part.children("tasks"))
    if len(tasks) != n_tasks:
        part.fail(f"are {len(tasks)} for {n_tasks} tasks", "tasks")
    slopes: dict[str, Any] = {}
    for name in ("common", "specific"):
        parts = part.children(name)
        if len(parts) != n_tasks:
            part.fail(f"are {len(parts)} for {n_tasks} tasks", name)
        found = []
        for own, task in zip(parts, tasks, strict=True):
            found.append(own.array("slopes", _FLOATS, task.coef.shape))
            own.close()
        slopes[name] = tuple(found)
    status: Any = part.choice("status", get_args(Status))
    solution = TaskSolution(
        tasks,
        **slopes,
        status=status,
        message=part.text("message"),
        solver=part.text("solver"),
        n_iter=part.integer("n_iter"),
        objective=part.number("objective", finite=False),
        optimality=part.number("optimality", finite=False),
        trace=read_trace(part, "trace"),
    )
    part.close()
    return solution


# -- BoUTS ---------------------------------------------------------------------------------------


def write_bouts(model: Any, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for a fitted BoUTSRegressor or BoUTSClassifier."""
    tasks = []
    for name in model.task_names_:
        own = {
            "trees": write_trees(model.trees_[name], arrays),
            "features": arrays.add(model.task_features_[name]),
            "importances": arrays.add(model.task_importances_[name]),
            "leaf_weights": arrays.add(model.leaf_weights_[name]),
        }
        tasks.append(own)
    if isinstance(model, BoUTSClassifier):
        for own, classes in zip(tasks, model.task_classes_, strict=True):
            own["classes"] = write_labels(classes, arrays)
    return {
        "parameters": write_parameters(model, arrays),
        "n_features": int(model.n_features_in_),
        "feature_names": write_names(model, arrays),
        "task_names": write_plain(model.task_names_, arrays),
        "universal_features": arrays.add(model.universal_features_),
        "n_universal_trees": int(model.n_universal_trees_),
        "form": model.task_form_,
        "task_column": write_plain(model.task_column_, arrays),
        "tasks": tasks,
    }


def read_bouts(part: Part, cls: type[BoUTSRegressor | BoUTSClassifier]) -> Any:
    """Read a fitted BoUTSRegressor or BoUTSClassifier."""
    model: Any = make(part, cls)
    d = part.integer("n_features", 1, 2**31)
    read_names(part, model, d)
    names = _read_task_names(part)
    model.task_names_ = names
    model.universal_features_ = part.indices("universal_features", d, rising=True)
    model.n_universal_trees_ = part.integer("n_universal_trees")
    model.columns_ = Columns.numbers(d, getattr(model, "feature_names_in_", None))
    if "is_single" in part:  # files before tables with a column of tasks were read
        model.task_form_ = "single" if part.flag("is_single") else "pairs"
        model.task_column_ = None
    else:
        _read_task_column(part, model)
    tasks = part.children("tasks")
    if len(tasks) != len(names) or (model.task_form_ == "single" and len(names) != 1):
        part.fail(f"are {len(tasks)} for {len(names)} names", "tasks")
    model.trees_, model.task_features_, model.task_importances_ = {}, {}, {}
    model.leaf_weights_ = {}
    if issubclass(cls, BoUTSClassifier):
        model.task_classes_ = []
    for name, own in zip(names, tasks, strict=True):
        _read_bouts_task(own, model, name, d)
    model.feature_importances_ = np.mean(list(model.task_importances_.values()), axis=0)
    return model


def _read_bouts_task(part: Part, model: Any, name: Any, d: int) -> None:
    model.task_importances_[name] = part.array("importances", "f8", (d,))
    trees = read_trees(part.child("trees"), d)
    n_outputs = 1
    if isinstance(model, BoUTSClassifier):
        classes = read_labels(part, "classes")
        if not len(classes):
            part.fail("is empty", "classes")
        model.task_classes_.append(classes)
        n_outputs = len(classes) if len(classes) > 2 else 1
    values = trees.leaf_values
    if values is None or values.shape[1] != n_outputs:
        part.fail(f"must have leaf values for {n_outputs} outputs", "trees")
    own = np.arange(len(values)) - np.repeat(trees.leaf_starts[:-1], trees.n_leaves)
    if (trees.cell_of_leaf != own).any():
        part.fail("has leaves that are not their own cells", "trees")
    model.trees_[name] = trees
    weights = part.array("leaf_weights", "f8", (len(values),), finite=True)
    if (weights < 0).any():
        part.fail("must not be negative", "leaf_weights")
    model.leaf_weights_[name] = weights
    model.task_features_[name] = part.indices("features", d, rising=True)
    part.close()
