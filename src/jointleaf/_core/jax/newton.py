"""Truncated Newton on a device, compiled end to end."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jointleaf._core.jax.biases import BiasInverse
from jointleaf._core.jax.fista import Outcome
from jointleaf._core.jax.preconditioner import (
    SmoothState,
    conjugate_gradients,
    make_preconditioner,
)
from jointleaf._core.jax.problem import DeviceProblem, dot, shaped

__all__ = ["line_search", "minimise"]

_MAX_INNER = 250
_HALVINGS = 40


@jax.jit
def minimise(
    problem: DeviceProblem,
    diagonal: Any,
    biases: BiasInverse | None,
    theta: Any,
    tol: Any,
    max_iter: Any,
) -> Outcome:
    """Minimise a smooth loss with a penalty of curvature `diagonal` (C, q) from theta.

    `biases` is the joint inverse for the curvature of the loss at the start: it preconditions, with
    slope blocks that follow the curvature from step to step.
    """
    design, D = problem.design, shaped(diagonal, theta)
    noise = 16 * float(jnp.finfo(theta.dtype).eps)

    def judge(theta: Any, f: Any) -> tuple[Any, Any]:
        gradient = problem.gradient(f) + D * theta
        return gradient, jnp.abs(gradient).max().astype(jnp.float64) / problem.start_slope

    def objective(theta: Any, f: Any) -> Any:
        return problem.value(f) + 0.5 * dot(theta, D * theta)

    def go_on(state: SmoothState) -> Any:
        return (state.optimality > tol) & ~state.stalled & (state.n_iter < max_iter)

    def turn(state: SmoothState) -> SmoothState:
        theta, f, residual = state.theta, state.f, -state.gradient
        direction, image = _direction(problem, diagonal, biases, f, residual)

        def at(length: Any) -> Any:
            t = length.astype(theta.dtype)
            return objective(theta + t * direction, f + t * image)

        length, value = line_search(at, state.objective, -dot(residual, direction), noise)
        theta = theta + length.astype(theta.dtype) * direction
        f = design.matvec(theta)
        gradient, optimality = judge(theta, f)
        stalled = length == 0.0
        return SmoothState(theta, f, gradient, optimality, value, stalled, state.n_iter + 1)

    f = design.matvec(theta)
    gradient, optimality = judge(theta, f)
    is_stalled, none = jnp.zeros((), bool), jnp.zeros((), int)
    start = SmoothState(theta, f, gradient, optimality, objective(theta, f), is_stalled, none)
    end = lax.while_loop(go_on, turn, start)
    return Outcome(end.theta, end.n_iter, jnp.ones(()), end.stalled)


def _direction(
    problem: DeviceProblem, diagonal: Any, biases: BiasInverse | None, f: Any, residual: Any
) -> tuple[Any, Any]:
    """Newton direction and its predictions, to the accuracy that the residual deserves."""
    design, D = problem.design, shaped(diagonal, residual)
    h = problem.curvature(f)
    # Rows without curvature would leave directions free in which the loss is not flat at all.
    flat = jnp.where(h > 1e-8 * h.max(), 0.0, 1e-3 * h.max()).astype(h.dtype)
    mean = h + flat if h.ndim == 1 else (h + flat).mean(axis=1)
    precondition = make_preconditioner(design, mean, diagonal, biases, eliminate=False)

    def operator(p: Any) -> tuple[Any, Any, Any]:
        image = design.matvec(p)
        curved = problem.hessian_product(f, image) + flat * image
        return p, design.rmatvec(curved) + D * p, image

    relative = jnp.abs(residual).max() / problem.start_slope
    goal = jnp.minimum(0.1, jnp.sqrt(relative)) ** 2 * dot(residual, residual)
    direction, image, _ = conjugate_gradients(
        operator,
        precondition,
        jnp.zeros_like(residual),
        jnp.zeros_like(f),
        residual,
        lambda r: dot(r, r) <= goal,
        _MAX_INNER,
    )
    return direction, image


def line_search(objective_at: Any, start: Any, slope: Any, noise: float) -> tuple[Any, Any]:
    """Halve the step until the objective falls enough; (0, start) if it never does."""

    def is_enough(length: Any, value: Any) -> Any:
        return value <= start + 1e-4 * length * slope + noise * jnp.abs(start)

    def go_on(state: Any) -> Any:
        length, value, k = state
        return ~is_enough(length, value) & (k < _HALVINGS)

    def turn(state: Any) -> Any:
        length = 0.5 * state[0]
        return length, objective_at(length), state[2] + 1

    one = jnp.ones(())
    length, value, _ = lax.while_loop(go_on, turn, (one, objective_at(one), 0))
    found = is_enough(length, value)
    return jnp.where(found, length, 0.0), jnp.where(found, value, start)
