"""The regressor."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from jointleaf._core.losses import Loss, SquaredError
from jointleaf.estimators._base import BaseJOPLEn
from jointleaf.estimators._docs import describe_parameters

__all__ = ["JOPLEnRegressor"]


@describe_parameters
class JOPLEnRegressor(RegressorMixin, BaseJOPLEn):
    """Piecewise linear ensemble for regression, all cells fitted jointly.

    The partitions of a tree ensemble are kept, a linear model is put into every cell, and all of
    them are fitted together with the squared error (f - y)^2 / 2 as one convex problem.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import train_test_split
    >>> from jointleaf import JOPLEnRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> model = JOPLEnRegressor(random_state=0).fit(X_train, y_train)
    >>> model.score(X_test, y_test) > 0.3
    True
    """

    _target_type = "regression"

    def _encode_target(self, y: NDArray) -> tuple[NDArray, Loss]:
        return self._encode_known_target(y), SquaredError()

    def _encode_known_target(self, y: NDArray) -> NDArray:
        return np.asarray(y, float)

    def predict(self, X: ArrayLike) -> NDArray:
        """Predict targets (n,) of rows X (n, d)."""
        return self._raw_predictions(X)
