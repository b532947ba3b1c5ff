"""LightGBM models: the scikit-learn classes and the plain Booster."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.flattening import NodeTable, flatten
from jointleaf._trees.importers.base import (
    EnsembleAdapter,
    is_fitted_estimator,
    native_codes,
    own_labels,
    set_bits,
    threads,
)
from jointleaf._trees.routing import ZERO

__all__ = ["LightGBMAdapter", "ModelText", "merge_lightgbm_params", "read_trees"]

#: Other names that LightGBM knows for the parameters jointleaf sets or takes away.
_LIGHTGBM_ALIASES = {
    "bagging_fraction": ("sub_row", "subsample", "bagging"),
    "bagging_freq": ("subsample_freq",),
    "categorical_feature": ("cat_feature", "categorical_column", "cat_column"),
    "early_stopping_round": ("early_stopping_rounds", "early_stopping", "n_iter_no_change"),
    "feature_fraction": ("sub_feature", "colsample_bytree"),
    "lambda_l2": ("reg_lambda", "lambda"),
    "learning_rate": ("shrinkage_rate", "eta"),
    "min_data_in_leaf": (
        "min_data_per_leaf",
        "min_data",
        "min_child_samples",
        "min_samples_leaf",
    ),
    "num_class": ("num_classes",),
    "num_iterations": (
        "num_iteration",
        "n_iter",
        "num_tree",
        "num_trees",
        "num_round",
        "num_rounds",
        "nrounds",
        "num_boost_round",
        "n_estimators",
        "max_iter",
    ),
    "num_leaves": ("num_leaf", "max_leaves", "max_leaf", "max_leaf_nodes"),
    "num_threads": ("num_thread", "nthread", "nthreads", "n_jobs"),
    "objective": ("objective_type", "app", "application", "loss"),
    "seed": ("random_seed", "random_state"),
    "verbosity": ("verbose",),
}
#: Kinds of missing values of a split: zeros and NaN, or NaN alone.
_ZERO_MISSING, _NAN_MISSING = 1, 2
_BELOW_ZERO = float(np.nextafter(-ZERO, -np.inf))
_LIGHTGBM_CANONICAL = {
    alias: name for name, aliases in _LIGHTGBM_ALIASES.items() for alias in aliases
}


def merge_lightgbm_params(params: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sets of LightGBM parameters; those of `over` win under any of their names."""
    merged = {_LIGHTGBM_CANONICAL.get(name, name): value for name, value in params.items()}
    merged.update({_LIGHTGBM_CANONICAL.get(name, name): value for name, value in over.items()})
    return merged


class LightGBMAdapter(EnsembleAdapter):
    """LightGBM models: the scikit-learn classes and the plain `Booster`.

    A model that stopped early is used up to its best round, as its own ``predict`` does.
    """

    supported = ("LGBMRegressor", "LGBMClassifier", "Booster")

    def matches(self, model: object) -> bool:
        """Tell whether `model` is one of the supported models or a subclass of one."""
        lightgbm = sys.modules.get("lightgbm")
        return lightgbm is not None and isinstance(
            model, tuple(getattr(lightgbm, name) for name in self.supported)
        )

    def is_fitted(self, model: Any) -> bool:
        """Tell whether `model` has been trained; a Booster is once it has a tree."""
        if hasattr(model, "num_trees"):
            return model.num_trees() > 0
        return is_fitted_estimator(model)

    def is_classifier(self, model: Any) -> bool:
        """Tell whether the objective is one of classification."""
        if not hasattr(model, "num_trees"):
            return is_classifier(model)
        return _booster_objective(model).startswith(("binary", "multiclass"))

    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""
        return int(_booster(model).num_feature())

    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""
        names = _booster(model).feature_name()
        made_up = [f"Column_{j}" for j in range(len(names))]
        return None if names == made_up else names

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Give the columns declared categorical; their levels where pandas said what they are."""
        text = ModelText(_booster(model))
        levels = text.pandas_levels
        if len(levels) != len(text.categorical):  # a matrix of whole numbers
            return dict.fromkeys(text.categorical)
        return {j: np.array(known) for j, known in zip(text.categorical, levels, strict=True)}

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        """Give the trees in portable form, up to the best round."""
        return read_trees(ModelText(_booster(model)), columns)

    def split_gains(self, model: Any) -> NDArray:
        """Give the total gain of each feature's splits (d,)."""
        return _booster(model).feature_importance(importance_type="gain")

    def regrow(
        self,
        model: Any,
        X: NDArray,
        y: NDArray,
        weight: NDArray | None,
        *,
        categorical: NDArray[np.intp],
        random_state: int | None,
        n_jobs: int | None,
    ) -> Any:
        """Train with the same parameters for as many rounds as `model` uses.

        `random_state` is not needed: LightGBM has fixed seeds of its own. Training is made
        quiet and independent of the number of threads.
        """
        booster = _booster(model)
        rounds = booster.best_iteration
        if rounds <= 0:
            rounds = booster.current_iteration()
        if booster is model:
            return _retrain_booster(model, rounds, X, y, weight, categorical.tolist(), n_jobs)
        new = clone(model)
        theirs = new.get_params()
        ours: dict[str, Any] = {"n_estimators": rounds, "deterministic": True}
        if not theirs.get("force_col_wise"):
            ours["force_row_wise"] = True
        if not {"verbose", "verbosity"} & set(theirs):
            ours["verbose"] = -1
        if theirs.get("n_jobs") is None:
            ours["n_jobs"] = n_jobs
        # Nothing is left to stop early on: the rounds are those the model stopped at.
        stopping = {n for n in theirs if _LIGHTGBM_CANONICAL.get(n, n) == "early_stopping_round"}
        new.set_params(**ours, **dict.fromkeys(stopping))
        if is_classifier(model):
            y = own_labels(model, y)
            weights = theirs.get("class_weight")
            if isinstance(weights, Mapping):  # LightGBM refuses weights of absent classes.
                present = set(y.tolist())
                new.set_params(class_weight={k: v for k, v in weights.items() if k in present})
        return new.fit(X, y, sample_weight=weight, categorical_feature=categorical.tolist())


def _booster(model: Any) -> Any:
    return model if hasattr(model, "num_trees") else model.booster_


def _booster_objective(booster: Any) -> str:
    """Give the objective's name, "" for a custom one, from the head of the model text."""
    head = booster.model_to_string(num_iteration=1).split("\nTree=", 1)[0]
    for line in head.splitlines():
        if line.startswith("objective="):
            return line.removeprefix("objective=").split(" ")[0]
    return ""


def _booster_params(booster: Any) -> dict[str, Any]:
    """Give the parameters a Booster was trained with.

    LightGBM up to 4.6 reads them back from a model file only, not from a model text.
    """
    if booster.params:
        return booster.params
    import lightgbm

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.txt"
        booster.save_model(path, num_iteration=1)
        return lightgbm.Booster(model_file=path).params


def _retrain_booster(
    booster: Any,
    rounds: int,
    X: NDArray,
    y: NDArray,
    weight: NDArray | None,
    categorical: list[int],
    n_jobs: int | None,
) -> Any:
    import lightgbm

    if _booster_objective(booster) in ("", "custom", "none"):
        raise ValueError(
            "This LightGBM Booster was trained with an objective of its own, which it does "
            "not carry along, so it cannot be grown again. Hand over an LGBMRegressor or "
            "LGBMClassifier with that objective instead."
        )
    theirs = _booster_params(booster)
    ours: dict[str, Any] = {"verbosity": -1, "deterministic": True}
    if not theirs.get("force_col_wise"):
        ours["force_row_wise"] = True
    if n_jobs is not None:
        ours["num_threads"] = threads(n_jobs)
    params = merge_lightgbm_params(theirs, ours)
    params.pop("num_iterations", None)
    params.pop("early_stopping_round", None)
    params.pop("categorical_feature", None)
    data = lightgbm.Dataset(
        X, label=y, weight=weight, categorical_feature=categorical, params=params
    )
    return lightgbm.train(params, data, num_boost_round=rounds)


class ModelText:
    """A Booster's model text: blocks of ``name=values`` lines, one block per tree."""

    def __init__(self, booster: Any) -> None:
        self._text = booster.model_to_string()  # up to the best round

    @property
    def categorical(self) -> list[int]:
        """Columns declared categorical, in rising order."""
        found = re.search(r"^\[categorical_feature: ([\d,]*)\]$", self._text, re.MULTILINE)
        if found is None or not found[1]:
            return []
        return sorted({int(j) for j in found[1].split(",")})

    @property
    def pandas_levels(self) -> list[list]:
        """Levels of the category columns of the data frame the model was trained on, if it was."""
        found = re.search(r"^pandas_categorical:(.*)$", self._text, re.MULTILINE)
        return (json.loads(found[1]) if found else None) or []

    @property
    def n_outputs(self) -> int:
        """K, the trees of a round."""
        found = re.search(r"^num_tree_per_iteration=(\d+)$", self._text, re.MULTILINE)
        return int(found[1]) if found else 1

    @property
    def is_averaged(self) -> bool:
        """Whether raw predictions are means over rounds."""
        return re.search(r"^average_output$", self._text, re.MULTILINE) is not None

    @cached_property
    def trees(self) -> list[dict[str, str]]:
        """The lines of every tree."""
        found = []
        for block in self._text.split("\nTree=")[1:]:
            lines = block.split("\n\n", 1)[0].splitlines()[1:]
            found.append(dict(line.split("=", 1) for line in lines if "=" in line))
        return found

    def column(self, name: str, dtype: Any) -> NDArray:
        """The numbers of a line, of all trees in a row."""
        return np.array(" ".join(tree.get(name, "") for tree in self.trees).split(), dtype=dtype)

    @cached_property
    def nodes(self) -> TreeNodes:
        """The nodes of all trees, and how they hang together."""
        n_leaves = self.column("num_leaves", int)
        n_splits, sizes = n_leaves - 1, 2 * n_leaves - 1
        roots = np.cumsum(sizes) - sizes
        tree = np.repeat(np.arange(len(sizes)), n_splits)
        split = np.arange(len(tree)) + np.repeat(np.cumsum(n_leaves) - n_leaves, n_splits)
        first, first_leaf = roots[tree], (roots + n_splits)[tree]
        left, right = (
            np.where(child < 0, first_leaf + ~child, first + child)
            for child in (self.column(name, int) for name in ("left_child", "right_child"))
        )
        is_leaf = np.ones(int(sizes.sum()), bool)
        is_leaf[split] = False
        return TreeNodes(roots, split, np.flatnonzero(is_leaf), tree, left, right)


class TreeNodes(NamedTuple):
    """The nodes of all trees: of every tree its splits, then its leaves, as LightGBM numbers them.

    Attributes
    ----------
    roots : integers (T,)
        Where the nodes of every tree begin.
    splits, leaves : integers (N,), (L,)
        Nodes that are splits and leaves, in rising order.
    tree : integers (N,)
        Of every split.
    left, right : integers (N,)
        The nodes below every split.
    """

    roots: NDArray[np.intp]
    splits: NDArray[np.intp]
    leaves: NDArray[np.intp]
    tree: NDArray[np.intp]
    left: NDArray[np.intp]
    right: NDArray[np.intp]

    def spread(self, values: NDArray, rest: float) -> NDArray:
        """Values (N,) of splits as values of all nodes, with `rest` in leaves."""
        found = np.full(len(self.splits) + len(self.leaves), rest, values.dtype)
        found[self.splits] = values
        return found


def read_trees(text: ModelText, columns: Columns) -> FlatTrees:
    """Give the trees of a model text in portable form, up to the best round."""
    nodes = text.nodes
    if not len(nodes.roots):
        return flatten([], len(columns), columns.n_categories)
    splits = _read_splits(text)
    kinds = set(splits.kind[~splits.is_category].tolist())
    if {_ZERO_MISSING, _NAN_MISSING} <= kinds:
        raise ValueError(
            "This LightGBM model was trained partly with zero_as_missing and partly without, "
            "so that zeros mean two things; train all its trees in one way."
        )
    tables = _level_tables(text, splits, _level_numbers(text, columns))
    table = NodeTable(
        feature=nodes.spread(splits.feature, -1),
        threshold=nodes.spread(splits.threshold, 0.0),
        left=nodes.spread(nodes.left, -1),
        right=nodes.spread(nodes.right, -1),
        missing_left=nodes.spread(splits.missing_left, False),
        levels_left={int(nodes.splits[k]): left for k, left in tables.items()},
        value=_leaf_values(text),
        roots=nodes.roots,
    )
    zero_is_missing = _ZERO_MISSING in kinds
    return flatten([table], len(columns), columns.n_categories, zero_is_missing=zero_is_missing)


def _level_numbers(text: ModelText, columns: Columns) -> dict[int, NDArray[np.float64]]:
    """LightGBM's numbers of our levels and of unseen ones, (L + 1,); NaN where it knows none.

    A number may be compared with a threshold, too: LightGBM takes ordered categories of pandas
    for numbers.
    """
    ours = [int(j) for j in columns.categorical]
    is_text = {j: columns[j].categories.dtype.kind in "UO" for j in ours}
    owners = _pandas_owners(text, is_text)
    numbers = {}
    for j in ours:
        known = owners.get(j)
        if known is None and is_text[j]:
            raise ValueError(
                f"column {columns[j].label} holds text, which the LightGBM model does not know."
            )
        number = native_codes(columns[j].categories, known).astype(np.float64)
        number[-1:] = np.nan
        if known is not None:
            number[number < 0] = np.nan
        numbers[j] = number
    return numbers


def _pandas_owners(text: ModelText, is_text: Mapping[int, bool]) -> dict[int, list]:
    """Whose the levels are that the model text lists for a data frame's category columns.

    It does not say. They are those of the columns declared categorical, unless the frame also had
    ordered categories or declared columns of whole numbers; then text has to tell them apart.
    """
    lists = text.pandas_levels
    holds_text = [any(isinstance(level, str) for level in known) for known in lists]
    owners = text.categorical
    if len(owners) == len(lists) and all(
        is_text.get(j, here) == here for j, here in zip(owners, holds_text, strict=True)
    ):
        return dict(zip(owners, lists, strict=True))
    owners = [j for j, here in is_text.items() if here]
    if lists and (not all(holds_text) or len(lists) != len(owners)):
        raise ValueError(
            f"The LightGBM model was trained on a data frame with {len(lists)} category columns, "
            "and it does not say which they are; make all columns with categories of the "
            "(unordered) category type, or none."
        )
    return dict(zip(owners, lists, strict=False))


class _Splits(NamedTuple):
    """All splits, tree after tree; `kind` says what is missing."""

    feature: NDArray[np.intp]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    is_category: NDArray[np.bool_]
    kind: NDArray[np.intp]


def _read_splits(text: ModelText) -> _Splits:
    """Read the splits.

    ``decision_type`` holds bits: 1 categories, 2 missing values go left, and 4 times the kind of
    missing values: 0 none (a missing value counts as zero), 1 zeros, 2 NaN. On categories all
    but the listed levels go right, missing ones too.
    """
    decision, threshold = text.column("decision_type", int), text.column("threshold", float)
    is_category, kind = decision & 1 > 0, decision >> 2 & 3
    # LightGBM makes zeros of numbers up to 1e-35 before it compares them.
    is_zero = (np.abs(threshold) <= ZERO) & ~is_category
    threshold = np.where(is_zero, np.where(threshold < 0, _BELOW_ZERO, ZERO), threshold)
    missing_left = np.where(kind == 0, threshold >= 0, decision & 2 > 0) & ~is_category
    return _Splits(text.column("split_feature", int), threshold, missing_left, is_category, kind)


def _level_tables(
    text: ModelText, splits: _Splits, numbers: Mapping[int, NDArray[np.float64]]
) -> dict[int, NDArray[np.bool_]]:
    """Which codes go left at the splits on columns that have categories here.

    `numbers` are LightGBM's numbers of our levels, column by column. A split ``number <=
    threshold`` on such a column (ordered categories of pandas) becomes a table of levels as well;
    levels without a number go the way of missing values, as pandas makes them.
    """
    tables = {}
    bits_of: dict[int, list[NDArray]] = {}  # of trees
    for k in np.flatnonzero(splits.is_category | np.isin(splits.feature, list(numbers))).tolist():
        number = numbers.get(int(splits.feature[k]))
        if number is None:
            raise ValueError(
                f"The LightGBM model splits column {splits.feature[k]} by categories, but it is "
                "given as numbers; say that it holds categories."
            )
        if splits.is_category[k]:
            tree = int(text.nodes.tree[k])
            if tree not in bits_of:
                bits_of[tree] = _level_bits(text.trees[tree])
            bits = bits_of[tree][int(splits.threshold[k])]
            inside = (number >= 0) & (number < len(bits))
            tables[k] = inside & bits[np.where(inside, number, 0).astype(np.intp)]
        else:
            is_missing = np.isnan(number) | ((splits.kind[k] == _ZERO_MISSING) & (number == 0))
            below = number <= splits.threshold[k]
            tables[k] = np.where(is_missing, splits.missing_left[k], below)
    return tables


def _level_bits(tree: Mapping[str, str]) -> list[NDArray[np.bool_]]:
    """For every split of a tree on categories, in LightGBM's order: which numbers go left."""
    words = np.array(tree["cat_threshold"].split(), dtype=np.uint32)
    bounds = np.array(tree["cat_boundaries"].split(), dtype=int)
    return [set_bits(part) for part in np.split(words, bounds[1:-1])]


def _leaf_values(text: ModelText) -> NDArray | None:
    """Values (m, K) of all nodes, zeros for splits; None where some leaves hold linear models."""
    if any(tree.get("is_linear", "0") != "0" for tree in text.trees):
        return None
    nodes, n_trees, n_outputs = text.nodes, len(text.trees), text.n_outputs
    tree = np.repeat(np.arange(n_trees), text.column("num_leaves", int))
    values = np.zeros((len(nodes.splits) + len(nodes.leaves), n_outputs))
    values[nodes.leaves, tree % n_outputs] = text.column("leaf_value", float)
    # A forest grown by LightGBM averages its trees, boosting adds them.
    return values * (n_outputs / n_trees) if text.is_averaged else values
