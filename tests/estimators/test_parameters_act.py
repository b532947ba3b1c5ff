"""Every parameter of every estimator acts, or is rejected with what to do."""

import inspect

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.model_selection import KFold

import jointleaf as jl
from blend_fits import small_fits
from jointleaf._core.solvers import base as solvers
from jointleaf.partitions import LightGBMPartitioner

X, Y = make_friedman1(240, n_features=5, noise=1.0, random_state=0)
X[::7, 2] = np.nan
X[:, 4] = np.round(3 * X[:, 4])
NEW = np.concatenate([X[:60] * 2, X[60:120]])
#: Another value of every parameter, and what it is rejected with where it has no effect.
VALUES = {
    "partitioner": LightGBMPartitioner(8, 4),
    "penalty": jl.Frobenius(0.5),
    "recipe": "blend",
    "cells": "constant",
    "root_cell": False,
    "clip": False,
    "categorical_features": [4],
    "linear_features": [0, 1],
    "add_indicator": True,
    "solver": "fista",
    "tol": 0.5,
    "max_iter": 1,
    "cv": KFold(2),
    "one_se": True,
    "n_jobs": 2,
    "device": "jax:cpu",
    "random_state": 1,
    "verbose": 1,
    "task_weights": [1.0, 0.3],
    "loss": "absolute_error",
    "quantile": 0.3,
    "power": 1.2,
    "time_budget": 1e-9,
    "class_weight": "balanced",  # tests/estimators/test_class_weight.py has where it acts
    "monotonic_cst": [1, 0, 0, 0, -1],
    "warm_start": True,  # tests/estimators/test_update.py has where it acts
}
#: The numbers of a model do not depend on these.
SAME_MODEL = {"n_jobs", "device"}
RECIPES = ["joint", "blend"]
#: Every parameter with every recipe; a given partitioner or penalty means the joint fit.
CASES = [
    (name, recipe)
    for name in VALUES
    for recipe in (RECIPES[:1] if name in ("partitioner", "penalty") else RECIPES)
    if name not in ("recipe", "task_weights", "class_weight", "warm_start")
]


def fit(model, capsys):
    """Return predictions, and what was printed."""
    capsys.readouterr()
    with small_fits():
        model.fit(X, Y)
    out, err = capsys.readouterr()
    return model.predict(NEW), out + err, model


@pytest.fixture(scope="module")
def usual():
    return {}


@pytest.fixture
def asked(monkeypatch):
    """Threads that LightGBM is asked for (it gets one beside other workers), and devices."""
    calls = {"threads": [], "devices": []}
    train, find_device = lightgbm.train, solvers.find_device

    def watch_train(params, *args, **options):
        calls["threads"].append(params["num_threads"])
        return train({**params, "num_threads": 1}, *args, **options)

    def watch_device(name):
        calls["devices"].append(name)
        return find_device(name)

    monkeypatch.setattr(lightgbm, "train", watch_train)
    monkeypatch.setattr(solvers, "find_device", watch_device)
    return calls


@pytest.mark.parametrize(("name", "recipe"), CASES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_parameter_acts_or_is_rejected(name, recipe, usual, asked, capsys):
    options = {} if name in ("partitioner", "penalty") else {"recipe": recipe}
    if name in ("tol", "max_iter"):
        options["solver"] = "pcg"  # the dual solver is direct
    if recipe == "joint" and name != "penalty":
        options["cv"] = 2  # five folds take longer
    base = jl.JOPLEnRegressor(random_state=0, **options)
    # On a device the joint problem is solved to its optimum, with few rows or many.
    known = clone(base).set_params(solver="pcg") if name == "device" else base
    key = recipe, known.solver
    if key not in usual:
        usual[key] = fit(clone(known).set_params(recipe=recipe), capsys)
    expected, printed, first = usual[key]
    model = clone(base).set_params(**{name: VALUES[name]})
    if name in ("quantile", "power"):  # tests/estimators/test_loss_parameter.py has where they act
        with pytest.raises(ValueError, match=rf"{name}=.* has no effect with loss='squared_error'"):
            model.fit(X, Y)
        return
    if name == "time_budget":
        if recipe != "blend":
            with pytest.raises(ValueError, match="time_budget=1e-09 chooses among the components"):
                model.fit(X, Y)
            return
        with pytest.warns(UserWarning, match="too short for any component"):
            assert not np.allclose(model.fit(X, Y).predict(NEW), expected, rtol=1e-6, atol=0)
        return
    for calls in asked.values():
        calls.clear()
    found, text, fitted = fit(model, capsys)
    assert max(asked["threads"]) == (2 if name == "n_jobs" else 1)
    assert set(asked["devices"]) == ({"jax:cpu"} if name == "device" else set())
    if name == "verbose":
        assert len(text) > len(printed)
        np.testing.assert_array_equal(found, expected)
    elif name in SAME_MODEL:
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    elif name in ("solver", "tol", "max_iter"):
        assert _solve(fitted) != _solve(first)
    elif name == "one_se":
        strengths = [m.report_.joint.setting["strength"] for m in (fitted, first)]
        assert strengths[0] >= strengths[1]
        assert recipe != "joint" or strengths[0] > strengths[1]
    else:
        assert not np.allclose(found, expected, rtol=1e-6, atol=0)


def _solve(model):
    solution = model.solution_
    return solution.solver, solution.n_iter, solution.status, solution.optimality


def test_no_parameter_is_left_out():
    for estimator in (jl.JOPLEnRegressor, jl.JOPLEnClassifier, jl.MultiTaskJOPLEnRegressor):
        assert set(inspect.signature(estimator).parameters) <= set(VALUES)


@pytest.mark.parametrize(("name", "value"), [("cv", 3), ("one_se", True)])
def test_what_chooses_is_rejected_where_nothing_is_left_to_choose(name, value):
    model = jl.JOPLEnRegressor(penalty=jl.Frobenius(0.1)).set_params(**{name: value})
    with pytest.raises(ValueError, match=rf"{name}=.* has no effect with penalty=Frobenius"):
        model.fit(X, Y)


@pytest.mark.parametrize("name", ["linear_features", "add_indicator"])
def test_what_shapes_slopes_is_rejected_for_constant_cells(name):
    model = jl.JOPLEnRegressor(cells="constant").set_params(**{name: VALUES[name]})
    with pytest.raises(ValueError, match=rf"{name}=.* has no effect with cells='constant'"):
        model.fit(X, Y)


@pytest.mark.parametrize("options", [{"partitioner": "voronoi"}, {"penalty": jl.L21(0.1)}], ids=str)
def test_the_blend_chooses_partitions_and_penalty(options):
    with pytest.raises(ValueError, match="recipe='blend' chooses partitions and penalty"):
        jl.JOPLEnRegressor(recipe="blend", **options).fit(X, Y)


@pytest.mark.parametrize("value", ["small", "boosting", None, 3])
def test_unknown_recipes(value):
    with pytest.raises(ValueError, match=r"recipe=.* is not known: use 'auto', 'joint', 'blend'"):
        jl.JOPLEnRegressor(recipe=value).fit(X, Y)
