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
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from jointleaf._core.arrays import array_namespace, over_rows, shaped


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
