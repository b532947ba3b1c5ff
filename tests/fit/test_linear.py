"""Linear models of classes: scikit-learn's logistic regression is the oracle."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from jointleaf._fit.linear import fit_logistic


def table(n, m, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, m))
    y = np.digitize(X[:, 0] + rng.standard_normal(n), np.linspace(-0.5, 0.5, n_classes - 1))
    return X, y, rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("strength", [1.0, 1e-2, 1e-4])
def test_two_classes(strength):
    X, y, s = table(80, 4, 2)
    found = fit_logistic(X, y, s, strength)
    model = LogisticRegression(C=1 / (strength * s.sum()), tol=1e-10, max_iter=10_000)
    model.fit(X, y, sample_weight=s)
    expected = np.append(model.coef_[0], model.intercept_)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_classes_that_a_line_divides_have_finite_weights():
    X, y, s = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1]), np.ones(4)
    for strength in (1.0, 1e-3, 1e-6):
        found = fit_logistic(X, y, s, strength)
        raw = X @ found[:-1] + found[-1]
        error = 1 / (1 + np.exp(-raw)) - y
        gradient = np.append(X.T @ error / 4 + strength * found[:-1], error.mean())
        assert np.abs(gradient).max() < 1e-6
        assert (np.sign(raw) == 2 * y - 1).all()


def test_without_features_there_is_the_share_of_the_classes():
    y, s = np.array([0, 0, 0, 1]), np.array([1.0, 1.0, 1.0, 2.0])
    np.testing.assert_allclose(fit_logistic(np.zeros((4, 0)), y, s, 0.1), [np.log(2 / 3)], 1e-5)
