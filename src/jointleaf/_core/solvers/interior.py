"""An interior-point method for the duals of absolute errors and quantiles.

It takes ten to twenty steps whatever the penalty is, where Newton's method on smoothed losses takes
hundreds if the penalty is so weak that most residuals are zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import cholesky_solver
from jointleaf._core.solvers.base import Recorder

KEPT = 0.995  # of the way to the nearest bound
SIDES = np.array([[1.0], [-1.0]])  # directions away from the lower and the upper bound
_JITTER = 1e-14  # of the mean diagonal of K: what rounding makes of an eigenvalue of zero


def box_dual(
    K: NDArray,
    target: NDArray,
    low: NDArray,
    high: NDArray,
    *,
    tol: float,
    max_iter: int,
    recorder: Recorder | None = None,
) -> tuple[NDArray[np.float64], int]:
    """Minimise alpha^T K alpha / 2 - alpha^T target over low <= alpha <= high; return it and steps.

    This is the dual of min sum_n max(high_n r_n, low_n r_n) + alpha^T K alpha / 2 over alpha, with
    residuals r = target - K alpha. It ends when the two differ by at most `tol` times the first sum
    at alpha = 0. Every step of Mehrotra's predictor and corrector (1992) factorises K + D once,
    with a diagonal D > 0. K (n, n) is symmetric, without negative eigenvalues; lower bounds (n,)
    are negative, upper ones positive.
    """
    n = len(target)
    alpha, f = np.zeros(n), np.zeros(n)
    start = float(np.maximum(high * target, low * target).sum())
    z = np.full((2, n), np.abs(target).mean())  # multipliers of both bounds
    jitter = _JITTER * float(np.trace(K)) / n
    for n_iter in range(max_iter):
        residual = target - f
        gap = float((np.maximum(high * residual, low * residual) - alpha * residual).sum())
        if recorder is not None:
            objective = gap + float(alpha @ (residual + 0.5 * f))
            recorder.add(n_iter, objective, gap / (start or 1.0))
        if gap <= tol * start:
            return alpha, n_iter
        slack = np.stack([alpha - low, high - alpha])
        A = K.copy()
        A[np.diag_indices_from(A)] += (z / slack).sum(axis=0) + jitter
        solve = cholesky_solver(A)
        # Where that leads without a view to the centre tells how near to the bounds one may go.
        move, z_move = _moves(solve, residual, slack, z, np.zeros((2, n)))
        products = centre_of(slack, SIDES * move, z, z_move) - z_move * SIDES * move
        move, z_move = _moves(solve, residual, slack, z, products)
        length = KEPT * longest_step(slack, SIDES * move, z, z_move)
        alpha, z = alpha + length * move, z + length * z_move
        f = K @ alpha
    return alpha, max_iter


def _moves(
    solve: Callable[[NDArray], NDArray],
    residual: NDArray,
    slack: NDArray,
    z: NDArray,
    products: NDArray,
) -> tuple[NDArray, NDArray]:
    """Return steps of alpha (n,) and z (2, n) after which z times slack is about `products`."""
    move = solve(residual + (SIDES * products / slack).sum(axis=0))
    return move, (products - z * SIDES * move) / slack - z


def centre_of(slack: NDArray, slack_move: NDArray, z: NDArray, z_move: NDArray) -> float:
    """Return what z times slack shall be next, from how near steps (2, n) lead to the bounds."""
    length = longest_step(slack, slack_move, z, z_move)
    reached = np.vdot(z + length * z_move, slack + length * slack_move)
    complementarity = np.vdot(z, slack)
    return complementarity / slack.size * (reached / complementarity) ** 3


def longest_step(slack: NDArray, slack_move: NDArray, z: NDArray, z_move: NDArray) -> float:
    """Return the longest step, at most 1 / 0.995, after which slack and z are not negative."""
    steepest = max(float((-slack_move / slack).max()), float((-z_move / z).max()), KEPT)
    return 1.0 / steepest
