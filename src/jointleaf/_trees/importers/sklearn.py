"""Gradient boosting, random forests and extra trees of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, NodeTable, flatten, tables_from_scores
from jointleaf._trees.importers.base import EnsembleAdapter


class ScikitLearnAdapter(EnsembleAdapter):
    """Gradient boosting, random forests and extra trees of scikit-learn.

    They compare features rounded to float32 and have no splits on categories: where a column has
    some, its categories are the whole numbers that the trees split on, and unseen ones count as
    missing. Missing values go where the tree sends them; gradient boosting does not take any, and
    trees grown without any send them to the child with more rows.
    """

    library = "sklearn.ensemble"
    model_classes: tuple[str, ...] = (
        *("GradientBoostingRegressor", "GradientBoostingClassifier", "RandomForestRegressor"),
        *("RandomForestClassifier", "ExtraTreesRegressor", "ExtraTreesClassifier"),
    )

    def n_features(self, model: Any) -> int:
        return int(model.n_features_in_)

    def feature_names(self, model: Any) -> list[str] | None:
        names = getattr(model, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        estimators = np.asarray(model.estimators_, dtype=object).ravel()
        outputs, base = _outputs(model, len(estimators))
        tables = []
        for k, estimator in enumerate(estimators):
            tree = estimator.tree_
            value = None if outputs is None else tree.value[:, 0] * outputs[k % len(outputs)]
            tables.append(node_table(tree, value))
        trees = flatten(tables, self.n_features(model), single_precision=True, base=base)
        return tables_from_scores(trees, _category_scores(columns))

    def split_gains(self, model: Any) -> NDArray:
        return model.feature_importances_


def node_table(tree: Any, value: NDArray | None) -> NodeTable:
    """Return the nodes of a tree of scikit-learn, with values (nodes, K) or none."""
    splits = tree.feature, tree.threshold, tree.children_left, tree.children_right
    return NodeTable(*splits, tree.missing_go_to_left, value=value)


def _category_scores(columns: Columns) -> dict[int, NDArray[np.float64]]:
    """Return the numbers that the trees see as categories; NaN for unseen and missing ones."""
    scores = {}
    for j in columns.categorical:
        categories = columns[j].categories
        if categories.dtype.kind not in "biuf":
            raise ValueError(
                f"column {columns[j].label} holds text, on which trees of scikit-learn cannot "
                "split: use the whole numbers that the model was fitted on"
            )
        scores[int(j)] = np.append(categories.astype(np.float32), [np.nan, np.nan]).astype(float)
    return scores


def _outputs(model: Any, n_trees: int) -> tuple[NDArray | None, NDArray | float]:
    """Return how trees add up to raw predictions: multipliers (K, K) by tree, and the start.

    None where they do not: forests of classifiers average class frequencies, and boosting may
    start from another model.
    """
    if not hasattr(model, "learning_rate"):
        is_single = model.n_outputs_ == 1 and not is_classifier(model)
        return (np.eye(1) / max(1, n_trees), 0.0) if is_single else (None, 0.0)
    outputs = model.learning_rate * np.eye(model.estimators_.shape[1])
    if isinstance(model.init_, str):  # "zero"
        return outputs, 0.0
    if isinstance(model.init_, DummyRegressor):
        return outputs, float(np.ravel(model.init_.constant_)[0])
    if isinstance(model.init_, DummyClassifier):
        priors = np.asarray(model.init_.class_prior_, float)
        logs = np.log(np.maximum(priors, np.finfo(np.float32).eps))
        return outputs, logs[1:] - logs[:1] if len(outputs) == 1 else logs
    return None, 0.0
