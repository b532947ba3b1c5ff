"""Losses on a device: one function of a row's target and prediction, derivatives by JAX.

`RowLoss` is the weighted mean over rows of such a function, with its gradient, curvature and
Hessian products by automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jointleaf._core.losses import Logistic, Loss, Multinomial, SquaredError

__all__ = ["RowLoss", "row_loss"]


def squared_error(y: Any, f: Any) -> Any:
    """(f - y)^2 / 2."""
    return 0.5 * jnp.square(f - y)


def logistic(y: Any, f: Any) -> Any:
    """log(1 + exp(-y f))."""
    return jnp.logaddexp(0.0, -y * f)


def multinomial(y: Any, f: Any) -> Any:
    """Softmax cross-entropy (n,) of one-hot targets and predictions (n, K)."""
    return jax.nn.logsumexp(f, axis=1) - jnp.sum(y * f, axis=1)


@dataclass(frozen=True)
class RowLoss:
    """L(f) = sum_n share_n loss(y_n, f_n); shares sum to 1.

    Attributes
    ----------
    function : callable (y, f) -> (n,) or (n, K)
        Losses of all rows; a row's value must depend on that row alone.
    max_curvature : float
        Bound of the second derivative of loss(y, f) in f; may be infinite.
    """

    function: Callable[[Any, Any], Any]
    max_curvature: float

    def value(self, y: Any, f: Any, shares: Any) -> Any:
        """L(f), in float64."""
        rows = self.function(y, f).astype(jnp.float64)
        return jnp.sum(shares * (rows if rows.ndim == 1 else rows.sum(axis=1)))

    def _sum(self, f: Any, y: Any, shares: Any) -> Any:
        rows = self.function(y, f)
        rows = rows if rows.ndim == 1 else rows.sum(axis=1)
        return jnp.sum(shares.astype(f.dtype) * rows)

    def gradient(self, y: Any, f: Any, shares: Any) -> Any:
        """dL/df, of the shape of f."""
        return jax.grad(self._sum)(f, y, shares)

    def hessian_product(self, y: Any, f: Any, shares: Any, v: Any) -> Any:
        """Hessian of L times v, of the shape of f."""
        return jax.jvp(lambda g: self.gradient(y, g, shares), (f,), (v,))[1]

    def curvature(self, y: Any, f: Any, shares: Any) -> Any:
        """Second derivative of every entry, of the shape of f."""
        if f.ndim == 1:  # rows do not mix: the product with ones is the diagonal
            return self.hessian_product(y, f, shares, jnp.ones_like(f))
        columns = []
        for k in range(f.shape[1]):
            unit = jnp.zeros_like(f).at[:, k].set(1.0)
            columns.append(self.hessian_product(y, f, shares, unit)[:, k])
        return jnp.stack(columns, axis=1)


_FUNCTIONS: dict[type[Loss], Callable[[Any, Any], Any]] = {
    SquaredError: squared_error,
    Logistic: logistic,
    Multinomial: multinomial,
}


def row_loss(loss: Loss) -> RowLoss | None:
    """The loss for a device; None for one that is written in NumPy alone."""
    function = getattr(loss, "function", None) or _FUNCTIONS.get(type(loss))
    return None if function is None else RowLoss(function, float(loss.max_curvature))
