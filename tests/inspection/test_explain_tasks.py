"""Explanations of several tasks add up, for all of them and for each."""

import numpy as np
import pytest

from explain_checks import BINARY, NEW_X, RIDGE, THREE, X, Y, assert_centred, assert_sums
from frame_data import NEW, make_frame
from jointleaf import (
    L21,
    BoUTSClassifier,
    BoUTSRegressor,
    DirtyLasso,
    MultiTaskJOPLEnClassifier,
    MultiTaskJOPLEnRegressor,
)
from jointleaf.inspection import effect

PAIRS = {"a": (X[:120], Y[:120]), "b": (X[120:], -Y[120:] + X[120:, 5])}


@pytest.mark.parametrize(
    "penalty", [DirtyLasso(0.05, 0.05, bias_strength=0.1), L21(0.05), RIDGE], ids=str
)
def test_tasks_as_pairs(penalty):
    model = MultiTaskJOPLEnRegressor("lightgbm", penalty=penalty, random_state=0).fit(PAIRS)
    both = model.explain(NEW_X)
    assert both.output_names == ("a", "b")
    assert_sums(both, model.predict(NEW_X))
    for name, (own, _) in PAIRS.items():
        assert_sums(model.explain(NEW_X, task=name), model.predict(NEW_X, task=name))
        assert_centred(model.explain(own, task=name), model.predict(own, task=name))
        np.testing.assert_array_equal(
            both.output(name).values, model.explain(NEW_X, task=name).values
        )
    labels = np.where(NEW_X[:, 0] > 0.5, "a", "b")
    mixed = model.explain(NEW_X, task=labels)
    assert mixed.baseline.shape == (len(NEW_X),)
    assert_sums(mixed, model.predict(NEW_X, task=labels))
    assert_sums(mixed[3:5], model.predict(NEW_X, task=labels)[3:5])


@pytest.mark.parametrize("clip", [True, "cell"])
def test_tasks_as_columns_of_y(clip):
    targets = np.column_stack([Y, X[:, 0] - Y, Y**2])
    model = MultiTaskJOPLEnRegressor("voronoi", penalty=RIDGE, clip=clip, random_state=0)
    model.fit(X, targets)
    assert_sums(model.explain(NEW_X), model.predict(NEW_X))


def test_tasks_of_a_long_table_and_each_with_its_recipe():
    frame, y = make_frame(120)
    model = MultiTaskJOPLEnRegressor(random_state=0).fit(frame, y, task="kind")
    assert_sums(model.explain(NEW), model.predict(NEW))
    assert model.explain(NEW).feature_names == ("size", "city", "age", "noise")
    assert_sums(model.explain(NEW, task="old"), model.predict(NEW, task="old"))


def test_tasks_with_two_classes():
    targets = np.column_stack([BINARY == "yes", X[:, 0] > 0.5]).astype(int)
    model = MultiTaskJOPLEnClassifier("lightgbm", penalty=RIDGE, random_state=0).fit(X, targets)
    odds = [np.log(p[:, 1] / p[:, 0]) for p in model.predict_proba(NEW_X)]
    assert_sums(model.explain(NEW_X), np.stack(odds, axis=1))
    single = MultiTaskJOPLEnClassifier("lightgbm", penalty=RIDGE, random_state=0).fit(X, BINARY)
    shares = single.predict_proba(NEW_X)
    assert_sums(single.explain(NEW_X), np.log(shares[:, 1] / shares[:, 0]))


def test_bouts():
    model = BoUTSRegressor(n_universal=20, n_task=20).fit(PAIRS)
    assert_sums(model.explain(NEW_X), model.predict(NEW_X))
    assert_sums(model.explain(NEW_X, task="b"), model.predict(NEW_X, task="b"))
    own = PAIRS["b"][0]
    assert_centred(model.explain(own, task="b"), model.predict(own, task="b"))
    unused = np.setdiff1d(np.arange(6), [*model.universal_features_, *model.task_features_["b"]])
    assert not model.explain(NEW_X, task="b").values[:, unused].any()


def test_bouts_with_classes():
    tasks = {"two": (X, BINARY), "three": (X, THREE)}
    model = BoUTSClassifier(n_universal=10, n_task=10).fit(tasks)
    shares = model.predict_proba(NEW_X, task="two")
    odds = np.log(shares[:, 1] / shares[:, 0])
    assert_sums(model.explain(NEW_X, task="two"), odds)
    found = model.explain(NEW_X, task="three").prediction
    shares = np.exp(found) / np.exp(found).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, model.predict_proba(NEW_X, task="three"), atol=1e-12)
    with pytest.raises(ValueError, match="task 'three' has several classes"):
        model.explain(NEW_X)


def test_tasks_in_the_first_column_of_an_array():
    rows = np.column_stack([np.arange(len(Y)) % 2 + 5, X])
    model = MultiTaskJOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    model.fit(rows, Y, task=0)
    assert model.task_names_ == [5, 6]
    assert_sums(model.explain(rows), model.predict(rows))
    assert_sums(model.explain(NEW_X, task=6), model.predict(NEW_X, task=6))
    assert_sums(model.explain(rows, task=6), model.predict(rows, task=6))
    local = model.local_model(rows[:1], task=6)
    assert local.value == pytest.approx(model.predict(X[:1], task=6)[0])
    curve = effect(model, rows, 2, task=5)
    np.testing.assert_array_equal(curve.values, effect(model, X, 2, task=5).values)
