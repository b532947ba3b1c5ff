"""Answers along a path of strengths, each started from the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core import solvers
from jointleaf._core.arrays import check_count, check_device
from jointleaf._core.fitting import check_penalty_term, make_problem
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Kinked, Loss, make_loss
from jointleaf._core.penalties import Term
from jointleaf._core.penalties.base import on_weights
from jointleaf._core.problem import Problem, check_offset
from jointleaf._core.progress import Progress
from jointleaf._core.solvers.fista import live_features

N_STRENGTHS = 30
RATIO = 1e-2
_BIAS_TOL = 1e-9
_WIDTH = 0.01  # of a smooth loss in place of one with kinks, in standard deviations of the target


@dataclass(frozen=True)
class StrengthPath:
    """What was found along a path of m strengths, from strong to weak.

    Attributes
    ----------
    strengths : array (m,)
    objective : array (m,)
        J at every point.
    optimality : array (m,)
        Scale-free distance from the first-order conditions.
    error : array (m,)
        Mean loss of the training rows.
    validation_error : array (m,) or None
        Mean loss of the validation rows, where there are any.
    feature_norms : array (m, d)
        Euclidean norm of every feature's slopes over all cells (and outputs).
    n_iter : array (m,)
    solutions : tuple of Solution
        All weights: m times the memory of one answer.
    """

    strengths: NDArray[np.float64]
    objective: NDArray[np.float64]
    optimality: NDArray[np.float64]
    error: NDArray[np.float64]
    validation_error: NDArray[np.float64] | None
    feature_norms: NDArray[np.float64]
    n_iter: NDArray[np.intp]
    solutions: tuple[solvers.Solution, ...] = field(repr=False)

    @property
    def selected(self) -> NDArray[np.bool_]:
        """Whether a feature has a slope that is not zero, (m, d)."""
        return self.feature_norms > 0

    @property
    def n_selected(self) -> NDArray[np.intp]:
        """Number of features with slopes at every point, (m,)."""
        return self.selected.sum(axis=1)


def strength_path(
    X: ArrayLike,
    codes: ArrayLike,
    y: ArrayLike,
    *,
    penalty: Term,
    strengths: ArrayLike | None = None,
    n_strengths: int = N_STRENGTHS,
    ratio: float = RATIO,
    loss: str | Loss = "squared_error",
    quantile: float | None = None,
    power: float | None = None,
    cells: CellKind | Sequence[CellKind] = "linear",
    solver: str | solvers.Solver = "auto",
    tol: float = 3e-3,
    max_iter: int = 1000,
    sample_weight: ArrayLike | None = None,
    n_cells: ArrayLike | None = None,
    offset: ArrayLike = 0.0,
    validation: tuple[ArrayLike, ...] | None = None,
    n_jobs: int = 1,
    device: str = "cpu",
    verbose: bool = False,
) -> StrengthPath:
    """Fit all cells jointly at every strength of a path, each started from the answer before.

    Parameters
    ----------
    X, codes, y : arrays (n, d), (n, P), (n,)
        As for `jointleaf.fit_cells`; X is used as given.
    penalty : Penalty or sum
        Its own strength is replaced; in a sum those that are "auto" are, for example
        ``L21("auto") + Frobenius(0.01)``.
    strengths : array (m,), optional
        By default `n_strengths` in geometric steps from the smallest strength at which all slopes
        are zero down to `ratio` times that.
    n_strengths : int
    ratio : float in (0, 1)
    loss, quantile, power, cells, solver, max_iter, sample_weight, n_cells, n_jobs, device
        As for `jointleaf.fit_cells`.
    offset : number or array (n,) or (K,)
        Raw predictions that the cells add to.
    tol : float
        Tolerance of the optimality measure at the largest strength; elsewhere smaller in proportion
        to the strength, whose effect must be resolved.
    validation : (X, codes, y) or (X, codes, y, offset), optional
        Rows whose mean loss is reported at every point, with the offset of all training rows or
        their own.
    verbose : bool
        Show progress.

    Returns
    -------
    StrengthPath

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import L21, strength_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> codes = (X[:, :1] > 0).astype(int)
    >>> path = strength_path(X, codes, np.abs(X[:, 0]), penalty=L21(1.0))
    >>> print(path.n_selected[0], path.n_selected[5])
    0 1
    """
    solvers.check_limits(tol, max_iter)
    check_device(device)
    check_penalty_term(penalty, "L21(0.1)")
    weighting = cells, sample_weight, n_cells, n_jobs, offset
    wanted = make_loss(loss, quantile, power)
    problem = make_problem(X, codes, y, wanted, penalty.at(1.0), *weighting)
    state = solvers.SolverState()
    if strengths is None:
        grid = strength_grid(largest_strength(problem, penalty, state), n_strengths, ratio)
    else:
        grid = _check_strengths(strengths)
    held_out = None if validation is None else _check_validation(problem, validation)
    progress = Progress(len(grid), "path", enabled=verbose)
    errors: list[tuple[float, float]] = []
    solutions: list[solvers.Solution] = []
    for solution in follow_path(
        problem, penalty, grid, solver, tol=tol, max_iter=max_iter, device=device, state=state
    ):
        f = problem.offset + problem.design.matvec(solution.theta)
        fresh = np.nan
        if held_out is not None:
            raw = held_out[3] + solution.predict(held_out[0], held_out[1])
            fresh = problem.loss.value(held_out[2], raw, np.ones(len(raw)))
        errors.append((problem.loss.value(problem.y, f, problem.s), fresh))
        solutions.append(solution)
        progress.step(f"{len(live_features(problem.layout, solution.theta))} features")
    error, validation_error = np.array(errors).T
    return StrengthPath(
        strengths=grid,
        objective=np.array([s.objective for s in solutions]),
        optimality=np.array([s.optimality for s in solutions]),
        error=error,
        validation_error=None if held_out is None else validation_error,
        feature_norms=np.array([s.slope_norms for s in solutions]),
        n_iter=np.array([s.n_iter for s in solutions]),
        solutions=tuple(solutions),
    )


def follow_path(
    problem: Problem,
    penalty: Term,
    strengths: Sequence[float] | NDArray,
    solver: str | solvers.Solver = "auto",
    *,
    tol: float,
    max_iter: int,
    device: str = "cpu",
    state: solvers.SolverState | None = None,
) -> Iterator[solvers.Solution]:
    """Solve a problem at every strength of a penalty, each started from the answer before.

    The tolerance is `tol` at the largest strength and smaller in proportion elsewhere.
    """
    theta = None
    state = solvers.SolverState() if state is None else state
    largest = float(np.max(strengths))
    for strength in strengths:
        point = problem.with_penalty(on_weights(penalty.at(float(strength))))
        if theta is None and point.curvature is None:  # slopes that are zero need not move at all
            theta = biases_alone(point, state)
        goal = tol * float(strength) / largest
        chosen = solvers.choose_solver(point, solver, device)
        solution = chosen.solve(point, theta, tol=goal, max_iter=max_iter, state=state)
        theta = solution.theta
        yield solution


def largest_strength(
    problem: Problem, penalty: Term, state: solvers.SolverState | None = None
) -> float:
    """Return the smallest strength of a penalty at which all slopes of a problem are zero."""
    family = on_weights(penalty).bind(problem.layout)
    if problem.layout.n_slopes == 0:
        raise ValueError(f"{penalty!r} with constant cells has no slopes to set to zero")
    if isinstance(problem.loss, Kinked):  # to a width that is small against the residuals
        problem, state = problem.smoothed(_WIDTH * problem.residual_scale), None
    theta = biases_alone(problem, state)
    gradient = problem.data_gradient(problem.design.matvec(theta))
    steepest = np.abs(problem.layout.split(gradient)[0]).max(initial=0.0)
    if steepest <= 1000 * _BIAS_TOL * problem.start_slope:
        return 0.0  # what the biases leave is rounding
    return family.strength_max(problem.mass * gradient)


def biases_alone(problem: Problem, state: solvers.SolverState | None = None) -> NDArray:
    """Return the best weights (N[, K]) with all slopes at zero."""
    part = problem.without_slopes()
    curvature, _ = part.quadratic()

    def solve() -> NDArray:
        if part.loss.is_quadratic:
            return solvers.PCG().solve(part, tol=_BIAS_TOL, max_iter=2000).intercept
        return solvers.Newton().solve(part, tol=100 * _BIAS_TOL, max_iter=100).intercept

    theta = problem.zeros()
    key = "biases alone", curvature.tobytes()
    biases = solve() if state is None else state.get(key, solve)
    problem.layout.split(theta)[1][:] = biases
    return theta


def strength_grid(
    largest: float, n_strengths: int = N_STRENGTHS, ratio: float = RATIO
) -> NDArray[np.float64]:
    """Strengths in geometric steps from the largest to `ratio` times that."""
    count = check_count("n_strengths", n_strengths, TypeError)
    if not (np.isreal(ratio) and 0 < ratio < 1):
        raise ValueError(f"ratio={ratio!r} must be a number between 0 and 1")
    if not largest > 0:
        raise ValueError(
            "the slopes are zero at every strength: y does not depend on X beyond the cells, or "
            "other terms of the penalty are too strong; give strengths"
        )
    return largest * ratio ** np.linspace(0, 1, count)


def _check_strengths(strengths: ArrayLike) -> NDArray[np.float64]:
    try:
        grid = np.atleast_1d(np.asarray(strengths, float))
    except (TypeError, ValueError):
        raise TypeError(f"strengths={strengths!r} must be a list of positive numbers") from None
    if grid.ndim != 1 or not grid.size or not np.isfinite(grid).all() or (grid <= 0).any():
        raise ValueError(f"strengths={strengths!r} must be a list of positive numbers")
    return -np.sort(-grid)


def _check_validation(
    problem: Problem, validation: tuple[ArrayLike, ...]
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    try:
        X, codes, y, *offsets = (np.asarray(part) for part in validation)
    except (TypeError, ValueError):
        raise ValueError("validation must be three arrays: X, codes and y") from None
    if not len(X) == len(codes) == len(y):
        raise ValueError(
            f"validation has {len(X)} rows of X, {len(codes)} of codes and {len(y)} of y"
        )
    targets = problem.loss.encode(y)
    if not offsets and problem.offset.shape == problem.y.shape:
        raise ValueError(
            "offset has one number for each row: give validation as X, codes, y and offset"
        )
    offset = offsets[0] if offsets else problem.offset
    return X, codes, targets, check_offset(offset, targets.shape)
