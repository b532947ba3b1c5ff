"""Gradient boosting, random forests and extra trees of scikit-learn."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor

from jointleaf._data.columns import Columns
from jointleaf._trees.encoding import tables_from_scores
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.flattening import NodeTable, flatten
from jointleaf._trees.importers.base import EnsembleAdapter, own_labels

__all__ = ["ScikitLearnAdapter"]


class ScikitLearnAdapter(EnsembleAdapter):
    """Gradient boosting, random forests and extra trees of scikit-learn.

    They compare features rounded to float32 and know no categories: where a column has some, its
    levels are the whole numbers that the trees split on, and unseen ones count as missing.
    Missing values go where the tree says; gradient boosting refuses them, and trees grown without
    any send them to the child with more rows.
    """

    supported: tuple[str, ...] = (
        "GradientBoostingRegressor",
        "GradientBoostingClassifier",
        "RandomForestRegressor",
        "RandomForestClassifier",
        "ExtraTreesRegressor",
        "ExtraTreesClassifier",
    )

    def matches(self, model: object) -> bool:
        """Tell whether `model` is one of the supported ensembles or a subclass of one."""
        ensemble = sys.modules.get("sklearn.ensemble")
        return ensemble is not None and isinstance(
            model, tuple(getattr(ensemble, name) for name in self.supported)
        )

    def is_classifier(self, model: Any) -> bool:
        """Tell whether `model` is a classifier."""
        return is_classifier(model)

    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""
        return int(model.n_features_in_)

    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""
        names = getattr(model, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        """Give the trees in portable form; trees of one boosting round lie side by side."""
        estimators = np.asarray(model.estimators_, dtype=object).ravel()
        outputs, base = _outputs(model, len(estimators))
        tables = []
        for k, estimator in enumerate(estimators):
            tree = estimator.tree_
            tables.append(
                NodeTable(
                    tree.feature,
                    tree.threshold,
                    tree.children_left,
                    tree.children_right,
                    tree.missing_go_to_left,
                    value=None if outputs is None else tree.value[:, 0] * outputs[k % len(outputs)],
                )
            )
        trees = flatten(tables, self.n_features(model), single_precision=True, base=base)
        return tables_from_scores(trees, _level_scores(columns))

    def split_gains(self, model: Any) -> NDArray:
        """Give the impurity-based importances (d,)."""
        return model.feature_importances_

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
        """Fit a clone of `model`, seeded where it has no seed of its own."""
        new = clone(model)
        ours = {"random_state": random_state, "n_jobs": n_jobs}
        theirs = new.get_params(deep=False)
        new.set_params(**{k: v for k, v in ours.items() if k in theirs and theirs[k] is None})
        if is_classifier(model):
            y = own_labels(model, y)
        return new.fit(X, y, sample_weight=weight)


def _level_scores(columns: Columns) -> dict[int, NDArray[np.float64]]:
    """The numbers that the trees see in place of levels; NaN for unseen and missing ones."""
    scores = {}
    for j in columns.categorical:
        levels = columns[j].categories
        if levels.dtype.kind not in "biuf":
            raise ValueError(
                f"column {columns[j].label} holds text, which scikit-learn's trees do not know."
            )
        scores[int(j)] = np.append(levels.astype(np.float32), [np.nan, np.nan]).astype(float)
    return scores


def _outputs(model: Any, n_trees: int) -> tuple[NDArray | None, NDArray | float]:
    """How trees add up to raw predictions: factors (K, K), tree after tree, and the start.

    None where they do not: forests of classifiers average shares of classes, and boosting may
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
        shares = np.asarray(model.init_.class_prior_, float)
        logs = np.log(np.maximum(shares, np.finfo(np.float32).eps))
        return outputs, logs[1:] - logs[:1] if len(outputs) == 1 else logs
    return None, 0.0
