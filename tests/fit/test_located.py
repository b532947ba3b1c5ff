"""Quantiles around a location: who takes part, and what it gains."""

import numpy as np
import pytest
from sklearn.metrics import mean_pinball_loss

from jointleaf import JOPLEnRegressor
from jointleaf._core.losses import Quantile
from jointleaf._data.rows import canonical_rows
from jointleaf.estimators._base import fitted_context


@pytest.fixture(scope="module")
def rows():
    """A target with little noise, whose size depends on x."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (700, 4))
    noise = 0.02 * (1 + 3 * (X[:, 0] > 0)) * rng.standard_normal(700)
    return X, 3 * X[:, 1] + np.sin(3 * X[:, 2]) + noise


@pytest.mark.slow
def test_quantile_of_a_target_with_little_noise(rows):
    X, y = rows
    model = JOPLEnRegressor(loss="quantile", quantile=0.9, random_state=0).fit(X[:300], y[:300])
    assert model.blend_.weights["located"] > 0.3
    predicted = model.predict(X[300:])
    truth = 3 * X[300:, 1] + np.sin(3 * X[300:, 2]) + 1.2816 * 0.02 * (1 + 3 * (X[300:, 0] > 0))
    loss, best = (mean_pinball_loss(y[300:], f, alpha=0.9) for f in (predicted, truth))
    assert loss < 2 * best  # of a fit of the quantile alone: 3.5 times the best
    assert abs(np.mean(y[300:] <= predicted) - 0.9) < 0.07
    assert np.allclose(model.cell_model_.predict(X[:5]), model.predict(X[:5]))


def test_needs_every_row_held_out_once(rows):
    X, y = rows
    model = JOPLEnRegressor(loss="absolute_error", random_state=0)
    model.fit(X[:80], y[:80], X_val=X[80:120], y_val=y[80:120])
    assert list(model.blend_.weights) == ["joint"]


def test_smooth_losses_are_fitted_alone(rows):
    X, y = rows
    model = JOPLEnRegressor(loss="huber", random_state=0).fit(X[:60], y[:60])
    assert list(model.blend_.weights) == ["joint"]


def test_rows_know_their_places():
    rng = np.random.default_rng(0)
    rows = canonical_rows(rng.standard_normal((20, 2)), rng.standard_normal(20), np.ones(20))
    part = rows.take(rows.y > 0).take(slice(1, 4))
    np.testing.assert_array_equal(rows.y[part.places], part.y)


def test_parabolas_are_narrow_against_residuals(rows):
    X, y = rows
    model = JOPLEnRegressor(loss=Quantile(0.9), random_state=0)
    model.fit(X[:100], y[:100])
    loss = fitted_context(model, canonical_rows(X, y, np.ones(700))).smooth_loss
    assert 0.1 * 0.02 / np.std(y) < loss.width < 0.02
