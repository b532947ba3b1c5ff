"""Large randomised trees grown by LightGBM's histograms, for constants that are fitted jointly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import threads
from jointleaf._trees.flat import FlatTrees, TrainingRows, concatenate, flatten
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.importers.lightgbm import LIGHTGBM_PARAMS
from jointleaf.partitions._base import as_seed
from jointleaf.partitions._growers.base import (
    TreePartitioner,
    fine_bins,
    import_library,
    standard_target,
)

_LEAF_ROWS = 5
_LEAF_WEIGHT = 1e-3  # where the mean weight of a row is one
_BIN_ROWS = 10_000  # that the borders of bins are made from
_CODES = 10  # codings of more than two classes, each for a part of the trees


@dataclass(eq=False, repr=False)
class LargeTreesPartitioner(TreePartitioner):
    """The leaves of large randomised trees, grown as LightGBM's random forests are.

    Each tree is grown on a random part of the rows, with at least 5 rows in a leaf (rows with
    weights count by these, in the mean as one). Thresholds are
    either the best of a random half of the columns, on 40 % of the rows, or drawn at random, one
    for every column, on 63 % (extremely randomised trees). With constants in their cells, fitted
    jointly, such trees are a kernel machine whose kernel, the share of trees in which two rows
    meet, is adapted to the target.

    Trees for K > 2 classes are grown on random codings of the classes, numbers -1 and 1, ten
    different ones: every tree separates one half of the classes from the other.

    Parameters
    ----------
    n_partitions, n_cells, random_state, n_jobs, options
        As for `TreePartitioner`; `options` takes any parameter of ``lightgbm.train``.
    thresholds : {"best", "random"}
    """

    splits_categories = True
    splits_missing = True
    rows_reach_all_leaves = True

    n_cells: int = 64
    thresholds: str = "best"

    def _grow_trees(self, rows: TrainingRows) -> tuple[FlatTrees, NDArray]:
        if self.thresholds not in ("best", "random"):
            raise ValueError(
                f"LargeTreesPartitioner: thresholds={self.thresholds!r} is not known: use 'best' "
                "or 'random'"
            )
        lightgbm = import_library(
            self, "LightGBM", "install the package lightgbm and an OpenMP runtime"
        )
        seed = as_seed(self.random_state)
        params = LIGHTGBM_PARAMS.merge(self._params(seed, len(rows.y)), self.options or {})
        params.pop("num_iterations", None)
        if int(params["bagging_fraction"] * len(rows.y)) < 1:  # nothing to grow a tree on
            d = rows.X.shape[1]
            return flatten([], d, rows.columns.n_categories), np.zeros(d)
        targets = _codings(rows, np.random.default_rng(seed))
        data = lightgbm.Dataset(
            rows.X,
            label=targets[0],
            weight=rows.weight,
            categorical_feature=rows.columns.categorical.tolist(),
            params=params,
            free_raw_data=False,
        )
        parts, gains = [], np.zeros(rows.X.shape[1])
        counts = np.diff(np.linspace(0, self.n_partitions, len(targets) + 1).astype(int))
        for k, (target, count) in enumerate(zip(targets, counts.tolist(), strict=True)):
            if count == 0:
                continue
            data.set_label(target)
            model = lightgbm.train(
                {**params, "seed": seed + k}, data, count, keep_training_booster=True
            )
            adapter = find_adapter(model)
            # Leaf values are means of bootstrap samples: no model that sums them is meant.
            parts.append(replace(adapter.trees(model, rows.columns), leaf_values=None))
            gains += adapter.split_gains(model)
            del model  # and its histograms, before the next is trained
        return concatenate(parts), gains

    def _params(self, seed: int, n: int) -> dict[str, Any]:
        is_random = self.thresholds == "random"
        n_bins = 63 if is_random else fine_bins(n)
        return {
            "objective": "regression",
            "boosting": "rf",
            "num_leaves": self.n_cells,
            "extra_trees": is_random,
            "bagging_fraction": 0.63 if is_random else 0.4,
            "bagging_freq": 1,
            "feature_fraction_bynode": 1.0 if is_random else 0.5,
            "max_bin": n_bins,
            "min_data_in_bin": 1,
            "bin_construct_sample_cnt": _BIN_ROWS,
            "min_data_in_leaf": _LEAF_ROWS,
            # LightGBM guesses from weights how many rows a leaf has: this keeps empty ones out.
            "min_sum_hessian_in_leaf": _LEAF_WEIGHT,
            "min_data_per_group": 20,
            "lambda_l2": 0.0,
            "seed": seed,
            "num_threads": threads(self.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


def _codings(rows: TrainingRows, rng: np.random.Generator) -> list[NDArray]:
    """Return the targets that trees are grown on: one, or random codings of several classes."""
    if rows.n_classes == 0:
        return [standard_target(rows.y)]
    classes, number = np.unique(rows.y, return_inverse=True)
    if len(classes) <= 2:
        return [2.0 * number - 1.0]
    half = np.arange(len(classes)) < (len(classes) + 1) // 2
    return [np.where(rng.permutation(half)[number], 1.0, -1.0) for _ in range(_CODES)]
