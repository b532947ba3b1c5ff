"""Boosted trees as components, and how LightGBM grows them: their leaves are cells of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import threads
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.losses import (
    AbsoluteError,
    Gamma,
    Huber,
    Kinked,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    Quantile,
    SquaredError,
    Tweedie,
)
from jointleaf._core.progress import Progress
from jointleaf._data.rows import Rows
from jointleaf._fit.component import NARROW, Component, FitContext, Split, smooth
from jointleaf._fit.limits import (
    FitShape,
    Seconds,
    Size,
    Stages,
    boosted_memory,
    has_many_classes,
    is_wide,
)
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers.lightgbm import ModelText, leaf_models, read_trees
from jointleaf.partitions import LightGBMPartitioner
from jointleaf.partitions._base import TreeCells

_ROUNDS, _RATE = 1000, 0.08  # most rounds, and their learning rate
_WIDE_RATE, _WIDE_BINS = 0.16, 63  # of wide tables, whose rounds take long
_FEW_CELLS, _CELLS, _MORE_CELLS, _FEW_ROWS = 15, 31, 63, 8000
_EARLY = 250  # rounds that are few
#: After so many rounds a squared error so many times that of the first kind ends the rounds.
_RACE = {100: 2.0, 200: 1.15}
_USUAL_ROUNDS, _USUAL_LEAF = 300, 50  # after which boosting stops, and rows for every leaf
_LEAST_CELLS = 7
_FEW_CLASSES = 5
JOINT_ROUNDS = 100  # whose cells a joint fit may take


@dataclass(frozen=True)
class Stage:
    """Rounds of boosting with cells of one kind."""

    is_linear: bool  # whether cells hold linear models
    n_cells: int  # most leaves of a tree
    rounds: int
    rate: float  # of learning
    #: whether thresholds are drawn at random, as those of trees with linear models always are
    is_random: bool = False
    n_bins: int = 127  # of a column

    def params(self, n: int) -> dict[str, Any]:
        """Return parameters of LightGBM for n rows.

        A linear model wants many rows more than a border in the best place: thresholds are drawn
        at random, so that no two trees have the same. Constants want the best borders, or trees
        that differ.
        """
        params: dict[str, Any] = {
            "learning_rate": self.rate, "num_leaves": self.n_cells, "max_bin": self.n_bins,
        }  # fmt: skip
        if self.is_linear:
            params |= {"min_data_in_leaf": 40, "extra_trees": True, "path_smooth": 10.0}
            return params | {"lambda_l2": 5.0, "linear_tree": True, "linear_lambda": 0.1}
        params |= {"min_data_in_leaf": max(5, n // 5000), "lambda_l2": 1.0}
        if self.is_random:
            return params | {"extra_trees": True}
        return params | {"feature_fraction_bynode": 0.7}


LINEAR_STAGE = Stage(True, 31, 400, 0.06)


class Boosted(Component):
    """Boosted trees with constants, as many rounds as held-out rows ask for."""

    name = "boosted"
    #: the first trees of every split of a regression, which a joint fit may refit
    partitioners: Sequence[TreeCells] = ()
    # K trees a round take their time: of many classes those with random thresholds must do, which
    # tell them apart more quickly, and better.
    _max_outputs: float = _FEW_CLASSES

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        n_rows, n_columns = context.rows.X.shape
        self._stage = self._make_stage(n_rows, context.n_outputs, n_columns)
        #: of the one split that there is
        self._split_growth: tuple[Growth, Any] | None = None
        self._first = next((c for c in components.values() if isinstance(c, Boosted)), None)
        self.has_rivals = self._first is not None
        #: of the validation rows of the first split after every round
        self._losses: list[float] = []
        # Of the splits that were fitted.
        self._rounds: list[int] = []
        self._predictions: list[NDArray] = []

    @classmethod
    def _make_stage(cls, n_rows: int, n_outputs: int, n_columns: int) -> Stage:
        # K trees a round: many classes have fewer rounds, and larger steps.
        few = min(1.0, _FEW_CLASSES / n_outputs)
        n_cells = _CELLS if n_rows <= _FEW_ROWS else _MORE_CELLS
        n_cells = _FEW_CELLS if has_many_classes(n_outputs) else n_cells
        stage = Stage(False, n_cells, round(few * _ROUNDS), _RATE / few**0.5)
        if is_wide(n_columns):
            return replace(stage, rate=_WIDE_RATE / few**0.5, n_bins=_WIDE_BINS)
        return stage

    @classmethod
    def takes(cls, n_outputs: int) -> bool:
        """Whether it takes part in fits of so many raw predictions a row."""
        return n_outputs <= cls._max_outputs

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose the number of rounds, and predict the validation rows after them.

        Splits that were predicted before come first, and are not fitted again. Trees that are far
        behind those of the first kind take no part.
        """
        if not splits or not self._takes_part:
            return None
        context, n_known = self.context, len(self._predictions)
        is_squared = context.is_regression and not context.has_own_link
        progress = self._progress((len(splits) - n_known) * self._stage.rounds, ", held-out rows")
        for k, (train, valid) in enumerate(splits[n_known:], 1):
            frame = context.standardize(train)
            race = None
            if is_squared and k == 1 and not n_known:
                race = _Race(self._losses, [] if self._first is None else self._first._losses)
            growth, booster = self._grown(frame, train, valid, progress, race)
            progress.step_to(k * self._stage.rounds)  # it has stopped early
            if race is not None and race.is_lost:
                self.is_left_out = True
                return None
            if not self._rounds and context.loss.has_log_link:
                growth, booster = self._with_smaller_trees(growth, booster, frame, train, valid)
            self._rounds.append(booster.best_iteration)
            self._predictions.append(growth.raw(booster, valid))
            if self._first is None and context.is_regression:
                n_rounds = min(booster.best_iteration, JOINT_ROUNDS)
                trees = growth.model(booster, n_rounds).partitioner
                self.partitioners = [*self.partitioners, trees]
            self._split_growth = (growth, booster.free_dataset()) if len(splits) == 1 else None
        self.n_rounds = max(1, round(float(np.mean(self._rounds))))
        return list(self._predictions)

    def _progress(self, n_rounds: int, what: str = "") -> Progress:
        label = self.name.replace("_", " ") + what
        return Progress(n_rounds, label, enabled=self.context.options.verbose)

    def _grown(
        self,
        frame: Frame,
        train: Rows,
        valid: Rows,
        progress: Progress | None = None,
        race: _Race | None = None,
    ) -> tuple[Growth, Any]:
        growth = Growth(self.context, frame, train, self._stage)
        return growth, growth.train(valid, progress, race)

    def _with_smaller_trees(
        self, growth: Growth, booster: Any, frame: Frame, train: Rows, valid: Rows
    ) -> tuple[Growth, Any]:
        """Quarter the leaves of trees for as long as boosting stops early and held-out rows gain.

        A row of rare counts tells little: trees as large as other targets allow learn by heart
        what there is in few rounds. A gain is one of more than a standard error.
        """

        def losses(growth: Growth, booster: Any) -> NDArray:
            raw = growth.raw(booster, valid) + valid.offset
            return valid.s * self.context.loss.row_loss(self.context.target(valid), raw)

        while booster.best_iteration < _EARLY and self._stage.n_cells > _LEAST_CELLS:
            before = self._stage
            self._stage = replace(before, n_cells=max(_LEAST_CELLS, before.n_cells // 4))
            smaller = self._grown(frame, train, valid)
            gains = losses(growth, booster) - losses(*smaller)
            if gains.mean() <= gains.std() / np.sqrt(len(gains)):
                self._stage = before
                break
            growth, booster = smaller
        return growth, booster

    @property
    def _takes_part(self) -> bool:
        # For the median and other quantiles LightGBM changes leaves again, out of their order.
        if self.context.signs is not None and isinstance(self.context.loss, Kinked):
            return False
        return self.takes(self.context.n_outputs)

    def split_model(self, frame: Frame) -> CellModel | None:
        """Return the trees of the one split; None where their linear models have other units."""
        keeps_split = self.context.keeps_split
        if self._split_growth is None or (self._stage.is_linear and not keeps_split):
            return None
        growth, booster = self._split_growth
        model = growth.model(booster)
        return model if keeps_split else model.in_units(frame)

    def fit(self, frame: Frame) -> CellModel:
        """Grow the trees on all rows."""
        context, stage = self.context, replace(self._stage, rounds=max(1, self.n_rounds))
        growth = Growth(context, frame, context.rows, stage)
        progress = self._progress(stage.rounds)
        model = growth.model(growth.train(progress=progress))
        progress.finish()
        return model

    def describe(self) -> str:
        """Return the number of rounds."""
        stage = self._stage
        thresholds = " with random thresholds" if stage.is_random else ""
        cells = " and linear models in them" if stage.is_linear else ""
        return f"boosted trees of {stage.n_cells} leaves{cells}{thresholds}, {self.n_rounds} rounds"

    @classmethod
    def memory(cls, shape: FitShape) -> Stages:
        """Return what the trees of all classes and the weights of their cells take."""
        if not cls.takes(shape.n_outputs):
            return Stages()
        stage = cls._make_stage(shape.n_rows, shape.n_outputs, shape.n_columns)
        # Twice the rate of learning takes half the rounds.
        usual = _USUAL_ROUNDS // 2 if is_wide(shape.n_columns) else _USUAL_ROUNDS
        n_trees = shape.n_outputs * min(stage.rounds, usual)
        # A tree that tells one class from all others has few rows to split.
        n_leaves = stage.n_cells // (2 if shape.n_outputs > 1 else 1)
        n_leaves = min(n_leaves, max(2, shape.n_rows // _USUAL_LEAF))
        n_weights = shape.n_outputs * (1 + shape.n_features * stage.is_linear)
        return boosted_memory(n_trees, n_leaves, shape.n_columns, stage.n_bins, n_weights)

    @classmethod
    def seconds(cls, size: Size) -> Seconds:
        """Return the time of the rounds until boosting stops, and of a few more."""
        if not cls.takes(size.n_outputs):
            return Seconds()
        n_trees = min(size.n_outputs, _FEW_CLASSES)  # a round; many classes have fewer rounds
        once = (0.012 + 2.7e-6 * size.n_rows) * max(size.n_columns, 4) * n_trees
        return Seconds(once, 1.3 * once)


class BoostedRandom(Boosted):
    """Boosted trees whose thresholds are drawn at random, which average better."""

    name = "boosted_random"
    _max_outputs = np.inf

    @classmethod
    def _make_stage(cls, n_rows: int, n_outputs: int, n_columns: int) -> Stage:
        return replace(super()._make_stage(n_rows, n_outputs, n_columns), is_random=True)


class BoostedLinear(BoostedRandom):
    """Boosted trees with a linear model in every leaf, for smooth targets."""

    name = "boosted_linear"

    @classmethod
    def _make_stage(cls, n_rows: int, n_outputs: int, n_columns: int) -> Stage:
        return LINEAR_STAGE

    @property
    def _takes_part(self) -> bool:
        context = self.context
        # LightGBM has linear leaves for few objectives, and exp of what they extrapolate explodes.
        if context.has_own_link or context.options.cells != "linear":
            return False
        # LightGBM gives a slope to every column of numbers.
        numbers = np.flatnonzero(context.columns.n_categories == 0)
        return np.array_equal(context.plan.numbers, numbers)


# -- growing --------------------------------------------------------------------------------------


_PATIENCE = 30  # rounds without a gain after which boosting stops
_OBJECTIVES: dict[type[Loss], str] = {
    SquaredError: "regression",
    AbsoluteError: "regression_l1",
    Poisson: "poisson",
    Gamma: "gamma",
    Logistic: "binary",
    Multinomial: "multiclass",
}
_OWN_METRIC = "own metric"  # of a loss that LightGBM does not know, beside its parameters


class _Race:
    """A callback that notes losses, and ends rounds that are far behind those of other trees.

    Kinds of boosted trees that are so far behind would have no weight in a blend, and take as long
    as others.
    """

    def __init__(self, losses: list[float], rivals: Sequence[float]) -> None:
        self._losses, self._rivals, self.is_lost = losses, rivals, False

    def __call__(self, env: Any) -> None:
        """Look at the loss of a round."""
        self._losses.append(env.evaluation_result_list[0][2])
        n_rounds = len(self._losses)
        if self._rivals and n_rounds in _RACE:
            self.is_lost = min(self._losses) > _RACE[n_rounds] * min(self._rivals[:n_rounds])
        if self.is_lost:
            from lightgbm import EarlyStopException

            raise EarlyStopException(env.iteration, env.evaluation_result_list)


class Growth:
    """Grows a stage with LightGBM on rows, which a frame turns into standard numbers."""

    def __init__(self, context: FitContext, frame: Frame, rows: Rows, stage: Stage) -> None:
        self._context, self._frame, self._rows, self._stage = context, frame, rows, stage
        self._n_outputs = context.n_outputs
        #: what boosting starts from besides offsets; LightGBM itself finds it for other losses
        self._constant = frame.offset if context.has_own_link else np.zeros(())

    def train(
        self,
        valid: Rows | None = None,
        progress: Progress | None = None,
        race: _Race | None = None,
    ) -> Any:
        """Train a booster; with validation rows it stops early, or where it loses a race."""
        import lightgbm

        params = self._params()
        metric = params.pop(_OWN_METRIC, None)
        data = self._dataset(
            self._rows,
            params=params,
            categorical_feature=self._context.columns.categorical.tolist(),
            free_raw_data=False,
        )
        # Else LightGBM writes all trees as text and reads them again.
        options: dict[str, Any] = {"callbacks": [], "keep_training_booster": True}
        if progress is not None:
            options["callbacks"].append(lambda _: progress.step())
        if valid is not None:
            options["callbacks"].append(lightgbm.early_stopping(_PATIENCE, verbose=False))
            if race is not None:
                options["callbacks"].append(race)
            options["valid_sets"] = [self._dataset(valid, params=params, reference=data)]
            options["feval"] = metric
        return lightgbm.train(params, data, num_boost_round=self._stage.rounds, **options)

    def raw(self, booster: Any, rows: Rows) -> NDArray:
        """Return raw predictions of rows, (n,) or (n, K), by the rounds up to the best."""
        return np.asarray(booster.predict(self._table(rows.X), raw_score=True) + self._constant)

    def model(self, booster: Any, n_rounds: int | None = None) -> CellModel:
        """Return the trees as a model whose cells are their leaves.

        By default those of the rounds up to the best, else those of the first `n_rounds`.
        """
        text, frame, stage = ModelText(booster, n_rounds), self._frame, self._stage
        trees = self._in_input_units(read_trees(text, frame.columns.coded(), has_values=False))
        partitioner = LightGBMPartitioner(trees.n_trees, stage.n_cells, n_jobs=self._context.n_jobs)
        partitioner.set_all_leaves(trees, booster.feature_importance("gain"))
        leaves, numbers = leaf_models(text, trees.n_features), self._context.plan.numbers
        n_cells, m = len(leaves.constants), len(self._context.plan.names)
        cells = np.arange(n_cells)
        biases = np.zeros((n_cells, self._n_outputs))
        biases[cells, leaves.outputs] = leaves.constants
        slopes = np.zeros((n_cells if stage.is_linear else 0, m, self._n_outputs))
        if stage.is_linear:
            slopes[cells, : len(numbers), leaves.outputs] = leaves.slopes[:, numbers]
        outputs = () if self._n_outputs == 1 else (self._n_outputs,)
        counts = tuple(int(c) for c in partitioner.n_cells_)
        kind: CellKind = "linear" if stage.is_linear else "constant"
        return CellModel(
            partitioner, frame.features, CellLayout(counts, m, (kind,) * len(counts)),
            slopes.reshape(-1, m, *outputs), biases.reshape(-1, *outputs),
            np.zeros(outputs) + self._constant, frame.centre, frame.unit,
        )  # fmt: skip

    def _dataset(self, rows: Rows, **options: Any) -> Any:
        """Return rows with weights of mean one: LightGBM's penalties count rows."""
        import lightgbm

        start = rows.offset + self._constant if self._context.has_own_link else None
        return lightgbm.Dataset(
            self._table(rows.X),
            label=self._frame.target(rows.y),
            weight=rows.s / rows.s.mean(),
            init_score=start,
            **options,
        )

    def _table(self, X: NDArray) -> NDArray:
        """Return the columns as the trees see them: standardised where cells are linear."""
        if not self._stage.is_linear:
            return X
        numbers = self._context.plan.numbers
        table = np.array(X, float)
        table[:, numbers] = self._frame.features.transform(X)[:, : len(numbers)]
        return table

    def _in_input_units(self, trees: FlatTrees) -> FlatTrees:
        """Return the trees with thresholds of the columns instead of standardised ones."""
        if not self._stage.is_linear:
            return trees
        numbers, scaler = self._context.plan.numbers, self._frame.features.scaler
        mean, scale = np.zeros(trees.n_features), np.ones(trees.n_features)
        mean[numbers] = scaler.mean[: len(numbers)]
        scale[numbers] = scaler.scale[: len(numbers)]
        at = trees.feature
        threshold = mean[at] + scale[at] * trees.threshold
        # LightGBM divides zeros from numbers just below: the mean must stay on its side.
        lost = (trees.threshold < 0) & (threshold >= mean[at])
        threshold[lost] = np.nextafter(mean[at], -np.inf)[lost]
        return replace(trees, threshold=threshold)

    def _params(self) -> dict[str, Any]:
        params: dict[str, Any] = {
            **objective_params(self._frame.loss),
            "seed": self._context.seed,
            "num_threads": threads(self._context.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **self._stage.params(len(self._rows)),
        }
        if self._n_outputs > 1:
            params |= {"objective": "multiclass", "num_class": self._n_outputs}
        if self._context.signs is not None:
            params["monotone_constraints"] = self._context.signs.tolist()
        return params


def objective_params(loss: Loss) -> dict[str, Any]:
    """Return the parameters with which LightGBM minimises a loss; for classes those of two."""
    if isinstance(loss, Huber):
        return {"objective": "huber", "alpha": loss.delta}
    if isinstance(loss, Quantile):
        return {"objective": "quantile", "alpha": loss.quantile}
    if isinstance(loss, Tweedie):
        return {"objective": "tweedie", "tweedie_variance_power": loss.power}
    name = _OBJECTIVES.get(type(loss))
    return {"objective": name} if name is not None else _own_objective(smooth(loss, NARROW))


def _own_objective(loss: Loss) -> dict[str, Any]:
    """Return the objective and metric of a loss that LightGBM does not know."""

    def objective(raw: NDArray, data: Any) -> tuple[NDArray, NDArray]:
        y, s = _targets_and_weights(data)
        h = np.maximum(loss.row_working_curvature(y, raw), 1e-6)
        return s * loss.row_gradient(y, raw), s * h

    def metric(raw: NDArray, data: Any) -> tuple[str, float, bool]:
        y, s = _targets_and_weights(data)
        return "loss", loss.value(y, raw, s), False

    return {"objective": objective, "metric": "None", _OWN_METRIC: metric}


def _targets_and_weights(data: Any) -> tuple[NDArray, NDArray]:
    """Return what a Dataset of LightGBM holds, which leaves out weights that are all one."""
    y, s = data.get_label().astype(float), data.get_weight()
    return y, np.ones(len(y)) if s is None else s.astype(float)
