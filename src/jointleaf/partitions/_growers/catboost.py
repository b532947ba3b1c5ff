"""Trees grown by CatBoost."""

from __future__ import annotations

from typing import Any

from jointleaf._trees.encoding import TrainingRows
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.catboost import (
    CATBOOST_PARAMS,
    NoTrees,
    code_pool,
    fit_quietly,
)
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

_MOST_DEPTH = 16  # that CatBoost grows
#: Fewest columns that are drawn from: CatBoost tosses a coin for every column, and with few
#: columns would often be left without any to split on.
_LEAST_COLUMNS = 8
#: Options that choose a way of sampling rows other than the one set here.
_SAMPLING = {"bootstrap_type", "bagging_temperature", "mvs_reg"}


class CatBoostPartitioner(TreePartitioner):
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

    splits_categories = True
    splits_missing = True

    def _grow(self, rows: TrainingRows) -> Any:
        remedy = "install it with pip install 'jointleaf[catboost]'"
        catboost = import_library(self, "CatBoost", remedy)
        params = self._params(rows)
        label = training_label(rows, is_squared_error=params["loss_function"] == "RMSE")
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
            "learning_rate": LEARNING_RATE,
            "random_seed": as_seed(self.random_state),
            "thread_count": threads(self.n_jobs),
        }
        if rows.n_classes > 2:
            params["loss_function"] = "MultiClass"
        if not _SAMPLING & set(options):
            params |= {"bootstrap_type": "Bernoulli", "subsample": row_fraction(n)}
        if rows.X.shape[1] >= _LEAST_COLUMNS and options.get("task_type") != "GPU":
            params["rsm"] = SUBSAMPLE  # which CatBoost does not take on a GPU
        policy = options.get("grow_policy", "SymmetricTree")
        if policy != "SymmetricTree":
            params["min_data_in_leaf"] = least_leaf_rows(n)
        if policy == "Lossguide":
            params |= {"max_leaves": self.n_cells, "depth": min(_MOST_DEPTH, self.n_cells - 1)}
        return CATBOOST_PARAMS.merge(params, options)
