"""Preconditioned conjugate gradients on a device, compiled end to end."""

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

__all__ = ["minimise"]

_CYCLE = {"float32": 100, "float64": 10**9}  # steps until the true residual is taken again


@jax.jit
def minimise(
    problem: DeviceProblem,
    diagonal: Any,
    biases: BiasInverse | None,
    theta: Any,
    tol: Any,
    max_iter: Any,
) -> Outcome:
    """Minimise the squared error with a penalty of curvature `diagonal` (C, q) from theta.

    `biases` is the joint inverse for the curvature of the loss without a smoother.
    """
    design, D = problem.design, shaped(diagonal, theta)
    h = problem.shares.astype(theta.dtype)
    precondition = make_preconditioner(
        design, h, diagonal, biases, eliminate=problem.smoother is None
    )
    noise = 10 * float(jnp.finfo(theta.dtype).eps)
    zero = jnp.zeros_like(problem.y)

    def judge(theta: Any, f: Any) -> tuple[Any, Any, Any]:
        gradient = problem.gradient(f) + D * theta
        optimality = jnp.abs(gradient).max().astype(jnp.float64) / problem.start_slope
        return gradient, optimality, problem.value(f) + 0.5 * dot(theta, D * theta)

    def operator(p: Any) -> tuple[Any, Any, Any]:
        p, image = precondition.complete(design, p, design.matvec(p))
        return p, design.rmatvec(problem.hessian_product(zero, image)) + D * p, image

    def go_on(state: SmoothState) -> Any:
        open_ = (state.optimality > tol) & ~state.stalled & jnp.isfinite(state.optimality)
        return open_ & (state.n_iter < max_iter)

    def turn(state: SmoothState) -> SmoothState:
        theta, f, residual, n_iter = state.theta, state.f, -state.gradient, state.n_iter
        if precondition.eliminates:
            theta, f = precondition.settle(design, theta, f, residual[:, -1])
            residual, n_iter = -judge(theta, f)[0], n_iter + 1
        most = jnp.minimum(max_iter - n_iter, _CYCLE[theta.dtype.name])

        def is_done(residual: Any) -> Any:
            return jnp.abs(residual).max() <= 0.5 * tol * problem.start_slope

        theta, f, steps = conjugate_gradients(
            operator, precondition, theta, f, residual, is_done, most
        )
        f = design.matvec(theta)
        gradient, optimality, objective = judge(theta, f)
        no_gain = objective > state.objective - noise * jnp.abs(state.objective)
        stalled = (optimality > 0.9 * state.optimality) & no_gain
        return SmoothState(theta, f, gradient, optimality, objective, stalled, n_iter + steps)

    f = design.matvec(theta)
    start = SmoothState(theta, f, *judge(theta, f), jnp.zeros((), bool), jnp.zeros((), int))
    end = lax.while_loop(go_on, turn, start)
    return Outcome(end.theta, end.n_iter, jnp.ones(()), end.stalled)
