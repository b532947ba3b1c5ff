"""Proximal maps of vector norms, row by row, in `jax.numpy`.

The counterparts of `_core.penalties.shrink` and `_core.penalties.projections`: every
function takes V (rows, m) and gives argmin_x |x - v|^2 / 2 + t |x| for every row v. Searches are
loops on the device that end with the precision of the type.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

__all__ = [
    "cap_l1",
    "cap_l2",
    "shrink_l1",
    "shrink_l2",
    "shrink_linf",
    "shrink_lp",
    "shrink_sorted",
]

_ROUNDS = 60


def shrink_l1(V: Any, t: Any) -> Any:
    """Soft thresholding."""
    return jnp.sign(V) * jnp.maximum(jnp.abs(V) - t, 0)


def shrink_l2(V: Any, t: Any) -> Any:
    """Group soft thresholding: rows shorter than t vanish, others get shorter by t."""
    lengths = jnp.linalg.norm(V, axis=1)
    live = lengths > t
    return V * jnp.where(live, 1 - t / jnp.where(live, lengths, 1), 0)[:, None]


def excess_level(sizes: Any, radius: Any) -> Any:
    """Level >= 0 (rows,) with sum_i max(size_i - level, 0) = radius; sizes fall along a row."""
    levels = (jnp.cumsum(sizes, axis=1) - radius) / jnp.arange(1, sizes.shape[1] + 1)
    count = jnp.maximum(jnp.sum(sizes > levels, axis=1), 1)
    return jnp.maximum(jnp.take_along_axis(levels, count[:, None] - 1, axis=1)[:, 0], 0)


def shrink_linf(V: Any, t: Any) -> Any:
    """The largest entries are cut to a common level (Duchi et al. 2008)."""
    level = excess_level(-jnp.sort(-jnp.abs(V), axis=1), t)[:, None]
    return jnp.clip(V, -level, level)


def shrink_sorted(v: Any, weights: Any) -> Any:
    """Ordered weighted l1 norm of a vector (m,) of non-negative numbers; weights do not rise.

    Averages what is out of order by the minimax formula of isotonic regression,
    min over i <= k of the max over j >= k of the mean of entries i to j: (m, m) numbers.
    """
    m = v.shape[0]
    order = jnp.argsort(-v, stable=True)
    sums = jnp.concatenate([jnp.zeros(1, v.dtype), jnp.cumsum(v[order] - weights)])
    first, last = jnp.arange(m)[:, None], jnp.arange(m)[None, :]
    means = (sums[None, 1:] - sums[:-1, None]) / jnp.maximum(last - first + 1, 1)
    means = jnp.where(last >= first, means, -jnp.inf)
    highest = lax.cummax(means, axis=1, reverse=True)  # over j >= k
    highest = jnp.where(last >= first, highest, jnp.inf)
    fitted = lax.cummin(highest, axis=0)[jnp.arange(m), jnp.arange(m)]  # over i <= k
    return jnp.zeros_like(v).at[order].set(jnp.maximum(fitted, 0))


# -- the l_p norm -------------------------------------------------------------------------------


def shrink_lp(V: Any, t: Any, p: float) -> Any:
    """The l_p norm, 1 <= p <= infinity; see `_core.penalties.shrink.shrink_lp`."""
    if p == 1:
        return shrink_l1(V, t)
    if p == 2:
        return shrink_l2(V, t)
    if p == float("inf"):
        return shrink_linf(V, t)
    size = jnp.abs(V)
    live = _norms(size, p / (p - 1)) > t
    scale = jnp.where(live, size.max(axis=1), 1)
    # Rows that vanish stand for ones, so that their search ends like the others'.
    unit = jnp.where(live[:, None], size / scale[:, None], 1)
    answer = _lp_rows(unit, jnp.where(live, t / scale, 0.5), p)
    return jnp.where(live[:, None], jnp.sign(V) * scale[:, None] * answer, 0)


def _norms(V: Any, p: float) -> Any:
    """l_p norms of non-negative rows, without overflow."""
    largest = jnp.maximum(V.max(axis=1), jnp.finfo(V.dtype).tiny)
    return largest * jnp.sum((V / largest[:, None]) ** p, axis=1) ** (1 / p)


def _lp_rows(V: Any, t: Any, p: float) -> Any:
    """Answers of `shrink_lp` for non-negative rows that do not vanish, by bisection for N."""
    eps = jnp.finfo(V.dtype).eps

    def at(N: Any) -> Any:
        return N[:, None] * _solve_power(V / N[:, None], (t / N)[:, None], p - 1)

    def go_on(state: Any) -> Any:
        low, high, k = state
        return (k < _ROUNDS) & jnp.any(high - low > 4 * eps * high)

    def halve(state: Any) -> Any:
        low, high, k = state
        middle = 0.5 * (low + high)
        is_low = _norms(at(middle), p) > middle
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle), k + 1

    high = _norms(V, p)
    low, high, _ = lax.while_loop(go_on, halve, (jnp.zeros_like(high), high, 0))
    return at(0.5 * (low + high))


def _solve_power(V: Any, c: Any, e: float) -> Any:
    """Solve x + c x^e = v for x >= 0 by Newton's method from above; for e < 1 in x^e."""
    if e < 1:
        return _solve_power_above(V / c, 1 / c, 1 / e) ** (1 / e)
    return _solve_power_above(V, c, e)


def _solve_power_above(V: Any, c: Any, e: float) -> Any:
    eps = jnp.finfo(V.dtype).eps

    def go_on(state: Any) -> Any:
        x, step, k = state
        return (k < _ROUNDS) & jnp.any(jnp.abs(step) > 4 * eps * (1 + x))

    def move(state: Any) -> Any:
        x, _, k = state
        power = x ** (e - 1)
        step = (x + c * power * x - V) / (1 + c * e * power)
        return jnp.maximum(x - step, 0), step, k + 1

    start = jnp.minimum(V, (V / c) ** (1 / e))
    return lax.while_loop(go_on, move, (start, jnp.full_like(V, jnp.inf), 0))[0]


# -- one ball and a ball for every task ------------------------------------------------------------


def cap_l2(lengths: Any, kappa: Any, r: Any) -> Any:
    """Factors (rows, T) by which a projection on {|u| <= r, |u_t| <= kappa_t} shortens parts.

    The common level z of a row solves sum_t min(length_t / z, kappa_t)^2 = r^2: from the sorted
    points at which the tasks reach their caps.
    """
    points = lengths / kappa
    order = jnp.argsort(points, axis=1, stable=True)
    points = jnp.take_along_axis(points, order, axis=1)
    squares = jnp.take_along_axis(lengths**2, order, axis=1)
    zero = jnp.zeros((lengths.shape[0], 1), lengths.dtype)
    # Column k: the first k tasks are not at their cap, the others are.
    free = jnp.concatenate([zero, jnp.cumsum(squares, axis=1)], axis=1)
    caps = jnp.where(points > 0, (kappa**2)[order], 0)
    at_cap = jnp.concatenate([jnp.cumsum(caps[:, ::-1], axis=1)[:, ::-1], zero], axis=1)
    more = 1 + 4 * jnp.finfo(lengths.dtype).eps
    positive = jnp.where(points > 0, points, 1)
    at_point = free[:, 1:] / positive**2 + at_cap[:, 1:]
    k = jnp.sum((points == 0) | (at_point > more * r**2), axis=1)[:, None]
    free, room = (jnp.take_along_axis(a, k, axis=1)[:, 0] for a in (free, r**2 - at_cap))
    is_found = (free > 0) & (room > 0)
    level = jnp.where(is_found, jnp.sqrt(free / jnp.where(is_found, room, 1)), 0)
    shorter = jnp.minimum(lengths / jnp.maximum(level, 1)[:, None], kappa)
    return jnp.where(lengths > 0, shorter / jnp.where(lengths > 0, lengths, 1), 1)


def cap_l1(sizes: list[Any], kappa: list[Any] | None, r: Any) -> Any:
    """Levels (rows, T) above which the parts of a projection on l1 balls keep what exceeds them.

    `sizes` holds a task's absolute values, falling along a row; without `kappa` there is only the
    ball that is common to all tasks, without r only those of every task.
    """
    rows, dtype = sizes[0].shape[0], sizes[0].dtype
    own = jnp.zeros((rows, len(sizes)), dtype)
    if kappa is not None:
        levels = [excess_level(s, k) for s, k in zip(sizes, kappa, strict=True)]
        own = jnp.stack(levels, axis=1)
    if r is None:
        return own

    def total(level: Any) -> Any:
        parts = [
            jnp.maximum(s - jnp.maximum(level, own[:, t])[:, None], 0).sum(axis=1)
            for t, s in enumerate(sizes)
        ]
        return sum(parts)

    def halve(_: Any, bounds: Any) -> Any:
        low, high = bounds
        level = 0.5 * (low + high)
        is_low = total(level) > r
        return jnp.where(is_low, level, low), jnp.where(is_low, high, level)

    high = jnp.stack([s[:, 0] for s in sizes]).max(axis=0)
    _, high = lax.fori_loop(0, _ROUNDS, halve, (jnp.zeros(rows, dtype), high))
    inside = total(jnp.zeros(rows, dtype)) <= r
    return jnp.maximum(own, jnp.where(inside, 0, high)[:, None])
