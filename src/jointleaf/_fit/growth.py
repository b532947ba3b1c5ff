"""Growing boosted trees with LightGBM, and their leaves as cells of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from jointleaf._core.progress import Progress
from jointleaf._data.rows import Rows
from jointleaf._fit.component import NARROW, FitContext, smooth
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.lightgbm import ModelText, leaf_models, read_trees
from jointleaf.partitions import LightGBMPartitioner

__all__ = ["Growth", "Stage", "objective_params"]

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


class Growth:
    """Grows a stage with LightGBM on rows, which a frame turns into standard numbers."""

    def __init__(self, context: FitContext, frame: Frame, rows: Rows, stage: Stage) -> None:
        self._context, self._frame, self._rows, self._stage = context, frame, rows, stage
        self._n_outputs = context.n_outputs
        #: what boosting starts from besides offsets; LightGBM itself finds it for other losses
        self._constant = frame.offset if context.has_own_link else np.zeros(())

    def train(self, valid: Rows | None = None, progress: Progress | None = None) -> Any:
        """Train a booster; with validation rows it stops early."""
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
