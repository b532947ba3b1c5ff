"""The trees of a fitted random forest for regression, without the forest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees, flatten
from jointleaf._trees.importers.sklearn import node_table
from jointleaf._trees.routing import Router


@dataclass(frozen=True)
class PortableForest:
    """Predicts what scikit-learn's RandomForestRegressor did, number for number.

    Attributes
    ----------
    trees : FlatTrees
        With the values (sum of leaves, K) of all leaves; the prediction is their mean over trees.
    """

    trees: FlatTrees

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
