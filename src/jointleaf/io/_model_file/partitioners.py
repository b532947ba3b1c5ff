"""Partitioners: the class, from a fixed list, its parameters, and the fitted partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from jointleaf.io._model_file.errors import ModelFileError
from jointleaf.io._model_file.features import read_features, write_features
from jointleaf.io._model_file.fields import Arrays, Part
from jointleaf.io._model_file.penalties import knows_penalty, read_penalty, write_penalty
from jointleaf.io._model_file.trees import read_trees, write_trees
from jointleaf.io._model_file.values import MOST_DEPTH, read_plain, write_plain
from jointleaf.multitask._bouts.partitioner import BoUTSPartitioner
from jointleaf.partitions import (
    CatBoostPartitioner,
    ExtraTreesPartitioner,
    FittedEnsemble,
    GradientBoostingPartitioner,
    HistGradientBoostingPartitioner,
    LevelsPartitioner,
    LightGBMPartitioner,
    LinearForestPartitioner,
    Partitioner,
    RandomForestPartitioner,
    RandomTreesPartitioner,
    RegrownEnsemble,
    ResidualPartitioner,
    RootCell,
    StepPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
    XGBoostPartitioner,
)
from jointleaf.partitions._cells import TreeCells
from jointleaf.partitions._fitted import LeftOut

__all__ = [
    "check_jobs",
    "knows_partitioner",
    "read_parameters",
    "read_partitioner",
    "write_parameters",
    "write_partitioner",
]

_CLASSES: dict[str, type[Partitioner]] = {
    cls.__name__: cls
    for cls in (
        BoUTSPartitioner,
        CatBoostPartitioner,
        ExtraTreesPartitioner,
        FittedEnsemble,
        GradientBoostingPartitioner,
        HistGradientBoostingPartitioner,
        LevelsPartitioner,
        LightGBMPartitioner,
        LinearForestPartitioner,
        RandomForestPartitioner,
        RandomTreesPartitioner,
        RegrownEnsemble,
        ResidualPartitioner,
        RootCell,
        StepPartitioner,
        UnionPartitioner,
        VoronoiPartitioner,
        XGBoostPartitioner,
    )
}
_MOST_JOBS = 2**16
_RANDOM_WORDS = 624  # of the state of a RandomState


def knows_partitioner(value: Any) -> bool:
    """Whether a partitioner is of a class that can be saved."""
    return _CLASSES.get(type(value).__name__) is type(value)


# -- parameters ----------------------------------------------------------------------------------


def write_parameters(owner: Any, arrays: Arrays, depth: int = 0) -> dict[str, Any]:
    """Give JSON for the parameters of an estimator or a partitioner.

    Partitioners, penalties and random states are saved as what they are; of anything else that is
    not plain, such as a trained model or a splitter, only the name of its class.
    """

    def other(value: Any) -> Any:
        if knows_partitioner(value):
            return {"partitioner": _write_unfitted(value, arrays, depth + 1)}
        if knows_penalty(value):
            return {"penalty": write_penalty(value, arrays)}
        if type(value) is np.random.RandomState:
            return {"random_state": _write_random(value, arrays)}
        return {"left_out": type(value).__name__}

    found = {}
    for name, value in owner.get_params(deep=False).items():
        try:
            found[name] = write_plain(value, arrays, other)
        except ModelFileError:
            found[name] = {"left_out": type(value).__name__}
    return found


def read_parameters(part: Part, cls: Any, depth: int = 0) -> dict[str, Any]:
    """Read parameters of a class; those that a file lacks have their default."""

    def other(kind: str, content: Any, path: str) -> Any:
        own = Part(content, part.arrays, path)
        if kind == "partitioner":
            return _read_unfitted(own, depth + 1)
        return read_penalty(own) if kind == "penalty" else _read_random(own)

    names = [name for name in cls._get_param_names() if name in part]
    found = {name: read_plain(part, name, other) for name in names}
    part.close()
    if "n_jobs" in found:
        check_jobs(part, found["n_jobs"])
    if found.get("categorical_features", "from_dtype") is None:  # as older files have it
        found["categorical_features"] = "from_dtype"
    return found


def check_jobs(part: Part, n_jobs: Any) -> None:
    """Refuse a number of threads with which a model could not predict."""
    if n_jobs is None:
        return
    is_whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if not is_whole or n_jobs == 0 or abs(int(n_jobs)) > _MOST_JOBS:
        part.fail("must be null or a number of threads", "n_jobs")


def _write_random(state: np.random.RandomState, arrays: Arrays) -> dict[str, Any]:
    found: Any = state.get_state(legacy=False)
    return {
        "generator": found["bit_generator"],
        "key": arrays.add(found["state"]["key"]),
        "pos": int(found["state"]["pos"]),
        "has_gauss": int(found["has_gauss"]),
        "gauss": float(found["gauss"]),
    }


def _read_random(part: Part) -> np.random.RandomState:
    found = {
        "bit_generator": part.choice("generator", ("MT19937",)),
        "state": {
            "key": part.array("key", "u4", (_RANDOM_WORDS,)),
            "pos": part.integer("pos", 0, _RANDOM_WORDS),
        },
        "has_gauss": part.integer("has_gauss", 0, 1),
        "gauss": part.number("gauss"),
    }
    part.close()
    state = np.random.RandomState()
    state.set_state(found)
    return state


# -- partitioners --------------------------------------------------------------------------------


def write_partitioner(partitioner: Partitioner, arrays: Arrays, depth: int = 0) -> dict[str, Any]:
    """Give JSON for a fitted partitioner."""
    if not knows_partitioner(partitioner):
        raise ModelFileError(
            f"{type(partitioner).__name__} is no partitioner of jointleaf, and model files hold "
            "these alone: use pickle for files that only you read"
        )
    if depth > MOST_DEPTH:
        raise ModelFileError("partitioners are nested too deeply to be saved")
    return {
        **_write_unfitted(partitioner, arrays, depth),
        "fitted": _write_fitted(partitioner, arrays, depth + 1),
    }


def _write_unfitted(partitioner: Partitioner, arrays: Arrays, depth: int) -> dict[str, Any]:
    """Give JSON for what a partitioner was made with."""
    return {
        "class": type(partitioner).__name__,
        "parameters": write_parameters(partitioner, arrays, depth),
    }


def _write_fitted(partitioner: Any, arrays: Arrays, depth: int) -> dict[str, Any]:
    if isinstance(partitioner, RootCell):
        return {}
    if isinstance(partitioner, UnionPartitioner):
        own = partitioner.partitioners_
        return {"partitioners": [write_partitioner(p, arrays, depth) for p in own]}
    if isinstance(partitioner, ResidualPartitioner):
        return {"partitioner": write_partitioner(partitioner.partitioner_, arrays, depth)}
    if isinstance(partitioner, VoronoiPartitioner):
        features = write_features(partitioner.features_, arrays)
        return {"features": features, "centres": arrays.add(partitioner.centres_)}
    data: dict[str, Any] = {
        "trees": write_trees(partitioner.trees_, arrays),
        "split_gains": arrays.add(partitioner.split_gains_),
    }
    if isinstance(partitioner, BoUTSPartitioner):
        data["n_universal_trees"] = int(partitioner.n_universal_trees_)
        data["universal_features"] = arrays.add(partitioner.universal_features_)
        data["task_features"] = arrays.add(partitioner.task_features_)
    return data


def read_partitioner(part: Part, n_features: int, depth: int = 0) -> Partitioner:
    """Read a partitioner that is fitted on rows of n_features columns."""
    fitted = part.child("fitted")
    partitioner = _read_unfitted(part, depth)
    _read_fitted(fitted, partitioner, n_features, depth + 1)
    fitted.close()
    return partitioner


def _read_unfitted(part: Part, depth: int) -> Any:
    if depth > MOST_DEPTH:
        part.fail("is nested too deeply")
    cls = _CLASSES[part.choice("class", tuple(_CLASSES))]
    parameters = read_parameters(part.child("parameters"), cls, depth)
    part.close()
    try:
        partitioner = cls(**parameters)
    except TypeError as cause:  # one that has no default is missing
        part.fail(f"cannot be made: {cause}")
    _check_members(part, partitioner)
    return partitioner


def _check_members(part: Part, partitioner: Any) -> None:
    """Refuse parameters that are no partitioners where these must be some."""
    if isinstance(partitioner, UnionPartitioner):
        members = partitioner.partitioners
        if not isinstance(members, list | tuple) or not members:
            part.fail("must be a list of partitioners", "parameters.partitioners")
    elif isinstance(partitioner, ResidualPartitioner):
        members = [partitioner.partitioner]
    else:
        return
    if not all(isinstance(member, Partitioner | LeftOut) for member in members):
        part.fail("holds something that is no partitioner", "parameters")


def _read_fitted(part: Part, partitioner: Any, d: int, depth: int) -> None:
    if isinstance(partitioner, RootCell):
        partitioner.n_features_in_ = d
        partitioner.n_cells_ = np.ones(1, dtype=np.intp)
        partitioner.split_gains_ = np.ones(d)
    elif isinstance(partitioner, UnionPartitioner):
        members = [read_partitioner(own, d, depth) for own in part.children("partitioners")]
        if not members:
            part.fail("is empty", "partitioners")
        partitioner._set_members(members)
    elif isinstance(partitioner, ResidualPartitioner):
        partitioner._set(read_partitioner(part.child("partitioner"), d, depth))
    elif isinstance(partitioner, VoronoiPartitioner):
        _read_voronoi(part, partitioner, d)
    elif isinstance(partitioner, TreeCells):
        _read_tree_cells(part, partitioner, d)


def _read_voronoi(part: Part, partitioner: VoronoiPartitioner, d: int) -> None:
    features = read_features(part.child("features"), None, d)
    m = len(features.plan.names)
    centres = part.array("centres", "f8", (None, None, m), finite=True)
    if not centres.shape[0] or not centres.shape[1]:
        part.fail("is empty", "centres")
    partitioner.features_ = features
    partitioner.centres_ = centres
    partitioner.n_features_in_ = d
    partitioner.n_cells_ = np.full(centres.shape[0], centres.shape[1], dtype=np.intp)
    partitioner.split_gains_ = np.ones(d)


def _read_tree_cells(part: Part, partitioner: TreeCells, d: int) -> None:
    gains = part.array("split_gains", "f8", (d,), finite=True)
    if (gains < 0).any():
        part.fail("must not be negative", "split_gains")
    partitioner._set_trees(read_trees(part.child("trees"), d))
    partitioner.n_features_in_ = d
    partitioner.split_gains_ = gains
    if isinstance(partitioner, BoUTSPartitioner):
        n_trees = partitioner.trees_.n_trees
        partitioner.n_universal_trees_ = part.integer("n_universal_trees", 0, n_trees)
        partitioner.universal_features_ = part.indices("universal_features", d, rising=True)
        partitioner.task_features_ = part.indices("task_features", d, rising=True)
