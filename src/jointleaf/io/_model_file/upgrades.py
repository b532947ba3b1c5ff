"""Upgrades of files in older formats: the one place that knows how models were written before.

An upgrade rewrites the JSON of a model from one format to the next, before any field is read.
It checks only what it needs itself: what it returns is read with every check, as a new file is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._fit.folds import cv_results
from jointleaf.io._model_file.container import ModelFileError
from jointleaf.io._model_file.schema import Arrays, Place, Scope
from jointleaf.io._model_file.values import Plain

#: Fields that were renamed in format 2, in any object.
_FIELDS = {
    "missing_indicator": "add_indicator",
    "n_neighbours": "n_neighbors",
    "n_levels": "n_categories",
    "levels_left": "categories_left",
    "levels": "categories",
    "gaps": "missing_indicators",
}
#: Values that were renamed in format 2, by field.
_VALUES = {
    ("class", "LevelsPartitioner"): "CategoryPartitioner",
    ("graph", "neighbours"): "neighbors",
    ("categorical_features", None): "from_dtype",
    ("partitioner", None): "auto",
}
#: Fields of estimators that were renamed in format 2.
_ATTRIBUTES = {
    "form": "task_form",
    "cells": "cell_model",
    "models": "cell_models",
    "importances": "feature_importances",
}
#: Columns of tables of cross-validation that were renamed in format 2.
_COLUMNS = {"share": "joint_weight", "own_loss": "is_exact"}
_LOOK = 0.25  # per byte of an array: of checks, as `Array.cost`
_COLUMN_BYTES = 500  # of what is made of a column
_TASK_BYTES = 500  # of what is added for a task
_SETTING_BYTES = 1000  # of a row of such a table, which becomes a dict


def upgrade(model: Any, place: Place, version: int) -> Any:
    """Return the JSON of a model of format `version`, changed in place, in the newest format.

    To the arrays of the file some are added, which together are not larger.
    """
    if version < 2:
        try:
            _Upgrade(place).estimator(model)
        except ModelFileError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as cause:
            raise ModelFileError(f"the file holds no valid model of format 1: {cause!r}") from None
    if not isinstance(model, dict):  # which reading refuses
        return model
    if isinstance(model.get("columns"), list):
        model["columns"] = {"columns": model["columns"], "statistics": None}
    if isinstance(model.get("columns"), dict):
        model["columns"].setdefault("preparation", None)
    _add_losses(model)
    parameters = model.get("parameters")
    if isinstance(parameters, dict) and parameters.get("recipe") == "boosting":
        parameters["recipe"] = "auto"  # which chose it
    if "cell_model" in model:
        model.setdefault("calibration", None)
        model.setdefault("quantiles", None)
    if model.get("class") == "MultiTaskJOPLEnRegressor":
        n_tasks = len(model["report"]) if isinstance(model.get("report"), list) else 0
        place.budget.spend(_TASK_BYTES * n_tasks)
        model.setdefault("losses", [{"class": "SquaredError"} for _ in range(n_tasks)])
        model.setdefault("calibrations", [None] * n_tasks)
    return model


def _add_losses(model: dict[str, Any]) -> None:
    """Fill in the loss, of which numbers once had only one."""
    if model.get("class") == "JOPLEnRegressor":
        model.setdefault("loss", {"class": "SquaredError"})
    reports = model.get("report")
    for report in reports if isinstance(reports, list) else [reports]:
        if isinstance(report, dict):
            is_regression = report.get("target_type") == "regression"
            report.setdefault("loss", "squared_error" if is_regression else "logistic")
            report.setdefault("has_offset", False)
            report.setdefault("left_out", [])


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects inside a value, outer ones first."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _rename(item: dict[str, Any], names: dict[str, str]) -> None:
    for old, new in names.items():
        if old in item:
            item[new] = item.pop(old)


class _Upgrade:
    """From format 1 to format 2."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._arrays = Arrays()
        self._arrays.stored = place.arrays
        self._weights_of: dict[tuple, dict[str, Any]] = {}  # so that each is split once

    def estimator(self, model: dict[str, Any]) -> None:
        """Upgrade a whole model."""
        if "n_universal_trees" in model:
            self._bouts(model)
        if "scores" in model:
            model["encoding"] = {name: model.pop(name) for name in ("scores", "fills")}
        if "setting" in model:
            self._single(model)
        if "penalties" in model:
            self._tasks(model)
        _rename(model, _ATTRIBUTES)
        for item in _objects(model):
            self._object(item)

    def _object(self, item: dict[str, Any]) -> None:
        _rename(item, _FIELDS)
        for (name, old), new in _VALUES.items():
            if name in item and item[name] == old:
                item[name] = new
        if "class" in item and "fitted" in item:
            item.update(item.pop("fitted"))
        if "generator" in item:
            item["class"] = "RandomState"
            del item["generator"]
        if "plan" in item and "mean" in item:
            item["scaler"] = {k: item.pop(k) for k in ("mean", "scale", "low", "high", "clip")}
        if "theta" in item and "partitioner" in item:
            low, high = item.pop("low"), item.pop("high")
            item["ranges"] = None if low is None else {"low": low, "high": high}
            self._weights(item, len(item["features"]["plan"]["names"]))
        elif "theta" in item:
            n_features = item.pop("n_features")
            self._weights(item, n_features)
            layout = {"cells_per_partition": item.pop("n_cells"), "n_features": n_features}
            item["layout"] = {**layout, "kinds": item.pop("kinds")}

    def _weights(self, item: dict[str, Any], n_features: int) -> None:
        """Turn weights (C, q[, K]) of all cells into slopes and biases."""
        number, kind = item.pop("theta")["array"], item.pop("kind")
        key = number, kind, n_features
        if key not in self._weights_of:
            theta = self._arrays.stored[number]
            self._place.budget.spend(theta.nbytes)
            slopes = theta[:, :-1]
            if kind == "constant":
                slopes = np.zeros((0, n_features, *theta.shape[2:]), theta.dtype)
            self._weights_of[key] = {
                "kinds": kind,
                "slopes": self._arrays.add(np.ascontiguousarray(slopes)),
                "biases": self._arrays.add(np.ascontiguousarray(theta[:, -1])),
            }
        item.update(self._weights_of[key])

    # -- reports -------------------------------------------------------------------------------

    def _single(self, model: dict[str, Any]) -> None:
        """Turn settings, shares and mixes into a report."""
        setting, shares, mix = (model.pop(name) for name in ("setting", "shares", "mix"))
        solution, penalty, offset = (model.pop(name) for name in ("solution", "penalty", "offset"))
        del model["slope_norms"]
        n_cells = self._array(solution["n_cells"])
        n_trees = self._n_partitions(model["cells"]["partitioner"]) - len(n_cells)
        n_rounds = n_trees // self._array(offset).size
        components = _components(shares, mix, n_cells, n_rounds)
        joint = self._joint(solution, penalty, offset, setting or {})
        constant = 0.0 if mix is None else self._array(mix["constant"])
        table = model.pop("cv_results")
        model["report"] = self._report(model, components, table, joint, constant, n_rounds)

    def _joint(self, solution: Any, penalty: Any, offset: Any, setting: Any) -> dict[str, Any]:
        return {
            "solution": solution,
            "penalty": penalty if "left_out" in penalty else {"penalty": penalty},
            "offset": offset,
            "setting": self._plain({k: v for k, v in setting.items() if k != "share"}),
        }

    def _report(
        self,
        model: dict[str, Any],
        components: dict[str, tuple[float, str]],
        table: Any,
        joint: dict[str, Any],
        constant: Any = 0.0,
        n_rounds: int = 0,
    ) -> dict[str, Any]:
        weights = {name: float(weight) for name, (weight, _) in components.items()}
        active = [name for name, weight in weights.items() if weight > 0] or [*weights][:1]
        is_boosting, is_blend = "staged_boosting" in weights, "boosted" in weights
        return {
            "recipe": "boosting" if is_boosting else "blend" if is_blend else "joint",
            "target_type": "classification" if "classes" in model else "regression",
            "components": [
                {"name": name, "weight": weights[name], "description": components[name][1]}
                for name in active
            ],
            "blend": {"weights": self._plain(weights), "constant": self._plain(constant)},
            "joint": joint if "joint" in active else None,
            # That of boosting was of a model that was not used.
            "cv_results": None if is_boosting else self._cv_results(table),
            "n_rounds": n_rounds if is_boosting or is_blend else 0,
        }

    def _cv_results(self, table: Any) -> Any:
        columns = Plain().read(table, self._place.at("cv_results"), Scope())
        if columns is None:
            return None
        self._place.budget.spend(_SETTING_BYTES * len(columns["mean_loss"]))
        _rename(columns, _COLUMNS)
        return self._plain(cv_results(columns))

    def _n_partitions(self, partitioner: dict[str, Any]) -> int:
        fitted = partitioner["fitted"]
        if "partitioners" in fitted:
            return sum(self._n_partitions(member) for member in fitted["partitioners"])
        if "partitioner" in fitted:
            return self._n_partitions(fitted["partitioner"])
        if "trees" in fitted:
            return len(self._array(fitted["trees"]["n_leaves"]))
        return len(self._array(fitted["centres"])) if "centres" in fitted else 1

    def _array(self, reference: dict[str, int]) -> NDArray:
        """Return an array; looking at its numbers is paid for, as very many may refer to it."""
        array = self._arrays.stored[reference["array"]]
        self._place.budget.spend(_LOOK * array.nbytes)
        return array

    def _plain(self, value: Any) -> Any:
        return Plain().write(value, self._arrays)

    # -- tasks ---------------------------------------------------------------------------------

    def _tasks(self, model: dict[str, Any]) -> None:
        del model["plan"], model["n_iter"]  # of the first task; of the solution
        solutions, penalties = model.pop("solutions"), model.pop("penalties")
        table = model.pop("cv_results")
        n_tasks = len(model["models"])
        tables = table if isinstance(table, list) else [table] * n_tasks
        if solutions is None:
            joint = model["solution"]
            (penalty,) = penalties
            solutions, penalties = joint.pop("tasks"), [penalty] * n_tasks
            for name in ("common", "specific"):
                joint[name] = [
                    self._arrays.add(np.zeros((0, task["n_features"])))
                    if task["kind"] == "constant"
                    else part["slopes"]
                    for part, task in zip(joint[name], solutions, strict=True)
                ]
        model["report"] = []
        for cells, solution, penalty, table in zip(
            model["models"], solutions, penalties, tables, strict=True
        ):
            text = _joint_text(self._array(solution["n_cells"]))
            if cells["theta"] != solution["theta"]:  # format 1 has no weights of the blend
                text += ", blended with simpler models"
            joint = self._joint(solution, penalty, cells["offset"], {})
            model["report"].append(self._report(model, {"joint": (1.0, text)}, table, joint))
        if "classes" in model:
            model["task_classes"] = [part["labels"] for part in model.pop("classes")]

    def _bouts(self, model: dict[str, Any]) -> None:
        names, d, tasks = model["feature_names"], model.pop("n_features"), model.pop("tasks")
        if d != len(self._array(tasks[0]["importances"])):
            raise ValueError("n_features does not fit the importances")
        self._place.budget.spend(_COLUMN_BYTES * (d if names is None else len(names["objects"])))
        labels = [f"x{j}" for j in range(d)] if names is None else names["objects"]
        model["columns"] = [{"label": label, "levels": None} for label in labels]
        model["form"] = "single" if model.pop("is_single") else "pairs"
        model["task_column"] = None
        for name in tasks[0]:
            is_renamed = name in ("features", "importances", "classes")
            model[f"task_{name}" if is_renamed else name] = [task[name] for task in tasks]


def _components(
    shares: Any, mix: Any, n_cells: NDArray, n_rounds: int
) -> dict[str, tuple[float, str]]:
    """Return weights and descriptions of the components of a model of format 1, by name."""
    joint = _joint_text(n_cells)
    leaf_values = "the leaf values of the model that made the partitions"
    if mix is not None:
        return {"joint": (mix["joint"], joint), "leaf_values": (mix["own"], leaf_values)}
    if shares is None:
        return {"joint": (1.0, joint)}
    if n_cells.sum() == 1:  # what was solved is no part of the model
        return {"staged_boosting": (1.0, f"boosted trees, {n_rounds} rounds")}
    linear = f"a global linear model with strength {shares['strength']:.3g}"
    parts = {"joint": (shares["joint"], joint), "linear": (shares["linear"], linear)}
    boosted = {
        "boosted": "boosted trees",
        "randomized_boosted": "boosted trees with random thresholds",
    }
    if shares["boosted"]:
        for (name, text), weight in zip(boosted.items(), shares["boosted"], strict=False):
            parts[name] = weight, text
        return parts
    parts["leaf_values"] = shares["own"], leaf_values
    if "levels" in shares:
        strength = f"strength {shares['levels_strength']:.3g}"
        text = f"a linear model with a constant for every category, {strength}"
        parts["categories"] = shares["levels"], text
    return parts


def _joint_text(n_cells: NDArray) -> str:
    return f"joint fit of {len(n_cells):,} partitions with {int(n_cells.sum()):,} cells"
