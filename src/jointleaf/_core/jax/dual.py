"""The exact dual on a device, compiled end to end: for n up to a few thousand rows, in float64.

The mathematics is that of `_core.solvers.dual`. Shapes must not depend on the data: the null
space of Z^T, where free biases keep the dual weights, is a projector instead of a basis.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jointleaf._core.arrays import cholesky_solver, dot, shaped
from jointleaf._core.jax.newton import Outcome
from jointleaf._core.jax.problem import DeviceDesign, DeviceProblem
from jointleaf._core.solvers.base import line_search
from jointleaf._core.solvers.dual import MAX_STALLED, newton_goal


def _shared_cells(design: DeviceDesign, partition_weights: Any) -> Any:
    """M (n, n): weight of the partitions in which two rows share a cell."""
    n = design.X.shape[0]

    def add(p: Any, total: Any) -> Any:
        cells = design.cells[p]
        meet = (cells[:, None] == cells[None, :]) & (cells < design.layout.n_cells)[:, None]
        return total + jnp.where(meet, partition_weights[p], 0.0)

    return lax.fori_loop(0, design.cells.shape[0], add, jnp.zeros((n, n)))


def _kernel(design: DeviceDesign, column_strengths: Any, partition_weights: Any) -> Any:
    """K = Phi D^-1 Phi^T over the penalised columns, (n, n)."""
    is_linear = np.array(design.layout.kinds) == "linear"
    inverse = jnp.where(
        column_strengths > 0, 1 / jnp.where(column_strengths > 0, column_strengths, 1), 0
    )
    shared = _shared_cells(design, partition_weights)
    kernel = shared * inverse[-1]
    if not is_linear.any():
        return kernel
    if not is_linear.all():
        shared = _shared_cells(design, partition_weights * is_linear)
    return kernel + shared * ((design.X * inverse[:-1]) @ design.X.T)


def _weights(problem: DeviceProblem, diagonal: Any, alpha: Any) -> Any:
    """Theta = D^-1 Phi^T alpha; free columns are zero."""
    back = problem.design.rmatvec(alpha)
    D = shaped(diagonal, back)
    return jnp.where(D > 0, back / jnp.where(D > 0, D, 1.0), 0.0)


def _system(problem: DeviceProblem, K: Any) -> tuple[Any, Any]:
    """The matrix K + W^-1 and the target t of (K + W^-1) alpha = t."""
    if problem.smoother is None:
        return K + jnp.diag(1.0 / problem.s), problem.y - problem.offset
    W = problem.smoother.dense() + jnp.diag(problem.s)
    solve = cholesky_solver(W)
    return K + solve(jnp.eye(len(W))), -solve(problem.slope(jnp.zeros_like(problem.y)))


@jax.jit
def squared(
    problem: DeviceProblem, diagonal: Any, column_strengths: Any, partition_weights: Any
) -> Outcome:
    """Squared error, penalised biases: one Cholesky factorisation.

    `diagonal` (N,) is the curvature of the penalty, which `column_strengths` (d + 1,) and
    `partition_weights` (P,) make.
    """
    A, target = _system(problem, _kernel(problem.design, column_strengths, partition_weights))
    alpha = cholesky_solver(A)(target)
    one = jnp.ones((), int)
    return Outcome(_weights(problem, diagonal, alpha), one, jnp.ones(()), jnp.ones((), bool))


@jax.jit
def squared_free_biases(
    problem: DeviceProblem, diagonal: Any, column_strengths: Any, partition_weights: Any
) -> Outcome:
    """Squared error, free biases: A alpha + Z b = t with Z^T alpha = 0; b is the shortest."""
    design = problem.design
    A, target = _system(problem, _kernel(design, column_strengths, partition_weights))
    values, V = jnp.linalg.eigh(_shared_cells(design, jnp.ones_like(partition_weights)))
    tiny = 10 * float(jnp.finfo(float).eps) * len(values) * values[-1]
    is_null = values <= tiny
    N = V * is_null
    # On the null space of Z^T as A is, elsewhere as large, so that nothing couples the two.
    elsewhere = (V * jnp.where(is_null, 0.0, jnp.trace(A) / len(A))) @ V.T
    within = N @ (N.T @ A @ N) @ N.T
    alpha = N @ (N.T @ cholesky_solver(within + elsewhere)(N @ (N.T @ target)))
    inner = V.T @ (target - A @ alpha)
    onto = V @ (shaped(jnp.where(is_null, 0.0, 1 / jnp.where(is_null, 1, values)), inner) * inner)
    theta = design.layout.with_biases(_weights(problem, diagonal, alpha), design.bias_rmatvec(onto))
    return Outcome(theta, jnp.ones((), int), jnp.ones(()), jnp.ones((), bool))


class _State(NamedTuple):
    alpha: Any
    f: Any
    objective: Any
    slope: Any
    optimality: Any
    best: Any
    best_at: Any
    stuck: Any
    n_iter: Any


@jax.jit
def newton(
    problem: DeviceProblem,
    diagonal: Any,
    column_strengths: Any,
    partition_weights: Any,
    tol: Any,
    max_iter: Any,
) -> Outcome:
    """Newton's method on the predictions f = K alpha of a smooth loss, biases penalised."""
    K = _kernel(problem.design, column_strengths, partition_weights)

    def objective(alpha: Any, f: Any) -> Any:
        return problem.data_value(f) + 0.5 * dot(alpha, f)

    def measure(alpha: Any, f: Any) -> tuple[Any, Any]:
        slope = problem.slope(f)
        return slope, problem.optimality(problem.design.rmatvec(slope + alpha))

    def go_on(state: _State) -> Any:
        is_late = state.n_iter - state.best_at > MAX_STALLED
        is_open = (state.optimality > 0.1 * tol) & ~is_late & ~state.stuck
        return is_open & (state.n_iter < max_iter)

    def turn(state: _State) -> _State:
        alpha, f = state.alpha, state.f
        accuracy = jnp.minimum(1e-2, 0.1 * state.optimality)
        goal = newton_goal(problem, K, f, state.slope, accuracy)
        move, f_move = goal - alpha, K @ goal - f

        def at(length: Any) -> Any:
            return objective(alpha + length * move, f + length * f_move)

        length, value = line_search(at, state.objective, 0.0, 1e-14)
        alpha, f = alpha + length * move, f + length * f_move
        slope, optimality = measure(alpha, f)
        n_iter = state.n_iter + 1
        is_better = optimality < 0.9 * state.best
        best = jnp.where(is_better, optimality, state.best)
        best_at = jnp.where(is_better, n_iter, state.best_at)
        return _State(alpha, f, value, slope, optimality, best, best_at, length == 0, n_iter)

    zero, none = jnp.zeros_like(problem.y), jnp.zeros((), int)
    slope, optimality = measure(zero, zero)
    is_stuck = jnp.zeros((), bool)
    start = _State(
        zero, zero, objective(zero, zero), slope, optimality, optimality, none, is_stuck, none
    )
    end = lax.while_loop(go_on, turn, start)
    stalled = end.n_iter < max_iter
    return Outcome(_weights(problem, diagonal, end.alpha), end.n_iter, jnp.ones(()), stalled)
