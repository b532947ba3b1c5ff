"""The problem of several tasks: one convex objective over the cells of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign, TaskDesign
from jointleaf._core.losses import Loss
from jointleaf._core.penalties.base import Penalty, PredictionPenalty, Term
from jointleaf._core.penalties.per_task import times
from jointleaf._core.problem import Problem
from jointleaf._core.task_design import BlockSmoother

__all__ = ["TaskProblem"]


class TaskProblem(Problem):
    r"""Joint fit of all cells of all tasks.

    .. math::

        J = \sum_t \gamma_t \Big( \frac{1}{S_t} \sum_n s_{tn}\, \ell(y_{tn}, o_t + f_{tn})
            + \tfrac12 (o_t + f_t)^\top A_t (o_t + f_t) \Big) + R(\theta)

    It is the problem of all rows with weights gamma_t s_tn / S_t, which sum to `mass` = sum_t
    gamma_t: solvers minimise J / mass, with strengths divided by it.

    Parameters
    ----------
    designs : sequence of LeafDesign
        One per task, with the same features.
    targets : sequence of arrays (n_t,)
    loss : Loss
        With one output.
    penalty : Term
    sample_weights : sequence of arrays (n_t,)
        s_t, positive.
    task_weights : sequence of positive numbers
        gamma_t.
    offsets : sequence of numbers
        o_t.
    n_jobs : int
        Threads over tasks.
    """

    def __init__(
        self,
        designs: Sequence[LeafDesign],
        targets: Sequence[NDArray],
        loss: Loss,
        penalty: Term,
        sample_weights: Sequence[NDArray],
        task_weights: Sequence[float],
        offsets: Sequence[float],
        n_jobs: int = 1,
    ) -> None:
        self.mass = float(np.sum(task_weights))
        self._own_weights = list(sample_weights)
        weights = [g * s / s.sum() for g, s in zip(task_weights, sample_weights, strict=True)]
        shifts = [np.full(len(y), o) for y, o in zip(targets, offsets, strict=True)]
        super().__init__(
            TaskDesign(designs, task_weights, n_jobs),
            np.concatenate(targets),
            loss,
            penalty,
            np.concatenate(weights),
            np.concatenate(shifts),
        )

    def _set_penalty(self, penalty: Penalty) -> None:
        super()._set_penalty(times(1.0 / self.mass, penalty))

    def _smoother(self, term: PredictionPenalty) -> Any:
        shares = self.design.layout.task_weights / self.mass
        return BlockSmoother(
            [
                share * term.matrix(block.design.rows, s)
                for share, block, s in zip(
                    shares, self.design.blocks(), self._own_weights, strict=True
                )
            ]
        )
