"""A penalty applied to every task on its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Penalty
from jointleaf._core.penalties.dirty import TaskNorm
from jointleaf._core.penalties.frobenius import Free

__all__ = ["PerTask"]


class PerTask(Penalty):
    r"""R(W, b) = sum_t gamma_t R_1(W_t, b_t): the tasks have nothing to do with each other.

    Given as it is, a penalty such as ``L21(0.1)`` or ``Nuclear(0.1)`` acts on the slopes of all
    tasks together; ``PerTask(L21(0.1))`` is the sum of its values for every task.

    Parameters
    ----------
    penalty : Penalty
        R_1, a single penalty.
    """

    def __init__(self, penalty: Penalty) -> None:
        if not isinstance(penalty, Penalty) or len(penalty.terms) > 1:
            raise TypeError(
                f"PerTask: penalty={penalty!r} must be a single penalty on weights, such as "
                "L21(0.1); of a sum, give every term its own PerTask"
            )
        if isinstance(penalty, TaskNorm):
            raise TypeError(
                f"PerTask: penalty={penalty!r} is a penalty on several tasks, of which one alone "
                "has nothing in common: use L21 or LInf1"
            )
        self.penalty = penalty
        self._bound: list[tuple[slice, float, Penalty]] = []

    def __repr__(self) -> str:
        return f"PerTask({self.penalty!r})"

    def _changed(self, change: Callable[[Any], Any]) -> PerTask:
        """The same with another penalty, and so for every task where it is bound to some."""
        other = copy.copy(self)
        other.penalty = change(self.penalty)
        other._bound = [(cells, gamma, change(own)) for cells, gamma, own in self._bound]
        return other

    # -- strengths -----------------------------------------------------------------------------

    @property
    def strength(self) -> Any:
        """That of the penalty."""
        return self.penalty.strength

    @property
    def bias_strength(self) -> Any:
        """That of the penalty."""
        return self.penalty.bias_strength

    @property
    def is_auto(self) -> bool:
        """Whether the strength is still to be chosen."""
        return self.penalty.is_auto

    @property
    def is_bias_auto(self) -> bool:
        """Whether the strength on biases is still to be chosen."""
        return self.penalty.is_bias_auto

    def at(self, strength: float) -> PerTask:
        """Give the same penalty with this strength."""
        return self._changed(lambda penalty: penalty.at(strength))

    def with_bias(self, bias_strength: float) -> PerTask:
        """Give the same penalty with this strength on biases, where that is "auto"."""
        return self._changed(lambda penalty: penalty.with_bias(bias_strength))

    def __rmul__(self, factor: float) -> PerTask:
        return self._changed(lambda penalty: factor * penalty)

    # -- the penalty ---------------------------------------------------------------------------

    @property
    def is_row_sparse(self) -> bool:  # type: ignore[override]
        """Whether whole features vanish."""
        return self.penalty.is_row_sparse

    def bind(self, layout: CellLayout) -> PerTask:
        """Bind one copy to the cells of every task."""
        bound = copy.copy(self)
        starts = layout.task_starts.tolist()
        bound._bound = [
            (slice(a, b), float(gamma), self.penalty.bind(part))
            for a, b, gamma, part in zip(
                starts[:-1], starts[1:], layout.task_weights, layout.tasks, strict=True
            )
        ]
        return bound

    def value(self, theta: NDArray) -> float:
        """sum_t gamma_t R_1(theta_t)."""
        return sum(gamma * own.value(theta[cells]) for cells, gamma, own in self._bound)

    def prox(self, theta: NDArray, step: float) -> NDArray:
        """Task by task, with steps gamma_t step."""
        parts = [own.prox(theta[cells], step * gamma) for cells, gamma, own in self._bound]
        return np.concatenate(parts)

    def curvature(self) -> NDArray | None:
        """Behind each other, where the penalty is quadratic."""
        return self._stack([own.curvature() for _, _, own in self._bound])

    def bias_curvature(self) -> NDArray | None:
        """Behind each other, where they are known."""
        return self._stack([own.bias_curvature() for _, _, own in self._bound])

    def split(self) -> tuple[NDArray | None, Penalty]:
        """The quadratic part of every task, and the rest."""
        parts = [own.split() for _, _, own in self._bound]
        quadratic = self._stack([part for part, _ in parts])
        if quadratic is not None and all(isinstance(own, Free) for _, own in parts):
            return quadratic, Free(quadratic.shape)
        rest = copy.copy(self)
        rest._bound = [
            (cells, gamma, own)
            for (cells, gamma, _), (_, own) in zip(self._bound, parts, strict=True)
        ]
        return quadratic, rest

    def restricted(self, features: NDArray[np.intp]) -> PerTask | None:
        """The penalty on some features alone."""
        other = copy.copy(self)
        other._bound = []
        for cells, gamma, own in self._bound:
            part = own.restricted(features)
            if part is None:
                return None
            other._bound.append((cells, gamma, part))
        return other

    def strength_max(self, gradient: NDArray) -> float:
        """The largest of the tasks' own."""
        found = [own.strength_max(gradient[cells] / gamma) for cells, gamma, own in self._bound]
        return max(found)

    def _stack(self, parts: list[NDArray | None]) -> NDArray | None:
        known = [
            gamma * part
            for (_, gamma, _), part in zip(self._bound, parts, strict=True)
            if part is not None
        ]
        return np.concatenate(known) if len(known) == len(parts) else None
