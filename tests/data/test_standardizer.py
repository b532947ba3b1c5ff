"""Standardisation: weighted moments, constant columns, clipping."""

import numpy as np
import pytest

from jointleaf._data.features import Standardizer


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 3)) * [1.0, 20.0, 0.01] + [0.0, -5.0, 3.0], rng.uniform(
        1, 3, 40
    )


def test_weighted_mean_is_zero_and_variance_one(rows):
    X, s = rows
    Z = Standardizer.fit(X, s).transform(X)
    np.testing.assert_allclose(np.average(Z, axis=0, weights=s), 0, atol=1e-12)
    np.testing.assert_allclose(np.average(Z**2, axis=0, weights=s), 1, rtol=1e-12)


def test_weights_act_as_copies(rows):
    X, _ = rows
    copies = 1 + np.arange(40) % 3
    one, other = Standardizer.fit(X, copies), Standardizer.fit(np.repeat(X, copies, 0), np.ones(79))
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(one.scale, other.scale, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
def test_constant_columns_become_zero(rows, value):
    X, s = rows
    X[:, 1] = value
    Z = Standardizer.fit(X, s).transform(X)
    np.testing.assert_allclose(Z[:, 1], 0, atol=1e-6)
    assert np.isfinite(Z).all()


def test_values_outside_the_training_range_are_clipped(rows):
    X, s = rows
    scaler = Standardizer.fit(X, s)
    far = np.stack([X.max(axis=0) + 100, X.min(axis=0) - 100])
    edge = np.stack([X.max(axis=0), X.min(axis=0)])
    np.testing.assert_array_equal(scaler.transform(far), scaler.transform(edge))
    free = Standardizer.fit(X, s, clip=False)
    np.testing.assert_allclose(free.transform(far), (far - free.mean) / free.scale)


def test_float32_is_kept(rows):
    X, s = rows
    scaler = Standardizer.fit(X.astype(np.float32), s)
    Z = scaler.transform(X.astype(np.float32))
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, Standardizer.fit(X, s).transform(X), atol=2e-3)


def test_rows_are_not_changed(rows):
    X, s = rows
    kept = X.copy()
    Standardizer.fit(X, s).transform(X)
    np.testing.assert_array_equal(X, kept)
