"""Staged boosting: trees with linear models in their cells, then trees with constants.

With ten thousand rows and more a cell of a boosted tree has rows enough for a linear model of its
own, and growing the next tree on the residuals costs less than fitting all cells jointly. Trees
with linear models in their cells find what is smooth, and trees with constants, grown on the
residuals of these, find steps. Early stopping on held-out rows of a sample tells how many rounds of
each are worth while and, for regression, whether to start from the mean or from a global linear
model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.losses import (
    AbsoluteError,
    Gamma,
    Huber,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    Quantile,
    SquaredError,
    Tweedie,
)
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers import solve
from jointleaf._data.rows import Rows
from jointleaf._fit.component import NARROW, Component, FitContext, Split, Table, smooth
from jointleaf._fit.memory import FitShape, MemoryEstimate, trees_memory
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.lightgbm import ModelText, leaf_models, read_trees
from jointleaf.partitions import LightGBMPartitioner, RootCell

__all__ = ["Growth", "Stage", "StagedBoosting", "all_numbers_are_linear"]

_STRENGTH = 1e-4  # of the global linear model, which has far more rows than weights
_SAMPLE_ROWS, _SAMPLE_VALID_ROWS = 4000, 2000  # that choose the rounds
_CLEARLY = 0.88, 1.1  # better, by the ratio of losses, or of what they are below a constant's
#: Rounds without a gain after which boosting stops; chance finds less, and a constant's loss is 1.
_EARLY_STOP = {"stopping_rounds": 10, "min_delta": 1e-3}
_SURE = 1e-15  # probabilities are at least that far from 0 and 1
_OBJECTIVES: dict[type[Loss], str] = {
    SquaredError: "regression",
    AbsoluteError: "regression_l1",
    Poisson: "poisson",
    Gamma: "gamma",
    Logistic: "binary",
    Multinomial: "multiclass",
}
_OWN_METRIC = "own metric"  # of a loss that LightGBM does not know, beside its parameters


@dataclass(frozen=True)
class Stage:
    """Rounds of boosting with cells of one kind.

    Attributes
    ----------
    is_linear : bool
        Whether cells hold linear models.
    n_cells : int
        Most leaves of a tree.
    rounds : int
    rate : float
        Learning rate.
    is_random : bool
        Whether thresholds of trees with constants are drawn at random; those of trees with linear
        models always are.
    """

    is_linear: bool
    n_cells: int
    rounds: int
    rate: float
    is_random: bool = False

    def shortened(self, part: float) -> Stage:
        """Return the stage with a part of its rounds, at least one."""
        return replace(self, rounds=max(1, round(part * self.rounds)))

    def params(self, n: int) -> dict[str, Any]:
        """Return parameters of LightGBM for n rows.

        A linear model wants many rows more than a border in the best place: thresholds are drawn
        at random, so that no two trees have the same. Constants want the best borders, or trees
        that differ.
        """
        params = {"learning_rate": self.rate, "num_leaves": self.n_cells, "max_bin": 127}
        if self.is_linear:
            params |= {"min_data_in_leaf": 40, "extra_trees": True, "path_smooth": 10.0}
            return params | {"lambda_l2": 5.0, "linear_tree": True, "linear_lambda": 0.1}
        params |= {"min_data_in_leaf": max(5, n // 5000), "lambda_l2": 1.0}
        if self.is_random:
            return params | {"extra_trees": True}
        return params | {"feature_fraction_bynode": 0.7}


STAGES = Stage(True, 31, 120, 0.06), Stage(False, 63, 140, 0.05)
CONSTANT_STAGES = (Stage(False, 31, 400, 0.05),)  # where cells cannot hold linear models


class _Plan(NamedTuple):
    """Where boosting starts, its stages, and the validation loss on the sample."""

    starts_linear: bool
    stages: tuple[Stage, ...]
    loss: float


class StagedBoosting(Component):
    """Boosted trees, first with linear models and then with constants in their cells."""

    name = "staged_boosting"
    _plan: _Plan
    _codes_of_stages: list[Callable[[NDArray], NDArray]]

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose start and rounds on a sample; no predictions, as nothing is blended with it."""
        samples = [
            (train.take(slice(_SAMPLE_ROWS)), valid.take(slice(_SAMPLE_VALID_ROWS)))
            for train, valid in splits
        ]
        self._plan = self._choose([_Trial(self.context, *sample) for sample in samples])
        self.n_rounds = sum(stage.rounds for stage in self._plan.stages)
        self.table = _table(self.n_rounds, self._plan.loss)
        return None

    def fit(self, frame: Frame) -> CellModel:
        """Grow all stages on all rows, each on the residuals of those before."""
        rows, plan = self.context.rows, self._plan
        growth = Growth(self.context, frame, rows)
        progress = Progress(self.n_rounds, "boosting", enabled=self.context.options.verbose)
        models, start, self._codes_of_stages = [], None, []
        linear = _linear_weights(frame, rows) if plan.starts_linear else None
        if linear is not None:
            start = _linear_raw(frame, linear, rows)
        for stage in plan.stages:
            booster = growth.train(stage, start, progress=progress)
            if stage is not plan.stages[-1]:
                start = growth.training_raw(booster, start)
            model, codes_of = growth.model(booster, stage)
            models.append(model)
            self._codes_of_stages.append(codes_of)
        progress.finish()
        if linear is not None:
            models.append(CellModel.linear(frame, linear[:-1], linear[-1]))
        return sum(models[1:], models[0])

    def codes(self, X: NDArray) -> NDArray:
        """Return the codes (n, P) that LightGBM finds, which needs no preparation."""
        root = np.zeros((len(X), int(self._plan.starts_linear)), np.intp)
        return np.concatenate([*(codes(X) for codes in self._codes_of_stages), root], axis=1)

    def describe(self) -> str:
        """Return where boosting starts, and its stages."""
        kinds = {True: "linear models", False: "constants"}
        texts = [f"{s.rounds} rounds with {kinds[s.is_linear]}" for s in self._plan.stages]
        start = "a global linear model" if self._plan.starts_linear else "a constant"
        return f"boosted trees from {start}: {', then '.join(texts)}"

    @classmethod
    def memory(cls, shape: FitShape) -> MemoryEstimate:
        """Return what the trees of all classes take."""
        linear, constant = STAGES
        n_linear = shape.n_outputs * linear.rounds * linear.n_cells
        n_cells = n_linear + shape.n_outputs * constant.rounds * constant.n_cells
        # Weights, their copies for the tables of predictions, and those in the units of the input.
        return trees_memory(n_cells, 3 * n_linear * shape.n_features * shape.n_outputs)

    def _choose(self, trials: Sequence[_Trial]) -> _Plan:
        """Try the starts with the first stage; early stopping tells how much there is to find.

        A third of the rounds, each three times as large, is enough to tell. Of n rows a stage takes
        3 n / n_train times the part of its rounds that were of use here, at most all: what a
        round fits of the noise is proportional to 1 / n. In noise the first round is the best, so
        that it does not count; but a later stage has one even if it was of no use with few rows.
        Linear models lose in small samples and still win in large ones, so that constants alone
        must be clearly better here: where the target has steps.
        """
        context = self.context
        can_be_linear = context.options.cells == "linear" and all_numbers_are_linear(context)
        may_start_linear = can_be_linear and context.options.root_cell and context.is_regression
        first, *later = STAGES if can_be_linear else CONSTANT_STAGES
        growth = 3 * len(context.rows) / float(np.mean([len(trial.train) for trial in trials]))
        candidates = [[trial.probe(first) for trial in trials]]
        if may_start_linear:
            linear = [trial.from_linear() for trial in trials]
            candidates.append([trial.probe(first) for trial in linear])
        losses = [_mean_loss(probes) for probes in candidates]
        best = int(np.argmin(losses))
        probes, loss = candidates[best], losses[best]
        part = min(1.0, growth * _useful(probes, 1))
        stages = [first.shortened(part)]
        for stage in later:
            probes = [probe.trial.after(probe).probe(stage) for probe in probes]
            stages.append(stage.shortened(min(part, growth * _useful(probes, 0))))
            loss = min(loss, _mean_loss(probes))
        plan = _Plan(best > 0, tuple(stages), loss)
        if later:
            probes = [trial.probe(later[-1]) for trial in trials]
            constant_loss = float(np.mean([trial.constant_loss for trial in trials]))
            if _is_clearly_less(_mean_loss(probes), loss, constant_loss):
                part = min(1.0, growth * _useful(probes, 1))
                plan = _Plan(False, (CONSTANT_STAGES[0].shortened(part),), _mean_loss(probes))
        return plan._replace(loss=plan.loss / (2 if context.is_regression else 1))


# -- choosing on a sample ------------------------------------------------------------------------


class _Probe(NamedTuple):
    """A stage in a third of its rounds, each three times as large, stopped early.

    Attributes
    ----------
    trial : _Trial
    booster : lightgbm.Booster
    stage : Stage
        As it was grown.
    loss : float
        LightGBM's, of the validation rows.
    """

    trial: _Trial
    booster: Any
    stage: Stage
    loss: float


def _mean_loss(probes: Sequence[_Probe]) -> float:
    return float(np.mean([probe.loss for probe in probes]))


def _useful(probes: Sequence[_Probe], n_chance: int) -> float:
    """Return the part of the rounds up to the best, without those that chance alone would find."""
    parts = [(probe.booster.best_iteration - n_chance) / probe.stage.rounds for probe in probes]
    return float(np.mean(parts))


class _Trial:
    """Trains stages on the training rows of a split, from given raw predictions of its rows."""

    def __init__(self, context: FitContext, train: Rows, valid: Rows) -> None:
        self.train, self.valid = train, valid
        self._frame = context.standardize(train)
        self._growth = Growth(context, self._frame, train)
        self._start: NDArray | None = None
        self._valid_start: NDArray | None = None

    def from_linear(self) -> _Trial:
        """Return the trial that starts from a global linear model."""
        weights = _linear_weights(self._frame, self.train)
        start, valid_start = (
            _linear_raw(self._frame, weights, rows) for rows in (self.train, self.valid)
        )
        return self._from(start, valid_start)

    def after(self, probe: _Probe) -> _Trial:
        """Return the trial that starts from what a probe predicts."""
        start, valid_start = (
            self._growth.raw(probe.booster, probe.stage, rows, raw)
            for rows, raw in ((self.train, self._start), (self.valid, self._valid_start))
        )
        return self._from(start, valid_start)

    def _from(self, start: NDArray, valid_start: NDArray) -> _Trial:
        trial = copy.copy(self)
        trial._start, trial._valid_start = start, valid_start
        return trial

    def probe(self, stage: Stage) -> _Probe:
        """Train a coarse form of a stage."""
        coarse = replace(stage, rounds=stage.rounds // 3, rate=3 * stage.rate)
        validation = self.valid, self._valid_start
        booster = self._growth.train(coarse, self._start, validation=validation)
        (loss,) = booster.best_score["valid_0"].values()
        return _Probe(self, booster, coarse, float(loss))

    @property
    def constant_loss(self) -> float:
        """LightGBM's loss of the best constant of the training rows, on the validation rows."""
        loss = self._frame.loss
        y, y_valid = (loss.encode(self._frame.target(r.y)) for r in (self.train, self.valid))
        constant = np.broadcast_to(loss.best_constant(y, self.train.s), y_valid.shape)
        value = float(loss.value(y_valid, constant, self.valid.s))
        return value * (2 if loss.is_quadratic else 1)


def _is_clearly_less(loss: float, other: float, constant_loss: float) -> bool:
    """Whether a loss is clearly smaller than another; `constant_loss` is that of a constant."""
    ratio, gain_ratio = _CLEARLY
    gain, other_gain = constant_loss - loss, max(constant_loss - other, 0.0)
    return loss < ratio * other or gain > gain_ratio * other_gain + 1e-3


def all_numbers_are_linear(context: FitContext) -> bool:
    """Whether every column of numbers may have slopes: LightGBM gives one to each."""
    numbers = np.flatnonzero(context.columns.n_categories == 0)
    return np.array_equal(context.plan.numbers, numbers)


def _linear_weights(frame: Frame, rows: Rows) -> NDArray:
    """Return the weights (m + 1,) of the ridge regression that boosting may start from."""
    design = frame.design(rows.X, RootCell().fit(rows.X), "linear")
    penalty = Frobenius(_STRENGTH, 0.0)
    problem = Problem(design, frame.target(rows.y), frame.loss, penalty, rows.s, 0.0)
    solution = solve(problem, "auto", tol=1e-4, max_iter=100)
    return np.append(solution.coef[0], solution.intercept[0])


def _linear_raw(frame: Frame, weights: NDArray, rows: Rows) -> NDArray:
    """Return raw predictions (n,) of the global linear model."""
    return np.asarray(frame.features.transform(rows.X) @ weights[:-1] + weights[-1])


def _table(n_rounds: int, loss: float) -> Table:
    """Return the one setting there is, as the table of a search."""
    return {
        "n_rounds": np.array([n_rounds]),
        "mean_loss": np.array([loss]),
        "std_loss": np.array([np.nan]),
        "se_loss": np.array([np.nan]),
    }


# -- growing -------------------------------------------------------------------------------------


class Growth:
    """Grows stages on some rows with LightGBM.

    Parameters
    ----------
    context : FitContext
    frame : Frame
        How rows and targets become standard numbers.
    rows : Rows
    """

    def __init__(self, context: FitContext, frame: Frame, rows: Rows) -> None:
        self._context, self._frame, self._rows = context, frame, rows
        self._n_outputs = context.n_outputs
        self._tables: dict[bool, NDArray] = {}
        #: what boosting starts from besides offsets; LightGBM itself finds it for other losses
        self._constant = frame.offset if context.has_own_link else np.zeros(())

    def train(
        self,
        stage: Stage,
        start: NDArray | None,
        validation: tuple[Rows, NDArray | None] | None = None,
        progress: Progress | None = None,
        stop: Mapping[str, float] = _EARLY_STOP,
    ) -> Any:
        """Train a booster from raw predictions `start`; it stops early with validation rows.

        `validation` are rows and the raw predictions that they start from, `stop` how many rounds
        without which gain end the training.
        """
        import lightgbm

        params = self._params(stage)
        metric = params.pop(_OWN_METRIC, None)
        if stage.is_linear not in self._tables:
            self._tables[stage.is_linear] = self._table(self._rows.X, stage)
        data = lightgbm.Dataset(
            self._tables[stage.is_linear],
            weight=_relative(self._rows.s),
            categorical_feature=self._context.columns.categorical.tolist(),
            params=params,
            free_raw_data=False,
            **self._labels(self._rows, start),
        )
        options: dict[str, Any] = {"callbacks": []}
        if progress is not None:
            options["callbacks"].append(lambda _: progress.step())
        if validation is not None:
            rows, valid_start = validation
            valid = lightgbm.Dataset(
                self._table(rows.X, stage), weight=_relative(rows.s), reference=data,
                params=params, **self._labels(rows, valid_start),
            )  # fmt: skip
            options = {
                "valid_sets": [valid],
                "callbacks": [lightgbm.early_stopping(verbose=False, **stop)],
                "feval": metric,
            }
        # Else LightGBM writes all trees as text and reads them again.
        options["keep_training_booster"] = True
        return lightgbm.train(params, data, num_boost_round=stage.rounds, **options)

    def raw(self, booster: Any, stage: Stage, rows: Rows, start: NDArray | None) -> NDArray:
        """Return raw predictions of rows, (n,) or (n, K), by the rounds up to the best."""
        raw = booster.predict(self._table(rows.X, stage), raw_score=True)
        return np.asarray(raw + self._constant if start is None else start + raw)

    def training_raw(self, booster: Any, start: NDArray | None) -> NDArray:
        """Return raw predictions of the rows it was trained on, from what LightGBM holds."""
        held: list[NDArray] = []

        def hold(predictions: NDArray, _: Any) -> tuple[str, float, bool]:
            held.append(np.array(predictions))
            return "", 0.0, True

        booster.eval_train(hold)
        (predictions,) = held
        if self._frame.loss.is_quadratic:
            return predictions if start is None else start + predictions
        # They are probabilities by now, of everything that was started from too.
        if self._n_outputs > 1:
            return np.log(np.maximum(predictions.reshape(len(self._rows), -1), _SURE))
        return np.asarray(logit(np.clip(predictions, _SURE, 1 - _SURE)))

    def model(
        self, booster: Any, stage: Stage, n_rounds: int | None = None
    ) -> tuple[CellModel, Callable[[NDArray], NDArray]]:
        """Return the trees as a model whose cells are their leaves, and LightGBM's way to codes.

        By default those of the rounds up to the best, else those of the first `n_rounds`.
        """
        text, frame = ModelText(booster, n_rounds), self._frame
        trees = self._in_input_units(read_trees(text, frame.columns.coded()), stage)
        partitioner = LightGBMPartitioner(trees.n_trees, stage.n_cells, n_jobs=self._context.n_jobs)
        partitioner.set_all_leaves(
            replace(trees, leaf_values=None), booster.feature_importance("gain")
        )
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
        model = CellModel(
            partitioner, frame.features, CellLayout(counts, m, (kind,) * len(counts)),
            slopes.reshape(-1, m, *outputs), biases.reshape(-1, *outputs),
            np.zeros(outputs) + self._constant, frame.centre, frame.unit,
        )  # fmt: skip
        first, cell_of_leaf = trees.leaf_starts[:-1], np.argsort(leaves.order)

        def codes_of(X: NDArray) -> NDArray:
            numbers = booster.predict(self._table(X, stage), pred_leaf=True)
            return cell_of_leaf[numbers.reshape(len(X), -1) + first] - first

        return model, codes_of

    def _table(self, X: NDArray, stage: Stage) -> NDArray:
        """Return the columns as the trees see them: standardised where cells are linear."""
        if not stage.is_linear:
            return X
        numbers = self._context.plan.numbers
        table = np.array(X, float)
        table[:, numbers] = self._frame.features.transform(X)[:, : len(numbers)]
        return table

    def _labels(self, rows: Rows, start: NDArray | None) -> dict[str, Any]:
        """Return what the trees are grown on; for squared errors the residuals."""
        y = self._frame.target(rows.y)
        if self._frame.loss.is_quadratic:
            return {"label": y if start is None else y - start}
        if self._context.has_own_link:
            return {"label": y, "init_score": rows.offset + self._constant}
        return {"label": y, "init_score": start}

    def _in_input_units(self, trees: FlatTrees, stage: Stage) -> FlatTrees:
        """Return the trees with thresholds of the columns instead of standardised ones."""
        if not stage.is_linear:
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

    def _params(self, stage: Stage) -> dict[str, Any]:
        params: dict[str, Any] = {
            **objective_params(self._frame.loss),
            "seed": self._context.seed,
            "num_threads": threads(self._context.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **stage.params(len(self._rows)),
        }
        if self._n_outputs > 1:
            params |= {"objective": "multiclass", "num_class": self._n_outputs}
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


def _relative(s: NDArray) -> NDArray:
    """Return weights with mean one: LightGBM's penalties count rows, and scale must not matter."""
    return s / s.mean()
