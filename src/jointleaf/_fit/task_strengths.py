"""Choice of the strengths of a penalty on several tasks by honest cross-validation.

For a Dirty LASSO this is a search over two strengths. Their ratio common / task decides what is
common: from min gamma (everything) to |gamma| (nothing), in steps of equal factors of its square,
about the number of tasks that must need a feature for it to be common. For every ratio the
strengths follow a warm-started path from where all slopes are zero.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from jointleaf._core.layout import CellKind
from jointleaf._core.path import biases_alone, follow_path, largest_strength, strength_grid
from jointleaf._core.penalties import Free, Penalty, PredictionPenalty, TaskNorm, Term
from jointleaf._core.penalties.base import AUTO
from jointleaf._core.penalties.sums import Sum, on_weights
from jointleaf._core.progress import Progress
from jointleaf._core.relaxing import relax_of, relaxed, support_of
from jointleaf._core.solvers import Solution, choose_solver
from jointleaf._core.task_problem import TaskProblem
from jointleaf._core.task_solution import split_slopes
from jointleaf._data.rows import Rows
from jointleaf._fit.component import Table
from jointleaf._fit.folds import join_tables, loss_columns, with_progress
from jointleaf._fit.strengths import (
    BIAS_STRENGTHS,
    StrengthChoice,
    is_sparse,
    largest_curvature,
    path_has_ended,
    warn_unconverged,
)
from jointleaf._fit.task_parts import TaskParts

__all__ = ["TaskFold", "choose_task_strengths", "ratio_grid"]

N_RATIOS = 4
_N_STRENGTHS, _SPARSE_RATIO, _QUADRATIC_RATIO = 25, 1e-3, 1e-7
_SHARES = (0.5, 0.2, 0.1)  # of the largest strength, at which strengths on biases are compared
_HOPELESS = 2.0  # times the loss of the best biases alone
_MIN_GROUPS = 10  # of validation rows over all folds
_TOL, _MAX_ITER = 3e-3, 1000
_STEP = _SPARSE_RATIO ** (1 / (_N_STRENGTHS - 1))  # from one strength to the next
# By what strengths are multiplied for the features selected: whole steps along the path, so that
# neighbours on it with the same features share their answers.
RELAX = (1.0, _STEP**4, _STEP**8)
_MOST_SELECTED = 0.5  # of all features, with which relaxed strengths are still tried


class Judged(NamedTuple):
    """One setting in one fold: losses of groups of rows, counts of features, convergence."""

    losses: NDArray[np.float64]
    n_common: float
    n_specific: float
    converged: bool


class TaskFold:
    """One split of the rows of every task; judges strengths on the validation rows.

    Parameters
    ----------
    parts : TaskParts
        Of the training rows, with partitions grown on these alone.
    valid : sequence of Rows
        Validation rows of every task.
    units : sequence of float
        Units of the targets, the same for all folds.
    task_weights : array (T,)
        gamma_t. The loss is the data term on the validation rows, over sum_t gamma_t.
    n_folds : int
    cells : {"linear", "constant"}
    extra : sequence of PredictionPenalty
        Terms on predictions, which stay as they are.
    """

    def __init__(
        self,
        parts: TaskParts,
        valid: Sequence[Rows],
        units: Sequence[float],
        task_weights: NDArray,
        *,
        n_folds: int,
        cells: CellKind,
        extra: Sequence[PredictionPenalty] = (),
        device: str = "cpu",
    ) -> None:
        self._valid, self._frames = list(valid), parts.frames
        self._shares = task_weights / task_weights.sum()
        self._scales = [
            (frame.unit / unit) ** 2 for frame, unit in zip(parts.frames, units, strict=True)
        ]
        n_groups = min(-(-_MIN_GROUPS // n_folds), *(len(own) for own in valid))
        self._groups = [np.array_split(np.arange(len(own)), n_groups) for own in valid]
        #: weight of every group
        self.group_weights = np.ones(n_groups)
        self._problem = parts.problem(Sum(Free(), *extra), cells, task_weights)
        self._problem.device = device
        self._designs = parts.designs(valid, cells)

    def largest(self, penalty: Term) -> float:
        """The largest strength of interest."""
        if not is_sparse(penalty):
            return self._problem.mass * largest_curvature(self._problem)
        return largest_strength(self._with(penalty.at(1.0)), penalty)

    def path(
        self,
        penalty: Term,
        strengths: Sequence[float] | NDArray,
        factors: Sequence[float] = (1.0,),
    ) -> Iterator[list[Judged]]:
        """Judge one strength after the other, each as it is and relaxed by factors."""
        start = self._with(penalty.at(1.0))
        bound = on_weights(penalty.at(1.0)).bind(start.layout)
        known: dict[tuple[bytes, float], tuple[NDArray, bool]] = {}
        steps = follow_path(start, penalty, strengths, tol=_TOL, max_iter=_MAX_ITER)
        for strength, solution in zip(strengths, steps, strict=False):
            counts = self._counts(bound, solution.theta)
            support = support_of(start.layout, solution.theta)
            judged = []
            for factor in factors:
                key = (support.tobytes(), round(float(np.log(strength * factor)), 6))
                if factor == 1.0:
                    known[key] = self._losses(solution.theta), solution.converged
                elif len(factors) > 1 and support.mean() > _MOST_SELECTED:  # nothing to gain
                    known[key] = np.full(len(self.group_weights), np.inf), True
                elif key not in known:
                    known[key] = self._relaxed(penalty.at(strength), factor, support, solution)
                judged.append(Judged(known[key][0], *counts, known[key][1]))
            yield judged

    def _counts(self, bound: Penalty, theta: NDArray) -> tuple[float, float]:
        """Number of common features, and mean number of further features of a task."""
        common, specific = split_slopes(bound, theta)
        is_common = np.any(common != 0, axis=0)
        parts = np.split(specific, self._problem.layout.task_starts[1:-1])
        alone = [np.sum(np.any(part != 0, axis=0) & ~is_common) for part in parts]
        return float(is_common.sum()), float(np.mean(alone))

    def _relaxed(
        self, penalty: Term, factor: float, support: NDArray[np.bool_], start: Solution
    ) -> tuple[NDArray, bool]:
        """Losses of the selected features with a weaker penalty, and convergence."""
        problem = self._with(relaxed(penalty, factor, support))
        goal = _TOL * factor
        solver = choose_solver(problem, "fista")
        found = solver.solve(problem, start.theta, tol=goal, max_iter=_MAX_ITER)
        return self._losses(found.theta), found.converged

    def judge_biases(self, penalty: Term) -> list[Judged]:
        """Judge every strength on biases with a few strengths on slopes, relative to the largest.

        A strength on biases with which they alone do far worse than with a stronger one is
        left out, and so are all weaker ones: their losses are infinite.
        """
        judged: list[Judged] = []
        smallest = np.inf
        for bias_strength in BIAS_STRENGTHS:
            filled = penalty.with_bias(bias_strength)
            alone = float(self._losses(biases_alone(self._with(filled.at(1.0)))).mean())
            smallest = min(smallest, alone)
            if alone > _HOPELESS * smallest:
                break
            largest = self.largest(filled) or 1.0  # slopes may be zero at every strength
            strengths = largest * np.array(_SHARES)
            judged += [first for (first,) in self.path(filled, strengths)]
        n_missing = len(BIAS_STRENGTHS) * len(_SHARES) - len(judged)
        return judged + [Judged(np.full(len(self.group_weights), np.inf), 0, 0, True)] * n_missing

    def _with(self, penalty: Term) -> TaskProblem:
        problem = self._problem.with_penalty(on_weights(penalty))
        assert isinstance(problem, TaskProblem)
        return problem

    def _losses(self, theta: NDArray) -> NDArray[np.float64]:
        """sum_t gamma_t loss_t / sum_t gamma_t of every group of validation rows."""
        total = np.zeros(len(self.group_weights))
        parts = np.split(theta, self._problem.layout.task_starts[1:-1])
        for t, (part, design, own, frame) in enumerate(
            zip(parts, self._designs, self._valid, self._frames, strict=True)
        ):
            raw = design.matvec(part) + frame.offset
            target = frame.loss.encode(frame.target(own.y))
            losses = [frame.loss.value(target[g], raw[g], own.s[g]) for g in self._groups[t]]
            scale = self._scales[t] if frame.loss.is_quadratic else 1.0
            total += self._shares[t] * scale * np.array(losses)
        return total


def ratio_grid(task_weights: NDArray, n_ratios: int = N_RATIOS) -> NDArray[np.float64]:
    """Ratios common / task from where everything is common to where nothing is gained by it.

    The last is a hair's breadth below |gamma|: both parts cost the same there, and what all
    tasks use counts as common.
    """
    low, high = float(task_weights.min()), float(np.linalg.norm(task_weights))
    if high <= low * (1 + 1e-9):  # a single task
        return np.array([high])
    return np.geomspace(low, high * (1 - 1e-6), n_ratios)


def choose_task_strengths(
    make_folds: Sequence[Callable[[], TaskFold]],
    penalty: Term,
    task_weights: NDArray,
    *,
    one_se: bool,
    n_jobs: int = 1,
    verbose: bool = False,
) -> StrengthChoice:
    """Choose strengths by the mean validation loss over the folds.

    For every ratio of the two strengths of a Dirty LASSO (four; other penalties have one strength
    and one path) 25 strengths in geometric steps from the smallest at which all slopes are zero
    to 1e-3 of it, in all folds the same. Paths end when the validation loss has not fallen by half
    a percent over four strengths. With `one_se` the sparsest answer is taken, over all paths,
    whose loss is within one standard error of the smallest.

    At every point the features that it selects are also judged with strengths that are three and
    ten times weaker (`relax`): strengths that keep irrelevant features out shrink what the relevant
    ones do, and a model would look worse than its features are.

    A bias strength that is "auto" is chosen before, with the middle ratio, from 10, 1, 0.1, 0.01,
    0.001 and 0 (free), each with slopes of 1/2, 1/5 and 1/10 of the largest strength.
    """
    ratios: Sequence[float | None] = [None]
    if any(isinstance(term, TaskNorm) and term.is_ratio_auto for term in penalty.terms):
        ratios = ratio_grid(task_weights).tolist()
    steps = len(make_folds) * (1 + penalty.is_bias_auto) + len(ratios)
    progress = Progress(steps, "choosing the strengths", enabled=verbose)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        Parallel(n_jobs=n_jobs, prefer="threads") as run,
    ):
        folds = run(delayed(with_progress)(make, progress) for make in make_folds)
        search = _Search(folds, run, progress)
        if penalty.is_bias_auto:
            middle = with_ratio(penalty, ratios[len(ratios) // 2])
            penalty = penalty.with_bias(search.bias_strength(middle))
        found = [search.path(with_ratio(penalty, ratio)) for ratio in ratios]
    progress.finish()
    points = [point for tried, _ in found for point in tried]
    paths = join_tables([table for _, table in found])
    k = _choose(paths, one_se=one_se)
    best = points[k]
    if not paths["converged"][k]:
        warn_unconverged(best, _MAX_ITER)
    return StrengthChoice(best, join_tables([*search.comparisons, paths]))


def with_ratio(penalty: Term, ratio: float | None) -> Any:
    """The penalty with this ratio of strengths, where it has one to choose."""
    if ratio is None:
        return penalty
    if isinstance(penalty, Sum):
        return Sum(*(with_ratio(term, ratio) for term in penalty.terms))
    if isinstance(penalty, TaskNorm) and penalty.is_ratio_auto:
        return penalty.with_ratio(ratio)
    return penalty


def with_relax(penalty: Term, factor: float) -> Any:
    """The penalty relaxed by this factor, where it can be."""
    if isinstance(penalty, Sum):
        return Sum(*(with_relax(term, factor) for term in penalty.terms))
    if not isinstance(penalty, TaskNorm) or penalty.relax != AUTO:
        return penalty
    other = copy.copy(penalty)
    other.relax = factor
    return other


def _choose(table: Table, *, one_se: bool) -> int:
    """The smallest loss, or the fewest features within one standard error of it."""
    mean = table["mean_loss"]
    best = int(np.argmin(mean))
    if not one_se:
        return best
    near = np.flatnonzero(mean <= mean[best] + table["se_loss"][best])
    fewest = near[table["mean_selected"][near] == table["mean_selected"][near].min()]
    return int(fewest[np.argmin(mean[fewest])])


class _Search:
    """Runs the folds and keeps what was compared before the paths."""

    def __init__(self, folds: Sequence[TaskFold], run: Any, progress: Progress) -> None:
        self._folds, self._run, self._progress = folds, run, progress
        self.comparisons: list[Table] = []

    def path(self, penalty: Term) -> tuple[list[Term], Table]:
        """Judge a path of strengths; it ends when the loss has hardly fallen for some of them."""
        largest = max(self._run(delayed(fold.largest)(penalty) for fold in self._folds))
        ratio = _SPARSE_RATIO if is_sparse(penalty) else _QUADRATIC_RATIO
        strengths = strength_grid(largest, _N_STRENGTHS, ratio)
        relax = relax_of(penalty)
        factors = RELAX if relax == AUTO else (relax,)
        paths = [fold.path(penalty, strengths, factors) for fold in self._folds]
        tried: list[Term] = []
        columns: list[list[Judged]] = []
        smallest: list[float] = []
        for strength in strengths:
            found = self._run(delayed(next)(path) for path in paths)
            new = [[fold[k] for fold in found] for k in range(len(factors))]
            columns += new
            tried += [with_relax(penalty.at(strength), factor) for factor in factors]
            smallest.append(min(_mean_loss(column) for column in new))
            if path_has_ended(smallest):
                break
        self._progress.step()
        return tried, self._table(tried, columns, on_path=True)

    def bias_strength(self, penalty: Term) -> float:
        """The best strength on biases."""
        found = self._run(
            delayed(with_progress)(fold.judge_biases, self._progress, penalty)
            for fold in self._folds
        )
        columns = [list(column) for column in zip(*found, strict=True)]
        tried = np.repeat(BIAS_STRENGTHS, len(_SHARES))
        table = self._table([penalty.with_bias(b) for b in tried], columns, on_path=False)
        self.comparisons.append(table)
        return float(tried[np.argmin(table["mean_loss"])])

    def _table(
        self, penalties: Sequence[Term], columns: list[list[Judged]], *, on_path: bool
    ) -> Table:
        """What was found at every setting; `columns` holds one list of folds per setting."""
        losses = np.stack([np.concatenate([j.losses for j in column]) for column in columns], 1)
        common = np.array([np.mean([j.n_common for j in column]) for column in columns])
        specific = np.array([np.mean([j.n_specific for j in column]) for column in columns])
        return {
            **_strength_columns(penalties, known=on_path),
            "on_path": np.full(len(columns), on_path),
            **loss_columns(self._folds, [losses]),  # type: ignore[arg-type]
            "mean_common": common,
            "mean_specific": specific,
            "mean_selected": common + specific,
            "converged": np.array([all(j.converged for j in column) for column in columns]),
        }


def _strength_columns(penalties: Sequence[Term], *, known: bool) -> Table:
    """Strengths of every setting; NaN where there is none or it differs from fold to fold."""
    rows = []
    for penalty in penalties:
        term = next((t for t in penalty.terms if isinstance(t, TaskNorm)), penalty.terms[0])
        pair = (term.common, term.task) if isinstance(term, TaskNorm) else (term.strength, None)
        strengths = [_number(x) if known else np.nan for x in pair]
        rows.append([*strengths, _number(term.bias_strength), relax_of(penalty) if known else 1.0])
    common, task, bias, relax = np.array(rows, float).T
    return {"common": common, "task": task, "bias_strength": bias, "relax": relax}


def _mean_loss(column: list[Judged]) -> float:
    """Over all groups of all folds."""
    return float(np.mean(np.concatenate([judged.losses for judged in column])))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else np.nan
