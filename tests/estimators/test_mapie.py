"""MAPIE takes the estimators: its intervals have the right rank, its sets are our own."""

import numpy as np
import pytest

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor

pytest.importorskip("mapie")
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (300, 3))
Y = X[:, 0] + RNG.standard_normal(300)
FAST = {"partitioner": "random_trees", "penalty": Frobenius(0.1), "random_state": 0}


def test_mapie_calibrates_a_fitted_regressor():
    from mapie.regression import SplitConformalRegressor

    model = JOPLEnRegressor(**FAST).fit(X[:100], Y[:100])
    mapie = SplitConformalRegressor(model, confidence_level=0.9, prefit=True)
    points, intervals = mapie.conformalize(X[100:199], Y[100:199]).predict_interval(X[199:])
    np.testing.assert_array_equal(points, model.predict(X[199:]))
    # The score |y - f| of rank ceil(100 * 0.9) of 99 rows.
    score = np.sort(np.abs(Y[100:199] - model.predict(X[100:199])))[89]
    np.testing.assert_allclose(intervals[:, 1, 0] - points, score)


def test_mapie_finds_the_sets_of_calibrate():
    from mapie.classification import SplitConformalClassifier

    classes = np.digitize(Y, [-0.5, 0.5])
    model = JOPLEnClassifier(**FAST).fit(X[:100], classes[:100])
    mapie = SplitConformalClassifier(model, confidence_level=0.9, prefit=True)
    _, sets = mapie.conformalize(X[100:199], classes[100:199]).predict_set(X[199:])
    own = model.calibrate(X[100:199], classes[100:199]).predict_set(X[199:], 0.9)
    assert (sets[:, :, 0] != own).mean() < 0.01
