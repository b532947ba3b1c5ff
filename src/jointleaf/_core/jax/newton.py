"""Conjugate gradients and truncated Newton on a device, compiled end to end.

As on the host (`_core.solvers.newton`) the preconditioner is an inverse d x d block for
every linear cell, and the biases of all cells together where their joint inverse is at hand.

The C x C matrix of the biases, Z^T diag(h) Z + D_b, is made on the host, once for a problem, and
factorised on the device. Free biases leave it singular: a small multiple of the identity is added,
which only makes a step a little shorter (FISTA), or is mended by another round (conjugate
gradients). Newton's method solves with it again and again until rounding, made large in directions
that hold nothing, stops it; for it biases that are combinations of others (every partition after
the first has one) are found and stay where they are. That loses nothing but time: conjugate
gradients alone take twice as many rounds then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve
from numpy.typing import NDArray

from jointleaf._core.arrays import dot, shaped
from jointleaf._core.jax.problem import DeviceProblem, pytree
from jointleaf._core.problem import Problem
from jointleaf._core.solvers import newton as host
from jointleaf._core.solvers.base import SolverState, line_search

_JITTER = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-10}
# Relative to the largest diagonal entry: what is added for the search for combinations, and the
# pivot below which a bias is one. With m biases in it its pivot is about m times the first.
_SEARCH_JITTER, _LEAST_PIVOT = 1e-12, 1e-9


class Outcome(NamedTuple):
    """Where a loop ended: weights, iterations, the last step size, and whether it was stuck."""

    theta: Any
    n_iter: Any
    size: Any
    stalled: Any


# -- the biases of all cells ---------------------------------------------------------------------


@pytree("factors chosen beta", "bounds")
@dataclass(frozen=True)
class BiasInverse:
    """Inverts Z^T (diag(h) + A) Z + D_b."""

    factors: tuple[Any, ...]  # lower Cholesky factors (C_t, C_t), one a task
    chosen: tuple[Any, ...]  # (C_t,): 1 for biases to solve for, 0 for combinations of others
    beta: Any  # D_b (C,), the curvature of the penalty on biases
    bounds: tuple[int, ...]  # first cell of every task, and C

    is_joint = True

    def solve(self, r: Any) -> Any:
        """Apply to residuals (C,) or (C, K)."""
        parts = []
        for (a, b), factor, is_chosen in zip(
            pairwise(self.bounds), self.factors, self.chosen, strict=True
        ):
            mask = shaped(is_chosen, r)
            parts.append(mask * cho_solve((factor, True), mask * r[a:b]))
        return jnp.concatenate(parts)


@partial(jax.jit, donate_argnums=0, static_argnums=2)
def _factorise(gram: Any, jitter: Any, independent: bool) -> tuple[Any, Any]:
    """Cholesky factor of a matrix, and 1 for columns that stay: all, or independent ones."""
    size, places = gram.diagonal().max(), jnp.arange(len(gram))

    def factor(matrix: Any, jitter: Any) -> Any:
        matrix = matrix.at[places, places].add(jitter * size)
        return lax.linalg.cholesky(matrix, symmetrize_input=False)

    if not independent:
        return factor(gram, jitter), jnp.ones(len(gram), bool)
    pivots = jnp.square(factor(gram, _SEARCH_JITTER).diagonal())
    # Where rounding ends the factorisation nothing is known.
    chosen = (pivots > _LEAST_PIVOT * size) | ~jnp.isfinite(pivots).all()
    gram = gram * chosen[:, None] * chosen[None]
    gram = gram.at[places, places].add(jnp.where(chosen, 0.0, size))
    return factor(gram, jitter), chosen


def bias_inverse(
    problem: Problem,
    state: SolverState,
    h: NDArray,
    beta: NDArray,
    device: Any,
    *,
    smooth: bool = False,
    independent: bool = False,
) -> BiasInverse | None:
    """The joint inverse for curvatures h (n,) of the rows; None where it is not worth it.

    With `smooth` it knows the penalty on predictions, with `independent` biases that are
    combinations of others are left out. The last one made is kept for related problems.
    """
    blocks = problem.design.blocks()
    if not all(host.is_joint_worth(block.design, beta[block.cells]) for block in blocks):
        return None
    key = "bias inverse on device"
    stamp = (device, beta.tobytes(), smooth, independent, hash(h.tobytes()))
    made_for, inverse = state.get(key, lambda: ((), None))
    if made_for == stamp:
        return inverse
    state.set(key, ((), None))  # the old one must not stand beside the new one in memory
    dtype = problem.design.dtype
    smoothers = [None] * len(blocks)
    if smooth and problem.smoother is not None:
        smoothers = getattr(problem.smoother, "parts", [problem.smoother] * len(blocks))
    factors, chosen = [], []
    for (rows, cells, part), smoother in zip(blocks, smoothers, strict=True):
        gram = host.bias_gram(part, h[rows])
        if smoother is not None:
            gram += host.smoothed_gram(part, smoother)
        gram[np.diag_indices_from(gram)] += beta[cells]
        search = independent and not (beta[cells] > 0).all()
        # Its upper triangle is made; a factorisation reads the lower one.
        moved = jax.device_put((gram.T, np.asarray(_JITTER[dtype])), device)
        del gram  # C x C numbers should not exist more often than they must
        factor, is_chosen = _factorise(*moved, search)
        del moved
        factors.append(factor.astype(dtype))
        chosen.append(is_chosen.astype(dtype))
    bounds = (0, *(block.cells.stop for block in blocks))
    moved_beta = jax.device_put(beta.astype(dtype), device)
    inverse = BiasInverse(tuple(factors), tuple(chosen), moved_beta, bounds)
    state.set(key, (stamp, inverse))
    return inverse


# -- the solvers ---------------------------------------------------------------------------------


def _objective(problem: DeviceProblem, D: Any, theta: Any, f: Any) -> Any:
    return problem.data_value(f) + 0.5 * dot(theta, D * theta)


def _measure(problem: DeviceProblem, D: Any, theta: Any, f: Any) -> tuple[Any, Any, Any]:
    """Return gradient, optimality and objective at weights with predictions f."""
    gradient = problem.data_gradient(f) + D * theta
    return gradient, problem.optimality(gradient), _objective(problem, D, theta, f)


class Smooth(NamedTuple):
    """A smooth problem with a penalty of curvature `diagonal` (N,).

    `biases` is the joint inverse for the curvature of the loss, without a smoother and at the
    start: it preconditions, with slope blocks that follow the curvature from step to step.
    """

    problem: DeviceProblem
    diagonal: Any
    biases: BiasInverse | None


class _State(NamedTuple):
    """What a loop of conjugate gradients or Newton steps carries on."""

    theta: Any
    f: Any
    gradient: Any
    optimality: Any
    objective: Any
    stalled: Any
    n_iter: Any


def _descend(smooth: Smooth, turn: Any, theta: Any, tol: Any, max_iter: Any) -> Outcome:
    """Take turns from theta until the tolerance is met, or nothing is gained any more."""

    def go_on(state: _State) -> Any:
        is_open = (state.optimality > tol) & ~state.stalled & jnp.isfinite(state.optimality)
        return is_open & (state.n_iter < max_iter)

    f, D = smooth.problem.design.matvec(theta), shaped(smooth.diagonal, theta)
    counts = jnp.zeros((), bool), jnp.zeros((), int)
    start = _State(theta, f, *_measure(smooth.problem, D, theta, f), *counts)
    end = lax.while_loop(go_on, turn, start)
    return Outcome(end.theta, end.n_iter, jnp.ones(()), end.stalled)


@jax.jit
def pcg(smooth: Smooth, theta: Any, tol: Any, max_iter: Any) -> Outcome:
    """Minimise the squared error from theta."""
    problem, diagonal, biases = smooth
    design, D = problem.design, shaped(diagonal, theta)
    measure = partial(_measure, problem, D)
    h = problem.s.astype(theta.dtype)
    precondition = host.BlockPreconditioner(
        design, h, diagonal.astype(float), biases, eliminate=problem.smoother is None
    )
    noise = 10 * float(jnp.finfo(theta.dtype).eps)
    times_hessian = problem.hessian(jnp.zeros_like(problem.y))

    def operator(p: Any) -> tuple[Any, Any, Any]:
        p, image = precondition.complete(p, design.matvec(p))
        return p, design.rmatvec(times_hessian(image)) + D * p, image

    def turn(state: _State) -> _State:
        theta, f, residual, n_iter = state.theta, state.f, -state.gradient, state.n_iter
        if precondition.eliminates:
            theta, f = precondition.settle(theta, f, design.layout.split(residual)[1])
            residual, n_iter = -measure(theta, f)[0], n_iter + 1
        most = jnp.minimum(max_iter - n_iter, host.CYCLE[theta.dtype])

        def is_done(residual: Any) -> Any:
            return jnp.abs(residual).max() <= 0.5 * tol * problem.start_slope

        theta, f, steps = host.conjugate_gradients(
            operator, precondition, theta, f, residual, is_done, most
        )
        f = design.matvec(theta)
        gradient, optimality, objective = measure(theta, f)
        no_gain = objective > state.objective - noise * jnp.abs(state.objective)
        stalled = (optimality > 0.9 * state.optimality) & no_gain
        return _State(theta, f, gradient, optimality, objective, stalled, n_iter + steps)

    return _descend(smooth, turn, theta, tol, max_iter)


@jax.jit
def newton(smooth: Smooth, theta: Any, tol: Any, max_iter: Any) -> Outcome:
    """Minimise a smooth loss from theta."""
    problem, diagonal, biases = smooth
    design, D = problem.design, shaped(diagonal, theta)
    noise = 16 * float(jnp.finfo(theta.dtype).eps)

    def turn(state: _State) -> _State:
        theta, f, residual = state.theta, state.f, -state.gradient
        direction, image = host.newton_direction(
            problem, diagonal.astype(float), D, f, residual, biases, eliminate=False
        )

        def at(length: Any) -> Any:
            t = length.astype(theta.dtype)
            return _objective(problem, D, theta + t * direction, f + t * image)

        length, value = line_search(at, state.objective, -dot(residual, direction), noise)
        theta = theta + length.astype(theta.dtype) * direction
        f = design.matvec(theta)
        gradient, optimality, _ = _measure(problem, D, theta, f)
        stalled = length == 0.0
        return _State(theta, f, gradient, optimality, value, stalled, state.n_iter + 1)

    return _descend(smooth, turn, theta, tol, max_iter)
