"""The joint fit as a component: one convex problem over the models of all cells.

Its penalty is given, or the default one of `_fit.search`, whose settings are validated on folds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import cholesky_solver
from jointleaf._core.losses import Pinball, SquaredError
from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.problem import Problem
from jointleaf._core.progress import SolveProgress, tell
from jointleaf._core.solvers.base import Solver, choose_solver, solve
from jointleaf._core.solvers.dual import (
    newton_dual,
    pinball_dual,
    shared_cells,
    times_column_kernel,
)
from jointleaf._core.solvers.solution import Solution
from jointleaf._data.rows import Rows
from jointleaf._fit.component import (
    CellKinds,
    Component,
    FitContext,
    FitOptions,
    JointSolve,
    Split,
)
from jointleaf._fit.default_partitions import many_partitions
from jointleaf._fit.folds import Fold, grow_partitions, partition_kinds
from jointleaf._fit.limits import (
    FitShape,
    Seconds,
    Size,
    Stages,
    joint_memory,
    wide_partitions,
)
from jointleaf._fit.search import (
    DEFAULT_SETTING,
    GIVEN_PLAN,
    Setting,
    auto_penalty,
    default_plan,
    feature_weights,
    search_setting,
    setting_cells,
)
from jointleaf._fit.strengths import choose_strengths
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.contributions import cell_ranges
from jointleaf.partitions import (
    Partitioner,
    RootCell,
    UnionPartitioner,
)
from jointleaf.partitions._base import TargetType, seeded

F = TypeVar("F", bound=Fold)

_MAX_DENSE_ROWS = 2000  # of a fold's training part: beyond, iterative paths
_FEW_ROWS = 200  # paths of so few cost next to nothing, and their losses are noisy
_MAX_EXACT = 500  # rows times outputs up to which every line is searched with the loss itself
_GAP = 1e-2  # of solves with absolute errors and quantiles

#: A problem, and the function that returns the losses of raw predictions of the validation rows.
_DataTerm = tuple[Problem, Callable[[NDArray], NDArray]]


class Joint(Component):
    """The joint fit of all partitions, with a given penalty or one chosen by cross-validation."""

    name = "joint"

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        self._penalty = context.penalty
        self.setting: Setting | None = None
        #: the best setting where lines were compared, with a squared error or the loss
        self.line: Setting | None = None
        #: folds with all rows, after `held_out`
        self.folds: list[JointFold] = []
        #: fitted to all rows, after `fit`
        self.partitioner: Partitioner = self._seeded(context.n_jobs)

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose the penalty, and predict the validation rows with it."""
        context = self.context
        if context.penalty is not None:
            if context.penalty.is_auto:
                self._choose_strengths(splits)
            return None
        if not splits:
            return []
        self._search(splits)
        assert self.setting is not None
        return [fold.raw(self.setting) for fold in self.folds]

    def fit(self, frame: Frame) -> CellModel:
        """Grow the partitions on all rows, and solve the joint problem."""
        rows, partitioner = self.context.rows, self.grown()
        penalty, cells = self._final_penalty()
        model, self.solve = fit_cells_of(
            self.context.options, frame, rows, partitioner, penalty, cells
        )
        if self.setting is not None:
            self.solve = replace(self.solve, setting=self.setting._asdict())
        return model

    def grown(self) -> Partitioner:
        """Return the partitions of all rows, grown when they are asked for first."""
        if not hasattr(self.partitioner, "n_cells_"):
            self.partitioner = grow_partitions(self.context, self.partitioner, self.context.rows)
        return self.partitioner

    def describe(self) -> str:
        """Return the numbers of partitions and cells."""
        n_cells = self.partitioner.n_cells_
        return f"joint fit of {len(n_cells):,} partitions with {int(n_cells.sum()):,} cells"

    @classmethod
    def memory(cls, shape: FitShape) -> Stages:
        """Return what the largest of its joint problems takes."""
        target_type: TargetType = "regression" if shape.is_regression else "classification"
        size = shape.n_columns, shape.n_outputs
        partitioner = cls._partitions(shape.partitioner, target_type, size)
        return joint_memory(shape, partitioner, shape.n_rows)

    @classmethod
    def seconds(cls, size: Size) -> Seconds:
        """Return the time of the default partitions, with kernels of all training rows."""
        n_kernels = 1.0 if size.is_regression else 1.7 * max(1.0, size.n_outputs / 3)
        total = 0.35 + 6.5e-7 * size.n_rows**2 * (1 + size.n_columns / 100) * n_kernels
        return Seconds(0.28 * total, 0.16 * total)

    @staticmethod
    def _partitions(
        partitioner: Partitioner | None, target_type: TargetType, size: tuple[int, int]
    ) -> Partitioner:
        """Return the unfitted partitions, without the root cell."""
        if partitioner is not None:
            return partitioner
        return wide_partitions(many_partitions(target_type), *size)

    def _search(self, splits: Sequence[Split]) -> None:
        """Choose a setting of the default penalty."""
        context, options = self.context, self.context.options
        is_own = context.partitioner is None
        assert isinstance(options.cells, str)
        self.setting, self.line, self.folds, self.table = search_setting(
            self._fold_makers(JointFold, splits),
            default_plan(context.is_regression) if is_own else GIVEN_PLAN,
            cells=options.cells,
            one_se=options.one_se,
            n_jobs=context.n_jobs,
            verbose=options.verbose,
        )

    def _choose_strengths(self, splits: Sequence[Split]) -> None:
        """Choose the strengths of a given penalty that are "auto"."""
        context, options = self.context, self.context.options
        assert context.penalty is not None
        if not splits:
            raise ValueError(
                f"penalty={context.penalty!r}: {len(context.rows)} different rows are too few to "
                "choose a strength by cross-validation: give a number"
            )
        choice = choose_strengths(
            self._fold_makers(Fold, splits),
            context.penalty,
            device=options.device,
            cells=options.cells,
            one_se=options.one_se,
            n_jobs=context.n_jobs,
            verbose=options.verbose,
        )
        self._penalty, self.table = choice.best, choice.table

    def _final_penalty(self) -> tuple[Term, CellKinds]:
        """Return the penalty that was given or chosen, and the kind of cells that goes with it."""
        cells = self.context.options.cells
        if self._penalty is not None:
            return self._penalty, partition_kinds(cells, self.partitioner)
        self.setting = self.setting or DEFAULT_SETTING
        return self.penalty_of(self.setting)

    def penalty_of(self, setting: Setting) -> tuple[Term, CellKinds]:
        """Return the default penalty of a setting for the partitions of all rows, and cells."""
        cells, partitioner = self.context.options.cells, self.grown()
        gains, n_partitions = partitioner.split_gains_, len(partitioner.n_cells_)
        root_cell, sources = self.context.options.root_cell, self.context.plan.sources
        penalty = auto_penalty(setting, gains, n_partitions, root_cell, sources)
        return penalty, setting_cells(setting) if cells == "linear" else cells

    def _seeded(self, n_jobs: int) -> Partitioner:
        context = self.context
        size = context.rows.X.shape[1], context.n_outputs
        partitioner = self._partitions(context.partitioner, context.target_type, size)
        if self.context.options.root_cell:
            is_union = isinstance(partitioner, UnionPartitioner)
            members = partitioner.partitioners if is_union else [partitioner]
            partitioner = UnionPartitioner([*members, RootCell()])
        return seeded(partitioner, self.context.seed, n_jobs)

    def _fold_makers(self, kind: type[F], splits: Sequence[Split]) -> list[Callable[..., F]]:
        threads = max(1, self.context.n_jobs // max(1, len(splits)))  # folds run side by side
        partitioner = self._seeded(threads)

        def make(train: Rows, valid: Rows, max_rows: int | None = None) -> F:
            fresh, n_folds = partitioner.fresh(), len(splits)
            return kind(
                self.context, train, valid, fresh,
                max_rows=max_rows, n_folds=n_folds, n_jobs=threads,
            )  # fmt: skip

        return [partial(make, train, valid) for train, valid in splits]


def fit_cells_of(
    options: FitOptions,
    frame: Frame,
    rows: Rows,
    partitioner: Partitioner,
    penalty: Term,
    cells: CellKinds,
    init: NDArray | None = None,
) -> tuple[CellModel, JointSolve]:
    """Fit the cells of a fitted partitioner with a penalty, from weights `init` or zero."""
    design = frame.design(rows.X, partitioner, cells)
    problem = frame.problem(design, rows, penalty)
    solution = solve_problem(options, problem, init)
    ranges = None
    if options.clip == "cell" and solution.layout.n_linear_cells:
        ranges = cell_ranges(design.rows, partitioner.apply(rows.X), solution.layout)
    model = CellModel.of_solution(frame, partitioner, solution, ranges)
    return model, JointSolve(solution, penalty, frame.offset)


def solve_problem(
    options: FitOptions, problem: Problem, init: NDArray | None = None, usual: Solver | None = None
) -> Solution:
    """Solve a problem; with the `usual` solver where the options leave the choice."""
    is_open = options.solver == "auto" and options.device in ("auto", "cpu")
    usual = usual if is_open else None
    solution = solve(
        problem,
        usual or options.solver,
        init,
        tol=options.tol,
        max_iter=options.max_iter,
        device="cpu" if usual else options.device,
        listener=SolveProgress() if options.verbose else None,
    )
    if options.verbose:
        tell(f"{solution.message}, objective {solution.objective:.6g}")
    return solution


# -- folds ---------------------------------------------------------------------------------------


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
