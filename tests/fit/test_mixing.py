"""The joint fit mixed with the model that made the partitions."""

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification, make_friedman1
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import KFold

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, prune, refine
from jointleaf._core.losses import Logistic, Multinomial, SquaredError
from jointleaf._fit import Mix, mixing, own_predictions, own_values, recipe
from jointleaf.partitions import (
    LightGBMPartitioner,
    LinearForestPartitioner,
    RootCell,
    UnionPartitioner,
    VoronoiPartitioner,
)

X, Y = make_friedman1(240, n_features=6, noise=0.5, random_state=0)
LABELS = Y.mean() < Y


def only(share, monkeypatch):
    """Leave one share to choose from."""
    monkeypatch.setattr(recipe, "SHARES", (share,))


def own_raw(partitioner, rows):
    """Raw predictions of the model that made the partitions."""
    return own_predictions(partitioner.leaf_values_, partitioner.n_cells_, partitioner.apply(rows))


def classifier():
    return GradientBoostingClassifier(n_estimators=10, random_state=0)


@pytest.fixture
def boosted():
    return lightgbm.LGBMRegressor(n_estimators=20, num_leaves=5, verbose=-1).fit(X, Y)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.0])
def test_a_mix_is_the_mean_of_both_models(boosted, share, monkeypatch):
    only(1.0, monkeypatch)
    alone = refine(boosted, X, Y, cv=3, random_state=0)
    only(share, monkeypatch)
    mixed = refine(boosted, X, Y, cv=3, random_state=0)
    assert mixed.setting_.share == share
    rows = X + 0.01
    expected = share * alone.predict(rows) + (1 - share) * boosted.predict(rows)
    np.testing.assert_allclose(mixed.predict(rows), expected, rtol=1e-9)
    cells = mixed.apply(X[:1])[0] + mixed.cell_starts_
    by_hand = mixed.offset_ + mixed.coef_[cells].sum(axis=0) @ X[0] + mixed.intercept_[cells].sum()
    np.testing.assert_allclose(by_hand, mixed.predict(X[:1])[0], rtol=1e-9)


def test_classes(monkeypatch):
    rows, y = load_iris(return_X_y=True)
    only(0.0, monkeypatch)
    monkeypatch.setattr(mixing, "_MORE_ROWS", 1e12)  # nothing is calibrated
    for labels in (y, y > 0):
        model = classifier().fit(rows, labels)
        mixed = refine(model, rows, labels, cv=3, cells="constant", random_state=0)
        np.testing.assert_allclose(mixed.predict_proba(rows), model.predict_proba(rows), atol=1e-6)


def test_the_share_with_the_smallest_loss_is_taken(boosted):
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = refine(boosted, X, Y, cv=splits, random_state=0)
    table, best = model.cv_results_, model.setting_
    mixes = table["share"] < 1
    assert table["share"][mixes].tolist() == [0.75, 0.5, 0.25, 0.0]
    assert best.strength == table["strength"][mixes][0]
    own = [
        np.mean((Y[b] - clone(boosted).fit(X[a], Y[a]).predict(X[b])) ** 2) / 2 / Y.var()
        for a, b in splits
    ]
    np.testing.assert_allclose(table["mean_loss"][mixes][-1], np.mean(own), rtol=1e-6)
    here = np.all([table[n] == v for n, v in best._asdict().items()], axis=0)
    assert table["mean_loss"][here].min() == table["mean_loss"].min()


def test_values_of_other_classes_are_left_alone(monkeypatch):
    rows, y = make_classification(200, 5, random_state=0)
    model = classifier().fit(rows, y)
    turned = refine(model, rows, 1 - y, cv=3, random_state=0)  # the model says the opposite
    assert turned.mix_ == Mix()
    monkeypatch.setattr(recipe, "_final_mix", lambda *_: Mix())
    alone = refine(model, rows, 1 - y, cv=3, random_state=0)
    np.testing.assert_allclose(turned.predict_proba(rows), alone.predict_proba(rows))


def test_grown_partitions_know_the_units_of_the_target():
    partitioner = LightGBMPartitioner(100, 8, random_state=0).fit(X, 1e6 + 50 * Y)
    own = own_raw(partitioner, X)
    assert np.corrcoef(own, Y)[0, 1] > 0.9
    np.testing.assert_allclose(own.mean(), (1e6 + 50 * Y).mean(), atol=5)


def test_unions_average_those_that_have_values():
    members = [LightGBMPartitioner(5, random_state=0), RootCell(), LightGBMPartitioner(7)]
    union = UnionPartitioner(members).fit(X, Y)
    own = own_raw(union, X)
    singles = [m for m in union.partitioners_ if not isinstance(m, RootCell)]
    expected = np.mean([own_raw(m, X) for m in singles], axis=0)
    np.testing.assert_allclose(own, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "partitioner", [VoronoiPartitioner(5), RootCell(), LinearForestPartitioner(3)]
)
def test_partitions_without_a_model_of_their_own(partitioner):
    assert partitioner.fit(X, Y).leaf_values_ is None
    model = JOPLEnRegressor(partitioner, cv=2, random_state=0).fit(X, Y)
    assert model.setting_.share == 1
    assert (model.cv_results_["share"] == 1).all()


def test_a_given_penalty_is_not_mixed():
    forest = RandomForestRegressor(5, max_leaf_nodes=4, random_state=0).fit(X, Y)
    refined = refine(forest, X, Y, penalty=Frobenius(0.1))
    assert refined.setting_ is None
    assert refined.mix_ is None


# -- classes: three numbers from rows held out -------------------------------------------------


@pytest.mark.parametrize("labels", [LABELS, np.digitize(Y, [12, 16])], ids=["binary", "three"])
@pytest.mark.parametrize("is_trained", [True, False])
def test_the_model_is_the_calibrated_mix(labels, is_trained, monkeypatch):
    model = classifier().fit(X, labels)
    make = model if is_trained else "gradient_boosting"
    fitted = JOPLEnClassifier(make, cv=2, cells="constant", random_state=0).fit(X, labels)
    monkeypatch.setattr(recipe, "_final_mix", lambda *_: Mix())
    alone = clone(fitted).fit(X, labels)
    rows = X + 0.01
    own = own_raw(fitted.partitioner_, rows)
    expected = fitted.mix_(alone.decision_function(rows), own)
    np.testing.assert_allclose(fitted.decision_function(rows), expected, atol=1e-8)
    assert fitted.mix_.joint > 0
    assert np.any(fitted.mix_.constant)
    cells = fitted.apply(X[:1])[0] + fitted.cell_starts_
    by_hand = fitted.offset_ + fitted.intercept_[cells].sum(axis=0)
    np.testing.assert_allclose(by_hand, fitted.decision_function(X[:1])[0], atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_calibration_finds_the_numbers_behind_the_classes(n_classes):
    rng = np.random.default_rng(0)
    shape = (40_000,) if n_classes == 2 else (40_000, n_classes)
    joint, own = 2 * rng.standard_normal(shape), rng.standard_normal(shape)
    constant = -0.4 if n_classes == 2 else np.array([-0.4, 0.1, 0.3])
    loss = Logistic() if n_classes == 2 else Multinomial(n_classes)
    odds = loss.link(0.5 * joint + 0.8 * own + constant)
    drawn = (odds.cumsum(axis=1) < rng.random((len(odds), 1))).sum(axis=1)
    target = loss.encode(2.0 * drawn - 1 if n_classes == 2 else drawn)
    s = np.ones(len(target))
    mix = mixing.calibrated(Mix(1.0, 0.0), joint, own, target, s)
    np.testing.assert_allclose([mix.joint, mix.own], [0.5, 0.8], atol=0.04)
    np.testing.assert_allclose(mix.constant, constant, atol=0.04)
    again = mixing.calibrated(Mix(1.0, 0.0), joint, own, target, 3 * s)
    np.testing.assert_allclose(mix.joint, again.joint, rtol=1e-6)


def test_calibration_stays_finite_and_never_turns_a_model_round():
    target = np.repeat([-1.0, 1.0], 20)
    mix = mixing.calibrated(Mix(0.5, 0.5), target, -target, target, np.ones(40))
    assert mix.own == 0
    assert 1 < mix.joint < 10
    few = mixing.calibrated(Mix(0.5, 0.5), target[19:21], target[19:21], target[19:21], np.ones(2))
    assert few.joint + few.own < 2  # two rows say little


def test_only_a_trained_model_with_values_draws_the_mix_to_itself(monkeypatch):
    assert Mix(0.8, 0.4, -1.0).towards_own(0.25) == pytest.approx(Mix(0.6, 0.55, -0.75))
    model = classifier().fit(X, LABELS)
    forest = RandomForestClassifier(5, max_leaf_nodes=4, random_state=0).fit(X, LABELS)
    options = {"cv": 2, "cells": "constant", "random_state": 0}
    makers = [model, forest, "gradient_boosting"]
    before = [JOPLEnClassifier(m, **options).fit(X, LABELS).mix_ for m in makers]
    assert before[0].own >= recipe._TRUST
    monkeypatch.setattr(recipe, "_TRUST", 1.0)
    after = [JOPLEnClassifier(m, **options).fit(X, LABELS) for m in makers]
    assert after[0].mix_ == Mix(0.0, 1.0, 0.0)
    np.testing.assert_allclose(after[0].predict_proba(X), model.predict_proba(X), atol=1e-6)
    assert [fit.mix_ for fit in after[1:]] == before[1:]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_forests_of_classifiers_give_the_log_odds_in_their_cells(n_classes):
    labels = LABELS.astype(int) if n_classes == 2 else np.digitize(Y, [12, 16])
    loss = Logistic() if n_classes == 2 else Multinomial(3)
    y = 2.0 * labels - 1 if n_classes == 2 else labels.astype(float)
    forest = RandomForestClassifier(4, max_leaf_nodes=5, random_state=0).fit(X, labels)
    fitted = refine(forest, X, labels, penalty=Frobenius(1.0))
    cells = fitted.partitioner_  # with the root cell
    codes, s = cells.apply(X), np.full(len(X), 2.0)
    values = own_values(cells, codes, loss, loss.encode(y), s)
    raw = own_predictions(values, cells.n_cells_, codes)
    expected = np.zeros((len(X), n_classes))
    for leaves in forest.apply(X).T:
        for leaf in np.unique(leaves):
            counts = np.bincount(labels[leaves == leaf], minlength=n_classes)
            expected[leaves == leaf] += np.log(counts + 1) / 4
    if n_classes == 2:
        np.testing.assert_allclose(raw, expected[:, 1] - expected[:, 0])
    else:
        np.testing.assert_allclose(raw, expected - expected.mean(axis=1, keepdims=True))
    assert own_values(RootCell().fit(X), codes[:, -1:], loss, loss.encode(y), s) is None
    assert own_values(VoronoiPartitioner(2).fit(X), codes, SquaredError(), Y, s) is None


def test_calibration_pays_where_a_model_is_too_sure():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((400, 5))
    y = (rows[:, 0] + 2 * rng.standard_normal(400) > 0).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=200, verbose=-1, random_state=0)
    model.fit(rows[:200], y[:200])
    refined = refine(model, rows[:200], y[:200], cells="constant", random_state=0)
    sure, calm = (np.abs(m.predict_proba(rows[200:])[:, 1] - 0.5) for m in (model, refined))
    assert calm.mean() < 0.8 * sure.mean()


def test_a_pruned_model_is_the_joint_fit_alone():
    model = JOPLEnClassifier("gradient_boosting", cv=2, cells="constant", random_state=0)
    small = prune(model.fit(X, LABELS), X, LABELS, n_cells=50)
    assert small.mix_ == Mix()
    assert model.mix_ != Mix()
