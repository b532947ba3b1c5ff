"""The default recipe for many rows: boosted trees of the usual size beside a joint fit.

With thousands of rows small cells tell more than slopes, and joint fits of hundreds of linear
partitions are slow. Here two ensembles of boosted trees keep their own values, a joint fit of 75
small partitions with linear cells takes what is smooth, and all are added up,

    a f + b f_linear + sum_k c_k f_k,     a, b, c_k >= 0,

with factors fitted to rows held out (`_fit.shares`). All of it is a sum over cells, so
one model of a union of partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from jointleaf._core.fitting import solve
from jointleaf._core.problem import Problem
from jointleaf._data.features import mean_and_scale
from jointleaf._data.rows import Rows
from jointleaf._fit import (
    Mix,
    RecipeFold,
    Setting,
    TuningResult,
    auto_penalty,
    fit_linear,
    grow,
    target_scale,
)
from jointleaf._fit.folds import Table, loss_columns
from jointleaf._fit.job import Job
from jointleaf._fit.outcome import Outcome
from jointleaf._fit.shares import Shares, stacked
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf.partitions import (
    LightGBMPartitioner,
    Partitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    TargetType,
    UnionPartitioner,
    default_partitioner,
    seeded,
)

__all__ = ["MANY_ROWS", "ManyRows", "with_all_classes"]

#: Rows from which on this is the default recipe.
MANY_ROWS = 2000
#: Most rows of the joint fit, which takes what is smooth: more would not change it much.
_JOINT_ROWS = {"regression": 4000, "classification": 1500}
_VALID_ROWS = 10_000  # most rows that judge
_ROUNDS, _CELLS, _RATE, _LEAF_ROWS = 300, 31, 0.05, 5
_EVERY = 10  # rounds after which boosting is judged
_STRENGTHS = (1e-1, 1e-2, 1e-3, 1e-4)
_SLOPE_SCALES = {"regression": 3.0, "classification": 1.0}
_START = {"joint": 0.3, "linear": 0.1, "boosted": 0.3}


@dataclass(frozen=True)
class ManyRows:
    """The recipe for the rows of a job.

    Attributes
    ----------
    job : Job
    target_type : {"regression", "classification"}
    clip : bool
    """

    job: Job
    target_type: TargetType
    clip: bool

    def fit(self, train: Rows, valid: Rows) -> Outcome:
        """Judge all parts on one split, then fit them to all rows."""
        train, valid = with_all_classes(self.job.rows, train, valid, self.target_type)
        few = valid.take(slice(_VALID_ROWS))
        fold = RecipeFold(
            train.take(slice(_JOINT_ROWS[self.target_type])),
            few,
            self._seeded(_small_partitions()),
            self.job.loss,
            target_type=self.target_type,
            plan=self.job.plan,
            columns=self.job.columns,
            clip=self.clip,
            has_root=True,
            unit=target_scale(self.job.rows.y, self.job.rows.s, self.target_type)[1],
            n_jobs=self.job.n_jobs,
        )
        table = self._judge_joint(fold)
        k = int(np.argmin(table["mean_loss"]))
        best = Setting(*(float(table[name][k]) for name in Setting._fields))
        rounds, raws = zip(*(self._judge(b, train, few) for b in self._boosters()), strict=True)
        shares = stacked(fold, best, raws, _START)
        return self._refit(best, shares, rounds, table)

    # -- judging on held-out rows ---------------------------------------------------------------

    def _seeded(self, partitioner: Partitioner) -> Partitioner:
        return seeded(partitioner, self.job.seed, self.job.n_jobs)

    def _boosters(self) -> list[Partitioner]:
        members = self._seeded(UnionPartitioner(_boosters())).get_params()["partitioners"]
        return list(members)

    def _judge_joint(self, fold: RecipeFold) -> Table:
        scale = _SLOPE_SCALES[self.target_type]
        losses, converged = fold.losses(scale, 1.0, _STRENGTHS)
        n = len(_STRENGTHS)
        return {
            "strength": np.array(_STRENGTHS),
            "slope_scale": np.full(n, scale),
            "feature_power": np.ones(n),
            "share": np.ones(n),
            "own_loss": np.ones(n, bool),
            **loss_columns([fold], [losses]),
            "converged": converged,
        }

    def _judge(self, booster: Partitioner, train: Rows, valid: Rows) -> tuple[int, NDArray]:
        """The best number of rounds, and the raw predictions after them."""
        grow(booster, train, self.target_type, self.job.columns)
        centre, unit = target_scale(train.y, train.s, self.target_type)
        target = self.job.loss.encode((valid.y - centre) / unit)
        per_round = target.shape[1] if target.ndim == 2 else 1
        best, best_loss, kept = 1, np.inf, np.zeros(target.shape)
        mean = 0.0
        if self.target_type == "regression":  # dealt out to all trees, and not the weighted one
            mean = float(mean_and_scale(train.y[:, None], np.ones(len(train)))[0][0])
        raw = np.full((len(valid), per_round), (mean - centre) / unit)
        steps = _steps(booster, valid, mean)
        for t, step in enumerate(steps):
            raw = raw + step / unit
            number, is_whole = divmod(t + 1, per_round)
            if is_whole or (number % _EVERY and t + 1 < len(steps)):
                continue
            now = raw[:, 0] if target.ndim == 1 else raw
            loss = self.job.loss.value(target, now, valid.s)
            if loss < best_loss:
                best, best_loss, kept = number * per_round, loss, now
        return best, kept

    # -- all rows -------------------------------------------------------------------------------

    def _refit(
        self, best: Setting, shares: Shares, rounds: tuple[int, ...], table: Table
    ) -> Outcome:
        rows, loss = self.job.rows, self.job.loss
        few = rows.take(slice(_JOINT_ROWS[self.target_type]))
        features = self.job.plan.fit(rows.X, rows.s, clip=self.clip)
        centre, unit = target_scale(rows.y, rows.s, self.target_type)
        y = loss.encode((few.y - centre) / unit)
        offset = np.asarray(loss.best_constant(y, few.s), float)
        frame = Frame(self.job.columns, features, loss, offset, centre, unit, self.job.n_jobs)
        small = self._seeded(_small_partitions())
        grow(small, few, self.target_type, self.job.columns)
        n_partitions = len(small.n_cells_)
        penalty = auto_penalty(best, small.split_gains_, n_partitions, True, self.job.plan.sources)
        design = frame.design(few.X, small, "linear")
        problem = Problem(design, frame.target(few.y), loss, penalty, few.s, offset)
        solution = solve(problem, "auto", tol=1e-4, max_iter=300)
        model = CellModel.of_solution(frame, small, solution)
        fit = Outcome(
            frame,
            model,
            solution,
            penalty,
            model.importances(design, few.s),
            tuning=TuningResult(best, shares, Mix(), table),
        )
        return self._with_boosted(fit, shares, rounds)

    def _with_boosted(self, fit: Outcome, shares: Shares, rounds: tuple[int, ...]) -> Outcome:
        """Add the linear model and the boosted trees, each with its factor."""
        rows, frame = self.job.rows, fit.frame
        joint = shares.joint * fit.model
        if shares.linear > 0:
            X = frame.features.transform(rows.X)
            linear = fit_linear(X, frame.target(rows.y), rows.s, shares.strength)[0]
            m = X.shape[1]
            joint += shares.linear * CellModel.linear(frame, linear[:m], linear[-1])
        models = []
        for booster, n, factor in zip(self._boosters(), rounds, shares.boosted, strict=True):
            if factor == 0:
                continue
            booster = clone(booster).set_params(n_partitions=n)
            grow(booster, rows, self.target_type, self.job.columns)
            values = booster.leaf_values_
            assert values is not None
            models.append(factor * CellModel.of_leaf_values(frame, booster, values))
        first, *others = [*models, joint]
        return replace(fit, model=sum(others, start=first))


def _small_partitions() -> UnionPartitioner:
    boosted = default_partitioner().set_params(n_partitions=25, n_cells=8)
    return UnionPartitioner(
        [
            boosted,
            RandomTreesPartitioner(25, 16),
            ResidualPartitioner(clone(boosted)),
            RootCell(),
        ]
    )


def _boosters() -> list[Partitioner]:
    """Boosted trees, and the same with thresholds drawn at random."""
    usual = default_partitioner().set_params(n_partitions=_ROUNDS, n_cells=_CELLS)
    options = {"learning_rate": _RATE, "min_data_in_leaf": _LEAF_ROWS}
    if not isinstance(usual, LightGBMPartitioner):  # the stand-in has other options
        return [usual]
    return [
        usual.set_params(options=options),
        clone(usual).set_params(options={**options, "extra_trees": True}),
    ]


def with_all_classes(
    rows: Rows, train: Rows, valid: Rows, target_type: TargetType
) -> tuple[Rows, Rows]:
    """Move rows of classes that training would lack: boosting could not name these classes."""
    if target_type != "classification":
        return train, valid
    lacks, known = ~np.isin(rows.y, train.y), np.isin(valid.y, train.y)
    if not lacks.any() or not known.any():
        return train, valid
    more = rows.take(lacks)
    parts = zip(vars(train).values(), vars(more).values(), strict=True)
    return Rows(*(np.concatenate(pair) for pair in parts)), valid.take(known)


def _steps(booster: Partitioner, valid: Rows, mean: float) -> list[NDArray]:
    """What each tree adds to the raw predictions of validation rows, (n, K), without the mean."""
    values = booster.leaf_values_
    assert values is not None
    codes, n_cells = booster.apply(valid.X), booster.n_cells_
    starts = np.cumsum(n_cells) - n_cells
    padded = np.concatenate([values - mean / len(n_cells), np.zeros_like(values[:1])])
    cells = np.where(codes < 0, len(values), codes + starts)
    return [padded[column] for column in cells.T]
