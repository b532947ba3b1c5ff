"""Losses: functions of raw predictions f, with sample weights from the first day.

Every loss is the weighted mean over rows,

    L(f) = (1/S) sum_n s_n loss(y_n, f_n),        S = sum_n s_n,

and works on targets that `encode` has prepared. `gradient` is dL/df, `curvature` the second
derivative (per output; for several outputs see `hessian_product`), both of the shape of f.
A new loss is one small class with these methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_softmax, softmax

__all__ = ["Logistic", "Loss", "Multinomial", "SquaredError", "make_loss"]


class Loss(ABC):
    """A convex loss on raw predictions; s are weights that sum to S."""

    name: str = ""
    #: an upper bound of the second derivative of loss(y, f) in f, for the step of FISTA
    max_curvature: float = np.inf
    #: the loss is a quadratic function of f
    is_quadratic: bool = False

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Check targets and give them in the form the other methods take: (n,) or (n, K)."""
        targets = np.asarray(y, dtype=float)
        if not np.isfinite(targets).all():
            raise ValueError("y holds NaN or infinity: remove these rows")
        return targets

    @abstractmethod
    def value(self, y: NDArray, f: NDArray, s: NDArray) -> float:
        """L(f), a number."""

    @abstractmethod
    def gradient(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """dL/df, of the shape of f."""

    @abstractmethod
    def curvature(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """Second derivative d2L/df2 of every entry, of the shape of f."""

    def hessian_product(self, y: NDArray, f: NDArray, s: NDArray, v: NDArray) -> NDArray:
        """Hessian of L times a direction v (shape of f); entry by entry unless outputs couple."""
        return self.curvature(y, f, s) * v

    @abstractmethod
    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """The raw prediction, one number or (K,), of the best constant model."""

    def link(self, f: NDArray) -> NDArray:
        """Raw predictions to the scale of the answer: itself, or class probabilities (n, K)."""
        return f


class SquaredError(Loss):
    """loss(y, f) = (f - y)^2 / 2."""

    name = "squared_error"
    max_curvature = 1.0
    is_quadratic = True

    def value(self, y: NDArray, f: NDArray, s: NDArray) -> float:
        """(1/2S) sum_n s_n (f_n - y_n)^2."""
        return 0.5 * float(np.average(_over_outputs((f - y) ** 2), weights=s))

    def gradient(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """s_n (f_n - y_n) / S."""
        return _shares(s, f) * (f - y)

    def curvature(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """s_n / S."""
        return np.broadcast_to(_shares(s, f), f.shape)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """The weighted mean."""
        return np.average(y, axis=0, weights=s)


class Logistic(Loss):
    """loss(y, f) = log(1 + exp(-y f)) with y in {-1, 1}: binary classification."""

    name = "logistic"
    max_curvature = 0.25

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Targets -1 and 1, as given."""
        targets = super().encode(y)
        wrong = targets[np.abs(targets) != 1]
        if wrong.size:
            raise ValueError(
                f"the logistic loss takes y in {{-1, 1}}, but y holds {wrong.flat[0]:g}: "
                "encode the two classes as -1 and 1"
            )
        return targets

    def value(self, y: NDArray, f: NDArray, s: NDArray) -> float:
        """(1/S) sum_n s_n log(1 + exp(-y_n f_n)), without overflow."""
        return float(np.average(np.logaddexp(0, -y * f), weights=s))

    def gradient(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """-s_n y_n / (1 + exp(y_n f_n)) / S."""
        return -_shares(s, f) * y * expit(-y * f)

    def curvature(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """s_n p_n (1 - p_n) / S with p_n = 1 / (1 + exp(-f_n))."""
        return _shares(s, f) * expit(f) * expit(-f)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """The log-odds of the weighted class shares."""
        positive = np.average(y > 0, weights=s)
        positive = np.clip(positive, 1e-6, 1 - 1e-6)
        return np.log(positive / (1 - positive))

    def link(self, f: NDArray) -> NDArray:
        """Probabilities of the classes -1 and 1, (n, 2)."""
        return np.stack([expit(-f), expit(f)], axis=1)


class Multinomial(Loss):
    """loss(y, f) = log(sum_k exp(f_k)) - f_y: softmax cross-entropy with K outputs.

    Targets are class numbers 0..K-1 and are kept one-hot, (n, K).

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
        """Class numbers (n,) to one-hot targets (n, K)."""
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

    def value(self, y: NDArray, f: NDArray, s: NDArray) -> float:
        """(1/S) sum_n s_n (logsumexp(f_n) - f_{n, y_n})."""
        return float(-np.average(np.sum(y * log_softmax(f, axis=1), axis=1), weights=s))

    def gradient(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """s_n (p_n - y_n) / S."""
        return _shares(s, f) * (softmax(f, axis=1) - y)

    def curvature(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        """s_n p_nk (1 - p_nk) / S: the diagonal of the Hessian."""
        p = softmax(f, axis=1)
        return _shares(s, f) * p * (1 - p)

    def hessian_product(self, y: NDArray, f: NDArray, s: NDArray, v: NDArray) -> NDArray:
        """s_n (p_n v_n - p_n <p_n, v_n>) / S."""
        p = softmax(f, axis=1)
        return _shares(s, f) * p * (v - np.sum(p * v, axis=1, keepdims=True))

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Logarithms of the weighted class shares, centred."""
        logs = np.log(np.clip(np.average(y, axis=0, weights=s), 1e-6, None))
        return logs - logs.mean()

    def link(self, f: NDArray) -> NDArray:
        """Class probabilities (n, K)."""
        return softmax(f, axis=1)


_LOSSES: dict[str, type[Loss]] = {c.name: c for c in (SquaredError, Logistic, Multinomial)}


def make_loss(loss: str | Loss) -> Loss:
    """Give a loss object for a name or the object itself."""
    if isinstance(loss, Loss):
        return loss
    if loss not in _LOSSES:
        raise ValueError(f"loss={loss!r} is not known: use one of {sorted(_LOSSES)} or a Loss")
    return _LOSSES[loss]()


def _shares(s: NDArray, f: NDArray) -> NDArray:
    """s_n / S in the shape and type of f."""
    shares = (s / s.sum()).astype(f.dtype, copy=False)
    return shares if f.ndim == 1 else shares[:, None]


def _over_outputs(values: NDArray) -> NDArray:
    return values if values.ndim == 1 else values.sum(axis=1)
