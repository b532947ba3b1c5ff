"""Trees grown by LightGBM, XGBoost and CatBoost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.encoding import TrainingRows
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.catboost import CATBOOST_PARAMS, NoTrees, code_pool, fit_quietly
from jointleaf._trees.importers.lightgbm import LIGHTGBM_PARAMS
from jointleaf._trees.importers.lightgbm import train as train_lightgbm
from jointleaf._trees.importers.xgboost import XGBOOST_PARAMS
from jointleaf._trees.importers.xgboost import train as train_xgboost
from jointleaf.partitions._base import as_seed
from jointleaf.partitions._growers import base

#: Below this many rows LightGBM may put single rows in a bin of its histograms.
_SMALL_ROWS = 1000
#: XGBoost counts a leaf's rows by their Hessian, which log-loss bounds by this.
_LARGEST_HESSIAN = 0.25
#: XGBoost does not take what float32 cannot hold; cut points reach up to twice the largest value.
_LARGEST_VALUE = float(np.finfo(np.float32).max) / 4
_MOST_DEPTH = 16  # that CatBoost grows
#: Fewest columns that are drawn from: CatBoost tosses a coin for every column, and with few
#: columns would often be left without any to split on.
_LEAST_COLUMNS = 8
#: Options of CatBoost that choose a way of sampling rows other than the one set here.
_SAMPLING = {"bootstrap_type", "bagging_temperature", "mvs_reg"}


class _BoostingPartitioner(base.TreePartitioner):
    """Base of the partitioners whose library splits categories and missing values itself."""

    splits_categories = True
    splits_missing = True


class LightGBMPartitioner(_BoostingPartitioner):
    """The leaves of gradient-boosted trees grown by LightGBM.

    Learning rate 0.1, row and column subsampling 0.7, at least 5 rows a leaf (fewer where
    there are fewer than 20 rows), no penalty on leaf values. Squared error for regression,
    where the target is standardised first (LightGBM stores it in single precision); log-loss
    for classification.

    See `TreePartitioner` for parameters and attributes; `options` takes any parameter of
    ``lightgbm.train`` under any of its names.
    """

    def _grow(self, rows: TrainingRows) -> Any:
        base.import_library(
            self,
            "LightGBM",
            "install the package lightgbm and an OpenMP runtime (libgomp, or libomp on macOS), or "
            "use partitioner='gradient_boosting'",
        )
        params = LIGHTGBM_PARAMS.merge(self._params(rows), self.options or {})
        rounds = params.pop("num_iterations")
        label = base.training_label(rows, is_squared_error=params["objective"] == "regression")
        return train_lightgbm(params, rows._replace(y=label), rounds)

    def _params(self, rows: TrainingRows) -> dict[str, Any]:
        n = rows.X.shape[0]
        params: dict[str, Any] = {
            "objective": "regression" if rows.n_classes < 2 else "binary",
            "num_iterations": self._rounds(rows.n_classes),
            "num_leaves": self.n_cells,
            "learning_rate": base.LEARNING_RATE,
            "bagging_fraction": base.row_fraction(n),
            "bagging_freq": 1,
            "feature_fraction": base.SUBSAMPLE,
            "min_data_in_leaf": base.least_leaf_rows(n),
            # LightGBM's 100 rows of a category are for many rows: with few, none has as many.
            "min_data_per_group": min(100, max(base.least_leaf_rows(n), n // 50)),
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


class XGBoostPartitioner(_BoostingPartitioner):
    """The leaves of gradient-boosted trees grown by XGBoost.

    The settings are those of `LightGBMPartitioner`: trees grow leaf by leaf, learning rate 0.1,
    row and column subsampling 0.7, at least 5 rows a leaf (fewer where there are fewer than 20
    rows), no penalty on leaf values. XGBoost has no bound on the rows of a leaf but one on their
    Hessian: it is 5 for squared error and 1.25, that of 5 undecided rows, for log-loss.

    See `TreePartitioner` for parameters and attributes; `options` takes any parameter of
    ``xgboost.train`` under any of its names.
    """

    def _grow(self, rows: TrainingRows) -> Any:
        remedy = "install it with pip install 'jointleaf[xgboost]'"
        base.import_library(self, "XGBoost", remedy)
        params = XGBOOST_PARAMS.merge(self._params(rows), self.options or {})
        rounds = params.pop("num_boost_round")
        label = base.training_label(
            rows, is_squared_error=params["objective"] == "reg:squarederror"
        )
        return train_xgboost(params, rows._replace(X=_within_float32(rows.X), y=label), rounds)

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
            "learning_rate": base.LEARNING_RATE,
            "subsample": base.row_fraction(n),
            "colsample_bytree": base.SUBSAMPLE,
            "min_child_weight": hessian * base.least_leaf_rows(n),
            "reg_lambda": 0.0,
            "seed": as_seed(self.random_state),
            "nthread": threads(self.n_jobs),
            "verbosity": 0,
        }
        if rows.n_classes > 2:
            params |= {"objective": "multi:softprob", "num_class": rows.n_classes}
        return params


class CatBoostPartitioner(_BoostingPartitioner):
    """The leaves of gradient-boosted trees grown by CatBoost.

    Trees are symmetric, with the same split everywhere on a level, so that they have up to
    ``2 ** floor(log2(n_cells))`` leaves; ``options={"grow_policy": "Lossguide"}`` grows
    leaf by leaf up to `n_cells` of them. Categories are split on statistics of their
    targets. Learning rate 0.1; row subsampling 0.7; column subsampling 0.7 from 8 columns on,
    drawn anew for every split. Squared error for regression, where the target is standardised
    first (CatBoost keeps it in single precision); log-loss for classification, where a round is
    one tree also for several classes.

    See `TreePartitioner` for parameters and attributes; `options` takes any training parameter of
    CatBoost under any of its names. It needs the package catboost.
    """

    def _grow(self, rows: TrainingRows) -> Any:
        remedy = "install it with pip install 'jointleaf[catboost]'"
        catboost = base.import_library(self, "CatBoost", remedy)
        params = self._params(rows)
        label = base.training_label(rows, is_squared_error=params["loss_function"] == "RMSE")
        if label.min() == label.max():  # on which CatBoost does not train
            return NoTrees(rows.X.shape[1])
        return fit_quietly(catboost.CatBoost(params), code_pool(rows._replace(y=label)))

    def _rounds(self, n_classes: int) -> int:
        """Boosting rounds: one tree each, for any number of classes."""
        return self.n_partitions

    def _params(self, rows: TrainingRows) -> dict[str, Any]:
        """Return the parameters, which depend on the options."""
        n = rows.X.shape[0]
        options = CATBOOST_PARAMS.merge(self.options or {})
        params: dict[str, Any] = {
            "loss_function": "RMSE" if rows.n_classes < 2 else "Logloss",
            "iterations": self._rounds(rows.n_classes),
            "depth": min(_MOST_DEPTH, int(self.n_cells).bit_length() - 1),
            "learning_rate": base.LEARNING_RATE,
            "random_seed": as_seed(self.random_state),
            "thread_count": threads(self.n_jobs),
        }
        if rows.n_classes > 2:
            params["loss_function"] = "MultiClass"
        if not _SAMPLING & set(options):
            params |= {"bootstrap_type": "Bernoulli", "subsample": base.row_fraction(n)}
        if rows.X.shape[1] >= _LEAST_COLUMNS and options.get("task_type") != "GPU":
            params["rsm"] = base.SUBSAMPLE  # which CatBoost does not take on a GPU
        policy = options.get("grow_policy", "SymmetricTree")
        if policy != "SymmetricTree":
            params["min_data_in_leaf"] = base.least_leaf_rows(n)
        if policy == "Lossguide":
            params |= {"max_leaves": self.n_cells, "depth": min(_MOST_DEPTH, self.n_cells - 1)}
        return CATBOOST_PARAMS.merge(params, options)


def _within_float32(X: NDArray) -> NDArray:
    """Return `X` with values that XGBoost does not take brought into its range, in their order."""
    with np.errstate(invalid="ignore"):
        if not np.any(np.abs(X) > _LARGEST_VALUE):
            return X
        return np.clip(X, -_LARGEST_VALUE, _LARGEST_VALUE)
