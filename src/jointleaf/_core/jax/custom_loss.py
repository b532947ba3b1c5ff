"""A loss written as one function in `jax.numpy`: its derivatives come from JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from jointleaf._core.device import double_precision, find_device
from jointleaf._core.losses import Loss

__all__ = ["JaxLoss"]


class JaxLoss(Loss):
    """A convex, differentiable loss given by one function; works on every device.

    Parameters
    ----------
    function : callable (y, f) -> array (n,)
        Losses of all rows, written in `jax.numpy`, for targets y (n,) and raw predictions f
        (n,). What it gives for a row must depend on that row alone.
    max_curvature : float, optional
        Upper bound of the second derivative of loss(y, f) in f, where there is one: FISTA takes
        its steps from it and can eliminate biases.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jointleaf._core.jax.custom_loss import JaxLoss
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
        find_device("jax:cpu")  # says what to install where JAX is missing
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
        curvature = self.curvature(np.ones(5), rows, np.ones(5))
        if np.any(curvature[np.isfinite(curvature)] < -1e-9):
            raise ValueError(
                f"function={self.function!r} is not convex in f: its second derivative at y = 1 is "
                f"{np.nanmin(5 * curvature):.3g} for some f between -2 and 2"
            )

    def __repr__(self) -> str:
        return f"JaxLoss({getattr(self.function, '__name__', self.function)!s})"

    def _compiled(self, method: str, y: NDArray, f: NDArray, s: NDArray, *more: NDArray) -> NDArray:
        """A method of `RowLoss` on JAX's CPU device, for solvers and checks on the host."""
        import jax

        from jointleaf._core.jax.losses import row_loss

        with double_precision(), jax.default_device(find_device("jax:cpu")):
            shares = np.asarray(s, float) / float(np.sum(s))
            loss = row_loss(self)
            arguments = [np.asarray(a) for a in (y, f, shares, *more)]
            return np.asarray(_method(loss, method)(*arguments))

    def value(self, y: NDArray, f: NDArray, s: NDArray) -> float:
        """L(f), a number."""
        return float(self._compiled("value", y, f, s))

    def gradient(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """dL/df, by automatic differentiation."""
        return self._compiled("gradient", y, f, s)

    def curvature(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """Second derivative of every entry, by automatic differentiation."""
        return self._compiled("curvature", y, f, s)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """The best raw prediction that is the same for all rows, by a search."""

        def at(c: NDArray) -> tuple[float, NDArray]:
            f = np.full(y.shape, c[0])
            return self.value(y, f, s), np.array([self.gradient(y, f, s).sum()])

        return minimize(at, np.zeros(1), jac=True, method="BFGS").x[0]


@lru_cache(maxsize=64)
def _method(loss: Any, name: str) -> Any:
    """A compiled method of a loss; made once."""
    import jax

    return jax.jit(getattr(loss, name))
