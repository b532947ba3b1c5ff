"""Losses: convex functions of raw predictions f, with sample weights.

Every loss is the weighted mean over rows,

    L(f) = (1/S) sum_n s_n loss(y_n, f_n),        S = sum_n s_n,

and works on targets that `encode` has prepared. A loss is one small class that gives loss(y, f)
and its derivatives row by row; weights, and sums over rows, are the business of the base class.
Written with the functions of `array_namespace`, a loss runs on NumPy's arrays and on JAX's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from jointleaf._core.arrays import array_namespace, double_precision, expit, find_device, shaped


class Loss(ABC):
    """A convex loss on raw predictions f (n,), or (n, K) with K outputs.

    A subclass gives `row_loss`, `row_gradient`, `row_curvature` and `best_constant` and, where
    outputs couple, `row_hessian_product`. Losses of one class with equal attributes are equal.
    """

    name: str = ""
    #: an upper bound of the second derivative of loss(y, f) in f, for the step of FISTA
    max_curvature: float = np.inf
    #: whether the loss is a quadratic function of f
    is_quadratic: bool = False

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

    def row_hessian_product(self, y: Any, f: Any, v: Any) -> Any:
        """Return the Hessian of every row times v, of the shape of f."""
        return self.row_curvature(y, f) * v

    @abstractmethod
    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the raw prediction, one number or (K,), of the best constant model."""

    def link(self, f: NDArray) -> NDArray:
        """Return predictions on the scale of the answer: f itself, or probabilities (n, K)."""
        return f

    # -- over all rows -------------------------------------------------------------------------
    # `total` is S, by default the sum of s; with the S of all rows, blocks of rows add up.

    def value(self, y: Any, f: Any, s: Any, total: Any = None) -> Any:
        """Return L(f), a number in float64."""
        value = (s * self.row_loss(y, f)).sum() / (s.sum() if total is None else total)
        return float(value) if array_namespace(f) is np else value

    def gradient(self, y: Any, f: Any, s: Any, total: Any = None) -> Any:
        """Return dL/df, of the shape of f."""
        return _row_weights(s, f, total) * self.row_gradient(y, f)

    def curvature(self, y: Any, f: Any, s: Any, total: Any = None) -> Any:
        """Return the second derivative of L by every entry of f, of the shape of f."""
        return _row_weights(s, f, total) * self.row_curvature(y, f)

    def hessian_product(self, y: Any, f: Any, s: Any, v: Any, total: Any = None) -> Any:
        """Return the Hessian of L times a direction v, of the shape of f."""
        return _row_weights(s, f, total) * self.row_hessian_product(y, f, v)

    # Compiled functions of JAX are kept for equal losses.

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or vars(self).keys() != vars(other).keys():
            return False
        return all(np.array_equal(value, vars(other)[name]) for name, value in vars(self).items())

    def __hash__(self) -> int:
        return hash(type(self))


class SquaredError(Loss):
    """loss(y, f) = (f - y)^2 / 2."""

    name = "squared_error"
    max_curvature = 1.0
    is_quadratic = True

    def row_loss(self, y: Any, f: Any) -> Any:
        squares = 0.5 * (f - y) ** 2
        return squares if squares.ndim == 1 else squares.sum(axis=1)

    def row_gradient(self, y: Any, f: Any) -> Any:
        return f - y

    def row_curvature(self, y: Any, f: Any) -> Any:
        return array_namespace(f).ones_like(f)

    def row_hessian_product(self, y: Any, f: Any, v: Any) -> Any:
        return v

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the weighted mean."""
        return np.average(y, axis=0, weights=s)


class Logistic(Loss):
    """loss(y, f) = log(1 + exp(-y f)) with y in {-1, 1}: binary classification."""

    name = "logistic"
    max_curvature = 0.25

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return targets -1 and 1, after checks."""
        targets = super().encode(y)
        wrong = targets[np.abs(targets) != 1]
        if wrong.size:
            raise ValueError(
                f"the logistic loss takes y in {{-1, 1}}, but y holds {wrong.flat[0]:g}: "
                "encode the two classes as -1 and 1"
            )
        return targets

    def row_loss(self, y: Any, f: Any) -> Any:
        return array_namespace(f).logaddexp(0, -y * f)

    def row_gradient(self, y: Any, f: Any) -> Any:
        return -y * expit(-y * f)

    def row_curvature(self, y: Any, f: Any) -> Any:
        return expit(f) * expit(-f)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the log-odds of the weighted class frequencies."""
        positive = np.average(y > 0, weights=s)
        positive = np.clip(positive, 1e-6, 1 - 1e-6)
        return np.log(positive / (1 - positive))

    def link(self, f: NDArray) -> NDArray:
        """Return probabilities of the classes -1 and 1, (n, 2)."""
        return np.stack([expit(-f), expit(f)], axis=1)


class Multinomial(Loss):
    """loss(y, f) = log(sum_k exp(f_k)) - f_y: softmax cross-entropy with K outputs.

    Targets are class numbers 0..K-1, which `encode` turns to one-hot rows (n, K).

    Parameters
    ----------
    n_classes : int, optional
        K; by default the largest class number plus one.
    """

    name = "multinomial"
    max_curvature = 0.5

    def __init__(self, n_classes: int | None = None) -> None:
        self.n_classes = n_classes

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return one-hot targets (n, K) of class numbers (n,)."""
        numbers = super().encode(y)
        if numbers.ndim != 1 or (numbers < 0).any() or (numbers != np.floor(numbers)).any():
            raise ValueError("the multinomial loss takes y as class numbers 0, 1, ..., K-1, (n,)")
        n_classes = int(numbers.max()) + 1 if self.n_classes is None else self.n_classes
        if n_classes < 2 or numbers.max() >= n_classes:
            raise ValueError(
                f"y holds class number {int(numbers.max())}, but n_classes={n_classes}: "
                "at least two classes are needed, numbered from 0"
            )
        return np.eye(n_classes)[numbers.astype(int)]

    def row_loss(self, y: Any, f: Any) -> Any:
        """Return logsumexp(f) - f_y."""
        xp = array_namespace(f)
        below = f - f.max(axis=1, keepdims=True)
        logs = below - xp.log(xp.exp(below).sum(axis=1, keepdims=True))
        return -(y * logs).sum(axis=1)

    def row_gradient(self, y: Any, f: Any) -> Any:
        return _softmax(f) - y

    def row_curvature(self, y: Any, f: Any) -> Any:
        """Return p_k (1 - p_k): the diagonal of the Hessian."""
        p = _softmax(f)
        return p * (1 - p)

    def row_hessian_product(self, y: Any, f: Any, v: Any) -> Any:
        """Return p v - p <p, v>."""
        p = _softmax(f)
        return p * (v - (p * v).sum(axis=1, keepdims=True))

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return logarithms of the weighted class frequencies, centred."""
        logs = np.log(np.clip(np.average(y, axis=0, weights=s), 1e-6, None))
        return logs - logs.mean()

    def link(self, f: NDArray) -> NDArray:
        return _softmax(f)


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


_LOSSES: dict[str, type[Loss]] = {c.name: c for c in (SquaredError, Logistic, Multinomial)}


def make_loss(loss: str | Loss) -> Loss:
    """Return a loss object for a name, or the object itself."""
    if isinstance(loss, Loss):
        return loss
    if loss not in _LOSSES:
        raise ValueError(f"loss={loss!r} is not known: use one of {sorted(_LOSSES)} or a Loss")
    return _LOSSES[loss]()


def _row_weights(s: Any, f: Any, total: Any) -> Any:
    """Return s_n / S in the type of f, shaped to multiply it."""
    return shaped((s / (s.sum() if total is None else total)).astype(f.dtype), f)


def _softmax(f: Any) -> Any:
    powers = array_namespace(f).exp(f - f.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


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
