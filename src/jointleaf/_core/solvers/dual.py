"""The exact dual solvers for small n: kernel ridge regression and kernel Newton.

With the Frobenius penalty the minimiser has weights theta = D^-1 Phi^T alpha, with one number
alpha_n per row. For the squared error alpha solves (K + S diag(1/s)) alpha = y with
K = Phi D^-1 Phi^T, by one Cholesky factorisation. For other smooth losses the same kernel stands
inside Newton steps, for absolute errors and quantiles inside an interior-point method. Biases that
are not penalised impose Z^T alpha = 0 instead of a kernel term.

The kernel is

    K = M o (X diag(v) X^T / lambda + 1 / beta),      M_nm = sum_p u_p [n and m share a cell of p]

"how often two rows meet in a cell" times a linear kernel, or 1 / beta for constant partitions.
Dense, for small n.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, eigh

from jointleaf._core.arrays import array_namespace, cholesky_solver, shaped, updated, while_loop
from jointleaf._core.blocks import BlockDesign
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import Kinked, Pinball
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import DataTerm, Problem
from jointleaf._core.solvers.base import Recorder, Run, Solver, flat_curvature, line_search
from jointleaf._core.solvers.interior import box_dual
from jointleaf._core.solvers.solution import Solution

_BLOCK_ROWS = 512
_MAX_COLUMNS = 4096  # one-hot columns of a product: bounds its memory
_MAX_INNER = 250
MAX_STALLED = 20  # Newton steps without progress: rounding is all that is left


class Dual(Solver):
    """Exact solution through the n x n kernel matrix: for n up to a few thousand rows."""

    name = "dual"
    in_double = True  # a dense factorisation has no use for less

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return None for the Frobenius penalty, with free biases only for the squared error."""
        if not isinstance(problem.penalty, Frobenius):
            fitting = "newton" if problem.curvature is not None else "fista"
            return f"it needs the Frobenius penalty: use solver={fitting!r}"
        if len(problem.layout.tasks) > 1:
            fitting = "pcg" if problem.loss.is_quadratic else "newton"
            return f"it needs a single task: use solver={fitting!r}"
        if isinstance(problem.design, BlockDesign):
            fitting = "pcg" if problem.loss.is_quadratic else "newton"
            return f"it needs all rows at once, and these are in blocks: use solver={fitting!r}"
        if isinstance(problem.loss, Kinked) and not isinstance(problem.loss, Pinball):
            return (
                "of losses with kinks it knows absolute errors and quantiles: use solver='newton'"
            )
        if not problem.loss.is_quadratic and problem.smoother is not None:
            return "with a penalty on predictions it needs the squared error: use solver='newton'"
        if not problem.loss.is_quadratic and problem.penalty.bias_strength == 0:
            return "it needs bias_strength > 0 with this loss: use solver='newton'"
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        if problem.loss.is_quadratic:  # exact: no start is needed
            return self._squared(problem), 1, run.max_iter > 1
        alpha, n_iter = newton_dual(
            problem,
            kernel_matrix(problem),
            tol=run.tol,
            max_iter=run.max_iter,
            recorder=run.recorder,
        )
        return _weights(problem, alpha), n_iter, n_iter < run.max_iter

    def _solve_kinked(self, problem: Problem, theta: NDArray, run: Run) -> Solution:
        """Solve the dual of an absolute error or a quantile loss, without smooth losses."""
        K, start = kernel_matrix(problem), problem.data_value(problem.zero_predictions()) or 1.0
        # Weights are as far from the best as the square root of the gap: one more step is worth it.
        alpha, n_iter = pinball_dual(problem, K, 0.01 * run.tol, run.max_iter, run.recorder)
        theta = _weights(problem, alpha)
        f, gradient = problem.design.matvec(theta), -problem.design.rmatvec(alpha)
        excess = problem.excess(f, -alpha * problem.s.sum() / problem.s)
        optimality = max(problem.optimality(theta, gradient), excess / start)
        return self._record(
            problem, run, theta, f, gradient, optimality, n_iter, n_iter < run.max_iter, excess
        )

    def _squared(self, problem: Problem) -> NDArray:
        A, target = _system(problem)
        if problem.penalty.bias_strength > 0:
            try:
                solve = cholesky_solver(A)
            except LinAlgError as cause:
                raise ValueError(
                    "solver='dual': the kernel matrix is not positive definite in floating point, "
                    "the penalty is too weak for rows of this size: use solver='pcg'"
                ) from cause
            return _weights(problem, solve(target))
        alpha, biases = _with_free_biases(problem, A, target)
        theta = _weights(problem, alpha)
        problem.layout.split(theta)[1][:] = biases
        return theta


def _system(problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrix K + W^-1, (n, n), and the target t of (K + W^-1) alpha = t.

    W is the Hessian of the data term, and t the negative of its gradient at zero weights times
    W^-1: for the squared error alone S diag(1/s) and y. A smoother adds to W.
    """
    A = kernel_matrix(problem)
    if problem.smoother is None:
        A[np.diag_indices_from(A)] += problem.s.sum() / problem.s
        return A, (problem.y - problem.offset).astype(float)
    smoother: Any = problem.smoother
    W = smoother.toarray() if sparse.issparse(smoother) else np.array(smoother, float)
    W[np.diag_indices_from(W)] += problem.s / problem.s.sum()
    slope = problem.slope(problem.zero_predictions()).astype(float)
    solve = cholesky_solver(W)
    A += solve(np.eye(len(W)))
    return A, -solve(slope)


def kernel_matrix(problem: Problem) -> NDArray[np.float64]:
    """Return K = Phi D^-1 Phi^T over the penalised columns, (n, n)."""
    assert isinstance(problem.penalty, Frobenius)
    return cell_kernel(problem.leaf_design, problem.leaf_design, problem.penalty)


def _weights(problem: Problem, alpha: NDArray) -> NDArray:
    """Theta = D^-1 Phi^T alpha; free columns are left at zero."""
    diagonal = problem.penalty.curvature()
    assert diagonal is not None
    diagonal = diagonal if alpha.ndim == 1 else diagonal[:, None]
    theta = problem.design.rmatvec(alpha).astype(float, copy=False)
    is_free = diagonal.reshape(-1) <= 0
    theta[is_free] = 0.0
    return np.divide(theta, diagonal, out=theta, where=diagonal > 0)


def _with_free_biases(problem: Problem, A: NDArray, target: NDArray) -> tuple[NDArray, NDArray]:
    """Solve A alpha + Z b = y with Z^T alpha = 0; b is the shortest of all solutions.

    alpha lies in the null space N of Z^T: N^T A N c = N^T y, alpha = N c.
    """
    N, Q, values = _bias_spaces(problem)
    alpha = np.zeros_like(target)
    if N.shape[1]:
        alpha = N @ cholesky_solver(N.T @ (A @ N))(N.T @ target)
    inner = Q.T @ (target - A @ alpha)
    onto = Q @ (inner / (values if target.ndim == 1 else values[:, None]))
    return alpha, problem.design.bias_rmatvec(onto)


def _bias_spaces(problem: Problem) -> tuple[NDArray, NDArray, NDArray]:
    """Bases of the null space of Z^T and of the range of Z, and the eigenvalues of the latter."""
    cells = problem.leaf_design.cells()
    shared = shared_cells(cells, cells, problem.layout)
    values, vectors = eigh(shared, overwrite_a=True, check_finite=False)
    n_null = int(
        np.searchsorted(values, 10 * np.finfo(float).eps * len(values) * values[-1], side="right")
    )
    return vectors[:, :n_null], vectors[:, n_null:], values[n_null:]


def pinball_dual(
    problem: Problem, K: NDArray, tol: float, max_iter: int, recorder: Recorder | None = None
) -> tuple[NDArray, int]:
    """Return alpha (n,) of an absolute error or a quantile loss, and the number of steps.

    The objective is within `tol` times its value at zero weights of the smallest.
    """
    loss, target = problem.loss, (problem.y - problem.offset).astype(float)
    assert isinstance(loss, Pinball)
    s = (problem.s / problem.s.sum()).astype(float)
    low, high = -loss.over * s, loss.under * s
    return box_dual(K, target, low, high, tol=tol, max_iter=max_iter, recorder=recorder)


def newton_dual(
    problem: Problem,
    K: NDArray,
    *,
    tol: float,
    max_iter: int,
    alpha: NDArray | None = None,
    recorder: Recorder | None = None,
    in_kernel_norm: bool = False,
) -> tuple[NDArray, int]:
    """Newton's method on the predictions f = K alpha of a smooth loss; return alpha and steps.

    alpha has the shape of f, (n,) or (n, K). Steps are shortened until J falls. The optimality is
    the largest entry of the gradient by the weights, or with `in_kernel_norm` the norm of the
    gradient that belongs to the penalty, sqrt(e^T K e) for e = slope + alpha, relative to that at
    the start: it needs no pass over the design.
    """
    alpha = np.zeros(problem.y.shape) if alpha is None else alpha
    f = K @ alpha
    best, best_at = np.inf, 0

    def along(alpha: NDArray, f: NDArray, move: NDArray, f_move: NDArray, length: Any) -> float:
        alpha, f = alpha + length * move, f + length * f_move
        return problem.data_value(f) + 0.5 * float(np.vdot(alpha, f))

    objective = along(alpha, f, alpha, f, 0.0)

    def kernel_norm(e: NDArray) -> float:
        return float(np.sqrt(max(0.0, np.vdot(e, K @ e))))

    start = kernel_norm(problem.slope(np.zeros_like(f)).astype(float)) if in_kernel_norm else 0.0
    for n_iter in range(max_iter):
        slope = problem.slope(f).astype(float)
        # At the optimum alpha = -slope; the gradient by the weights is Phi^T (slope + alpha).
        if in_kernel_norm:
            optimality = kernel_norm(slope + alpha) / max(start, 1e-300)
        else:
            excess = float(np.abs(problem.design.rmatvec(slope + alpha)).max())
            optimality = excess / problem.start_slope
        if recorder is not None:
            recorder.add(n_iter, objective, optimality)
        if optimality < 0.9 * best:
            best, best_at = optimality, n_iter
        if optimality <= 0.1 * tol or n_iter - best_at > MAX_STALLED:
            return alpha, n_iter
        goal = newton_goal(problem, K, f, slope, optimality)
        move, f_move = goal - alpha, K @ goal - f
        length, objective = line_search(partial(along, alpha, f, move, f_move), objective, 0, 1e-14)
        if length == 0.0:
            return alpha, n_iter
        alpha, f = alpha + length * move, f + length * f_move
    return alpha, max_iter


def newton_goal(problem: DataTerm, K: Any, f: Any, slope: Any, optimality: Any) -> Any:
    """The alpha at which the quadratic model of J around f is smallest: (I + W K) alpha = b.

    W is the Hessian of the loss and b = W f - slope. For one output W is diagonal and a Cholesky
    factorisation of I + W^(1/2) K W^(1/2), whose eigenvalues are at least 1, solves it. For
    several it couples the outputs, and the same factor with their mean curvature preconditions
    conjugate gradients in the inner product of K, in which I + W K is self-adjoint; they end
    when the residual has fallen to a tenth of the `optimality` at f. Written for NumPy and JAX
    alike.
    """
    xp = array_namespace(K)
    times_hessian = problem.hessian(f)
    b = times_hessian(f) - slope
    h = problem.loss_curvature(f)
    if h.ndim == 1:
        flat = flat_curvature(h, optimality)
        h, b = h + flat, b + flat * f
    accuracy = xp.minimum(1e-2, 0.1 * optimality)
    root = xp.sqrt(xp.maximum(h if h.ndim == 1 else h.mean(axis=1), 1e-300))
    shifted, places = K * root, np.arange(len(K))
    shifted *= root[:, None]
    solve = cholesky_solver(updated(shifted, (places, places), xp.diagonal(shifted) + 1.0))
    root = shaped(root, h)

    def precondition(r: Any, Kr: Any) -> Any:
        return r - root * solve(root * Kr)

    Kb = K @ b
    if b.ndim == 1:
        return precondition(b, Kb)
    limit = accuracy**2 * xp.vdot(b, Kb)

    def go_on(state: Any) -> Any:
        _, residual, K_residual, _, product, k = state
        return (k < _MAX_INNER) & (product > 0) & (xp.vdot(residual, K_residual) > limit)

    def advance(state: Any) -> Any:
        alpha, residual, K_residual, direction, previous, k = state
        z = precondition(residual, K_residual)
        product = xp.vdot(K_residual, z)
        direction = z + (product / previous) * direction
        K_direction = K @ direction
        curved = direction + times_hessian(K_direction)
        bend = xp.vdot(K_direction, curved)
        length = xp.where(product > 0, product / bend, 0.0)
        residual = residual - length * curved
        return alpha + length * direction, residual, K @ residual, direction, product, k + 1

    zero = xp.zeros_like(b)
    return while_loop(xp, go_on, advance, (zero, b, Kb, zero, xp.ones(()), 0))[0]


# -- the kernel ----------------------------------------------------------------------------------


def cell_kernel(design: LeafDesign, others: LeafDesign, penalty: Frobenius) -> NDArray[np.float64]:
    """Return Phi D^-1 Phi_o^T (n, m) of the rows of two designs over the penalised columns."""
    layout, strengths = design.layout, penalty.column_strengths(design.layout)
    cells = design.cells()
    other_cells = cells if others is design else others.cells()
    weights = penalty.partition_weights
    weights = np.ones(layout.n_partitions) if weights is None else weights
    is_linear = np.array(layout.kinds) == "linear"
    if is_linear.all() or not is_linear.any():
        K = shared_cells(cells, other_cells, layout, weights)
        return times_column_kernel(K, design.X, others.X, strengths)
    K = shared_cells(cells, other_cells, layout, np.where(is_linear, weights, 0.0))
    K = times_column_kernel(K, design.X, others.X, strengths)
    if strengths[-1] > 0:
        constant = shared_cells(cells, other_cells, layout, np.where(is_linear, 0.0, weights))
        K += constant / strengths[-1]
    return K


def shared_cells(
    cells: NDArray, others: NDArray, layout: CellLayout, partition_weights: NDArray | None = None
) -> NDArray[np.float64]:
    """M (n, m): weight of the partitions in which a row of `cells` meets one of `others`.

    Cells (n, P) and (m, P) are numbered over all partitions, C for "no cell". Counts are exact:
    one-hot products in float32 are sums of ones, and weights multiply the finished counts.
    """
    weights = np.ones(layout.n_partitions) if partition_weights is None else partition_weights
    total = np.zeros((len(cells), len(others)))
    for weight in np.unique(weights[weights != 0]):
        counts = np.zeros((len(cells), len(others)), np.float32)
        for chunk in _chunks(np.flatnonzero(weights == weight), layout):
            a = _one_hot(cells, chunk, layout)
            b = a if others is cells else _one_hot(others, chunk, layout)
            counts += a @ b.T
        total += np.multiply(weight, counts, dtype=np.float64)  # NumPy 1 would stay in float32
    return total


def times_column_kernel(
    M: NDArray[np.float64], X: NDArray, Y: NDArray, column_strengths: NDArray
) -> NDArray[np.float64]:
    """Multiply M (n, m), in place, by the linear kernel of augmented rows; return M.

    The kernel is sum_j x_j y_j / strength_j over the penalised columns; free ones are left out.
    """
    penalised = column_strengths > 0
    scaled = X[:, penalised].astype(float) / column_strengths[penalised]
    others = Y[:, penalised].astype(float).T
    for start in range(0, len(M), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        M[rows] *= scaled[rows] @ others
    return M


def _chunks(partitions: NDArray, layout: CellLayout) -> list[NDArray]:
    """Split partitions so that each part has at most _MAX_COLUMNS cells (or one partition)."""
    sizes = np.asarray(layout.cells_per_partition)[partitions]
    part = (np.cumsum(sizes) - sizes) // _MAX_COLUMNS
    return [partitions[part == k] for k in np.unique(part)]


def _one_hot(cells: NDArray, partitions: NDArray, layout: CellLayout) -> NDArray[np.float32]:
    """One-hot codes (n, cells of these partitions); a row in no cell is all zero there."""
    sizes = np.asarray(layout.cells_per_partition)[partitions]
    starts = np.cumsum(sizes) - sizes
    C = int(sizes.sum())
    columns = cells[:, partitions] + (starts - layout.offsets[partitions])
    columns[cells[:, partitions] == layout.n_cells] = C  # one more column, which is left out
    hot = np.zeros((len(cells), C + 1), np.float32)
    hot.ravel()[columns + (C + 1) * np.arange(len(cells))[:, None]] = 1.0
    return hot[:, :C]
