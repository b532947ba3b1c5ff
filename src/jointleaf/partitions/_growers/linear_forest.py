"""Random forests on the residuals of a global linear model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from jointleaf._data.columns import Columns
from jointleaf._trees.encoding import Encoding, TrainingRows
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers import find_adapter
from jointleaf.partitions._base import as_seed
from jointleaf.partitions._growers.base import ForestPartitioner
from jointleaf.partitions._union import LinearPart, fit_linear_part


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
