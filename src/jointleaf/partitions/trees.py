"""Partitioners that grow an ensemble of trees: boosting and forests."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf.partitions.base import Task
from jointleaf.partitions.cells import EnsemblePartitioner
from jointleaf.partitions.checks import TrainingRows, as_seed, check_count, check_fit_rows
from jointleaf.partitions.ensembles import lightgbm_threads, merge_lightgbm_params
from jointleaf.scaling import mean_and_scale

__all__ = [
    "ExtraTreesPartitioner",
    "GradientBoostingPartitioner",
    "LightGBMPartitioner",
    "RandomForestPartitioner",
    "TreePartitioner",
]

#: Shared by both kinds of boosting, so that one can stand in for the other.
_LEARNING_RATE = 0.1
_SUBSAMPLE = 0.7
_MIN_LEAF_ROWS = 5
#: Below this many rows LightGBM may put single rows in a bin of its histograms.
_SMALL_ROWS = 1000


def _standard_target(y: NDArray) -> NDArray[np.float64]:
    """Mean 0 and variance 1: splits depend on neither, but squares of large targets overflow."""
    mean, scale = mean_and_scale(y[:, None], np.ones(len(y)))
    return (y - mean[0]) / scale[0]


class TreePartitioner(EnsemblePartitioner):
    """Base of the partitioners that grow trees.

    A subclass implements `_grow`, which trains the library's model.

    Parameters
    ----------
    n_partitions : int
        Number P of trees. Boosting for K > 2 classes grows K trees in every round: there
        are ``max(1, round(n_partitions / K))`` rounds of K trees each then. Fewer trees
        come out where the library stops because nothing is left to split.
    n_cells : int
        Largest number of leaves of a tree.
    random_state : int, RandomState or None
        Seed of row and column sampling. The same seed gives the same cells.
    n_jobs : int or None
        Threads; None is 1, -1 all cores. The cells do not depend on it.
    options : dict or None
        More parameters of the library's own, which override those set here.

    Attributes
    ----------
    model_ : object
        The trained ensemble.
    n_cells_ : ndarray (P,)
        Number of cells of each partition.
    split_gains_ : ndarray (d,)
        Total gain of each feature's splits; zeros where no split was made.
    n_features_in_ : int
        Number of features d.
    """

    n_partitions: int
    n_cells: int
    random_state: Any
    options: Mapping[str, Any] | None
    _default_jobs = 1

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        task: Task = "regression",
    ) -> TreePartitioner:
        """Grow the trees.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
            Numbers, or class numbers for ``task="classification"``.
        sample_weight : array-like (n,), optional
        task : {"regression", "classification"}

        Returns
        -------
        self
        """
        check_count(self, "n_partitions", self.n_partitions, 1)
        check_count(self, "n_cells", self.n_cells, 2)
        if y is None:
            raise ValueError(f"{type(self).__name__} grows trees on targets; give y.")
        rows = check_fit_rows(X, y, sample_weight, task)
        self._take_cells(self._grow(rows), rows.X)
        return self

    @abstractmethod
    def _grow(self, rows: TrainingRows) -> Any:
        """Train the library's model on `rows`."""

    def _rounds(self, n_classes: int) -> int:
        """Boosting rounds that give `n_partitions` trees: K trees a round for K > 2 classes."""
        trees_per_round = n_classes if n_classes > 2 else 1
        return max(1, round(self.n_partitions / trees_per_round))

    def _threads(self) -> int:
        return 1 if self.n_jobs is None else int(self.n_jobs)

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
        y = rows.y if rows.n_classes > 0 else _standard_target(rows.y)
        return model.fit(rows.X, y, sample_weight=rows.weight)


def _min_leaf_rows(n_rows: int) -> int:
    """Least rows of a leaf, lowered for few rows so that something can still be split."""
    return max(1, min(_MIN_LEAF_ROWS, n_rows // 4))


def _row_share(n_rows: int) -> float:
    """Share of rows that a tree sees; all where the sample could not be split."""
    return _SUBSAMPLE if int(_SUBSAMPLE * n_rows) > 1 else 1.0


class LightGBMPartitioner(TreePartitioner):
    """The leaves of gradient-boosted trees grown by LightGBM.

    Learning rate 0.1, row and column subsampling 0.7, at least 5 rows a leaf (fewer where
    there are fewer than 20 rows), no penalty on leaf values. Squared error for regression,
    where the target is standardised first (LightGBM stores it in single precision); log-loss
    for classification.

    See `TreePartitioner` for parameters and attributes; `options` takes any parameter of
    ``lightgbm.train`` under any of its names.
    """

    def __init__(
        self,
        n_partitions: int = 100,
        n_cells: int = 4,
        random_state: Any = None,
        n_jobs: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_partitions = n_partitions
        self.n_cells = n_cells
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.options = options

    def _grow(self, rows: TrainingRows) -> Any:
        try:
            import lightgbm
        except (ImportError, OSError) as cause:
            raise ImportError(
                f"LightGBMPartitioner needs LightGBM, which cannot be loaded ({cause}). "
                "Install the package lightgbm and an OpenMP runtime (libgomp, or libomp on "
                'macOS), or use partitioner="gradient_boosting".'
            ) from cause
        params = merge_lightgbm_params(self._params(rows), self.options or {})
        rounds = params.pop("num_iterations")
        label = rows.y
        if rows.n_classes > 0:
            # Trees for a class without rows would be trees for nothing.
            label = np.unique(label, return_inverse=True)[1]
        elif params["objective"] == "regression":
            # LightGBM keeps labels in float32: a large mean would drown the differences.
            label = _standard_target(label)
        data = lightgbm.Dataset(rows.X, label=label, weight=rows.weight, params=params)
        return lightgbm.train(params, data, num_boost_round=rounds)

    def _params(self, rows: TrainingRows) -> dict[str, Any]:
        n = rows.X.shape[0]
        params: dict[str, Any] = {
            "objective": "regression" if rows.n_classes < 2 else "binary",
            "num_iterations": self._rounds(rows.n_classes),
            "num_leaves": self.n_cells,
            "learning_rate": _LEARNING_RATE,
            "bagging_fraction": _row_share(n),
            "bagging_freq": 1,
            "feature_fraction": _SUBSAMPLE,
            "min_data_in_leaf": _min_leaf_rows(n),
            "lambda_l2": 0.0,
            "seed": as_seed(self.random_state),
            "num_threads": lightgbm_threads(self._threads()),
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


class GradientBoostingPartitioner(TreePartitioner):
    """The leaves of gradient-boosted trees grown by scikit-learn.

    The settings are those of `LightGBMPartitioner`: learning rate 0.1, row and column
    subsampling 0.7 (columns drawn anew for every split), at least 5 rows a leaf. Trees grow
    leaf by leaf, the most useful split first. It runs on one core and takes exact split
    points, so it is slower on many rows.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.GradientBoostingRegressor` or its classifier.
    """

    def __init__(
        self,
        n_partitions: int = 100,
        n_cells: int = 4,
        random_state: Any = None,
        n_jobs: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_partitions = n_partitions
        self.n_cells = n_cells
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.options = options

    def _grow(self, rows: TrainingRows) -> Any:
        params = {
            "n_estimators": self._rounds(rows.n_classes),
            "learning_rate": _LEARNING_RATE,
            "subsample": _row_share(rows.X.shape[0]),
            "max_features": _SUBSAMPLE,
            "min_samples_leaf": _min_leaf_rows(rows.X.shape[0]),
            "max_depth": None,
        }
        return self._grow_sklearn(rows, "GradientBoosting", params)


class RandomForestPartitioner(TreePartitioner):
    """The leaves of a random forest grown by scikit-learn, with its default settings.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.RandomForestRegressor` or its classifier.
    """

    def __init__(
        self,
        n_partitions: int = 100,
        n_cells: int = 16,
        random_state: Any = None,
        n_jobs: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_partitions = n_partitions
        self.n_cells = n_cells
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.options = options

    def _grow(self, rows: TrainingRows) -> Any:
        params = {"n_estimators": self.n_partitions, "n_jobs": self._threads()}
        return self._grow_sklearn(rows, "RandomForest", params)


class ExtraTreesPartitioner(TreePartitioner):
    """The leaves of extremely randomised trees grown by scikit-learn, default settings.

    See `TreePartitioner` for parameters and attributes; `options` goes to
    `sklearn.ensemble.ExtraTreesRegressor` or its classifier.
    """

    def __init__(
        self,
        n_partitions: int = 60,
        n_cells: int = 16,
        random_state: Any = None,
        n_jobs: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_partitions = n_partitions
        self.n_cells = n_cells
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.options = options

    def _grow(self, rows: TrainingRows) -> Any:
        params = {"n_estimators": self.n_partitions, "n_jobs": self._threads()}
        return self._grow_sklearn(rows, "ExtraTrees", params)
