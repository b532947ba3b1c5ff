"""Linear forests: a global linear model plus a random forest on its residuals.

A baseline that stands alone: nothing is fitted jointly. Its cells are those of
`jointleaf.partitions.LinearForestPartitioner`, with which it shares the linear model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.problem import check_weights
from jointleaf._data.rows import canonical_rows, read_rows, read_training_rows
from jointleaf._trees.flat import FlatTrees, flatten
from jointleaf._trees.importers.sklearn import node_table
from jointleaf._trees.routing import Router
from jointleaf.estimators._checks import number_classes, used_part, warn_of_no_values
from jointleaf.estimators._params import TabularEstimator
from jointleaf.partitions._base import as_seed, check_fit_rows, checked_count
from jointleaf.partitions._growers.sklearn import grow_linear_forest
from jointleaf.partitions._union import LinearPart

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(eq=False, repr=False)
class _BaseLinearForest(TabularEstimator):
    """What the two linear forests share."""

    n_estimators: int = 100
    _: KW_ONLY
    max_leaf_nodes: int | None = None
    categorical_features: Any = "from_dtype"
    options: Mapping[str, Any] | None = None
    n_jobs: int | None = None
    random_state: Any = None

    def _check_parameters(self) -> None:
        checked_count(self, "n_estimators", 1)
        if self.max_leaf_nodes is not None:
            checked_count(self, "max_leaf_nodes", 2)
        if not isinstance(self.options, Mapping | None):
            raise TypeError(f"options={self.options!r} must be a mapping of parameters, or None")

    @abstractmethod
    def _encode_target(self, y: NDArray, part: str = "") -> NDArray:
        """Targets as numbers, class numbers of classes; `part` says of which rows, for messages."""

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> _BaseLinearForest:
        """Fit the linear model, then the forest on its residuals.

        Parameters
        ----------
        X : array-like or data frame (n, d)
            Numbers, missing values (NaN, None), and text or category columns.
        y : array-like (n,)
        sample_weight : array-like (n,), optional
            Zero equals leaving the row out, 2 equals giving it twice.

        Returns
        -------
        self
        """
        self._check_parameters()
        columns, matrix, targets = read_training_rows(
            self,
            X,
            y,
            categorical=self.categorical_features,
            sample_weight=sample_weight,
            y_numeric=self._target_type == "regression",
        )
        weights = check_weights(sample_weight, len(targets))
        keep = weights > 0
        part = used_part(keep)
        warn_of_no_values(matrix[keep], columns, part)
        # Equal rows become one, so that weights and copies mean the same to the bootstrap.
        target = self._encode_target(targets[keep], part)
        merged = canonical_rows(matrix[keep], target, weights[keep])
        rows = check_fit_rows(merged.X, merged.y, merged.s, self._target_type, columns)
        params = {
            "n_estimators": self.n_estimators,
            "max_leaf_nodes": self.max_leaf_nodes,
            "n_jobs": self.n_jobs,
            "random_state": as_seed(self.random_state),
        }
        fitted = grow_linear_forest(rows, {**params, **(self.options or {})})
        self.columns_ = columns
        self.linear_: LinearPart = fitted.linear
        # Threads would add up the trees in the order in which they end: other bits every time.
        self.forest_ = fitted.forest.set_params(n_jobs=1)
        self.encoding_ = fitted.encoding
        return self

    def _linear_and_forest(self, X: ArrayLike) -> NDArray[np.float64]:
        """Sum of both predictions: (n,), or (n, K) for K > 2 classes."""
        check_is_fitted(self)
        matrix = read_rows(self, X)
        # The trees see single precision, in which numbers end here.
        numbers = np.clip(self.encoding_.numbers(matrix), -_LARGEST, _LARGEST)
        return self.linear_.predict(matrix) + self.forest_.predict(numbers)


class LinearForestRegressor(RegressorMixin, _BaseLinearForest):
    """Ridge regression plus a random forest on its residuals.

    The prediction is l(x) + f(x), where l is ridge regression on standardised features, its
    strength chosen by leave-one-out error, and f a random forest grown on y - l(x): the linear
    forest, also called regression-enhanced random forest (Zhang, Nettleton and Zhu 2019).
    Unlike a forest it extrapolates, linearly.

    Parameters
    ----------
    n_estimators : int
        Number of trees.
    max_leaf_nodes : int or None
        Largest number of leaves of a tree; None is no limit.
    categorical_features : "from_dtype", list of names or numbers, or bool array (d,)
        Columns of text or of a category type always hold categories; a list or a mask names
        columns of numbers that do as well.
    options : dict or None
        More parameters of `sklearn.ensemble.RandomForestRegressor`, which override those set here.
    n_jobs : int or None
        Threads; None is 1, -1 all cores.
    random_state : int, RandomState or None
        Seed of the forest.

    Attributes
    ----------
    linear_ : LinearPart
        The linear model.
    forest_ : RandomForestRegressor
        The forest, in units of the standardised target.
    encoding_ : Encoding
        How categories became numbers for the trees.
    columns_ : Columns
        What the columns of X hold.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array (d,)
        Names of the features, where X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from jointleaf import LinearForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> LinearForestRegressor(random_state=0).fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.4
    True
    """

    _target_type = "regression"

    def _encode_target(self, y: NDArray, part: str = "") -> NDArray:
        return np.asarray(y, float)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict targets (n,) of rows X (n, d)."""
        sums = self._linear_and_forest(X)
        return self.linear_.mean + self.linear_.scale * sums


class LinearForestClassifier(ClassifierMixin, _BaseLinearForest):
    """Logistic regression plus a random forest on its residuals.

    With the probabilities p_k(x) of a (multinomial) logistic regression on standardised
    features (scikit-learn's default strength) and a random forest f_k grown on 1[y = k] - p_k(x),
    class k gets the probability max(0, p_k(x) + f_k(x)), divided by the sum over the classes.

    Parameters
    ----------
    n_estimators, max_leaf_nodes, categorical_features, options, n_jobs, random_state
        As for `LinearForestRegressor`.

    Attributes
    ----------
    classes_ : array (K,)
        The class labels.
    linear_, forest_, encoding_, columns_, n_features_in_, feature_names_in_
        As for `LinearForestRegressor`; the forest is a regressor, with K outputs for K > 2.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from jointleaf import LinearForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> LinearForestClassifier(random_state=0).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
    True
    """

    _target_type = "classification"

    def _encode_target(self, y: NDArray, part: str = "") -> NDArray:
        self.classes_, numbers = number_classes(y, part)
        return numbers

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class probabilities (n, K), in the order of ``classes_``."""
        sums = self._linear_and_forest(X)
        if sums.ndim == 1:
            second = np.clip(sums, 0.0, 1.0)
            return np.stack([1.0 - second, second], axis=1)
        positive = np.maximum(sums, 0.0)
        return positive / positive.sum(axis=1, keepdims=True)

    def predict(self, X: ArrayLike) -> NDArray:
        """Predict the class labels (n,) of rows X (n, d)."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@dataclass(frozen=True)
class PortableForest:
    """Predicts what scikit-learn's RandomForestRegressor did, number for number, without it."""

    trees: FlatTrees  # with the values of all leaves, whose mean over trees is the prediction

    @classmethod
    def of(cls, forest: Any) -> PortableForest:
        """Take the trees out of a fitted RandomForestRegressor of one or of K outputs."""
        if isinstance(forest, cls):
            return forest
        trees = [estimator.tree_ for estimator in forest.estimators_]
        tables = [node_table(tree, tree.value[:, :, 0]) for tree in trees]
        return cls(flatten(tables, int(forest.n_features_in_), single_precision=True))

    @cached_property
    def _router(self) -> Router:
        return Router(self.trees)

    def predict(self, X: NDArray) -> NDArray[np.float64]:
        """Predict for rows X (n, d): (n,), or (n, K) for several outputs."""
        means = self.trees.leaf_sums(self._router(X)) / self.trees.n_trees
        return means[:, 0] if means.shape[1] == 1 else means
