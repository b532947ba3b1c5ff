"""Trees grown by XGBoost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.encoding import TrainingRows
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.xgboost import XGBOOST_PARAMS, train
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

#: XGBoost counts a leaf's rows by their Hessian, which log-loss bounds by this.
_LARGEST_HESSIAN = 0.25
#: XGBoost does not take what float32 cannot hold; cut points reach up to twice the largest value.
_LARGEST_VALUE = float(np.finfo(np.float32).max) / 4


class XGBoostPartitioner(TreePartitioner):
    """The leaves of gradient-boosted trees grown by XGBoost.

    The settings are those of `LightGBMPartitioner`: trees grow leaf by leaf, learning rate 0.1,
    row and column subsampling 0.7, at least 5 rows a leaf (fewer where there are fewer than 20
    rows), no penalty on leaf values. XGBoost has no bound on the rows of a leaf but one on their
    Hessian: it is 5 for squared error and 1.25, that of 5 undecided rows, for log-loss.

    See `TreePartitioner` for parameters and attributes; `options` takes any parameter of
    ``xgboost.train`` under any of its names.
    """

    splits_categories = True
    splits_missing = True

    def _grow(self, rows: TrainingRows) -> Any:
        remedy = "install it with pip install 'jointleaf[xgboost]'"
        import_library(self, "XGBoost", remedy)
        params = XGBOOST_PARAMS.merge(self._params(rows), self.options or {})
        rounds = params.pop("num_boost_round")
        label = training_label(rows, is_squared_error=params["objective"] == "reg:squarederror")
        return train(params, rows._replace(X=_within_float32(rows.X), y=label), rounds)

    def _params(self, rows: TrainingRows) -> dict[str, Any]:
        n = rows.X.shape[0]
        hessian = _LARGEST_HESSIAN if rows.n_classes > 1 else 1.0
        params: dict[str, Any] = {
            "objective": "reg:squarederror" if rows.n_classes < 2 else "binary:logistic",
            "num_boost_round": self._rounds(rows.n_classes),
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_leaves": self.n_cells,
            "max_depth": 0,
            "learning_rate": LEARNING_RATE,
            "subsample": row_fraction(n),
            "colsample_bytree": SUBSAMPLE,
            "min_child_weight": hessian * least_leaf_rows(n),
            "reg_lambda": 0.0,
            "seed": as_seed(self.random_state),
            "nthread": threads(self.n_jobs),
            "verbosity": 0,
        }
        if rows.n_classes > 2:
            params |= {"objective": "multi:softprob", "num_class": rows.n_classes}
        return params


def _within_float32(X: NDArray) -> NDArray:
    """Return `X` with values that XGBoost does not take brought into its range, in their order."""
    with np.errstate(invalid="ignore"):
        if not np.any(np.abs(X) > _LARGEST_VALUE):
            return X
        return np.clip(X, -_LARGEST_VALUE, _LARGEST_VALUE)
