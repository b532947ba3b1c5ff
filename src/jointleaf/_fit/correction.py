"""The correction of a model by many more rows than it was fitted to.

A model f_0 of a sample has cells that all rows fall into. Moves theta of the weights of its cells,

    (1/S) sum_n s_n loss(y_n, f_0(x_n) + f_theta(x_n)) + (lambda / 2) theta^T D theta   least,

are fitted to all rows: theta = 0, the model of the sample, is the answer of strong penalties, and
held-out rows choose lambda and the number of passes. One Krylov run tells all strengths. For other
losses than the squared error it is made of a quadratic model of the loss, up to three times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers.base import flat_curvature
from jointleaf._core.solvers.krylov import WeightKrylovPath

_STRENGTHS = 10.0 ** np.arange(0.5, -7.01, -0.5)
_STEPS = 5  # between looks at the held-out rows
_LEAST_GAIN = 1e-3  # of the held-out loss in so many steps
_ROUNDS = 3


@dataclass(frozen=True)
class Correction:
    """What all rows changed.

    Attributes
    ----------
    theta : array (N,) or (N, K)
        Moves of all weights.
    strengths : list of float
        Chosen, one for every round; none where held-out rows were against any correction.
    n_passes : int
        Passes over all rows, each of them forth and back.
    loss_before, loss_after : float
        Of the held-out rows.
    """

    theta: NDArray
    strengths: list[float]
    n_passes: int
    loss_before: float
    loss_after: float


def move_penalty(n_partitions: int) -> Frobenius:
    """Return the penalty on moves, of strength one: the sum over partitions has variance one."""
    return Frobenius(1.0, 1.0, partition_weights=np.full(n_partitions, 1.0 / n_partitions))


@dataclass(frozen=True)
class CorrectionState:
    """How far a correction has come: what rounds have moved, and the steps of the one under way.

    Attributes
    ----------
    moves : list of arrays (N,) or (N, K)
        One for every round that is over.
    strengths : list of float
        Theirs.
    n_passes : int
        Passes of the rounds that are over.
    last : float
        The held-out loss when it was last looked at.
    path : dict of arrays
        The steps of the round under way.
    """

    moves: list[NDArray] = field(default_factory=list)
    strengths: list[float] = field(default_factory=list)
    n_passes: int = 0
    last: float = np.inf
    path: Mapping[str, NDArray] = field(default_factory=dict)


def fit_correction(
    problem: Problem,
    held_out: Problem,
    max_passes: int,
    *,
    verbose: bool = False,
    state: CorrectionState | None = None,
    keep: Callable[[CorrectionState], None] | None = None,
) -> Correction:
    """Fit the moves of all weights.

    The offsets of both problems are the predictions of the model that is corrected, their penalty
    is that of moves. A fit goes on from a `state`; `keep` is given one after every few passes.
    """
    state = CorrectionState() if state is None else state
    before = float(held_out.data_value(held_out.zero_predictions()))
    for move in state.moves:
        problem, held_out = _moved(problem, move), _moved(held_out, move)
    progress = Progress(max_passes, "passes over all rows", enabled=verbose)
    rounds = 1 if problem.loss.is_quadratic else _ROUNDS
    while state.n_passes < max_passes and len(state.strengths) < rounds:
        path, strength = _follow(problem, held_out, max_passes, progress, state, keep)
        n_passes = state.n_passes + path.n_steps
        if strength is None:
            state = replace(state, n_passes=n_passes)
            break
        move = path.weights(strength)
        problem, held_out = _moved(problem, move), _moved(held_out, move)
        state = CorrectionState([*state.moves, move], [*state.strengths, strength], n_passes)
    progress.finish()
    after = float(held_out.data_value(held_out.zero_predictions()))
    theta = sum(state.moves, problem.zeros())
    return Correction(theta, state.strengths, state.n_passes, before, after)


def _follow(
    problem: Problem,
    held_out: Problem,
    max_passes: int,
    progress: Progress,
    state: CorrectionState,
    keep: Callable[[CorrectionState], None] | None,
) -> tuple[WeightKrylovPath, float | None]:
    """Run along all strengths; return the best one, None where no correction is better."""
    at = problem.zero_predictions()
    h = problem.loss_curvature(at)
    h = h + flat_curvature(h, 1.0)
    h = h if h.ndim == 1 else h.mean(axis=1)
    path = WeightKrylovPath(
        problem.leaf_design, problem.quadratic()[0], problem.slope(at), h, held_out.leaf_design
    )
    start = float(held_out.data_value(held_out.zero_predictions()))
    last, most = min(start, state.last), max_passes - state.n_passes
    if state.path:
        path.restore(state.path)
    while True:
        has_more = path.extend(min(_STEPS, most - path.n_steps))
        predictions = np.moveaxis(path.predictions(_STRENGTHS), 1, 0)
        losses = [float(held_out.data_value(raw)) for raw in predictions]
        best = int(np.nanargmin(losses))
        done = state.n_passes + path.n_steps
        progress.step_to(done, f"held-out loss {losses[best]:.6g}")
        is_last = not has_more or path.n_steps >= most
        if is_last or last - losses[best] < _LEAST_GAIN * last:
            return path, float(_STRENGTHS[best]) if losses[best] < start else None
        last = losses[best]
        if keep is not None:
            keep(replace(state, last=last, path=path.state()))


def _moved(problem: Problem, theta: NDArray) -> Problem:
    """Return the problem around moved weights."""
    return problem.with_offset(problem.offset + problem.design.matvec(theta))
