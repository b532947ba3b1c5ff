"""Rows, and what every explanation must fulfil, shared by tests."""

import numpy as np
from sklearn.datasets import make_friedman1

from jointleaf import Frobenius

RIDGE = Frobenius(0.01)
QUIET = {"verbose": 0, "allow_writing_files": False}  # CatBoost
X, Y = make_friedman1(200, n_features=6, noise=0.5, random_state=0)
NEW_X = 1.5 * make_friedman1(60, n_features=6, random_state=1)[0] - 0.25  # outside the range too
BINARY = np.where(np.median(Y) < Y, "yes", "no")
THREE = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))


def assert_sums(explanation, prediction):
    """Baseline and parts give the prediction up to rounding, and fit each other."""
    scale = max(1.0, np.abs(prediction).max())
    assert explanation.values.shape[:2] == explanation.data.shape
    whole = explanation.baseline + explanation.values.sum(axis=1) + explanation.cells_rest
    np.testing.assert_allclose(whole, prediction, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.prediction, prediction, rtol=0, atol=1e-10 * scale)


def assert_centred(explanation, training_prediction):
    """Over the training rows the baseline is the mean, and every column's mean is zero."""
    scale = np.abs(training_prediction).max()
    mean = training_prediction.mean(axis=0)
    np.testing.assert_allclose(explanation.baseline, mean, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.values.mean(axis=0), 0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.linear.mean(axis=0), 0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.cells_rest.mean(axis=0), 0, atol=1e-10 * scale)
