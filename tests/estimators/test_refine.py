"""refine(model, X, y): the one-line upgrade of an ensemble that is trained already."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GridSearchCV

from jointleaf import Frobenius, JOPLEnRegressor, refine
from jointleaf.partitions import NO_CELL

X, Y = make_friedman1(120, n_features=6, noise=0.5, random_state=0)
LABELS = {
    "regression": Y,
    "binary": np.where(np.median(Y) < Y, "yes", "no"),
    "multiclass": np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])),
}
RIDGE = Frobenius(0.01)


def sklearn_model(regressor, classifier):
    def train(task):
        kind = regressor if task == "regression" else classifier
        return kind(n_estimators=6, max_leaf_nodes=5, random_state=0).fit(X, LABELS[task])

    return train


def lightgbm_model(task):
    kind = lightgbm.LGBMRegressor if task == "regression" else lightgbm.LGBMClassifier
    return kind(n_estimators=6, num_leaves=5, n_jobs=1, verbose=-1).fit(X, LABELS[task])


def booster(task):
    objectives = {"regression": "regression", "binary": "binary", "multiclass": "multiclass"}
    params = {"objective": objectives[task], "num_leaves": 5, "num_threads": 1, "verbosity": -1}
    if task == "multiclass":
        params["num_class"] = 3
    numbers = np.unique(LABELS[task], return_inverse=True)[1]
    label = Y if task == "regression" else numbers
    return lightgbm.train(params, lightgbm.Dataset(X, label=label), 6)


MODELS = {
    "random_forest": sklearn_model(RandomForestRegressor, RandomForestClassifier),
    "extra_trees": sklearn_model(ExtraTreesRegressor, ExtraTreesClassifier),
    "gradient_boosting": sklearn_model(GradientBoostingRegressor, GradientBoostingClassifier),
    "lightgbm": lightgbm_model,
    "booster": booster,
}


def leaves(model):
    """Leaf ids (n, P) as the library itself gives them."""
    if isinstance(model, lightgbm.Booster):
        return model.predict(X, pred_leaf=True)
    if isinstance(model, lightgbm.LGBMModel):
        return model.predict(X, pred_leaf=True)
    return np.asarray(model.apply(X)).reshape(len(X), -1)


@pytest.mark.parametrize("data", ["diabetes", "friedman"])
def test_a_small_forest_gets_better(data):
    if data == "diabetes":
        rows, y = load_diabetes(return_X_y=True)
    else:
        rows, y = make_friedman1(400, noise=0.5, random_state=1)
    train, test = slice(0, 200), slice(200, None)
    forest = RandomForestRegressor(40, max_leaf_nodes=6, random_state=0).fit(rows[train], y[train])
    refined = refine(forest, rows[train], y[train], random_state=0)
    before, after = (mean_squared_error(y[test], m.predict(rows[test])) for m in (forest, refined))
    assert after < before
    if data == "friedman":
        assert after < 0.7 * before


def test_parameters_and_weights_pass_through():
    forest = MODELS["random_forest"]("regression")
    weights = np.linspace(0, 2, len(Y))
    given = {"penalty": RIDGE, "cells": "constant", "root_cell": False, "solver": "pcg"}
    refined = refine(forest, X, Y, weights, **given, n_jobs=1, random_state=3)
    assert refined.get_params(deep=False) | given == refined.get_params(deep=False)
    assert refined.solution_.solver == "pcg"
    assert refined.apply(X).shape[1] == 6
    assert not refined.coef_.any()
    same = JOPLEnRegressor(forest, **given).fit(X, Y, weights)
    np.testing.assert_allclose(same.predict(X), refined.predict(X))
    unweighted = refine(forest, X, Y, **given)
    assert not np.allclose(unweighted.predict(X), refined.predict(X))
    with pytest.raises(TypeError, match="learning_rate"):
        refine(forest, X, Y, learning_rate=0.1)


def test_the_choice_of_the_penalty_does_not_see_the_trained_trees():
    # A forest of pure leaves has seen every target: validated on its own trees a weak penalty
    # would look perfect; grown anew inside the folds the loss is that of new rows.
    rng = np.random.default_rng(0)
    noise = rng.normal(size=len(Y))
    forest = RandomForestRegressor(20, bootstrap=False, random_state=0).fit(X, noise)
    refined = refine(forest, X, noise, cv=3, random_state=0)
    assert (-refined.cv_results_["mean_test_score"]).min() > 0.4
    with pytest.raises(ValueError, match="not known"):
        refine(forest, X, noise, penalty="none")


def test_rows_in_leaves_without_training_rows_are_predicted():
    forest = RandomForestRegressor(10, random_state=0).fit(X, Y)
    refined = refine(forest, X[:20], Y[:20], penalty=RIDGE)
    assert (refined.apply(X) == NO_CELL).any()
    assert np.isfinite(refined.predict(X)).all()
    alone = refine(forest, X[:20], Y[:20], penalty=RIDGE, root_cell=False)
    lost = (alone.apply(X) == NO_CELL).all(axis=1)
    np.testing.assert_allclose(alone.predict(X)[lost], Y[:20].mean())


def test_other_labels_than_those_of_the_model():
    forest = MODELS["random_forest"]("binary")
    y = np.where(LABELS["binary"] == "yes", 7, 3)
    refined = refine(forest, X, y, cv=2)
    np.testing.assert_array_equal(refined.classes_, [3, 7])
    assert refined.score(X, y) > 0.8


def test_data_frames():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    for model in (
        RandomForestRegressor(6, random_state=0).fit(frame, Y),
        lightgbm.LGBMRegressor(n_estimators=6, n_jobs=1, verbose=-1).fit(frame, Y),
    ):
        refined = refine(model, frame, Y, penalty=RIDGE)
        np.testing.assert_array_equal(refined.feature_names_in_, list("abcdef"))
        np.testing.assert_allclose(
            refined.predict(frame), refine(model, X, Y, penalty=RIDGE).predict(X)
        )
        with pytest.raises(ValueError, match="same columns in the same order"):
            refine(model, frame[list("bacdef")], Y)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(),
        ExtraTreesClassifier(),
        GradientBoostingRegressor(),
        lightgbm.LGBMRegressor(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_an_unfitted_model_is_rejected(model):
    with pytest.raises(NotFittedError, match=rf"{type(model).__name__} that is not fitted"):
        refine(model, X, Y)


@pytest.mark.parametrize(
    "model",
    [
        None,
        "lightgbm",
        LinearRegression().fit(X, Y),
        AdaBoostRegressor(n_estimators=2).fit(X, Y),
    ],
    ids=["None", "str", "LinearRegression", "AdaBoost"],
)
def test_another_kind_of_model_is_rejected(model):
    with pytest.raises(TypeError, match=r"model is of type .* RandomForestRegressor"):
        refine(model, X, Y)


def test_a_class_and_a_search_are_rejected_with_what_to_give():
    with pytest.raises(TypeError, match="the class RandomForestRegressor itself: use a fitted"):
        refine(RandomForestRegressor, X, Y)
    search = GridSearchCV(RandomForestRegressor(2), {"max_depth": [2]}, cv=2).fit(X, Y)
    with pytest.raises(TypeError, match=r"GridSearchCV, a search: .* model.best_estimator_"):
        refine(search, X, Y)


@pytest.mark.parametrize("library", MODELS)
def test_another_number_of_columns_is_rejected(library):
    model = MODELS[library]("regression")
    with pytest.raises(ValueError, match=r"X has 4 features, but the .* was fitted on 6"):
        refine(model, X[:, :4], Y)


def test_a_target_of_another_kind_is_rejected():
    with pytest.raises(ValueError, match="continuous"):
        refine(MODELS["random_forest"]("binary"), X, Y)
    with pytest.raises(ValueError, match="use a model fitted for regression"):
        JOPLEnRegressor(MODELS["random_forest"]("binary")).fit(X, Y)


def test_a_refined_model_can_be_cloned_and_searched():
    X, y = load_diabetes(return_X_y=True)
    forest = RandomForestRegressor(10, max_leaf_nodes=4, random_state=0).fit(X, y)
    refined = refine(forest, X, y, penalty=Frobenius(0.1))
    again = clone(refined).fit(X, y)
    assert again.partitioner is forest
    np.testing.assert_array_equal(again.predict(X), refined.predict(X))


def test_refine_chooses_on_validation_rows():
    X, y = load_diabetes(return_X_y=True)
    forest = RandomForestRegressor(10, max_leaf_nodes=4, random_state=0).fit(X[:300], y[:300])
    refined = refine(forest, X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    folds = refine(forest, X[:300], y[:300])
    assert (-refined.cv_results_["mean_test_score"]).min() != (
        -folds.cv_results_["mean_test_score"]
    ).min()
