"""The one-line upgrade of a tree ensemble that is already trained."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from jointleaf.estimators.classifier import JOPLEnClassifier
from jointleaf.estimators.regressor import JOPLEnRegressor
from jointleaf.partitions import check_fitted_model

__all__ = ["refine"]


def refine(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    X_val: ArrayLike | None = None,
    y_val: ArrayLike | None = None,
    **parameters: Any,
) -> JOPLEnRegressor | JOPLEnClassifier:
    """Refit a trained tree ensemble jointly, with a linear model in every leaf.

    The model's trees are kept and the model itself is not changed. With the default
    ``penalty="auto"`` the penalty is chosen by honest cross-validation: inside every fold an
    ensemble is grown anew with the model's own parameters.

    Parameters
    ----------
    model : fitted tree ensemble
        Gradient boosting, random forest or extra trees of scikit-learn, or LightGBM
        (scikit-learn API or Booster); regression or classification.
    X : array-like (n, d)
        Rows to fit on, usually those that the model was trained on.
    y : array-like (n,)
        Their targets.
    sample_weight : array-like (n,), optional
        Weights.
    X_val, y_val : array-like (m, d), (m,), optional
        Rows on which the penalty is chosen, instead of cross-validation.
    **parameters
        Passed to `JOPLEnRegressor` or `JOPLEnClassifier`, for example ``penalty`` or ``n_jobs``.

    Returns
    -------
    JOPLEnRegressor or JOPLEnClassifier
        Fitted; a classifier if the model is one.

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
    adapter = check_fitted_model(model, X)
    estimator = JOPLEnClassifier if adapter.is_classifier(model) else JOPLEnRegressor
    return estimator(model, **parameters).fit(X, y, sample_weight, X_val=X_val, y_val=y_val)
