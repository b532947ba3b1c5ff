"""The problem: one convex objective over the weights of all cells."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.design import Design, LeafDesign
from jointleaf._core.losses import Loss
from jointleaf._core.penalties.base import (
    Penalty,
    PredictionPenalty,
    Quadratic,
    Term,
    on_predictions,
    on_weights,
)

__all__ = ["Problem"]

T = TypeVar("T")


class Problem:
    r"""Joint fit of all cells as one convex problem.

    .. math::

        J(\theta) = \frac{1}{S} \sum_n s_n\, \ell(y_n, o + f_n)
        + \tfrac12 (o + f)^\top A (o + f) + R(\theta), \qquad f = \Phi \theta

    The first two terms, functions of the predictions, are the data term; A is zero unless the
    penalty has terms on predictions.

    Parameters
    ----------
    design : Design
        Phi.
    y : array (n,)
        Targets in the form of the loss.
    loss : Loss
    penalty : Penalty, PredictionPenalty or a sum of these
        R, and A.
    sample_weight : array (n,), optional
        s, not negative, not all zero; by default all one.
    offset : number or array (K,)
        o, a fixed raw prediction that the cells add to.
    """

    #: what the objective was divided by, for which strengths are not as given
    mass: float = 1.0
    #: where solvers compute; see `_core.device`
    device: str = "cpu"

    def __init__(
        self,
        design: Design,
        y: ArrayLike,
        loss: Loss,
        penalty: Term,
        sample_weight: ArrayLike | None = None,
        offset: NDArray | float = 0.0,
    ) -> None:
        self.design = design
        self.layout = design.layout
        self.loss = loss
        if penalty.is_auto:
            raise ValueError(
                f"penalty={penalty!r} has a strength to choose: fit an estimator, which chooses "
                "it by cross-validation, or give a number"
            )
        self._set_penalty(on_weights(penalty))
        dtype = design.dtype
        self.y = loss.encode(y).astype(dtype)
        if len(self.y) != design.n_rows:
            raise ValueError(f"y has {len(self.y)} rows but X has {design.n_rows}")
        self.s = check_weights(sample_weight, design.n_rows)
        if not self.s.all():
            raise ValueError("sample_weight holds zeros: leave these rows out of the problem")
        self.offset = np.asarray(offset, dtype)
        self.outputs: tuple[int, ...] = self.y.shape[1:]
        smoothers = [self._smoother(term) for term in on_predictions(penalty)]
        #: A (n, n), or None for zero
        self.smoother = sum(smoothers[1:], smoothers[0]).astype(dtype) if smoothers else None
        self._kept: dict[object, object] = {}
        self.prox_step = 1.0
        #: called with iteration, seconds, objective and optimality while a solver works
        self.listener: Callable[[int, float, float, float], None] | None = None
        self.start_slope = self._start_slope()

    def _start_slope(self) -> float:
        """Largest gradient at zero weights, to which optimality is relative.

        Where it is only rounding, zero weights are the optimum, and what could have been stands
        in: the sum of its terms without their signs, or 1 if that is zero too.
        """
        slope = self.slope(self.zero_predictions())
        largest = float(np.abs(self.design.rmatvec(slope)).max())
        terms = float(np.abs(slope).sum()) * self.design.largest_value
        if largest > 4 * np.finfo(self.design.dtype).eps * terms:
            return largest
        return terms if terms > 0 else 1.0

    def _smoother(self, term: PredictionPenalty) -> Any:
        """The matrix (n, n) of a penalty on predictions."""
        return term.matrix(self.leaf_design.rows, self.s)

    def _set_penalty(self, penalty: Penalty) -> None:
        self.penalty = penalty.bind(self.layout)
        #: the penalty as a quadratic of curvature (N,), or None for zero, plus a rest
        self.smooth_curvature, self.rest = self.penalty.split()

    # -- related problems ----------------------------------------------------------------------

    def with_penalty(self, penalty: Penalty) -> Problem:
        """Give the same problem with another penalty on the weights."""
        other = copy.copy(self)
        other._set_penalty(penalty)
        return other

    def restricted(self, features: NDArray[np.intp]) -> Problem:
        """Give the problem in which only these features may have slopes."""
        penalty = self.penalty.restricted(features)
        if penalty is None:
            raise ValueError(f"{self.penalty!r} cannot be restricted to some features")
        other = copy.copy(self)
        other.design = self.design.with_features(features)
        other.layout = other.design.layout
        other.penalty = penalty
        other.smooth_curvature, other.rest = penalty.split()
        return other

    def without_slopes(self) -> Problem:
        """Return the problem of the biases alone; weights are (C,) or (C, K)."""
        parts = [t.bias_curvature() for t in self.penalty.terms if isinstance(t, Penalty)]
        beta = np.zeros(self.layout.n_cells)
        for part in parts:
            beta = beta if part is None else beta + part
        other = copy.copy(self)
        other.design = self.design.with_features(np.zeros(0, np.intp))
        other.layout = other.design.layout
        other.penalty = Quadratic(beta, other.layout)
        other.smooth_curvature, other.rest = other.penalty.split()
        return other

    def kept(self, key: object, make: Callable[[], T]) -> T:
        """Give what was made under a key before, here or in a related problem, or make it."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[return-value]

    def keep(self, key: object, value: object) -> None:
        """Put something under a key, for this and all related problems."""
        self._kept[key] = value

    def has_kept(self, key: object) -> bool:
        """Whether there is something under a key."""
        return key in self._kept

    def in_double(self) -> Problem:
        """Give the same problem in float64."""
        if self.design.dtype == np.float64:
            return self
        other = copy.copy(self)
        other.design = self.design.in_double()
        other._kept = {}
        if self.smoother is not None:
            other.smoother = self.smoother.astype(float)
        other.y, other.offset = self.y.astype(float), self.offset.astype(float)
        return other

    @property
    def leaf_design(self) -> LeafDesign:
        """The design of a problem with a single task."""
        (block,) = self.design.blocks()
        return block.design

    # -- shapes --------------------------------------------------------------------------------

    def zeros(self) -> NDArray:
        """Return weights that are all zero, (N,) or (N, K)."""
        return np.zeros((self.layout.n_weights, *self.outputs), self.design.dtype)

    def zero_predictions(self) -> NDArray:
        """What the cells add with all weights zero: zeros (n,) or (n, K)."""
        return np.zeros_like(self.y)

    @property
    def curvature(self) -> NDArray | None:
        """The penalty's curvature shaped to multiply theta, or None if it is not quadratic."""
        diagonal = self.penalty.curvature()
        if diagonal is None:
            return None
        diagonal = diagonal.astype(self.design.dtype)
        return diagonal[:, None] if self.outputs else diagonal

    def quadratic(self) -> tuple[NDArray, NDArray]:
        """Return the curvature of a quadratic penalty: (N,), and shaped to multiply theta."""
        plain, shaped = self.penalty.curvature(), self.curvature
        if plain is None or shaped is None:
            raise ValueError(f"{type(self.penalty).__name__} is not a quadratic penalty")
        return plain, shaped

    # -- values --------------------------------------------------------------------------------

    def data_value(self, f: NDArray) -> float:
        """The data term at what the cells predict, f (n,) or (n, K)."""
        raw = f + self.offset
        value = self.loss.value(self.y, raw, self.s)
        if self.smoother is not None:
            value += 0.5 * float(np.vdot(raw, self.smoother @ raw))
        return value

    def objective(self, theta: NDArray, f: NDArray) -> float:
        """J at weights theta whose predictions are f."""
        return self.data_value(f) + self.penalty.value(theta)

    def slope(self, f: NDArray) -> NDArray:
        """Derivative of the data term by the predictions, of the shape of f."""
        raw = f + self.offset
        slope = self.loss.gradient(self.y, raw, self.s)
        return slope if self.smoother is None else slope + self.smoother @ raw

    def data_gradient(self, f: NDArray) -> NDArray:
        """Gradient of the data term by the weights, of the shape of theta: one adjoint pass."""
        return self.design.rmatvec(self.slope(f))

    def loss_curvature(self, f: NDArray) -> NDArray:
        """Second derivative of the loss by every prediction, of the shape of f."""
        return self.loss.curvature(self.y, f + self.offset, self.s)

    def hessian_product(self, f: NDArray, v: NDArray) -> NDArray:
        """Hessian of the data term by the predictions, at f, times v of the shape of f."""
        product = self.loss.hessian_product(self.y, f + self.offset, self.s, v)
        return product if self.smoother is None else product + self.smoother @ v

    # -- optimality ----------------------------------------------------------------------------

    def proximal_step(self, theta: NDArray, gradient: NDArray) -> NDArray:
        """prox(theta - t G, t) with t = `prox_step`; `gradient` is the data gradient at theta."""
        t = theta.dtype.type(self.prox_step)
        G = self.smooth_gradient(theta, gradient)
        return self.rest.prox(theta - t * G, self.prox_step)

    def optimality(self, theta: NDArray, gradient: NDArray, moved: NDArray | None = None) -> float:
        """How far theta is from satisfying the first-order conditions; 0 at the optimum.

        For quadratic penalties max |dJ/dtheta|, for others the largest entry of the proximal
        gradient (theta - prox(theta - t G, t)) / t with the step t = `prox_step`, which FISTA sets
        to 1 / L, where quadratic terms of the penalty count to G; both divided by max |dL/dtheta|
        at zero weights, so that the measure does not change with the scale of y or X.
        `gradient` is the data gradient at theta, `moved` the `proximal_step` where it is known.
        """
        diagonal = self.curvature
        if diagonal is not None:
            residual = gradient + diagonal * theta
        else:
            if moved is None:
                moved = self.proximal_step(theta, gradient)
            residual = (theta - moved) / theta.dtype.type(self.prox_step)
        return float(np.abs(residual).max()) / self.start_slope

    def smooth_gradient(self, theta: NDArray, gradient: NDArray) -> NDArray:
        """The data gradient plus that of the quadratic part of the penalty."""
        if self.smooth_curvature is None:
            return gradient
        diagonal = self.smooth_curvature.astype(theta.dtype)
        return gradient + (diagonal[:, None] if self.outputs else diagonal) * theta

    def gap(self, theta: NDArray, gradient: NDArray) -> float:
        """Certified bound of J(theta) - min J; infinite where some weight is not penalised.

        With a quadratic penalty of curvature D > 0 the objective is strongly convex in the norm
        of D, so that J(theta) - min J <= sum (dJ/dtheta)^2 / (2 D).
        """
        diagonal = self.curvature
        if diagonal is None or (diagonal <= 0).any():
            return np.inf
        residual = (gradient + diagonal * theta).astype(float)
        return 0.5 * float(np.sum(residual**2 / diagonal))


def as_numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Give values as float64, or say which argument does not hold real numbers."""
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError("complex numbers")
        return array.astype(float)
    except (TypeError, ValueError) as cause:
        raise ValueError(f"{name} must hold real numbers: {cause}") from None


def check_weights(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
    """Give sample weights (n,) that are finite, not negative and not all zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    weights = as_numbers("sample_weight", sample_weight)
    if weights.ndim == 0:
        weights = np.full(n_rows, float(weights))
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weights.shape}, expected ({n_rows},)")
    if not np.isfinite(weights).all():
        raise ValueError("sample_weight holds NaN or infinity")
    if (weights < 0).any():
        raise ValueError(f"sample_weight holds {weights.min():g}: weights must not be negative")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: nothing to fit")
    with np.errstate(over="ignore"):
        return weights if np.isfinite(weights.sum()) else weights / weights.max()
