"""Losses that a user writes as one function in `jax.numpy`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from jointleaf._core.arrays import array_namespace, double_precision, find_device
from jointleaf._core.losses.base import Loss


class JaxLoss(Loss):
    """A convex, differentiable loss given by one function; derivatives come from JAX.

    Parameters
    ----------
    function : callable (y, f) -> array (n,)
        Losses of all rows, written in `jax.numpy`, for targets y (n,) and raw predictions f
        (n,). What it returns for a row must depend on that row alone.
    max_curvature : float, optional
        Upper bound of the second derivative of loss(y, f) in f, where there is one: FISTA takes
        its steps from it and can eliminate biases.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jointleaf.losses import JaxLoss
    >>> huber = JaxLoss(lambda y, f: jnp.sqrt(1 + (f - y) ** 2) - 1, max_curvature=1.0)
    """

    name = "jax"

    def __init__(
        self, function: Callable[[Any, Any], Any], *, max_curvature: float = np.inf
    ) -> None:
        if not callable(function):
            raise TypeError(f"function={function!r} must be a function of (y, f) in jax.numpy")
        if not max_curvature > 0:
            raise ValueError(f"max_curvature={max_curvature!r} must be a positive number")
        find_device("jax:cpu")  # the error names what to install where JAX is missing
        self.function = function
        self.max_curvature = float(max_curvature)
        self._check()

    def _check(self) -> None:
        """Try the function on a few rows: one loss a row, in `jax.numpy`, and convex at y = 1."""
        import jax

        rows = np.linspace(-2.0, 2.0, 5)
        try:
            with double_precision():
                shape = jax.eval_shape(self.function, rows, rows).shape
        except Exception as cause:
            raise TypeError(
                f"function={self.function!r} cannot be traced by JAX; write it with jax.numpy in "
                f"place of numpy, for arrays y and f of shape (n,): {str(cause).splitlines()[0]}"
            ) from cause
        if shape != rows.shape:
            raise ValueError(
                f"function={self.function!r} gives shape {shape} for 5 rows, but it must give the "
                "loss of every row, shape (5,): leave means and sums out"
            )
        curvature = self.row_curvature(np.ones(5), rows)
        if np.any(curvature[np.isfinite(curvature)] < -1e-9):
            raise ValueError(
                f"function={self.function!r} is not convex in f: its second derivative at y = 1 is "
                f"{np.nanmin(curvature):.3g} for some f between -2 and 2"
            )

    def __repr__(self) -> str:
        return f"JaxLoss({getattr(self.function, '__name__', self.function)!s})"

    def row_loss(self, y: Any, f: Any) -> Any:
        return _differentiate(self.function, 0, y, f)

    def row_gradient(self, y: Any, f: Any) -> Any:
        return _differentiate(self.function, 1, y, f)

    def row_curvature(self, y: Any, f: Any) -> Any:
        return _differentiate(self.function, 2, y, f)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the best raw prediction that is the same for all rows, by a search."""

        def at(c: NDArray) -> tuple[float, NDArray]:
            f = np.full(y.shape, c[0])
            return self.value(y, f, s), np.array([self.gradient(y, f, s).sum()])

        return minimize(at, np.zeros(1), jac=True, method="BFGS").x[0]


def _differentiate(function: Callable[[Any, Any], Any], order: int, y: Any, f: Any) -> Any:
    """Return a derivative of a function of rows; of NumPy's arrays, on JAX's CPU device."""
    derivative = _derivative(function, order)
    if array_namespace(f) is not np:
        return derivative(y, f)
    import jax

    with double_precision(), jax.default_device(find_device("jax:cpu")):
        return np.asarray(derivative(np.asarray(y), np.asarray(f)))


@lru_cache(maxsize=64)
def _derivative(function: Callable[[Any, Any], Any], order: int) -> Any:
    """Compile a derivative by f; as rows do not mix, that of the sum over rows."""
    import jax

    if order == 0:
        return jax.jit(function)
    lower = _derivative(function, order - 1)
    return jax.jit(jax.grad(lambda y, f: lower(y, f).sum(), argnums=1))
