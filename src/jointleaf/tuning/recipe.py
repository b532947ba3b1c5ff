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
(`jointleaf.tuning.mixing`).

As a penalty this is `Frobenius(lambda / s^2, lambda, v, u)` with u_p = 1/P for the P partitions
and u = 1 for the root cell. Partitions are grown anew inside every fold: on partitions that have
seen the validation rows every choice looks too good.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from jointleaf.kernel import shared_cells, times_column_kernel
from jointleaf.layout import CellKind
from jointleaf.losses import Loss, SquaredError
from jointleaf.penalties import Frobenius
from jointleaf.problem import Problem
from jointleaf.progress import Progress
from jointleaf.solvers import choose_solver
from jointleaf.solvers.dual import newton_dual
from jointleaf.tuning.folds import Fold, Table, choose, joined, loss_columns, stepping
from jointleaf.tuning.mixing import Mix, calibrated

__all__ = ["DEFAULT_SETTING", "RecipeFold", "Setting", "TuningResult", "auto_penalty", "tune"]

SLOPE_SCALES = (0.0, 0.3, 1.0, 3.0, 10.0)
FEATURE_POWERS = (0.0, 1.0, 2.0)
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the joint fit; ties go to the first
STRENGTHS = tuple(10.0 ** np.arange(0.5, -6.01, -0.5))  # from strong to weak: a warm path

_MAX_DENSE_ROWS = 2000  # of a fold's training part: beyond, iterative paths
_MAX_OWN_LOSS = 500  # rows times outputs up to which every line is searched with the own loss
_SEARCH_ROWS = 800  # most training rows with which lines are compared
_TRUST = 0.25  # part of the way back to a trained classifier: the joint fit's setting was chosen
# on the very rows that judge it, and between two models a convex loss is below its chord


class Setting(NamedTuple):
    """The three numbers of the default penalty, and the share of the joint fit in the model."""

    strength: float
    slope_scale: float
    feature_power: float
    share: float = 1.0


DEFAULT_SETTING = Setting(strength=0.1, slope_scale=1.0, feature_power=1.0)


@dataclass(frozen=True)
class TuningResult:
    """What the cross-validation found.

    Attributes
    ----------
    best : Setting
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
    mix: Mix
    table: Table = field(repr=False)


def auto_penalty(
    setting: Setting,
    split_gains: NDArray,
    n_partitions: int,
    has_root: bool,
    sources: NDArray[np.intp] | None = None,
) -> Frobenius:
    """Give the Frobenius penalty of a setting.

    Parameters
    ----------
    setting : Setting
    split_gains : array (d,)
        Of the partitions; they become feature weights v.
    n_partitions : int
        P, with the root cell where there is one.
    has_root : bool
        Whether the last partition is the root cell.
    sources : integers (m,), optional
        Column that each linear feature comes from, whose weight it has; by default its own.
    """
    grown = n_partitions - has_root
    weights = np.full(n_partitions, 1.0 / max(grown, 1))
    if has_root:
        weights[-1] = 1.0
    v = feature_weights(split_gains, setting.feature_power)
    scale = setting.slope_scale if setting.slope_scale > 0 else 1.0  # 0: no slopes to penalise
    return Frobenius(
        setting.strength / scale**2,
        setting.strength,
        v if sources is None else v[sources],
        weights,
    )


def feature_weights(split_gains: NDArray, power: float) -> NDArray[np.float64]:
    """v_j proportional to gain_j^power, floored at 1e-6 of the largest, summing to 1."""
    gains = np.asarray(split_gains, float)
    largest = gains.max(initial=0.0)
    if largest <= 0 or power == 0:
        return np.full(len(gains), 1.0 / max(len(gains), 1))
    weights = np.maximum((gains / largest) ** power, 1e-6)
    return weights / weights.sum()


def path_tol(strength: float, slope_scale: float) -> float:
    """Tolerance along a path: small against the penalty, whose effect it must resolve."""
    return float(np.clip(0.01 * strength / max(1.0, slope_scale), 1e-6, 1e-3))


def setting_cells(setting: Setting) -> CellKind:
    """Constant cells for a slope scale of 0, else linear ones."""
    return "linear" if setting.slope_scale > 0 else "constant"


class RecipeFold(Fold):
    """A fold that judges settings of the default penalty along paths of strengths."""

    _shared: tuple[NDArray, NDArray] | None = None
    #: raw predictions of the validation rows, by setting and loss
    _kept: dict[tuple[Setting, bool], tuple[NDArray, bool]] | None = None

    @property
    def is_cheap(self) -> bool:
        """Whether paths with the own loss cost little enough to search every line with it."""
        n_outputs = self.loss.encode(self.y).size // len(self.y)
        return self.loss.is_quadratic or len(self.y) * n_outputs <= _MAX_OWN_LOSS

    def losses(
        self, scale: float, power: float, strengths: Sequence[float], own_loss: bool = True
    ) -> tuple[NDArray, NDArray]:
        """Validation losses (groups, strengths), from strong to weak, and convergence.

        With many rows, where solves are iterative and cost more the weaker the penalty, the path
        ends when the loss has not fallen twice in a row: what follows is infinite. With
        ``own_loss=False`` the squared error on the encoded targets stands in for the loss.
        """
        loss = self.loss if own_loss else SquaredError()
        y, y_valid = self.y, self.y_valid
        if not own_loss:
            y, y_valid = self.loss.encode(y), self.loss.encode(y_valid)
        problem = self._problem(Setting(1.0, scale, power), loss, y)
        dense = len(self.train) <= _MAX_DENSE_ROWS
        path = self._dense_path if dense else self._iterative_path
        target = loss.encode(y_valid)
        losses = np.full((len(self.weights), len(strengths)), np.inf)
        mean = np.full(len(strengths), np.inf)
        converged = np.ones(len(strengths), bool)
        steps = path(problem, Setting(1.0, scale, power), strengths)
        self._kept = {} if self._kept is None else self._kept
        for k, (raw, converged[k]) in enumerate(steps):
            self._kept[Setting(strengths[k], scale, power), own_loss] = raw, converged[k]
            losses[:, k] = self.group_losses(loss, target, raw)
            mean[k] = self.weights @ losses[:, k]
            if not dense and k > 1 and mean[k - 1 : k + 1].min() > mean[: k - 1].min():
                break
        return losses, converged

    def can_mix(self, setting: Setting) -> bool:
        """Whether the partitions have a model of their own whose predictions fit to the loss."""
        kept = (self._kept or {}).get((setting, True))
        return (
            self.own_valid is not None
            and kept is not None
            and (self.own_valid.shape == kept[0].shape)
        )

    def kept(self, setting: Setting) -> tuple[NDArray, NDArray, NDArray]:
        """Raw predictions of the joint fit and of the partitions' own model, and targets."""
        assert self._kept is not None
        assert self.own_valid is not None
        raw, _ = self._kept[setting._replace(share=1.0), True]
        return raw, self.own_valid, self.loss.encode(self.y_valid)

    def mixed_losses(self, setting: Setting, shares: Sequence[float]) -> tuple[NDArray, bool]:
        """Validation losses (groups, shares) of mixes with the partitions' own model."""
        assert self._kept is not None
        assert self.own_valid is not None
        raw, converged = self._kept[setting, True]
        target = self.loss.encode(self.y_valid)
        mixes = [a * raw + (1 - a) * self.own_valid for a in shares]
        losses = [self.group_losses(self.loss, target, mix) for mix in mixes]
        return np.stack(losses, axis=1), converged

    def _problem(self, setting: Setting, loss: Loss, y: NDArray) -> Problem:
        penalty = auto_penalty(setting, self.gains, len(self.n_cells), self.has_root, self.sources)
        return self.problem(penalty, setting_cells(setting), loss, y)

    def _dense_path(
        self, problem: Problem, setting: Setting, strengths: Sequence[float]
    ) -> Iterator[tuple[NDArray, bool]]:
        """Through the kernel: K(lambda) = K / lambda, with the shared cells counted once."""
        K, K_valid = self._kernels(problem, setting)
        spread = problem.s.sum() / problem.s
        target = (problem.y - problem.offset).astype(float)
        alpha = np.zeros(problem.y.shape)
        previous = strengths[0]
        for strength in strengths:
            if problem.loss.is_quadratic:
                A = K.copy()
                A[np.diag_indices_from(A)] += strength * spread
                factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
                alpha = strength * cho_solve(factor, target, check_finite=False)
            else:
                alpha, _ = newton_dual(
                    problem,
                    K / strength,
                    tol=100 * path_tol(strength, setting.slope_scale),  # Newton overshoots it
                    max_iter=30,
                    alpha=alpha * (strength / previous),  # keeps the predictions
                )
            previous = strength
            yield K_valid @ alpha / strength + problem.offset, True

    def _kernels(self, problem: Problem, setting: Setting) -> tuple[NDArray, NDArray]:
        layout, penalty = problem.layout, problem.penalty
        assert isinstance(penalty, Frobenius)
        valid = self.valid_design(setting_cells(setting))
        if self._shared is None:
            cells, others = problem.leaf_design.cells(), valid.cells()
            u = penalty.partition_weights
            self._shared = (
                shared_cells(cells, cells, layout, u),
                shared_cells(others, cells, layout, u),
            )
        strengths = penalty.column_strengths(layout)
        X = problem.leaf_design.X
        return (
            times_column_kernel(self._shared[0].copy(), X, X, strengths),
            times_column_kernel(self._shared[1].copy(), valid.X, X, strengths),
        )

    def _iterative_path(
        self, problem: Problem, setting: Setting, strengths: Sequence[float]
    ) -> Iterator[tuple[NDArray, bool]]:
        """Through the primal solvers, each started from the answer before."""
        valid = self.valid_design(setting_cells(setting))
        base = problem.penalty
        assert isinstance(base, Frobenius)
        theta = None
        solver = choose_solver(problem, "pcg" if problem.loss.is_quadratic else "newton")
        for strength in strengths:
            solution = solver.solve(
                problem.with_penalty(base.scaled(strength)),
                theta,
                tol=path_tol(strength, setting.slope_scale),
                max_iter=1000,
            )
            theta = solution.theta
            yield valid.matvec(theta) + problem.offset, solution.converged


def tune(
    make_folds: Sequence[Callable[..., RecipeFold]],
    *,
    cells: CellKind = "linear",
    one_se: bool = False,
    is_trained: bool = False,
    mixes: bool = True,
    n_jobs: int = 1,
    verbose: bool = False,
) -> TuningResult:
    """Choose the setting with the smallest mean validation loss over the folds.

    A line search instead of the whole grid: first all slope scales with feature power 1, then
    the other powers with the best slope scale; every line is a path over all strengths. Ties go
    to the stronger penalty. Constant cells have one line only.

    With `one_se` the strongest setting of the best line is taken whose loss is within one standard
    error of the smallest.

    Where that would be slow the lines are compared more cheaply, and the strength is then chosen
    once more, with all rows and the own loss, along the best line: folds with more than 800
    training rows compare lines with 800 of them, and classification with more than 500 rows
    times outputs by the squared error on the encoded classes.

    `is_trained` says that the partitions are those of a model that was trained already.
    """
    scales = SLOPE_SCALES if cells == "linear" else (0.0,)
    n_lines = len(scales) + len(FEATURE_POWERS)
    progress = Progress(len(make_folds) * (2 + n_lines), "choosing the penalty", enabled=verbose)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        Parallel(n_jobs=n_jobs, prefer="threads") as run,
    ):

        def search(
            folds: Sequence[RecipeFold],
            scale: float,
            power: float,
            own_loss: bool,
            strengths: Sequence[float] = STRENGTHS,
        ) -> Table:
            found = run(
                delayed(stepping)(fold.losses, progress, scale, power, strengths, own_loss)
                for fold in folds
            )
            losses, converged = zip(*found, strict=True)
            n = len(strengths)
            return {
                "strength": np.array(strengths),
                "slope_scale": np.full(n, scale),
                "feature_power": np.full(n, power),
                "share": np.ones(n),
                "own_loss": np.full(n, own_loss),
                **loss_columns(folds, losses),
                "converged": np.all(converged, axis=0),
            }

        folds = run(delayed(stepping)(make, progress, _SEARCH_ROWS) for make in make_folds)
        own_loss = all(fold.is_cheap for fold in folds)
        last: Table | None = None
        table = joined([search(folds, scale, 1.0, own_loss) for scale in scales])
        best = _best(table)
        if best.slope_scale > 0:
            others = [power for power in FEATURE_POWERS if power != 1.0]
            lines = [search(folds, best.slope_scale, q, own_loss) for q in others]
            table = joined([table, *lines])
            best = _best(table)
        if any(fold.is_part for fold in folds):
            folds = run(delayed(stepping)(make, progress) for make in make_folds)
            # More rows want a weaker penalty, hardly ever a stronger one.
            near = [t for t in STRENGTHS if best.strength / 150 < t < 5 * best.strength]
            last = search(folds, best.slope_scale, best.feature_power, True, near)
            table, best = joined([table, last]), _best(last)
        elif not own_loss:
            last = search(folds, best.slope_scale, best.feature_power, True)
            table, best = joined([table, last]), _best(last)
    progress.finish()
    if one_se:
        best = _stronger(table if last is None else last, best)
    _warn_unconverged(table, best)
    mix = Mix()
    if mixes and all(fold.can_mix(best) for fold in folds):
        mixed = _mixes(folds, best)
        best = _best(mixed)
        table = joined([table, {name: column[1:] for name, column in mixed.items()}])
        mix = _final_mix(folds, best, is_trained)
    return TuningResult(best, mix, table)


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
    k = int(np.argmin(table["mean_loss"]))
    return Setting(*(float(table[name][k]) for name in Setting._fields))
