"""Choice of the strength of any penalty by honest cross-validation along a warm-started path."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from jointleaf.layout import CellKind
from jointleaf.path import biases_alone, follow_path, largest_strength, strength_grid
from jointleaf.penalties import Free, Frobenius, Term
from jointleaf.penalties.sums import on_weights
from jointleaf.problem import Problem
from jointleaf.progress import Progress
from jointleaf.solvers import FISTA
from jointleaf.solvers.active import live_features
from jointleaf.tuning.folds import Fold, Table, choose, joined, loss_columns, stepping

__all__ = ["PathFold", "StrengthChoice", "choose_strength"]

_N_STRENGTHS = 40
# Of the last strength to the first: paths end earlier, when the validation loss rises.
_SPARSE_RATIO, _QUADRATIC_RATIO = 1e-4, 1e-7
_PATIENCE = 4  # strengths without a smaller validation loss after which a path ends
BIAS_STRENGTHS = (10.0, 1.0, 0.1, 0.01, 1e-3, 0.0)  # from strong to weak, the last free
_TOL = 3e-3
_MAX_ITER = 1000

Losses = tuple[NDArray, NDArray, NDArray]  # (groups, settings); features with slopes; convergence


@dataclass(frozen=True)
class StrengthChoice:
    """What the cross-validation found.

    Attributes
    ----------
    best : Term
        The penalty with its strengths.
    table : dict of arrays
        One entry per setting tried, on every path from strong to weak: strength, bias_strength
        (NaN where it was not chosen), on_path (False: bias strengths were compared), mean_loss
        (weighted mean validation loss over all folds, in units of the target's variance for
        regression; infinite where paths had ended), std_loss (over groups of validation rows),
        se_loss (standard error of the mean), mean_selected (features with slopes, mean over
        folds) and converged.
    """

    best: Term
    table: Table = field(repr=False)


class PathFold(Fold):
    """A fold that judges the strengths of one penalty."""

    def prepare(self, cells: CellKind) -> None:
        """Set up the problem; its penalty changes from call to call."""
        self._cells = cells
        self._problem = self.problem(Free(), cells, self.loss, self.y)
        self._valid = self.valid_design(cells)
        self._target = self.loss.encode(self.y_valid)

    def largest(self, penalty: Term) -> float:
        """The largest strength of interest."""
        if not _is_sparse(penalty):
            return _largest_curvature(self._problem)
        return largest_strength(self._with(penalty.at(1.0)), penalty)

    def path_losses(self, penalty: Term, strengths: Sequence[float]) -> Losses:
        """Judge all strengths; the path ends when the loss has not fallen for some of them."""
        solutions = follow_path(
            self._with(penalty.at(1.0)), penalty, strengths, tol=_TOL, max_iter=_MAX_ITER
        )
        weights = ((solution.theta, solution.converged) for solution in solutions)
        return self._judge(weights, len(strengths), patience=_PATIENCE)

    def bias_losses(self, penalty: Term, strength: float | None) -> Losses:
        """Judge all strengths on biases, with the given strength on slopes or without slopes."""
        return self._judge(self._bias_weights(penalty, strength), len(BIAS_STRENGTHS))

    def _bias_weights(
        self, penalty: Term, strength: float | None
    ) -> Iterator[tuple[NDArray, bool]]:
        theta = None
        for bias_strength in BIAS_STRENGTHS:
            point = self._with(penalty.with_bias(bias_strength).at(strength or 1.0))
            if strength is None:
                yield biases_alone(point), True
            else:
                solution = FISTA().solve(point, theta, tol=0.1 * _TOL, max_iter=_MAX_ITER)
                theta = solution.theta
                yield theta, solution.converged

    def _with(self, penalty: Term) -> Problem:
        return self._problem.with_penalty(on_weights(penalty))

    def _judge(
        self, weights: Iterable[tuple[NDArray, bool]], count: int, patience: int | None = None
    ) -> Losses:
        losses = np.full((len(self.weights), count), np.inf)
        mean = np.full(count, np.inf)
        selected, converged = np.zeros(count), np.ones(count, bool)
        for k, (theta, converged[k]) in enumerate(weights):
            raw = self._valid.matvec(theta) + self._problem.offset
            losses[:, k] = self.group_losses(self.loss, self._target, raw)
            mean[k] = self.weights @ losses[:, k]
            selected[k] = len(live_features(theta))
            if patience and k >= patience and int(np.argmin(mean[: k + 1])) <= k - patience:
                break
        return losses, selected, converged


def choose_strength(
    make_folds: Sequence[Callable[..., PathFold]],
    penalty: Term,
    *,
    cells: CellKind = "linear",
    one_se: bool = False,
    n_jobs: int = 1,
    verbose: bool = False,
) -> StrengthChoice:
    """Choose the strength with the smallest mean validation loss over the folds.

    The same strengths are tried in all folds: 40 in geometric steps from the smallest at which all
    slopes are zero to 1e-4 of it (for quadratic penalties from the largest curvature of the loss
    to 1e-7 of it). Paths end when the validation loss has not fallen for four strengths. With
    `one_se` the strongest penalty is taken whose loss is within one standard error of the smallest.

    A bias strength that is "auto" is chosen first with all slopes at zero, then once more with the
    slopes that the best strength gives; where it changes, so may the strength, and its path is
    followed again.
    """
    progress = Progress(6 * len(make_folds), "choosing the strength", enabled=verbose)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        Parallel(n_jobs=n_jobs, prefer="threads") as run,
    ):
        folds = run(delayed(stepping)(make, progress) for make in make_folds)
        search = _Search(folds, penalty, run, progress)
        for fold in folds:
            fold.prepare(cells)
        if not penalty.is_bias_auto:
            line, bias_strength = search.path(None), None
        else:
            bias_strength = search.bias_strength(None)
            line = search.path(bias_strength)
            again = search.bias_strength(float(line["strength"][choose(line, one_se=False)]))
            if again != bias_strength:
                bias_strength = again
                line = search.path(bias_strength)
    progress.finish()
    k = choose(line, one_se=one_se)
    chosen = penalty if bias_strength is None else penalty.with_bias(bias_strength)
    best = chosen.at(float(line["strength"][k]))
    if not line["converged"][k]:
        warnings.warn(
            f"{best!r} was chosen by solves that had not converged within {_MAX_ITER} iterations, "
            "so its validation loss is not exact: give a strength, or fewer or smaller partitions",
            ConvergenceWarning,
            stacklevel=5,
        )
    return StrengthChoice(best, joined(search.tables))


class _Search:
    """Runs the folds and keeps the tables of what they found."""

    def __init__(
        self, folds: Sequence[PathFold], penalty: Term, run: Any, progress: Progress
    ) -> None:
        self._folds, self._penalty = folds, penalty
        self._run, self._progress = run, progress
        self.tables: list[Table] = []

    def path(self, bias_strength: float | None) -> Table:
        """Judge a path of strengths, with this strength on biases or the penalty's own."""
        penalty = self._penalty
        if bias_strength is not None:
            penalty = penalty.with_bias(bias_strength)
        largest = max(self._run(delayed(fold.largest)(penalty) for fold in self._folds))
        ratio = _SPARSE_RATIO if _is_sparse(penalty) else _QUADRATIC_RATIO
        strengths = strength_grid(largest, _N_STRENGTHS, ratio)
        found = self._each("path_losses", penalty, strengths)
        bias = np.nan if bias_strength is None else bias_strength
        return self._table(strengths, np.full(len(strengths), bias), found, on_path=True)

    def bias_strength(self, strength: float | None) -> float:
        """The best strength on biases, with slopes of a strength or without."""
        found = self._each("bias_losses", self._penalty, strength)
        strengths = np.full(len(BIAS_STRENGTHS), np.inf if strength is None else strength)
        table = self._table(strengths, np.array(BIAS_STRENGTHS), found, on_path=False)
        return float(BIAS_STRENGTHS[choose(table, one_se=False)])

    def _each(self, method: str, *args: Any) -> list[Losses]:
        return self._run(
            delayed(stepping)(getattr(fold, method), self._progress, *args) for fold in self._folds
        )

    def _table(
        self, strengths: NDArray, bias_strengths: NDArray, found: list[Losses], *, on_path: bool
    ) -> Table:
        losses, selected, converged = zip(*found, strict=True)
        table = {
            "strength": strengths,
            "bias_strength": bias_strengths,
            "on_path": np.full(len(strengths), on_path),
            **loss_columns(self._folds, losses),
            "mean_selected": np.mean(selected, axis=0),
            "converged": np.all(converged, axis=0),
        }
        self.tables.append(table)
        return table


def _is_sparse(penalty: Term) -> bool:
    """Whether a strength to choose belongs to a penalty that can hold all slopes at zero."""
    return any(term.is_auto and not isinstance(term, Frobenius) for term in penalty.terms)


def _largest_curvature(problem: Problem) -> float:
    shares = problem.s / problem.s.sum()
    bound = problem.loss.max_curvature if np.isfinite(problem.loss.max_curvature) else 1.0
    return bound * problem.design.lipschitz(shares.astype(problem.design.dtype), tol=1e-2)
