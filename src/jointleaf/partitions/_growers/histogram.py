"""Trees grown by the histogram gradient boosting of scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Columns
from jointleaf._trees.encoding import Encoding
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.histogram import limited_threads, without_empty_columns
from jointleaf.partitions._checks import TrainingRows, as_seed
from jointleaf.partitions._growers.base import (
    LEARNING_RATE,
    SUBSAMPLE,
    TreePartitioner,
    least_leaf_rows,
    standard_target,
)

__all__ = ["HistGradientBoostingPartitioner"]

_MOST_LEVELS = 255  # of a column whose categories scikit-learn takes


class HistGradientBoostingPartitioner(TreePartitioner):
    """The leaves of trees grown by scikit-learn's histogram gradient boosting.

    The settings are close to those of `LightGBMPartitioner`: trees grow leaf by leaf, learning rate
    0.1, at least 5 rows a leaf (fewer where there are fewer than 20 rows), no penalty on leaf
    values, and a share 0.7 of the columns, drawn anew for every split. Every tree sees all rows.
    Columns with more than 255 levels are split by the mean targets of their levels.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.HistGradientBoostingRegressor` or its classifier.
    """

    knows_categories = True
    knows_missing = True

    def _grow_trees(self, rows: TrainingRows) -> tuple[FlatTrees, NDArray]:
        most = min(_MOST_LEVELS, int((self.options or {}).get("max_bins", _MOST_LEVELS)))
        many = rows.columns.n_categories > most
        if not many.any():
            return super()._grow_trees(rows)
        encoding = Encoding(
            rows._replace(columns=_only(rows.columns, many)), levels=True, gaps=False
        )
        encoded = encoding.transform(rows)._replace(columns=_only(rows.columns, ~many))
        trees, gains = super()._grow_trees(encoded)
        return encoding.translate(trees), gains

    def _grow(self, rows: TrainingRows) -> Any:
        from sklearn import ensemble

        categorical = rows.columns.categorical
        params: dict[str, Any] = {
            "max_iter": self._rounds(rows.n_classes),
            "learning_rate": LEARNING_RATE,
            "max_leaf_nodes": self.n_cells,
            "max_depth": None,
            "min_samples_leaf": least_leaf_rows(rows.X.shape[0]),
            "max_features": SUBSAMPLE,
            "l2_regularization": 0.0,
            "categorical_features": categorical if categorical.size else None,
            "early_stopping": False,
            "random_state": as_seed(self.random_state),
            **(self.options or {}),
        }
        # One class leaves nothing to split on; the regressor says so with single leaves.
        suffix = "Classifier" if rows.n_classes > 1 else "Regressor"
        model = getattr(ensemble, "HistGradientBoosting" + suffix)(**params)
        y = rows.y
        if rows.n_classes < 2 and params.get("loss", "squared_error") == "squared_error":
            y = standard_target(y)
        with limited_threads(threads(self.n_jobs)):
            return model.fit(
                without_empty_columns(rows.X, categorical), y, sample_weight=rows.weight
            )


def _only(columns: Columns, keep: NDArray[np.bool_]) -> Columns:
    """Give columns whose levels are kept where `keep` is true; the others count as numbers."""
    return Columns(
        tuple(
            column if kept else replace(column, categories=None)
            for column, kept in zip(columns, keep, strict=True)
        )
    )
