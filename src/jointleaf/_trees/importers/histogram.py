"""Histogram gradient boosting of scikit-learn.

scikit-learn offers no public way to the trees of these models. This file, and no other, reads
private attributes: ``_predictors`` (trees as arrays of nodes, with bit sets of categories),
``_preprocessor`` (the encoder of categories) and ``_baseline_prediction`` (what trees add to).
Where they are not what is expected, the error says so and names the version of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from jointleaf._core.arrays import threads
from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, NodeTable, TrainingRows, flatten
from jointleaf._trees.importers.base import column_codes, fit_clone, set_bits
from jointleaf._trees.importers.sklearn import ScikitLearnAdapter

#: What is read from every node.
_FIELDS = {
    *("feature_idx", "num_threshold", "missing_go_to_left", "left", "right"),
    *("gain", "is_leaf", "is_categorical", "bitset_idx", "value"),
}


class HistogramAdapter(ScikitLearnAdapter):
    """Histogram gradient boosting of scikit-learn.

    Features are compared in double precision. A category that the model has not met goes where
    missing values go.
    """

    model_classes = ("HistGradientBoostingRegressor", "HistGradientBoostingClassifier")

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        return dict(_layout(model).categories)

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        layout = _layout(model)
        codes = column_codes(type(model).__name__, columns, layout.categories)
        n_outputs = model.n_trees_per_iteration_
        return flatten(
            [
                _node_table(tree, layout, codes, np.eye(n_outputs)[k % n_outputs])
                for k, tree in enumerate(layout.trees)
            ],
            self.n_features(model),
            columns.n_categories,
            base=np.ravel(model._baseline_prediction),
        )

    def split_gains(self, model: Any) -> NDArray:
        layout = _layout(model)
        gains = np.zeros(self.n_features(model))
        for tree in layout.trees:
            splits = tree.nodes[tree.nodes["is_leaf"] == 0]
            np.add.at(gains, layout.order[splits["feature_idx"]], splits["gain"])
        return np.maximum(gains, 0.0)

    def regrow(
        self, model: Any, rows: TrainingRows, *, random_state: int | None, n_jobs: int | None
    ) -> Any:
        categorical = rows.columns.categorical
        params: dict[str, Any] = {
            "categorical_features": categorical.tolist() if categorical.size else None,
            # Nothing is left to stop early on: the rounds are those the model stopped at.
            "early_stopping": False,
            "max_iter": max(1, int(model.n_iter_)),
            "warm_start": False,
            "verbose": 0,
        }
        if model.random_state is None:
            params["random_state"] = random_state
        if isinstance(model.monotonic_cst, Mapping):  # by name, but the columns have none now
            names = self.feature_names(model) or []
            params["monotonic_cst"] = [model.monotonic_cst.get(name, 0) for name in names]
        if is_classifier(model):
            if isinstance(model.class_weight, Mapping):
                params["class_weight"] = _class_weight(model, np.unique(rows.y))
            rows = rows._replace(y=rows.class_numbers)
        rows = rows._replace(X=without_empty_columns(rows.X, categorical))
        with limited_threads(n_jobs):
            return fit_clone(model, params, rows)


def without_empty_columns(X: NDArray, categorical: NDArray[np.intp]) -> NDArray:
    """Return `X` with zeros in columns of numbers without any value, where scikit-learn fails."""
    empty = np.isnan(X).all(axis=0)
    empty[categorical] = False
    if not empty.any():
        return X
    X = X.copy()
    X[:, empty] = 0.0
    return X


def limited_threads(n_jobs: int | None) -> Any:
    """Return a context in which these models, which have no such setting, use `n_jobs` threads."""
    if n_jobs is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads(n_jobs), user_api="openmp")


def _class_weight(model: Any, numbers: NDArray) -> dict[int, float]:
    """Return weights of the classes `numbers`, which are numbered anew, by label or by number."""
    class_weight = model.class_weight
    labels = model.classes_.tolist()
    weights = {}
    for k, number in enumerate(numbers.tolist()):
        label = labels[number] if number < len(labels) else number
        weights[k] = class_weight.get(label, class_weight.get(number, 1.0))
    return weights


# -- reading a model ---------------------------------------------------------------------------


class _Layout(NamedTuple):
    """What is read from a model.

    scikit-learn puts columns with categories first: `order` are the columns of the input for those
    of the nodes. None counts as a category of its own in polars frames and arrays of objects, but
    not in pandas, whose missing values are NaN: `codes_of_none` are its codes by column.
    """

    trees: list[Any]  # of TreePredictor
    order: NDArray[np.intp]  # (d,)
    categories: Mapping[int, NDArray]  # by column, in the order of the model's codes
    codes_of_none: Mapping[int, int]


def _layout(model: Any) -> _Layout:
    try:
        trees = [tree for round_ in model._predictors for tree in round_]
        for tree in trees:
            if not set(tree.nodes.dtype.names) >= _FIELDS or tree.raw_left_cat_bitsets.ndim != 2:
                raise ValueError("the nodes have other fields")
        values_of = dict(_encoder_values(model))
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        from sklearn import __version__

        raise RuntimeError(
            f"scikit-learn {__version__} stores the trees of a {type(model).__name__} in a form "
            f"that this version of jointleaf cannot read ({cause}): update jointleaf, or use "
            "another version of scikit-learn"
        ) from cause
    is_categorical = np.isin(np.arange(model.n_features_in_), list(values_of))
    return _Layout(
        trees,
        order=np.concatenate([np.flatnonzero(is_categorical), np.flatnonzero(~is_categorical)]),
        categories={j: _categories(values) for j, values in values_of.items()},
        codes_of_none={j: values.index(None) for j, values in values_of.items() if None in values},
    )


def _encoder_values(model: Any) -> Iterator[tuple[int, list]]:
    """Columns with categories and the values of their codes: categories, then None, then NaN."""
    if model._preprocessor is None:
        return
    encoder = model._preprocessor.named_transformers_["encoder"]
    columns = np.flatnonzero(model.is_categorical_)
    for j, values in zip(columns.tolist(), encoder.categories_, strict=True):
        yield j, np.asarray(values).tolist()


def _categories(values: list) -> NDArray:
    present = [v for v in values if v is not None and v == v]
    if any(isinstance(v, str) for v in present):
        return np.array(present, dtype=str)
    # The encoder may have made floats of whole numbers, or left truth values.
    numbers = np.array(present, dtype=float)
    whole = numbers.astype(np.int64)
    return whole if np.array_equal(whole, numbers) else numbers


def _node_table(
    tree: Any, layout: _Layout, codes: Mapping[int, NDArray[np.int64]], output: NDArray
) -> NodeTable:
    """Read one tree; `codes` are the encoder's codes of our categories, -1 where it has none.

    `output` (K,) marks the raw prediction to which the tree adds.
    """
    nodes = tree.nodes
    is_leaf = nodes["is_leaf"].astype(bool)
    feature = np.where(is_leaf, -1, layout.order[np.where(is_leaf, 0, nodes["feature_idx"])])
    missing_left = nodes["missing_go_to_left"].astype(bool)
    categories_left = {}
    for node in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf).tolist():
        bits = set_bits(tree.raw_left_cat_bitsets[nodes["bitset_idx"][node]])
        j = int(feature[node])
        categories_left[node] = np.where(
            codes[j] < 0, missing_left[node], bits[np.maximum(codes[j], 0)]
        )
        if j in layout.codes_of_none:
            missing_left[node] = bits[layout.codes_of_none[j]]
    return NodeTable(
        feature=feature,
        threshold=nodes["num_threshold"],
        left=nodes["left"],
        right=nodes["right"],
        missing_left=missing_left,
        categories_left=categories_left,
        value=nodes["value"][:, None] * output,
    )
