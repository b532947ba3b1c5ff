"""A penalty applied to every task on its own, and multiples of penalties without a strength."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Free, Penalty, all_known
from jointleaf._core.penalties.dirty import TaskNorm
from jointleaf._core.penalties.sums import Sum


class PerTask(Penalty):
    r"""R(W, b) = sum_t gamma_t R_1(W_t, b_t): the tasks have nothing to do with each other.

    As it stands, a penalty such as ``L21(0.1)`` or ``Nuclear(0.1)`` acts on the slopes of all
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
        #: the penalty bound to the cells of every task, and gamma_t; known after `bind`
        self._tasks: tuple[Penalty, ...] = ()
        self._gammas = np.ones(0)

    def __repr__(self) -> str:
        return f"PerTask({self.penalty!r})"

    def _changed(self, change: Callable[[Any], Any]) -> PerTask:
        """The same with another penalty, and so for every task where it is bound to some."""
        tasks = tuple(change(penalty) for penalty in self._tasks)
        return self.replaced(penalty=change(self.penalty), _tasks=tasks)

    # -- strengths -----------------------------------------------------------------------------

    @property
    def strength(self) -> Any:
        """The strength of the penalty."""
        return self.penalty.strength

    @property
    def bias_strength(self) -> Any:
        """The strength of the penalty on biases."""
        return self.penalty.bias_strength

    @property
    def is_bias_auto(self) -> bool:
        return self.penalty.is_bias_auto

    def at(self, strength: float) -> PerTask:
        return self._changed(lambda penalty: penalty.at(strength))

    def with_bias(self, bias_strength: float) -> PerTask:
        return self._changed(lambda penalty: penalty.with_bias(bias_strength))

    def __rmul__(self, factor: float) -> PerTask:
        return self._changed(lambda penalty: factor * penalty)

    # -- the penalty ---------------------------------------------------------------------------

    @property
    def is_row_sparse(self) -> bool:  # type: ignore[override]
        """Whether whole features vanish."""
        return self.penalty.is_row_sparse

    def bind(self, layout: CellLayout) -> PerTask:
        tasks = tuple(self.penalty.bind(task) for task in layout.tasks)
        return super().bind(layout).replaced(_tasks=tasks, _gammas=layout.task_weights)

    def _by_task(self, theta: Any) -> list[Any]:
        return [self.layout.part_of(theta, t) for t in range(len(self._tasks))]

    def value(self, theta: Any) -> Any:
        parts = zip(self._gammas, self._tasks, self._by_task(theta), strict=True)
        return sum(gamma * penalty.value(block) for gamma, penalty, block in parts)

    def prox(self, theta: Any, step: Any) -> Any:
        """Task by task, with steps gamma_t step."""
        parts = zip(self._gammas, self._tasks, self._by_task(theta), strict=True)
        blocks = [penalty.prox(block, step * gamma) for gamma, penalty, block in parts]
        return self.layout.join_tasks(blocks)

    def curvature(self) -> NDArray | None:
        return self._joined([p.curvature() for p in self._tasks], self.layout.join_tasks)

    def bias_curvature(self) -> NDArray | None:
        return self._joined([p.bias_curvature() for p in self._tasks], np.concatenate)

    def _joined(self, parts: list[NDArray | None], join: Callable) -> NDArray | None:
        """Return the curvatures of all tasks, times gamma_t; None where one is not known."""
        known = all_known(parts)
        if known is None:
            return None
        return join([gamma * part for gamma, part in zip(self._gammas, known, strict=True)])

    def split(self) -> tuple[NDArray | None, Penalty]:
        """The quadratic part of every task, and the other penalties."""
        pairs = [penalty.split() for penalty in self._tasks]
        quadratic = self._joined([diagonal for diagonal, _ in pairs], self.layout.join_tasks)
        if quadratic is not None and all(isinstance(penalty, Free) for _, penalty in pairs):
            return quadratic, Free(self._layout)
        return quadratic, self.replaced(_tasks=tuple(penalty for _, penalty in pairs))

    def restricted(self, features: NDArray[np.intp]) -> PerTask | None:
        tasks = all_known(penalty.restricted(features) for penalty in self._tasks)
        if tasks is None:
            return None
        return self.with_features(len(features)).replaced(_tasks=tuple(tasks))

    def strength_max(self, gradient: NDArray) -> float:
        parts = zip(self._gammas, self._tasks, self._by_task(gradient), strict=True)
        return max(penalty.strength_max(block / gamma) for gamma, penalty, block in parts)


class Scaled(Penalty):
    """factor * R, for any R and a factor > 0."""

    def __init__(self, factor: float, penalty: Penalty) -> None:
        self.factor, self.penalty = factor, penalty

    def __repr__(self) -> str:
        return f"{self.factor:g} * {self.penalty!r}"

    @property
    def is_row_sparse(self) -> bool:  # type: ignore[override]
        """Whether whole features vanish."""
        return self.penalty.is_row_sparse

    def bind(self, layout: CellLayout) -> Scaled:
        return super().bind(layout).replaced(penalty=self.penalty.bind(layout))

    def value(self, theta: Any) -> Any:
        return self.factor * self.penalty.value(theta)

    def prox(self, theta: Any, step: Any) -> Any:
        """That of R, with a step that is longer by the factor."""
        return self.penalty.prox(theta, step * self.factor)

    def curvature(self) -> NDArray | None:
        return self._times(self.penalty.curvature())

    def bias_curvature(self) -> NDArray | None:
        return self._times(self.penalty.bias_curvature())

    def split(self) -> tuple[NDArray | None, Penalty]:
        quadratic, penalty = self.penalty.split()
        return self._times(quadratic), times(self.factor, penalty)

    def restricted(self, features: NDArray[np.intp]) -> Scaled | None:
        part = self.penalty.restricted(features)
        return None if part is None else self.with_features(len(features)).replaced(penalty=part)

    def _times(self, diagonal: NDArray | None) -> NDArray | None:
        return None if diagonal is None else self.factor * diagonal


def times(factor: float, penalty: Penalty) -> Penalty:
    """Multiply the strengths of a penalty, or the penalty itself where it has none."""
    if isinstance(penalty, Sum):
        return Sum(*(times(factor, term) for term in penalty.weight_terms))
    try:
        return factor * penalty
    except ValueError:  # no strength
        return Scaled(factor, penalty)
