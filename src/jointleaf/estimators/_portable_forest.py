"""The trees of a fitted random forest for regression, without the forest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees, NodeTable, flatten
from jointleaf._trees.routing import Router

__all__ = ["PortableForest"]


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
        tables = []
        for estimator in forest.estimators_:
            tree = estimator.tree_
            tables.append(
                NodeTable(
                    tree.feature,
                    tree.threshold,
                    tree.children_left,
                    tree.children_right,
                    tree.missing_go_to_left,
                    value=tree.value[:, :, 0],
                )
            )
        return cls(flatten(tables, int(forest.n_features_in_), single_precision=True))

    @cached_property
    def _router(self) -> Router:
        return Router(self.trees)

    def predict(self, X: NDArray) -> NDArray[np.float64]:
        """Predict for rows X (n, d): (n,), or (n, K) for several outputs."""
        values = self.trees.leaf_values
        assert values is not None
        sums = np.zeros((len(X), values.shape[1]))
        for leaf in (self._router(X) + self.trees.leaf_starts[:-1]).T:
            sums += values[leaf]
        sums /= self.trees.n_trees
        return sums[:, 0] if values.shape[1] == 1 else sums
