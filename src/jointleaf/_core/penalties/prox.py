"""Proximal maps of vector norms and projections, row by row: the arithmetic behind the penalties.

A function `shrink_...` takes V (rows, m), treats every row on its own, and returns
argmin_x |x - v|^2 / 2 + t |x| for the norm it is named after. A function `cap_...` projects a row
v = (v_1 ... v_T) on {u : |u| <= r, |u_t| <= kappa_t}, one ball and a ball for every task: both
constraints shorten every u_t, by the larger of a level that is common to all tasks and the task's
own. All are written for NumPy and JAX alike, but for the two of weighted norms, which are NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from jointleaf._core.arrays import array_namespace, while_loop

_HALVINGS = 60  # of an interval: to the last bit of its largest number
_NEWTON_STEPS = 100
_SLACK = 1 + 1e-12  # what a sum may exceed a limit by that was meant to be the same


def shrink_l1(V: Any, t: Any) -> Any:
    """Soft thresholding: the norm is the sum of absolute values."""
    xp = array_namespace(V)
    return xp.sign(V) * xp.maximum(xp.abs(V) - xp.asarray(t, V.dtype), 0)


def shrink_l2(V: Any, t: Any) -> Any:
    """Group soft thresholding: rows shorter than t vanish, others get shorter by t."""
    xp = array_namespace(V)
    t = xp.asarray(t, V.dtype)
    lengths = xp.sqrt(xp.einsum("ij,ij->i", V, V))
    live = lengths > t
    return V * xp.where(live, 1 - t / xp.where(live, lengths, 1), 0)[:, None].astype(V.dtype)


def shrink_linf(V: Any, t: Any) -> Any:
    """The largest entries are cut to a common level: v minus its projection on the l1 ball.

    The level c of a row solves sum_i max(|v_i| - c, 0) = t, found from the sorted entries
    (Duchi et al. 2008); a row whose l1 norm is at most t vanishes.
    """
    xp = array_namespace(V)
    level = _excess_level(-xp.sort(-xp.abs(V), axis=1), xp.asarray(t, V.dtype))[:, None]
    return xp.clip(V, -level, level)


def shrink_sorted(v: Any, weights: Any) -> Any:
    """Ordered weighted l1 norm of a vector (m,) of non-negative numbers.

    The norm is sum_i weights_i v_[i] with v_[1] >= v_[2] >= ... and weights that do not rise:
    sort, subtract the weights, average what is out of order, cut at zero (Bogdan et al. 2015).
    """
    if not v.size:
        return v
    xp = array_namespace(v)
    order = _stable_order(-v)
    fitted = _falling_means(v[order] - weights)
    return xp.maximum(fitted, 0)[xp.argsort(order)]


def _stable_order(values: Any) -> Any:
    xp = array_namespace(values)
    return np.argsort(values, kind="stable") if xp is np else xp.argsort(values, stable=True)


def _falling_means(v: Any) -> Any:
    """Return the falling sequence nearest to v (m,).

    SciPy pools adjacent violators, in time m. That cannot be compiled; for JAX the minimax
    formula: min over i <= k of the max over j >= k of the mean of entries i to j, (m, m) numbers.
    """
    if array_namespace(v) is np:
        return isotonic_regression(v, increasing=False).x
    import jax.numpy as jnp
    from jax import lax

    places = jnp.arange(v.shape[0])
    first, last = places[:, None], places[None, :]
    sums = jnp.concatenate([jnp.zeros(1, v.dtype), jnp.cumsum(v)])
    means = (sums[None, 1:] - sums[:-1, None]) / jnp.maximum(last - first + 1, 1)
    means = jnp.where(last >= first, means, -jnp.inf)
    highest = lax.cummax(means, axis=1, reverse=True)  # over j >= k
    highest = jnp.where(last >= first, highest, jnp.inf)
    return lax.cummin(highest, axis=0)[places, places]  # over i <= k


# -- the l_p norm ------------------------------------------------------------------------------


def shrink_lp(V: Any, t: Any, p: float) -> Any:
    """The l_p norm for 1 <= p <= infinity.

    Where the dual norm of a row exceeds t, its answer has entries x_i >= 0 (up to signs) with
    x_i + t (x_i / N)^(p-1) = |v_i| and N = |x|_p: a root search for N, with every x_i from
    Newton's method.
    """
    if p == 1:
        return shrink_l1(V, t)
    if p == 2:
        return shrink_l2(V, t)
    if p == np.inf:
        return shrink_linf(V, t)
    xp = array_namespace(V)
    size = xp.abs(V).astype(float)
    live = _norms(size, p / (p - 1)) > t
    if xp is np:  # the search is for rows that do not vanish
        out = np.zeros_like(V)
        if live.any():
            out[live] = np.sign(V[live]) * _lp_rows(size[live], t, p)
        return out
    # Shapes must not change: rows that vanish stand for others, so that their search ends too.
    answer = _lp_rows(xp.where(live[:, None], size, 2 * t), t, p)
    return xp.where(live[:, None], xp.sign(V) * answer, 0).astype(V.dtype)


def _norms(V: Any, p: float) -> Any:
    """l_p norms of non-negative rows, without overflow."""
    xp = array_namespace(V)
    largest = xp.maximum(V.max(axis=1), 1e-300)
    return largest * xp.sum((V / largest[:, None]) ** p, axis=1) ** (1 / p)


def _lp_rows(V: Any, t: Any, p: float) -> Any:
    """Answers of `shrink_lp` for non-negative rows that do not vanish, by bisection for N."""
    xp = array_namespace(V)
    scale = V.max(axis=1)  # powers of large or small entries stay finite
    V, t = V / scale[:, None], t / scale

    def at(N: Any) -> Any:
        """Solve x + t (x / N)^(p-1) = v in units of N: no power overflows."""
        return N[:, None] * _solve_power(V / N[:, None], (t / N)[:, None], p - 1)

    def go_on(state: Any) -> Any:
        low, high, k = state
        return (k < _HALVINGS) & xp.any(high - low > 1e-15 * high)

    def halve(state: Any) -> Any:
        low, high, k = state
        middle = 0.5 * (low + high)
        is_low = _norms(at(middle), p) > middle
        return xp.where(is_low, middle, low), xp.where(is_low, high, middle), k + 1

    start = xp.zeros_like(scale), _norms(V, p), 0
    low, high, _ = while_loop(xp, go_on, halve, start)
    return scale[:, None] * at(0.5 * (low + high))


def _solve_power(V: Any, c: Any, e: float) -> Any:
    """Solve x + c x^e = v for x >= 0, entry by entry.

    Newton's method from above on a convex increasing function falls monotonically to the root;
    for e < 1 the function is convex in x^e instead.
    """
    if e < 1:
        return _solve_power(V / c, 1 / c, 1 / e) ** (1 / e)
    xp = array_namespace(V)

    def go_on(state: Any) -> Any:
        x, step, k = state
        return (k < _HALVINGS) & xp.any(xp.abs(step) > 1e-15 * (1 + x))

    def move(state: Any) -> Any:
        x, _, k = state
        power = x ** (e - 1)
        step = (x + c * power * x - V) / (1 + c * e * power)
        return xp.maximum(x - step, 0), step, k + 1

    start = xp.minimum(V, (V / c) ** (1 / e)), xp.full_like(V, xp.inf), 0
    return while_loop(xp, go_on, move, start)[0]


# -- one ball and a ball for every task --------------------------------------------------------


def fill_level(lengths: Any, kappa: Any, r: Any) -> Any:
    """The level z of every row of lengths (rows, T) with sum_t min(length_t / z, kappa_t)^2 = r^2.

    Zero where the sum stays at most r^2 for every z. Found from the sorted points at which the
    tasks reach their caps.
    """
    xp = array_namespace(lengths)
    kappa = xp.asarray(kappa)
    points = lengths / kappa  # below it the task's term is kappa_t^2
    order = _stable_order(points)
    points = xp.take_along_axis(points, order, axis=1)
    squares = xp.take_along_axis(lengths**2, order, axis=1)
    zero = xp.zeros((lengths.shape[0], 1))
    # Column k: the first k tasks are not at their cap, the others are.
    free = xp.concatenate([zero, xp.cumsum(squares, axis=1)], axis=1)
    caps = xp.where(points > 0, (kappa**2)[order], 0.0)  # no slopes, no cap to reach
    at_cap = xp.concatenate([xp.cumsum(caps[:, ::-1], axis=1)[:, ::-1], zero], axis=1)
    # The sum at the k-th point; it falls with z, so that the level lies behind every point at
    # which it is still too large.
    at_point = free[:, 1:] / xp.where(points > 0, points, 1.0) ** 2 + at_cap[:, 1:]
    k = xp.sum((points == 0) | (at_point > _SLACK * r**2), axis=1)[:, None]
    free = xp.take_along_axis(free, k, axis=1)[:, 0]
    room = r**2 - xp.take_along_axis(at_cap, k, axis=1)[:, 0]
    is_found = (free > 0) & (room > 0)
    return xp.where(is_found, xp.sqrt(free / xp.where(is_found, room, 1.0)), 0.0)


def cap_l2(lengths: Any, kappa: Any, r: Any) -> Any:
    """Factors (rows, T) by which a projection shortens the parts of rows of these lengths."""
    xp = array_namespace(lengths)
    level = xp.maximum(fill_level(lengths, kappa, r), 1.0)
    caps = xp.minimum(lengths / level[:, None], kappa)
    return xp.where(lengths > 0, caps / xp.where(lengths > 0, lengths, 1.0), 1.0)


def cut_level(largest: Any, kappa: Any, r: Any) -> Any:
    """The largest entry (rows,) of the task at which kappa_t, added up from the top, reach r."""
    xp = array_namespace(largest)
    order = _stable_order(-largest)
    ordered = xp.take_along_axis(largest, order, axis=1)
    filled = xp.cumsum(xp.where(ordered > 0, xp.asarray(kappa)[order], 0.0), axis=1)
    k = xp.argmax(filled > _SLACK * r, axis=1)[:, None]
    level = xp.take_along_axis(ordered, k, axis=1)[:, 0]
    return xp.where(filled[:, -1] > _SLACK * r, level, 0.0)


def cap_l1(parts: Sequence[Any], kappa: Any, r: Any) -> Any:
    """Levels (rows, T) above which the parts of a projection keep what exceeds them.

    u_t = the excess of |v_t| over a level: the larger of the task's own, at which |u_t|_1 =
    kappa_t, and of a common one, at which |u|_1 = r. `parts` are the v_t (rows, m_t); without
    `kappa` there is only the common ball, without r only those of every task.
    """
    xp = array_namespace(parts[0])
    sizes = [-xp.sort(-xp.abs(part).astype(float), axis=1) for part in parts]
    rows = parts[0].shape[0]
    task_levels = xp.zeros((rows, len(parts)))
    if kappa is not None:
        task_levels = xp.stack(
            [_excess_level(size, kappa[t]) for t, size in enumerate(sizes)], axis=1
        )
    if r is None:
        return task_levels

    def total(level: Any) -> Any:
        levels = xp.maximum(level[:, None], task_levels)
        return sum(
            xp.maximum(size - levels[:, t, None], 0.0).sum(axis=1) for t, size in enumerate(sizes)
        )

    def halve(state: Any) -> Any:
        low, high, k = state
        level = 0.5 * (low + high)
        is_low = total(level) > r
        return xp.where(is_low, level, low), xp.where(is_low, high, level), k + 1

    zero = xp.zeros(rows)
    high = xp.stack([size.max(axis=1, initial=0.0) for size in sizes]).max(axis=0)
    _, high, _ = while_loop(xp, lambda state: state[2] < _HALVINGS, halve, (zero, high, 0))
    return xp.maximum(task_levels, xp.where(total(zero) <= r, 0.0, high)[:, None])


def _excess_level(sizes: Any, radius: Any) -> Any:
    """Level >= 0 with sum_i max(size_i - level, 0) = radius; sizes (rows, m) fall along a row."""
    xp = array_namespace(sizes)
    if not sizes.shape[1]:
        return xp.zeros(sizes.shape[0])
    counts = xp.arange(1, sizes.shape[1] + 1, dtype=sizes.dtype)
    levels = (xp.cumsum(sizes, axis=1) - radius) / counts
    count = xp.maximum(xp.sum(sizes > levels, axis=1), 1)
    return xp.maximum(xp.take_along_axis(levels, count[:, None] - 1, axis=1)[:, 0], 0)


# -- weighted norms: NumPy alone ---------------------------------------------------------------


def shrink_l2_weighted(V: NDArray, t: float, weights: NDArray) -> NDArray:
    """Group soft thresholding in a weighted norm: sum_i weights_i (x_i - v_i)^2 / 2 + t |x|.

    A row whose weights_i v_i have a length of at most t vanishes; of the others the length N of the
    answer solves sum_i (weights_i v_i)^2 / (weights_i N + t)^2 = 1. The square root of the left
    side has a reciprocal that is concave in N: Newton's method on it rises to the root.
    """
    pulled = V * weights
    lengths = np.sqrt(np.einsum("ij,ij->i", pulled, pulled))
    out = np.zeros_like(V)
    live = lengths > t
    if not live.any():
        return out
    pulled = pulled[live].astype(float)
    m = weights.astype(float)
    N = np.zeros(len(pulled))
    for _ in range(_NEWTON_STEPS):
        parts = pulled / (m * N[:, None] + t)
        squares = np.einsum("ij,ij->i", parts, parts)
        slope = np.einsum("ij,ij,ij->i", parts, parts, m / (m * N[:, None] + t))
        step = squares * (np.sqrt(squares) - 1) / slope
        N = np.maximum(N + step, 0.0)
        if np.all(np.abs(step) <= 1e-13 * N):
            break
    out[live] = pulled * (N[:, None] / (m * N[:, None] + t))
    return out


def cap_l2_weighted(
    V: NDArray, columns: list[slice], weights: NDArray, kappa: NDArray, r: float
) -> NDArray:
    """V minus M^-1 u, where u is the point of the intersection nearest to M V in the norm of M^-1.

    M = diag(weights) (m,). With a multiplier m_t >= 0 of its task u_t = M v_t / (1 + m_t M); the
    answer is v m_t M / (1 + m_t M), zero where the multiplier is. Every m_t is the larger of the
    task's own, at which |u_t| = kappa_t, and of a common one, at which |u| = r.
    """
    pulled = (V * weights).astype(float)
    task_multipliers = np.zeros((len(V), len(columns)))
    if np.isfinite(kappa).any():
        for t, c in enumerate(columns):
            task_multipliers[:, t] = _multiplier(
                [pulled[:, c]], [weights[c]], np.zeros((len(V), 1)), kappa[t]
            )
    parts, masses = [pulled[:, c] for c in columns], [weights[c].astype(float) for c in columns]
    common = _multiplier(parts, masses, task_multipliers, r)
    out = np.zeros_like(V)
    for t, c in enumerate(columns):
        m = np.maximum(common, task_multipliers[:, t])[:, None] * masses[t]
        out[:, c] = V[:, c] * (m / (1.0 + m))
    return out


def _multiplier(
    parts: list[NDArray], masses: list[NDArray], least: NDArray, radius: float
) -> NDArray[np.float64]:
    """The smallest m >= 0 of every row at which the vector of all u_t has length <= radius.

    u_t = part / (1 + max(m, least_t) mass). Newton's method on 1 / length, which is concave in m
    but for kinks where m passes a least_t, inside an interval that shrinks with every round.
    """
    m = np.zeros(len(least))
    if not np.isfinite(radius):
        return m
    length, _ = _length(parts, masses, least, m)
    live = np.flatnonzero(length > radius)
    if not live.size:
        return m
    parts, least = [part[live] for part in parts], least[live]
    # Up to the smallest least_t of a task with slopes the length stays as it is.
    moves = np.stack([part.any(axis=1) for part in parts], axis=1)
    at = np.where(moves, least, np.inf).min(axis=1, initial=np.inf)
    low, high = at, np.full(len(live), np.inf)
    length, slope = _length(parts, masses, least, at)
    for _ in range(_NEWTON_STEPS):
        is_long = length > radius
        low, high = np.where(is_long, at, low), np.where(is_long, high, at)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = (length / radius - 1) * length / -slope
        new = at + step
        middle = np.where(np.isfinite(high), 0.5 * (low + high), 2.0 * low + 1e-12)
        inside = np.isfinite(new) & (new >= low) & (new <= high)
        new = np.where(inside, new, middle)
        # Where m times the masses is tiny, rounding of the length hides the last digits of m.
        done = (np.abs(new - at) <= 1e-14 * new) | (np.abs(length / radius - 1) <= 4e-16)
        at = new
        if done.all():
            break
        length, slope = _length(parts, masses, least, at)
    m[live] = at
    return m


def _length(
    parts: list[NDArray], masses: list[NDArray], least: NDArray, m: NDArray
) -> tuple[NDArray, NDArray]:
    """Length (rows,) of the vector of all u_t, and its derivative in m."""
    squares, bends = np.zeros(len(m)), np.zeros(len(m))
    for t, (part, mass) in enumerate(zip(parts, masses, strict=True)):
        is_free = m >= least[:, t]
        scale = 1.0 + np.maximum(m, least[:, t])[:, None] * mass
        u = part / scale
        squares += np.einsum("ij,ij->i", u, u)
        bends -= is_free * np.einsum("ij,ij,ij->i", u, u, mass / scale)
    length = np.sqrt(squares)
    return length, bends / np.where(length > 0, length, 1.0)
