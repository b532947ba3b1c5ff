"""Several levels of quantiles as one convex problem, whose solutions never cross."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded

from jointleaf._core.solvers.interior import KEPT, SIDES, centre_of, longest_step

_JITTER = 1e-14  # of the diagonal: what rounding makes of an eigenvalue of zero
_MAX_ITER = 100
_LEAST = 1e-3  # of the largest sum of a column: what the slope of a constraint is at least made of


class Levels(NamedTuple):
    """Values (m, K), which rise with the level, and how the solve ended."""

    values: NDArray[np.float64]
    n_iter: int
    gap: float  # between the primal and the dual, relative to the loss of zero values


def fit_levels(
    basis: NDArray,
    target: NDArray,
    s: NDArray,
    levels: NDArray,
    curvature: NDArray,
    *,
    tol: float = 1e-6,
) -> Levels:
    r"""Fit all levels of quantiles in one problem.

    Minimises, over values V (m, K),

    .. math::

        \frac{1}{S} \sum_{nk} s_n\, \rho_k\Big(y_n - \sum_j B_{nj} V_{jk}\Big)
        + \frac{1}{2} \sum_j d_j \Big(V_{jc}^2 + \sum_k (V_{j,k+1} - V_{jk})^2\Big)
        \quad \text{with} \quad V_{jk} \le V_{j,k+1},

    the quantile losses rho_k(r) = max(q_k r, (q_k - 1) r), and c the level in the middle. As B is
    nowhere negative, sums of rising values rise: also those of rows that are not among these.

    `basis` is B (n, m), `s` (n,) the weights, which sum to S, `levels` (K,) rise, and `curvature`
    is d (m,), zero only where the loss determines a value. `tol` is the `gap` that is small enough.
    """
    problem = _Problem(basis, target, s / s.sum(), levels, curvature)
    low, high, goal = problem.low, problem.high, problem.goal
    theta, alpha = np.zeros((len(levels), basis.shape[1])), (low + high) / 2
    slack = np.stack([alpha - low, high - alpha])
    start = float(np.maximum(high * goal, low * goal).sum())
    if start == 0.0:
        return Levels(theta.T, 0, 0.0)
    z = np.full((2, len(goal)), float(np.average(np.abs(target), weights=s)))
    best = Levels(theta.T, 0, np.inf)
    for n_iter in range(_MAX_ITER + 1):
        residual = goal - problem.forward(theta)
        dual = problem.adjoint(alpha) - problem.penalty_gradient(theta)
        excess = np.maximum(high * residual, low * residual) - alpha * residual
        gap = float(excess.sum() + np.abs(dual * theta).sum()) / start
        if gap < best.gap:
            best = Levels(_rising(theta), n_iter, gap)
        if gap <= tol or n_iter == _MAX_ITER:
            break
        try:
            point = _Point(problem, residual, dual, slack, z)
        except LinAlgError:  # more digits than numbers have
            break
        _, move, z_move = point.moves(np.zeros_like(z))
        near = centre_of(slack, SIDES * move, z, z_move) - z_move * SIDES * move
        step, move, z_move = point.moves(near)
        length = KEPT * longest_step(slack, SIDES * move, z, z_move)
        theta, alpha, z = theta + length * step, alpha + length * move, z + length * z_move
        slack = slack + length * SIDES * move  # and no difference, which rounding would make zero
    return best


class _Point:
    """A point between the bounds, and the equations of a step from there."""

    def __init__(
        self, problem: _Problem, residual: NDArray, dual: NDArray, slack: NDArray, z: NDArray
    ) -> None:
        self._problem, self._residual, self._dual = problem, residual, dual
        self._slack, self._z = slack, z
        self._h = 1.0 / (z / slack).sum(axis=0)
        self._solve = problem.solver(self._h)

    def moves(self, products: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Return steps of theta, alpha and z after which z times slack is about `products`."""
        ahead = self._residual + (SIDES * products / self._slack).sum(axis=0)
        right = self._dual + self._problem.adjoint(self._h * ahead)
        step = self._solve(right.ravel()).reshape(right.shape)
        move = self._h * (ahead - self._problem.forward(step))
        return step, move, (products - self._z * SIDES * move) / self._slack - self._z


class _Problem:
    """The losses of all rows and levels, and the constraints, on values theta (K, m).

    A constraint is a loss too: one that rises so steeply below zero that no other part of the
    objective outweighs it. So there are K n losses of rows, level after level, and (K - 1) m of
    gaps, with slopes from `low` to `high` and residuals `goal` minus `forward`.
    """

    def __init__(
        self, basis: NDArray, target: NDArray, s: NDArray, levels: NDArray, curvature: NDArray
    ) -> None:
        n_levels, n_gaps = len(levels), len(levels) - 1
        self._basis, self._n_losses, self._d = basis, n_levels * len(basis), curvature
        masses = s @ basis
        steepest = 2.0 * n_levels * np.maximum(masses, _LEAST * masses.max())
        zeros = np.zeros((n_gaps, basis.shape[1]))
        self.low = np.append(np.outer(levels - 1.0, s), zeros)
        self.high = np.append(np.outer(levels, s), zeros + steepest)
        self.goal = np.append(np.tile(target, n_levels), zeros)

    def forward(self, theta: NDArray) -> NDArray:
        """Return predictions of all rows and levels, and the gaps."""
        return np.append(theta @ self._basis.T, np.diff(theta, axis=0))

    def adjoint(self, alpha: NDArray) -> NDArray:
        """Return the transpose of `forward` times alpha, (K, m)."""
        rows, gaps = alpha[: self._n_losses], alpha[self._n_losses :]
        n, m = self._basis.shape
        return rows.reshape(-1, n) @ self._basis - _differences(gaps.reshape(-1, m))

    def penalty_gradient(self, theta: NDArray) -> NDArray:
        """Return the gradient of the penalty, (K, m)."""
        gradient = -_differences(self._d * np.diff(theta, axis=0))
        gradient[len(theta) // 2] += self._d * theta[len(theta) // 2]
        return gradient

    def solver(self, h: NDArray) -> Callable[[NDArray], NDArray]:
        """Return what solves (D + Z^T diag(h) Z) x = b, with Z for `forward`, D of the penalty.

        Levels meet only in the gaps between neighbours: the matrix has m diagonals below its main
        one, and the time grows with K m^3.
        """
        n, m = self._basis.shape
        rows, gaps = h[: self._n_losses].reshape(-1, n), h[self._n_losses :].reshape(-1, m)
        grams = np.stack([(self._basis * row[:, None]).T @ self._basis for row in rows])
        pairs, zero = self._d + gaps, np.zeros((1, m))
        diagonal = np.append(pairs, zero, axis=0) + np.append(zero, pairs, axis=0)
        diagonal[len(rows) // 2] += self._d
        bands = np.zeros((m + 1, len(rows), m))
        low, high = np.tril_indices(m)
        bands[low - high, :, high] = grams[:, low, high].T
        bands[0] += diagonal
        bands[0] *= 1.0 + _JITTER
        bands[m, :-1] = -pairs
        factor = cholesky_banded(bands.reshape(m + 1, -1), lower=True, overwrite_ab=True)
        return lambda b: cho_solve_banded((factor, True), b)


def _differences(gaps: NDArray) -> NDArray:
    """Return minus the transpose of np.diff times gaps (K - 1, m): (K, m)."""
    return np.diff(gaps, axis=0, prepend=0.0, append=0.0)


def _rising(theta: NDArray) -> NDArray[np.float64]:
    """Return values (m, K) that rise, in spite of rounding, from those that nearly do."""
    middle, gaps = len(theta) // 2, np.maximum(np.diff(theta, axis=0), 0.0)
    above = np.cumsum(gaps[middle:], axis=0)
    below = np.cumsum(gaps[:middle][::-1], axis=0)[::-1]
    values = [theta[middle] - below, theta[middle : middle + 1], theta[middle] + above]
    return np.concatenate(values).T
