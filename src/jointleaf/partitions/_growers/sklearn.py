"""Trees grown by scikit-learn: gradient boosting, random forests, extra trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jointleaf.partitions._checks import TrainingRows, as_seed
from jointleaf.partitions._growers.base import (
    LEARNING_RATE,
    SUBSAMPLE,
    TreePartitioner,
    least_leaf_rows,
    row_share,
    standard_target,
)

__all__ = ["ExtraTreesPartitioner", "GradientBoostingPartitioner", "RandomForestPartitioner"]


class _ScikitLearnPartitioner(TreePartitioner):
    """Shared by the partitioners that train an ensemble of scikit-learn."""

    def _grow_sklearn(self, rows: TrainingRows, kind: str, params: dict[str, Any]) -> Any:
        """Train scikit-learn's ``<kind>Regressor`` or ``<kind>Classifier``."""
        from sklearn import ensemble

        # One class leaves nothing to split on; the regressor says so with single leaves
        # where some of the classifiers refuse.
        suffix = "Classifier" if rows.n_classes > 1 else "Regressor"
        ours = {
            "max_leaf_nodes": self.n_cells,
            "random_state": as_seed(self.random_state),
            **params,
        }
        model = getattr(ensemble, kind + suffix)(**{**ours, **(self.options or {})})
        y = rows.y if rows.n_classes > 0 else standard_target(rows.y)
        return model.fit(rows.X, y, sample_weight=rows.weight)


class GradientBoostingPartitioner(_ScikitLearnPartitioner):
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
            "learning_rate": LEARNING_RATE,
            "subsample": row_share(rows.X.shape[0]),
            "max_features": SUBSAMPLE,
            "min_samples_leaf": least_leaf_rows(rows.X.shape[0]),
            "max_depth": None,
        }
        return self._grow_sklearn(rows, "GradientBoosting", params)


class RandomForestPartitioner(_ScikitLearnPartitioner):
    """The leaves of a random forest grown by scikit-learn, with its default settings.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.RandomForestRegressor` or its classifier.
    """

    knows_missing = True

    def __init__(
        self,
        n_partitions: int = 100,
        n_cells: int = 16,
        random_state: Any = None,
        n_jobs: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(n_partitions, n_cells, random_state, n_jobs, options)

    def _grow(self, rows: TrainingRows) -> Any:
        params = {"n_estimators": self.n_partitions, "n_jobs": self._threads()}
        return self._grow_sklearn(rows, "RandomForest", params)


class ExtraTreesPartitioner(_ScikitLearnPartitioner):
    """The leaves of extremely randomised trees grown by scikit-learn, default settings.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.ExtraTreesRegressor` or its classifier.
    """

    knows_missing = True

    def __init__(
        self,
        n_partitions: int = 60,
        n_cells: int = 16,
        random_state: Any = None,
        n_jobs: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(n_partitions, n_cells, random_state, n_jobs, options)

    def _grow(self, rows: TrainingRows) -> Any:
        params = {"n_estimators": self.n_partitions, "n_jobs": self._threads()}
        return self._grow_sklearn(rows, "ExtraTrees", params)
