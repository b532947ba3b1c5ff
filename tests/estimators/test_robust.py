"""What a default fit promises of values that are far from all others (docs/limits.md)."""

import numpy as np
import pytest

from blend_fits import small_fits
from jointleaf import JOPLEnRegressor

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((150, 3)), RNG.standard_normal((300, 3))


def truth(rows):
    return rows[:, 0] + np.sin(2 * rows[:, 1])


Y = truth(X) + 0.3 * RNG.standard_normal(150)


def error(model):
    return np.sqrt(np.mean((model.predict(NEW) - truth(NEW)) ** 2))


@pytest.fixture(scope="module")
def model():
    with small_fits():
        return JOPLEnRegressor(random_state=0, cv=2).fit(X, Y)


@pytest.mark.parametrize("far", [1e6, 1e300, -1e300])
def test_beyond_the_training_range_a_value_counts_as_the_end_of_it(model, far):
    rows, ends = NEW.copy(), NEW.copy()
    rows[:, 0], ends[:, 0] = far, X[:, 0].max() if far > 0 else X[:, 0].min()
    np.testing.assert_array_equal(model.predict(rows), model.predict(ends))


def test_predictions_stay_near_the_range_of_the_target(model):
    width = np.ptp(Y)
    predicted = model.predict(100 * NEW)
    assert Y.min() - 0.25 * width < predicted.min()
    assert predicted.max() < Y.max() + 0.25 * width


@pytest.mark.parametrize("columns", [0, slice(None)], ids=["one_column", "all_columns"])
def test_one_row_far_away_does_not_decide(model, columns):
    rows = X.copy()
    rows[7, columns] = 1e6
    with small_fits():
        fitted = JOPLEnRegressor(random_state=0, cv=2).fit(rows, Y)
    assert error(fitted) < 2.5 * error(model)


def test_one_wrong_target_needs_a_robust_loss(model):
    y = Y.copy()
    y[5] = 1e12
    with small_fits():
        squared = JOPLEnRegressor(random_state=0, cv=2).fit(X, y)
        robust = [
            JOPLEnRegressor(loss=loss, random_state=0, cv=2).fit(X, y)
            for loss in ("huber", "absolute_error")
        ]
    assert error(squared) > 1e6
    assert max(map(error, robust)) < 3 * error(model)


def test_steps_without_noise_are_smoothed():
    with small_fits():
        fitted = JOPLEnRegressor(random_state=0, cv=2).fit(X, 1e8 * (X[:, 0] > 0))
    error_of_step = np.sqrt(np.mean((fitted.predict(NEW) - 1e8 * (NEW[:, 0] > 0)) ** 2)) / 1e8
    assert error_of_step < 0.15
