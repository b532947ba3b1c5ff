"""Projections on the intersection of one ball with a ball for every task, row by row.

A row v = (v_1 ... v_T) is projected on {u : |u| <= r, |u_t| <= kappa_t}. Both constraints shorten
every u_t by a multiplier: the larger of one that is common to all tasks and one of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["cap_l1", "cap_l2", "cap_l2_weighted", "cut_level", "fill_level"]

_ROUNDS = 100
_HALVINGS = 60  # of an interval: to the last bit of its largest number
_MORE = 1 + 1e-12  # what a sum may exceed a limit by that was meant to be the same


def fill_level(lengths: NDArray, kappa: NDArray, r: float) -> NDArray[np.float64]:
    """The level z of every row with sum_t min(length_t / z, kappa_t)^2 = r^2.

    Zero where the sum stays at most r^2 for every z, infinite where r is zero.

    Parameters
    ----------
    lengths : array (rows, T), not negative
    kappa : array (T,), positive, may be infinite
    r : float, may be infinite
    """
    if not np.isfinite(r):
        return np.zeros(len(lengths))
    points = lengths / kappa  # below it the task's term is kappa_t^2
    order = np.argsort(points, axis=1, kind="stable")
    points = np.take_along_axis(points, order, axis=1)
    squares = np.take_along_axis(lengths**2, order, axis=1)
    # Column k: the first k tasks are not at their cap, the others are.
    free = np.concatenate([np.zeros((len(lengths), 1)), np.cumsum(squares, axis=1)], axis=1)
    caps = np.where(points > 0, (kappa**2)[order], 0.0)  # no slopes, no cap to reach
    at_cap = np.concatenate(
        [np.cumsum(caps[:, ::-1], axis=1)[:, ::-1], np.zeros((len(lengths), 1))], axis=1
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        # The sum at the k-th point; it falls with z, so that the level lies behind every
        # point at which it is still too large.
        at_point = free[:, 1:] / points**2 + at_cap[:, 1:]
        k = np.sum((points > 0) & (at_point > _MORE * r**2), axis=1)
        k += np.sum(points == 0, axis=1)
        rows = np.arange(len(lengths))
        room = r**2 - at_cap[rows, k]
        level = np.sqrt(free[rows, k] / room)
    return np.where((free[rows, k] > 0) & (room > 0), level, 0.0)


def cap_l2(lengths: NDArray, kappa: NDArray, r: float) -> NDArray[np.float64]:
    """Factors (rows, T) by which a projection shortens the parts of rows of these lengths."""
    level = np.maximum(fill_level(lengths, kappa, r), 1.0)
    caps = np.minimum(lengths / level[:, None], kappa)
    return np.where(lengths > 0, caps / np.where(lengths > 0, lengths, 1.0), 1.0)


def cap_l2_weighted(
    V: NDArray, columns: list[slice], weights: NDArray, kappa: NDArray, r: float
) -> NDArray:
    """V minus M^-1 u, where u is the point of the intersection nearest to M V in the norm of M^-1.

    M = diag(weights) (m,). With a multiplier m_t >= 0 of its task u_t = M v_t / (1 + m_t M); the
    answer is v m_t M / (1 + m_t M), zero where the multiplier is. Every m_t is the larger of the
    task's own, at which |u_t| = kappa_t, and of a common one, at which |u| = r.
    """
    pulled = (V * weights).astype(float)
    own = np.zeros((len(V), len(columns)))
    if np.isfinite(kappa).any():
        for t, c in enumerate(columns):
            own[:, t] = _multiplier([pulled[:, c]], [weights[c]], np.zeros((len(V), 1)), kappa[t])
    parts, masses = [pulled[:, c] for c in columns], [weights[c].astype(float) for c in columns]
    common = _multiplier(parts, masses, own, r)
    out = np.zeros_like(V)
    for t, c in enumerate(columns):
        m = np.maximum(common, own[:, t])[:, None] * masses[t]
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
    for _ in range(_ROUNDS):
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


def cut_level(largest: NDArray, kappa: NDArray, r: float) -> NDArray[np.float64]:
    """The largest entry (rows,) of the task at which kappa_t, added up from the top, reach r."""
    order = np.argsort(-largest, axis=1)
    ordered = np.take_along_axis(largest, order, axis=1)
    filled = np.cumsum(np.where(ordered > 0, kappa[order], 0.0), axis=1)
    k = np.argmax(filled > _MORE * r, axis=1)
    rows = np.arange(len(largest))
    return np.where(filled[:, -1] > _MORE * r, ordered[rows, k], 0.0)


def cap_l1(V: NDArray, columns: list[slice], kappa: NDArray, r: float) -> NDArray[np.float64]:
    """Levels (rows, T) above which the parts of a projection keep what exceeds them.

    u_t = the excess of |v_t| over a level: the larger of the task's own, at which |u_t|_1 =
    kappa_t, and of a common one, at which |u|_1 = r.
    """
    sizes = [-np.sort(-np.abs(V[:, c]).astype(float), axis=1) for c in columns]
    own = np.stack([_excess_level(s, k) for s, k in zip(sizes, kappa, strict=True)], axis=1)
    if not np.isfinite(r):
        return own
    low, high = np.zeros(len(V)), np.max([s[:, 0] for s in sizes], axis=0, initial=0.0)
    for _ in range(_HALVINGS):
        level = 0.5 * (low + high)
        total = np.zeros(len(V))
        for t, s in enumerate(sizes):
            at = np.maximum(level, own[:, t])[:, None]
            total += np.maximum(s - at, 0.0).sum(axis=1)
        low, high = np.where(total > r, level, low), np.where(total > r, high, level)
    inside = np.minimum(np.stack([s.sum(axis=1) for s in sizes], 1), kappa).sum(axis=1) <= r
    return np.maximum(own, np.where(inside, 0.0, high)[:, None])


def _excess_level(sizes: NDArray, radius: float) -> NDArray[np.float64]:
    """Level with sum_i max(size_i - level, 0) = radius; sizes (rows, m) fall along a row."""
    if not np.isfinite(radius):
        return np.zeros(len(sizes))
    levels = (np.cumsum(sizes, axis=1) - radius) / np.arange(1, sizes.shape[1] + 1)
    count = np.sum(sizes > levels, axis=1)
    return np.maximum(levels[np.arange(len(sizes)), np.maximum(count, 1) - 1], 0.0)
