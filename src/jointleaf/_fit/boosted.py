"""The default recipe for very many rows: boosted trees, first with linear models, then constants.

With ten thousand rows and more a cell of a boosted tree has rows enough for a linear model of its
own, and growing the next tree on what is left costs less than fitting all cells jointly. Trees with
linear models in their cells find what is smooth, and trees with constants, grown on what these
leave, find steps. A small part of the rows says, by early stopping on rows held out, how many
rounds of each are worth while and, for regression, whether to start from the mean or from a global
linear model. All of it is a sum over cells, so one model of a union of partitions, with the global
linear model in the root cell.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from jointleaf._core.fitting import solve
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers import Solution
from jointleaf._data.rows import Rows
from jointleaf._fit import Mix, Setting, TuningResult, target_scale
from jointleaf._fit.job import Job
from jointleaf._fit.outcome import MEANS_ROWS, Outcome
from jointleaf._fit.shares import Shares
from jointleaf._fit.stages import Growth, Stage, StageCells
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.contributions import column_importances, training_means
from jointleaf.partitions import RootCell, TargetType

__all__ = ["MOST_CELLS", "VERY_MANY_ROWS", "fit_boosted"]

#: Rows from which on this is the default recipe.
VERY_MANY_ROWS = 10_000

_STAGES = Stage(True, 31, 120, 0.06), Stage(False, 63, 140, 0.05)
_CONSTANTS = (Stage(False, 31, 400, 0.05),)  # where cells cannot hold lines
#: Of all trees, for one output.
MOST_CELLS = max(
    sum(stage.rounds * stage.n_cells for stage in ways) for ways in (_STAGES, _CONSTANTS)
)
_STRENGTH = 1e-4  # of the global linear model, which has far more rows than weights
_LINEAR_ROWS = {"regression": 10**9, "classification": 1000}  # most it is fitted to
_PROBE_ROWS, _JUDGING_ROWS = 4000, 2000
_CLEARLY = 0.88, 1.1  # better, by the ratio of losses, or of what they are below a constant's
_IMPORTANCE_ROWS = 600  # from which they are found


class _Plan(NamedTuple):
    """Where boosting starts, its stages, and the loss on rows held out from the small part."""

    is_rest: bool
    stages: tuple[Stage, ...]
    loss: float


def fit_boosted(
    job: Job,
    train: Rows,
    valid: Rows,
    target_type: TargetType,
    *,
    clip: bool,
    verbose: bool = False,
) -> Outcome:
    """Choose the start and the rounds on a part of the rows, then fit all of them."""
    recipe = _Recipe(job, target_type, clip, verbose)
    small = train.take(slice(_PROBE_ROWS)), valid.take(slice(_JUDGING_ROWS))
    return recipe.fit(recipe.choose(*small))


class _Recipe:
    def __init__(self, job: Job, target_type: TargetType, clip: bool, verbose: bool) -> None:
        self._job, self._target_type, self._clip = job, target_type, clip
        self._verbose = verbose
        numbers = np.flatnonzero(job.columns.n_categories == 0)
        # A column that takes no part in linear models must not get a slope.
        can_have_lines = np.array_equal(job.plan.numbers, numbers)
        self._stages = _STAGES if can_have_lines else _CONSTANTS
        self._may_be_rest = can_have_lines and target_type == "regression"
        y = job.loss.encode(job.rows.y[:1])
        self._n_outputs = y.shape[1] if y.ndim == 2 else 1

    # -- a small part of the rows ---------------------------------------------------------------

    def choose(self, train: Rows, valid: Rows) -> _Plan:
        """Try the starts with the first stage; early stopping tells how much there is to find.

        A third of the rounds, each three times as large, is enough to tell. Of n rows a stage takes
        3 n / n_train times the share of its rounds that were of use here, at most all: what a
        round fits of the noise is proportional to 1 / n. In noise the first round is the best, so
        that it does not count; but a later stage has one even if it was of no use with few rows.
        Lines lose in small samples and still win in large ones, so that constants alone must be
        clearly better here: where the target has steps.
        """
        frame = self._frame(train)
        growth = Growth(self._job, frame, train, self._n_outputs)
        starts: list[tuple[NDArray | None, NDArray | None]] = [(None, None)]
        if self._may_be_rest:
            linear, _ = self._linear(frame, train)
            starts.append((_raw(frame, linear, train), _raw(frame, linear, valid)))
        more = 3 * len(self._job.rows) / len(train)
        first, *later = self._stages
        probes = [growth.probe(first, start, valid, judging) for start, judging in starts]
        best = min(range(len(probes)), key=lambda k: probes[k].loss)
        probe, (start, judging) = probes[best], starts[best]
        share = min(1.0, more * probe.useful(1))
        stages, loss = [first.shortened(share)], probe.loss
        for stage in later:
            start = growth.raw_of(probe, train, start)
            judging = growth.raw_of(probe, valid, judging)
            probe = growth.probe(stage, start, valid, judging)
            stages.append(stage.shortened(min(share, more * probe.useful(0))))
            loss = min(loss, probe.loss)
        plan = _Plan(best > 0, tuple(stages), loss)
        if later:
            alone = growth.probe(later[-1], None, valid, None)
            if _is_clear(alone.loss, loss, growth.loss_of_none(valid)):
                stages = [_CONSTANTS[0].shortened(min(1.0, more * alone.useful(1)))]
                plan = _Plan(False, tuple(stages), alone.loss)
        return plan._replace(loss=plan.loss / (2 if frame.loss.is_quadratic else 1))

    # -- all rows -------------------------------------------------------------------------------

    def fit(self, plan: _Plan) -> Outcome:
        """Fit the linear model and the trees, and add them up."""
        rows = self._job.rows
        frame = self._frame(rows)
        linear, (solution, penalty) = self._linear(frame, rows)
        growth = Growth(self._job, frame, rows, self._n_outputs)
        start = _raw(frame, linear, rows) if plan.is_rest else None
        total = sum(stage.rounds for stage in plan.stages)
        progress = Progress(total, "boosting", enabled=self._verbose)
        parts: list[StageCells] = []
        for stage in plan.stages:
            booster = growth.train(stage, start, progress=progress)
            if stage is not plan.stages[-1]:
                start = growth.raw(booster, start)
            parts.append(growth.cells(booster, stage))
        progress.finish()
        models = [part.model(frame) for part in parts]
        first, *others = [*models, float(plan.is_rest) * _linear_model(frame, linear)]
        setting = Setting(_STRENGTH, 1.0, 0.0)
        shares = Shares(float(plan.is_rest), 0.0, 0.0, _STRENGTH, (1.0,) * len(parts))
        fit = Outcome(
            frame,
            sum(others, start=first),
            solution,
            penalty,
            np.zeros(0),
            tuning=TuningResult(setting, shares, Mix(), _table(setting, plan.loss)),
        )
        return self._described(fit, parts)

    def _described(self, fit: Outcome, parts: list[StageCells]) -> Outcome:
        """Add importances and means, of some of the rows."""
        rows, model = self._job.rows, fit.model
        few = rows.take(slice(MEANS_ROWS))
        features = fit.frame.features.transform(few.X)
        root = np.zeros((len(few), 1), np.intp)
        codes = np.concatenate([*(part.codes(few.X) for part in parts), root], axis=1)
        contributions = model.contributions
        means = training_means(contributions, model.layout, [(features, codes, few.s)])
        some = slice(_IMPORTANCE_ROWS)
        spread = contributions(features[some], codes[some])
        sources = self._job.plan.sources
        return replace(
            fit,
            importances=column_importances(spread, model.partitioner, few.s[some], sources),
            model=replace(model, means=replace(means, n_rows=len(rows))),
        )

    def _frame(self, rows: Rows) -> Frame:
        job = self._job
        features = job.plan.fit(rows.X, rows.s, clip=self._clip)
        centre, unit = target_scale(rows.y, rows.s, self._target_type)
        offset = np.zeros(() if self._n_outputs == 1 else self._n_outputs)
        return Frame(job.columns, features, job.loss, offset, centre, unit, job.n_jobs)

    def _linear(self, frame: Frame, rows: Rows) -> tuple[NDArray, tuple[Solution, Frobenius]]:
        """Weights (1, m + 1[, K]) of the global linear model: the joint fit of the root cell."""
        rows = rows.take(slice(_LINEAR_ROWS[self._target_type]))
        design = frame.design(rows.X, RootCell().fit(rows.X), "linear")
        penalty = Frobenius(_STRENGTH, 0.0)
        problem = Problem(design, frame.target(rows.y), frame.loss, penalty, rows.s, frame.offset)
        with warnings.catch_warnings():
            # Of classes only its record is kept, and separable ones have no best linear model.
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solve(problem, "auto", tol=1e-4, max_iter=100)
        weights = solution.layout.by_cell(solution.theta)
        return np.asarray(weights, float), (solution, penalty)


def _is_clear(loss: float, other: float, none: float) -> bool:
    """Whether a loss is clearly smaller than another; `none` is that of a constant."""
    less, more = _CLEARLY
    return loss < less * other or none - loss > more * max(none - other, 0.0) + 1e-3


def _linear_model(frame: Frame, linear: NDArray) -> CellModel:
    return CellModel.linear(frame, linear[0, :-1], linear[0, -1])


def _raw(frame: Frame, linear: NDArray, rows: Rows) -> NDArray:
    """Raw predictions (n,) or (n, K) of the global linear model."""
    Z = frame.features.transform(rows.X)
    return np.asarray(Z @ linear[0, :-1] + linear[0, -1])


def _table(setting: Setting, loss: float) -> dict[str, NDArray]:
    """The one setting there is, as the table of a search."""
    one = {name: np.array([value]) for name, value in setting._asdict().items()}
    rest = {"own_loss": True, "mean_loss": loss, "std_loss": np.nan, "se_loss": np.nan}
    return {**one, **{name: np.array([value]) for name, value in rest.items()},
            "converged": np.array([True])}  # fmt: skip
