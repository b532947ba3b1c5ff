"""Partitioners that grow trees: what they share, and those of LightGBM, XGBoost and CatBoost.

Where a library takes no categories, these become numbers, trees are grown on these, and their
thresholds are then turned back into tables of categories: afterwards nothing tells such trees from
those of a library that splits on categories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import threads
from jointleaf._data.columns import Columns, as_codes
from jointleaf._data.features import mean_and_scale
from jointleaf._trees.flat import FlatTrees, TrainingRows, tables_from_scores
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.importers.catboost import CATBOOST_PARAMS, NoTrees, code_pool, fit_quietly
from jointleaf._trees.importers.lightgbm import LIGHTGBM_PARAMS
from jointleaf._trees.importers.lightgbm import train as train_lightgbm
from jointleaf._trees.importers.xgboost import XGBOOST_PARAMS
from jointleaf._trees.importers.xgboost import train as train_xgboost
from jointleaf.partitions._base import TreeCells, as_seed, checked_count

#: Shared by all kinds of boosting, so that one can stand in for another.
LEARNING_RATE = 0.1
SUBSAMPLE = 0.7
_MIN_LEAF_ROWS = 5
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
#: Rows' worth of the overall mean that every category's mean is pulled by.
_PRIOR_ROWS = 10.0
_BLOCK = 2**18  # numbers of which means are taken at a time


@dataclass(eq=False, repr=False)
class TreePartitioner(TreeCells):
    """Base of the partitioners that grow trees.

    A subclass implements `_grow`, which trains a model of the library, and sets
    `splits_categories` and `splits_missing` where the library takes categories and missing values.
    Where it does not, trees are grown on numbers in their place (`Encoding`).

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
        Further parameters of the library, which override those set here.

    Attributes
    ----------
    trees_ : FlatTrees
        The trees in portable form; the library that grew them is not needed any more.
    n_cells_ : ndarray (P,)
        Number of cells of each partition.
    split_gains_ : ndarray (d,)
        Total gain of each feature's splits; zeros where no split was made.
    n_features_in_ : int
        Number of features d.
    """

    _needs_target = True
    splits_categories: ClassVar[bool] = False
    splits_missing: ClassVar[bool] = False
    #: whether the library never makes a leaf without training rows: then none are routed to know
    rows_reach_all_leaves: ClassVar[bool] = False

    n_partitions: int = 100
    n_cells: int = 4
    random_state: Any = None
    n_jobs: int | None = None
    options: Mapping[str, Any] | None = None

    def _fit_rows(self, rows: TrainingRows) -> None:
        checked_count(self, "n_partitions", 1)
        checked_count(self, "n_cells", 2)
        trees, gains = self._grow_trees(rows)
        if rows.n_classes == 0:  # the library saw the standardised target
            mean, scale = mean_and_scale(rows.y[:, None], np.ones(len(rows.y)))
            trees = trees.scaled(float(scale[0]), float(mean[0]))
        if self.rows_reach_all_leaves:
            self.set_all_leaves(trees, gains)
        else:
            self.number_cells(trees, gains, rows.X)

    def _grow_trees(self, rows: TrainingRows) -> tuple[FlatTrees, NDArray]:
        """Grow trees on what the library takes; return them in portable form with their gains."""
        encoding = None
        categories = rows.columns.categorical.size > 0 and not self.splits_categories
        if categories or not self.splits_missing:
            encoding = Encoding(rows, categories=categories, missing=not self.splits_missing)
            rows = encoding.transform(rows)
        model = self._grow(rows)
        adapter = find_adapter(model)
        trees = adapter.trees(model, rows.columns)
        if encoding is not None:
            trees = encoding.translate(trees)
        return trees, adapter.split_gains(model)

    def _grow(self, rows: TrainingRows) -> Any:
        """Train a model of the library on `rows`, unless `_grow_trees` does without."""
        raise NotImplementedError

    def _rounds(self, n_classes: int) -> int:
        """Return the boosting rounds of `n_partitions` trees: K trees a round for K > 2 classes."""
        trees_per_round = n_classes if n_classes > 2 else 1
        return max(1, round(self.n_partitions / trees_per_round))


@dataclass(eq=False, repr=False)
class ForestPartitioner(TreePartitioner):
    """Base of the partitioners that grow a random forest: 100 trees of 16 leaves by default."""

    n_cells: int = 16


def import_library(partitioner: TreePartitioner, name: str, remedy: str) -> Any:
    """Return the library that grows the trees; the error where it cannot be loaded has a remedy."""
    try:
        return import_module(name.lower())
    except (ImportError, OSError) as cause:
        raise ImportError(
            f"{type(partitioner).__name__} needs {name}, which cannot be loaded ({cause}): {remedy}"
        ) from cause


def standard_target(y: NDArray) -> NDArray[np.float64]:
    """Return `y` with mean 0 and variance 1, because squares of large targets overflow."""
    mean, scale = mean_and_scale(y[:, None], np.ones(len(y)))
    return (y - mean[0]) / scale[0]


def training_label(rows: TrainingRows, *, is_squared_error: bool) -> NDArray:
    """Return the targets as a library of boosting should see them."""
    if rows.n_classes > 0:
        # Trees for a class without rows would be trees for nothing.
        return rows.class_numbers
    # Labels are kept in float32: a large mean would drown the differences.
    return standard_target(rows.y) if is_squared_error else rows.y


def least_leaf_rows(n_rows: int) -> int:
    """Return the least rows of a leaf, fewer for few rows so that these can still be split."""
    return max(1, min(_MIN_LEAF_ROWS, n_rows // 4))


def row_fraction(n_rows: int) -> float:
    """Return the fraction of rows that a tree sees; all where the sample could not be split."""
    return SUBSAMPLE if int(SUBSAMPLE * n_rows) > 1 else 1.0


def fine_bins(n_rows: int) -> int:
    """Return LightGBM's number of bins of a column for trees with the best thresholds.

    One for every 40 rows, 127 to 255: rare values of a column can matter with many rows, and finer
    borders are noise with few.
    """
    return int(np.clip(n_rows // 40, 127, 255))


# -- trees grown by libraries of boosting ----------------------------------------------------------


class _BoostingPartitioner(TreePartitioner):
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
        import_library(
            self,
            "LightGBM",
            "install the package lightgbm and an OpenMP runtime (libgomp, or libomp on macOS), or "
            "use partitioner='gradient_boosting'",
        )
        params = LIGHTGBM_PARAMS.merge(self._params(rows), self.options or {})
        rounds = params.pop("num_iterations")
        label = training_label(rows, is_squared_error=params["objective"] == "regression")
        return train_lightgbm(params, rows._replace(y=label), rounds)

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
        import_library(self, "XGBoost", remedy)
        params = XGBOOST_PARAMS.merge(self._params(rows), self.options or {})
        rounds = params.pop("num_boost_round")
        label = training_label(rows, is_squared_error=params["objective"] == "reg:squarederror")
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


def _within_float32(X: NDArray) -> NDArray:
    """Return `X` with values that XGBoost does not take brought into its range, in their order."""
    with np.errstate(invalid="ignore"):
        if not np.any(np.abs(X) > _LARGEST_VALUE):
            return X
        return np.clip(X, -_LARGEST_VALUE, _LARGEST_VALUE)


# -- numbers for categories ------------------------------------------------------------------------


class Encoding:
    """Numbers for the categories of a table, and for missing values.

    The score of a category is the mean of the standardised target in its rows, pulled towards the
    overall mean by ten rows' worth of it: sum s_i z_i / (sum s_i + 10) over the rows i of the
    category. The order of the means is the one in which a split of the categories into two groups
    is best for squared error (Fisher 1958). With K > 2 classes it is the first principal component
    of the class frequencies of the categories (Coppersmith et al. 1999). Unseen categories have the
    overall mean, which is 0; missing ones are a category of their own. Missing numbers get the
    mean of the column.

    `categories` says whether categories are replaced, `missing` whether missing numbers are filled.
    """

    def __init__(self, rows: TrainingRows, *, categories: bool, missing: bool) -> None:
        s, n_categories = rows.weights, rows.columns.n_categories
        targets = centred_targets(rows, s)
        self._scores = {
            int(j): _category_scores(rows.X[:, j], int(n_categories[j]), targets, s)
            for j in (rows.columns.categorical if categories else ())
        }
        self._fills = {}
        if missing:
            numbers = np.flatnonzero(n_categories == 0)
            fills = _column_means(rows.X, s, numbers)
            with np.errstate(over="ignore"):
                rounded = fills.astype(np.float32)  # in which trees compare them, if they can
            fills = np.where(np.isfinite(rounded), rounded, fills)
            self._fills = dict(zip(numbers.tolist(), fills.tolist(), strict=True))

    @classmethod
    def of(cls, scores: Mapping[int, NDArray], fills: Mapping[int, float]) -> Encoding:
        """Return the encoding with these scores (L + 2,) and fills of columns."""
        encoding = cls.__new__(cls)
        encoding._scores, encoding._fills = dict(scores), dict(fills)
        return encoding

    def parts(self) -> tuple[dict[int, NDArray[np.float64]], dict[int, float]]:
        """Scores (L + 2,) and fills, by column."""
        return self._scores, self._fills

    def transform(self, rows: TrainingRows) -> TrainingRows:
        """Replace codes by scores and fill missing numbers."""
        X = self.numbers(rows.X)
        if X is rows.X:
            return rows
        columns = Columns.numbers(len(rows.columns)) if self._scores else rows.columns
        return rows._replace(X=X, columns=columns)

    def numbers(self, X: NDArray) -> NDArray:
        """Return rows X (n, d) with scores and fills; X itself where it has nothing to replace."""
        has_missing = np.isnan(X).any(axis=0)
        incomplete = [j for j in np.flatnonzero(has_missing).tolist() if j in self._fills]
        if not self._scores and not incomplete:
            return X
        X = X.copy()
        for j, scores in self._scores.items():
            X[:, j] = scores[as_codes(X[:, j], len(scores) - 2)]
        for j in incomplete:
            X[np.isnan(X[:, j]), j] = self._fills[j]
        return X

    def translate(self, trees: FlatTrees) -> FlatTrees:
        """Turn thresholds on scores into tables of categories, and fills into directions."""
        fills = np.full(trees.n_features, np.nan)
        fills[list(self._fills)] = list(self._fills.values())
        fill = fills[trees.feature]
        missing_left = np.where(np.isnan(fill), trees.missing_left, fill <= trees.threshold)
        return tables_from_scores(replace(trees, missing_left=missing_left), self._scores)


def centred_targets(rows: TrainingRows, s: NDArray) -> NDArray:
    """Return targets (n, K), numbers or indicators of the classes, with weighted mean zero.

    Numbers also get variance one: scores are float32, in which targets of 1e-50 or 1e50 would be
    lost.
    """
    if rows.n_classes > 2:
        indicators = (rows.y[:, None] == np.unique(rows.y)).astype(float)
        return indicators - s @ indicators / s.sum()
    y = rows.y[:, None].astype(np.float64)
    mean, scale = mean_and_scale(y, s)
    return (y - mean) / scale


def _column_means(X: NDArray, s: NDArray, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the weighted means of some columns without their missing values; 0 if all are."""
    means = np.zeros(len(columns))
    step = max(1, _BLOCK // max(1, len(X)))  # of columns at a time
    for start in range(0, len(columns), step):
        block = np.ascontiguousarray(X[:, columns[start : start + step]].T)
        missing = np.isnan(block)
        means[start : start + step] = np.multiply(block, s, dtype=np.float64).sum(axis=1) / s.sum()
        for k in np.flatnonzero(missing.any(axis=1)).tolist():
            seen = ~missing[k]
            mean = np.average(block[k, seen], weights=s[seen]) if seen.any() else 0.0
            means[start + k] = mean
    return means


def _category_scores(
    column: NDArray, n_categories: int, targets: NDArray, s: NDArray
) -> NDArray[np.float64]:
    """Return the scores (L + 2,) of categories, rounded to float32, in which trees compare them."""
    codes, size = as_codes(column, n_categories), n_categories + 2
    counts = np.bincount(codes, s, minlength=size)
    sums = np.stack([np.bincount(codes, s * t, minlength=size) for t in targets.T], axis=1)
    means = sums / (counts + _PRIOR_ROWS)[:, None]
    if means.shape[1] == 1:
        scores = means[:, 0]
    else:
        spread = (means * counts[:, None]).T @ means
        scores = means @ np.linalg.eigh(spread)[1][:, -1]
    return scores.astype(np.float32).astype(float)
