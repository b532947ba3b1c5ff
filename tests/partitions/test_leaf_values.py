"""The values that the trees' own library gives to leaves: they add up to its raw predictions."""

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn import ensemble
from sklearn.linear_model import LinearRegression

from jointleaf._data.columns import Columns
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.routing import Router

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 4))
SIGNAL = X[:, 0] * X[:, 1] + X[:, 2] + 5
TARGETS = {
    "regression": SIGNAL,
    "binary": (SIGNAL > 4.6).astype(int),
    "multiclass": np.digitize(SIGNAL, [4.3, 5.6]),
}
QUIET = {"verbose": False, "allow_writing_files": False, "iterations": 9}


def sklearn_raw(model, rows):
    return model.predict(rows) if not hasattr(model, "classes_") else model.decision_function(rows)


def lightgbm_raw(model, rows):
    return model.predict(rows, raw_score=True)


def lightgbm_mean(model, rows):
    """LightGBM's raw score forgets that a forest averages its trees; its predictions do not."""
    return model.predict(rows, raw_score=True) / 9


def xgboost_raw(model, rows):
    return model.predict(rows, output_margin=True)


def catboost_raw(model, rows):
    return model.predict(rows, prediction_type="RawFormulaVal")


MODELS = {
    "gb": (ensemble, "GradientBoosting", {"n_estimators": 9}, sklearn_raw),
    "gb zero": (ensemble, "GradientBoosting", {"n_estimators": 9, "init": "zero"}, sklearn_raw),
    "hgb": (ensemble, "HistGradientBoosting", {"max_iter": 9}, sklearn_raw),
    "lgbm": (lightgbm, "LGBM", {"n_estimators": 9, "verbose": -1}, lightgbm_raw),
    "lgbm forest": (
        lightgbm,
        "LGBM",
        {
            "n_estimators": 9,
            "verbose": -1,
            "boosting_type": "rf",
            "bagging_freq": 1,
            "bagging_fraction": 0.5,
        },
        lightgbm_mean,
    ),
    "xgb": (xgboost, "XGB", {"n_estimators": 9}, xgboost_raw),
    "xgb dart": (
        xgboost,
        "XGB",
        {"n_estimators": 9, "booster": "dart", "rate_drop": 0.5},
        xgboost_raw,
    ),
    "xgb forest": (xgboost, "XGBRF", {"n_estimators": 9}, xgboost_raw),
    "catboost": (catboost, "CatBoost", QUIET, catboost_raw),
    "catboost lossguide": (
        catboost,
        "CatBoost",
        QUIET | {"grow_policy": "Lossguide"},
        catboost_raw,
    ),
}


def summed(model):
    """Leaf values added up over the trees, (n, K)."""
    trees = find_adapter(model).trees(model, Columns.numbers(4))
    leaves = Router(trees)(X)
    return trees.leaf_values[leaves + trees.leaf_starts[:-1]].sum(axis=1)


@pytest.mark.parametrize("task", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_leaf_values_add_up_to_raw_predictions(name, task):
    library, kind, params, raw = MODELS[name]
    suffix = "Regressor" if task == "regression" else "Classifier"
    model = getattr(library, kind + suffix)(**params).fit(X, TARGETS[task])
    native = np.asarray(raw(model, X), float).reshape(len(X), -1)
    found = summed(model)
    if task == "multiclass":  # what all classes have in common says nothing
        native = native - native.mean(axis=1, keepdims=True)
        found = found - found.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found, native, atol=2e-5)
    assert native.std() > 0.05


@pytest.mark.parametrize("kind", ["RandomForestRegressor", "ExtraTreesRegressor"])
def test_forests_average_their_trees(kind):
    model = getattr(ensemble, kind)(7, random_state=0).fit(X, SIGNAL)
    np.testing.assert_allclose(summed(model)[:, 0], model.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        ensemble.RandomForestClassifier(3).fit(X, TARGETS["binary"]),
        ensemble.RandomForestRegressor(3).fit(X, X[:, :2]),
        ensemble.GradientBoostingRegressor(n_estimators=3, init=LinearRegression()).fit(X, SIGNAL),
        lightgbm.LGBMRegressor(n_estimators=3, linear_tree=True, verbose=-1).fit(X, SIGNAL),
        xgboost.XGBRegressor(n_estimators=3, objective="count:poisson").fit(X, SIGNAL),
        catboost.CatBoostClassifier(**QUIET, class_names=[1, 0]).fit(X, TARGETS["binary"]),
    ],
    ids=["shares", "two outputs", "other start", "linear trees", "other scale", "turned classes"],
)
def test_where_values_do_not_add_up_there_are_none(model):
    assert find_adapter(model).trees(model, Columns.numbers(4)).leaf_values is None
