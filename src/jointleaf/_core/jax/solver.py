"""A solver that runs on a device: a problem is moved there, solved, and measured on the host."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from jointleaf._core.arrays import cholesky_solver, dot, double_precision, find_device, shaped
from jointleaf._core.jax import fista, newton
from jointleaf._core.jax.newton import Outcome, Smooth, bias_inverse
from jointleaf._core.jax.problem import (
    DeviceDesign,
    DevicePenalty,
    DeviceProblem,
    compiled_loss,
    compiled_penalty,
    move_problem,
)
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Run, Solver, line_search
from jointleaf._core.solvers.dual import MAX_STALLED, newton_goal

move_penalty = DevicePenalty.of  # tests put their own in its place


class OnDevice(Solver):
    """One of the four solvers, compiled for a device.

    The data of a problem are moved once and serve all problems made from it, such as the points of
    a path. Between the move and the answer nothing passes between host and device. The trace has
    the start and the end alone. `device` is "gpu", "tpu" or "jax:cpu".
    """

    def __init__(self, name: str, device: str) -> None:
        self.name = name
        self.device = device
        self.in_double = name == "dual"

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return what JAX cannot compile: losses and penalties that are written in NumPy alone."""
        reason = compiled_loss(problem.loss, (len(problem.y), *problem.outputs))
        if reason is not None:
            return (
                f"the loss {type(problem.loss).__name__} is written in NumPy alone: use "
                f"device='cpu', or write it for arrays of JAX too or as a JaxLoss ({reason})"
            )
        # The other solvers know the penalty by its curvature.
        if self.name == "fista":
            reason = compiled_penalty(problem.nonsmooth, problem.zeros())
        if reason is not None:
            return (
                f"the penalty {problem.nonsmooth!r} is written in NumPy alone: use device='cpu', "
                f"or write it for arrays of JAX too ({reason})"
            )
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        device = find_device(self.device)
        solvers: dict[str, Any] = {
            "dual": _dual,
            "fista": _fista,
            "newton": partial(_conjugate_gradients, is_newton=True),
            "pcg": partial(_conjugate_gradients, is_newton=False),
        }
        with double_precision():
            key = "on device", self.device
            moved = run.state.get(key, lambda: move_problem(problem, device))
            outcome = solvers[self.name](problem, theta, run, moved, device)
            theta, n_iter, _, stalled = jax.device_get(tuple(outcome))
        return np.array(theta), int(n_iter), bool(stalled)


def call(function: Any, device: Any, *arguments: Any) -> Any:
    """Move arguments and call a compiled function; any other transfer is an error."""
    moved = jax.device_put(arguments, device)
    with jax.transfer_guard("disallow"):
        return function(*moved)


def _conjugate_gradients(
    problem: Problem, theta: NDArray, run: Run, moved: DeviceProblem, device: Any, is_newton: bool
) -> Outcome:
    curvature, _ = problem.quadratic()

    def at_zero() -> NDArray:
        h = problem.loss_curvature(problem.zero_predictions()).astype(float)
        return h if h.ndim == 1 else h.mean(axis=1)

    h = run.state.get("curvature at zero", at_zero) if is_newton else problem.s / problem.s.sum()
    beta = problem.layout.split(curvature)[1]
    biases = bias_inverse(problem, run.state, h, beta, device, independent=is_newton)
    smooth = Smooth(moved, curvature.astype(theta.dtype), biases)
    solve = newton.newton if is_newton else newton.pcg
    return call(solve, device, smooth, theta, run.tol, run.max_iter)


def _fista(
    problem: Problem, theta: NDArray, run: Run, moved: DeviceProblem, device: Any
) -> Outcome:
    diagonal = problem.smooth_curvature
    diagonal = np.zeros(len(theta)) if diagonal is None else diagonal
    biases, beta = None, problem.penalty.bias_curvature()
    if beta is not None and np.isfinite(problem.loss.max_curvature):  # they can be eliminated
        h = problem.loss.max_curvature * problem.s / problem.s.sum()
        biases = bias_inverse(problem, run.state, h, beta, device, smooth=True)
    diagonal, nonsmooth = jax.device_put(
        (diagonal.astype(theta.dtype), move_penalty(problem.nonsmooth)), device
    )

    def first_size() -> NDArray:
        start = problem.layout.random_weights().astype(theta.dtype)
        return jax.device_get(call(fista.first_size, device, moved, diagonal, biases, start))

    key = "step size on device", biases is None
    size = run.state.get(key, first_size)
    limits = np.asarray(problem.prox_step), run.tol, run.max_iter
    arguments = moved, diagonal, nonsmooth, biases, theta, size, *limits
    outcome = call(fista.minimise, device, *arguments)
    run.state.set(key, np.maximum(jax.device_get(outcome.size), 0.1 * np.asarray(size)))
    return outcome


def _dual(problem: Problem, theta: NDArray, run: Run, moved: DeviceProblem, device: Any) -> Outcome:
    penalty, layout = problem.penalty, problem.layout
    assert isinstance(penalty, Frobenius)
    weights = penalty.partition_weights
    weights = np.ones(layout.n_partitions) if weights is None else weights
    ridge = _Ridge(moved, penalty.curvature(), penalty.column_strengths(layout), weights)
    if not problem.loss.is_quadratic:
        return call(newton_dual, device, ridge, run.tol, run.max_iter)
    return call(squared if penalty.bias_strength > 0 else squared_free_biases, device, ridge)


# -- the exact dual: for n up to a few thousand rows, in float64 -----------------------------------
#
# The mathematics is that of `_core.solvers.dual`. Shapes must not depend on the data: the null
# space of Z^T, where free biases keep the dual weights, is a projector instead of a basis.


class _Ridge(NamedTuple):
    """A problem with a Frobenius penalty."""

    problem: DeviceProblem
    diagonal: Any  # its curvature (N,)
    column_strengths: Any  # (q,)
    partition_weights: Any  # (P,)

    def kernel(self) -> Any:
        """K = Phi D^-1 Phi^T over the penalised columns, (n, n)."""
        design, strengths = self.problem.design, self.column_strengths
        is_linear = np.array(design.layout.kinds) == "linear"
        inverse = jnp.where(strengths > 0, 1 / jnp.where(strengths > 0, strengths, 1), 0)
        shared = _shared_cells(design, self.partition_weights)
        kernel = shared * inverse[-1]
        if not is_linear.any():
            return kernel
        if not is_linear.all():
            shared = _shared_cells(design, self.partition_weights * is_linear)
        return kernel + shared * ((design.X * inverse[:-1]) @ design.X.T)

    def system(self) -> tuple[Any, Any]:
        """The matrix K + W^-1 and the target t of (K + W^-1) alpha = t."""
        problem, K = self.problem, self.kernel()
        if problem.smoother is None:
            return K + jnp.diag(1.0 / problem.s), problem.y - problem.offset
        W = problem.smoother.dense() + jnp.diag(problem.s)
        solve = cholesky_solver(W)
        return K + solve(jnp.eye(len(W))), -solve(problem.slope(jnp.zeros_like(problem.y)))

    def weights(self, alpha: Any) -> Any:
        """Theta = D^-1 Phi^T alpha; free columns are zero."""
        back = self.problem.design.rmatvec(alpha)
        D = shaped(self.diagonal, back)
        return jnp.where(D > 0, back / jnp.where(D > 0, D, 1.0), 0.0)


def _shared_cells(design: DeviceDesign, partition_weights: Any) -> Any:
    """M (n, n): weight of the partitions in which two rows share a cell."""
    n = design.X.shape[0]

    def add(p: Any, total: Any) -> Any:
        cells = design.cells[p]
        meet = (cells[:, None] == cells[None, :]) & (cells < design.layout.n_cells)[:, None]
        return total + jnp.where(meet, partition_weights[p], 0.0)

    return lax.fori_loop(0, design.cells.shape[0], add, jnp.zeros((n, n)))


@jax.jit
def squared(ridge: _Ridge) -> Outcome:
    """Squared error, penalised biases: one Cholesky factorisation."""
    A, target = ridge.system()
    theta = ridge.weights(cholesky_solver(A)(target))
    return Outcome(theta, jnp.ones((), int), jnp.ones(()), jnp.ones((), bool))


@jax.jit
def squared_free_biases(ridge: _Ridge) -> Outcome:
    """Squared error, free biases: A alpha + Z b = t with Z^T alpha = 0; b is the shortest."""
    design, (A, target) = ridge.problem.design, ridge.system()
    values, V = jnp.linalg.eigh(_shared_cells(design, jnp.ones_like(ridge.partition_weights)))
    tiny = 10 * float(jnp.finfo(float).eps) * len(values) * values[-1]
    is_null = values <= tiny
    N = V * is_null
    # On the null space of Z^T as A is, elsewhere as large, so that nothing couples the two.
    elsewhere = (V * jnp.where(is_null, 0.0, jnp.trace(A) / len(A))) @ V.T
    within = N @ (N.T @ A @ N) @ N.T
    alpha = N @ (N.T @ cholesky_solver(within + elsewhere)(N @ (N.T @ target)))
    inner = V.T @ (target - A @ alpha)
    onto = V @ (shaped(jnp.where(is_null, 0.0, 1 / jnp.where(is_null, 1, values)), inner) * inner)
    theta = design.layout.with_biases(ridge.weights(alpha), design.bias_rmatvec(onto))
    return Outcome(theta, jnp.ones((), int), jnp.ones(()), jnp.ones((), bool))


class _DualState(NamedTuple):
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
def newton_dual(ridge: _Ridge, tol: Any, max_iter: Any) -> Outcome:
    """Newton's method on the predictions f = K alpha of a smooth loss, biases penalised."""
    problem, K = ridge.problem, ridge.kernel()

    def objective(alpha: Any, f: Any) -> Any:
        return problem.data_value(f) + 0.5 * dot(alpha, f)

    def measure(alpha: Any, f: Any) -> tuple[Any, Any]:
        slope = problem.slope(f)
        return slope, problem.optimality(problem.design.rmatvec(slope + alpha))

    def go_on(state: _DualState) -> Any:
        is_late = state.n_iter - state.best_at > MAX_STALLED
        is_open = (state.optimality > 0.1 * tol) & ~is_late & ~state.stuck
        return is_open & (state.n_iter < max_iter)

    def turn(state: _DualState) -> _DualState:
        alpha, f = state.alpha, state.f
        goal = newton_goal(problem, K, f, state.slope, state.optimality)
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
        return _DualState(alpha, f, value, slope, optimality, best, best_at, length == 0, n_iter)

    zero, none, never = jnp.zeros_like(problem.y), jnp.zeros((), int), jnp.zeros((), bool)
    slope, first = measure(zero, zero)
    start = _DualState(zero, zero, objective(zero, zero), slope, first, first, none, never, none)
    end = lax.while_loop(go_on, turn, start)
    stalled = end.n_iter < max_iter
    return Outcome(ridge.weights(end.alpha), end.n_iter, jnp.ones(()), stalled)
