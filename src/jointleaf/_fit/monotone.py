"""The joint fit under monotone constraints: one convex problem with inequalities between weights.

Every partition is made monotone, which is sufficient for their sum (`_model.monotone`): those that
split on constrained columns have constants, in order, and the linear cells of all others have
slopes of the right signs. Little is lost if trees are grown for that: LightGBM grows its trees
under the constraints, and the trees with linear cells are grown on the other columns alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellKind
from jointleaf._core.penalties import Frobenius
from jointleaf._core.penalties.monotone import Monotone
from jointleaf._core.solvers.base import SolverState
from jointleaf._core.solvers.fista import FISTA
from jointleaf._data.rows import Rows
from jointleaf._fit.component import (
    Component,
    FitContext,
    FitOptions,
    Split,
    Table,
    in_units_of,
)
from jointleaf._fit.folds import Fold, best_row, grow, join_tables, loss_columns
from jointleaf._fit.joint import fit_cells_of
from jointleaf._fit.search import Setting, auto_penalty
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.monotone import order_of_cells, slope_signs
from jointleaf.partitions import (
    LightGBMPartitioner,
    Partitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    UnionPartitioner,
)
from jointleaf.partitions._base import seeded

_COARSE = 10.0 ** np.arange(0.0, -4.01, -1.0)  # strengths, with which scales are compared
_STRENGTHS = 10.0 ** np.arange(0.5, -4.01, -0.5)
_SLOPE_SCALES = (1.0, 3.0, 10.0, 30.0)
_FEATURE_POWER = 1.0
_MOST_ROWS = 10_000  # of a training part
_PATH_TOL, _PATH_STEPS = 3e-3, 300  # of solves whose predictions choose a setting
# Of the model with a setting that was chosen so. Where penalties are weak inequalities take
# thousands of steps to a millionth, which moves predictions by thousandths of their spread.
_TOL, _STEPS = 3e-4, 10_000


class _Trial(NamedTuple):
    """Raw predictions of validation rows, their losses (groups, 1), and whether the solve ended."""

    raw: NDArray
    losses: NDArray
    converged: bool


@dataclass(frozen=True)
class _Cells:
    """Partitions grown on some rows, the kinds of their cells, and the constraint on them."""

    partitioner: UnionPartitioner
    kinds: tuple[CellKind, ...]
    constraint: Monotone


class MonotoneJoint(Component):
    """The joint fit of all partitions with monotone constraints."""

    name = "joint"

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        assert context.signs is not None
        self._signs = context.signs
        self._setting = Setting(0.01, 3.0, _FEATURE_POWER)
        self._cells: _Cells | None = None
        if context.partitioner is None:
            ordered, free = _default_partitions()
        else:
            ordered, free = [context.partitioner], []
        if context.options.cells == "constant" or (self._signs != 0).all():
            free = []
        root = [RootCell()] if context.options.root_cell else []
        members = [*ordered, *free, *root]
        union = seeded(UnionPartitioner(members), context.seed, context.n_jobs)
        for member in union.nested():
            if isinstance(member, LightGBMPartitioner):
                signs = {"monotone_constraints": self._signs.tolist()}
                member.set_params(options=signs | dict(member.options or {}))
        self._partitioner, self._n_ordered, self._n_free = union, len(ordered), len(free)

    # -- partitions ----------------------------------------------------------------------------

    def _grow(self, rows: Rows, *, is_fold: bool) -> _Cells:
        """Grow the partitions, those of linear cells on rows without the constrained columns."""
        context = self.context
        growth_rows = context.growth_rows(rows)
        X = growth_rows.X.copy()
        X[:, self._signs != 0] = 0.0
        hidden = replace(growth_rows, X=X)
        fitted: list[Partitioner] = []
        union = self._partitioner.fresh() if is_fold else self._partitioner
        for k, member in enumerate(union.partitioners):
            is_free = self._n_ordered <= k < self._n_ordered + self._n_free
            grow(member, hidden if is_free else growth_rows, context.target_type, context.columns)
            fitted.append(member)
        grown = UnionPartitioner.of_fitted(fitted)
        pairs, is_split = order_of_cells(grown, self._signs)
        kind: CellKind = "constant" if context.options.cells == "constant" else "linear"
        kinds: list[CellKind] = ["constant" if split else kind for split in is_split]
        return _Cells(grown, tuple(kinds), Monotone(pairs, slope_signs(context.plan, self._signs)))

    def penalty(self, cells: _Cells, setting: Setting) -> Frobenius:
        """Return the penalty of a setting; of one that is given only the strength may change."""
        given = self.context.penalty
        if given is not None:
            assert isinstance(given, Frobenius)
            return given.at(setting.strength) if given.is_auto else given
        gains, n_partitions = cells.partitioner.split_gains_, len(cells.kinds)
        has_root, sources = self.context.options.root_cell, self.context.plan.sources
        return auto_penalty(setting, gains, n_partitions, has_root, sources)

    # -- choosing ------------------------------------------------------------------------------

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose the setting, and predict the validation rows with it."""
        context, given = self.context, self.context.penalty
        if given is not None and not given.is_auto:
            return None
        if not splits:
            if given is not None:
                raise ValueError(
                    f"penalty={given!r}: {len(context.rows)} different rows are too few to choose "
                    "a strength by cross-validation: give a number"
                )
            return []
        folds = []
        for train, valid in splits:
            train = train.take(slice(_MOST_ROWS))  # rows are in random order
            cells = self._grow(train, is_fold=True)
            fold = Fold(context, train, valid, cells.partitioner, n_folds=len(splits))
            folds.append(_MonotoneFold(self, fold, cells))
        start = self._choose_scale(folds[0])
        strengths = _STRENGTHS[4 * start.strength > _STRENGTHS]
        self.table, predictions = self._follow(folds, start.slope_scale, strengths)
        best = best_row(self.table, one_se=context.options.one_se)
        self._setting = start._replace(strength=float(self.table["strength"][best]))
        return [
            in_units_of(raw, fold.fold.units, context.target_units(train))
            for raw, fold, (train, _) in zip(predictions[best], folds, splits, strict=True)
        ]

    def _choose_scale(self, fold: _MonotoneFold) -> Setting:
        """Climb along the scales of slopes to the smallest loss of one fold."""
        is_given = self.context.penalty is not None or "linear" not in fold.cells.kinds
        best, least = Setting(1.0, 1.0, _FEATURE_POWER), np.inf
        for scale in _SLOPE_SCALES[:1] if is_given else _SLOPE_SCALES:
            table, _ = self._follow([fold], scale, _COARSE)
            k = best_row(table, one_se=False)
            if table["mean_loss"][k] >= least:
                break
            best, least = Setting(float(_COARSE[k]), scale, _FEATURE_POWER), table["mean_loss"][k]
        return best

    def _follow(
        self, folds: Sequence[_MonotoneFold], scale: float, strengths: NDArray
    ) -> tuple[Table, list[list[NDArray]]]:
        """Follow strengths from strong to weak until two losses in a row are above the best.

        Returns validation losses, and raw predictions of the validation rows of every fold.
        """
        tables: list[Table] = []
        predictions: list[list[NDArray]] = []
        for fold in folds:
            fold.theta = None
        for strength in strengths.tolist():
            setting = Setting(strength, scale, _FEATURE_POWER)
            trials = [fold.trial(setting) for fold in folds]
            table = {name: np.array([value]) for name, value in setting._asdict().items()}
            table |= loss_columns([fold.fold for fold in folds], [t.losses for t in trials])
            table["converged"] = np.array([all(trial.converged for trial in trials)])
            tables.append(table)
            predictions.append([trial.raw for trial in trials])
            means = [float(table["mean_loss"][0]) for table in tables]
            if len(means) > 2 and min(means[-2:]) > min(means[:-2]):
                break
        return join_tables(tables), predictions

    # -- fitting -------------------------------------------------------------------------------

    def fit(self, frame: Frame) -> CellModel:
        """Grow the partitions on all rows, and solve the joint problem."""
        context = self.context
        self._cells = cells = self._grow(context.rows, is_fold=False)
        penalty = self.penalty(cells, self._setting)
        model, solve = fit_cells_of(
            self._solve_options(), frame, context.rows, cells.partitioner,
            penalty + cells.constraint, cells.kinds,
        )  # fmt: skip
        setting = {} if context.penalty is not None else self._setting._asdict()
        self.solve = replace(solve, penalty=penalty, setting=setting)
        return model

    def _solve_options(self) -> FitOptions:
        """Return the options, with limits of its own for a setting that nobody has given."""
        options = self.context.options
        is_default = (options.tol, options.max_iter) == (FitOptions.tol, FitOptions.max_iter)
        if self.context.penalty is not None or not is_default:
            return options
        return replace(options, tol=_TOL, max_iter=_STEPS)

    def describe(self) -> str:
        """Return the numbers of partitions and cells, and how many are constrained."""
        assert self._cells is not None
        n_cells = self._cells.partitioner.n_cells_
        return (
            f"joint fit of {len(n_cells):,} partitions with {int(n_cells.sum()):,} cells under "
            f"{len(self._cells.constraint.pairs):,} inequalities"
        )


class _MonotoneFold:
    """A fold whose problems are solved along a path, each started from the solution before."""

    def __init__(self, joint: MonotoneJoint, fold: Fold, cells: _Cells) -> None:
        self._joint, self.fold, self.cells = joint, fold, cells
        self._problem = fold.problem(Frobenius(1.0) + cells.constraint, cells.kinds)
        self._valid, self._state = fold.valid_design(cells.kinds), SolverState()
        self.theta: NDArray | None = None

    def trial(self, setting: Setting) -> _Trial:
        """Solve with a setting, and predict the validation rows."""
        penalty = self._joint.penalty(self.cells, setting) + self.cells.constraint
        solution = FISTA().solve(
            self._problem.with_penalty(penalty), self.theta,
            tol=_PATH_TOL, max_iter=_PATH_STEPS, state=self._state,
        )  # fmt: skip
        self.theta = solution.theta
        raw = self._valid.matvec(self.theta) + self.fold.constant
        return _Trial(raw, self.fold.held_out_losses(raw)[:, None], solution.converged)


def _default_partitions() -> tuple[list[Partitioner], list[Partitioner]]:
    """Return small trees for constants in order, and ones for linear cells, unfitted."""
    boosted = LightGBMPartitioner(75, 8)
    randomized = LightGBMPartitioner(75, 8, options={"extra_trees": True})
    ordered = [boosted, randomized, ResidualPartitioner(LightGBMPartitioner(50, 8))]
    on_residuals = UnionPartitioner([LightGBMPartitioner(25, 4), RandomTreesPartitioner(25, 8)])
    return ordered, [RandomTreesPartitioner(25, 8), ResidualPartitioner(on_residuals)]
