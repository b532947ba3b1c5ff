"""The joint fit at every size: constants in large trees, linear models in small ones.

Every group g of P_g partitions has a scale a_g, so that with the share M_g of its partitions in
which two rows meet the fit is the kernel model

    K = sum_g a_g M_g o (1 + 1[g is linear] s^2 G),      strength lambda,

in which G is the linear kernel of features weighted by split gains, and s a fixed scale of slopes.
As a penalty this is `Frobenius(lambda / s^2, lambda, v, u)` with u_p = a_g / P_g. One Krylov run
tells the validation losses of all strengths (`_core.solvers.krylov`). Held-out predictions of the
groups tell how much each of them should count: the scales follow these weights, and what is left
of them multiplies the groups.

Classes are fitted by squared error on their indicators, whose sums over cells the blend turns into
log-odds; logistic losses cost several times as much, and their blends are no better.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress, SolveProgress
from jointleaf._core.solvers import Solution, solve
from jointleaf._core.solvers.krylov import Krylov, KrylovPath
from jointleaf._data.rows import Rows
from jointleaf._fit.blend import least_squares_weights, logistic_weights
from jointleaf._fit.boosting import JOINT_ROUNDS, Boosted
from jointleaf._fit.component import Component, FitContext, JointSolve, Split, Table
from jointleaf._fit.folds import Fold, best_row, grow, join_tables, loss_columns
from jointleaf._fit.memory import SPLIT_BYTES, FitShape, MemoryEstimate, partition_sizes
from jointleaf._fit.search import feature_weights
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.contributions import cell_ranges
from jointleaf.partitions import (
    LargeTreesPartitioner,
    LightGBMPartitioner,
    Partitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    UnionPartitioner,
)
from jointleaf.partitions._base import seeded

_SCALE_ROWS = 5000  # of the training part that tell the scales
_STRENGTHS = 10.0 ** np.arange(-0.5, -8.01, -0.5)
_STEPS, _MOST_STEPS = 10, 100  # of the Krylov run, at a time and in all
_USUAL_STEPS = 60
_LEAST_GAIN = 3e-3  # of the validation loss in ten steps: less is not worth ten passes
_SCALE_POWER = 4.0  # with which scales follow the weights of their groups
_LEAST_SCALE = 1e-3
_PRIOR_ROWS = 100.0
_MOST_WEIGHT = 5.0  # of a group: next to nothing, multiplied, would be noise
_FEATURE_POWER = 1.0
_SLOPE_SCALES = {"regression": 3.0, "classification": 1.0}
_LOG_ODDS = {True: 4.0, False: 8.0}  # of an indicator's predictions, two classes or more


class Group(NamedTuple):
    """Partitions of one kind, unfitted, with cells of one kind and a scale of their own."""

    name: str
    partitioner: Partitioner
    kind: CellKind


def partition_groups(n_rows: int, n_features: int, *, is_linear: bool, root: bool) -> list[Group]:
    """Return the groups for a number of training rows and of linear features.

    Large trees have a cell for every 40 rows. There are 100 of each kind up to 5,000 rows and
    fewer beyond (37 for 100,000), which keeps the time of a fit below that of its peers. Linear
    cells, whose cost grows with rows and features, are in 50 to 10 small trees of each kind.
    """
    n_cells = int(np.clip(n_rows // 40, 8, 4000))
    n_large = round(100 * min(1.0, 5_000 / n_rows) ** 0.33)
    n_small = int(np.clip(1_500_000 // (n_rows * max(n_features, 1)), 10, 50))
    large = LargeTreesPartitioner(n_large, n_cells)
    randomized = LargeTreesPartitioner(n_large, n_cells, thresholds="random")
    small = LargeTreesPartitioner(n_small, 16, thresholds="random")
    groups = [
        Group("large_trees", large, "constant"),
        Group("random_trees", randomized, "constant"),
    ]
    if n_features:
        groups.append(Group("rotated_trees", RotatedPartitioner(randomized), "constant"))
    if n_features and is_linear:
        boosted = LightGBMPartitioner(n_small, 8)
        groups.append(Group("linear_boosted", boosted, "linear"))
        groups.append(Group("linear_residual", ResidualPartitioner(boosted), "linear"))
        groups.append(Group("linear_random", RandomTreesPartitioner(n_small, 16), "linear"))
        groups.append(Group("rotated_linear_trees", RotatedPartitioner(small), "linear"))
        if root:
            groups.append(Group("root", RootCell(), "linear"))
    return groups


class _Setting(NamedTuple):
    """What is chosen on held-out rows."""

    strength: float
    scales: NDArray[np.float64]  # a_g of every group, with sum one
    factors: NDArray[np.float64]  # that multiply the groups' predictions
    n_steps: int
    log_odds: float = 1.0  # what predictions of classes are multiplied by
    constant: NDArray | float = 0.0  # and what is added to them


class GroupedJoint(Component):
    """The joint fit of groups of partitions, with a scale for each group."""

    name = "joint"

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        options = context.options
        n_features = len(context.plan.names)
        is_linear = options.cells == "linear"
        self._groups = partition_groups(
            len(context.rows), n_features, is_linear=is_linear, root=options.root_cell
        )
        self._boosted = next((c for c in components.values() if isinstance(c, Boosted)), None)
        self._slope_scale = _SLOPE_SCALES[context.target_type]
        self._folds: list[_GroupFold] = []
        self._setting = _Setting(1e-3, np.ones(len(self._groups)), np.ones(len(self._groups)), 30)
        #: names of the groups and the kinds of their cells
        self._names = [group.name for group in self._groups]
        self._kinds: list[CellKind] = [group.kind for group in self._groups]

    def _grow(self, rows: Rows, boosted: Partitioner | None = None) -> UnionPartitioner:
        """Grow all groups; the trees of a booster that was grown on the same rows are the last."""
        context = self.context
        union = UnionPartitioner([group.partitioner for group in self._groups])
        union = seeded(union, context.seed, context.n_jobs)
        grow(union, rows, context.target_type, context.columns)
        if boosted is None:
            return union
        return UnionPartitioner.of_fitted([*union.partitioners_, boosted])

    # -- choosing ------------------------------------------------------------------------------

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose strength, scales and steps, and predict the validation rows with them."""
        if not splits:
            return []
        context = self.context
        boosted: Sequence[Partitioner | None] = [None] * len(splits)
        if context.is_regression and self._boosted is not None and self._boosted.partitioners:
            boosted = self._boosted.partitioners
            self._names, self._kinds = [*self._names, "boosted_trees"], [*self._kinds, "constant"]
        self._folds = [
            _GroupFold(
                context, train, valid, self._grow(train, trees),
                n_folds=len(splits), n_jobs=context.n_jobs,
            )
            for (train, valid), trees in zip(splits, boosted, strict=True)
        ]  # fmt: skip
        for fold in self._folds:  # boosting stops after different numbers of rounds
            fold.prepare(*self._partition_kinds(fold.partitioner))
        progress = Progress(2, "joint fit", enabled=context.options.verbose)
        scales = np.full(len(self._names), 1.0 / len(self._names))
        sample = [fold.sample(_SCALE_ROWS) for fold in self._folds]
        factors = self._follow(scales, sample).factors
        progress.step("scales of groups")
        if factors.any():
            scales = scales * (factors / factors.max()) ** _SCALE_POWER
            scales = np.where(scales < _LEAST_SCALE * scales.max(), 0.0, scales)
        best = self._follow(scales / scales.sum(), self._folds)
        progress.step("strength")
        self._setting, self.table = best.setting(), best.table
        predictions = [np.tensordot(best.factors, parts, 1) for parts in best.predictions]
        if not context.is_regression:
            predictions = self._calibrate(predictions)
        return predictions

    def _follow(self, scales: NDArray, folds: Sequence[_GroupFold]) -> _Choice:
        """Run along the strengths with these scales; stop when further steps gain little."""
        strengths = _STRENGTHS
        v = feature_weights(folds[0].gains, _FEATURE_POWER)
        paths = [fold.path(scales, v, self._slope_scale) for fold in folds]
        last = np.inf
        while True:
            has_more = [path.extend(_STEPS) for path in paths]
            losses = [
                fold.strength_losses(path, strengths)
                for fold, path in zip(folds, paths, strict=True)
            ]
            table = loss_columns(folds, losses)
            loss = float(table["mean_loss"].min())
            is_last = not all(has_more) or paths[0].n_steps >= _MOST_STEPS
            if is_last or last - loss < _LEAST_GAIN * last:
                break
            last = loss
        table = {"strength": strengths, **table}
        strength = float(strengths[best_row(table, one_se=self.context.options.one_se)])
        predictions = [
            fold.group_predictions(path.weights(strength))
            for fold, path in zip(folds, paths, strict=True)
        ]
        # A space that has ended holds the exact solution: that of all rows may need more steps, and
        # short of it small strengths leave large weights.
        n_steps = paths[0].n_steps if all(has_more) else _MOST_STEPS
        return _Choice.of(scales, strength, n_steps, table, predictions, folds)

    def _calibrate(self, predictions: list[NDArray]) -> list[NDArray]:
        """Turn predictions of indicators into log-odds."""
        context = self.context
        target = np.concatenate([context.loss.encode(fold.valid.y) for fold in self._folds])
        s = np.concatenate([fold.valid.s for fold in self._folds])
        prior = np.array([_LOG_ODDS[target.ndim == 1]])
        (scale,), constant = logistic_weights(
            [np.concatenate(predictions)], target, s, prior, 10.0, has_constant=True
        )
        self._setting = self._setting._replace(log_odds=scale, constant=constant)
        raw = [scale * part + constant for part in predictions]
        losses = [
            fold.group_losses(context.loss, context.loss.encode(fold.valid.y), part)[:, None]
            for fold, part in zip(self._folds, raw, strict=True)
        ]
        assert self.table is not None
        exact = {
            "strength": np.array([self._setting.strength]),
            **loss_columns(self._folds, losses),
        }
        n = len(self.table["strength"])
        self.table = {**join_tables([self.table, exact]), "is_exact": np.arange(n + 1) == n}
        return raw

    # -- fitting -------------------------------------------------------------------------------

    def fit(self, frame: Frame) -> CellModel:
        """Fit the cells of all groups to all rows."""
        context, setting = self.context, self._setting
        rows, codes = self._rows_and_codes()
        kinds, group_of = self._partition_kinds(self.partitioner)
        v = feature_weights(self.partitioner.split_gains_, _FEATURE_POWER)[context.plan.sources]
        penalty = Frobenius(
            setting.strength / self._slope_scale**2,
            setting.strength,
            v,
            _partition_weights(setting.scales, group_of),
        )
        target = frame.loss.encode(frame.target(rows.y))
        centre = np.average(target, axis=0, weights=rows.s)
        design = LeafDesign(
            frame.features.transform(rows.X).astype(np.float32), codes, self.partitioner.n_cells_,
            cells=kinds, n_jobs=frame.n_jobs,
        )  # fmt: skip
        problem = Problem(design, target, SquaredError(), penalty, rows.s, centre)
        solution = self._solve(problem)
        self.solve = JointSolve(solution, penalty, np.asarray(centre), self._numbers())
        scaled = _scaled_groups(solution, setting.factors[group_of])
        # What classes start from is part of the constant that makes log-odds of indicators.
        offset = np.asarray(centre) if context.is_regression else np.zeros_like(centre)
        ranges = None
        if context.options.clip == "cell" and solution.layout.n_linear_cells:
            ranges = cell_ranges(design.rows, codes, solution.layout)
        frame = replace(frame, offset=offset)
        model = CellModel.of_solution(frame, self.partitioner, scaled, ranges)
        return (setting.log_odds * model).plus_constant(setting.constant)

    def _rows_and_codes(self) -> tuple[Rows, NDArray]:
        """Return all rows, in any order, and their codes in the partitions of the first split.

        Trees of four fifths of the rows are as good as those of all: it is their cells that are
        fitted to all.
        """
        rows = self.context.rows
        if not self._folds:
            self.partitioner = self._grow(rows)
            return rows, self.partitioner.apply(rows.X)
        fold = self._folds[0]
        self.partitioner = fold.partitioner
        # Splits of the user's may leave rows out, or hold some on both sides.
        is_whole = len(fold.train) + len(fold.valid) == len(rows) and not rows.labels.shape[1]
        if not is_whole:
            return rows, self.partitioner.apply(rows.X)
        return fold.train.joined(fold.valid), np.concatenate([fold.codes, fold.codes_valid])

    def _solve(self, problem: Problem) -> Solution:
        options = self.context.options
        by_rule = options.solver == "auto" and options.device in ("auto", "cpu")
        solution = solve(
            problem,
            Krylov(self._setting.n_steps) if by_rule else options.solver,
            tol=options.tol,
            max_iter=options.max_iter,
            device="cpu" if by_rule else options.device,
            listener=SolveProgress() if options.verbose else None,
        )
        if options.verbose:
            print(f"{solution.message}, objective {solution.objective:.6g}")
        return solution

    def _numbers(self) -> dict[str, float]:
        setting = self._setting
        numbers = {"strength": setting.strength, "n_steps": float(setting.n_steps)}
        for name, scale, factor in zip(self._names, setting.scales, setting.factors, strict=True):
            numbers |= {f"{name}_scale": float(scale), f"{name}_weight": float(factor)}
        return numbers

    def describe(self) -> str:
        """Return the groups with their numbers of partitions."""
        n_cells = self.partitioner.n_cells_
        loss = "" if self.context.is_regression else " to class indicators"
        return f"joint fit{loss} of {len(n_cells):,} partitions with {int(n_cells.sum()):,} cells"

    @classmethod
    def memory(cls, shape: FitShape) -> MemoryEstimate:
        """Return what the joint problem takes, in single precision, and the runs along its path."""
        n, d, K = shape.n_rows, shape.n_features, shape.n_outputs
        groups = partition_groups(n, d, is_linear=d > 0, root=shape.root_cell)
        sizes = [(g.kind, *size) for g in groups for size in partition_sizes(g.partitioner)]
        n_partitions = sum(p for _, p, _ in sizes) + (JOINT_ROUNDS if shape.is_regression else 0)
        n_cells = sum(p * min(c, n) for _, p, c in sizes)
        n_linear = sum(p * min(c, n) for kind, p, c in sizes if kind == "linear")
        weights = 4 * (n_cells + n_linear * d) * K
        return MemoryEstimate(
            codes=8 * n * n_partitions,  # of both parts of a split, and of all rows
            design=8 * n * n_partitions + 12 * n * (d + 1),
            solver=2 * 4 * n * K * _USUAL_STEPS + 12 * weights,
            model=2 * weights + SPLIT_BYTES * n_cells,
        )

    # -- groups --------------------------------------------------------------------------------

    def _partition_kinds(self, fitted: Partitioner) -> tuple[list[CellKind], NDArray[np.intp]]:
        """Return the kind of cells and the group of every partition."""
        assert isinstance(fitted, UnionPartitioner)
        sizes = [len(member.n_cells_) for member in fitted.partitioners_]
        group_of = np.repeat(np.arange(len(sizes)), sizes)
        return [self._kinds[g] for g in group_of], group_of


class _Choice(NamedTuple):
    """A run along the strengths with some scales, and what the groups predict at the best."""

    scales: NDArray
    strength: float
    n_steps: int
    table: Table
    predictions: list[NDArray]  # of every fold, (groups, n[, K])
    factors: NDArray

    @classmethod
    def of(
        cls,
        scales: NDArray,
        strength: float,
        n_steps: int,
        table: Table,
        predictions: list[NDArray],
        folds: Sequence[_GroupFold],
    ) -> _Choice:
        """Fit weights of the groups to the held-out targets."""
        parts = np.concatenate([part.reshape(len(part), -1) for part in predictions], axis=1)
        target = np.concatenate([fold.target_valid.ravel() for fold in folds])
        s = np.concatenate([fold.valid.s for fold in folds])
        used, factors = scales > 0, np.zeros(len(scales))
        factors[used] = least_squares_weights(
            list(parts[used]), target, np.repeat(s, len(target) // len(s)),
            np.ones(int(used.sum())), _PRIOR_ROWS, _MOST_WEIGHT,
        )  # fmt: skip
        return cls(scales, strength, n_steps, table, predictions, factors)

    def setting(self) -> _Setting:
        """Return the setting without a calibration."""
        return _Setting(self.strength, self.scales, self.factors, self.n_steps)


class _GroupFold(Fold):
    """A fold with designs in single precision, whose kinds of cells differ between groups."""

    def prepare(self, kinds: Sequence[CellKind], group_of: NDArray[np.intp]) -> None:
        """Make the designs of both parts."""
        self._group_of, self._cell_kinds = group_of, kinds
        self._design, self._design_valid = (
            LeafDesign(X.astype(np.float32), codes, self.n_cells, cells=kinds, n_jobs=self.n_jobs)
            for X, codes in ((self.X, self.codes), (self.X_valid, self.codes_valid))
        )
        layout = self._design.layout
        slopes = np.repeat(group_of[layout.partition_of_cell[layout.linear_cells]], layout.n_slopes)
        self._group_of_weight = np.append(slopes, group_of[layout.partition_of_cell])
        target = self.context.loss.encode(self.y)
        self._centre = np.average(target, axis=0, weights=self.train.s)
        self._target = target - self._centre
        self.target_valid = self.context.loss.encode(self.y_valid) - self._centre

    def sample(self, n_rows: int) -> _GroupFold:
        """Return the fold with some of its rows, whose partitions are those of all."""
        if len(self.train) <= n_rows:
            return self
        fold = copy.copy(self)
        some, some_valid = slice(n_rows), slice(max(1, n_rows * len(self.valid) // len(self.train)))
        fold.train, fold.valid = self.train.take(some), self.valid.take(some_valid)
        fold.X, fold.y, fold.codes = self.X[some], self.y[some], self.codes[some]
        fold.X_valid, fold.y_valid = self.X_valid[some_valid], self.y_valid[some_valid]
        fold.codes_valid = self.codes_valid[some_valid]
        fold.set_groups(self.n_groups)
        fold.prepare(self._cell_kinds, self._group_of)
        return fold

    def path(self, scales: NDArray, v: NDArray, slope_scale: float) -> KrylovPath:
        """Start a run along the strengths."""
        u = _partition_weights(scales, self._group_of)
        penalty = Frobenius(1.0 / slope_scale**2, 1.0, v[self.context.plan.sources], u).bind(
            self._design.layout
        )
        curvature = penalty.curvature()
        assert curvature is not None
        return KrylovPath(self._design, curvature, self._target, self.train.s, self._design_valid)

    def strength_losses(self, path: KrylovPath, strengths: NDArray) -> NDArray[np.float64]:
        """Return squared errors (groups of rows, strengths) of the validation rows."""
        raw = path.predictions(strengths)
        columns = [
            self.group_losses(SquaredError(), self.target_valid, raw[:, k])
            for k in range(len(strengths))
        ]
        return np.stack(columns, axis=1)

    def group_predictions(self, theta: NDArray) -> NDArray:
        """Return what every group of partitions predicts for the validation rows, (G, n[, K])."""
        parts = []
        for g in range(int(self._group_of.max()) + 1):
            chosen = self._group_of_weight == g
            mask = chosen.reshape(-1, *(1 for _ in theta.shape[1:]))
            parts.append(self._design_valid.matvec(np.where(mask, theta, 0)))
        return np.stack(parts)


def _partition_weights(scales: NDArray, group_of: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return u_p = a_g / P_g; groups without a scale get next to nothing."""
    scales = np.maximum(scales, 1e-12)
    return (scales / np.bincount(group_of, minlength=len(scales)))[group_of]


def _scaled_groups(solution: Solution, factors: NDArray) -> Solution:
    """Return the solution with the weights of every partition (P,) multiplied."""
    layout = solution.layout
    outputs = (1,) * (solution.intercept.ndim - 1)
    by_cell = factors[layout.partition_of_cell].astype(solution.intercept.dtype)
    return replace(
        solution,
        coef=solution.coef * by_cell[layout.linear_cells].reshape(-1, 1, *outputs),
        intercept=solution.intercept * by_cell.reshape(-1, *outputs),
    )
