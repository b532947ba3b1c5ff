"""The joint fit blended with the leaf values of the model that made the partitions."""

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
from jointleaf._fit import blend
from jointleaf._fit.blend import Interpolation, logistic_weights
from jointleaf._fit.component import Blend
from jointleaf._fit.folds import loss_table
from jointleaf._fit.leaf_values import add_values, leaf_values
from jointleaf.partitions import (
    LightGBMPartitioner,
    LinearForestPartitioner,
    RootCell,
    UnionPartitioner,
    VoronoiPartitioner,
)

X, Y = make_friedman1(240, n_features=6, noise=0.5, random_state=0)
LABELS = Y.mean() < Y


JOINT = Blend({"joint": 1.0})


def only(weight, monkeypatch):
    """Leave one weight of the joint fit to choose from."""
    monkeypatch.setattr(blend, "_JOINT_WEIGHTS", (weight,))


def joint_alone(monkeypatch):
    monkeypatch.setattr(Interpolation, "fit", lambda *_: JOINT)


def raw_of_values(partitioner, rows):
    """Return raw predictions of the model that made the partitions."""
    return add_values(partitioner.leaf_values_, partitioner.n_cells_, partitioner.apply(rows))


def classifier():
    return GradientBoostingClassifier(n_estimators=10, random_state=0)


@pytest.fixture
def boosted():
    return lightgbm.LGBMRegressor(n_estimators=20, num_leaves=5, verbose=-1).fit(X, Y)


@pytest.mark.parametrize("weight", [1.0, 0.6, 0.0])
def test_a_blend_is_the_weighted_sum_of_both_models(boosted, weight, monkeypatch):
    only(1.0, monkeypatch)
    alone = refine(boosted, X, Y, cv=3, random_state=0)
    only(weight, monkeypatch)
    blended = refine(boosted, X, Y, cv=3, random_state=0)
    assert blended.blend_.weights == {"joint": weight, "leaf_values": 1 - weight}
    assert (blended.solution_ is None) == (weight == 0)
    rows = X + 0.01
    expected = weight * alone.predict(rows) + (1 - weight) * boosted.predict(rows)
    np.testing.assert_allclose(blended.predict(rows), expected, rtol=1e-9)
    cells = blended.apply(X[:1])[0] + blended.cell_starts_
    slopes, biases = blended.coef_[cells].sum(axis=0), blended.intercept_[cells].sum()
    by_hand = blended.offset_ + slopes @ X[0] + biases
    np.testing.assert_allclose(by_hand, blended.predict(X[:1])[0], rtol=1e-9)


def test_classes(monkeypatch):
    rows, y = load_iris(return_X_y=True)
    only(0.0, monkeypatch)
    monkeypatch.setattr(blend, "_CALIBRATION_ROWS", 1e12)  # nothing is calibrated
    for labels in (y, y > 0):
        model = classifier().fit(rows, labels)
        mixed = refine(model, rows, labels, cv=3, cells="constant", random_state=0)
        np.testing.assert_allclose(mixed.predict_proba(rows), model.predict_proba(rows), atol=1e-6)


def test_the_weight_with_the_smallest_loss_is_taken(boosted):
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = refine(boosted, X, Y, cv=splits, random_state=0)
    table = loss_table(model.cv_results_)
    blends = table["joint_weight"] < 1
    assert table["joint_weight"][blends].tolist() == [0.75, 0.5, 0.25, 0.0]
    losses = [
        np.mean((Y[b] - clone(boosted).fit(X[a], Y[a]).predict(X[b])) ** 2) / 2 / Y.var()
        for a, b in splits
    ]
    np.testing.assert_allclose(table["mean_loss"][blends][-1], np.mean(losses), rtol=1e-6)
    best = np.argmin(table["mean_loss"])
    assert model.blend_.weights["joint"] == table["joint_weight"][best]
    assert model.report_.joint.setting["strength"] == table["strength"][best]


def test_values_of_other_classes_are_left_alone(monkeypatch):
    rows, y = make_classification(200, 5, random_state=0)
    model = classifier().fit(rows, y)
    turned = refine(model, rows, 1 - y, cv=3, random_state=0)  # the model says the opposite
    assert turned.blend_ == JOINT
    joint_alone(monkeypatch)
    alone = refine(model, rows, 1 - y, cv=3, random_state=0)
    np.testing.assert_allclose(turned.predict_proba(rows), alone.predict_proba(rows))


def test_grown_partitions_know_the_units_of_the_target():
    partitioner = LightGBMPartitioner(100, 8, random_state=0).fit(X, 1e6 + 50 * Y)
    own = raw_of_values(partitioner, X)
    assert np.corrcoef(own, Y)[0, 1] > 0.9
    np.testing.assert_allclose(own.mean(), (1e6 + 50 * Y).mean(), atol=5)


def test_unions_average_those_that_have_values():
    members = [LightGBMPartitioner(5, random_state=0), RootCell(), LightGBMPartitioner(7)]
    union = UnionPartitioner(members).fit(X, Y)
    own = raw_of_values(union, X)
    singles = [m for m in union.partitioners_ if not isinstance(m, RootCell)]
    expected = np.mean([raw_of_values(m, X) for m in singles], axis=0)
    np.testing.assert_allclose(own, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "partitioner", [VoronoiPartitioner(5), RootCell(), LinearForestPartitioner(3)]
)
def test_partitions_without_a_model_of_their_own(partitioner):
    assert partitioner.fit(X, Y).leaf_values_ is None
    model = JOPLEnRegressor(partitioner, cv=2, random_state=0).fit(X, Y)
    assert model.blend_ == JOINT
    assert "param_joint_weight" not in model.cv_results_


def test_a_given_penalty_is_not_blended():
    forest = RandomForestRegressor(5, max_leaf_nodes=4, random_state=0).fit(X, Y)
    refined = refine(forest, X, Y, penalty=Frobenius(0.1))
    assert refined.blend_ == JOINT
    assert refined.cv_results_ is None


# -- classes: three numbers from rows held out -------------------------------------------------


@pytest.mark.parametrize("labels", [LABELS, np.digitize(Y, [12, 16])], ids=["binary", "three"])
@pytest.mark.parametrize("is_trained", [True, False])
def test_the_model_is_the_calibrated_blend(labels, is_trained, monkeypatch):
    model = classifier().fit(X, labels)
    make = model if is_trained else "gradient_boosting"
    fitted = JOPLEnClassifier(make, cv=2, cells="constant", random_state=0).fit(X, labels)
    joint_alone(monkeypatch)
    alone = clone(fitted).fit(X, labels)
    rows, weights = X + 0.01, fitted.blend_.weights
    expected = weights["joint"] * alone.decision_function(rows) + fitted.blend_.constant
    expected = expected + weights["leaf_values"] * raw_of_values(fitted.partitioner_, rows)
    np.testing.assert_allclose(fitted.decision_function(rows), expected, atol=1e-8)
    assert weights["joint"] > 0
    assert np.any(fitted.blend_.constant)
    cells = fitted.apply(X[:1])[0] + fitted.cell_starts_
    by_hand = fitted.offset_ + fitted.intercept_[cells].sum(axis=0)
    np.testing.assert_allclose(by_hand, fitted.decision_function(X[:1])[0], atol=1e-8)


def calibrated(start, joint, values, target, s):
    return logistic_weights([joint, values], target, s, np.array(start), 10, has_constant=True)


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
    weights, fitted = calibrated([1.0, 0.0], joint, own, target, s)
    np.testing.assert_allclose(weights, [0.5, 0.8], atol=0.04)
    np.testing.assert_allclose(fitted, constant, atol=0.04)
    again, _ = calibrated([1.0, 0.0], joint, own, target, 3 * s)
    np.testing.assert_allclose(weights, again, rtol=1e-6)


def test_calibration_stays_finite_and_never_turns_a_model_round():
    target = np.repeat([-1.0, 1.0], 20)
    weights, _ = calibrated([0.5, 0.5], target, -target, target, np.ones(40))
    assert weights[1] == 0
    assert 1 < weights[0] < 10
    few = target[19:21]
    weights, _ = calibrated([0.5, 0.5], few, few, few, np.ones(2))
    assert sum(weights) < 2  # two rows say little


def test_only_a_trained_model_with_values_draws_the_blend_to_itself(monkeypatch):
    model = classifier().fit(X, LABELS)
    forest = RandomForestClassifier(5, max_leaf_nodes=4, random_state=0).fit(X, LABELS)
    options = {"cv": 2, "cells": "constant", "random_state": 0}
    makers = [model, forest, "gradient_boosting"]
    before = [JOPLEnClassifier(m, **options).fit(X, LABELS).blend_ for m in makers]
    assert before[0].weights["leaf_values"] >= blend._TRUST
    monkeypatch.setattr(blend, "_TRUST", 1.0)
    after = [JOPLEnClassifier(m, **options).fit(X, LABELS) for m in makers]
    assert after[0].blend_ == Blend({"joint": 0.0, "leaf_values": 1.0})
    np.testing.assert_allclose(after[0].predict_proba(X), model.predict_proba(X), atol=1e-6)
    assert [fit.blend_ for fit in after[1:]] == before[1:]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_forests_of_classifiers_give_the_log_odds_in_their_cells(n_classes):
    labels = LABELS.astype(int) if n_classes == 2 else np.digitize(Y, [12, 16])
    loss = Logistic() if n_classes == 2 else Multinomial(3)
    y = 2.0 * labels - 1 if n_classes == 2 else labels.astype(float)
    forest = RandomForestClassifier(4, max_leaf_nodes=5, random_state=0).fit(X, labels)
    fitted = refine(forest, X, labels, penalty=Frobenius(1.0))
    cells = fitted.partitioner_  # with the root cell
    codes, s = cells.apply(X), np.full(len(X), 2.0)
    values = leaf_values(cells, codes, loss, loss.encode(y), s)
    raw = add_values(values, cells.n_cells_, codes)
    expected = np.zeros((len(X), n_classes))
    for leaves in forest.apply(X).T:
        for leaf in np.unique(leaves):
            counts = np.bincount(labels[leaves == leaf], minlength=n_classes)
            expected[leaves == leaf] += np.log(counts + 1) / 4
    if n_classes == 2:
        np.testing.assert_allclose(raw, expected[:, 1] - expected[:, 0])
    else:
        np.testing.assert_allclose(raw, expected - expected.mean(axis=1, keepdims=True))
    assert leaf_values(RootCell().fit(X), codes[:, -1:], loss, loss.encode(y), s) is None
    assert leaf_values(VoronoiPartitioner(2).fit(X), codes, SquaredError(), Y, s) is None


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
    assert small.blend_ == JOINT
    assert model.blend_ != JOINT
