"""Random forests on the residuals of a global linear model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from jointleaf._data.columns import Columns
from jointleaf._data.features import LinearFeatures, mean_and_scale, plan_features
from jointleaf._trees.encoding import Encoding, TrainingRows
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers import find_adapter
from jointleaf.partitions._base import as_seed
from jointleaf.partitions._growers.base import ForestPartitioner

__all__ = [
    "LinearForest",
    "LinearForestPartitioner",
    "LinearPart",
    "fit_linear_part",
    "grow_linear_forest",
]

#: Ridge strengths to choose from, per row.
_STRENGTHS = np.logspace(-6, 1, 15)
_MAX_ITER = 1000


class LinearForestPartitioner(ForestPartitioner):
    """The leaves of a random forest grown on the residuals of a global linear model.

    This is the linear forest, also called regression-enhanced random forest (Zhang, Nettleton and
    Zhu 2019): a linear model takes what is linear in all of space, and the trees split where
    something is left over. The linear model is that of `fit_linear_part`; the forest has
    scikit-learn's default settings and, for K > 2 classes, K outputs.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.RandomForestRegressor`.
    """

    def _grow(self, rows: TrainingRows) -> LinearForest:
        params = {
            "n_estimators": self.n_partitions,
            "max_leaf_nodes": self.n_cells,
            "n_jobs": self._threads(),
            "random_state": as_seed(self.random_state),
        }
        return grow_linear_forest(rows, {**params, **(self.options or {})})

    def _grow_trees(self, rows: TrainingRows) -> tuple[FlatTrees, NDArray]:
        # Unlike other growers: the linear model sees categories, the trees numbers in their place.
        fitted = self._grow(rows)
        adapter = find_adapter(fitted.forest)
        trees = adapter.trees(fitted.forest, Columns.numbers(len(rows.columns)))
        # The leaf values are those of residuals, and no predictions of the target.
        trees = replace(fitted.encoding.translate(trees), leaf_values=None)
        return trees, adapter.split_gains(fitted.forest)


class LinearForest(NamedTuple):
    """A linear model, and a forest on its residuals that sees numbers in place of categories."""

    linear: LinearPart
    encoding: Encoding
    forest: Any


def grow_linear_forest(rows: TrainingRows, params: Mapping[str, Any]) -> LinearForest:
    """Fit the linear model, then scikit-learn's RandomForestRegressor on its residuals.

    Categories are ordered by their mean target, as for other trees: their mean residual is next to
    nothing, because the linear model has an indicator for each.
    """
    from sklearn.ensemble import RandomForestRegressor

    linear, residuals = fit_linear_part(rows)
    encoding = Encoding(rows, categories=True, missing=False)
    X = encoding.numbers(rows.X)
    forest = RandomForestRegressor(**params).fit(X, residuals, sample_weight=rows.weight)
    return LinearForest(linear, encoding, forest)


@dataclass(frozen=True)
class LinearPart:
    """A fitted global linear model.

    Attributes
    ----------
    features : LinearFeatures
        How rows become standardised numbers z (m,).
    coef, intercept : arrays (m,) and (), or (m, K) and (K,) for K > 2 classes
    n_classes : int
        K, 0 in regression.
    mean, scale : float
        Of the target in regression.
    """

    features: LinearFeatures
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    n_classes: int
    mean: float = 0.0
    scale: float = 1.0

    def predict(self, X: NDArray) -> NDArray[np.float64]:
        """Predict for rows X (n, d).

        Returns
        -------
        array (n,) or (n, K)
            Standardised targets (y - mean) / scale; for two classes the probability of the
            second one; for K > 2 classes the probabilities of all.
        """
        raw = self.features.transform(X.astype(np.float64, copy=False)) @ self.coef + self.intercept
        if self.n_classes == 0:
            return raw
        return expit(raw) if raw.ndim == 1 else softmax(raw, axis=1)


def fit_linear_part(rows: TrainingRows) -> tuple[LinearPart, NDArray[np.float64]]:
    """Fit the global linear model and return the residuals.

    The linear features are those of `_data.features`: standardised numbers with the mean for
    missing values, and indicators of categories. In regression it is ridge regression on the
    standardised target, with the strength, 10^-6 to 10 times the number of rows, that has the
    smallest leave-one-out error. In classification it is (multinomial) logistic regression
    with scikit-learn's default strength, and residuals are indicators of the classes minus
    probabilities, 1[y = k] - p_k.

    Parameters
    ----------
    rows : TrainingRows

    Returns
    -------
    part : LinearPart
    residuals : array (n,), or (n, K) for K > 2 classes
    """
    s = rows.weights
    X = rows.X.astype(np.float64, copy=False)
    features = plan_features(X, s, rows.columns).fit(X, s, clip=False)
    if rows.n_classes == 0:
        part, y = _fit_ridge(features, X, rows.y, s)
    else:
        part, y = _fit_logistic(features, X, rows.y, s, rows.n_classes)
    return part, y - part.predict(X)


def _fit_ridge(
    features: LinearFeatures, X: NDArray, y: NDArray, s: NDArray
) -> tuple[LinearPart, NDArray]:
    from sklearn.linear_model import RidgeCV

    mean, scale = mean_and_scale(y[:, None], s)
    target = (y - mean) / scale
    Z = features.transform(X)
    coef, intercept = np.zeros(Z.shape[1]), np.zeros(())
    if Z.any() and target.any():
        model = RidgeCV(alphas=len(y) * _STRENGTHS).fit(Z, target, sample_weight=s)
        coef, intercept = model.coef_, np.asarray(model.intercept_)
    return LinearPart(features, coef, intercept, 0, float(mean[0]), float(scale[0])), target


def _fit_logistic(
    features: LinearFeatures, X: NDArray, y: NDArray, s: NDArray, n_classes: int
) -> tuple[LinearPart, NDArray]:
    from sklearn.linear_model import LogisticRegression

    number = np.unique(y, return_inverse=True)[1]
    Z = features.transform(X)
    if n_classes == 1:  # the residuals are zero
        return LinearPart(features, np.zeros(Z.shape[1]), np.array(np.inf), 1), np.ones(len(y))
    if Z.shape[1] == 0:
        Z = np.zeros((len(y), 1))
    model = LogisticRegression(max_iter=_MAX_ITER).fit(Z, number, sample_weight=s)
    coef, intercept = model.coef_.T[: len(features.plan.names)], model.intercept_
    if n_classes == 2:
        return LinearPart(features, coef[:, 0], intercept[0], 2), number.astype(float)
    return LinearPart(features, coef, intercept, n_classes), np.eye(n_classes)[number]
