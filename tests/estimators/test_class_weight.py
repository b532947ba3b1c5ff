"""Weights of classes, and targets that a classifier cannot take."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.multioutput import MultiOutputClassifier
from sklearn.utils.class_weight import compute_sample_weight

from jointleaf import Frobenius, JOPLEnClassifier, MultiTaskJOPLEnClassifier, PerTask
from jointleaf.estimators._path import follow_strengths
from jointleaf.io import load, save
from jointleaf.partitions import LightGBMPartitioner

X, Y = make_classification(
    400, 6, n_informative=4, n_classes=3, weights=[0.7, 0.2, 0.1], flip_y=0.1, random_state=0
)
NEW, NEW_Y = X[300:], Y[300:]
X, Y = X[:300], Y[:300]
LABELS = np.array(["no", "maybe", "yes"])[Y]
DICT = {"no": 0.5, "yes": 3.0}
S = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)


def model(**options):
    penalty = Frobenius(0.01)
    return JOPLEnClassifier(LightGBMPartitioner(8, 4), penalty=penalty, random_state=0, **options)


@pytest.mark.parametrize("class_weight", ["balanced", DICT])
@pytest.mark.parametrize("y", [LABELS, LABELS != "no"], ids=["three", "two"])
def test_the_same_as_weights_of_rows(class_weight, y):
    if class_weight is DICT and y.dtype == bool:
        class_weight = {True: 4.0}
    weights = compute_sample_weight(class_weight, y)
    expected = model().fit(X, y, weights).predict_proba(NEW)
    found = model(class_weight=class_weight).fit(X, y).predict_proba(NEW)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert not np.allclose(model().fit(X, y).predict_proba(NEW), expected, atol=0.02)


def test_a_weight_of_two_is_a_row_twice():
    twice = np.repeat(np.arange(len(X)), S.astype(int))
    balanced = model(class_weight="balanced")
    found = balanced.fit(X, LABELS, S).predict_proba(NEW)
    expected = balanced.fit(X[twice], LABELS[twice]).predict_proba(NEW)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_balanced_probabilities_are_not_frequencies():
    """Their mean is a third for every class; sets hold the true class as often as they say."""
    usual = JOPLEnClassifier(cv=2, random_state=0).fit(X, LABELS)
    balanced = JOPLEnClassifier(cv=2, class_weight="balanced", random_state=0).fit(X, LABELS)
    factors = compute_sample_weight("balanced", LABELS)
    means = np.average(balanced.predict_proba(X), axis=0, weights=factors)
    np.testing.assert_allclose(means, 1 / 3, atol=0.03)
    for classifier in (balanced, usual):
        number = np.searchsorted(classifier.classes_, np.array(["no", "maybe", "yes"])[NEW_Y])
        is_in = classifier.predict_set(NEW, 0.8)[np.arange(len(NEW)), number]
        assert 0.7 < is_in.mean() < 0.95
    assert usual.calibration_.total == pytest.approx(len(X))
    assert balanced.calibration_.total == pytest.approx(len(X))


def test_validation_rows_have_the_weights_of_classes():
    y, y_val = LABELS == "no", NEW_Y == 0
    weights, known = compute_sample_weight("balanced", y), {"X_val": NEW, "y_val": y_val}
    classifier = JOPLEnClassifier(LightGBMPartitioner(8, 4), random_state=0)
    weights_val = np.where(y_val, weights[y][0], weights[~y][0])
    expected = classifier.fit(X, y, weights, **known, sample_weight_val=weights_val)
    expected = expected.predict_proba(NEW)
    found = classifier.set_params(class_weight="balanced").fit(X, y, **known)
    np.testing.assert_allclose(found.predict_proba(NEW), expected, rtol=1e-6, atol=1e-9)


def test_what_fits_the_cells_again_has_them_too():
    penalty, weights = Frobenius(0.01), compute_sample_weight("balanced", LABELS)
    partitioner = LightGBMPartitioner(8, 4)
    plain = JOPLEnClassifier(partitioner, penalty=penalty, random_state=0)
    weighted = clone(plain).set_params(class_weight="balanced")
    found = follow_strengths(weighted.fit(X, LABELS), X, LABELS, strengths=[0.1, 0.01])
    plain.fit(X, LABELS, weights)
    expected = follow_strengths(plain, X, LABELS, strengths=[0.1, 0.01], sample_weight=weights)
    np.testing.assert_allclose(found.feature_norms, expected.feature_norms, rtol=1e-6)


def test_tasks_have_them_too(tmp_path):
    pairs = {"a": (X, Y == 0), "b": (X[::2], Y[::2] == 2)}
    weights = {name: compute_sample_weight("balanced", y) for name, (_, y) in pairs.items()}
    tasks = MultiTaskJOPLEnClassifier(
        LightGBMPartitioner(8, 4), penalty=PerTask(Frobenius(0.01)), random_state=0
    )
    expected = tasks.fit(pairs, sample_weight=weights).predict_proba(NEW)
    found = tasks.set_params(class_weight="balanced").fit(pairs).predict_proba(NEW)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    save(tasks, tmp_path / "model.jleaf")
    assert load(tmp_path / "model.jleaf").class_weight == "balanced"
    with pytest.raises(ValueError, match="task 'b': class_weight has a weight for 'x'"):
        tasks.set_params(class_weight={"x": 1}).fit({"b": (X, Y == 0)})


def test_files_keep_them(tmp_path):
    save(model(class_weight=DICT).fit(X, LABELS), tmp_path / "model.jleaf")
    assert load(tmp_path / "model.jleaf").class_weight == DICT


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"nein": 2.0}, r"class_weight has a weight for 'nein', which is no class of y: .*'maybe'"),
        ({"no": -1.0}, "class_weight has -1.0 for class 'no': give a number that is not negative"),
        ({"no": "2"}, "class_weight has '2' for class 'no'"),
        ({"no": np.nan}, "class_weight has nan for class 'no'"),
        ("even", "class_weight='even' is not known: use None, 'balanced' or a dict"),
        ([1.0, 2.0, 3.0], "class_weight=.* is not known"),
        ({"no": 0, "maybe": 0}, r"y holds one class only \(yes, in rows of positive weight\)"),
    ],
)
def test_weights_that_cannot_be(value, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnClassifier(class_weight=value).fit(X, LABELS)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (
            np.c_[Y == 0, Y == 1],
            r"y has shape \(300, 2\), but JOPLEnClassifier .* MultiTaskJOPLEnC",
        ),
        (pd.DataFrame({"a": Y, "b": Y}), "MultiOutputClassifier with this estimator"),
        ([["a", "b"], ["a"]] * 150, "y holds lists, .* columns of them .MultiLabelBinarizer."),
        (pd.Series([{"a"}, {"a", "b"}] * 150), r"y holds lists, .*\.MultiOutputClassifier with"),
        ([None, *LABELS[1:]], "y is None in row 0: leave out rows without a target"),
        (np.array([np.nan, *LABELS[1:]], object), "y is nan in row 0: leave out rows without"),
        (np.r_[np.nan, np.zeros(len(LABELS) - 1)], "y is nan in row 0: leave out rows without"),
        (pd.Series([*Y[:-1], None], dtype="Int64").astype(object), "y is <NA> in row 299"),
    ],
)
def test_targets_that_cannot_be(y, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnClassifier().fit(X, y)


def test_a_class_may_have_the_name_of_a_missing_value():
    labels = np.where(Y == 0, "<NA>", "other").astype(object)
    assert JOPLEnClassifier(penalty=Frobenius(0.1)).fit(X, labels).classes_[0] == "<NA>"


def test_what_the_message_names_works():
    several = MultiOutputClassifier(JOPLEnClassifier(penalty=Frobenius(0.1), random_state=0))
    assert several.fit(X, np.c_[Y == 0, Y == 1]).predict(NEW).shape == (100, 2)
