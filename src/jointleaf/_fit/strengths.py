"""Choice of the strength of any penalty by honest cross-validation along a warm-started path."""

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

from jointleaf._core.layout import CellKind
from jointleaf._core.path import biases_alone, follow_path, largest_strength, strength_grid
from jointleaf._core.penalties import Free, Frobenius, PerTask, Term
from jointleaf._core.penalties.sums import on_weights
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers.active import live_features
from jointleaf._fit.component import Table
from jointleaf._fit.folds import Fold, best_row, join_tables, loss_columns, with_progress

__all__ = [
    "BIAS_STRENGTHS",
    "PathFold",
    "StrengthChoice",
    "choose_strength",
    "is_sparse",
    "largest_curvature",
    "path_has_ended",
    "warn_unconverged",
]

_N_STRENGTHS = 40
# Of the last strength to the first: paths end earlier, when the validation loss rises.
_SPARSE_RATIO, _QUADRATIC_RATIO = 1e-4, 1e-7
_PATIENCE, _GAIN = 4, 5e-3  # a path ends when so many strengths gained less than this share
_SHARES = (0.5, 0.2, 0.1)  # of the largest strength, at which strengths on biases are compared
_HOPELESS = 2.0  # times the loss of the best biases alone
BIAS_STRENGTHS = (10.0, 1.0, 0.1, 0.01, 1e-3, 0.0)  # from strong to weak, the last free
_TOL = 3e-3
_MAX_ITER = 1000


@dataclass(frozen=True)
class StrengthChoice:
    """What the cross-validation found.

    Attributes
    ----------
    best : Term
        The penalty with its strengths.
    table : dict of arrays
        One entry per setting tried, on every path from strong to weak: strength (NaN
        where bias strengths were compared), bias_strength (NaN where it was not chosen), on_path
        (False: bias strengths were compared), mean_loss (weighted mean validation loss over all
        folds, in units of the target's variance for regression; infinite for hopeless bias
        strengths), std_loss (over groups of validation rows), se_loss (standard error of the
        mean), mean_selected (features with slopes, mean over folds) and converged.
    """

    best: Term
    table: Table = field(repr=False)


class Judged(NamedTuple):
    """One setting in one fold: losses of the groups, features with slopes, convergence."""

    losses: NDArray[np.float64]
    n_selected: int
    converged: bool


class PathFold(Fold):
    """A fold that judges the strengths of one penalty."""

    def prepare(self, cells: CellKind, device: str = "cpu") -> None:
        """Set up the problem, for a device; its penalty changes from call to call."""
        self._problem = self.problem(Free(), cells, self.loss, self.y)
        self._problem.device = device
        self._valid = self.valid_design(cells)
        self._target = self.loss.encode(self.y_valid)

    def largest(self, penalty: Term) -> float:
        """The largest strength of interest."""
        if not is_sparse(penalty):
            return largest_curvature(self._problem)
        return largest_strength(self._with(penalty.at(1.0)), penalty)

    def path(self, penalty: Term, strengths: Sequence[float] | NDArray) -> Iterator[Judged]:
        """Judge one strength after the other."""
        start = self._with(penalty.at(1.0))
        for solution in follow_path(start, penalty, strengths, tol=_TOL, max_iter=_MAX_ITER):
            theta = solution.theta
            yield Judged(self._losses(theta), len(live_features(theta)), solution.converged)

    def judge_biases(self, penalty: Term) -> list[Judged]:
        """Judge every strength on biases with a few strengths on slopes, relative to the largest.

        A strength on biases with which they alone do far worse than with a stronger one is
        left out, and so are all weaker ones: their losses are infinite.
        """
        judged: list[Judged] = []
        smallest = np.inf
        for bias_strength in BIAS_STRENGTHS:
            filled = penalty.with_bias(bias_strength)
            alone = float(
                self.group_weights @ self._losses(biases_alone(self._with(filled.at(1.0))))
            )
            smallest = min(smallest, alone)
            if alone > _HOPELESS * smallest:
                break
            largest = self.largest(filled) or 1.0  # slopes may be zero at every strength
            judged += self.path(filled, largest * np.array(_SHARES))
        n_missing = len(BIAS_STRENGTHS) * len(_SHARES) - len(judged)
        return judged + [Judged(np.full(len(self.group_weights), np.inf), 0, True)] * n_missing

    def _with(self, penalty: Term) -> Problem:
        return self._problem.with_penalty(on_weights(penalty))

    def _losses(self, theta: NDArray) -> NDArray[np.float64]:
        raw = self._valid.matvec(theta) + self._problem.offset
        return self.group_losses(self.loss, self._target, raw)


def choose_strength(
    make_folds: Sequence[Callable[..., PathFold]],
    penalty: Term,
    *,
    cells: CellKind = "linear",
    one_se: bool = False,
    n_jobs: int = 1,
    device: str = "cpu",
    verbose: bool = False,
) -> StrengthChoice:
    """Choose the strength with the smallest mean validation loss over the folds.

    The same strengths are tried in all folds: 40 in geometric steps from the smallest at which all
    slopes are zero to 1e-4 of it (for quadratic penalties from the largest curvature of the loss
    to 1e-7 of it). Paths end when the validation loss has not fallen by half a percent over four
    strengths. With `one_se` the strongest penalty is taken whose loss is within one standard error
    of the smallest.

    A bias strength that is "auto" is chosen before, from 10, 1, 0.1, 0.01, 0.001 and 0 (free),
    each with slopes of 1/2, 1/5 and 1/10 of the largest strength.
    """
    progress = Progress(
        (2 + penalty.is_bias_auto) * len(make_folds), "choosing the strength", enabled=verbose
    )
    with (
        threadpool_limits(limits=1, user_api="blas"),
        Parallel(n_jobs=n_jobs, prefer="threads") as run,
    ):
        folds = run(delayed(with_progress)(make, progress) for make in make_folds)
        search = _Search(folds, penalty, run, progress)
        for fold in folds:
            fold.prepare(cells, device)
        bias_strength = search.bias_strength() if penalty.is_bias_auto else None
        line = search.path(bias_strength)
    progress.finish()
    k = best_row(line, one_se=one_se)
    chosen = penalty if bias_strength is None else penalty.with_bias(bias_strength)
    best = chosen.at(float(line["strength"][k]))
    if not line["converged"][k]:
        warn_unconverged(best, _MAX_ITER)
    return StrengthChoice(best, join_tables(search.tables))


class _Search:
    """Runs the folds and keeps the tables of what they found."""

    def __init__(
        self, folds: Sequence[PathFold], penalty: Term, run: Any, progress: Progress
    ) -> None:
        self._folds, self._penalty = folds, penalty
        self._run, self._progress = run, progress
        self.tables: list[Table] = []

    def path(self, bias_strength: float | None) -> Table:
        """Judge a path of strengths, with this strength on biases or the penalty's own.

        It ends when the loss has hardly fallen for some strengths.
        """
        penalty = self._penalty
        if bias_strength is not None:
            penalty = penalty.with_bias(bias_strength)
        largest = max(self._run(delayed(fold.largest)(penalty) for fold in self._folds))
        ratio = _SPARSE_RATIO if is_sparse(penalty) else _QUADRATIC_RATIO
        strengths = strength_grid(largest, _N_STRENGTHS, ratio)
        paths = [fold.path(penalty, strengths) for fold in self._folds]
        columns: list[list[Judged]] = []
        mean: list[float] = []
        weights = np.concatenate([fold.group_weights for fold in self._folds])
        for _ in strengths:
            columns.append(self._run(delayed(next)(path) for path in paths))
            self._progress.step()
            mean.append(float(weights @ np.concatenate([fold.losses for fold in columns[-1]])))
            if path_has_ended(mean):
                break
        tried = strengths[: len(columns)]
        bias = np.nan if bias_strength is None else bias_strength
        return self._table(tried, np.full(len(tried), bias), columns, on_path=True)

    def bias_strength(self) -> float:
        """The best strength on biases."""
        found = self._run(
            delayed(with_progress)(fold.judge_biases, self._progress, self._penalty)
            for fold in self._folds
        )
        bias_strengths = np.repeat(BIAS_STRENGTHS, len(_SHARES))
        unknown = np.full(len(bias_strengths), np.nan)  # differs from fold to fold
        columns = [list(column) for column in zip(*found, strict=True)]
        table = self._table(unknown, bias_strengths, columns, on_path=False)
        return float(bias_strengths[best_row(table, one_se=False)])

    def _table(
        self,
        strengths: NDArray,
        bias_strengths: NDArray,
        columns: list[list[Judged]],
        *,
        on_path: bool,
    ) -> Table:
        """What was found at every setting; `columns` holds one list of folds per setting."""
        losses = np.stack([np.concatenate([j.losses for j in column]) for column in columns], 1)
        table = {
            "strength": strengths,
            "bias_strength": bias_strengths,
            "on_path": np.full(len(strengths), on_path),
            **loss_columns(self._folds, [losses]),
            "mean_selected": np.array([np.mean([j.n_selected for j in c]) for c in columns]),
            "converged": np.array([all(j.converged for j in c) for c in columns]),
        }
        self.tables.append(table)
        return table


def path_has_ended(losses: Sequence[float]) -> bool:
    """Whether the last strengths of a path gained next to nothing."""
    return min(losses[-_PATIENCE:]) > (1 - _GAIN) * min([*losses[:-_PATIENCE], np.inf])


def warn_unconverged(best: Term, max_iter: int) -> None:
    """Say that the chosen strength was judged by solves that had not converged."""
    warnings.warn(
        f"{best!r} was chosen by solves that had not converged within {max_iter} iterations, "
        "so its validation loss is not exact: give a strength, or fewer or smaller partitions",
        ConvergenceWarning,
        stacklevel=6,
    )


def is_sparse(penalty: Term) -> bool:
    """Whether a strength to choose belongs to a penalty that can hold all slopes at zero."""
    parts = [term.penalty if isinstance(term, PerTask) else term for term in penalty.terms]
    return any(part.is_auto and not isinstance(part, Frobenius) for part in parts)


def largest_curvature(problem: Problem) -> float:
    """A bound of the largest eigenvalue of the data term's Hessian."""
    shares = problem.s / problem.s.sum()
    bound = problem.loss.max_curvature if np.isfinite(problem.loss.max_curvature) else 1.0
    return bound * problem.design.lipschitz(shares.astype(problem.design.dtype), tol=1e-2)
