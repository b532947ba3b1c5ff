"""The default penalty, and the search of its numbers by honest cross-validation.

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

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from jointleaf._core.layout import CellKind
from jointleaf._core.penalties import Frobenius
from jointleaf._core.progress import Progress
from jointleaf._fit.component import Table
from jointleaf._fit.folds import best_row, join_tables, loss_columns, with_progress

if TYPE_CHECKING:
    from jointleaf._fit.joint import JointFold

SLOPE_SCALES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FEATURE_POWERS = (0.0, 1.0, 2.0)
STRENGTHS = tuple(10.0 ** np.arange(0.0, -6.01, -1.0))  # from strong to weak: a warm path
_HALF_STEPS = tuple(10.0 ** np.arange(0.5, -6.01, -0.5))
# Exponents around the best strength: of the same rows, of more, and of another loss.
_FINER = (1.0, 0.5, 0.0, -0.5, -1.0)
_ALL_ROWS = (0.5, 0.0, -0.5, -1.0, -1.5, -2.0)  # more rows want a weaker penalty
_OTHER_LOSS = tuple(np.arange(2.0, -3.01, -0.5))
_SEARCH_ROWS = 800  # most training rows with which lines are compared


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


def search_setting(
    make_folds: Sequence[Callable[..., JointFold]],
    plan: SearchPlan,
    *,
    cells: CellKind = "linear",
    one_se: bool = False,
    n_jobs: int = 1,
    verbose: bool = False,
) -> tuple[Setting, Setting, list[JointFold], Table]:
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

    Returns the best setting, the best one of the lines, folds with all rows, and a table with one
    entry per setting tried: strength, slope_scale, feature_power, is_exact (False where the squared
    error stood in for the loss), mean_loss (weighted mean validation loss over all folds, in units
    of the target's variance for regression), std_loss (over groups of validation rows), se_loss
    (standard error of the mean) and converged (all solves behind it).
    """
    n_lines = len(SLOPE_SCALES) + len(FEATURE_POWERS) if cells == "linear" else 1
    n_steps = len(make_folds) * (2 + n_lines)
    progress = Progress(n_steps, "choosing the penalty", enabled=verbose, is_estimate=True)
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
    return best, start, folds, table


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
        strength, scale, power = self.best
        if self._is_exact and not self._plan.is_fine:
            self._line(scale, power, _around(strength, _FINER[1:4:2]))
        elif not self._is_exact and self._plan.is_fine:
            self._is_exact, self._start = True, len(self.tables)
            self._line(scale, power, self._plan.strengths)
        elif not self._is_exact:
            self._anew(_FINER)

    def with_all_rows(self, folds: Sequence[JointFold]) -> None:
        """Choose the strength of the best line anew, with folds of all rows."""
        self._folds = folds
        self._anew(_ALL_ROWS)

    def _anew(self, exponents: Sequence[float]) -> None:
        """Choose the strength of the best line anew, with the loss itself, from where it was.

        In place of another loss than the squared error stood its quadratic model, which is good
        near a constant: the search may have to go further.
        """
        best, fold = self.best, self._folds[0]
        if not self._is_exact and fold.context.has_own_link:
            best, exponents = best._replace(strength=fold.curvature * best.strength), _OTHER_LOSS
        self._is_exact, self._start = True, len(self.tables)
        self._climb(best, _around(best.strength, exponents))

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
