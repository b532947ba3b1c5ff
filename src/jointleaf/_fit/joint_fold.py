"""One split on which settings of the default penalty are validated along paths of strengths.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import cholesky_solver
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Pinball, SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import choose_solver
from jointleaf._core.solvers.dual import (
    newton_dual,
    pinball_dual,
    shared_cells,
    times_column_kernel,
)
from jointleaf._fit.folds import Fold

_MAX_DENSE_ROWS = 2000  # of a fold's training part: beyond, iterative paths
_FEW_ROWS = 200  # paths of so few cost next to nothing, and their losses are noisy
_MAX_EXACT = 500  # rows times outputs up to which every line is searched with the loss itself
_GAP = 1e-2  # of solves with absolute errors and quantiles

#: A problem, and the function that returns the losses of raw predictions of the validation rows.
_DataTerm = tuple[Problem, Callable[[NDArray], NDArray]]


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

    @cached_property
    def curvature(self) -> float:
        """Mean curvature of the loss, by which strengths are larger than with a squared error.

        That of a loss with kinks is in proportion to how many residuals are near them.
        """
        context = self.context
        if not context.has_own_link:
            return 1.0
        scale = context.residual_scale if context.has_location else 1.0
        return context.working(self.train, self.constant).curvature / scale

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
        """Free kernels and linear features, which no further setting needs."""
        self._shared = self._line = None
        self._terms.clear()
        super().release()

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
        if is_dense and isinstance(self.loss, Pinball):
            problem = problem.with_loss(self.loss, problem.y)
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
            tol = 10 * _path_tol(strength, setting.slope_scale)  # Newton overshoots it
            if problem.loss.is_quadratic:
                alpha = strength * _solve_shifted(K, strength * spread, target)
            elif isinstance(problem.loss, Pinball):
                alpha, _ = pinball_dual(problem, K / strength, _GAP, max_iter=30)
            else:
                alpha, _ = newton_dual(
                    problem,
                    K / strength,
                    tol=tol,
                    max_iter=30,
                    alpha=alpha * (strength / previous),  # keeps the predictions
                    in_kernel_norm=True,
                )
            previous = strength
            yield K_valid @ alpha / strength + self._constant_of(problem), True

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


def _solve_shifted(K: NDArray, shift: NDArray, b: NDArray) -> NDArray[np.float64]:
    """Return x of (K + diag(shift)) x = b; by least squares where rounding has cost definiteness.

    K (n, n) is a kernel, shift (n,) is positive.
    """

    def shifted() -> NDArray[np.float64]:
        A = K.copy()
        A[np.diag_indices_from(A)] += shift
        return A

    try:
        return cholesky_solver(shifted())(b)
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(shifted(), b, rcond=None)[0]


def _path_tol(strength: float, slope_scale: float) -> float:
    """Return a tolerance that is small against the penalty, whose effect it must resolve."""
    return float(np.clip(0.01 * strength / max(1.0, slope_scale), 1e-6, 1e-3))
