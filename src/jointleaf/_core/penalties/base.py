"""What a penalty is: a convex function of all cell weights, or of the predictions."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout

if TYPE_CHECKING:
    from scipy.sparse import sparray

    from jointleaf._core.penalties.sums import Sum

__all__ = ["AUTO", "Penalty", "PredictionPenalty", "Term", "check_number", "check_strength"]

AUTO = "auto"


class Term:
    """What can stand in a sum of penalties; ``a + b`` is the penalty R_a + R_b.

    A strength of ``"auto"`` is a place to fill: estimators choose it by cross-validation and
    `at` gives the penalty with a number there. ``2 * L1("auto") + L21("auto")`` keeps the
    first strength twice the second.
    """

    strength: Any = None
    bias_strength: Any = None
    #: what a common strength is multiplied by where this term's own is "auto"
    share: float = 1.0

    @property
    def terms(self) -> tuple[Term, ...]:
        """The parts of a sum; of a single penalty, itself."""
        return (self,)

    @property
    def is_auto(self) -> bool:
        """Whether a strength is still to be chosen."""
        return any(_is_auto(t.strength) for t in self.terms)

    @property
    def is_bias_auto(self) -> bool:
        """Whether the strength on biases is still to be chosen."""
        return any(_is_auto(t.bias_strength) for t in self.terms)

    def with_bias(self, bias_strength: float) -> Any:
        """Give the same penalty with this strength on biases, where that is "auto"."""
        if not self.is_bias_auto:
            return self
        other = copy.copy(self)
        other.bias_strength = check_number("bias_strength", bias_strength, positive=False)
        return other

    def at(self, strength: float) -> Any:
        """Give the same penalty with this strength (times its share); "auto" biases are free."""
        if self.strength is None:
            raise ValueError(f"{self!r} has no strength that could be changed")
        other = self.with_bias(0.0) if self.is_bias_auto else copy.copy(self)
        other.strength = self.share * check_number("strength", strength, positive=True)
        other.share = 1.0
        return other

    def __add__(self, other: object) -> Sum:
        from jointleaf._core.penalties.sums import Sum

        if not isinstance(other, Term):
            return NotImplemented
        return Sum(*self.terms, *other.terms)

    def __radd__(self, other: object) -> Any:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # for sum()

    def __mul__(self, factor: float) -> Any:
        return self.__rmul__(factor)

    def __rmul__(self, factor: float) -> Any:
        number = check_number("factor", factor, positive=True)
        if self.strength is None:
            raise ValueError(f"{self!r} has no strength that could be changed")
        other = copy.copy(self)
        if _is_auto(self.strength):
            other.share = number * self.share
        else:
            other.strength = number * self.strength
        if self.bias_strength is not None and not _is_auto(self.bias_strength):
            other.bias_strength = number * self.bias_strength
        return other


class Penalty(Term, ABC):
    """A convex penalty R(theta) on cell weights theta (C, q) or (C, q, K).

    A penalty is used through `bind`, which checks it against a layout and gives the penalty
    to compute with; `value` and `prox` then take theta with the bias in the last column
    (`CellLayout.split` separates the two). These two are all that a new penalty needs.

    The other methods let solvers do better: a quadratic penalty gives `curvature`, which the
    exact solvers need; one that is separable into slopes and squared biases gives
    `bias_curvature`, so that FISTA can eliminate the biases; one under which whole features vanish
    says `is_row_sparse` and gives `restricted`, so that FISTA works on few features at a time.
    """

    is_row_sparse: bool = False

    def bind(self, layout: CellLayout) -> Penalty:
        """Check the penalty against the layout of a problem; gives the penalty to use there."""
        return self

    @abstractmethod
    def value(self, theta: NDArray) -> float:
        """R(theta), with its strength."""

    @abstractmethod
    def prox(self, theta: NDArray, step: float) -> NDArray:
        """argmin_z  |z - theta|^2 / 2 + step * R(z)."""

    def curvature(self) -> NDArray | None:
        """Diagonal of the Hessian, (C, q), of a quadratic penalty; None for any other."""
        return None

    def bias_curvature(self) -> NDArray | None:
        """(C,) beta, where R = R_W(W) + sum_c beta_c b_c^2 / 2; None where it is not so."""
        diagonal = self.curvature()
        return None if diagonal is None else diagonal[:, -1]

    def split(self) -> tuple[NDArray | None, Penalty]:
        """R as a quadratic, given by its curvature (C, q) or None for zero, plus the rest."""
        return None, self

    def restricted(self, features: NDArray[np.intp]) -> Penalty | None:
        """The penalty on slopes of some features while all others are zero; None: not known."""
        return None

    def strength_max(self, gradient: NDArray) -> float:
        """Smallest strength at which all slopes stay zero.

        `gradient` is the data gradient (C, q[, K]) at zero slopes and the best biases. The slopes
        stay there where prox(-gradient, 1) has none, which is searched for by bisection.
        """
        move = -np.asarray(gradient, float)
        if not np.any(move[:, :-1]):
            return 0.0

        least = 1e-9 * float(np.abs(move[:, :-1]).max())  # proximal maps of sums are searched for

        def moves(strength: float) -> bool:
            answer = self.at(strength).split()[1].prox(move, 1.0)
            return bool(np.any(np.abs(answer[:, :-1]) > least))

        high = 1.0
        for _ in range(200):
            if not moves(high):
                break
            high *= 2.0
        else:
            raise ValueError(f"no strength of {self!r} keeps all slopes at zero")
        low = high
        while low > 1e-30 * high and not moves(low):
            low *= 0.5
        for _ in range(60):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if moves(middle) else (low, middle)
        return float(high)


class PredictionPenalty(Term, ABC):
    """A quadratic penalty on predictions: R(f) = f^T A f / 2 over the training rows."""

    def check_rows(self, n_rows: int) -> None:
        """Refuse more rows than memory can hold; by default none are too many."""

    @abstractmethod
    def matrix(self, X: NDArray, s: NDArray) -> NDArray | sparray:
        """A (n, n), symmetric and positive semidefinite, for rows X (n, d) with weights s (n,)."""


def check_number(name: str, value: Any, *, positive: bool) -> float:
    """Give a finite number that is positive, or not negative."""
    kind = "a positive number" if positive else "a number that is not negative"
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be {kind}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r} must be {kind}") from None
    if not np.isfinite(number) or number < 0 or (positive and number == 0):
        raise ValueError(f"{name}={value!r} must be {kind}")
    return number


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def check_strength(value: Any) -> float | str:
    """Give a positive strength, or "auto"."""
    if _is_auto(value):
        return AUTO
    try:
        return check_number("strength", value, positive=True)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}, or 'auto'") from None
