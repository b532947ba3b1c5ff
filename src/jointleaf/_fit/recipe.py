"""Choice of the default penalty by honest cross-validation.

The default penalty has three numbers. With G = X diag(v) X^T the linear kernel of standardised
features and M the share of partitions in which two rows meet, the joint fit is the kernel model

    K = M o (1 + s^2 G) + root,     root = 1 + s^2 G  (the root cell),     strength lambda,

- the **strength** lambda,
- the **slope scale** s: how freely slopes may move against biases (0: constant cells),
- the **feature power** q: v_j is proportional to (split gain of feature j)^q and sums to 1.

A fourth number, the **share** a, mixes the joint fit with the model that made the partitions, where
there is one: a f + (1 - a) f_own. Both are sums over the same cells, so that the mix is again one
model. With many rows, or few that say little, boosting's own values can be the better ones, and a
mean of two good models is often better than either. For classes the mix is then calibrated
(`_fit.mixing`).

As a penalty this is `Frobenius(lambda / s^2, lambda, v, u)` with u_p = 1/P for the P partitions
and u = 1 for the root cell. Partitions are grown anew inside every fold: on partitions that have
seen the validation rows every choice looks too good.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from jointleaf._core.layout import CellKind
from jointleaf._core.progress import Progress
from jointleaf._fit.folds import Table, choose, joined, loss_columns, stepping
from jointleaf._fit.mixing import Mix, calibrated
from jointleaf._fit.recipe_fold import RecipeFold
from jointleaf._fit.settings import Setting
from jointleaf._fit.shares import Shares, choose_shares

__all__ = ["SLOPE_SCALES", "TuningResult", "tune"]

SLOPE_SCALES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_FIRST_SCALES = (0.0, 1.0, 3.0, 10.0)  # the others only next to the best of these
FEATURE_POWERS = (0.0, 1.0, 2.0)
_FIRST_POWERS = {"numbers": 1.0, "classes": 0.0}  # with which slope scales are compared
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the joint fit; ties go to the first
STRENGTHS = tuple(10.0 ** np.arange(0.0, -6.01, -1.0))  # from strong to weak: a warm path
_HALF_STEPS = tuple(10.0 ** np.arange(0.5, -6.01, -0.5))
_FINER = (1.0, 0.5, 0.0, -0.5, -1.0)  # exponents around the best of these
_MORE_ROWS = (0.5, 0.0, -0.5, -1.0, -1.5, -2.0)  # more rows want a weaker penalty

_SEARCH_ROWS = 800  # most training rows with which lines are compared
_TRUST = 0.5  # part of the way back to a trained classifier: the joint fit's setting was chosen
# on the very rows that judge it, and between two models a convex loss is below its chord


@dataclass(frozen=True)
class _Plan:
    """Where a search begins: the first lines, and their strengths from strong to weak."""

    scales: tuple[float, ...]  # the others only next to the best of these
    power: float  # with which slope scales are compared
    strengths: tuple[float, ...]
    is_fine: bool  # whether no strengths in between are left to try


def _plan(is_recipe: bool, is_regression: bool) -> _Plan:
    """The recipe has many small partitions, where strengths in steps of ten say enough.

    For partitions that are given the finer steps are worth their time: there the joint fit competes
    with a model that was trained on the same cells.
    """
    if is_recipe:
        power = _FIRST_POWERS["numbers" if is_regression else "classes"]
        return _Plan(_FIRST_SCALES, power, STRENGTHS, False)
    return _Plan(SLOPE_SCALES[:5], 1.0, _HALF_STEPS, True)


@dataclass(frozen=True)
class TuningResult:
    """What the cross-validation found.

    Attributes
    ----------
    best : Setting
    shares : Shares or None
        How simpler models take part.
    mix : Mix
        How the joint fit and the partitions' own model make up the fitted model.
    table : dict of arrays
        One entry per setting tried: strength, slope_scale, feature_power, share, own_loss (False
        where the squared error stood in for the loss), mean_loss (weighted mean validation
        loss over all folds, in units of the target's variance for regression), std_loss (over
        groups of validation rows), se_loss (standard error of the mean) and converged (all solves
        behind it).
    """

    best: Setting
    shares: Shares | None
    mix: Mix
    table: Table = field(repr=False)


def tune(
    make_folds: Sequence[Callable[..., RecipeFold]],
    *,
    cells: CellKind = "linear",
    one_se: bool = False,
    is_trained: bool = False,
    is_recipe: bool = False,
    n_jobs: int = 1,
    verbose: bool = False,
) -> TuningResult:
    """Choose the setting with the smallest mean validation loss over the folds.

    A search along lines instead of the whole grid; every line is a path over strengths. First
    slope scales 0, 0.3, 1, 3 and 10 with feature power 1, and the neighbours of the best of them as
    long as these are better; then the other powers with the best slope scale. Ties go to the
    stronger penalty. Constant cells have one line only. Strengths go from 10^0.5 to 10^-6 in half
    powers of ten; with `is_recipe` in powers of ten first and in between on the best line, without
    slope scale 0.3, and for classes the first power is 0.

    With `one_se` the strongest setting of the best line is taken whose loss is within one standard
    error of the smallest.

    Where that would be slow the lines are compared more cheaply, and the strength is then chosen
    once more, with all rows and the own loss, along the best line: folds with more than 800
    training rows compare lines with 800 of them, and classification with more than 500 rows
    times outputs by the squared error on the encoded classes.

    `is_trained` says that the partitions are those of a model that was trained already.

    With `is_recipe` the joint fit is not mixed with the model that made the partitions; for classes
    it is mixed with simpler models instead (`_fit.shares`).
    """
    n_lines = len(SLOPE_SCALES) + len(FEATURE_POWERS) if cells == "linear" else 1
    progress = Progress(len(make_folds) * (2 + n_lines), "choosing the penalty", enabled=verbose)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        Parallel(n_jobs=n_jobs, prefer="threads") as run,
    ):
        folds = run(delayed(stepping)(make, progress, _SEARCH_ROWS) for make in make_folds)
        search = _Search(folds, run, progress, _plan(is_recipe, folds[0].loss.is_quadratic))
        search.lines(cells)
        if any(fold.is_part for fold in folds):
            folds = run(delayed(stepping)(make, progress) for make in make_folds)
            search.with_all_rows(folds)
        else:
            search.finer()
    progress.finish()
    best, table = search.best, joined(search.tables)
    if one_se:
        best = _stronger(search.last, best)
    _warn_unconverged(table, best)
    if is_recipe:
        mixes = not folds[0].loss.is_quadratic and folds[0].has_root and cells == "linear"
        shares = choose_shares(folds, best) if mixes else None
        return TuningResult(best, shares, Mix(), table)
    mix = Mix()
    if all(fold.can_mix(best) for fold in folds):
        mixed = _mixes(folds, best)
        best = _best(mixed)
        table = joined([table, {name: column[1:] for name, column in mixed.items()}])
        mix = _final_mix(folds, best, is_trained)
    return TuningResult(best, None, mix, table)


class _Search:
    """The settings judged so far, and the best of them."""

    def __init__(
        self, folds: Sequence[RecipeFold], run: Parallel, progress: Progress, plan: _Plan
    ) -> None:
        self._folds, self._run, self._progress, self._plan = folds, run, progress, plan
        self._own_loss = all(fold.is_cheap for fold in folds)
        self.tables: list[Table] = []

    @property
    def best(self) -> Setting:
        """The best of those that are comparable with the last ones."""
        return _best(self.last)

    @property
    def last(self) -> Table:
        """All settings that were judged in the same way as the last ones."""
        return joined(self.tables[self._start :])

    _start = 0

    def lines(self, cells: CellKind) -> None:
        """Compare slope scales, then feature powers."""
        plan = self._plan
        scales = plan.scales if cells == "linear" else (0.0,)
        for scale in scales:
            self._line(scale, plan.power, plan.strengths)
        if cells != "linear":
            return
        tried = set(scales)
        while True:
            at = SLOPE_SCALES.index(self.best.slope_scale)
            near = [s for s in SLOPE_SCALES[max(0, at - 1) : at + 2] if s not in tried]
            if not near:
                break
            for scale in near:
                self._line(scale, plan.power, plan.strengths)
            tried |= set(near)
        best = self.best
        for power in FEATURE_POWERS if best.slope_scale > 0 else ():
            if power != best.feature_power:
                self._line(best.slope_scale, power, plan.strengths)

    def finer(self) -> None:
        """Try the strengths in between on the best line, with the own loss."""
        best = self.best
        if self._plan.is_fine:
            if not self._own_loss:
                self._own_loss, self._start = True, len(self.tables)
                self._line(best.slope_scale, best.feature_power, self._plan.strengths)
            return
        exponents = _FINER if not self._own_loss else _FINER[1:4:2]
        if not self._own_loss:
            self._own_loss, self._start = True, len(self.tables)
        self._line(best.slope_scale, best.feature_power, _around(best.strength, exponents))

    def with_all_rows(self, folds: Sequence[RecipeFold]) -> None:
        """Choose the strength of the best line anew, with folds of all rows."""
        best = self.best
        self._folds, self._own_loss, self._start = folds, True, len(self.tables)
        self._line(best.slope_scale, best.feature_power, _around(best.strength, _MORE_ROWS))

    def _line(self, scale: float, power: float, strengths: Sequence[float]) -> None:
        found = self._run(
            delayed(stepping)(fold.losses, self._progress, scale, power, strengths, self._own_loss)
            for fold in self._folds
        )
        losses, converged = zip(*found, strict=True)
        n = len(strengths)
        line: Table = {
            "strength": np.array(strengths),
            "slope_scale": np.full(n, scale),
            "feature_power": np.full(n, power),
            "share": np.ones(n),
            "own_loss": np.full(n, self._own_loss),
            **loss_columns(self._folds, losses),
            "converged": np.all(converged, axis=0),
        }
        for k in range(self._start, len(self.tables)):
            other = self.tables[k]
            if other["slope_scale"][0] == scale and other["feature_power"][0] == power:
                both = joined([other, line])
                order = np.argsort(-both["strength"], kind="stable")
                self.tables[k] = {name: column[order] for name, column in both.items()}
                return
        self.tables.append(line)


def _around(strength: float, exponents: Sequence[float]) -> tuple[float, ...]:
    """Strengths from strong to weak."""
    return tuple(float(strength * 10.0**e) for e in exponents)


def _mixes(folds: Sequence[RecipeFold], best: Setting) -> Table:
    """The best setting mixed with the partitions' own model, in several shares."""
    losses, converged = zip(*(fold.mixed_losses(best, SHARES) for fold in folds), strict=True)
    n = len(SHARES)
    return {
        **{name: np.full(n, value) for name, value in best._asdict().items()},
        "share": np.array(SHARES),
        "own_loss": np.ones(n, bool),
        **loss_columns(folds, losses),
        "converged": np.full(n, all(converged)),
    }


def _final_mix(folds: Sequence[RecipeFold], best: Setting, is_trained: bool) -> Mix:
    """The mix of the best setting; calibrated for classes, not too far from a trained model."""
    mix = Mix(best.share, 1 - best.share)
    if folds[0].loss.is_quadratic:
        return mix
    parts = zip(*(fold.kept(best) for fold in folds), strict=True)
    joint, own, target = (np.concatenate(part) for part in parts)
    mix = calibrated(mix, joint, own, target, np.concatenate([fold.valid.s for fold in folds]))
    knows_values = all(fold.has_own_values for fold in folds)
    return mix.towards_own(_TRUST) if is_trained and knows_values else mix


def _stronger(table: Table, best: Setting) -> Setting:
    """The strongest setting within one standard error of the best, on the best one's line."""
    on_line = table["slope_scale"] == best.slope_scale
    on_line &= table["feature_power"] == best.feature_power
    line = {name: column[on_line] for name, column in table.items()}
    order = np.argsort(-line["strength"], kind="stable")
    line = {name: column[order] for name, column in line.items()}
    return best._replace(strength=float(line["strength"][choose(line, one_se=True)]))


def _warn_unconverged(table: Table, best: Setting) -> None:
    """Say so where the chosen setting was judged by a solve that had not converged."""
    is_best = np.all([table[name] == value for name, value in best._asdict().items()], axis=0)
    if not table["converged"][is_best].all():
        warnings.warn(
            f"{best} was chosen by solves that had not converged within 1000 iterations, so its "
            "validation loss is not exact: give a penalty, or fewer or smaller partitions",
            ConvergenceWarning,
            stacklevel=5,
        )


def _best(table: Table) -> Setting:
    return _setting(table, int(np.argmin(table["mean_loss"])))


def _setting(table: Table, k: int) -> Setting:
    return Setting(*(float(table[name][k]) for name in Setting._fields))
