"""The joint fit as a function: rows, codes and targets in, a `Solution` out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import check_count, check_device
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellKind, check_codes
from jointleaf._core.losses import Loss, make_loss
from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.problem import Problem, as_numbers, check_weights
from jointleaf._core.solvers.base import Solver, check_limits, solve
from jointleaf._core.solvers.solution import Solution

_MOST_SCALES = 20  # solves, each with the scale of the residuals of the one before


def fit_cells(
    X: ArrayLike,
    codes: ArrayLike,
    y: ArrayLike,
    *,
    loss: str | Loss = "squared_error",
    quantile: float | None = None,
    power: float | None = None,
    penalty: Term | None = None,
    cells: CellKind | Sequence[CellKind] = "linear",
    solver: str | Solver = "auto",
    tol: float = 1e-6,
    max_iter: int = 1000,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike = 0.0,
    n_cells: ArrayLike | None = None,
    n_jobs: int = 1,
    device: str = "cpu",
) -> Solution:
    r"""Fit the models of all cells of all partitions jointly.

    Minimises, over slopes W and biases b,

    .. math::

        J(W, b) = \frac{1}{S} \sum_n s_n\, \ell(y_n, o_n + f(x_n)) + R(W, b), \qquad
        f(x_n) = \sum_p \langle w_{p, c_p(n)}, x_n \rangle + b_{p, c_p(n)}

    with weights s that sum to S. X is used as given: nothing is standardised, and no
    intercept is added besides the biases.

    Parameters
    ----------
    X : array (n, d)
        Rows. float32 is computed in float32, everything else in float64.
    codes : integer array (n, P)
        Cell of each partition in which each row falls, numbered from 0 in every partition.
    y : array (n,)
        Targets: numbers (for "poisson" and "tweedie" not negative, for "gamma" positive), -1 and 1
        for "logistic", class numbers 0..K-1 for "multinomial".
    loss : str or Loss
        "squared_error", "absolute_error", "huber", "quantile", "poisson", "gamma", "tweedie",
        "logistic" or "multinomial", or an object of `jointleaf.losses`, such as ``Quantile(0.9)``.
        For "poisson", "gamma" and "tweedie" predictions are logarithms of means. The scale of
        "huber" is found from residuals and is in ``solution.loss.delta``.
    quantile : float in (0, 1), optional
        The level, for loss="quantile"; 0.5 by default.
    power : float in [1, 2], optional
        For loss="tweedie"; 1.5 by default.
    penalty : Penalty, PredictionPenalty or a sum of these, optional
        By default ``Frobenius(0.01)``.
    cells : {"linear", "constant"} or sequence of these, length P
        Linear cells have slopes and a bias, constant cells a bias only (global refinement): one
        word for all partitions, or one for each.
    solver : {"auto", "dual", "pcg", "newton", "fista"} or Solver
        The rules of "auto" are those of `_core.solvers.base.choose_solver`.
    tol : float
        Stops when the scale-free optimality measure (`Problem.optimality`) is at most this.
    max_iter : int
        Maximum number of iterations; a solve that ends above `tol` warns with `ConvergenceWarning`.
    sample_weight : array (n,), optional
        Weights; zero equals leaving the row out.
    offset : number or array (n,) or (K,)
        o: raw predictions that the cells add to, such as logarithms of exposure. Predictions of the
        `Solution` are without it.
    n_cells : integers (P,), optional
        Cells of every partition; by default the largest code plus one. Cells without rows
        get zero weights.
    n_jobs : int
        Threads.
    device : {"cpu", "gpu", "tpu", "auto", "jax:cpu"}
        Where the solver computes. "cpu" is NumPy and SciPy; the others need JAX (extra ``jax``):
        an accelerator, or JAX on the CPU. "auto" is an accelerator where there is one and the
        problem is large enough (see `_core.solvers.base.choose_solver`), else "cpu".

    Returns
    -------
    Solution
        With ``coef`` (L, d[, K]) of the linear and ``intercept`` (C[, K]) of all cells, partition
        after partition.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, fit_cells
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> codes = np.column_stack([x[:, 0] > 0, x[:, 0] > 0.5]).astype(int)
    >>> solution = fit_cells(x, codes, np.abs(x[:, 0]), penalty=Frobenius(1e-6))
    >>> solution.converged, solution.coef.shape, solution.intercept.shape
    (True, (4, 1), (4,))
    """
    check_limits(tol, max_iter)
    check_device(device)
    penalty = Frobenius(0.01) if penalty is None else penalty
    wanted = make_loss(loss, quantile, power)
    problem = make_problem(
        X, codes, y, wanted, penalty, cells, sample_weight, n_cells, n_jobs, offset
    )
    solution = solve(problem, solver, tol=tol, max_iter=max_iter, device=device)
    for _ in range(_MOST_SCALES if wanted.needs_scale else 0):
        before, start = problem.loss, solution.theta
        residuals = problem.y - problem.offset - problem.design.matvec(start)
        problem = problem.with_loss(wanted.with_scale(residuals, problem.s), problem.y)
        if _is_near(before, problem.loss):
            break
        solution = solve(problem, solver, start, tol=tol, max_iter=max_iter, device=device)
    return solution


def _is_near(loss: Loss, other: Loss) -> bool:
    """Whether losses with scales that were found differ by less than can matter."""
    pairs = zip(vars(loss).values(), vars(other).values(), strict=True)
    return all(np.isclose(a, b, rtol=1e-3) for a, b in pairs)


class CellRows(NamedTuple):
    """Checked rows of positive weight, their cells, targets, weights and offsets."""

    X: NDArray
    codes: NDArray
    n_cells: tuple[int, ...]
    y: NDArray
    s: NDArray
    offset: NDArray


def make_problem(
    X: ArrayLike,
    codes: ArrayLike,
    y: ArrayLike,
    loss: str | Loss,
    penalty: Term,
    cells: CellKind | Sequence[CellKind],
    sample_weight: ArrayLike | None = None,
    n_cells: ArrayLike | None = None,
    n_jobs: int = 1,
    offset: ArrayLike = 0.0,
) -> Problem:
    """Return the problem of what `fit_cells` takes, after checks; zero weights are left out."""
    rows = check_cell_rows(X, codes, y, sample_weight, n_cells, offset)
    check_count("n_jobs", n_jobs)
    check_penalty_term(penalty)
    design = LeafDesign(rows.X, rows.codes, rows.n_cells, cells=cells, n_jobs=n_jobs)
    return Problem(design, rows.y, make_loss(loss), penalty, rows.s, rows.offset)


def check_cell_rows(
    X: ArrayLike,
    codes: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    n_cells: ArrayLike | None = None,
    offset: ArrayLike = 0.0,
) -> CellRows:
    """Return the rows of positive weight of what `fit_cells` takes, after checks."""
    rows = _check_rows(X)
    checked, counts = check_codes(codes, len(rows), n_cells)
    weights = check_weights(sample_weight, len(rows))
    targets = as_numbers("y", y)
    if targets.ndim != 1 or len(targets) != len(rows):
        raise ValueError(f"y has shape {targets.shape}, expected ({len(rows)},): one per row of X")
    _check_size("y", targets, rows.dtype)
    offsets = as_numbers("offset", offset)
    keep = weights > 0
    if not keep.all():
        offsets = offsets[keep] if offsets.shape == keep.shape else offsets
        rows, checked, targets, weights = rows[keep], checked[keep], targets[keep], weights[keep]
    return CellRows(rows, checked, counts, targets, weights, offsets)


def check_penalty_term(penalty: object, example: str = "Frobenius(0.01)") -> None:
    """Raise an error for what is no penalty."""
    if not isinstance(penalty, Term):
        raise TypeError(f"penalty={penalty!r} must be a Penalty such as {example}")


def _check_rows(X: ArrayLike) -> NDArray:
    try:
        rows = np.asarray(X)
    except ValueError as cause:
        raise ValueError(f"X must be an (n, d) matrix of numbers: {cause}") from None
    if rows.ndim != 2:
        raise ValueError(f"X must be an (n, d) matrix, got an array of shape {rows.shape}")
    if rows.shape[0] == 0:
        raise ValueError("X has no rows: nothing to fit")
    if rows.dtype != np.float32:
        rows = as_numbers("X", rows)
    if not np.isfinite(rows).all():
        raise ValueError("X holds NaN or infinity: remove these rows or fill them in")
    _check_size("X", rows, rows.dtype)
    return rows


def _check_size(name: str, values: NDArray, dtype: np.dtype) -> None:
    """Raise an error for values whose products of four would overflow."""
    limit = float(np.finfo(dtype).max) ** 0.25
    largest = float(np.abs(values).max(initial=0.0))
    if np.isfinite(largest) and largest > limit:
        raise ValueError(
            f"{name} holds values up to {largest:.3g}, too large for {dtype} (at most "
            f"{limit:.0e}): rescale them"
        )
