"""Search of the default penalty by honest cross-validation.

The default penalty has three numbers. With G = X diag(v) X^T the linear kernel of standardised
features and M the share of partitions in which two rows meet, the joint fit is the kernel model

    K = M o (1 + s^2 G) + root,     root = 1 + s^2 G  (the root cell),     strength lambda,

- the **strength** lambda,
- the **slope scale** s: how freely slopes may move against biases (0: constant cells),
- the **feature power** q: v_j is proportional to (split gain of feature j)^q and sums to 1.

As a penalty this is `Frobenius(lambda / s^2, lambda, v, u)` with u_p = 1/P for the P partitions
and u = 1 for the root cell.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from jointleaf._core.arrays import cholesky_solver
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers import choose_solver
from jointleaf._core.solvers.dual import newton_dual, shared_cells, times_column_kernel
from jointleaf._fit.component import Table
from jointleaf._fit.folds import Fold, best_row, join_tables, loss_columns, with_progress

SLOPE_SCALES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FEATURE_POWERS = (0.0, 1.0, 2.0)
STRENGTHS = tuple(10.0 ** np.arange(0.0, -6.01, -1.0))  # from strong to weak: a warm path
_KINK_STRENGTHS = (100.0, 10.0, *STRENGTHS)  # a strong one makes little of a loss that is linear
_KINK_TOL, _KINK_STEPS = 0.03, 15  # Newton's method takes many steps to the last digits there
_HALF_STEPS = tuple(10.0 ** np.arange(0.5, -6.01, -0.5))
_FINER = (1.0, 0.5, 0.0, -0.5, -1.0)  # exponents around the best strength
_ALL_ROWS = (0.5, 0.0, -0.5, -1.0, -1.5, -2.0)  # more rows want a weaker penalty

_SEARCH_ROWS = 800  # most training rows with which lines are compared
_MAX_DENSE_ROWS = 2000  # of a fold's training part: beyond, iterative paths
_FEW_ROWS = 200  # paths of so few cost next to nothing, and their losses are noisy
_MAX_EXACT = 500  # rows times outputs up to which every line is searched with the loss itself


# -- the default penalty -------------------------------------------------------------------------


class Setting(NamedTuple):
    """The three numbers of the default penalty."""

    strength: float
    slope_scale: float
    feature_power: float


DEFAULT_SETTING = Setting(strength=0.1, slope_scale=1.0, feature_power=1.0)


def auto_penalty(
    setting: Setting,
    split_gains: NDArray,
    n_partitions: int,
    has_root: bool,
    sources: NDArray[np.intp] | None = None,
) -> Frobenius:
    """Return the Frobenius penalty of a setting for P partitions, the last of them maybe the root.

    Split gains (d,) become the feature weights v. `sources` (m,) are the columns that the linear
    features come from, whose weights they have; by default each is its own.
    """
    grown = n_partitions - has_root
    weights = np.full(n_partitions, 1.0 / max(grown, 1))
    if has_root:
        weights[-1] = 1.0
    v = feature_weights(split_gains, setting.feature_power)
    scale = setting.slope_scale if setting.slope_scale > 0 else 1.0  # 0: no slopes to penalise
    return Frobenius(
        setting.strength / scale**2, setting.strength, v if sources is None else v[sources], weights
    )


def feature_weights(split_gains: NDArray, power: float) -> NDArray[np.float64]:
    """Return v_j proportional to gain_j^power, floored at 1e-6 of the largest, summing to 1."""
    gains = np.asarray(split_gains, float)
    largest = gains.max(initial=0.0)
    if largest <= 0 or power == 0:
        return np.full(len(gains), 1.0 / max(len(gains), 1))
    weights = np.maximum((gains / largest) ** power, 1e-6)
    return weights / weights.sum()


def setting_cells(setting: Setting) -> CellKind:
    """Return "constant" for a slope scale of 0, else "linear"."""
    return "linear" if setting.slope_scale > 0 else "constant"


def _path_tol(strength: float, slope_scale: float) -> float:
    """Return a tolerance that is small against the penalty, whose effect it must resolve."""
    return float(np.clip(0.01 * strength / max(1.0, slope_scale), 1e-6, 1e-3))


# -- one fold ------------------------------------------------------------------------------------


#: A problem, and the function that returns the losses of raw predictions of the validation rows.
_DataTerm = tuple[Problem, Callable[[NDArray], NDArray]]


class JointFold(Fold):
    """A fold that validates settings of the default penalty along paths of strengths."""

    _shared: tuple[NDArray, NDArray] | None = None
    _line: tuple[tuple[float, float], NDArray, NDArray] | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: raw predictions of the validation rows, by setting and whether by the loss itself
        self._predictions: dict[tuple[Setting, bool], NDArray] = {}
        #: problems whose data terms are those of all lines, with the loss itself or not
        self._terms: dict[bool, _DataTerm] = {}

    @property
    def is_small(self) -> bool:
        """Whether paths cost next to nothing."""
        return len(self.train) <= _FEW_ROWS

    @property
    def is_cheap(self) -> bool:
        """Whether paths with the loss itself cost little enough to search every line with it."""
        n_outputs = self.loss.encode(self.y).size // len(self.y)
        if self.loss.is_quadratic:
            return True
        return self.loss.is_smooth and len(self.y) * n_outputs <= _MAX_EXACT

    def around(self, offset: NDArray, offset_valid: NDArray) -> JointFold:
        """Return the fold with offsets of training and validation rows, and the same kernels."""
        fold = copy.copy(self)
        fold.train = replace(self.train, offset=offset)
        fold.valid = replace(self.valid, offset=offset_valid)
        target = self.loss.encode(self.y)
        fold.constant = np.asarray(self.loss.best_shift(target, self.train.s, offset))
        fold._predictions, fold._terms = {}, {}
        return fold

    def losses(
        self, scale: float, power: float, strengths: Sequence[float], is_exact: bool = True
    ) -> tuple[NDArray, NDArray]:
        """Return validation losses (groups, strengths), from strong to weak, and convergence.

        With more than 200 rows the path ends when two losses in a row are above the smallest
        before them: what follows is infinite. With ``is_exact=False`` a squared error stands in
        for the loss: on the encoded classes, or that of its quadratic model around a constant.
        """
        line = Setting(1.0, scale, power)
        problem, losses_of = self._data_term(line, is_exact)
        is_dense = len(self.train) <= _MAX_DENSE_ROWS
        path = (self._dense_path if is_dense else self._iterative_path)(problem, line, strengths)
        losses = np.full((len(self.group_weights), len(strengths)), np.inf)
        mean = np.full(len(strengths), np.inf)
        converged = np.ones(len(strengths), bool)
        for k, (raw, converged[k]) in enumerate(path):
            setting = line._replace(strength=strengths[k])
            self._predictions[setting, is_exact] = raw
            losses[:, k] = losses_of(raw)
            mean[k] = self.group_weights @ losses[:, k]
            has_risen = k > 1 and mean[k - 1 : k + 1].min() > mean[: k - 1].min()
            if has_risen and not self.is_small:
                break
        return losses, converged

    def release(self) -> None:
        """Free the kernels, which no further setting needs."""
        self._shared = self._line = None
        self._terms.clear()

    def has_raw(self, setting: Setting) -> bool:
        """Whether a setting was validated with the loss itself."""
        return (setting, True) in self._predictions

    def raw(self, setting: Setting, is_exact: bool = True) -> NDArray:
        """Return raw predictions (n,) or (n, K) of a setting that was validated so."""
        return self._predictions[setting, is_exact]

    def _problem(self, setting: Setting) -> Problem:
        has_root, sources = self.context.options.root_cell, self.context.plan.sources
        penalty = auto_penalty(setting, self.gains, len(self.n_cells), has_root, sources)
        return self.problem(penalty, setting_cells(setting))

    def _data_term(self, line: Setting, is_exact: bool) -> _DataTerm:
        """Return the problem of a line, and what measures its predictions; see `losses`.

        Dense paths need nothing of it but the data term, which all lines share.
        """
        is_dense = len(self.train) <= _MAX_DENSE_ROWS
        if is_dense and is_exact in self._terms:
            return self._terms[is_exact]
        problem = self._problem(Setting(1.0, 0.0, 0.0) if is_dense else line)
        term = (problem, self.held_out_losses) if is_exact else self._surrogate(problem)
        if is_dense:
            self._terms[is_exact] = term
        return term

    def _surrogate(self, problem: Problem) -> _DataTerm:
        """Return the problem with a squared error in place of the loss, and what measures it."""
        loss, context = SquaredError(), self.context
        y, s = self.loss.encode(self.y), self.train.s
        y_valid, s_valid = self.loss.encode(self.y_valid), self.valid.s
        if context.has_own_link:
            y, s, _ = context.working(self.train, self.constant)
            y_valid, s_valid, _ = context.working(self.valid, self.constant)
        offset = loss.best_constant(y, s)
        surrogate = Problem(problem.design, y, loss, problem.penalty, s, offset)
        return surrogate, lambda raw: self.group_losses(loss, y_valid, raw, s_valid)

    def _dense_path(
        self, problem: Problem, setting: Setting, strengths: Sequence[float]
    ) -> Iterator[tuple[NDArray, bool]]:
        """Follow a path in the kernel, K(lambda) = K / lambda; shared cells are counted once.

        Of the problem only the data term counts.
        """
        K, K_valid = self._kernels(problem, setting.slope_scale, setting.feature_power)
        spread = problem.s.sum() / problem.s
        target = (problem.y - problem.offset).astype(float)
        alpha = np.zeros(problem.y.shape)
        previous = strengths[0]
        for strength in strengths:
            if problem.loss.is_quadratic:
                A = K.copy()
                A[np.diag_indices_from(A)] += strength * spread
                alpha = strength * cholesky_solver(A)(target)
            else:
                alpha, _ = newton_dual(
                    problem,
                    K / strength,
                    tol=self._newton_tol(strength, setting.slope_scale),
                    max_iter=30 if self.loss.is_smooth else _KINK_STEPS,
                    alpha=alpha * (strength / previous),  # keeps the predictions
                    in_kernel_norm=True,
                )
            previous = strength
            yield K_valid @ alpha / strength + self._constant_of(problem), True

    def _newton_tol(self, strength: float, slope_scale: float) -> float:
        tol = 10 * _path_tol(strength, slope_scale)  # Newton overshoots it
        return tol if self.loss.is_smooth else max(tol, _KINK_TOL)

    def _constant_of(self, problem: Problem) -> NDArray:
        """Return what a problem adds to all predictions, besides the offsets of rows."""
        return self.constant if problem.offset.shape == problem.y.shape else problem.offset

    def _kernels(self, problem: Problem, scale: float, power: float) -> tuple[NDArray, NDArray]:
        """Return K of the training rows, and of validation with training rows."""
        if self._shared is None:
            layout, penalty = problem.layout, problem.penalty
            assert isinstance(penalty, Frobenius)
            weights, cells = penalty.partition_weights, problem.leaf_design.cells()
            valid = self.valid_design("constant").cells()
            self._shared = (
                shared_cells(cells, cells, layout, weights),
                shared_cells(valid, cells, layout, weights),
            )
        if scale == 0:
            return self._shared
        if self._line is None or self._line[0] != (scale, power):
            v = feature_weights(self.gains, power)[self.context.plan.sources]
            strengths = np.append(1 / (scale**2 * v), 1.0)
            X, X_valid = (np.c_[X, np.ones(len(X))] for X in (self.X, self.X_valid))
            self._line = (
                (scale, power),
                times_column_kernel(self._shared[0].copy(), X, X, strengths),
                times_column_kernel(self._shared[1].copy(), X_valid, X, strengths),
            )
        return self._line[1:]

    def _iterative_path(
        self, problem: Problem, setting: Setting, strengths: Sequence[float]
    ) -> Iterator[tuple[NDArray, bool]]:
        """Follow a path through the primal solvers, each started from the solution before."""
        valid = self.valid_design(setting_cells(setting))
        base = problem.penalty
        assert isinstance(base, Frobenius)
        theta = None
        solver = choose_solver(problem, "pcg" if problem.loss.is_quadratic else "newton")
        for strength in strengths:
            solution = solver.solve(
                problem.with_penalty(base * strength),
                theta,
                tol=_path_tol(strength, setting.slope_scale),
                max_iter=1000,
            )
            theta = solution.theta
            yield valid.matvec(theta) + self._constant_of(problem), solution.converged


# -- all folds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchPlan:
    """Where a search begins."""

    scales: tuple[float, ...]  # compared first; others only next to the best of these
    power: float  # with which slope scales are compared
    strengths: tuple[float, ...]  # from strong to weak
    is_fine: bool  # whether no strengths in between are left to try


#: For partitions that are given the finer steps are worth their time: there the joint fit competes
#: with a model that was trained on the same cells.
GIVEN_PLAN = SearchPlan(SLOPE_SCALES[:5], 1.0, _HALF_STEPS, True)


def default_plan(is_regression: bool) -> SearchPlan:
    """Return the plan for many small partitions, where strengths in steps of ten say enough."""
    return SearchPlan((0.0, 1.0, 3.0, 10.0), 1.0 if is_regression else 0.0, STRENGTHS, False)


@dataclass(frozen=True)
class SearchResult:
    """What a search found, with folds of all rows; `start` is the best setting of its lines.

    The table has one entry per setting tried: strength, slope_scale, feature_power, is_exact (False
    where the squared error stood in for the loss), mean_loss (weighted mean validation loss over
    all folds, in units of the target's variance for regression), std_loss (over groups of
    validation rows), se_loss (standard error of the mean) and converged (all solves behind it).
    """

    best: Setting
    start: Setting
    folds: list[JointFold]
    table: Table


def search_setting(
    make_folds: Sequence[Callable[..., JointFold]],
    plan: SearchPlan,
    *,
    cells: CellKind = "linear",
    one_se: bool = False,
    n_jobs: int = 1,
    verbose: bool = False,
) -> SearchResult:
    """Choose the setting with the smallest mean validation loss over the folds.

    A search along lines instead of the whole grid; every line is a path over strengths. With more
    than 200 rows paths after the first begin at the best strength of the one before, and end where
    the loss rises both ways. First the slope scales of the plan, and the neighbours of the best of
    them as long as these are better; then the other feature powers with the best slope scale. Ties
    go to the stronger penalty. Constant cells have one line only. Strengths in between are tried on
    the best line, unless the plan is fine.

    With `one_se` the strongest setting of the best line is taken whose loss is within one standard
    error of the smallest.

    Where that would be slow the lines are compared more cheaply, and the strength is then chosen
    once more, with all rows and the loss itself, along the best line: folds with more than 800
    training rows compare lines with 800 of them, and losses other than the squared error are
    replaced by one with more than 500 rows times outputs, and where they have kinks always.
    """
    n_lines = len(SLOPE_SCALES) + len(FEATURE_POWERS) if cells == "linear" else 1
    progress = Progress(len(make_folds) * (2 + n_lines), "choosing the penalty", enabled=verbose)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        Parallel(n_jobs=n_jobs, prefer="threads") as run,
    ):
        folds = run(delayed(with_progress)(make, progress, _SEARCH_ROWS) for make in make_folds)
        search = _Search(folds, run, progress, plan)
        search.lines(cells)
        start = search.best
        if any(fold.is_sample for fold in folds):
            folds = run(delayed(with_progress)(make, progress) for make in make_folds)
            search.with_all_rows(folds)
        else:
            search.finer()
    progress.finish()
    for fold in folds:
        fold.release()
    best, table = search.best, join_tables(search.tables)
    if one_se:
        best = _stronger(search.last, best)
    _warn_unconverged(table, best)
    return SearchResult(best, start, folds, table)


class _Search:
    """The settings validated so far, and the best of them."""

    def __init__(
        self, folds: Sequence[JointFold], run: Parallel, progress: Progress, plan: SearchPlan
    ) -> None:
        self._folds, self._run, self._progress, self._plan = folds, run, progress, plan
        self._is_exact = all(fold.is_cheap for fold in folds)
        self._start = 0
        self.tables: list[Table] = []

    @property
    def best(self) -> Setting:
        """The best of those that are comparable with the last ones."""
        table = self.last
        k = int(np.argmin(table["mean_loss"]))
        return Setting(*(float(table[name][k]) for name in Setting._fields))

    @property
    def last(self) -> Table:
        """All settings that were validated in the same way as the last ones."""
        return join_tables(self.tables[self._start :])

    def lines(self, cells: CellKind) -> None:
        """Compare slope scales, then feature powers."""
        plan = self._plan
        scales = plan.scales if cells == "linear" else (0.0,)
        for scale in scales:
            self._compare(scale, plan.power)
        if cells != "linear":
            return
        tried = set(scales)
        while True:
            at = SLOPE_SCALES.index(self.best.slope_scale)
            near = [s for s in SLOPE_SCALES[max(0, at - 1) : at + 2] if s not in tried]
            if not near:
                break
            for scale in near:
                self._compare(scale, plan.power)
            tried |= set(near)
        best = self.best
        for power in FEATURE_POWERS if best.slope_scale > 0 else ():
            if power != best.feature_power:
                self._compare(best.slope_scale, power)

    def finer(self) -> None:
        """Try the strengths in between on the best line, with the loss itself."""
        best, was_exact = self.best, self._is_exact
        if self._plan.is_fine and was_exact:
            return
        if not was_exact:
            self._is_exact, self._start = True, len(self.tables)
        if was_exact:
            self._line(best[1], best[2], _around(best.strength, _FINER[1:4:2]))
        elif self._plan.is_fine:
            self._line(best[1], best[2], self._plan.strengths)
        elif self._has_kinks:
            self._descend(best)
        else:
            self._climb(best, _around(best.strength, _FINER))

    def with_all_rows(self, folds: Sequence[JointFold]) -> None:
        """Choose the strength of the best line anew, with folds of all rows."""
        best = self.best
        self._folds, self._is_exact, self._start = folds, True, len(self.tables)
        if self._has_kinks:
            self._descend(best)
        else:
            self._climb(best, _around(best.strength, _ALL_ROWS))

    @property
    def _has_kinks(self) -> bool:
        return not self._folds[0].loss.is_smooth

    def _descend(self, line: Setting) -> None:
        """Validate all strengths of a line, as a squared error does not tell where to begin."""
        self._line(line.slope_scale, line.feature_power, _KINK_STRENGTHS)

    def _compare(self, scale: float, power: float) -> None:
        """Validate a line: all strengths, or with many rows those next to the last line's best."""
        strengths = self._plan.strengths
        if not self.tables or all(fold.is_small for fold in self._folds):
            self._line(scale, power, strengths)
        else:
            table = self.tables[-1]
            start = float(table["strength"][np.argmin(table["mean_loss"])])
            self._climb(Setting(start, scale, power), strengths)

    def _climb(self, start: Setting, strengths: Sequence[float]) -> None:
        """Validate strengths of a line, the start's among them, until the loss rises both ways."""
        _, scale, power = start
        at = strengths.index(start.strength)
        begin, end = max(0, at - 1), min(at + 2, len(strengths))
        line = self._line(scale, power, strengths[begin:end])
        while True:
            best = line["strength"][np.argmin(line["mean_loss"])]
            if best == strengths[begin] and begin > 0:
                begin -= 1
                line = self._line(scale, power, strengths[begin : begin + 1])
            elif best == strengths[end - 1] and end < len(strengths):
                end += 1
                line = self._line(scale, power, strengths[end - 1 : end])
            else:
                return

    def _line(self, scale: float, power: float, strengths: Sequence[float]) -> Table:
        """Validate strengths; return all that were validated on the line in the same way."""
        results = self._run(
            delayed(with_progress)(
                fold.losses, self._progress, scale, power, strengths, self._is_exact
            )
            for fold in self._folds
        )
        losses, converged = zip(*results, strict=True)
        line = line_table(self._folds, scale, power, strengths, losses, converged, self._is_exact)
        for k in range(self._start, len(self.tables)):
            table = self.tables[k]
            if table["slope_scale"][0] == scale and table["feature_power"][0] == power:
                both = join_tables([table, line])
                order = np.argsort(-both["strength"], kind="stable")
                self.tables[k] = {name: column[order] for name, column in both.items()}
                return self.tables[k]
        self.tables.append(line)
        return line


def choose_strength(
    folds: Sequence[JointFold], line: Setting, strengths: Sequence[float], *, is_exact: bool
) -> tuple[Setting, float]:
    """Return the best setting of a line, of strengths from strong to weak, and its loss."""
    paths = [fold.losses(line.slope_scale, line.feature_power, strengths, is_exact)
             for fold in folds]  # fmt: skip
    mean = loss_columns(folds, [losses for losses, _ in paths])["mean_loss"]
    k = int(np.argmin(mean))
    return line._replace(strength=strengths[k]), float(mean[k])


def line_table(
    folds: Sequence[JointFold],
    scale: float,
    power: float,
    strengths: Sequence[float],
    losses: Sequence[NDArray],
    converged: Sequence[NDArray],
    is_exact: bool = True,
) -> Table:
    """Return the table of one line, from what every fold's `losses` returned."""
    n = len(strengths)
    return {
        "strength": np.array(strengths),
        "slope_scale": np.full(n, scale),
        "feature_power": np.full(n, power),
        "is_exact": np.full(n, is_exact),
        **loss_columns(folds, losses),
        "converged": np.all(converged, axis=0),
    }


def _around(strength: float, exponents: Sequence[float]) -> tuple[float, ...]:
    """Return strengths from strong to weak."""
    return tuple(float(strength * 10.0**e) for e in exponents)


def _stronger(table: Table, best: Setting) -> Setting:
    """Return the strongest setting within one standard error of the best, on its line."""
    on_line = table["slope_scale"] == best.slope_scale
    on_line &= table["feature_power"] == best.feature_power
    line = {name: column[on_line] for name, column in table.items()}
    order = np.argsort(-line["strength"], kind="stable")
    line = {name: column[order] for name, column in line.items()}
    return best._replace(strength=float(line["strength"][best_row(line, one_se=True)]))


def _warn_unconverged(table: Table, best: Setting) -> None:
    """Warn where the chosen setting was validated by a solve that had not converged."""
    is_best = np.all([table[name] == value for name, value in best._asdict().items()], axis=0)
    if not table["converged"][is_best].all():
        warnings.warn(
            f"{best} was chosen by solves that had not converged within 1000 iterations, so its "
            "validation loss is not exact: give a penalty, or fewer or smaller partitions",
            ConvergenceWarning,
            stacklevel=5,
        )
