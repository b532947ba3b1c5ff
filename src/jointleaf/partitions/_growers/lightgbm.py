"""Trees grown by LightGBM."""

from __future__ import annotations

from typing import Any

from jointleaf._trees.encoding import TrainingRows
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.lightgbm import LIGHTGBM_PARAMS, train
from jointleaf.partitions._base import as_seed
from jointleaf.partitions._growers.base import (
    LEARNING_RATE,
    SUBSAMPLE,
    TreePartitioner,
    import_library,
    least_leaf_rows,
    row_fraction,
    training_label,
)

#: Below this many rows LightGBM may put single rows in a bin of its histograms.
_SMALL_ROWS = 1000


class LightGBMPartitioner(TreePartitioner):
    """The leaves of gradient-boosted trees grown by LightGBM.

    Learning rate 0.1, row and column subsampling 0.7, at least 5 rows a leaf (fewer where
    there are fewer than 20 rows), no penalty on leaf values. Squared error for regression,
    where the target is standardised first (LightGBM stores it in single precision); log-loss
    for classification.

    See `TreePartitioner` for parameters and attributes; `options` takes any parameter of
    ``lightgbm.train`` under any of its names.
    """

    splits_categories = True
    splits_missing = True

    def _grow(self, rows: TrainingRows) -> Any:
        import_library(
            self,
            "LightGBM",
            "install the package lightgbm and an OpenMP runtime (libgomp, or libomp on macOS), or "
            "use partitioner='gradient_boosting'",
        )
        params = LIGHTGBM_PARAMS.merge(self._params(rows), self.options or {})
        rounds = params.pop("num_iterations")
        label = training_label(rows, is_squared_error=params["objective"] == "regression")
        return train(params, rows._replace(y=label), rounds)

    def _params(self, rows: TrainingRows) -> dict[str, Any]:
        n = rows.X.shape[0]
        params: dict[str, Any] = {
            "objective": "regression" if rows.n_classes < 2 else "binary",
            "num_iterations": self._rounds(rows.n_classes),
            "num_leaves": self.n_cells,
            "learning_rate": LEARNING_RATE,
            "bagging_fraction": row_fraction(n),
            "bagging_freq": 1,
            "feature_fraction": SUBSAMPLE,
            "min_data_in_leaf": least_leaf_rows(n),
            # LightGBM's 100 rows of a category are for many rows: with few, none has as many.
            "min_data_per_group": min(100, max(least_leaf_rows(n), n // 50)),
            "lambda_l2": 0.0,
            "seed": as_seed(self.random_state),
            "num_threads": threads(self.n_jobs),
            # Cells must not depend on the number of threads, nor on which of LightGBM's
            # two ways to count a timing picks.
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        if rows.n_classes > 2:
            params |= {"objective": "multiclass", "num_class": rows.n_classes}
        if n < _SMALL_ROWS:
            params["min_data_in_bin"] = 1
        return params
