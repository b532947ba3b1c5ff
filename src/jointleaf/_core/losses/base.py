"""Losses: convex functions of raw predictions f, with sample weights.

Every loss is the weighted mean over rows,

    L(f) = (1/S) sum_n s_n loss(y_n, f_n),        S = sum_n s_n,

and works on targets that `encode` has prepared. A loss is one small class that gives loss(y, f)
and its derivatives row by row; weights, and sums over rows, are the business of the base class.
A loss with kinks gives smooth lower bounds of itself instead (`Kinked`).
Written with the functions of `array_namespace`, a loss runs on NumPy's arrays and on JAX's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from jointleaf._core.arrays import array_namespace, over_rows, shaped

_EFFICIENT = 1.345  # standard deviations: 95 % as precise as least squares for normal errors
_NORMAL_MAD = 1.4826  # standard deviation over median absolute deviation of a normal variable


class Loss(ABC):
    """A convex loss on raw predictions f (n,), or (n, K) with K outputs.

    A subclass gives `row_loss`, `row_gradient`, `row_curvature` and `best_constant` and, where
    outputs couple, `row_hessian` and `row_hessian_product`. Losses of one class with equal
    attributes are equal.
    """

    name: str = ""
    #: an upper bound of the second derivative of loss(y, f) in f, for the step of FISTA
    max_curvature: float = np.inf
    #: whether the loss is a quadratic function of f
    is_quadratic: bool = False
    #: whether it has a derivative everywhere; if not, it is a `Kinked`
    is_smooth: bool = True
    #: whether it is a function of y - f: what is added to f can be taken from y instead
    is_of_residuals: bool = False
    #: whether predictions are exp(f), so that exposure multiplies them
    has_log_link: bool = False
    #: whether it has a scale in units of y that is still to be found, by `with_scale`
    needs_scale: bool = False
    #: whether its targets are classes
    is_of_classes: bool = False
    #: attributes that change from solve to solve, which JAX does not compile in
    traced: tuple[str, ...] = ()

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return targets in the form the other methods take, (n,) or (n, K), after checks."""
        targets = np.asarray(y, dtype=float)
        if not np.isfinite(targets).all():
            raise ValueError("y holds NaN or infinity: remove these rows")
        return targets

    # -- row by row ----------------------------------------------------------------------------

    @abstractmethod
    def row_loss(self, y: Any, f: Any) -> Any:
        """Return loss(y, f) of every row, (n,)."""

    @abstractmethod
    def row_gradient(self, y: Any, f: Any) -> Any:
        """Return the first derivative by f, of the shape of f."""

    @abstractmethod
    def row_curvature(self, y: Any, f: Any) -> Any:
        """Return the second derivative by every entry of f, of the shape of f."""

    def row_hessian(self, y: Any, f: Any) -> Any:
        """Return what `row_hessian_product` needs of f, of its shape: by default the curvature."""
        return self.row_curvature(y, f)

    def row_hessian_product(self, hessian: Any, v: Any) -> Any:
        """Return the Hessian of every row, as of `row_hessian`, times v, of the shape of v."""
        return hessian * v

    def row_working_curvature(self, y: Any, f: Any) -> Any:
        """Return positive curvatures of a quadratic model of the loss around f.

        By default the second derivative; where that is zero or depends on chance, its expected
        value or that of a quadratic upper bound.
        """
        return self.row_curvature(y, f)

    @abstractmethod
    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the raw prediction, one number or (K,), of the best constant model."""

    def best_shift(self, y: NDArray, s: NDArray, offset: NDArray | float = 0.0) -> NDArray:
        """Return the best constant that is added to raw predictions `offset` of the rows."""
        if not np.any(offset):
            return self.best_constant(y, s)
        if self.is_of_residuals:
            return self.best_constant(y - offset, s)
        return self._search_shift(y, s, offset)

    def _search_shift(self, y: NDArray, s: NDArray, offset: NDArray | float) -> NDArray:
        def value(shift: float) -> float:
            return self.value(y, shift + np.broadcast_to(offset, y.shape).astype(float), s)

        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(minimize_scalar(value, tol=1e-12).x)

    def in_units(self, unit: float) -> Loss:
        """Return the loss, up to a factor, for targets divided by a unit."""
        return self

    def with_scale(self, residuals: NDArray, s: NDArray) -> Loss:
        """Return the loss with its scale found from residuals, where it has one to find."""
        return self

    def link(self, f: NDArray) -> NDArray:
        """Return predictions on the scale of the answer: f itself, or probabilities (n, K)."""
        return f

    def deviation(self, mean: NDArray) -> NDArray[np.float64]:
        """Return standard deviations (n,), up to a factor, that targets of these means have."""
        return np.ones_like(mean)

    def low_quantiles(self, mean: NDArray, levels: NDArray) -> NDArray[np.float64]:
        """Return what quantiles of levels below 1/2 are at most, for targets of these means."""
        return np.broadcast_to(np.inf, np.broadcast_shapes(mean.shape, levels.shape))

    # -- over all rows -------------------------------------------------------------------------
    # `total` is S, by default the sum of s; with the S of all rows, blocks of rows add up.

    def value(self, y: Any, f: Any, s: Any, total: Any = None) -> Any:
        """Return L(f), a number in float64."""
        value = (s * over_rows(self.row_loss, y, f)).sum() / (s.sum() if total is None else total)
        return float(value) if array_namespace(f) is np else value

    def gradient(self, y: Any, f: Any, s: Any, total: Any = None) -> Any:
        """Return dL/df, of the shape of f."""
        return _row_weights(s, f, total) * over_rows(self.row_gradient, y, f)

    def curvature(self, y: Any, f: Any, s: Any, total: Any = None) -> Any:
        """Return the second derivative of L by every entry of f, of the shape of f."""
        return _row_weights(s, f, total) * over_rows(self.row_curvature, y, f)

    def working_curvature(self, y: Any, f: Any, s: Any, total: Any = None) -> Any:
        """Return the curvature of a quadratic model of L around f, of the shape of f."""
        return _row_weights(s, f, total) * over_rows(self.row_working_curvature, y, f)

    def hessian(self, y: Any, f: Any, s: Any, total: Any = None) -> Callable[[Any], Any]:
        """Return the Hessian of L at f, as a function of the direction that it multiplies."""
        weights, hessian = _row_weights(s, f, total), over_rows(self.row_hessian, y, f)
        return lambda v: weights * over_rows(self.row_hessian_product, hessian, v)

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({numbers})"

    # Compiled functions of JAX are kept for equal losses.

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or vars(self).keys() != vars(other).keys():
            return False
        return all(np.array_equal(value, vars(other)[name]) for name, value in vars(self).items())

    def __hash__(self) -> int:
        return hash(type(self))


class Kinked(Loss):
    """A convex loss without a derivative in places, as the limit of smooth lower bounds.

    Solvers minimise `smoothed` losses. The derivatives a of these lie in the domain of the
    conjugate loss*, so that loss(y, f) + loss*(a) - a f >= 0 tells by how much a falls short of
    being a subgradient at f.
    """

    is_smooth = False

    @abstractmethod
    def smoothed(self, width: float) -> Loss:
        """Return a smooth loss that differs from this one around kinks of a width, in f."""

    @abstractmethod
    def row_excess(self, y: Any, f: Any, slope: Any) -> Any:
        """Return loss(y, f) + loss*(a) - a f of every row, for derivatives a of smooth losses."""


def _row_weights(s: Any, f: Any, total: Any) -> Any:
    """Return s_n / S in the type of f, shaped to multiply it."""
    return shaped((s / (s.sum() if total is None else total)).astype(f.dtype), f)


# -- functions of the residual y - f ---------------------------------------------------------------


class SquaredError(Loss):
    """loss(y, f) = (f - y)^2 / 2."""

    name = "squared_error"
    is_of_residuals = True
    max_curvature = 1.0
    is_quadratic = True

    def row_loss(self, y: Any, f: Any) -> Any:
        squares = 0.5 * (f - y) ** 2
        return squares if squares.ndim == 1 else squares.sum(axis=1)

    def row_gradient(self, y: Any, f: Any) -> Any:
        return f - y

    def row_curvature(self, y: Any, f: Any) -> Any:
        return array_namespace(f).ones_like(f)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the weighted mean."""
        return np.average(y, axis=0, weights=s)


class Huber(Loss):
    """loss(y, f) = r^2 / 2 for |r| <= delta, delta (|r| - delta / 2) beyond, with r = y - f.

    Parameters
    ----------
    delta : float, optional
        In units of y. By default it is found from residuals: 1.345 times their standard deviation,
        which is estimated by the median absolute deviation.
    """

    name = "huber"
    max_curvature = 1.0
    is_of_residuals = True

    def __init__(self, delta: float | None = None) -> None:
        if delta is not None and not (np.isreal(delta) and 0 < delta < np.inf):
            raise ValueError(f"delta={delta!r} must be a positive number, or None to find it")
        self.delta = None if delta is None else float(delta)

    @property
    def needs_scale(self) -> bool:  # type: ignore[override]
        """Whether delta is still to be found."""
        return self.delta is None

    def with_scale(self, residuals: NDArray, s: NDArray) -> Loss:
        """Return the loss with the delta of residuals; a delta that was given stays."""
        return self if self.delta is not None else Huber(_EFFICIENT * robust_scale(residuals, s))

    def in_units(self, unit: float) -> Loss:
        """Return the loss with delta in a unit."""
        return self if self.delta is None else Huber(self.delta / unit)

    def row_loss(self, y: Any, f: Any) -> Any:
        size = array_namespace(f).abs(y - f)
        inside = array_namespace(f).minimum(size, self._delta)
        return inside * (size - 0.5 * inside)

    def row_gradient(self, y: Any, f: Any) -> Any:
        return array_namespace(f).clip(f - y, -self._delta, self._delta)

    def row_curvature(self, y: Any, f: Any) -> Any:
        return (array_namespace(f).abs(y - f) <= self._delta).astype(f.dtype)

    def row_working_curvature(self, y: Any, f: Any) -> Any:
        """Return delta / max(|r|, delta): of the parabola above the loss that touches it."""
        xp = array_namespace(f)
        return self._delta / xp.maximum(xp.abs(y - f), self._delta)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the minimiser, by steps to weighted means."""
        constant = weighted_quantile(y, s, 0.5)
        for _ in range(200):
            h = s * self.row_working_curvature(y, np.full(y.shape, constant))
            before, constant = constant, float(np.average(y, weights=h))
            if abs(constant - before) <= 1e-14 * (abs(constant) + self._delta):
                break
        return np.asarray(constant)

    @property
    def _delta(self) -> float:
        if self.delta is None:
            raise ValueError("Huber() has no delta yet: give one, or fit, which finds it")
        return self.delta


class Pinball(Kinked):
    """`under` times what predictions lack, plus `over` times what they have too much."""

    is_of_residuals = True
    under: float
    over: float

    def smoothed(self, width: float) -> Loss:
        """Return max_u u r - (width / 2) u^2 over -over <= u <= under: quadratic near r = 0."""
        return SmoothedPinball(self.under, self.over, float(width))

    def row_loss(self, y: Any, f: Any) -> Any:
        return array_namespace(f).maximum(self.under * (y - f), self.over * (f - y))

    def row_gradient(self, y: Any, f: Any) -> Any:
        """Return a subgradient."""
        xp, residual = array_namespace(f), y - f
        slope = xp.where(residual > 0, -self.under, xp.where(residual < 0, self.over, 0.0))
        return slope.astype(f.dtype)

    def row_curvature(self, y: Any, f: Any) -> Any:
        """Return zeros, the second derivative almost everywhere."""
        return array_namespace(f).zeros_like(f)

    def row_excess(self, y: Any, f: Any, slope: Any) -> Any:
        """Return loss(y, f) + a (y - f), as loss*(a) = a y for -under <= a <= over."""
        return self.row_loss(y, f) + slope * (y - f)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the weighted quantile."""
        level = self.under / (self.under + self.over)
        return np.asarray(weighted_quantile(y, s, level))


class AbsoluteError(Pinball):
    """loss(y, f) = |y - f|: the median."""

    name = "absolute_error"
    under = over = 1.0


class Quantile(Pinball):
    """loss(y, f) = max(q r, (q - 1) r) with r = y - f: the quantile of level q.

    Parameters
    ----------
    quantile : float in (0, 1)
    """

    name = "quantile"

    def __init__(self, quantile: Any = 0.5) -> None:
        if np.ndim(quantile) or not (np.isreal(quantile) and 0 < quantile < 1):
            several = "; only JOPLEnRegressor takes several levels"
            remedy = several if np.ndim(quantile) else ", such as 0.9"
            raise ValueError(f"quantile={quantile!r} must be a number between 0 and 1{remedy}")
        self.quantile = float(quantile)

    @property
    def under(self) -> float:  # type: ignore[override]
        """Price of a prediction that is 1 too small."""
        return self.quantile

    @property
    def over(self) -> float:  # type: ignore[override]
        """Price of a prediction that is 1 too large."""
        return 1.0 - self.quantile


class SmoothedPinball(Loss):
    """A quantile or absolute error loss with a parabola in place of its kink.

    With r = y - f it is max_u u r - (width / 2) u^2 over -over <= u <= under.
    """

    name = "smoothed_pinball"
    is_of_residuals = True
    traced = ("width",)

    def __init__(self, under: float, over: float, width: float) -> None:
        self.under, self.over, self.width = under, over, width

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        """1 / width."""
        return 1.0 / self.width

    def row_loss(self, y: Any, f: Any) -> Any:
        u = -self.row_gradient(y, f)
        return u * (y - f - (0.5 * self.width * u).astype(f.dtype))

    def row_gradient(self, y: Any, f: Any) -> Any:
        steep = ((f - y) / self.width).astype(f.dtype)
        return array_namespace(f).clip(steep, -self.under, self.over)

    def row_curvature(self, y: Any, f: Any) -> Any:
        steep = (f - y) / self.width
        is_near = (steep > -self.under) & (steep < self.over)
        return (is_near / self.width).astype(f.dtype)

    def row_working_curvature(self, y: Any, f: Any) -> Any:
        """Return that of the parabola above the loss that touches it, a tilted Huber loss."""
        xp, steep = array_namespace(f), 0.5 * (self.under + self.over)
        centre = 0.5 * (self.under - self.over) * self.width
        return steep / xp.maximum(xp.abs(y - f - centre), steep * self.width)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the weighted quantile, from which the minimiser differs by less than the width."""
        level = self.under / (self.under + self.over)
        return np.asarray(weighted_quantile(y, s, level))


def weighted_quantile(values: NDArray, s: NDArray, level: float) -> float:
    """Return the smallest value with at least a fraction `level` of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(s[order])
    # Rounding of the sums must not move the median of equal weights by one row.
    place = np.searchsorted(below, level * below[-1] * (1 - 1e-12))
    return float(values[order[min(place, len(values) - 1)]])


def robust_scale(values: NDArray, s: NDArray) -> float:
    """Return an estimate of the standard deviation from the median absolute deviation.

    Where more than half of the values are equal it is zero: the mean absolute deviation stands in,
    and 1 where that is zero too.
    """
    deviations = np.abs(values - weighted_quantile(values, s, 0.5))
    scale = _NORMAL_MAD * weighted_quantile(deviations, s, 0.5)
    scale = scale if scale > 0 else float(np.average(deviations, weights=s))
    return scale if scale > 0 else 1.0


# -- losses by name --------------------------------------------------------------------------------

#: All that have a name; `jointleaf._core.losses` fills it.
LOSSES: dict[str, Callable[..., Loss]] = {}
NUMBER_LOSSES = (
    "squared_error", "absolute_error", "huber", "quantile", "poisson", "gamma", "tweedie"
)  # fmt: skip
_LIMITS = {0.0: "squared_error", 1.0: "poisson", 2.0: "gamma"}  # of the powers of Tweedie losses


def make_loss(
    loss: str | Loss, quantile: float | Sequence[float] | None = None, power: float | None = None
) -> Loss:
    """Return the loss of a name and its parameters, or the object itself.

    A Tweedie power of 0, 1 or 2 is the squared error, `Poisson` or `Gamma`.
    """
    for argument, value, owner in (("quantile", quantile, "quantile"), ("power", power, "tweedie")):
        if value is not None and not (isinstance(loss, str) and loss == owner):
            raise ValueError(
                f"{argument}={value!r} has no effect with loss={loss!r}: leave it out, or use "
                f"loss={owner!r}"
            )
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(f"loss={loss!r} is not known: use one of {sorted(LOSSES)} or a Loss")
    if quantile is not None:
        return Quantile(quantile)
    if power is not None:
        limit = _LIMITS.get(float(power))
        return LOSSES[loss](power) if limit is None else LOSSES[limit]()
    return LOSSES[loss]()


def joined_loss(losses: Sequence[Loss], sizes: Sequence[int]) -> Loss:
    """Return the loss of parts of rows, which have losses of one class.

    Where these differ, its numbers (the delta of `Huber`) are arrays with one for every row.
    """
    first = losses[0]
    if all(loss == first for loss in losses):
        return first
    joined = copy(first)
    for name in vars(first):
        setattr(joined, name, np.repeat([getattr(loss, name) for loss in losses], sizes))
    return joined


def make_number_loss(
    loss: str | Loss, quantile: float | Sequence[float] | None = None, power: float | None = None
) -> Loss:
    """Return the loss of numbers of a name and its parameters, or the object itself."""
    if isinstance(loss, str) and loss not in NUMBER_LOSSES:
        raise ValueError(f"loss={loss!r} is not known: use one of {NUMBER_LOSSES} or a Loss")
    if not isinstance(loss, str | Loss):
        raise TypeError(f"loss={loss!r} must be one of {NUMBER_LOSSES} or a Loss")
    if isinstance(loss, Loss) and loss.is_of_classes:
        raise ValueError(f"loss={loss!r} is for classes: use a classifier, or a loss of numbers")
    return make_loss(loss, quantile, power)
