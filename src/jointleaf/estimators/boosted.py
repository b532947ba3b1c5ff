"""The default recipe for very many rows: boosted trees whose cells hold linear models.

With ten thousand rows and more a cell of a boosted tree has rows enough for a linear model of its
own, and growing the next tree on what is left costs less than fitting all cells jointly. A small
part of the rows answers two questions, by early stopping on rows held out: whether the cells hold
linear models or constants, and, for regression, whether boosting starts from the mean or from a
global linear model. It also says how many rounds are worth while. Then the best of these is
fitted to all rows. All of it is a sum over cells, so one model of a union of partitions, with the
global linear model in the root cell.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from jointleaf.contributions import LinearContributions, training_means
from jointleaf.estimators.job import Job
from jointleaf.estimators.model import CellWeights, Frame
from jointleaf.estimators.outcome import Outcome
from jointleaf.estimators.summaries import column_shares
from jointleaf.fitting import solve
from jointleaf.layout import CellLayout
from jointleaf.partitions import (
    LightGBMPartitioner,
    Partitioner,
    RootCell,
    TargetType,
    UnionPartitioner,
)
from jointleaf.partitions.libraries.base import threads
from jointleaf.partitions.libraries.lightgbm import ModelText, read_trees
from jointleaf.partitions.libraries.lightgbm_lines import leaf_lines
from jointleaf.penalties import Frobenius
from jointleaf.problem import Problem
from jointleaf.progress import Progress
from jointleaf.rows import Rows
from jointleaf.solvers import Solution
from jointleaf.tuning import Mix, Setting, TuningResult, target_scale
from jointleaf.tuning.shares import Shares

__all__ = ["VERY_MANY_ROWS", "fit_boosted"]

#: Rows from which on this is the default recipe.
VERY_MANY_ROWS = 10_000

_STRENGTH = 1e-4  # of the global linear model, which has far more rows than weights
_LINEAR_ROWS = {"regression": 10**9, "classification": 4000}  # most it is fitted to
_PROBE_ROWS, _JUDGING_ROWS = 4000, 2000
_PATIENCE = 10  # rounds of the probe without a gain
_MEANS_ROWS, _IMPORTANCE_ROWS = 4000, 600  # from which these are found
_CELLS = 31


@dataclass(frozen=True)
class _Boosting:
    """A way of boosting.

    `has_lines` says whether cells hold linear models, `is_rest` whether the trees are grown on what
    the global linear model leaves.
    """

    has_lines: bool
    rounds: int
    rate: float
    is_rest: bool = False

    @property
    def least_rows(self) -> int:
        """Of a cell."""
        return 20 if self.has_lines else 5


_LINES, _CONSTANTS = _Boosting(True, 240, 0.06), _Boosting(False, 400, 0.05)
_CANDIDATES: dict[TargetType, tuple[_Boosting, ...]] = {
    "regression": (_LINES, replace(_LINES, is_rest=True), _CONSTANTS),
    "classification": (_LINES, _CONSTANTS),
}


def fit_boosted(
    job: Job,
    train: Rows,
    valid: Rows,
    target_type: TargetType,
    *,
    clip: bool,
    verbose: bool = False,
) -> Outcome:
    """Choose a way of boosting on a part of the rows, then fit all of them."""
    recipe = _Recipe(job, target_type, clip, verbose)
    small = train.take(slice(_PROBE_ROWS)), valid.take(slice(_JUDGING_ROWS))
    return recipe.fit(*recipe.choose(*small))


class _Recipe:
    def __init__(self, job: Job, target_type: TargetType, clip: bool, verbose: bool) -> None:
        self._job, self._target_type, self._clip = job, target_type, clip
        self._verbose = verbose
        numbers = np.flatnonzero(job.columns.n_levels == 0)
        # A gap has no linear model, and a column that takes no part must not get a slope.
        can_have_lines = (
            np.array_equal(job.plan.numbers, numbers) and not np.isnan(job.rows.X).any()
        )
        self._candidates = [
            way for way in _CANDIDATES[target_type] if can_have_lines or not way.has_lines
        ]
        y = job.loss.encode(job.rows.y[:1])
        self._n_outputs = y.shape[1] if y.ndim == 2 else 1

    # -- a small part of the rows ---------------------------------------------------------------

    def choose(self, train: Rows, valid: Rows) -> tuple[_Boosting, float]:
        """The best way with its number of rounds, and its loss on rows held out.

        A third of the rounds, each three times as large, is enough to tell. Finer rounds and more
        rows bear more of them: 1.5 sqrt(n / n_train) times as many as here, if there are so many.
        """
        frame = self._frame(train)
        linear, _ = self._linear(frame, train)
        growth = _Growth(self._job, frame, train, self._n_outputs)
        more = 1.5 * np.sqrt(len(self._job.rows) / len(train))
        best, best_loss = self._candidates[0], np.inf
        for way in self._candidates:
            small = replace(way, rounds=way.rounds // 3, rate=3 * way.rate)
            starts = [_raw(frame, linear, rows) if way.is_rest else None for rows in (train, valid)]
            booster = growth.train(small, starts[0], judged_by=(valid, starts[1]))
            (loss,) = booster.best_score["valid_0"].values()
            if loss < best_loss:
                share = min(1.0, more * booster.best_iteration / small.rounds)
                best, best_loss = (
                    replace(way, rounds=max(1, round(share * way.rounds))),
                    float(loss),
                )
        return best, best_loss / (2 if frame.loss.is_quadratic else 1)

    # -- all rows -------------------------------------------------------------------------------

    def fit(self, way: _Boosting, loss: float) -> Outcome:
        """Fit the linear model and the trees, and add them up."""
        job, rows = self._job, self._job.rows
        frame = self._frame(rows)
        linear, (solution, penalty) = self._linear(frame, rows)
        growth = _Growth(job, frame, rows, self._n_outputs)
        start = _raw(frame, linear, rows) if way.is_rest else None
        progress = Progress(way.rounds, "boosting", enabled=self._verbose)
        booster = growth.train(way, start, progress=progress)
        progress.finish()
        trees, weights, leaves = growth.cells(booster, way)
        union = UnionPartitioner.of_fitted([trees, RootCell().fit(rows.X)])
        theta = np.concatenate([weights, linear if way.is_rest else 0.0 * linear])
        layout = CellLayout(tuple(int(c) for c in union.n_cells_), theta.shape[1] - 1, "linear")
        few = rows.take(slice(_MEANS_ROWS))
        features = frame.features.transform(few.X)
        codes = np.column_stack([leaves(few.X), np.zeros(len(few), np.int32)])
        lines = LinearContributions(layout, theta, None)
        means = training_means(lines, layout, [(features, codes, few.s)])
        some = slice(_IMPORTANCE_ROWS)
        spread = lines(features[some], codes[some])
        setting = Setting(_STRENGTH, 1.0, 0.0)
        shares = Shares(float(way.is_rest), 0.0, 0.0, _STRENGTH, (1.0,))
        return Outcome(
            frame,
            union,
            solution,
            CellWeights(theta, np.zeros(theta.shape[2:])),
            layout,
            penalty,
            column_shares(spread, union, few.s[some], job.plan.sources),
            tuning=TuningResult(setting, shares, Mix(), _table(setting, loss)),
            means=replace(means, n_rows=len(rows)),
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
            # Separable classes have no best linear model; its factor is found on rows held out.
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solve(problem, "auto", tol=1e-4, max_iter=100)
        return np.asarray(solution.theta, float), (solution, penalty)


class _Growth:
    """Boosts on some rows; ways that agree in what LightGBM prepares share it."""

    def __init__(self, job: Job, frame: Frame, rows: Rows, n_outputs: int) -> None:
        self._job, self._frame, self._rows, self._n_outputs = job, frame, rows, n_outputs
        self._known: dict[tuple[bool, int], Any] = {}

    def table(self, X: NDArray, way: _Boosting) -> NDArray:
        """The columns as the trees see them: numbers standardised where cells hold lines."""
        if not way.has_lines:
            return X
        numbers = self._job.plan.numbers
        table = np.array(X, float)
        table[:, numbers] = self._frame.features.transform(X)[:, : len(numbers)]
        return table

    def train(
        self,
        way: _Boosting,
        start: NDArray | None,
        judged_by: tuple[Rows, NDArray | None] | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Train LightGBM from raw predictions `start`; stops early where rows judge it."""
        import lightgbm

        params = self._params(way)
        data = self._data(way, params)
        data.set_label(self._label(self._rows, start))
        more: dict[str, Any] = {"callbacks": []}
        if progress is not None:
            more["callbacks"].append(lambda _: progress.step())
        if judged_by is not None:
            valid, known = judged_by
            judge = lightgbm.Dataset(
                self.table(valid.X, way), self._label(valid, known), weight=valid.s,
                reference=data, params=params,
            )  # fmt: skip
            stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
            more = {"valid_sets": [judge], "callbacks": [stop]}
        # Else LightGBM writes all trees as text and reads them again.
        more["keep_training_booster"] = True
        return lightgbm.train(params, data, num_boost_round=way.rounds, **more)

    def cells(
        self, booster: Any, way: _Boosting
    ) -> tuple[Partitioner, NDArray, Callable[[NDArray], NDArray]]:
        """The leaves as cells, their weights (C, m + 1[, K]), and what gives the codes of rows."""
        frame, plan = self._frame, self._job.plan
        text = ModelText(booster)
        trees = read_trees(text, frame.columns.coded())
        if way.has_lines:
            scaler, width = frame.features.scaler, self._rows.X.shape[1]
            mean, scale = np.zeros(width), np.ones(width)
            mean[plan.numbers] = scaler.mean[: len(plan.numbers)]
            scale[plan.numbers] = scaler.scale[: len(plan.numbers)]
            at = trees.feature
            trees = replace(trees, threshold=mean[at] + scale[at] * trees.threshold)
        partitioner = LightGBMPartitioner(trees.n_trees, _CELLS, n_jobs=self._job.n_jobs)
        partitioner.take_all_leaves(
            replace(trees, leaf_values=None), booster.feature_importance("gain")
        )
        lines = leaf_lines(text, trees.n_features)
        n_cells, m = len(lines.constants), len(plan.names)
        weights = np.zeros((n_cells, m + 1, self._n_outputs))
        cell = np.arange(n_cells)
        if way.has_lines:
            k = len(plan.numbers)
            weights[cell, :k, lines.outputs] = lines.slopes[:, plan.numbers]
        weights[cell, m, lines.outputs] = lines.constants
        first = trees.leaf_starts[:-1]
        cell_of_leaf = np.argsort(lines.order)

        def codes(X: NDArray) -> NDArray:
            """As the partitioner's, but by LightGBM, which needs no preparation for few rows."""
            found = booster.predict(self.table(X, way), pred_leaf=True)
            return cell_of_leaf[found.reshape(len(X), -1) + first] - first

        return partitioner, weights[:, :, 0] if self._n_outputs == 1 else weights, codes

    def _label(self, rows: Rows, start: NDArray | None) -> NDArray:
        y = self._frame.target(rows.y)
        return y if start is None else y - start

    def _data(self, way: _Boosting, params: dict[str, Any]) -> Any:
        import lightgbm

        key = way.has_lines, way.least_rows
        if key not in self._known:
            self._known[key] = lightgbm.Dataset(
                self.table(self._rows.X, way),
                weight=self._rows.s,
                categorical_feature=self._job.columns.categorical.tolist(),
                params=params,
                free_raw_data=False,
            )
        return self._known[key]

    def _params(self, way: _Boosting) -> dict[str, Any]:
        objective = "regression" if self._frame.loss.is_quadratic else "binary"
        params: dict[str, Any] = {
            "objective": objective,
            "num_leaves": _CELLS,
            "learning_rate": way.rate,
            "min_data_in_leaf": way.least_rows,
            "feature_fraction_bynode": 0.5,
            "max_bin": 127,
            "linear_tree": way.has_lines,
            "linear_lambda": 0.1,
            "seed": self._job.seed,
            "num_threads": threads(self._job.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        if self._n_outputs > 1:
            params |= {"objective": "multiclass", "num_class": self._n_outputs}
        return params


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
