"""The joint fit at every size: constants in large trees, linear models in small ones.

Every group g of P_g partitions has a scale a_g, so that with the share M_g of its partitions in
which two rows meet the fit is the kernel model

    K = sum_g a_g M_g o (1 + 1[g is linear] s^2 G),      strength lambda,

in which G is the linear kernel of features weighted by split gains, and s the scale of slopes. As a
penalty this is `Frobenius(lambda / s^2, lambda, v, u)` with u_p = a_g / P_g. One Krylov run tells
the validation losses of all strengths (`_core.solvers.krylov`). On a sample of the rows runs with
equal scales choose s, and weights of the groups, fitted to their held-out predictions, tell how
much each of them should count: the scales follow these weights.

Where there are several splits, cells of constants are those of the trees of all splits: no tree has
seen all rows, and together they are more than those of one split.

Classes are fitted by squared error on their indicators, whose sums over cells the blend turns into
log-odds; logistic losses cost several times as much, and their blends are no better. For other
losses of numbers scales and strength are chosen on a quadratic model of the loss around a constant,
and the cells are then fitted by a few rounds of reweighted least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers.base import Solver
from jointleaf._core.solvers.krylov import Krylov, KrylovPath
from jointleaf._core.solvers.reweighted import Reweighted
from jointleaf._data.rows import Rows
from jointleaf._fit.blend import logistic_weights
from jointleaf._fit.boosting import Boosted
from jointleaf._fit.component import (
    Component,
    FitContext,
    JointSolve,
    Split,
)
from jointleaf._fit.default_partitions import (
    Group,
    GroupsOfPartitions,
    grow_groups,
    small_groups,
)
from jointleaf._fit.folds import best_row, join_tables, loss_columns
from jointleaf._fit.group_fold import Choice, GroupFold, partition_weights
from jointleaf._fit.joint import solve_problem
from jointleaf._fit.limits import (
    FitShape,
    Seconds,
    Size,
)
from jointleaf._fit.search import feature_weights
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.contributions import cell_ranges
from jointleaf.partitions import UnionPartitioner

_SAMPLE_ROWS = 5000  # of a training part, that tell the scales; fewer with several outputs
_SLOPE_ROWS = 2000  # that tell the scale of slopes
_STRENGTHS = 10.0 ** np.arange(-0.5, -8.01, -0.5)
_STEPS, _MOST_STEPS = 10, 100  # of the Krylov run, at a time and in all
_SAMPLE_STEPS = 30  # of runs that compare scales
_LEAST_GAIN = 3e-3  # of the validation loss in ten steps: less is not worth ten passes
_SCALE_POWER = 4.0  # with which scales follow the weights of their groups
_LEAST_SCALE = 1e-3
_LEAST_WEIGHT = 0.05  # of a group on the first split, relative to the largest
_ROUNDS, _ROUND_TOL = 5, 1e-3  # of reweighted least squares
_FEATURE_POWER = 1.0
_SLOPE_SCALES = (0.3, 1.0, 3.0, 10.0, 30.0)
_FIRST_SLOPE_SCALE = 2  # which of them the search starts from
_LOG_ODDS = {True: 4.0, False: 8.0}  # of an indicator's predictions, two classes or more
_BOOSTED = "boosted_trees"


class _Setting(NamedTuple):
    """What is chosen on held-out rows."""

    strength: float
    slope_scale: float
    scales: NDArray[np.float64]  # a_g of every group, with sum one
    n_steps: int
    log_odds: float = 1.0  # what predictions of classes are multiplied by
    constant: NDArray | float = 0.0  # and what is added to them


class GroupedJoint(GroupsOfPartitions):
    """The joint fit of groups of partitions, with a scale for each group."""

    name = "joint"

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        boosted = (c for c in components.values() if isinstance(c, Boosted))
        self._boosted = next(boosted, None)
        self._folds: list[GroupFold] = []
        #: of a split whose model is that of the fit
        self._path: KrylovPath | None = None

    # -- choosing ------------------------------------------------------------------------------

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose strength, scales and steps, and predict the validation rows with them."""
        if not splits:
            return []
        context = self.context
        n_steps = len(splits) * (1 + context.has_own_link) + 3
        progress = Progress(n_steps, "joint fit", enabled=context.options.verbose)
        groups = self._set_groups(len(splits))
        progress.begin("growing trees")
        self._folds = [self._make_fold(groups, splits, 0)]
        progress.step("choosing the scale of slopes")
        scales = np.full(len(self._names), 1.0 / len(self._names))
        slope_scale = self._choose_slope_scale(scales)
        if len(splits) > 1:
            self._leave_out_groups(scales, slope_scale)
            groups = [group for group in groups if group.name in self._names]
            scales = np.full(len(self._names), 1.0 / len(self._names))
        for k in range(1, len(splits)):
            progress.step("growing trees")
            self._folds.append(self._make_fold(groups, splits, k))
        progress.step("choosing the scales of groups")
        scales = self._choose_groups(scales, slope_scale)
        progress.step("choosing the strength")
        best = self._follow(scales, slope_scale, self._folds)
        progress.step("fitting the loss itself" if context.has_own_link else "")
        if context.keeps_split and not context.has_own_link:
            self._path = best.paths[0]
        self.table = best.table
        self._setting = _Setting(best.strength, slope_scale, scales, best.n_steps)
        predictions = best.predictions()
        if context.has_own_link:
            predictions = self._reweigh(progress)
        elif not context.is_regression:
            predictions = self._calibrate(predictions)
        else:
            pairs = zip(predictions, self._folds, strict=True)
            predictions = [part + fold.centre for part, fold in pairs]
        if self._path is None:
            for fold in self._folds:
                fold.release()
        return predictions

    def _choose_groups(self, scales: NDArray, slope_scale: float) -> NDArray[np.float64]:
        """Return the scales of the groups that count, and leave out the others."""
        weights = self._group_weights(scales, slope_scale)
        scales = scales * weights**_SCALE_POWER
        is_used = scales >= _LEAST_SCALE * scales.max()
        if not is_used.all():
            self._keep_groups(is_used)
        return scales[is_used] / scales[is_used].sum()

    def _leave_out_groups(self, scales: NDArray, slope_scale: float) -> None:
        """Leave out the groups that the first split has no use for: the others are spared them."""
        is_used = self._group_weights(scales, slope_scale) >= _LEAST_WEIGHT
        if not is_used.all():
            self._keep_groups(is_used)

    def _group_weights(self, scales: NDArray, slope_scale: float) -> NDArray[np.float64]:
        """Return weights of the groups, fitted to held-out predictions; the largest is one."""
        n_rows = int(_SAMPLE_ROWS / self.context.n_outputs**0.5)
        folds = [fold.sample(n_rows) for fold in self._folds]
        weights = self._follow(scales, slope_scale, folds).group_weights()
        return weights / weights.max() if weights.any() else np.ones_like(weights)

    def _make_fold(self, groups: list[Group], splits: Sequence[Split], k: int) -> GroupFold:
        """Grow the groups on the training part of a split, after the boosted trees."""
        context, (train, valid) = self.context, splits[k]
        members = grow_groups(groups, train, context)
        if self._boosted is not None and self._boosted.partitioners:
            if k == 0 and (self._useful is None or _BOOSTED in self._useful):
                self._names, self._kinds = [*self._names, _BOOSTED], [*self._kinds, "constant"]
            if _BOOSTED in self._names:
                members = [*members, self._boosted.partitioners[k]]
        union = UnionPartitioner.of_fitted(members)
        fold = GroupFold(context, train, valid, union, n_folds=len(splits), n_jobs=context.n_jobs)
        return fold.prepare(*self._partition_kinds(union))

    def _keep_groups(self, is_used: NDArray[np.bool_]) -> None:
        """Leave out the other groups, in names, kinds and folds."""
        used = np.flatnonzero(is_used)
        self._names = [self._names[g] for g in used]
        self._kinds = [self._kinds[g] for g in used]
        self._folds = [fold.with_groups(used) for fold in self._folds]
        for fold in self._folds:
            fold.prepare(*self._partition_kinds(fold.partitioner))

    def _choose_slope_scale(self, scales: NDArray) -> float:
        """Climb along the scales of slopes to the smallest loss, on a small part of the rows."""
        at, losses = _FIRST_SLOPE_SCALE, {}
        if "linear" not in self._kinds:
            return _SLOPE_SCALES[at]
        sample = [self._folds[0].sample(int(_SLOPE_ROWS / self.context.n_outputs**0.5))]
        while True:
            for k in range(max(at - 1, 0), min(at + 2, len(_SLOPE_SCALES))):
                if k not in losses:
                    losses[k] = self._follow(scales, _SLOPE_SCALES[k], sample, _SAMPLE_STEPS).loss
            best = min(losses, key=losses.__getitem__)
            if best == at:
                return _SLOPE_SCALES[at]
            at = best

    def _follow(
        self,
        scales: NDArray,
        slope_scale: float,
        folds: Sequence[GroupFold],
        most_steps: int = _MOST_STEPS,
    ) -> Choice:
        """Run along the strengths with these scales; stop when further steps gain little."""
        v = feature_weights(folds[0].gains, _FEATURE_POWER)
        paths = [fold.path(scales, v, slope_scale) for fold in folds]
        last = loss = np.inf
        while True:
            has_more = [path.extend(_STEPS) for path in paths]
            losses = [
                fold.strength_losses(path, _STRENGTHS)
                for fold, path in zip(folds, paths, strict=True)
            ]
            looked = loss_columns(folds, losses)
            last, now = loss, float(looked["mean_loss"].min())
            if not now >= loss:
                loss, table, counts = now, looked, [path.n_steps for path in paths]
            is_last = not all(has_more) or paths[0].n_steps >= most_steps
            if is_last or last - now < _LEAST_GAIN * last:
                break
        has_ended = not all(has_more) and counts[0] == paths[0].n_steps
        for path, count in zip(paths, counts, strict=True):
            path.cut(count)
        table = {"strength": _STRENGTHS, **table}
        strength = float(_STRENGTHS[best_row(table, one_se=self.context.options.one_se)])
        # A space that has ended holds the exact solution: that of all rows may need more steps, and
        # short of it small strengths leave large weights.
        n_steps = _MOST_STEPS if has_ended else paths[0].n_steps
        return Choice(strength, n_steps, loss, table, folds, paths)

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
        self._add_exact(raw)
        return raw

    def _reweigh(self, progress: Progress) -> list[NDArray]:
        """Fit the training parts by the loss itself, and predict the validation rows."""
        curvature, setting = self._folds[0].curvature, self._setting
        assert self.table is not None
        self.table = {**self.table, "strength": curvature * self.table["strength"]}
        setting = setting._replace(strength=curvature * setting.strength)
        self._setting, raw = setting, []
        for fold in self._folds:
            _, group_of = self._partition_kinds(fold.partitioner)
            problem = fold.own_problem(self._penalty(fold.gains, group_of))
            solution = Reweighted(_ROUNDS, setting.n_steps).solve(problem, tol=_ROUND_TOL)
            raw.append(fold.constant + fold.predictions(solution.theta))
            progress.step("fitting the loss itself")
        self._add_exact(raw)
        return raw

    def _penalty(self, gains: NDArray, group_of: NDArray[np.intp]) -> Frobenius:
        """Return the penalty of the setting for partitions of some groups."""
        setting, sources = self._setting, self.context.plan.sources
        return Frobenius(
            setting.strength / setting.slope_scale**2,
            setting.strength,
            feature_weights(gains, _FEATURE_POWER)[sources],
            partition_weights(setting.scales, group_of),
        )

    def _add_exact(self, raw: list[NDArray]) -> None:
        """Add the losses of raw predictions to the table, which has squared errors alone."""
        losses = [
            fold.held_out_losses(part)[:, None] for fold, part in zip(self._folds, raw, strict=True)
        ]
        assert self.table is not None
        exact = {
            "strength": np.array([self._setting.strength]),
            **loss_columns(self._folds, losses),
        }
        n = len(self.table["strength"])
        self.table = {**join_tables([self.table, exact]), "is_exact": np.arange(n + 1) == n}

    # -- fitting -------------------------------------------------------------------------------

    def fit(self, frame: Frame) -> CellModel:
        """Fit the cells of all groups to all rows."""
        context = self.context
        rows, codes, design = self._rows_and_design(frame)
        setting = self._setting
        _, group_of = self._partition_kinds(self.partitioner)
        penalty = self._penalty(self.partitioner.split_gains_, group_of)
        target = frame.loss.encode(frame.target(rows.y))
        centre = np.average(target, axis=0, weights=rows.s)
        if context.has_own_link:
            centre = frame.offset
        problem = Problem(design, target, SquaredError(), penalty, rows.s, centre)
        if context.has_own_link:
            problem = replace(frame, loss=context.smooth_loss).problem(design, rows, penalty)
        n_steps = setting.n_steps
        usual: Solver = Krylov(n_steps, self._path, setting.strength)
        if context.has_own_link:
            usual = Reweighted(_ROUNDS, n_steps)
        solution = solve_problem(context.options, problem, usual=usual)
        self.solve = JointSolve(solution, penalty, np.asarray(centre), self._numbers())
        # What classes start from is part of the constant that makes log-odds of indicators.
        offset = np.asarray(centre) if context.is_regression else np.zeros_like(centre)
        ranges = None
        if context.options.clip == "cell" and solution.layout.n_linear_cells:
            ranges = cell_ranges(design.rows, codes, solution.layout)
        frame = replace(frame, offset=offset)
        model = CellModel.of_solution(frame, self.partitioner, solution, ranges)
        return (setting.log_odds * model).plus_constant(setting.constant)

    def _rows_and_design(self, frame: Frame) -> tuple[Rows, NDArray, LeafDesign]:
        """Return the rows that the cells are fitted to, their codes, and their design."""
        if self._path is not None:
            fold = self._folds[0]
            self.partitioner = fold.partitioner
            return fold.train, fold.codes, fold.design
        rows, codes = self._rows_and_codes()
        kinds, _ = self._partition_kinds(self.partitioner)
        design = LeafDesign(
            frame.features.transform(rows.X).astype(np.float32), codes, self.partitioner.n_cells_,
            cells=kinds, n_jobs=frame.n_jobs,
        )  # fmt: skip
        return rows, codes, design

    def _rows_and_codes(self) -> tuple[Rows, NDArray]:
        """Return all rows, in any order, and their codes in the partitions of the splits.

        Trees of four fifths of the rows are as good as those of all: it is their cells that are
        fitted to all. Constants take the trees of all splits, linear cells, which cost more, those
        of the first.
        """
        rows = self.context.rows
        if not self._folds:
            self.partitioner = UnionPartitioner.of_fitted(
                grow_groups(self._set_groups(1), rows, self.context)
            )
            equal = np.full(len(self._names), 1.0 / len(self._names))
            self._setting = _Setting(1e-3, _SLOPE_SCALES[_FIRST_SLOPE_SCALE], equal, 30)
            return rows, self.partitioner.apply(rows.X)
        members = [
            (g, fold.partitioner.partitioners_[g])
            for g, (name, kind) in enumerate(zip(self._names, self._kinds, strict=True))
            for fold in self._folds[: None if kind == "constant" and name != _BOOSTED else 1]
        ]
        self._group_of_member = [g for g, _ in members]
        self.partitioner = UnionPartitioner.of_fitted([member for _, member in members])
        fold = self._folds[0]
        # Splits of the user's may leave rows out, or hold some on both sides.
        is_whole = len(fold.train) + len(fold.valid) == len(rows) and not rows.labels.shape[1]
        if len(self._folds) > 1 or not is_whole:
            return rows, self.partitioner.apply(rows.X)
        return fold.train.joined(fold.valid), np.concatenate([fold.codes, fold.codes_valid])

    def _numbers(self) -> dict[str, float]:
        setting = self._setting
        numbers = {
            "strength": setting.strength,
            "slope_scale": setting.slope_scale,
            "n_steps": float(setting.n_steps),
        }
        scales = zip(self._names, setting.scales.tolist(), strict=True)
        return numbers | {f"{name}_scale": scale for name, scale in scales}

    def describe(self) -> str:
        """Return the groups with their numbers of partitions."""
        n_cells = self.partitioner.n_cells_
        loss = "" if self.context.is_regression else " to class indicators"
        loss = " by reweighted least squares" if self.context.has_own_link else loss
        return f"joint fit{loss} of {len(n_cells):,} partitions with {int(n_cells.sum()):,} cells"

    @classmethod
    def seconds(cls, size: Size) -> Seconds:
        """Return the time to grow the groups and to run along the strengths, and of one of them."""
        width = (max(size.n_columns, 4) / 10) ** 0.4 * size.n_outputs**0.2
        once = 0.0047 * size.n_rows**0.7 * width
        vectors = 5e-6 * (size.n_columns + 1) * size.n_outputs**2  # of weights, which count with K
        return Seconds(once + vectors, 0.4 * once + 0.15 * vectors)


class LargeJoint(GroupedJoint):
    """The joint fit of groups of partitions beside an exact one of small trees."""

    name = "large_joint"


class SmallJoint(GroupedJoint):
    """The joint fit of constants in very many small trees, for targets of few interactions.

    Boosting finds the trees one after the other, with steps that are cut short; all their cells
    together, fitted jointly to all rows, are a smooth additive model with few interactions.
    """

    name = "small_joint"

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, {})

    def _make_groups(self, n_splits: int) -> list[Group]:
        options = self.context.options
        has_slopes = options.cells == "linear" and len(self.context.plan.names) > 0
        return small_groups(len(self.context.rows), root=options.root_cell and has_slopes)

    @classmethod
    def _groups_of_shape(cls, shape: FitShape) -> tuple[list[Group], int]:
        return small_groups(shape.n_rows, root=shape.root_cell and shape.n_features > 0), 0

    def _choose_slope_scale(self, scales: NDArray) -> float:
        # Larger ones make the kernel of the root cell so large that single precision does not
        # resolve strengths that small trees need.
        return 1.0

    def _group_weights(self, scales: NDArray, slope_scale: float) -> NDArray[np.float64]:
        return np.ones_like(scales)  # there is nothing to choose: both are always of use
