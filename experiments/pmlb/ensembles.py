"""Ensembles as they are, ridge, and Friedman's refit: each a fit and the range it is searched in.

A fit takes data, parameters and a seed, and gives a function from rows to predictions: targets in
standard units, or the probability of the second class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import ensemble
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

from experiments import require
from experiments.pmlb.data import Data
from experiments.pmlb.space import Integer, Parameters, Real, Space
from jointleaf.estimators._linear_forest import LinearForestClassifier, LinearForestRegressor

__all__ = [
    "Fit",
    "Predict",
    "fit_catboost",
    "fit_forest",
    "fit_gradient_boosting",
    "fit_linear",
    "fit_linear_forest",
    "friedman_refit",
    "grow_catboost",
    "grow_trees",
    "predictor",
]

Predict = Callable[[NDArray], NDArray]
Fit = Callable[[Data, Parameters, int], Predict]

#: The paper also searches two criteria of splits, which scikit-learn found to be one and the same.
TREES: Space = {
    "n_estimators": Integer(10, 1000, log=True),
    "max_leaf_nodes": Integer(2, 32),
    "ccp_alpha": Real(1e-5, 10, log=True),
    "max_depth": Integer(1, 5),
}
GRADIENT_BOOSTING: Space = {"learning_rate": Real(1e-5, 1), **TREES}
CATBOOST: Space = {
    "od_wait": Integer(1, 100),
    "iterations": Integer(10, 1000, log=True),
    "learning_rate": Real(1e-5, 1),
    "l2_leaf_reg": Real(1e-5, 10, log=True),
    "depth": Integer(1, 5),
}
RIDGE: Space = {"alpha": Real(1e-5, 10, log=True)}
LOGISTIC: Space = {"C": Real(0.1, 1e5, log=True)}
#: Of the Lasso (`alpha`), or the inverse of that of the logistic regression (`C`).
REFIT_STRENGTH = Real(1e-5, 1000, log=True)


def predictor(model: Any, data: Data) -> Predict:
    """The predictions of a fitted model of scikit-learn's kind."""
    if data.is_binary:
        return lambda X: np.asarray(model.predict_proba(X), float)[:, 1]
    return lambda X: np.asarray(model.predict(X), float)


def fit_gradient_boosting(data: Data, parameters: Parameters, seed: int) -> Predict:
    """scikit-learn's gradient boosting."""
    return predictor(grow_trees("GradientBoosting", data, parameters, seed), data)


def fit_forest(data: Data, parameters: Parameters, seed: int) -> Predict:
    """scikit-learn's random forest."""
    return predictor(grow_trees("RandomForest", data, parameters, seed), data)


def grow_trees(kind: str, data: Data, parameters: Parameters, seed: int) -> Any:
    """Train an ensemble of scikit-learn."""
    suffix = "Classifier" if data.is_binary else "Regressor"
    model = getattr(ensemble, kind + suffix)(**parameters, random_state=seed)
    return model.fit(data.X["train"], data.y["train"])


def fit_linear_forest(data: Data, parameters: Parameters, seed: int) -> Predict:
    """A global linear model plus a random forest on its residuals."""
    make = LinearForestClassifier if data.is_binary else LinearForestRegressor
    options = {name: parameters[name] for name in ("ccp_alpha", "max_depth")}
    model = make(
        parameters["n_estimators"],
        max_leaf_nodes=parameters["max_leaf_nodes"],
        options=options,
        random_state=seed,
    )
    return predictor(model.fit(data.X["train"], data.y["train"]), data)


def fit_catboost(data: Data, parameters: Parameters, seed: int) -> Predict:
    """CatBoost with symmetric trees, stopped early on the validation rows."""
    predict = predictor(grow_catboost(data, parameters, seed), data)
    return lambda X: predict(_with_levels(X, data.categorical))


def grow_catboost(data: Data, parameters: Parameters, seed: int) -> Any:
    """Train CatBoost."""
    catboost = require("catboost")
    make = catboost.CatBoostClassifier if data.is_binary else catboost.CatBoostRegressor
    model = make(
        **parameters,
        subsample=1,
        bootstrap_type="Bernoulli",  # the only one for which CatBoost takes a subsample of 1
        random_seed=seed,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
        cat_features=list(data.categorical),
    )
    rows = {part: _with_levels(data.X[part], data.categorical) for part in ("train", "valid")}
    return model.fit(rows["train"], data.y["train"], eval_set=(rows["valid"], data.y["valid"]))


def _with_levels(X: NDArray, categorical: tuple[int, ...]) -> NDArray:
    """Rows as CatBoost wants them: whole numbers in the columns with categories."""
    if not categorical:
        return X
    table = X.astype(object)
    table[:, categorical] = X[:, categorical].astype(int)
    return table


def fit_linear(data: Data, parameters: Parameters, seed: int) -> Predict:
    """Ridge or logistic regression."""
    model = (
        LogisticRegression(**parameters, max_iter=1000) if data.is_binary else Ridge(**parameters)
    )
    return predictor(model.fit(data.X["train"], data.y["train"]), data)


def friedman_refit(kind: str) -> Fit:
    """A sparse linear model on the outputs of the trees of an ensemble.

    This is the post-processing of Friedman and Popescu (2003, 2005): each tree is one basis
    function, and the Lasso weighs them. Leaves keep their values, so that nothing is refitted
    inside a tree.

    Parameters
    ----------
    kind : {"GradientBoosting", "RandomForest"}
    """

    def fit(data: Data, parameters: Parameters, seed: int) -> Predict:
        own = {k: v for k, v in parameters.items() if k != "refit_strength"}
        grown = grow_trees(kind, data, own, seed)
        strength = parameters["refit_strength"]
        outer: Any = Lasso(alpha=strength)
        if data.is_binary:
            outer = LogisticRegression(
                C=strength, l1_ratio=1.0, solver="liblinear", random_state=seed
            )
        outer.fit(_tree_outputs(grown, data.X["train"]), data.y["train"])
        predict = predictor(outer, data)
        return lambda X: predict(_tree_outputs(grown, X))

    return fit


def _tree_outputs(model: Any, X: NDArray) -> NDArray[np.float64]:
    """Predictions of every tree, (n, P); probabilities of the second class for forests."""
    columns = []
    for tree in np.ravel(model.estimators_):
        is_forest_of_classes = hasattr(tree, "predict_proba")
        columns.append(tree.predict_proba(X)[:, -1] if is_forest_of_classes else tree.predict(X))
    return np.column_stack(columns)
