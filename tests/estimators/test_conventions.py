"""The estimators as members of scikit-learn: forms of input, parameters, copies, pipelines."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from choices import cv_for
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf.partitions import LightGBMPartitioner, RandomTreesPartitioner, RootCell

X, Y = make_friedman1(120, n_features=6, noise=0.5, random_state=0)
BINARY = np.where(np.median(Y) < Y, "yes", "no")
THREE = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10
SMALL = LightGBMPartitioner(12, 4)
RIDGE = Frobenius(0.01)


def raw(model, X):
    """Predictions on the scale of the loss."""
    return getattr(model, "decision_function", model.predict)(X)


# -- forms of input ----------------------------------------------------------------------------


def test_lists_fortran_order_and_read_only_arrays():
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0)
    weights = np.linspace(1, 2, len(Y))
    expected = model.fit(X, Y, weights).predict(X)
    rows, targets = X.copy(), Y.copy()
    rows.flags.writeable = targets.flags.writeable = False
    for given in [
        (X.tolist(), Y.tolist(), weights.tolist()),
        (np.asfortranarray(X), Y, weights),
        (rows, targets, weights),
        (np.repeat(X, 2, axis=0)[::2], np.repeat(Y, 2)[::2], weights),
    ]:
        np.testing.assert_array_equal(model.fit(*given).predict(given[0]), expected)
    assert np.array_equal(rows, X)


def test_float32_keeps_targets_far_from_zero():
    single = X.astype(np.float32)
    model = JOPLEnRegressor(RandomTreesPartitioner(5, 4), penalty=Frobenius(0.1), random_state=0)
    near, far = (model.fit(single, Y + shift).predict(single) for shift in (0, 1e8))
    assert near.dtype == far.dtype == np.float64
    np.testing.assert_allclose(far - 1e8, near, atol=1e-3)


def test_float32_gives_close_predictions():
    single = X.astype(np.float32)
    double = single.astype(float)
    for solver, estimator, y in [
        ("dual", JOPLEnRegressor, Y),
        ("pcg", JOPLEnRegressor, Y),
        ("newton", JOPLEnClassifier, THREE),
    ]:
        model = estimator(SMALL, penalty=RIDGE, solver=solver, tol=1e-5, random_state=0)
        expected = raw(model.fit(double, y), double)
        found = raw(model.fit(single, y), single)
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.ptp(expected))


def test_integer_and_boolean_features_are_numbers():
    for form in ((10 * X).astype(int), X > 0.5):
        model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0)
        expected = model.fit(form.astype(float), Y).predict(form.astype(float))
        np.testing.assert_array_equal(model.fit(form, Y).predict(form), expected)


@pytest.mark.parametrize(
    "labels",
    [("no", "yes"), (False, True), (-5, 7), (0.0, 2.0), ("a", "b", "c"), (3, 1, 2)],
    ids=str,
)
def test_labels_of_any_kind(labels):
    numbers = np.unique(BINARY if len(labels) == 2 else THREE, return_inverse=True)[1]
    y = np.array(labels)[numbers]
    model = JOPLEnClassifier(SMALL, penalty=RIDGE, random_state=0).fit(X, y)
    found = model.predict(X)
    assert found.dtype == y.dtype
    assert np.mean(found == y) > 0.95


def test_data_frames_and_their_names():
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0)
    expected = model.fit(X, Y).predict(X)
    assert not hasattr(model, "feature_names_in_")
    model.fit(frame, pd.Series(Y), pd.Series(np.ones(len(Y))))
    np.testing.assert_array_equal(model.feature_names_in_, list("abcdef"))
    assert model.n_features_in_ == 6
    np.testing.assert_array_equal(model.predict(frame), expected)
    for other in (frame[list("bacdef")], frame.rename(columns={"a": "z"})):
        for method in (model.predict, model.apply):
            with pytest.raises(ValueError, match="feature names should match"):
                method(other)
    with pytest.raises(ValueError, match="feature names should match"):
        JOPLEnRegressor(SMALL).fit(frame, Y, X_val=frame[list("bacdef")], y_val=Y)


# -- use by scikit-learn -----------------------------------------------------------------------


def test_parameters_and_clone():
    model = JOPLEnRegressor(SMALL, penalty=Frobenius(0.5, 0.1), cells="constant")
    params = model.get_params()
    assert params["partitioner__n_cells"] == 4
    assert params["cells"] == "constant"
    model.set_params(partitioner__n_cells=3, root_cell=False)
    copy = clone(model.fit(X, Y))
    assert not hasattr(copy, "coef_")
    assert copy.partitioner is not model.partitioner
    assert copy.partitioner.n_cells == 3
    assert copy.penalty.bias_strength == 0.1
    np.testing.assert_array_equal(
        copy.set_params(random_state=1).fit(X, Y).predict(X),
        model.set_params(random_state=1).fit(X, Y).predict(X),
    )
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(learning_rate=0.1)


def test_grid_search_over_strengths():
    strengths = [1e-2, 1e4]
    grid = {"penalty": [Frobenius(s) for s in strengths], "partitioner__n_cells": [2, 4]}
    search = GridSearchCV(JOPLEnRegressor(SMALL, random_state=0), grid, cv=3).fit(X, Y)
    assert search.best_params_["penalty"].strength == 1e-2
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 4
    assert np.isfinite(scores).all()
    assert search.best_score_ > 0.5


def test_pipeline_and_cross_val_score():
    model = JOPLEnClassifier(SMALL, penalty=RIDGE, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
    iris = load_iris(as_frame=True)
    scores = cross_val_score(pipeline, iris.data, iris.target, cv=3)
    assert scores.min() > 0.85
    pipeline.fit(iris.data, iris.target)
    assert list(pipeline[-1].feature_names_in_) == list(iris.data.columns)
    # Standardised inside anyway: a scaler before it changes rounding only.
    regression = JOPLEnRegressor(RootCell(), penalty=RIDGE)
    np.testing.assert_allclose(
        make_pipeline(StandardScaler(), regression).fit(X, Y).predict(X),
        regression.fit(X, Y).predict(X),
    )


@pytest.mark.parametrize(("penalty", "y"), [("auto", BINARY), (RIDGE, THREE)])
def test_pickle_and_joblib_keep_predictions(tmp_path, penalty, y):
    model = JOPLEnClassifier(SMALL, penalty=penalty, cv=cv_for(penalty, 2), random_state=0)
    model.fit(X, y)
    joblib.dump(model, tmp_path / "model")
    for loaded in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model")):
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(loaded.apply(X), model.apply(X))
        assert loaded.blend_ == model.blend_
        loaded.fit(X, y)


def test_training_rows_are_not_kept():
    sizes = []
    for n in (200, 2000):
        rows, targets = make_friedman1(n, random_state=0)
        model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0).fit(rows, targets)
        sizes.append(len(pickle.dumps(model)))
    assert sizes[1] < sizes[0] + 20_000


def test_an_unfitted_estimator_says_so():
    for model in (JOPLEnRegressor(), JOPLEnClassifier()):
        for method in (model.predict, model.apply):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                method(X)
    for method in (JOPLEnClassifier().predict_proba, JOPLEnClassifier().decision_function):
        with pytest.raises(NotFittedError):
            method(X)


def test_a_refit_forgets_the_fit_before():
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0)
    expected = model.fit(X[:60, :3], Y[:60]).predict(X[:, :3])
    model.fit(pd.DataFrame(X, columns=list("abcdef")), Y)
    model.fit(X[:60, :3], Y[:60])
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict(X[:, :3]), expected)


def test_many_rows_are_predicted_block_by_block(monkeypatch):
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0).fit(X, Y)
    expected = model.predict(X)
    monkeypatch.setattr("jointleaf._model.bulk_predict._LEAST_SHARE", 7)
    monkeypatch.setattr("jointleaf._model.bulk_predict._MOST_CODES", 7)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-13)
