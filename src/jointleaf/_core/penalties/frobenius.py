"""The squared Frobenius norm: ridge on the weights of all cells."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Penalty, check_number, check_strength

__all__ = ["Free", "Frobenius", "Quadratic"]


class Quadratic(Penalty):
    """R(theta) = sum of curvature * theta^2 / 2, with a given curvature (C, q)."""

    _curvature: NDArray[np.float64] | None = None

    def __init__(self, curvature: NDArray[np.float64]) -> None:
        self._curvature = curvature

    def curvature(self) -> NDArray[np.float64]:
        """The Hessian's diagonal, (C, q)."""
        if self._curvature is None:
            raise ValueError(f"this {self!r} penalty is not bound to a layout: call bind(layout)")
        return self._curvature

    def value(self, theta: NDArray) -> float:
        """R(theta) for theta (C, q) or (C, q, K)."""
        squares = np.square(theta, dtype=float)
        if theta.ndim == 3:
            squares = squares.sum(axis=2)
        return 0.5 * float(np.vdot(self.curvature(), squares))

    def prox(self, theta: NDArray, step: float) -> NDArray:
        """Theta / (1 + step * curvature)."""
        shrink = (1.0 / (1.0 + step * self.curvature())).astype(theta.dtype)
        return theta * (shrink if theta.ndim == 2 else shrink[:, :, None])

    def __rmul__(self, factor: float) -> Quadratic:
        return Quadratic(check_number("factor", factor, positive=True) * self.curvature())

    def split(self) -> tuple[NDArray | None, Penalty]:
        """All of it, and nothing more."""
        return self.curvature(), Free(self.curvature().shape)

    def restricted(self, features: NDArray[np.intp]) -> Quadratic:
        """The penalty on some features alone."""
        other = copy.copy(self)
        if self._curvature is not None:
            other._curvature = self._curvature[:, np.append(features, -1)]
        return other


class Free(Quadratic):
    """No penalty at all, of weights of a shape (C, q)."""

    def __init__(self, shape: tuple[int, ...] | None = None) -> None:
        if shape is not None:
            self._curvature = np.zeros(shape)

    def __repr__(self) -> str:
        return "Free()"

    def bind(self, layout: CellLayout) -> Free:
        """Remember the shape of the weights."""
        return Free((layout.n_cells, layout.n_columns))

    def __rmul__(self, factor: float) -> Free:
        return self

    def prox(self, theta: NDArray, step: float) -> NDArray:
        """Theta itself."""
        return theta


class Frobenius(Quadratic):
    r"""Ridge penalty on slopes and biases.

    .. math::

        R(W, b) = \tfrac{1}{2} \sum_p \frac{1}{u_p} \sum_{c \in p} \Big(
            \lambda \sum_j \frac{w_{cj}^2}{v_j} + \beta\, b_c^2 \Big)

    With several tasks every term is multiplied by the weight gamma_t of its task.

    Parameters
    ----------
    strength : float > 0 or "auto"
        lambda, the strength on slopes; "auto" lets an estimator choose it by cross-validation.
    bias_strength : float >= 0, optional
        beta, the strength on biases; by default that on slopes. Zero leaves the biases
        free, as in the JOPLEn paper; constant cells need it positive to be regularised at all.
    feature_weights : array (d,) of positive numbers, optional
        v_j, which divide the penalty of feature j: a feature with a larger weight is
        shrunk less. By default all one.
    partition_weights : array (P,) of positive numbers, optional
        u_p, which divide the penalty of every cell of partition p. By default all one.
    """

    def __init__(
        self,
        strength: float | str,
        bias_strength: float | None = None,
        feature_weights: ArrayLike | None = None,
        partition_weights: ArrayLike | None = None,
    ) -> None:
        self.strength = check_strength(strength)
        self._bias_follows = bias_strength is None
        self.bias_strength = (
            self.strength
            if bias_strength is None
            else check_number("bias_strength", bias_strength, positive=False)
        )
        self.feature_weights = _weights("feature_weights", feature_weights)
        self.partition_weights = _weights("partition_weights", partition_weights)
        self._layout: CellLayout | None = None

    def __repr__(self) -> str:
        parts = [
            f"{name}={value!r}" if isinstance(value, str) else f"{name}={value:.4g}"
            for name, value in (("strength", self.strength), ("bias_strength", self.bias_strength))
        ]
        for name in ("feature_weights", "partition_weights"):
            values = getattr(self, name)
            if values is not None:
                parts.append(f"{name}=<{len(values)} values>")
        return f"Frobenius({', '.join(parts)})"

    def scaled(self, factor: float) -> Frobenius:
        """Give the same penalty with both strengths multiplied by a factor."""
        return Frobenius(
            self.strength * factor,
            self.bias_strength * factor,
            self.feature_weights,
            self.partition_weights,
        )

    def at(self, strength: float) -> Frobenius:
        """Give the same penalty with this strength; biases follow unless they have their own."""
        other = copy.copy(self)
        other.strength = self.share * check_number("strength", strength, positive=True)
        other.share = 1.0
        if self._bias_follows:
            other.bias_strength = other.strength
        return other if self._layout is None else other.bind(self._layout)

    def __rmul__(self, factor: float) -> Frobenius:
        other = Penalty.__rmul__(self, factor)
        return other if self._layout is None else other.bind(self._layout)

    @property
    def is_bias_auto(self) -> bool:
        """Never: biases follow the slopes, or have a number."""
        return False

    def restricted(self, features: NDArray[np.intp]) -> Quadratic:
        """The penalty on some features alone."""
        return Quadratic(self.curvature()).restricted(features)

    def bind(self, layout: CellLayout) -> Frobenius:
        """Lay the weights out over cells and columns; checks their lengths."""
        _check_length("feature_weights", self.feature_weights, layout.n_features, "features")
        _check_length(
            "partition_weights", self.partition_weights, layout.n_partitions, "partitions"
        )
        bound = copy.copy(self)
        bound._layout = layout
        if not self.is_auto:
            bound._curvature = bound.column_strengths(layout) / bound.cell_weights(layout)[:, None]
        return bound

    def column_strengths(self, layout: CellLayout) -> NDArray[np.float64]:
        """Lambda / v_j for the slopes, then beta: shape (q,)."""
        slopes = np.full(layout.n_slopes, self.strength)
        if self.feature_weights is not None and layout.n_slopes:
            slopes = slopes / self.feature_weights
        return np.append(slopes, self.bias_strength)

    def cell_weights(self, layout: CellLayout) -> NDArray[np.float64]:
        """u_p of the partition of every cell, over gamma_t of its task: shape (C,)."""
        factors = layout.cell_factors()
        if self.partition_weights is None:
            return 1.0 / factors
        return self.partition_weights[layout.partition_of_cell] / factors


def _weights(name: str, values: ArrayLike | None) -> NDArray[np.float64] | None:
    if values is None:
        return None
    try:
        weights = np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={values!r} must be a list of positive numbers") from None
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights <= 0).any():
        raise ValueError(f"{name} must be a list of positive numbers: raise zeros to a small value")
    return weights


def _check_length(name: str, values: NDArray | None, expected: int, what: str) -> None:
    if values is not None and len(values) != expected:
        raise ValueError(f"{name} has {len(values)} entries, but there are {expected} {what}")
