"""Several tasks: their joint problem and its solution, and the joint fit as a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import check_count, check_device
from jointleaf._core.design import LeafDesign, TaskDesign
from jointleaf._core.fitting import check_penalty_term, make_problem
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.losses import Loss, make_loss
from jointleaf._core.penalties import Free, Penalty, SlopeNorm, TaskNorm, Term
from jointleaf._core.penalties.base import mapped, on_predictions, on_weights
from jointleaf._core.problem import Problem, as_numbers
from jointleaf._core.solvers.base import Listener, Solver, SolverState, check_limits, solve
from jointleaf._core.solvers.solution import Solution

Task = tuple[ArrayLike, ArrayLike, ArrayLike]


# -- the problem ---------------------------------------------------------------------------------


def task_problem(
    designs: Sequence[LeafDesign],
    targets: Sequence[NDArray],
    loss: Loss,
    penalty: Term,
    sample_weights: Sequence[NDArray],
    task_weights: Sequence[float],
    offsets: Sequence[float],
    n_jobs: int = 1,
) -> Problem:
    r"""Return the problem of the joint fit of all cells of all tasks.

    .. math::

        J = \sum_t \gamma_t \Big( \frac{1}{S_t} \sum_n s_{tn}\, \ell(y_{tn}, o_t + f_{tn})
            + \tfrac12 (o_t + f_t)^\top A_t (o_t + f_t) \Big) + R(\theta)

    It is the problem of all rows with weights gamma_t s_tn / S_t, which sum to `Problem.mass` =
    sum_t gamma_t: solvers minimise J / mass, with strengths divided by it. Designs have the same
    features, the loss has one output, sample weights s_t and task weights gamma_t are positive,
    `n_jobs` are threads over tasks.
    """
    mass = float(np.sum(task_weights))
    smoother: Any = None
    for term in on_predictions(penalty):
        matrices = BlockSmoother(
            [
                (gamma / mass) * term.matrix(design.rows, s)
                for gamma, design, s in zip(task_weights, designs, sample_weights, strict=True)
            ]
        )
        smoother = matrices if smoother is None else smoother + matrices
    weights = [g * s / s.sum() for g, s in zip(task_weights, sample_weights, strict=True)]
    shifts = [np.full(len(y), o) for y, o in zip(targets, offsets, strict=True)]
    return Problem(
        TaskDesign(designs, task_weights, n_jobs),
        np.concatenate(targets),
        loss,
        penalty,
        np.concatenate(weights),
        np.concatenate(shifts),
        mass=mass,
        smoother=smoother,
    )


class BlockSmoother:
    """A symmetric matrix (n, n) on predictions with a block (n_t, n_t), dense or sparse, a task."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)

    def __matmul__(self, f: NDArray) -> NDArray:
        bounds = np.cumsum([part.shape[0] for part in self.parts])[:-1]
        return np.concatenate(
            [part @ block for part, block in zip(self.parts, np.split(f, bounds), strict=True)]
        )

    def __add__(self, other: BlockSmoother) -> BlockSmoother:
        return BlockSmoother([a + b for a, b in zip(self.parts, other.parts, strict=True)])

    def astype(self, dtype: Any) -> BlockSmoother:
        """Return the same matrix in another precision."""
        return BlockSmoother([part.astype(dtype) for part in self.parts])


def check_task_weights(values: ArrayLike | None, names: Sequence[str]) -> NDArray[np.float64]:
    """Return gamma_t > 0, (T,); ones for None. Errors name the task."""
    if values is None:
        return np.ones(len(names))
    weights = as_numbers("task_weights", values)
    if weights.shape != (len(names),):
        raise ValueError(
            f"task_weights has shape {weights.shape}, but there are {len(names)} tasks: give one "
            f"positive number for each of {', '.join(map(str, names))}"
        )
    for name, weight in zip(names, weights, strict=True):
        if not (np.isfinite(weight) and weight > 0):
            raise ValueError(f"task_weights holds {weight:g} for task {name}: it must be positive")
    return weights


def split_slopes(penalty: Penalty, layout: CellLayout, theta: NDArray) -> tuple[NDArray, NDArray]:
    """Return common slopes and slopes of single tasks, both (L, d), under a bound penalty.

    A Dirty LASSO says which is which. Under other penalties that act on all tasks together and
    make whole features vanish every slope is common; under all others it belongs to its task.
    """
    slopes, _ = layout.split(theta)
    for term in penalty.terms:
        if isinstance(term, TaskNorm):
            common, specific = term.parts(np.ascontiguousarray(slopes.T))
            return common.T, specific.T
    are_common = any(isinstance(t, SlopeNorm) and t.is_row_sparse for t in penalty.terms)
    zeros = np.zeros_like(slopes)
    return (slopes, zeros) if are_common else (zeros, slopes)


# -- solving, and once more on what was selected ---------------------------------------------------


def solve_tasks(
    problem: Problem,
    penalty: Term,
    solver: str | Solver,
    init: NDArray | None = None,
    *,
    tol: float,
    max_iter: int,
    device: str = "cpu",
    listener: Listener | None = None,
) -> Solution:
    """Solve a problem and, where its penalty says so, once more on what was selected.

    Returns the solution in the units of the problem's stated objective, with its slopes split.
    """
    run = partial(
        solve, tol=tol, max_iter=max_iter, device=device, state=SolverState(), listener=listener
    )
    solution = run(problem, solver, init)
    factor = relax_of(penalty)
    if factor != 1.0:
        again = relaxed(penalty, factor, support_of(problem.layout, solution.theta))
        problem = problem.with_penalty(on_weights(again))
        solution = run(problem, solver, solution.theta)
    mass = problem.mass
    return replace(
        solution,
        objective=mass * solution.objective,
        gap=mass * solution.gap,
        trace=[point._replace(objective=mass * point.objective) for point in solution.trace],
        common_coef=split_slopes(problem.penalty, problem.layout, solution.theta)[0],
    )


def relax_of(penalty: Term) -> Any:
    """Return what strengths are multiplied by in the end; 1 for penalties that are not relaxed."""
    return next((term.relax for term in penalty.terms if isinstance(term, TaskNorm)), 1.0)


def support_of(layout: CellLayout, theta: NDArray) -> NDArray[np.bool_]:
    """Return which features have slopes in which task, (d, T)."""
    parts = np.split(layout.split(theta)[0] != 0, layout.slope_starts[1:-1])
    return np.stack([part.any(axis=0) for part in parts], axis=1)


def relaxed(penalty: Term, factor: float, support: NDArray[np.bool_]) -> Any:
    """Return the penalty with weaker strengths on the selected features alone."""
    return mapped(penalty, lambda t: t.relaxed(factor, support) if isinstance(t, TaskNorm) else t)


def task_strengths(penalty: Term) -> tuple[float, float]:
    """Return the strengths `common` and `task` of a penalty; NaN for what is no number.

    The strength of a penalty without tasks is that on what is common.
    """
    term: Any = next((t for t in penalty.terms if isinstance(t, TaskNorm)), penalty.terms[0])
    pair = (term.common, term.task) if isinstance(term, TaskNorm) else (term.strength, None)
    common, task = (float(v) if isinstance(v, int | float) else np.nan for v in pair)
    return common, task


def fit_tasks(
    tasks: Sequence[Task],
    *,
    penalty: Term,
    task_weights: ArrayLike | None = None,
    loss: str | Loss = "squared_error",
    cells: CellKind | Sequence[CellKind] = "linear",
    solver: str | Solver = "auto",
    tol: float = 1e-6,
    max_iter: int = 1000,
    init: ArrayLike | None = None,
    n_jobs: int = 1,
    device: str = "cpu",
) -> Solution:
    r"""Fit the models of all cells of all tasks jointly.

    Minimises, over the slopes W_t and the biases b_t of every task,

    .. math::

        J = \sum_t \frac{\gamma_t}{n_t} \sum_n \ell(y_{tn}, f_t(x_{tn})) + R(W_1, b_1, W_2, \dots)

    X is used as given: nothing is standardised.

    Parameters
    ----------
    tasks : sequence of (X, codes, y)
        Per task rows (n_t, d), codes (n_t, P_t) and targets (n_t,), as for `jointleaf.fit_cells`,
        with the same features.
    penalty : Penalty or sum
        `DirtyLasso`, or any other: on all tasks together, or on each with `PerTask`.
    task_weights : array (T,), optional
        gamma_t > 0; by default all one.
    loss : {"squared_error", "logistic"} or Loss
    cells, solver, tol, max_iter, n_jobs
        As for `jointleaf.fit_cells`; n_jobs are threads over tasks.
    init : array (N,), optional
        Weights to start from: the slopes of all tasks, task after task, then all biases.
    device : {"cpu", "gpu", "tpu", "auto", "jax:cpu"}
        Where the solver computes, as for `jointleaf.fit_cells`.

    Returns
    -------
    Solution
        Of all tasks; ``tasks`` holds that of each.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import DirtyLasso, fit_tasks
    >>> rng = np.random.default_rng(0)
    >>> tasks = []
    >>> for j in (1, 2):
    ...     X = rng.standard_normal((100, 5))
    ...     y = np.abs(X[:, 0]) + X[:, j]
    ...     tasks.append((X, (X[:, :1] > 0).astype(int), y))
    >>> solution = fit_tasks(tasks, penalty=DirtyLasso(common=0.13, task=0.1))
    >>> print(np.flatnonzero(solution.common_norms.any(axis=1)))
    [0]
    """
    check_limits(tol, max_iter)
    check_device(device)
    check_penalty_term(penalty, "DirtyLasso(0.2, 0.1)")
    if not isinstance(tasks, Sequence) or len(tasks) == 0:
        raise ValueError("tasks must be a list of (X, codes, y), one for every task")
    check_count("n_jobs", n_jobs)
    checked = [_check_task(t, task, loss, cells) for t, task in enumerate(tasks)]
    widths = [part.layout.n_features for part in checked]
    for t, width in enumerate(widths):
        if width != widths[0]:
            raise ValueError(
                f"task {t} has {width} features, but task 0 has {widths[0]}: tasks must have the "
                "same features"
            )
    if checked[0].outputs:
        raise ValueError(
            f"loss={loss!r} has {checked[0].outputs[0]} outputs, but tasks take a loss with one "
            "output: use 'squared_error' or 'logistic'"
        )
    problem = task_problem(
        [part.leaf_design for part in checked],
        [part.y for part in checked],
        make_loss(loss),
        penalty,
        [part.s for part in checked],
        check_task_weights(task_weights, [str(t) for t in range(len(tasks))]).tolist(),
        [0.0] * len(tasks),
        n_jobs,
    )
    start = None if init is None else np.asarray(init, problem.design.dtype)
    if start is not None and start.shape != problem.zeros().shape:
        raise ValueError(
            f"init has shape {start.shape}, but the weights have {(problem.layout.n_weights,)}"
        )
    return solve_tasks(problem, penalty, solver, start, tol=tol, max_iter=max_iter, device=device)


def _check_task(
    number: int, task: Task, loss: str | Loss, cells: CellKind | Sequence[CellKind]
) -> Problem:
    """The problem of one task, with everything checked; errors name the task."""
    try:
        X, codes, y = task
    except (TypeError, ValueError):
        raise ValueError(f"task {number} must be three arrays: X, codes and y") from None
    try:
        return make_problem(X, codes, y, loss, Free(), cells)
    except (TypeError, ValueError) as error:
        raise type(error)(f"task {number}: {error}") from None
