"""The path of strengths of a fitted estimator, on its own partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_X_y
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.losses import Logistic, Loss, Multinomial, SquaredError
from jointleaf._core.path import N_STRENGTHS, StrengthPath, strength_path
from jointleaf._core.penalties import Penalty
from jointleaf._core.penalties.base import on_weights
from jointleaf._data.rows import read_rows
from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor

__all__ = ["Estimator", "check_estimator", "fitted_strength", "follow"]

Estimator = JOPLEnRegressor | JOPLEnClassifier


def check_estimator(estimator: object) -> None:
    """Refuse what is not a fitted estimator of this package."""
    if not isinstance(estimator, Estimator):
        raise TypeError(
            f"estimator={estimator!r} must be a JOPLEnRegressor or JOPLEnClassifier; of a Pipeline "
            "give the last step, and rows as that step sees them"
        )
    check_is_fitted(estimator)


def fitted_strength(estimator: Estimator) -> float:
    """The strength of a fit: what `at` was or would be called with."""
    terms = _given(estimator).terms
    k = next((k for k, term in enumerate(terms) if term.is_auto), 0)
    return float(estimator.penalty_.terms[k].strength / terms[k].share)


def follow(
    estimator: Estimator,
    X: ArrayLike,
    y: ArrayLike,
    X_val: ArrayLike | None,
    y_val: ArrayLike | None,
    options: dict[str, Any],
) -> StrengthPath:
    """Follow the strengths of a fitted estimator's penalty, with options of `strength_path`."""
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val belong together: give both or none")
    penalty, layout = _family(estimator), estimator.solution_.layout
    settings = {"n_jobs": effective_n_jobs(estimator.n_jobs), **options}
    if on_weights(estimator.penalty_).bind(layout).curvature() is not None:
        # No strength sets all slopes to zero: three decades on both sides of the fit.
        steps = np.geomspace(1e3, 1e-3, settings.pop("n_strengths", N_STRENGTHS))
        settings.setdefault("strengths", fitted_strength(estimator) * steps)
    validation = None if X_val is None else _prepared(estimator, X_val, y_val)
    return strength_path(
        *_prepared(estimator, X, y),
        penalty=penalty,
        loss=_loss(estimator),
        cells=layout.kinds,
        n_cells=layout.cells_per_partition,
        validation=validation,
        **settings,
    )


def _given(estimator: Estimator) -> Penalty:
    """The penalty as it was given, with a strength to change."""
    penalty = estimator.penalty
    if not isinstance(penalty, Penalty):
        raise ValueError(
            f"penalty={penalty!r} has no single strength on slopes to change: fit with a Penalty "
            "such as L21('auto')"
        )
    return penalty


def _family(estimator: Estimator) -> Penalty:
    """The penalty whose strength is to change, with biases as in the fit."""
    penalty = _given(estimator)
    auto = [k for k, term in enumerate(penalty.terms) if term.is_bias_auto]
    return penalty.with_bias(estimator.penalty_.terms[auto[0]].bias_strength) if auto else penalty


def _prepared(
    estimator: Estimator, X: ArrayLike, y: ArrayLike | None
) -> tuple[NDArray, NDArray, NDArray]:
    """Rows, codes and targets as the fit of the estimator saw them."""
    is_regression = estimator._target_type == "regression"
    rows, targets = check_X_y(
        read_rows(estimator, X), y, ensure_all_finite="allow-nan", y_numeric=is_regression
    )
    target = (estimator._encode_known_target(targets) - estimator._centre) / estimator._unit
    if is_regression:
        target = target - estimator._offset
    return estimator._features.transform(rows), estimator.partitioner_.apply(rows), target


def _loss(estimator: Estimator) -> Loss:
    if not isinstance(estimator, JOPLEnClassifier):
        return SquaredError()
    n_classes = len(estimator.classes_)
    loss = Logistic() if n_classes == 2 else Multinomial(n_classes)
    return _ShiftedLoss(loss, estimator._offset)


class _ShiftedLoss(Loss):
    """A loss of what cells add to an offset, which `strength_path` does not know."""

    def __init__(self, loss: Loss, offset: NDArray) -> None:
        self._loss, self._offset = loss, offset
        self.max_curvature = loss.max_curvature

    def _raw(self, f: NDArray) -> NDArray:
        return f + self._offset.astype(f.dtype)

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """As the loss does."""
        return self._loss.encode(y)

    def row_loss(self, y: NDArray, f: NDArray) -> NDArray:
        """Return the loss at f + offset."""
        return self._loss.row_loss(y, self._raw(f))

    def row_gradient(self, y: NDArray, f: NDArray) -> NDArray:
        """Return its first derivative."""
        return self._loss.row_gradient(y, self._raw(f))

    def row_curvature(self, y: NDArray, f: NDArray) -> NDArray:
        """Return its second derivatives."""
        return self._loss.row_curvature(y, self._raw(f))

    def row_hessian_product(self, y: NDArray, f: NDArray, v: NDArray) -> NDArray:
        """Return its Hessian times v."""
        return self._loss.row_hessian_product(y, self._raw(f), v)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """What the cells add in the best constant model."""
        return self._loss.best_constant(y, s) - self._offset
