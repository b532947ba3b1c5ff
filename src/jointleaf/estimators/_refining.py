"""The one-line upgrade of a tree ensemble that is already trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from jointleaf._trees.importers.base import check_fitted_model, find_adapter
from jointleaf._trees.importers.objectives import read_objective
from jointleaf.estimators._joplen import JOPLEnClassifier, JOPLEnRegressor

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


def refine(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    offset: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    X_val: ArrayLike | None = None,
    y_val: ArrayLike | None = None,
    sample_weight_val: ArrayLike | None = None,
    offset_val: ArrayLike | None = None,
    exposure_val: ArrayLike | None = None,
    **parameters: Any,
) -> JOPLEnRegressor | JOPLEnClassifier | Pipeline:
    """Refit a trained tree ensemble jointly, with a linear model in every leaf.

    The model's trees are kept and the model itself is not changed. With the default
    ``penalty="auto"`` the penalty is chosen by honest cross-validation: inside every fold an
    ensemble is grown anew with the model's own parameters.

    The loss is the model's own: a model of a quantile or of counts is refined to one of the same.
    Models with monotone constraints are refused, because a joint fit would not keep them, unless
    these are given as ``monotonic_cst`` once more.

    Parameters
    ----------
    model : fitted tree ensemble
        Gradient boosting, histogram gradient boosting, random forest or extra trees of
        scikit-learn; LightGBM or XGBoost (scikit-learn API or Booster); CatBoost; regression or
        classification. Or a fitted scikit-learn `Pipeline` that ends in one of these.
    X : array-like or data frame (n, d)
        Rows to fit on, usually those that the model was trained on, as they were given to it.
    y : array-like (n,)
        Their targets.
    sample_weight : array-like (n,), optional
        Weights.
    offset, exposure : array-like (n,), optional
        Of a regression model, as for `JOPLEnRegressor.fit`.
    groups : array-like (n,), optional
        Rows that belong together, which are never on both sides of a split.
    X_val, y_val : array-like (m, d), (m,), optional
        Rows on which the penalty is chosen, instead of cross-validation.
    sample_weight_val, offset_val, exposure_val : array-like (m,), optional
        Theirs.
    **parameters
        Passed to `JOPLEnRegressor` or `JOPLEnClassifier`, for example ``penalty`` or ``n_jobs``;
        ``loss`` instead of the loss of the model.

    Returns
    -------
    JOPLEnRegressor, JOPLEnClassifier or Pipeline
        Fitted; a classifier if the model is one. For a pipeline, a pipeline of the same fitted
        steps that ends in the refined model. Where they make sparse matrices, a step in between
        makes them dense; what a sparse matrix does not store is zero, but missing for XGBoost.

    Notes
    -----
    The trees are copied: the refined model predicts, pickles and ships without the library that
    grew them. The trained model is left out of pickles for that reason, so that a refined model
    that was unpickled cannot be fitted again.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from jointleaf import refine
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = RandomForestRegressor(50, max_leaf_nodes=8, random_state=0).fit(X, y)
    >>> refined = refine(forest, X, y)
    >>> refined.solution_.converged
    True
    """
    options: dict[str, Any] = {
        "sample_weight": sample_weight, "groups": groups, "y_val": y_val,
        "sample_weight_val": sample_weight_val,
    }  # fmt: skip
    of_numbers = {
        "offset": offset, "exposure": exposure, "offset_val": offset_val,
        "exposure_val": exposure_val,
    }  # fmt: skip
    from sklearn.pipeline import Pipeline  # it loads a library of progress bars

    if isinstance(model, Pipeline):
        return _refine_last(model, X, y, X_val, **options, **of_numbers, **parameters)
    options["X_val"] = X_val
    adapter = check_fitted_model(model, X)
    objective = read_objective(model, adapter.library)
    if objective.is_monotone and parameters.get("monotonic_cst") is None:
        raise ValueError(
            "the model has monotone constraints, which a joint fit of its cells would not keep: "
            "give them as monotonic_cst= as well, or refine a model that was trained without them"
        )
    if adapter.is_classifier(model):
        if any(value is not None for value in of_numbers.values()):
            raise ValueError("offset and exposure are for regression models: leave them out")
        return JOPLEnClassifier(model, **parameters).fit(X, y, **options)
    if "loss" not in parameters:
        parameters |= objective.loss_parameters()
    return JOPLEnRegressor(model, **parameters).fit(X, y, **options, **of_numbers)


def _refine_last(
    pipeline: Pipeline, X: ArrayLike, y: ArrayLike, X_val: ArrayLike | None, **options: Any
) -> Pipeline:
    """Refine the last step on what the fitted steps before it make of the rows."""
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    before, (name, model) = pipeline[:-1], pipeline.steps[-1]
    steps = list(before.steps)
    if steps:
        check_is_fitted(before)
        X = before.transform(X)
        X_val = None if X_val is None else before.transform(X_val)
        if sparse.issparse(X):
            is_missing = find_adapter(model).sparse_is_missing
            dense = _dense_with_missing if is_missing else _dense
            if is_missing:  # its indicators of categories are ones and missing values
                options.setdefault("add_indicator", True)
            X, X_val = dense(X), None if X_val is None else dense(X_val)
            step = FunctionTransformer(dense, accept_sparse=True)
            steps.append((_new_name("dense", pipeline), step))
    return Pipeline([*steps, (name, refine(model, X, y, X_val=X_val, **options))])


def _new_name(name: str, pipeline: Pipeline) -> str:
    while name in pipeline.named_steps:
        name += "_"
    return name


def _dense(X: Any) -> Any:
    return X.toarray() if sparse.issparse(X) else X


def _dense_with_missing(X: Any) -> Any:
    """Make dense, with NaN for what is not stored: that is how XGBoost reads sparse matrices."""
    if not sparse.issparse(X):
        return X
    stored = X.tocoo()
    dense: NDArray = np.full(X.shape, np.nan, dtype=np.result_type(X.dtype, np.float32))
    dense[stored.row, stored.col] = stored.data
    return dense
