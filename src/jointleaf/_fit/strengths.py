"""Choice of the strengths of any penalty on one or several tasks, by honest cross-validation.

Strengths follow warm-started paths from where all slopes are zero. A Dirty LASSO has two of them.
Their ratio common / task decides what is common: from min gamma (everything) to |gamma| (nothing),
in steps of equal factors of its square, about the number of tasks that must need a feature for it
to be common. There is one path for every ratio.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from jointleaf._core import tasks
from jointleaf._core.design import TaskDesign, lipschitz
from jointleaf._core.losses import joined_loss
from jointleaf._core.path import biases_alone, follow_path, largest_strength, strength_grid
from jointleaf._core.penalties import Free, Frobenius, Penalty, PerTask, TaskNorm, Term
from jointleaf._core.penalties.base import AUTO, mapped, on_predictions, on_weights
from jointleaf._core.penalties.sums import Sum
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers.base import SolverState, choose_solver
from jointleaf._core.solvers.solution import Solution
from jointleaf._fit.component import CellKinds, Table
from jointleaf._fit.folds import Fold, best_row, join_tables, loss_columns, with_progress

N_RATIOS = 4
# Strengths on a path, and the last relative to the first: paths end earlier, when the validation
# loss rises. Paths of several tasks are coarser, because there is one for every ratio.
_N_STRENGTHS, _SPARSE_RATIO = 40, 1e-4
_N_TASK_STRENGTHS, _TASK_SPARSE_RATIO = 25, 1e-3
_QUADRATIC_RATIO = 1e-7
_PATIENCE, _GAIN = 4, 5e-3  # a path ends when so many strengths gained less than this share
_FRACTIONS = (0.5, 0.2, 0.1)  # of the largest strength, at which bias strengths are compared
_HOPELESS = 2.0  # times the loss of the best biases alone
BIAS_STRENGTHS = (10.0, 1.0, 0.1, 0.01, 1e-3, 0.0)  # from strong to weak, the last free
_STEP = _TASK_SPARSE_RATIO ** (1 / (_N_TASK_STRENGTHS - 1))  # from one strength to the next
# By what strengths are multiplied for the features selected: whole steps along the path, so that
# neighbors on it with the same features share their solutions.
RELAX = (1.0, _STEP**4, _STEP**8)
_MOST_SELECTED = 0.5  # of all features, with which relaxed strengths are still tried
_TOL, _MAX_ITER = 3e-3, 1000


@dataclass(frozen=True)
class StrengthChoice:
    """The penalty with the chosen strengths, and a table of all that were tried.

    It has one entry per setting, on every path from strong to weak: the strengths (`strength`, or
    `common`, `task` and `relax` of several tasks; NaN where bias strengths were compared),
    `bias_strength`, `on_path` (False: bias strengths were compared), `mean_loss` (weighted mean
    validation loss over all splits, in units of the targets' variances for regression; infinite
    where a setting was not worth trying), `std_loss` over groups of validation rows, `se_loss`
    (standard error of the mean), `mean_selected` (features with slopes, mean over splits; of
    several tasks also `mean_common` and `mean_specific`, the mean number of further features of a
    task) and `converged`.
    """

    best: Term
    table: Table = field(repr=False)


class _Score(NamedTuple):
    """One setting on one split: losses of groups of rows, counts of features, convergence."""

    losses: NDArray[np.float64]
    n_common: float
    n_specific: float
    converged: bool


class _PathFold:
    """One split of the rows of all tasks, on which strengths are scored.

    There is one fold per task, with equal numbers of groups of validation rows. The loss is the
    data term on these over sum_t gamma_t, of `task_weights` (T,), which are None for the only task
    of a `JOPLEnRegressor` or `JOPLEnClassifier`. Terms of the penalty on predictions stay as they
    are.
    """

    def __init__(
        self,
        folds: Sequence[Fold],
        penalty: Term,
        task_weights: NDArray | None,
        cells: CellKinds,
        device: str,
    ) -> None:
        self._folds = folds
        start = Sum(Free(), *on_predictions(penalty))
        designs = [fold.valid_design(cells) for fold in folds]
        #: weight of every group of validation rows
        self.group_weights = folds[0].group_weights
        if task_weights is None:
            self._valid: Any = designs[0]
            alone = [folds[0].problem(start, cells)]
            self._problem: Problem = alone[0]
            self._shares = np.ones(1)
        else:
            self._valid = TaskDesign(designs, task_weights.tolist())
            alone = [fold.problem(Free(), cells) for fold in folds]
            self._problem = tasks.task_problem(
                [part.leaf_design for part in alone],
                [fold.y for fold in folds],
                joined_loss([part.loss for part in alone], [len(fold.y) for fold in folds]),
                start,
                [fold.train.s for fold in folds],
                task_weights.tolist(),
                [float(fold.constant) for fold in folds],
            )
            self._shares = task_weights / task_weights.sum()
            self.group_weights = np.ones(len(self.group_weights))
        self._device, self._state = device, SolverState()
        self._bounds = np.cumsum([len(fold.valid) for fold in folds])[:-1]

    def largest(self, penalty: Term) -> float:
        """Return the largest strength of interest."""
        if is_sparse(penalty):
            return largest_strength(self._with(penalty.at(1.0)), penalty, self._state)
        # A bound of the largest eigenvalue of the data term's Hessian.
        problem, bound = self._problem, self._problem.loss.max_curvature
        shares = (problem.s / problem.s.sum()).astype(problem.design.dtype)
        bound = bound if np.isfinite(bound) else 1.0
        return problem.mass * bound * lipschitz(problem.design, shares, tol=1e-2)

    def path(
        self, penalty: Term, strengths: Sequence[float] | NDArray, factors: Sequence[float] = (1.0,)
    ) -> Iterator[list[_Score]]:
        """Score one strength after the other, each as it is and relaxed by factors."""
        start = self._with(penalty.at(1.0))
        bound = on_weights(penalty.at(1.0)).bind(start.layout)
        known: dict[tuple[bytes, float], tuple[NDArray, bool]] = {}
        steps = follow_path(
            start,
            penalty,
            strengths,
            tol=_TOL,
            max_iter=_MAX_ITER,
            device=self._device,
            state=self._state,
        )
        for strength, solution in zip(strengths, steps, strict=False):
            counts = self._counts(bound, solution.theta)
            support = tasks.support_of(start.layout, solution.theta)
            scores = []
            for factor in factors:
                key = (support.tobytes(), round(float(np.log(strength * factor)), 6))
                if factor == 1.0:
                    known[key] = self._losses(solution.theta), solution.converged
                elif len(factors) > 1 and support.mean() > _MOST_SELECTED:  # nothing to gain
                    known[key] = np.full(len(self.group_weights), np.inf), True
                elif key not in known:
                    known[key] = self._relaxed(penalty.at(strength), factor, support, solution)
                scores.append(_Score(known[key][0], *counts, known[key][1]))
            yield scores

    def compare_biases(self, penalty: Term) -> list[_Score]:
        """Score every bias strength with a few strengths on slopes, relative to the largest.

        A bias strength with which biases alone do far worse than with a stronger one is left out,
        and so are all weaker ones: their losses are infinite.
        """
        scores: list[_Score] = []
        smallest = np.inf
        for bias_strength in BIAS_STRENGTHS:
            filled = penalty.with_bias(bias_strength)
            biases = biases_alone(self._with(filled.at(1.0)), self._state)
            loss = float(self.group_weights @ self._losses(biases))
            smallest = min(smallest, loss)
            if loss > _HOPELESS * smallest:
                break
            largest = self.largest(filled) or 1.0  # slopes may be zero at every strength
            scores += [first for (first,) in self.path(filled, largest * np.array(_FRACTIONS))]
        n_missing = len(BIAS_STRENGTHS) * len(_FRACTIONS) - len(scores)
        hopeless = _Score(np.full(len(self.group_weights), np.inf), 0, 0, True)
        return scores + [hopeless] * n_missing

    def _counts(self, bound: Penalty, theta: NDArray) -> tuple[float, float]:
        """Return the number of common features, and the mean number of a task's further ones."""
        common, specific = (
            np.any(slopes != 0, axis=tuple(range(2, slopes.ndim)))
            for slopes in tasks.split_slopes(bound, self._problem.layout, theta)
        )
        is_common = common.any(axis=0)
        parts = np.split(specific, self._problem.layout.slope_starts[1:-1])
        alone = [np.sum(part.any(axis=0) & ~is_common) for part in parts]
        return float(is_common.sum()), float(np.mean(alone))

    def _relaxed(
        self, penalty: Term, factor: float, support: NDArray[np.bool_], start: Solution
    ) -> tuple[NDArray, bool]:
        """Return losses of the selected features with a weaker penalty, and convergence."""
        problem = self._with(tasks.relaxed(penalty, factor, support))
        solver, goal = choose_solver(problem, "fista", self._device), _TOL * factor
        solution = solver.solve(
            problem, start.theta, tol=goal, max_iter=_MAX_ITER, state=self._state
        )
        return self._losses(solution.theta), solution.converged

    def _with(self, penalty: Term) -> Problem:
        return self._problem.with_penalty(on_weights(penalty))

    def _losses(self, theta: NDArray) -> NDArray[np.float64]:
        """Return sum_t gamma_t loss_t / sum_t gamma_t of every group of validation rows."""
        total = np.zeros(len(self.group_weights))
        by_task = np.split(self._valid.matvec(theta), self._bounds)
        for share, fold, raw in zip(self._shares, self._folds, by_task, strict=True):
            total += share * fold.held_out_losses(raw + fold.constant)
        return total


def choose_strengths(
    make_folds: Sequence[Callable[[], Any]],
    penalty: Term,
    task_weights: NDArray | None = None,
    *,
    cells: CellKinds = "linear",
    one_se: bool = False,
    n_jobs: int = 1,
    device: str = "cpu",
    verbose: bool = False,
) -> StrengthChoice:
    """Choose the strengths with the smallest mean validation loss over the splits.

    The same strengths are tried in all splits, in geometric steps from the smallest at which all
    slopes are zero: 40 down to 1e-4 of it for a single task, 25 down to 1e-3 of it for every ratio
    of the two strengths of a Dirty LASSO (for quadratic penalties from the largest curvature of the
    loss to 1e-7 of it). Paths end when the validation loss has not fallen by half a percent over
    four strengths. With `one_se` the strongest penalty is taken whose loss is within one standard
    error of the smallest; of several tasks the one with the fewest features, over all paths.

    At every point the features that a Dirty LASSO selects are also scored with strengths that are
    three and ten times weaker (`relax`): strengths that keep irrelevant features out shrink what
    the relevant ones do, and a model would look worse than its features are.

    A bias strength that is "auto" is chosen before, with the middle ratio, from 10, 1, 0.1, 0.01,
    0.001 and 0 (free), each with slopes of 1/2, 1/5 and 1/10 of the largest strength.

    Every callable of `make_folds` returns the `Fold` of a split, or with `task_weights` gamma_t
    (T,) one for every task.
    """
    ratios: Sequence[float | None] = [None]
    if any(isinstance(term, TaskNorm) and term.is_ratio_auto for term in penalty.terms):
        assert task_weights is not None
        ratios = ratio_grid(task_weights).tolist()
    steps = len(make_folds) * (1 + penalty.is_bias_auto) + len(ratios)
    progress = Progress(steps, "choosing the strengths", enabled=verbose)

    def make(make_fold: Callable[[], Any]) -> _PathFold:
        folds = make_fold()
        folds = [folds] if task_weights is None else folds
        return _PathFold(folds, penalty, task_weights, cells, device)

    with (
        threadpool_limits(limits=1, user_api="blas"),
        Parallel(n_jobs=n_jobs, prefer="threads") as run,
    ):
        folds = run(delayed(with_progress)(make, progress, fold) for fold in make_folds)
        search = _Search(folds, run, progress, has_tasks=task_weights is not None)
        if penalty.is_bias_auto:
            middle = with_ratio(penalty, ratios[len(ratios) // 2])
            penalty = penalty.with_bias(search.choose_bias_strength(middle))
        paths = [search.path(with_ratio(penalty, ratio)) for ratio in ratios]
    progress.finish()
    penalties = [point for points, _ in paths for point in points]
    table = join_tables([path_table for _, path_table in paths])
    choose = best_row if task_weights is None else _sparsest_row
    k = choose(table, one_se=one_se)
    if not table["converged"][k]:
        _warn_unconverged(penalties[k])
    return StrengthChoice(penalties[k], join_tables([*search.comparisons, table]))


class _Search:
    """Scores of settings on all splits, in tables."""

    def __init__(
        self, folds: Sequence[_PathFold], run: Any, progress: Progress, *, has_tasks: bool
    ) -> None:
        self._folds, self._run, self._progress = folds, run, progress
        self._has_tasks, self._bias_strength = has_tasks, np.nan
        #: tables of bias strengths that were compared before the paths
        self.comparisons: list[Table] = []

    def path(self, penalty: Term) -> tuple[list[Term], Table]:
        """Score a path of strengths; it ends when the loss has hardly fallen for some of them."""
        largest = max(self._run(delayed(fold.largest)(penalty) for fold in self._folds))
        n_strengths, ratio = _N_STRENGTHS, _SPARSE_RATIO
        if self._has_tasks:
            n_strengths, ratio = _N_TASK_STRENGTHS, _TASK_SPARSE_RATIO
        ratio = ratio if is_sparse(penalty) else _QUADRATIC_RATIO
        strengths = strength_grid(largest, n_strengths, ratio)
        relax = tasks.relax_of(penalty)
        factors = RELAX if relax == AUTO else (relax,)
        paths = [fold.path(penalty, strengths, factors) for fold in self._folds]
        points: list[Term] = []
        settings: list[tuple[_Score, ...]] = []
        losses: list[float] = []
        for strength in strengths:
            scores = self._run(delayed(next)(path) for path in paths)
            settings += zip(*scores, strict=True)
            points += [with_relax(penalty.at(float(strength)), factor) for factor in factors]
            losses.append(min(self._mean_loss(setting) for setting in settings[-len(factors) :]))
            if path_has_ended(losses):
                break
        self._progress.step()
        tried = np.repeat(strengths, len(factors))[: len(points)]
        bias_strengths = np.full(len(points), self._bias_strength)
        return points, self._table(points, tried, bias_strengths, settings)

    def choose_bias_strength(self, penalty: Term) -> float:
        """Return the best bias strength."""
        scores = self._run(
            delayed(with_progress)(fold.compare_biases, self._progress, penalty)
            for fold in self._folds
        )
        settings = list(zip(*scores, strict=True))
        tried = np.repeat(BIAS_STRENGTHS, len(_FRACTIONS))
        points = [penalty.with_bias(bias_strength) for bias_strength in tried.tolist()]
        unknown = np.full(len(tried), np.nan)  # differs from split to split
        table = self._table(points, unknown, tried, settings)
        self.comparisons.append(table)
        self._bias_strength = float(tried[np.argmin(table["mean_loss"])])
        return self._bias_strength

    def _mean_loss(self, setting: Sequence[_Score]) -> float:
        weights = np.concatenate([fold.group_weights for fold in self._folds])
        losses = np.concatenate([score.losses for score in setting])
        return float(np.average(losses, weights=weights))

    def _table(
        self,
        penalties: Sequence[Term],
        strengths: NDArray,
        bias_strengths: NDArray,
        settings: Sequence[Sequence[_Score]],
    ) -> Table:
        """Return the scores of every setting; `settings` holds one score per split for each."""
        losses = np.stack([np.concatenate([s.losses for s in scores]) for scores in settings], 1)
        common = np.array([np.mean([s.n_common for s in scores]) for scores in settings])
        specific = np.array([np.mean([s.n_specific for s in scores]) for scores in settings])
        table = {"strength": strengths, "bias_strength": bias_strengths}
        if self._has_tasks:
            table = {
                **_task_strengths(penalties, strengths),
                "mean_common": common,
                "mean_specific": specific,
            }
        return {
            **table,
            "on_path": ~np.isnan(strengths),
            **loss_columns(self._folds, [losses]),  # type: ignore[arg-type]
            "mean_selected": common + specific,
            "converged": np.array([all(s.converged for s in scores) for scores in settings]),
        }


def _task_strengths(penalties: Sequence[Term], strengths: NDArray) -> Table:
    """Return the strengths of settings of several tasks; NaN where there is none on a path."""
    rows = []
    for penalty, strength in zip(penalties, strengths, strict=True):
        pair, relax = tasks.task_strengths(penalty), tasks.relax_of(penalty)
        if np.isnan(strength):
            pair, relax = (np.nan, np.nan), 1.0
        term = next((t for t in penalty.terms if isinstance(t, TaskNorm)), penalty.terms[0])
        numbers = [v if isinstance(v, int | float) else np.nan for v in (term.bias_strength, relax)]
        rows.append([*pair, *numbers])
    names = ("common", "task", "bias_strength", "relax")
    return dict(zip(names, np.array(rows, float).T, strict=True))


def _sparsest_row(table: Table, *, one_se: bool) -> int:
    """Return the row with the smallest loss, or the fewest features within one standard error."""
    mean = table["mean_loss"]
    best = int(np.argmin(mean))
    if not one_se:
        return best
    near = np.flatnonzero(mean <= mean[best] + table["se_loss"][best])
    fewest = near[table["mean_selected"][near] == table["mean_selected"][near].min()]
    return int(fewest[np.argmin(mean[fewest])])


def path_has_ended(losses: Sequence[float]) -> bool:
    """Whether the last strengths of a path gained next to nothing."""
    return min(losses[-_PATIENCE:]) > (1 - _GAIN) * min([*losses[:-_PATIENCE], np.inf])


def ratio_grid(task_weights: NDArray, n_ratios: int = N_RATIOS) -> NDArray[np.float64]:
    """Return ratios common / task from where everything is common to where nothing gains by it.

    The last is a hair's breadth below |gamma|: both parts cost the same there, and what all
    tasks use counts as common.
    """
    low, high = float(task_weights.min()), float(np.linalg.norm(task_weights))
    if high <= low * (1 + 1e-9):  # a single task
        return np.array([high])
    return np.geomspace(low, high * (1 - 1e-6), n_ratios)


def with_ratio(penalty: Term, ratio: float | None) -> Any:
    """Return the penalty with this ratio of strengths, where it has one to choose."""

    def change(term: Any) -> Any:
        has_ratio = isinstance(term, TaskNorm) and term.is_ratio_auto
        return term.with_ratio(ratio) if has_ratio else term

    return penalty if ratio is None else mapped(penalty, change)


def with_relax(penalty: Term, factor: float) -> Any:
    """Return the penalty relaxed by this factor, where it can be."""

    def change(term: Any) -> Any:
        is_auto = isinstance(term, TaskNorm) and term.relax == AUTO
        return term.replaced(relax=factor) if is_auto else term

    return mapped(penalty, change)


def is_sparse(penalty: Term) -> bool:
    """Whether a strength to choose belongs to a penalty that can hold all slopes at zero."""
    parts = [term.penalty if isinstance(term, PerTask) else term for term in penalty.terms]
    return any(part.is_auto and not isinstance(part, Frobenius) for part in parts)


def _warn_unconverged(best: Term) -> None:
    warnings.warn(
        f"{best!r} was chosen by solves that had not converged within {_MAX_ITER} iterations, "
        "so its validation loss is not exact: give a strength, or fewer or smaller partitions",
        ConvergenceWarning,
        stacklevel=6,
    )
