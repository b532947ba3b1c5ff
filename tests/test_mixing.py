"""The joint fit mixed with the model that made the partitions."""

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification, make_friedman1
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.model_selection import KFold

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, refine
from jointleaf.partitions import (
    LightGBMPartitioner,
    LinearForestPartitioner,
    RootCell,
    UnionPartitioner,
    VoronoiPartitioner,
)
from jointleaf.tuning import own_predictions, recipe

X, Y = make_friedman1(240, n_features=6, noise=0.5, random_state=0)


def only(share, monkeypatch):
    """Leave one share to choose from."""
    monkeypatch.setattr(recipe, "SHARES", (share,))


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
    for labels in (y, y > 0):
        model = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(rows, labels)
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
    model = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(rows, y)
    only(0.5, monkeypatch)
    turned = refine(model, rows, 1 - y, cv=3, random_state=0)  # the model says the opposite
    only(1.0, monkeypatch)
    alone = refine(model, rows, 1 - y, cv=3, random_state=0)
    np.testing.assert_allclose(turned.predict_proba(rows), alone.predict_proba(rows))


def test_grown_partitions_know_the_units_of_the_target():
    partitioner = LightGBMPartitioner(100, 8, random_state=0).fit(X, 1e6 + 50 * Y)
    own = own_predictions(partitioner, partitioner.apply(X))
    assert np.corrcoef(own, Y)[0, 1] > 0.9
    np.testing.assert_allclose(own.mean(), (1e6 + 50 * Y).mean(), atol=5)


def test_unions_average_those_that_have_values():
    members = [LightGBMPartitioner(5, random_state=0), RootCell(), LightGBMPartitioner(7)]
    union = UnionPartitioner(members).fit(X, Y)
    own = own_predictions(union, union.apply(X))
    singles = [m for m in union.partitioners_ if not isinstance(m, RootCell)]
    expected = np.mean([own_predictions(m, m.apply(X)) for m in singles], axis=0)
    np.testing.assert_allclose(own, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "partitioner", [VoronoiPartitioner(5), RootCell(), LinearForestPartitioner(3)]
)
def test_partitions_without_a_model_of_their_own(partitioner):
    assert partitioner.fit(X, Y).own_values_ is None
    model = JOPLEnRegressor(partitioner, cv=2, random_state=0).fit(X, Y)
    assert model.setting_.share == 1
    assert (model.cv_results_["share"] == 1).all()


def test_a_forest_of_classifiers_and_a_given_penalty_are_not_mixed():
    labels = Y.mean() < Y
    model = JOPLEnClassifier("random_forest", cv=2, cells="constant", random_state=0)
    assert (model.fit(X, labels).cv_results_["share"] == 1).all()
    forest = RandomForestRegressor(5, max_leaf_nodes=4, random_state=0).fit(X, Y)
    assert refine(forest, X, Y, penalty=Frobenius(0.1)).setting_ is None
