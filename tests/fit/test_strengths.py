"""Strengths chosen by honest cross-validation, and what a fit says about features."""

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import KFold

from jointleaf import (
    L1,
    L21,
    Frobenius,
    GrOWL,
    JOPLEnClassifier,
    JOPLEnRegressor,
    KyFan,
    Laplacian,
    Nuclear,
    refine,
)
from jointleaf.partitions import (
    GradientBoostingPartitioner,
    LightGBMPartitioner,
    VoronoiPartitioner,
)

VORONOI = VoronoiPartitioner(10, 4, random_state=0)


@pytest.fixture(scope="module")
def data():
    """Three of fifteen features matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 15))
    y = 2 * X[:, 1] + np.sin(2 * X[:, 4]) + np.exp(0.5 * X[:, 9]) + 0.5 * rng.standard_normal(240)
    return X, y


@pytest.mark.parametrize(
    "penalty",
    [L21("auto"), L1("auto", 0.1), L21("auto") + Frobenius(0.01), L1("auto") + L21("auto")],
    ids=repr,
)
def test_the_features_that_matter_are_selected(data, penalty):
    X, y = data
    model = JOPLEnRegressor(VORONOI, penalty=penalty, random_state=0, cv=3).fit(X, y)
    assert {1, 4, 9} <= set(model.selected_features_)
    assert len(model.selected_features_) <= 5
    assert not model.penalty_.is_auto
    assert not model.penalty_.is_bias_auto
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize(
    "penalty", [Nuclear("auto"), Frobenius("auto"), GrOWL("auto"), KyFan("auto", 2)], ids=repr
)
def test_other_penalties_choose_too(data, penalty):
    X, y = data
    model = JOPLEnRegressor(VORONOI, penalty=penalty, random_state=0, cv=2).fit(X, y)
    assert model.score(X, y) > 0.7
    table = model.cv_results_
    on_path = table["on_path"]
    best = np.nanargmax(np.where(on_path, table["mean_test_score"], -np.inf))
    if not isinstance(penalty, GrOWL):  # features vanish: the one-standard-error rule
        assert model.penalty_.strength == table["param_strength"][best]


@pytest.mark.parametrize(
    "penalty", [L21("auto", 0.1), L21("auto", 0.1) + Laplacian(0.1)], ids=["alone", "laplacian"]
)
def test_losses_are_those_of_models_fitted_without_the_validation_rows(data, penalty):
    X, y = data
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    # Trees that do not depend on the order of rows.
    options = {"subsample": 1.0, "max_features": None}
    trees = GradientBoostingPartitioner(10, 4, random_state=0, options=options)
    model = JOPLEnRegressor(trees, penalty=penalty, one_se=False, cv=splits).fit(X, y)
    losses = []
    for train, valid in splits:
        fold = (
            clone(model)
            .set_params(penalty=model.penalty_, cv=None, one_se="auto")
            .fit(X[train], y[train])
        )
        losses.append(0.5 * np.mean((fold.predict(X[valid]) - y[valid]) ** 2) / y.var())
    table = model.cv_results_
    k = np.flatnonzero(table["param_strength"] == model.penalty_.terms[0].strength)[0]
    assert table["rank_test_score"][k] == 1
    assert table["mean_test_score"][k] == table["mean_test_score"].max()
    assert -table["mean_test_score"][k] == pytest.approx(np.mean(losses), rel=2e-3)


def test_one_standard_error_takes_the_strongest_that_is_good_enough(data):
    X, y = data
    fits = {
        rule: JOPLEnRegressor(VORONOI, penalty=L21("auto", 0.1), one_se=rule, cv=3).fit(X, y)
        for rule in (False, True, "auto")
    }
    table = fits[False].cv_results_
    best = np.argmax(table["mean_test_score"])
    limit = table["mean_test_score"][best] - table["se_test_score"][best]
    assert fits[False].penalty_.strength == table["param_strength"][best]
    expected = table["param_strength"][table["mean_test_score"] >= limit].max()
    assert fits[True].penalty_.strength == expected == fits["auto"].penalty_.strength
    assert len(fits[True].selected_features_) < len(fits[False].selected_features_)


def test_one_standard_error_with_the_default_penalty(data):
    X, y = data
    plain = JOPLEnRegressor(LightGBMPartitioner(10, 4), random_state=0, cv=3).fit(X, y)
    cautious = clone(plain).set_params(one_se=True).fit(X, y)
    chosen, expected = (dict(m.report_.joint.setting) for m in (cautious, plain))
    assert chosen.pop("strength") > expected.pop("strength")
    assert chosen == expected


def test_classification_selects_features_for_all_classes(data):
    X, y = data
    for target in (y > 1, np.digitize(y, [0, 2])):
        model = JOPLEnClassifier(VORONOI, penalty=L21("auto"), random_state=0, cv=2).fit(X, target)
        assert {1, 9} <= set(model.selected_features_)
        assert len(model.selected_features_) < 12
        np.testing.assert_array_equal(np.flatnonzero(model.slope_norms_), model.selected_features_)
        assert model.slope_norms_.shape == (15,)


def test_select_from_model(data):
    X, y = data
    model = JOPLEnRegressor(VORONOI, penalty=L21("auto"), random_state=0, cv=2)
    selector = SelectFromModel(model, importance_getter="slope_norms_", threshold=1e-10)
    kept = selector.fit_transform(X, y)
    selected = selector.estimator_.selected_features_
    np.testing.assert_array_equal(selector.get_support(indices=True), selected)
    np.testing.assert_array_equal(kept, X[:, selected])
    SelectFromModel(model).fit(X, y)  # with coef_, as scikit-learn does by itself


def test_split_features_are_those_of_the_trees(data):
    X, y = data
    forest = RandomForestRegressor(5, max_leaf_nodes=4, random_state=0).fit(X, y)
    model = JOPLEnRegressor(forest, penalty=L21(0.1, 0.1), random_state=0).fit(X, y)
    used = {int(j) for tree in forest.estimators_ for j in tree.tree_.feature if j >= 0}
    assert set(model.split_features_) == used < set(range(15))
    trained = LGBMRegressor(n_estimators=5, num_leaves=4, verbose=-1).fit(X, y)
    boosted = JOPLEnRegressor(trained, penalty=Frobenius(0.1)).fit(X, y)
    counts = trained.booster_.feature_importance("split")
    np.testing.assert_array_equal(boosted.split_features_, np.flatnonzero(counts))
    voronoi = JOPLEnRegressor(VORONOI, penalty=Frobenius(0.1)).fit(X, y)
    np.testing.assert_array_equal(voronoi.split_features_, np.arange(15))
    np.testing.assert_array_equal(voronoi.selected_features_, np.arange(15))
    constant = JOPLEnRegressor(VORONOI, cells="constant", penalty=Frobenius(0.1)).fit(X, y)
    assert constant.selected_features_.size == 0


def test_validation_rows_choose_the_strength(data):
    X, y = data
    model = JOPLEnRegressor(VORONOI, penalty=L21("auto"), random_state=0)
    model.fit(X[:160], y[:160], X_val=X[160:], y_val=y[160:])
    assert {1, 4, 9} <= set(model.selected_features_)


def test_refine_with_a_chosen_strength(data):
    X, y = data
    booster = LGBMRegressor(n_estimators=10, num_leaves=4, verbose=-1).fit(X, y)
    model = refine(booster, X, y, penalty=L21("auto"), cv=2)
    assert 1 in model.selected_features_


def test_the_laplacian_smooths_an_estimator(data):
    X, y = data
    rough = JOPLEnRegressor(VORONOI, penalty=Frobenius(1e-3), random_state=0).fit(X, y)
    smooth = clone(rough).set_params(penalty=Frobenius(1e-3) + Laplacian(1.0)).fit(X, y)
    assert smooth.solution_.solver == "dual"
    assert np.var(smooth.predict(X)) < np.var(rough.predict(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": GrOWL(0.1, [1.0, 0.5])}, "weights of GrOWL has 2 entries.* 15 features"),
        ({"penalty": KyFan("auto", 20)}, "k=20 is more than the 15 features"),
        ({"penalty": L21("auto"), "one_se": "maybe"}, "one_se='maybe' must be True, False or"),
        ({"penalty": L21("auto"), "cells": "constant"}, "no slopes"),
    ],
)
def test_bad_input_is_told_before_any_work(data, options, message, monkeypatch):
    monkeypatch.setattr(VoronoiPartitioner, "fit", lambda *a, **k: pytest.fail("work was done"))
    with pytest.raises((ValueError, TypeError), match=message):
        JOPLEnRegressor(VORONOI, **options).fit(*data)


def test_too_large_a_graph_is_rejected_before_any_work(data, monkeypatch):
    monkeypatch.setattr(VoronoiPartitioner, "fit", lambda *a, **k: pytest.fail("work was done"))
    monkeypatch.setattr("jointleaf._core.penalties.laplacian._MAX_DENSE_BYTES", 1000)
    model = JOPLEnRegressor(VORONOI, penalty=Laplacian(0.1, graph="dense") + Frobenius(0.1))
    with pytest.raises(ValueError, match=r"240 rows takes about 0.0 GiB: use graph='neighbors'"):
        model.fit(*data)


def test_too_few_rows_for_a_choice(data):
    X, y = data
    with pytest.raises(ValueError, match=r"too few to choose a strength .* give a number"):
        JOPLEnRegressor(VORONOI, penalty=L21("auto")).fit(X[:3], y[:3])


def test_that_no_feature_is_selected_is_told(data):
    X, _ = data
    noise = np.random.default_rng(1).standard_normal(len(X))
    with pytest.warns(UserWarning, match="selected no feature"):
        model = JOPLEnRegressor(VORONOI, penalty=L21("auto"), random_state=0, cv=3).fit(X, noise)
    assert model.selected_features_.size == 0


def test_chosen_multiples_print_what_they_are(data):
    X, y = data
    penalty = 2 * L1("auto", 0.1) + L21("auto", 0.0)
    model = JOPLEnRegressor(VORONOI, penalty=penalty, random_state=0, cv=2).fit(X, y)
    first, second = model.penalty_.terms
    assert first.strength == 2 * second.strength
    assert repr(model.penalty_).startswith(f"L1({first.strength:.4g}, bias")
    assert sum([first, second]).terms == (first, second)
