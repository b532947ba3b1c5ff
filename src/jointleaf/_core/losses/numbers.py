"""Losses of numbers that are functions of the residual y - f."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import array_namespace
from jointleaf._core.losses.base import Kinked, Loss

_EFFICIENT = 1.345  # standard deviations: 95 % as precise as least squares for normal errors
_NORMAL_MAD = 1.4826  # standard deviation over median absolute deviation of a normal variable


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
