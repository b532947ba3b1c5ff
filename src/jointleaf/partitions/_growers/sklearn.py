"""Trees grown by scikit-learn: gradient boosting of two kinds, random forests, extra trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import threads
from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, TrainingRows
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.importers.histogram import limited_threads, without_empty_columns
from jointleaf.partitions._base import as_seed
from jointleaf.partitions._growers import base
from jointleaf.partitions._growers.base import Encoding
from jointleaf.partitions._union import LinearPart, fit_linear_part

_MOST_CATEGORIES = 255  # of a column whose categories histogram gradient boosting takes


def _grow_sklearn(
    partitioner: base.TreePartitioner, rows: TrainingRows, kind: str, params: dict[str, Any]
) -> Any:
    """Train scikit-learn's ``<kind>Regressor`` or ``<kind>Classifier``."""
    from sklearn import ensemble

    # One class leaves nothing to split: the regressor then has single leaves, where some of the
    # classifiers raise an error.
    suffix = "Classifier" if rows.n_classes > 1 else "Regressor"
    params = {
        "max_leaf_nodes": partitioner.n_cells,
        "random_state": as_seed(partitioner.random_state),
        **params,
        **(partitioner.options or {}),
    }
    # Targets of these losses must stay positive.
    is_raw = rows.n_classes > 1 or params.get("loss") in ("poisson", "gamma")
    y = rows.y if is_raw else base.standard_target(rows.y)
    model = getattr(ensemble, kind + suffix)(**params)
    return model.fit(rows.X, y, sample_weight=rows.weight)


class GradientBoostingPartitioner(base.TreePartitioner):
    """The leaves of gradient-boosted trees grown by scikit-learn.

    The settings are those of `LightGBMPartitioner`: learning rate 0.1, row and column
    subsampling 0.7 (columns drawn anew for every split), at least 5 rows a leaf. Trees grow
    leaf by leaf, the most useful split first. It runs on one core and takes exact split
    points, so it is slower on many rows.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.GradientBoostingRegressor` or its classifier.
    """

    def _grow(self, rows: TrainingRows) -> Any:
        params = {
            "n_estimators": self._rounds(rows.n_classes),
            "learning_rate": base.LEARNING_RATE,
            "subsample": base.row_fraction(rows.X.shape[0]),
            "max_features": base.SUBSAMPLE,
            "min_samples_leaf": base.least_leaf_rows(rows.X.shape[0]),
            "max_depth": None,
        }
        return _grow_sklearn(self, rows, "GradientBoosting", params)


class RandomForestPartitioner(base.ForestPartitioner):
    """The leaves of a random forest grown by scikit-learn, with its default settings.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.RandomForestRegressor` or its classifier.
    """

    splits_missing = True

    def _grow(self, rows: TrainingRows) -> Any:
        params = {"n_estimators": self.n_partitions, "n_jobs": self._threads()}
        return _grow_sklearn(self, rows, "RandomForest", params)


@dataclass(eq=False, repr=False)
class ExtraTreesPartitioner(base.TreePartitioner):
    """The leaves of extremely randomised trees grown by scikit-learn, default settings.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.ExtraTreesRegressor` or its classifier.
    """

    splits_missing = True

    n_partitions: int = 60
    n_cells: int = 16

    def _grow(self, rows: TrainingRows) -> Any:
        params = {"n_estimators": self.n_partitions, "n_jobs": self._threads()}
        return _grow_sklearn(self, rows, "ExtraTrees", params)


class HistGradientBoostingPartitioner(base.TreePartitioner):
    """The leaves of trees grown by scikit-learn's histogram gradient boosting.

    The settings are close to those of `LightGBMPartitioner`: trees grow leaf by leaf, learning rate
    0.1, at least 5 rows a leaf (fewer where there are fewer than 20 rows), no penalty on leaf
    values, and a fraction 0.7 of the columns, drawn anew for every split. Every tree sees all rows.
    Columns with more than 255 categories are split by the mean targets of their categories.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.HistGradientBoostingRegressor` or its classifier.
    """

    splits_categories = True
    splits_missing = True

    def _grow_trees(self, rows: TrainingRows) -> tuple[FlatTrees, NDArray]:
        most = min(_MOST_CATEGORIES, int((self.options or {}).get("max_bins", _MOST_CATEGORIES)))
        many = rows.columns.n_categories > most
        if not many.any():
            return super()._grow_trees(rows)
        coded = rows._replace(columns=_with_categories(rows.columns, many))
        encoding = Encoding(coded, categories=True, missing=False)
        encoded = encoding.transform(rows)._replace(columns=_with_categories(rows.columns, ~many))
        trees, gains = super()._grow_trees(encoded)
        return encoding.translate(trees), gains

    def _grow(self, rows: TrainingRows) -> Any:
        categorical = rows.columns.categorical
        params: dict[str, Any] = {
            "max_iter": self._rounds(rows.n_classes),
            "learning_rate": base.LEARNING_RATE,
            "max_depth": None,
            "min_samples_leaf": base.least_leaf_rows(rows.X.shape[0]),
            "max_features": base.SUBSAMPLE,
            "l2_regularization": 0.0,
            "categorical_features": categorical if categorical.size else None,
            "early_stopping": False,
        }
        rows = rows._replace(X=without_empty_columns(rows.X, categorical))
        with limited_threads(threads(self.n_jobs)):
            return _grow_sklearn(self, rows, "HistGradientBoosting", params)


def _with_categories(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    """Return columns of which only the chosen ones have categories; the others count as numbers."""
    pairs = zip(columns, chosen, strict=True)
    return Columns(tuple(c if is_chosen else replace(c, categories=None) for c, is_chosen in pairs))


# -- forests on the residuals of a linear model ---------------------------------------------------


class LinearForestPartitioner(base.ForestPartitioner):
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
    from sklearn import ensemble

    linear, residuals = fit_linear_part(rows)
    encoding = Encoding(rows, categories=True, missing=False)
    X = encoding.numbers(rows.X)
    forest = ensemble.RandomForestRegressor(**params).fit(X, residuals, sample_weight=rows.weight)
    return LinearForest(linear, encoding, forest)
