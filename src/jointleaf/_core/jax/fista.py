"""FISTA on a device: the whole iteration is one compiled loop.

The method is that of `_core.solvers.fista` (step sizes found on the way, adaptive restart,
biases eliminated where possible), on all features at once: shapes on a device must not change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jointleaf._core.arrays import dot, shaped
from jointleaf._core.jax.newton import BiasInverse, Outcome
from jointleaf._core.jax.problem import DevicePenalty, DeviceProblem
from jointleaf._core.solvers.steps import Quadratic

_LONGER, _SHORTER = 1.05, 0.7
_LEAST = 1e-30  # of a step size
_POWER_ITERATIONS = 12


class _State(NamedTuple):
    theta: Any
    f: Any
    ahead: Any
    f_ahead: Any
    momentum: Any
    size: Any
    optimality: Any
    n_iter: Any


def _quadratic(problem: DeviceProblem, diagonal: Any, biases: BiasInverse | None) -> Quadratic:
    beta = None if biases is None else biases.beta
    return Quadratic.of(problem, diagonal, biases, beta, trust=True)


@jax.jit
def first_size(problem: DeviceProblem, diagonal: Any, biases: Any, start: Any) -> Any:
    """1 / (largest eigenvalue of the quadratic), by power iteration from a start (N,)."""
    quadratic = _quadratic(problem, diagonal, biases)

    def turn(_: Any, state: Any) -> Any:
        v, norm = state
        v = quadratic.times(v / jnp.where(norm > 0, norm, 1.0).astype(v.dtype))
        return v, jnp.sqrt(dot(v, v))

    _, norm = lax.fori_loop(0, _POWER_ITERATIONS, turn, (start, jnp.sqrt(dot(start, start))))
    return jnp.where(norm > 0, 1.0 / (1.02 * norm), 1.0)


@jax.jit
def minimise(
    problem: DeviceProblem,
    diagonal: Any,
    nonsmooth: DevicePenalty,
    biases: BiasInverse | None,
    theta: Any,
    size: Any,
    prox_step: Any,
    tol: Any,
    max_iter: Any,
) -> Outcome:
    """Minimise from theta (N[, K]) until optimality <= tol, with a first step of a size.

    `diagonal` (N,) is the curvature of the quadratic part of the penalty, `nonsmooth` its other
    part, `biases` the inverse for the bound of the loss's curvature where biases are eliminated,
    `prox_step` that of `Problem.optimality`.
    """
    quadratic = _quadratic(problem, diagonal, biases)
    advance = _plain_step if biases is None else _eliminating_step
    f = problem.design.matvec(theta)
    start = _State(theta, f, theta, f, jnp.ones(()), size, jnp.full((), jnp.inf), 0)

    def go_on(state: _State) -> Any:
        return (state.n_iter < max_iter) & (state.optimality > tol)

    def turn(state: _State) -> _State:
        longer = state.size * _LONGER
        new, f_new, size, distance = advance(
            quadratic, nonsmooth, state.ahead, state.f_ahead, longer
        )
        uphill = dot(new - state.ahead, new - state.theta) < 0
        momentum = jnp.where(uphill, 1.0, state.momentum)
        following = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
        push = ((momentum - 1) / following).astype(new.dtype)
        ahead = new + push * (new - state.theta)
        f_ahead = f_new + push * (f_new - state.f)
        # The move over the step size is free; the true measure, a pass, where that is small.
        free = distance / problem.start_slope
        measured = lax.cond(
            free <= tol,
            lambda: _optimality(problem, diagonal, nonsmooth, new, f_new, prox_step),
            lambda: free,
        )
        return _State(new, f_new, ahead, f_ahead, following, size, measured, state.n_iter + 1)

    end = lax.while_loop(go_on, turn, start)
    return Outcome(end.theta, end.n_iter, end.size, jnp.zeros((), bool))


def _optimality(
    problem: DeviceProblem, diagonal: Any, nonsmooth: Any, theta: Any, f: Any, size: Any
) -> Any:
    """Largest entry of the proximal gradient with a step, as `Problem.optimality` has it."""
    gradient = problem.data_gradient(f) + shaped(diagonal, theta) * theta
    t = size.astype(theta.dtype)
    return problem.optimality((theta - nonsmooth.prox(theta - t * gradient, size)) / t)


def _shorten(trial: Any, size: Any, first: Any) -> Any:
    """Shorten a step until its bound holds; `trial` returns whether, and what it leads to."""

    def go_on(state: Any) -> Any:
        size, is_bound, _ = state
        return ~is_bound & (size > _LEAST)

    def turn(state: Any) -> Any:
        size = state[0] * _SHORTER
        is_bound, led_to = trial(size)
        return size, is_bound, led_to

    start = size / _SHORTER, jnp.zeros((), bool), first
    size, _, led_to = lax.while_loop(go_on, turn, start)
    return size, led_to


def _plain_step(quadratic: Quadratic, nonsmooth: Any, theta: Any, f: Any, size: Any) -> Any:
    """Slopes and biases alike move along the negative gradient."""
    problem = quadratic.problem
    gradient = problem.data_gradient(f) + quadratic.shrunk(theta)
    trust = bool(np.isfinite(problem.loss.max_curvature))

    def trial(size: Any) -> Any:
        is_bound, new, f_new, largest = quadratic.trial(
            nonsmooth, theta, f, gradient, size, trust=trust
        )
        return is_bound, (new, f_new, largest.astype(jnp.float64))

    size, (new, f_new, largest) = _shorten(trial, size, (theta, f, jnp.zeros(())))
    return new, f_new, size, largest / size


def _eliminating_step(quadratic: Quadratic, nonsmooth: Any, theta: Any, f: Any, size: Any) -> Any:
    """Slopes move along the gradient, biases to what is best for the slopes."""
    problem, design = quadratic.problem, quadratic.problem.design
    slope, biases = problem.slope(f), design.layout.split(theta)[1]
    # For the squared error biases are at their best already, but for rounding: then this is tiny.
    settling = quadratic.biases.solve(-design.bias_rmatvec(slope) - quadratic.times_beta(biases))
    shift = design.bias_matvec(settling)
    gradient = design.rmatvec(slope + quadratic.weigh(shift)) + quadratic.shrunk(theta)

    def trial(size: Any) -> Any:
        new = nonsmooth.prox(theta - size.astype(theta.dtype) * gradient, size)
        new = design.layout.with_biases(new, biases)
        move = new - theta
        image = design.matvec(new) - f
        answer, change = quadratic.answer(image)
        image = image + change
        bend = quadratic.bend(image, move) + dot(answer, quadratic.times_beta(answer))
        is_bound = bend <= (1 + 1e-6) * dot(move, move) / size
        new = design.layout.with_biases(new, biases + settling + answer)
        largest = jnp.abs(move).max().astype(jnp.float64)
        return is_bound, (new, f + shift + image, largest)

    size, (new, f_new, largest) = _shorten(trial, size, (theta, f, jnp.zeros(())))
    return new, f_new, size, largest / size
