"""LightGBM models: the scikit-learn classes and the plain Booster."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from jointleaf._core.arrays import threads
from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, NodeTable, TrainingRows, flatten, number_nodes
from jointleaf._trees.importers import base
from jointleaf._trees.routing import ZERO

#: Names of the parameters that jointleaf sets or takes away.
LIGHTGBM_PARAMS = base.ParamAliases(
    {
        "bagging_fraction": ("sub_row", "subsample", "bagging"),
        "bagging_freq": ("subsample_freq",),
        "categorical_feature": ("cat_feature", "categorical_column", "cat_column"),
        "early_stopping_round": ("early_stopping_rounds", "early_stopping", "n_iter_no_change"),
        "feature_fraction": ("sub_feature", "colsample_bytree"),
        "lambda_l2": ("reg_lambda", "lambda"),
        "learning_rate": ("shrinkage_rate", "eta"),
        "min_data_in_leaf": (
            *("min_data_per_leaf", "min_data", "min_child_samples", "min_samples_leaf"),
        ),
        "num_class": ("num_classes",),
        "num_iterations": (
            *("num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds"),
            *("nrounds", "num_boost_round", "n_estimators", "max_iter"),
        ),
        "num_leaves": ("num_leaf", "max_leaves", "max_leaf", "max_leaf_nodes"),
        "num_threads": ("num_thread", "nthread", "nthreads", "n_jobs"),
        "objective": ("objective_type", "app", "application", "loss"),
        "seed": ("random_seed", "random_state"),
        "verbosity": ("verbose",),
    }
)
#: Kinds of missing values of a split: zeros and NaN, or NaN alone.
_ZERO_MISSING, _NAN_MISSING = 1, 2
_CATEGORIES = "cat_threshold"  # the line of a tree's splits on categories
_BELOW_ZERO = float(np.nextafter(-ZERO, -np.inf))


class LightGBMAdapter(base.EnsembleAdapter):
    """LightGBM models: the scikit-learn classes and the plain `Booster`.

    A model that stopped early is used up to its best round, as its own ``predict`` does.
    """

    library = "lightgbm"
    model_classes = ("LGBMRegressor", "LGBMClassifier", "Booster")

    def is_fitted(self, model: Any) -> bool:
        """Return whether `model` has been trained; a Booster is once it has a tree."""
        if hasattr(model, "num_trees"):
            return model.num_trees() > 0
        return super().is_fitted(model)

    def is_classifier(self, model: Any) -> bool:
        if not hasattr(model, "num_trees"):
            return is_classifier(model)
        return _booster_objective(model).startswith(("binary", "multiclass"))

    def n_features(self, model: Any) -> int:
        return int(_booster(model).num_feature())

    def feature_names(self, model: Any) -> list[str] | None:
        names = _booster(model).feature_name()
        made_up = [f"Column_{j}" for j in range(len(names))]
        return None if names == made_up else names

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Return the columns declared categorical; their categories where pandas had them."""
        text = ModelText(_booster(model))
        categories = text.pandas_categories
        if len(categories) != len(text.categorical):  # a matrix of whole numbers
            return dict.fromkeys(text.categorical)
        return {j: np.array(c) for j, c in zip(text.categorical, categories, strict=True)}

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        return read_trees(ModelText(_booster(model)), columns)

    def split_gains(self, model: Any) -> NDArray:
        return _booster(model).feature_importance(importance_type="gain")

    def regrow(
        self, model: Any, rows: TrainingRows, *, random_state: int | None, n_jobs: int | None
    ) -> Any:
        # LightGBM has fixed seeds of its own. Training is made quiet and independent of threads.
        booster = _booster(model)
        best = booster.best_iteration
        rounds = best if best > 0 else booster.current_iteration()
        if booster is model:
            return _retrain_booster(model, rounds, rows, n_jobs)
        model_params = model.get_params()
        params: dict[str, Any] = {"n_estimators": rounds, "deterministic": True}
        if not model_params.get("force_col_wise"):
            params["force_row_wise"] = True
        if not {"verbose", "verbosity"} & set(model_params):
            params["verbose"] = -1
        if model_params.get("n_jobs") is None:
            params["n_jobs"] = n_jobs
        # Nothing is left to stop early on: the rounds are those the model stopped at.
        for name in model_params:
            if LIGHTGBM_PARAMS.name(name) == "early_stopping_round":
                params[name] = None
        rows = base.with_labels(model, rows)
        class_weight = model_params.get("class_weight")
        if isinstance(class_weight, Mapping):  # LightGBM does not take weights of absent classes
            present = set(rows.y.tolist())
            params["class_weight"] = {k: v for k, v in class_weight.items() if k in present}
        categorical = rows.columns.categorical.tolist()
        return base.fit_clone(model, params, rows, categorical_feature=categorical)


def _booster(model: Any) -> Any:
    return model if hasattr(model, "num_trees") else model.booster_


def _booster_objective(booster: Any) -> str:
    """Return the objective's name, "" for a custom one, from the head of the model text."""
    head = booster.model_to_string(num_iteration=1).split("\nTree=", 1)[0]
    match = re.search(r"^objective=(\S*)", head, re.MULTILINE)
    return match[1] if match else ""


def _booster_params(booster: Any) -> dict[str, Any]:
    """Return the parameters a Booster was trained with.

    LightGBM up to 4.6 reads them back from a model file only, not from a model text.
    """
    if booster.params:
        return booster.params
    import lightgbm

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.txt"
        booster.save_model(path, num_iteration=1)
        return lightgbm.Booster(model_file=path).params


def train(params: dict[str, Any], rows: TrainingRows, n_rounds: int) -> Any:
    """Train a Booster on rows."""
    import lightgbm

    data = lightgbm.Dataset(
        rows.X,
        label=rows.y,
        weight=rows.weight,
        categorical_feature=rows.columns.categorical.tolist(),
        params=params,
    )
    return lightgbm.train(params, data, num_boost_round=n_rounds)


def _retrain_booster(booster: Any, rounds: int, rows: TrainingRows, n_jobs: int | None) -> Any:
    if _booster_objective(booster) in ("", "custom", "none"):
        raise ValueError(
            "This LightGBM Booster was trained with a custom objective, which it does not hold, so "
            "that it cannot be trained again: use an LGBMRegressor or LGBMClassifier with that "
            "objective"
        )
    booster_params = _booster_params(booster)
    params: dict[str, Any] = {"verbosity": -1, "deterministic": True}
    if not booster_params.get("force_col_wise"):
        params["force_row_wise"] = True
    if n_jobs is not None:
        params["num_threads"] = threads(n_jobs)
    params = LIGHTGBM_PARAMS.merge(booster_params, params)
    for name in ("num_iterations", "early_stopping_round", "categorical_feature"):
        params.pop(name, None)
    return train(params, rows, rounds)


class ModelText:
    """A Booster's model text: blocks of ``name=values`` lines, one block per tree."""

    def __init__(self, booster: Any, n_rounds: int | None = None) -> None:
        self._text = booster.model_to_string(num_iteration=n_rounds)  # None: up to the best round

    def _entry(self, pattern: str) -> str:
        """Return the first group of the line with this pattern, "" where there is none."""
        match = re.search(f"^{pattern}$", self._text, re.MULTILINE)
        return match[1] if match else ""

    @property
    def categorical(self) -> list[int]:
        """Columns declared categorical, in rising order."""
        columns = self._entry(r"\[categorical_feature: ([\d,]*)\]")
        return sorted({int(j) for j in columns.split(",")}) if columns else []

    @property
    def pandas_categories(self) -> list[list]:
        """Categories of the category columns of the data frame, if the model was trained on one."""
        return json.loads(self._entry("pandas_categorical:(.*)") or "null") or []

    @property
    def n_outputs(self) -> int:
        """K, the trees of a round."""
        return int(self._entry(r"num_tree_per_iteration=(\d+)") or 1)

    @property
    def is_averaged(self) -> bool:
        """Whether raw predictions are means over rounds."""
        return bool(self._entry("(average_output)"))

    @cached_property
    def trees(self) -> list[dict[str, str]]:
        """The lines of every tree."""
        trees = []
        for block in self._text.split("\nTree=")[1:]:
            lines = block.split("\n\n", 1)[0].splitlines()[1:]
            trees.append(dict(line.split("=", 1) for line in lines if "=" in line))
        return trees

    def column(self, name: str, dtype: Any) -> NDArray:
        """The numbers of a line, of all trees in a row."""
        return np.array(" ".join(tree.get(name, "") for tree in self.trees).split(), dtype=dtype)

    @cached_property
    def nodes(self) -> TreeNodes:
        """The nodes of all trees, and how they hang together."""
        n_leaves = self.column("num_leaves", int)
        n_splits, sizes = n_leaves - 1, 2 * n_leaves - 1
        roots = np.cumsum(sizes) - sizes
        number = np.arange(sizes.sum()) - np.repeat(roots, sizes)  # of a node in its tree
        tree = np.repeat(np.arange(len(sizes)), n_splits)
        left, right = (
            roots[tree] + np.where(child < 0, n_splits[tree] + ~child, child)
            for child in (self.column(name, int) for name in ("left_child", "right_child"))
        )
        return TreeNodes(roots, tree, left, right, is_leaf=number >= np.repeat(n_splits, sizes))


class TreeNodes(NamedTuple):
    """The nodes of all T trees: of every tree its splits, then its leaves, as LightGBM has them."""

    roots: NDArray[np.intp]  # (T,) where the nodes of every tree begin
    tree: NDArray[np.intp]  # (N,) of every split
    left: NDArray[np.intp]  # (N,) the nodes below every split
    right: NDArray[np.intp]
    is_leaf: NDArray[np.bool_]  # (m,) of all nodes

    def spread(self, values: NDArray, leaf_value: float) -> NDArray:
        """Return values (N,) of splits as values of all nodes, with `leaf_value` in leaves."""
        spread = np.full(len(self.is_leaf), leaf_value, values.dtype)
        spread[~self.is_leaf] = values
        return spread


def read_trees(text: ModelText, columns: Columns, *, has_values: bool = True) -> FlatTrees:
    """Return the trees of a model text in portable form, up to the best round."""
    nodes = text.nodes
    if not len(nodes.roots):
        return flatten([], len(columns), columns.n_categories)
    splits = _read_splits(text)
    kinds = set(splits.kind[~splits.is_category].tolist())
    if {_ZERO_MISSING, _NAN_MISSING} <= kinds:
        raise ValueError(
            "This LightGBM model was trained partly with zero_as_missing and partly without, so "
            "that zeros mean two things: train all its trees in one way"
        )
    tables = _category_tables(text, splits, _category_numbers(text, columns))
    split_nodes = np.flatnonzero(~nodes.is_leaf)
    table = NodeTable(
        feature=nodes.spread(splits.feature, -1),
        threshold=nodes.spread(splits.threshold, 0.0),
        left=nodes.spread(nodes.left, -1),
        right=nodes.spread(nodes.right, -1),
        missing_left=nodes.spread(splits.missing_left, False),
        categories_left={int(split_nodes[k]): left for k, left in tables.items()},
        value=_leaf_values(text) if has_values else None,
        roots=nodes.roots,
    )
    zero_is_missing = _ZERO_MISSING in kinds
    return flatten([table], len(columns), columns.n_categories, zero_is_missing=zero_is_missing)


def _category_numbers(text: ModelText, columns: Columns) -> dict[int, NDArray[np.float64]]:
    """Return LightGBM's numbers (L + 1,) of categories and of unseen ones; NaN where it has none.

    A number may be compared with a threshold, too: LightGBM takes ordered categories of pandas
    for numbers.
    """
    categorical = [int(j) for j in columns.categorical]
    is_text = {j: columns[j].categories.dtype.kind in "UO" for j in categorical}
    owners = _pandas_owners(text, is_text)
    numbers = {}
    for j in categorical:
        native_categories = owners.get(j)
        if native_categories is None and is_text[j]:
            raise ValueError(
                f"column {columns[j].label} holds text, on which the LightGBM model was not "
                "trained: use the numbers that it was trained on"
            )
        number = base.native_codes(columns[j].categories, native_categories).astype(np.float64)
        number[-1:] = np.nan
        if native_categories is not None:
            number[number < 0] = np.nan
        numbers[j] = number
    return numbers


def _pandas_owners(text: ModelText, is_text: Mapping[int, bool]) -> dict[int, list]:
    """Return the columns of the categories that the model text lists for a data frame.

    It does not name them. They are those of the columns declared categorical, unless the frame
    also had ordered categories or declared columns of whole numbers; then text tells them apart.
    """
    lists = text.pandas_categories
    holds_text = [any(isinstance(category, str) for category in entry) for entry in lists]
    owners = text.categorical
    if len(owners) == len(lists) and all(
        is_text.get(j, here) == here for j, here in zip(owners, holds_text, strict=True)
    ):
        return dict(zip(owners, lists, strict=True))
    owners = [j for j, here in is_text.items() if here]
    if lists and (not all(holds_text) or len(lists) != len(owners)):
        raise ValueError(
            f"The LightGBM model was trained on a data frame with {len(lists)} category columns, "
            "and it does not name them: make all columns with categories of the (unordered) "
            "category type, or none"
        )
    return dict(zip(owners, lists, strict=False))


class _Splits(NamedTuple):
    """All splits, tree after tree; `kind` is the kind of missing values."""

    feature: NDArray[np.intp]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    is_category: NDArray[np.bool_]
    kind: NDArray[np.intp]


def _read_splits(text: ModelText) -> _Splits:
    """Read the splits.

    ``decision_type`` holds bits: 1 categories, 2 missing values go left, and 4 times the kind of
    missing values: 0 none (a missing value counts as zero), 1 zeros, 2 NaN. On categories all
    but the listed categories go right, missing ones too.
    """
    decision, threshold = text.column("decision_type", int), text.column("threshold", float)
    is_category, kind = decision & 1 > 0, decision >> 2 & 3
    # LightGBM makes zeros of numbers up to 1e-35 before it compares them.
    is_zero = (np.abs(threshold) <= ZERO) & ~is_category
    threshold = np.where(is_zero, np.where(threshold < 0, _BELOW_ZERO, ZERO), threshold)
    missing_left = np.where(kind == 0, threshold >= 0, decision & 2 > 0) & ~is_category
    return _Splits(text.column("split_feature", int), threshold, missing_left, is_category, kind)


def _category_tables(
    text: ModelText, splits: _Splits, numbers: Mapping[int, NDArray[np.float64]]
) -> dict[int, NDArray[np.bool_]]:
    """Return which codes go left at the splits on columns that have categories here.

    `numbers` are LightGBM's numbers of our categories, column by column. A split ``number <=
    threshold`` on such a column (ordered categories of pandas) becomes a table as well; categories
    without a number go the way of missing values, which pandas makes of them.
    """
    tables = {}
    bits_of = {k: _category_bits(tree) for k, tree in enumerate(text.trees) if _CATEGORIES in tree}
    for k in np.flatnonzero(splits.is_category | np.isin(splits.feature, list(numbers))).tolist():
        number = numbers.get(int(splits.feature[k]))
        if number is None:
            raise ValueError(
                f"The LightGBM model splits column {splits.feature[k]} by categories, but it holds "
                "numbers here: name it in categorical_features"
            )
        if splits.is_category[k]:
            bits = bits_of[int(text.nodes.tree[k])][int(splits.threshold[k])]
            inside = (number >= 0) & (number < len(bits))
            tables[k] = inside & bits[np.where(inside, number, 0).astype(np.intp)]
        else:
            is_missing = np.isnan(number) | ((splits.kind[k] == _ZERO_MISSING) & (number == 0))
            below = number <= splits.threshold[k]
            tables[k] = np.where(is_missing, splits.missing_left[k], below)
    return tables


def _category_bits(tree: Mapping[str, str]) -> list[NDArray[np.bool_]]:
    """Return which numbers go left, for every split of a tree on categories in LightGBM's order."""
    words = np.array(tree[_CATEGORIES].split(), dtype=np.uint32)
    bounds = np.array(tree["cat_boundaries"].split(), dtype=int)
    return [base.set_bits(part) for part in np.split(words, bounds[1:-1])]


def _leaf_values(text: ModelText) -> NDArray | None:
    """Return values (m, K) of all nodes, zeros for splits; None where leaves hold linear models."""
    if any(tree.get("is_linear", "0") != "0" for tree in text.trees):
        return None
    is_leaf, n_trees, n_outputs = text.nodes.is_leaf, len(text.trees), text.n_outputs
    tree = np.repeat(np.arange(n_trees), text.column("num_leaves", int))
    values = np.zeros((len(is_leaf), n_outputs))
    values[is_leaf, tree % n_outputs] = text.column("leaf_value", float)
    # A forest grown by LightGBM averages its trees, boosting adds them.
    return values * (n_outputs / n_trees) if text.is_averaged else values


class LeafModels(NamedTuple):
    """What the leaves of all trees add to raw predictions, tree after tree, from left to right.

    Leaf l adds ``constants[l] + slopes[l] @ x`` to output ``outputs[l]``.
    """

    constants: NDArray[np.float64]  # (L,)
    slopes: NDArray[np.float64]  # (L, d)
    outputs: NDArray[np.intp]  # (L,)


def leaf_models(text: ModelText, n_features: int) -> LeafModels:
    """Read the leaves of a model that was trained with ``linear_tree`` or without."""
    n_leaves = text.column("num_leaves", int)
    tree = np.repeat(np.arange(len(n_leaves)), n_leaves)
    # Of a model with linear models the first tree holds constants all the same.
    is_linear = np.array([one.get("is_linear", "0") != "0" for one in text.trees])[tree]
    constants = text.column("leaf_value", float)
    slopes = np.broadcast_to(0.0, (len(tree), n_features))  # takes no memory
    if is_linear.any():
        slopes = slopes.copy()
        constants[is_linear] = text.column("leaf_const", float)
        leaf = np.repeat(np.flatnonzero(is_linear), text.column("num_features", int))
        slopes[leaf, text.column("leaf_features", int)] = text.column("leaf_coeff", float)
    nodes = text.nodes
    left, right = (nodes.spread(child, -1) for child in (nodes.left, nodes.right))
    numbering = number_nodes(nodes.is_leaf, left, right, nodes.roots)
    order = np.searchsorted(np.flatnonzero(nodes.is_leaf), numbering.leaves)
    slopes = slopes[order] if is_linear.any() else slopes
    return LeafModels(constants[order], slopes, (tree % text.n_outputs)[order])
