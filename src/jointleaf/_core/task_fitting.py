"""The joint fit of several tasks as a function: rows, codes and targets in, a solution out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from jointleaf._core.device import check_device
from jointleaf._core.fitting import check_limits, make_problem
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Loss, make_loss
from jointleaf._core.penalties import Free, Term
from jointleaf._core.problem import Problem
from jointleaf._core.relaxing import solve_tasks
from jointleaf._core.solvers import Solver
from jointleaf._core.task_problem import TaskProblem
from jointleaf._core.task_solution import TaskSolution, make_solution
from jointleaf._core.task_weights import check_task_weights

__all__ = ["fit_tasks"]

Task = tuple[ArrayLike, ArrayLike, ArrayLike]


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
) -> TaskSolution:
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
    TaskSolution

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import DirtyLasso, fit_tasks
    >>> rng = np.random.default_rng(0)
    >>> tasks = []
    >>> for own in (1, 2):
    ...     X = rng.standard_normal((100, 5))
    ...     y = np.abs(X[:, 0]) + X[:, own]
    ...     tasks.append((X, (X[:, :1] > 0).astype(int), y))
    >>> solution = fit_tasks(tasks, penalty=DirtyLasso(common=0.13, task=0.1))
    >>> print(np.flatnonzero(solution.common_norms.any(axis=1)))
    [0]
    """
    check_limits(tol, max_iter)
    check_device(device)
    if not isinstance(penalty, Term):
        raise TypeError(f"penalty={penalty!r} must be a Penalty such as DirtyLasso(0.2, 0.1)")
    if not isinstance(tasks, Sequence) or len(tasks) == 0:
        raise ValueError("tasks must be a list of (X, codes, y), one for every task")
    if not (isinstance(n_jobs, int | np.integer) and n_jobs >= 1):
        raise ValueError(f"n_jobs={n_jobs!r} must be a whole number, at least 1")
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
    problem = TaskProblem(
        [part.leaf_design for part in checked],
        [part.y for part in checked],
        make_loss(loss),
        penalty,
        [part.s for part in checked],
        check_task_weights(task_weights, [str(t) for t in range(len(tasks))]).tolist(),
        [0.0] * len(tasks),
        n_jobs,
    )
    problem.device = device
    start = None if init is None else np.asarray(init, problem.design.dtype)
    if start is not None and start.shape != problem.zeros().shape:
        raise ValueError(
            f"init has shape {start.shape}, but the weights have {(problem.layout.n_weights,)}"
        )
    return make_solution(*solve_tasks(problem, penalty, solver, start, tol=tol, max_iter=max_iter))


def _check_task(
    number: int, task: Task, loss: str | Loss, cells: CellKind | Sequence[CellKind]
) -> Problem:
    """The problem of one task, with everything checked; errors name the task."""
    try:
        X, codes, y = task
    except (TypeError, ValueError):
        raise ValueError(f"task {number} must be three arrays: X, codes and y") from None
    try:
        return make_problem(
            X,
            codes,
            y,
            loss=loss,
            penalty=Free(),
            cells=cells,
            sample_weight=None,
            n_cells=None,
            n_jobs=1,
        )
    except (TypeError, ValueError) as error:
        raise type(error)(f"task {number}: {error}") from None
