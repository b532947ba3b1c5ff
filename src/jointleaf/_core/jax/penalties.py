"""Penalties on a device: their proximal maps as pytrees.

Strengths and weights are leaves, so that changing them compiles nothing anew; what decides the
computation (which norm, its p or k, the columns of tasks) is structure. Quadratic terms are not
here: solvers know them by their curvature.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jointleaf._core.jax.norms import DirtyNorm, GrOWLNorm, LpNorm, SpectralNorm, pytree
from jointleaf._core.penalties import (
    L1,
    L21,
    DirtyLasso,
    DirtyLInf,
    Free,
    GrOWL,
    KyFan,
    Lp1,
    Nuclear,
    PerTask,
    SchattenP,
    SlopeNorm,
    TaskNorm,
)
from jointleaf._core.penalties.base import Penalty
from jointleaf._core.penalties.frobenius import Quadratic
from jointleaf._core.penalties.scaled import Scaled
from jointleaf._core.penalties.sums import Sum

__all__ = ["Prox", "device_prox"]

_MAX_ROUNDS = 5000


# -- proximal maps of weights theta (C, q[, K]) --------------------------------------------------


@pytree("")
@dataclass(frozen=True)
class _Free:
    """No penalty."""

    def prox(self, theta: Any, step: Any) -> Any:
        return theta


@pytree("curvature")
@dataclass(frozen=True)
class _Quadratic:
    """Sum of curvature (C, q) * theta^2 / 2."""

    curvature: Any

    def prox(self, theta: Any, step: Any) -> Any:
        return theta * _like(1 / (1 + step * self.curvature), theta)


@pytree("norm strength beta")
@dataclass(frozen=True)
class _Slopes:
    """strength * norm of the slopes, + sum_c beta_c b_c^2 / 2."""

    norm: Any
    strength: Any
    beta: Any

    def prox(self, theta: Any, step: Any) -> Any:
        slopes = theta[:, :-1]
        if slopes.shape[1] == 0:
            shrunk = slopes
        else:
            turned = jnp.moveaxis(slopes, 1, 0)
            level = step * self.strength
            if isinstance(self.norm, LpNorm):  # the others work in float64
                level = level.astype(theta.dtype)
            W = self.norm.shrink(turned.reshape(turned.shape[0], -1), level)
            shrunk = jnp.moveaxis(W.reshape(turned.shape), 0, 1)
        biases = theta[:, -1] / _like(1 + step * self.beta, theta[:, -1])
        return jnp.concatenate([shrunk, biases[:, None]], axis=1)


@pytree("factor penalty")
@dataclass(frozen=True)
class _Scaled:
    """factor * R."""

    factor: Any
    penalty: Any

    def prox(self, theta: Any, step: Any) -> Any:
        return self.penalty.prox(theta, step * self.factor)


@pytree("gammas penalties", "bounds")
@dataclass(frozen=True)
class _PerTask:
    """Sum over tasks of gamma_t R_t."""

    gammas: Any
    penalties: tuple[Any, ...]
    bounds: tuple[int, ...]

    def prox(self, theta: Any, step: Any) -> Any:
        return jnp.concatenate(
            [
                own.prox(theta[a:b], step * self.gammas[t])
                for t, ((a, b), own) in enumerate(
                    zip(pairwise(self.bounds), self.penalties, strict=True)
                )
            ]
        )


@pytree("first second")
@dataclass(frozen=True)
class _InTurn:
    """L1, then a norm that only makes rows or blocks of them shorter (Yu 2013)."""

    first: Any
    second: Any

    def prox(self, theta: Any, step: Any) -> Any:
        out = self.second.prox(self.first.prox(theta, step), step)
        beta = _beta(self.first) + _beta(self.second)
        biases = theta[:, -1] / _like(1 + step * beta, theta[:, -1])
        return out.at[:, -1].set(biases)


@pytree("others last")
@dataclass(frozen=True)
class _Split:
    """The true sum of several, by accelerated gradient steps on its dual (see `Sum`)."""

    others: tuple[Any, ...]
    last: Any

    def prox(self, theta: Any, step: Any) -> Any:
        m = len(self.others)
        wide = theta.astype(jnp.float64)
        size = jnp.abs(wide).max()

        def go_on(state: Any) -> Any:
            *_, move, k = state
            return (k < _MAX_ROUNDS) & (move > 1e-11 * size)

        def advance(state: Any) -> Any:
            duals, ahead, momentum, _, k = state
            z = self.last.prox(wide - ahead.sum(axis=0), step)
            w = ahead + z / m
            answers = jnp.stack([own.prox(m * w[i], m * step) for i, own in enumerate(self.others)])
            new = w - answers / m
            move = new - ahead
            momentum = jnp.where(jnp.vdot(move, new - duals) < 0, 1.0, momentum)
            following = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / following * (new - duals)
            return new, ahead, following, jnp.abs(move).max(), k + 1

        duals = jnp.zeros((m, *wide.shape))
        start = duals, duals, jnp.ones(()), jnp.full((), jnp.inf), 0
        duals = lax.while_loop(go_on, advance, start)[0]
        return self.last.prox(wide - duals.sum(axis=0), step).astype(theta.dtype)


Prox = _Free | _Quadratic | _Slopes | _Scaled | _PerTask | _InTurn | _Split


def _beta(prox: Any) -> Any:
    """Curvature on biases of a slope norm, or of a multiple of one."""
    return prox.factor * _beta(prox.penalty) if isinstance(prox, _Scaled) else prox.beta


def _like(values: Any, theta: Any) -> Any:
    """Values in the type of theta, with axes behind them for outputs."""
    return values.reshape(*values.shape, *(1,) * (theta.ndim - values.ndim)).astype(theta.dtype)


# -- from the penalties of the host --------------------------------------------------------------


def device_prox(penalty: Penalty, shape: tuple[int, ...]) -> Any:
    """The proximal map of a bound penalty for weights of a shape (C, q[, K]).

    Leaves are NumPy arrays in float64. None for a penalty that is written in NumPy alone.
    """
    if type(penalty).__module__.split(".")[0] != "jointleaf":  # also one that inherits
        return None
    if isinstance(penalty, Free):
        return _Free()
    if isinstance(penalty, Quadratic):
        return _Quadratic(penalty.curvature())
    if isinstance(penalty, Sum):
        return _sum_prox(penalty, shape)
    if isinstance(penalty, Scaled):
        inner = device_prox(penalty.penalty, shape)
        return None if inner is None else _Scaled(np.asarray(penalty.factor, float), inner)
    if isinstance(penalty, PerTask):
        return _per_task_prox(penalty, shape)
    norm = _norm(penalty, shape)
    if norm is None or not isinstance(penalty, SlopeNorm):
        return None
    beta = penalty.bias_curvature()
    beta = np.zeros(shape[0]) if beta is None else np.asarray(beta, float)
    return _Slopes(norm, np.asarray(penalty.strength, float), beta)


def _norm(penalty: Penalty, shape: tuple[int, ...]) -> Any:
    """The norm of the slopes."""
    if isinstance(penalty, L1):
        return LpNorm(1.0)
    if isinstance(penalty, Lp1):
        return LpNorm(penalty.p)
    if isinstance(penalty, GrOWL):
        return GrOWLNorm(np.asarray(penalty.weights, float)[: shape[1] - 1])
    if isinstance(penalty, Nuclear):
        return SpectralNorm(1.0, None)
    if isinstance(penalty, KyFan):
        return SpectralNorm(1.0, penalty.k)
    if isinstance(penalty, SchattenP):
        return SpectralNorm(penalty.p, None)
    return _dirty_norm(penalty, shape) if isinstance(penalty, DirtyLasso | DirtyLInf) else None


def _dirty_norm(penalty: TaskNorm, shape: tuple[int, ...]) -> DirtyNorm:
    ratio, kappa = penalty._limits()
    starts = np.array([0, shape[0]]) if penalty._starts is None else penalty._starts
    n_outputs = int(np.prod(shape[2:]))
    support = penalty._support
    return DirtyNorm(
        kappa=np.where(np.isfinite(kappa), kappa, 1.0),
        ratio=np.asarray(ratio if np.isfinite(ratio) else 1.0),
        support=None if support is None else np.asarray(support, float),
        bounds=tuple((starts * n_outputs).tolist()),
        is_largest=isinstance(penalty, DirtyLInf),
        has_common=bool(np.isfinite(ratio)),
        has_task=bool(np.isfinite(kappa).all()),
    )


def _per_task_prox(penalty: PerTask, shape: tuple[int, ...]) -> _PerTask | None:
    bound = penalty._bound
    parts = [device_prox(own, (c.stop - c.start, *shape[1:])) for c, _, own in bound]
    if any(part is None for part in parts):
        return None
    bounds = (0, *(cells.stop for cells, _, _ in bound))
    return _PerTask(np.array([gamma for _, gamma, _ in bound]), tuple(parts), bounds)


def _sum_prox(penalty: Sum, shape: tuple[int, ...]) -> Any:
    terms = penalty._weight_terms()
    made = {id(term): device_prox(term, shape) for term in terms}
    if any(part is None for part in made.values()):
        return None
    if len(terms) == 1:
        return made[id(terms[0])]
    if len(terms) == 2 and {type(t) for t in terms} in ({L1, L21}, {L1, DirtyLasso}):
        first, second = sorted(terms, key=lambda term: type(term) is not L1)
        return _InTurn(made[id(first)], made[id(second)])
    *others, last = sorted(terms, key=lambda term: term.is_row_sparse)
    return _Split(tuple(made[id(term)] for term in others), made[id(last)])
