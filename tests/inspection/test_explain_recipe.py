"""Explanations of the default recipe add up, with few rows and with many."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_friedman1

from explain_checks import BINARY, NEW_X, THREE, X, Y, assert_centred, assert_sums
from frame_data import raw
from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._fit import blend


@pytest.mark.parametrize("y", [Y, BINARY, THREE], ids=["regression", "binary", "multiclass"])
def test_the_default_recipe(y):
    estimator = JOPLEnRegressor if y is Y else JOPLEnClassifier
    model = estimator(random_state=0).fit(X, y)
    assert_sums(model.explain(NEW_X), raw(model, NEW_X))
    assert_centred(model.explain(X), raw(model, X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.explain(NEW_X).values, model.explain(NEW_X).values)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_the_recipe_for_many_rows(n_classes, monkeypatch):
    monkeypatch.setattr(blend, "_STACKING_ROWS", 1e6)  # equal weights: all components take part
    if n_classes:
        X, y = make_classification(
            400, 8, n_informative=6, n_classes=n_classes, flip_y=0.1, random_state=0
        )
    else:
        X, y = make_friedman1(400, n_features=8, noise=1.0, random_state=0)
    estimator = JOPLEnClassifier if n_classes else JOPLEnRegressor
    model = estimator(recipe="blend", random_state=0).fit(X, y)
    names = {"boosted", "boosted_random", "joint", "linear"}
    assert set(model.blend_.active) == names | (set() if n_classes else {"boosted_linear"})
    assert model.cell_model_.layout.is_mixed
    explanation = model.explain(X)
    assert_sums(explanation, raw(model, X))
    assert_centred(explanation, raw(model, X))
    # From 10,000 rows on predictions come from tables.
    many = raw(model, np.tile(X, (26, 1)))
    assert_sums(explanation, many[: len(X)])
