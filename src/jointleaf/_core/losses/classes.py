"""Losses of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import array_namespace, expit
from jointleaf._core.losses.base import Loss


class Logistic(Loss):
    """loss(y, f) = log(1 + exp(-y f)) with y in {-1, 1}: binary classification."""

    name = "logistic"
    is_of_classes = True
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
    is_of_classes = True
    max_curvature = 0.5

    def __init__(self, n_classes: int | None = None) -> None:
        self.n_classes = n_classes

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return one-hot targets (n, K) of class numbers (n,)."""
        numbers = super().encode(y)
        if numbers.ndim != 1 or (numbers < 0).any() or (numbers != np.floor(numbers)).any():
            raise ValueError("the multinomial loss takes y as class numbers 0, 1, ..., K-1, (n,)")
        largest = int(numbers.max(initial=0))
        n_classes = largest + 1 if self.n_classes is None else self.n_classes
        if n_classes < 2 or largest >= n_classes:
            raise ValueError(
                f"y holds class number {largest}, but n_classes={n_classes}: "
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

    def row_hessian(self, y: Any, f: Any) -> Any:
        """Return the probabilities p."""
        return _softmax(f)

    def row_hessian_product(self, hessian: Any, v: Any) -> Any:
        """Return p v - p <p, v>."""
        return hessian * (v - (hessian * v).sum(axis=1, keepdims=True))

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return logarithms of the weighted class frequencies, centred."""
        logs = np.log(np.clip(np.average(y, axis=0, weights=s), 1e-6, None))
        return logs - logs.mean()

    def link(self, f: NDArray) -> NDArray:
        return _softmax(f)


def _softmax(f: Any) -> Any:
    powers = array_namespace(f).exp(f - f.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
