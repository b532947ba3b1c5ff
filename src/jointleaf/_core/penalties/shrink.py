"""Proximal maps of vector norms, row by row: the arithmetic behind the penalties.

Every function takes an array (rows, m), treats each row on its own, and gives
argmin_x |x - v|^2 / 2 + t |x| for the norm it is named after.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

__all__ = [
    "shrink_l1",
    "shrink_l2",
    "shrink_l2_weighted",
    "shrink_linf",
    "shrink_lp",
    "shrink_sorted",
]


def shrink_l1(V: NDArray, t: float) -> NDArray:
    """Soft thresholding: the norm is the sum of absolute values."""
    return np.sign(V) * np.maximum(np.abs(V) - t, 0)


def shrink_l2(V: NDArray, t: float) -> NDArray:
    """Group soft thresholding: rows shorter than t vanish, others get shorter by t."""
    lengths = np.sqrt(np.einsum("ij,ij->i", V, V))
    live = lengths > t
    scale = np.where(live, 1 - t / np.where(live, lengths, 1), 0)
    return V * scale[:, None].astype(V.dtype)


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
    for _ in range(100):
        shares = pulled / (m * N[:, None] + t)
        squares = np.einsum("ij,ij->i", shares, shares)
        slope = np.einsum("ij,ij,ij->i", shares, shares, m / (m * N[:, None] + t))
        step = squares * (np.sqrt(squares) - 1) / slope
        N = np.maximum(N + step, 0.0)
        if np.all(np.abs(step) <= 1e-13 * N):
            break
    out[live] = pulled * (N[:, None] / (m * N[:, None] + t))
    return out


def shrink_linf(V: NDArray, t: float) -> NDArray:
    """The largest entries are cut to a common level: v minus its projection on the l1 ball.

    The level c of a row solves sum_i max(|v_i| - c, 0) = t, found from the sorted entries
    (Duchi et al. 2008); a row whose l1 norm is at most t vanishes.
    """
    size = np.abs(V)
    ordered = -np.sort(-size, axis=1)
    levels = (np.cumsum(ordered, axis=1) - t) / np.arange(1, V.shape[1] + 1)
    count = np.sum(ordered > levels, axis=1)
    level = np.maximum(levels[np.arange(len(V)), np.maximum(count, 1) - 1], 0)
    return np.sign(V) * np.minimum(size, level[:, None])


def shrink_lp(V: NDArray, t: float, p: float) -> NDArray:
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
    out = np.zeros_like(V)
    size = np.abs(V).astype(float)
    live = _norms(size, p / (p - 1)) > t
    if live.any():
        size = size[live]
        scale = size.max(axis=1, keepdims=True)  # powers of large or small entries stay finite
        out[live] = np.sign(V[live]) * scale * _lp_rows(size / scale, t / scale[:, 0], p)
    return out


def shrink_sorted(v: NDArray, weights: NDArray) -> NDArray:
    """Ordered weighted l1 norm of a vector (m,) of non-negative numbers.

    The norm is sum_i weights_i v_[i] with v_[1] >= v_[2] >= ... and weights that do not rise:
    sort, subtract the weights, average what is out of order, cut at zero (Bogdan et al. 2015).
    """
    if not v.size:
        return v
    order = np.argsort(-v, kind="stable")
    fitted = isotonic_regression(v[order] - weights, increasing=False)
    out = np.empty_like(v)
    out[order] = np.maximum(fitted, 0)
    return out


def _norms(V: NDArray, p: float) -> NDArray[np.float64]:
    """l_p norms of non-negative rows, without overflow."""
    largest = np.maximum(V.max(axis=1), 1e-300)
    return largest * np.sum((V / largest[:, None]) ** p, axis=1) ** (1 / p)


def _lp_rows(V: NDArray, t: NDArray, p: float) -> NDArray[np.float64]:
    """Answers of `shrink_lp` for non-negative rows that do not vanish, by bisection for N."""
    low, high = np.zeros(len(V)), _norms(V, p)
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_low = _norms(_lp_at(V, t, p, middle), p) > middle
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        if np.all(high - low <= 1e-15 * high):
            break
    return _lp_at(V, t, p, 0.5 * (low + high))


def _lp_at(V: NDArray, t: NDArray, p: float, N: NDArray) -> NDArray[np.float64]:
    """Solve x + t (x / N)^(p-1) = v for a given N (rows,), in units of N: no power overflows."""
    return N[:, None] * _solve_power(V / N[:, None], t / N, p - 1)


def _solve_power(V: NDArray, c: NDArray, e: float) -> NDArray[np.float64]:
    """Solve x + c x^e = v for x >= 0, entry by entry; c (rows,).

    Newton's method from above on a convex increasing function falls monotonically to the root;
    for e < 1 the function is convex in x^e instead.
    """
    c = c[:, None]
    if e < 1:
        z = _solve_power_above(V / c, 1 / c, 1 / e)
        return z ** (1 / e)
    return _solve_power_above(V, c, e)


def _solve_power_above(V: NDArray, c: NDArray, e: float) -> NDArray[np.float64]:
    x = np.minimum(V, (V / c) ** (1 / e))
    for _ in range(60):
        power = x ** (e - 1)
        step = (x + c * power * x - V) / (1 + c * e * power)
        x = np.maximum(x - step, 0)
        if np.all(np.abs(step) <= 1e-15 * (1 + x)):
            break
    return x
