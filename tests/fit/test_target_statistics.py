"""Models of columns with many categories: what statistics are worth, and that all stays true."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

import jointleaf
from blend_fits import small_fits, true_fits
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf.estimators._path import follow_strengths
from jointleaf.inspection import effect, local_model

N_CATEGORIES = 120


def make_table(n, seed=0, classes=0):
    rng = np.random.default_rng(seed)
    city, shop = (rng.integers(0, N_CATEGORIES, n) for _ in range(2))
    size = rng.standard_normal(n)
    effects = np.random.default_rng(100).standard_normal((3, N_CATEGORIES))
    target = 2 * effects[0][city] + effects[1][shop] + size + 0.5 * rng.standard_normal(n)
    X = pd.DataFrame({"city": [f"c{k}" for k in city], "size": size, "kind": "a"})
    X["shop"] = [f"s{k}" for k in shop]
    X.loc[::3, "kind"] = "b"
    X.loc[::50, "city"] = None
    return X, np.digitize(target, [-1, 1, 2][: classes - 1]) if classes else target


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """Where nothing depends on how good models are."""
    with small_fits():
        yield


@pytest.fixture(scope="module")
def regressor():
    with true_fits():
        return JOPLEnRegressor(random_state=0).fit(*make_table(1200))


@pytest.fixture(scope="module")
def two_classes():
    return JOPLEnClassifier(penalty=Frobenius(0.01), random_state=0).fit(
        *make_table(900, classes=2)
    )


@pytest.fixture(scope="module")
def three_classes():
    return JOPLEnClassifier(penalty=Frobenius(0.01), random_state=0).fit(
        *make_table(900, classes=3)
    )


KINDS = ["regressor", "two_classes", "three_classes"]


def raw_predictions(model, X):
    return model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)


def test_categories_with_few_rows_each_are_learned(regressor):
    X, y = make_table(2000, seed=1)
    assert regressor.score(X, y) > 0.85  # indicators of 120 categories had 0.79


@pytest.mark.parametrize("n", [1500, 6000])
def test_noise_in_many_categories_does_not_hurt(n):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"id": [f"i{k}" for k in rng.integers(0, n // 3, n + 2000)], "x": 0.0})
    X["x"] = rng.standard_normal(len(X))
    y = (rng.random(len(X)) < 0.3).astype(int)
    with true_fits():
        model = JOPLEnClassifier(random_state=0).fit(X[:n], y[:n])
    constant = np.full(2000, y[:n].mean())
    assert log_loss(y[n:], model.predict_proba(X[n:])) < 1.01 * log_loss(y[n:], constant)
    of_category, _ = model.explain(X[:n]).importances
    assert of_category < 0.1


def test_validation_loss_is_honest(regressor):
    """Cross-validation is not better than new rows are, though a little worse: with fewer rows."""
    X, y = make_table(4000, seed=1)
    error = np.mean((regressor.predict(X) - y) ** 2) / 2 / regressor.cell_model_.unit**2
    best = -np.max(regressor.cv_results_["mean_test_score"])
    assert 0.9 * error < best < 1.6 * error


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_pickles_predict_the_same(kind, request, tmp_path):
    model, (X, _) = request.getfixturevalue(kind), make_table(200, seed=2)
    X.loc[0, "city"], X.loc[1, "shop"] = "nowhere", None
    jointleaf.save(model, tmp_path / "model.jleaf")
    for copy in (jointleaf.load(tmp_path / "model.jleaf"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(raw_predictions(copy, X), raw_predictions(model, X))
        assert copy.n_features_in_ == model.n_features_in_ == 4
        np.testing.assert_array_equal(copy.explain(X).values, model.explain(X).values)


@pytest.mark.parametrize("kind", KINDS)
def test_explanations_are_of_the_given_columns(kind, request):
    model = request.getfixturevalue(kind)
    X, _ = make_table(300, seed=2)
    explanation, raw = model.explain(X), raw_predictions(model, X)
    assert explanation.feature_names == ("city", "size", "kind", "shop")
    assert explanation.values.shape[1] == 4
    np.testing.assert_allclose(explanation.prediction, raw, atol=1e-10)
    assert explanation.data[3, 0] == X["city"][3]
    importances = model.feature_importances_
    np.testing.assert_allclose(importances.sum(), 1.0)
    assert importances.argmax() == 0
    np.testing.assert_array_equal(model.slope_norms_.shape, 4)
    assert {0, 1, 3} <= set(model.selected_features_) <= {0, 1, 2, 3}
    assert set(model.split_features_) <= {0, 1, 2, 3}
    assert set(model.linear_feature_columns_) == {0, 1, 2, 3}
    assert len(model.linear_feature_names_) == len(model.linear_feature_columns_)


def test_baseline_is_the_mean_prediction_of_the_training_rows(regressor):
    X, _ = make_table(1200)
    explanation = regressor.explain(X)
    np.testing.assert_allclose(explanation.baseline, regressor.predict(X).mean())
    np.testing.assert_allclose(explanation.values.mean(axis=0), 0.0, atol=1e-10)


def test_effects_move_statistics_with_their_category(regressor):
    X, _ = make_table(40, seed=2)
    curve = effect(regressor, X, "city")
    moved = X.assign(city="c5")
    place = list(curve.grid).index("c5")
    np.testing.assert_allclose(curve.values[place], regressor.predict(moved).mean())
    assert len(local_model(regressor, X[:1]).names) == len(regressor.linear_feature_names_)


def test_pruning_sees_the_rows_of_the_fit():
    (X, y), (X_new, y_new) = make_table(1200), make_table(2000, seed=1)
    whole = JOPLEnRegressor(random_state=0).fit(X, y)
    pruned = jointleaf.prune(whole, X, y, n_cells=whole.solution_.layout.n_cells // 3)
    assert pruned.feature_importances_.shape == (4,)
    assert pruned.score(X_new, y_new) > whole.score(X_new, y_new) - 0.03
    explanation = pruned.explain(X_new)
    np.testing.assert_allclose(explanation.prediction, pruned.predict(X_new), atol=1e-10)


def test_paths_of_strengths_see_the_rows_of_the_fit():
    X, y = make_table(400)
    penalty = jointleaf.L21(0.001, bias_strength=0.01)
    model = JOPLEnRegressor(penalty=penalty, random_state=0).fit(X, y)
    (norms,) = follow_strengths(model, X, y, strengths=[0.001], tol=1e-5).feature_norms
    # The rows are dealt out to other parts, so that they are not quite the same.
    of_fit = model.cell_model_.slope_norms()
    np.testing.assert_allclose(norms, of_fit, atol=0.2 * of_fit.max())


def test_columns_left_out_of_linear_models_have_no_statistics():
    X, y = make_table(400)
    options = {"penalty": Frobenius(0.01), "random_state": 0}
    model = JOPLEnRegressor(linear_features=["city", "size"], **options).fit(X, y)
    assert model.columns_.statistics.replaced == [0]
    assert (
        JOPLEnRegressor(linear_features="numeric", **options).fit(X, y).columns_.statistics is None
    )
    assert JOPLEnRegressor("lightgbm", **options).fit(X, y).columns_.statistics is None


def test_order_of_rows_and_repeated_rows_make_no_difference():
    X, y = make_table(400)
    options = {"penalty": Frobenius(0.01), "random_state": 0}
    order = np.random.default_rng(0).permutation(400)
    weights = np.where(np.arange(400) < 100, 2.0, 1.0)
    first = JOPLEnRegressor(**options).fit(X, y, sample_weight=weights)
    twice = pd.concat([X.iloc[order], X[:100]])
    second = JOPLEnRegressor(**options).fit(twice, np.concatenate([y[order], y[:100]]))
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=1e-9)


def test_validation_rows_of_the_user():
    (X, y), (X_val, y_val) = make_table(600), make_table(300, seed=1)
    model = JOPLEnRegressor(random_state=0).fit(X, y, X_val=X_val, y_val=y_val)
    assert model.score(X_val, y_val) > 0.7
