"""Penalties that are a norm of the slopes, biases free: what they share, and the row-sparse ones.

W is the d x m matrix of all slopes: one row per feature, one column per cell (and output).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import AUTO, Penalty, check_number, check_strength
from jointleaf._core.penalties.shrink import (
    shrink_l1,
    shrink_l2_weighted,
    shrink_lp,
    shrink_sorted,
)

__all__ = [
    "L1",
    "L21",
    "GrOWL",
    "LInf1",
    "Lp1",
    "RotationInvariant",
    "SlopeNorm",
    "check_power",
    "conjugate",
]


class SlopeNorm(Penalty):
    r"""R(W, b) = strength * |W| + (bias_strength / 2) |b|^2, for a norm |W| of the slopes.

    Biases are free unless `bias_strength` is positive; with several tasks |b|^2 is
    sum_t gamma_t |b_t|^2. A subclass gives the norm, its proximal map and its dual norm, on
    W (d, m).

    Parameters
    ----------
    strength : float > 0 or "auto"
        "auto" lets an estimator choose it by cross-validation.
    bias_strength : float >= 0 or "auto", optional
        By default zero, or "auto" where the strength is: with many cells free biases fit the
        training rows by themselves, so that what is left for the slopes is noise.
    """

    def __init__(self, strength: float | str, bias_strength: float | str | None = None) -> None:
        self.strength = check_strength(strength)
        self.bias_strength = _check_bias(bias_strength, self.is_auto)
        #: bound to a layout: gamma_t of every cell's task, (C,)
        self._factors: NDArray[np.float64] | None = None

    def __repr__(self) -> str:
        parts = [repr(self.strength) if self.is_auto else f"{self.strength:.4g}"]
        parts += [f"{name}={value}" for name, value in self._options().items()]
        if self.bias_strength and not self.is_bias_auto:
            parts.append(f"bias_strength={self.bias_strength:.4g}")
        share = f"{self.share:g} * " if self.share != 1 else ""
        return f"{share}{type(self).__name__}({', '.join(parts)})"

    def _options(self) -> dict[str, Any]:
        """What else the representation shows."""
        return {}

    @abstractmethod
    def norm(self, W: NDArray) -> float:
        """|W|."""

    @abstractmethod
    def shrink(self, W: NDArray, t: float) -> NDArray:
        """argmin_Z |Z - W|_F^2 / 2 + t |Z|."""

    @abstractmethod
    def dual_norm(self, G: NDArray) -> float:
        """Largest <G, W> over all W with |W| <= 1."""

    def bind(self, layout: CellLayout) -> SlopeNorm:
        """Remember the cells."""
        bound = copy.copy(self)
        bound._factors = layout.cell_factors()
        return bound

    def value(self, theta: NDArray) -> float:
        """|W| times the strength, + (bias_strength / 2) |b|^2."""
        value = self.strength * self.norm(slope_rows(theta))
        if self.bias_strength:
            squares = np.square(theta[:, -1], dtype=float).reshape(len(theta), -1).sum(axis=1)
            value += 0.5 * float(self._bias_strengths(theta) @ squares)
        return value

    def prox(self, theta: NDArray, step: float) -> NDArray:
        """Shrink the slopes by step * strength, divide the biases by 1 + step * bias_strength."""
        out = np.empty_like(theta)
        shrunk = self.shrink(slope_rows(theta), step * self.strength)
        out[:, :-1] = cells_of(shrunk, theta.shape)
        shrink = (1.0 + step * self._bias_strengths(theta)).astype(theta.dtype)
        out[:, -1] = theta[:, -1] / (shrink if theta.ndim == 2 else shrink[:, None])
        return out

    def _bias_strengths(self, theta: NDArray) -> NDArray[np.float64]:
        """Of every cell, (C,)."""
        factors = np.ones(len(theta)) if self._factors is None else self._factors
        return self.bias_strength * factors

    def bias_curvature(self) -> NDArray[np.float64] | None:
        """bias_strength, times gamma_t, of every cell."""
        return None if self._factors is None else self.bias_strength * self._factors

    def restricted(self, features: NDArray[np.intp]) -> SlopeNorm:
        """Itself: rows of zeros do not change the norm."""
        return self

    def strength_max(self, gradient: NDArray) -> float:
        """The dual norm of the slopes' gradient at zero slopes and the best biases."""
        return self.dual_norm(slope_rows(np.asarray(gradient, float))) / self.share


class RotationInvariant(SlopeNorm):
    """A norm that does not change when the cells of a task are rotated among each other."""

    @abstractmethod
    def shrink_weighted(self, W: NDArray, t: float, weights: NDArray) -> NDArray:
        """argmin_Z sum_j weights_j |Z_j - W_j|^2 / 2 + t |Z| over columns j; weights (m,)."""


class L1(SlopeNorm):
    """R = strength * sum of |w| over all slopes (+ bias_strength / 2 |b|^2): single slopes vanish.

    Parameters
    ----------
    strength : float > 0 or "auto"
    bias_strength : float >= 0 or "auto", optional
        By default zero, or "auto" where the strength is.
    """

    is_row_sparse = True

    def norm(self, W: NDArray) -> float:
        """Sum of absolute values."""
        return float(np.abs(W).sum(dtype=float))

    def shrink(self, W: NDArray, t: float) -> NDArray:
        """Soft thresholding."""
        return shrink_l1(W, t)

    def dual_norm(self, G: NDArray) -> float:
        """Largest absolute value."""
        return float(np.abs(G).max(initial=0.0))


class Lp1(SlopeNorm):
    """R = strength * sum over features of the l_p norm of the feature's slopes in all cells.

    Whole features vanish. (+ bias_strength / 2 |b|^2.)

    Parameters
    ----------
    strength : float > 0 or "auto"
    p : float >= 1
        numpy.inf for the largest absolute value.
    bias_strength : float >= 0 or "auto", optional
        By default zero, or "auto" where the strength is.
    """

    is_row_sparse = True

    def __init__(
        self, strength: float | str, p: float, bias_strength: float | str | None = None
    ) -> None:
        super().__init__(strength, bias_strength)
        self.p = check_power(p)

    def _options(self) -> dict[str, Any]:
        return {"p": f"{self.p:g}"}

    def norm(self, W: NDArray) -> float:
        """Sum over rows of their l_p norms."""
        return float(np.linalg.norm(W, self.p, axis=1).sum(dtype=float)) if W.size else 0.0

    def shrink(self, W: NDArray, t: float) -> NDArray:
        """Row by row; see `_core.penalties.shrink`."""
        return shrink_lp(W, t, self.p)

    def dual_norm(self, G: NDArray) -> float:
        """Largest l_q norm of a row, 1/p + 1/q = 1."""
        if not G.size:
            return 0.0
        return float(np.linalg.norm(G, conjugate(self.p), axis=1).max())


class L21(Lp1, RotationInvariant):
    """R = strength * sum over features of the Euclidean norm of the feature's slopes.

    Whole features vanish: the group LASSO over all cells of all partitions.
    (+ bias_strength / 2 |b|^2.)

    Parameters
    ----------
    strength : float > 0 or "auto"
    bias_strength : float >= 0 or "auto", optional
        By default zero, or "auto" where the strength is.
    """

    def __init__(self, strength: float | str, bias_strength: float | str | None = None) -> None:
        super().__init__(strength, 2.0, bias_strength)

    def _options(self) -> dict[str, Any]:
        return {}

    def shrink_weighted(self, W: NDArray, t: float, weights: NDArray) -> NDArray:
        """Group soft thresholding in a weighted norm."""
        return shrink_l2_weighted(W, t, weights)


class LInf1(Lp1):
    """R = strength * sum over features of the largest absolute slope of the feature.

    Whole features vanish, and the slopes of the others tend to one common size.
    (+ bias_strength / 2 |b|^2.)

    Parameters
    ----------
    strength : float > 0 or "auto"
    bias_strength : float >= 0 or "auto", optional
        By default zero, or "auto" where the strength is.
    """

    def __init__(self, strength: float | str, bias_strength: float | str | None = None) -> None:
        super().__init__(strength, np.inf, bias_strength)

    def _options(self) -> dict[str, Any]:
        return {}


class GrOWL(SlopeNorm):
    """Group ordered weighted l1 norm: R = strength * sum_i weights_i |row|_[i].

    |row|_[1] >= |row|_[2] >= ... are the Euclidean norms of the features' slopes in falling order
    (Oswal et al. 2016): correlated features tend to be selected together.
    (+ bias_strength / 2 |b|^2.)

    Parameters
    ----------
    strength : float > 0 or "auto"
    weights : array (d,), optional
        Not negative, not rising, the first positive. By default from 1 to 1/d in equal steps.
    bias_strength : float >= 0 or "auto", optional
        By default zero, or "auto" where the strength is.
    """

    is_row_sparse = True

    def __init__(
        self,
        strength: float | str,
        weights: ArrayLike | None = None,
        bias_strength: float | str | None = None,
    ) -> None:
        super().__init__(strength, bias_strength)
        self.weights = None if weights is None else _check_falling(weights)

    def _options(self) -> dict[str, Any]:
        return {} if self.weights is None else {"weights": f"<{len(self.weights)} values>"}

    def bind(self, layout: CellLayout) -> GrOWL:
        """Check the number of weights, or make the default ones."""
        d = layout.n_slopes
        bound = copy.copy(self)
        bound._factors = layout.cell_factors()
        if self.weights is None:
            bound.weights = np.arange(d, 0, -1) / max(d, 1)
        elif len(self.weights) != layout.n_features:
            raise ValueError(
                f"weights of GrOWL has {len(self.weights)} entries, but there are "
                f"{layout.n_features} features: give one weight a feature, falling"
            )
        return bound

    def restricted(self, features: NDArray[np.intp]) -> GrOWL:
        """The first weights: rows of zeros come last."""
        other = copy.copy(self)
        other.weights = self._falling(len(features))
        return other

    def norm(self, W: NDArray) -> float:
        """Weighted sum of the sorted row norms."""
        return float(self._falling(len(W)) @ -np.sort(-np.linalg.norm(W, axis=1)))

    def shrink(self, W: NDArray, t: float) -> NDArray:
        """Shrink the row norms as an ordered weighted l1 norm; rows keep their directions."""
        lengths = np.linalg.norm(W, axis=1).astype(float)
        shorter = shrink_sorted(lengths, t * self._falling(len(W)))
        scale = shorter / np.where(lengths > 0, lengths, 1.0)
        return W * scale[:, None].astype(W.dtype)

    def dual_norm(self, G: NDArray) -> float:
        """Largest, over k, sum of the k longest rows over the sum of the first k weights."""
        lengths = -np.sort(-np.linalg.norm(G, axis=1))
        return float((np.cumsum(lengths) / np.cumsum(self._falling(len(G)))).max(initial=0.0))

    def _falling(self, count: int) -> NDArray[np.float64]:
        if self.weights is None:
            raise ValueError("this GrOWL penalty is not bound to a layout: call bind(layout)")
        return self.weights[:count]


def slope_rows(theta: NDArray) -> NDArray:
    """Slopes of theta (C, q[, K]) as W (d, C K): one row per feature."""
    slopes = theta[:, :-1]
    columns = len(theta) * int(np.prod(theta.shape[2:]))
    return np.ascontiguousarray(np.moveaxis(slopes, 1, 0)).reshape(slopes.shape[1], columns)


def cells_of(W: NDArray, shape: tuple[int, ...]) -> NDArray:
    """The inverse of `slope_rows`: W (d, C K) as slopes (C, d[, K])."""
    return np.moveaxis(W.reshape(shape[1] - 1, shape[0], *shape[2:]), 0, 1)


def check_power(p: Any) -> float:
    """Give the p of a norm: a number, at least 1, possibly infinite."""
    try:
        power = float(p)
    except (TypeError, ValueError):
        raise TypeError(f"p={p!r} must be a number, at least 1") from None
    if not power >= 1:
        raise ValueError(f"p={p!r} must be a number, at least 1: below 1 it is not convex")
    return power


def conjugate(p: float) -> float:
    """Give q with 1/p + 1/q = 1."""
    if p == 1:
        return np.inf
    return 1.0 if p == np.inf else p / (p - 1)


def _check_bias(value: Any, is_auto: bool) -> float | str:
    if value is None:
        return AUTO if is_auto else 0.0
    if isinstance(value, str) and value == AUTO:
        if is_auto:
            return AUTO
        raise ValueError("bias_strength='auto' needs strength='auto': they are chosen together")
    return check_number("bias_strength", value, positive=False)


def _check_falling(weights: ArrayLike) -> NDArray[np.float64]:
    try:
        values = np.array(weights, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"weights={weights!r} must be a list of numbers, one a feature") from None
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("weights of GrOWL must be a list of numbers that are not negative")
    if not values.size or values[0] == 0 or (np.diff(values) > 0).any():
        raise ValueError(
            "weights of GrOWL must begin with a positive number and not rise: sort them, "
            "for example with -numpy.sort(-weights)"
        )
    return values
