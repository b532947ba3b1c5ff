"""The joint fit as a component: one convex problem over the models of all cells.

Few rows are near a quantile of 0.1 or 0.9, and a fit of it alone knows little: for losses with
kinks there is a second component, `Located`. Where the targets are at all is a question that all
rows answer: the joint fit by squared error. What is left, the distance of the quantile from that
location, is fitted by the loss itself to residuals of rows that the location has not seen. With a
strong penalty it is one constant for all rows; a weaker one lets it depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from jointleaf._core.losses import SquaredError, robust_scale
from jointleaf._core.penalties import Term
from jointleaf._core.problem import Problem
from jointleaf._core.progress import SolveProgress, tell
from jointleaf._core.solvers.base import Solver, solve
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
from jointleaf._fit.folds import Fold, grow_partitions, partition_kinds
from jointleaf._fit.joint_fold import (
    DEFAULT_SETTING,
    JointFold,
    Setting,
    auto_penalty,
    setting_cells,
)
from jointleaf._fit.limits import (
    FitShape,
    Seconds,
    Size,
    Stages,
    joint_memory,
    wide_partitions,
)
from jointleaf._fit.search import GIVEN_PLAN, choose_strength, default_plan, search_setting
from jointleaf._fit.strengths import choose_strengths
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.contributions import cell_ranges
from jointleaf.partitions import (
    LightGBMPartitioner,
    Partitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    UnionPartitioner,
)
from jointleaf.partitions._base import TargetType, seeded

F = TypeVar("F", bound=Fold)


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
        search = search_setting(
            self._fold_makers(JointFold, splits),
            default_plan(context.is_regression) if is_own else GIVEN_PLAN,
            cells=options.cells,
            one_se=options.one_se,
            n_jobs=context.n_jobs,
            verbose=options.verbose,
        )
        self.setting, self.folds, self.table = search.best, search.folds, search.table
        self.line = search.start

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


class BesideJoint(Component):
    """A component that works with the folds and cells of the joint fit before it."""

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        joint = components[Joint.name]
        assert isinstance(joint, Joint)
        self._joint = joint


def many_partitions(target_type: TargetType) -> UnionPartitioner:
    """Return 400 small trees of four kinds, 450 for classes, unfitted.

    Boosted and extremely randomised trees, grown on the target and on the residuals of a linear
    model: which of them are better depends on the data, and together they are better than each.
    For classes the leaf values of the boosted trees also take part: there are 100 of them instead
    of 50. With few rows 63 bins of a column are enough for them, and take half the time.
    """
    bins = {"max_bin": 63}
    n_boosted = 100 if target_type == "classification" else 50
    on_residuals = UnionPartitioner(
        [
            LightGBMPartitioner(50, 4, options=bins),
            RandomTreesPartitioner(100, 8),
            RandomTreesPartitioner(100, 4),
        ]
    )
    return UnionPartitioner(
        [
            LightGBMPartitioner(n_boosted, 4, options=bins),
            RandomTreesPartitioner(100, 8),
            ResidualPartitioner(on_residuals),
        ]
    )


def few_partitions() -> UnionPartitioner:
    """Return 75 small partitions, unfitted: boosted and random trees, and trees on residuals."""
    boosted = LightGBMPartitioner(25, 8)
    return UnionPartitioner(
        [boosted, RandomTreesPartitioner(25, 16), ResidualPartitioner(clone(boosted))]
    )


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


# -- quantiles around a location ------------------------------------------------------------------


_DISTANCE = (0.3, 0.03, 0.003, 3e-4)  # times the strongest
_TOL = 1e-3  # of the distance, whose last digits do not matter
_AROUND = tuple(10.0 ** np.arange(1.0, -1.01, -0.5))  # times the best strength of the lines


class Located(BesideJoint):
    """A joint fit by squared error, and one of its cross-fitted residuals by the loss."""

    name = "located"

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose both strengths; None for losses without kinks, and where rows are left out."""
        joint, context = self._joint, self.context
        if not (context.has_location and joint.folds and _hold_out_all(splits, len(context.rows))):
            return None
        assert joint.line is not None
        near = [float(joint.line.strength * factor) for factor in _AROUND]
        self._where, _ = choose_strength(joint.folds, joint.line, near, is_exact=False)
        locations = [fold.constant + fold.raw(self._where, is_exact=False) for fold in joint.folds]
        #: of all rows, by models that have not seen them
        self._locations = np.empty(len(context.rows))
        for (_, valid), location in zip(splits, locations, strict=True):
            self._locations[valid.places] = location
        folds = [
            fold.around(self._locations[train.places], self._locations[valid.places])
            for fold, (train, valid) in zip(joint.folds, splits, strict=True)
        ]
        self._distance = self._choose_distance(folds)
        for fold in (*joint.folds, *folds):
            fold.release()
        return [a + fold.raw(self._distance) for a, fold in zip(locations, folds, strict=True)]

    def _choose_distance(self, folds: Sequence[JointFold]) -> Setting:
        """Choose the strength of the distance, with constants or the slopes of the location.

        With slopes it is looked for next to the best one of constants.
        """
        rows = self.context.rows
        unit = robust_scale(self.context.target(rows) - self._locations, rows.s)
        lines = [self._where._replace(slope_scale=0.0)]
        if self._where.slope_scale > 0:
            lines.append(self._where)
        choices, factors = [], list(_DISTANCE)
        for line in lines:
            strongest = (1 + line.slope_scale**2) / unit  # hardly moves what is of this size
            strengths = [float(factor * strongest) for factor in factors]
            choices.append(choose_strength(folds, line, strengths, is_exact=True))
            best = choices[-1][0].strength / strongest
            factors = [best * factor for factor in _AROUND[1:4]]
        return min(choices, key=lambda choice: choice[1])[0]

    def fit(self, frame: Frame) -> CellModel:
        """Fit location and distance to all rows, in the cells of the joint fit."""
        rows, loss = self.context.rows, frame.loss
        target = self.context.location_target(rows)
        where = replace(frame, loss=SquaredError(), offset=np.average(target, weights=rows.s))
        clipped = replace(rows, y=frame.centre + frame.unit * target)
        shift = loss.best_shift(frame.target(rows.y), rows.s, self._locations)
        distance = replace(frame, offset=np.asarray(shift))
        located = replace(rows, offset=self._locations)
        options, partitioner = self.context.options, self._joint.grown()
        model, _ = fit_cells_of(
            options, where, clipped, partitioner, *self._joint.penalty_of(self._where)
        )
        penalty = self._joint.penalty_of(self._distance)
        options = replace(options, tol=max(options.tol, _TOL))
        further, self.solve = fit_cells_of(options, distance, located, partitioner, *penalty)
        return model + further

    def describe(self) -> str:
        """Return the strengths."""
        return (
            f"location by squared error with strength {self._where.strength:.3g}, and the "
            f"distance from it with strength {self._distance.strength:.3g}"
        )


def _hold_out_all(splits: Sequence[Split], n_rows: int) -> bool:
    """Whether every row is held out exactly once, and never trained on at the same time."""
    places = np.sort(np.concatenate([valid.places for _, valid in splits]))
    is_apart = not any(np.isin(train.places, valid.places).any() for train, valid in splits)
    return is_apart and np.array_equal(places, np.arange(n_rows))
