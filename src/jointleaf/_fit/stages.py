"""Stages of boosting: LightGBM's trees, whose leaves become cells with lines or constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from jointleaf._core.layout import CellLayout
from jointleaf._core.progress import Progress
from jointleaf._data.rows import Rows
from jointleaf._fit.job import Job
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers.base import threads
from jointleaf._trees.importers.lightgbm import ModelText, read_trees
from jointleaf._trees.importers.lightgbm_lines import LeafLines, leaf_lines
from jointleaf.partitions import LightGBMPartitioner, Partitioner

__all__ = ["Growth", "Probe", "Stage", "StageCells"]

_PATIENCE = 10  # rounds without a gain, where rows judge
_LEAST_GAIN = 1e-3  # chance finds less; the loss of a constant is about 1
_SURE = 1e-15  # probabilities are at least that far from 0 and 1


@dataclass(frozen=True)
class Stage:
    """Some rounds of boosting.

    Attributes
    ----------
    has_lines : bool
        Whether cells hold linear models.
    n_cells : int
        At most, of a tree.
    rounds : int
    rate : float
    """

    has_lines: bool
    n_cells: int
    rounds: int
    rate: float

    def shortened(self, share: float) -> Stage:
        """The stage with a share of its rounds, at least one."""
        return replace(self, rounds=max(1, round(share * self.rounds)))

    def params(self, n: int) -> dict[str, Any]:
        """For LightGBM, on n rows.

        A linear model wants many rows more than a border in the best place: thresholds are drawn
        at random, so that no two trees have the same. Constants want the best borders.
        """
        if self.has_lines:
            own = {"min_data_in_leaf": 40, "extra_trees": True, "path_smooth": 10.0}
            own |= {"lambda_l2": 5.0, "linear_tree": True, "linear_lambda": 0.1}
        else:
            least = max(5, n // 5000)
            own = {"min_data_in_leaf": least, "feature_fraction_bynode": 0.7, "lambda_l2": 1.0}
        return {"learning_rate": self.rate, "num_leaves": self.n_cells, "max_bin": 127, **own}


class Probe(NamedTuple):
    """A stage in a third of its rounds, each three times as large, stopped early by other rows.

    Attributes
    ----------
    booster : lightgbm.Booster
    stage : Stage
        As it was grown.
    loss : float
        LightGBM's, of the rows that judged.
    """

    booster: Any
    stage: Stage
    loss: float

    def useful(self, n_chance: int) -> float:
        """Share of the rounds up to the best, without those that chance alone would find."""
        return (self.booster.best_iteration - n_chance) / self.stage.rounds


class StageCells(NamedTuple):
    """What a stage has become.

    Attributes
    ----------
    partitioner : Partitioner
        The leaves as cells.
    slopes : array (C, m[, K]) or None
        In standard units; None for constants.
    biases : array (C[, K])
    codes : function
        Gives the codes (n, P) of rows: those of the partitioner, but found by LightGBM, which
        needs no preparation.
    """

    partitioner: Partitioner
    slopes: NDArray | None
    biases: NDArray
    codes: Callable[[NDArray], NDArray]

    def model(self, frame: Frame) -> CellModel:
        """The stage as a model."""
        constants = CellModel.of_constants(frame, self.partitioner, self.biases)
        if self.slopes is None:
            return constants
        layout = CellLayout(constants.layout.cells_per_partition, self.slopes.shape[1], "linear")
        return replace(constants, layout=layout, slopes=self.slopes)


class Growth:
    """Grows stages on some rows.

    Parameters
    ----------
    job : Job
    frame : Frame
        How rows and targets become standardised numbers.
    rows : Rows
    n_outputs : int
        K, or 1.
    """

    def __init__(self, job: Job, frame: Frame, rows: Rows, n_outputs: int) -> None:
        self._job, self._frame, self._rows, self._n_outputs = job, frame, rows, n_outputs
        self._known: dict[bool, NDArray] = {}

    def probe(
        self, stage: Stage, start: NDArray | None, valid: Rows, judging: NDArray | None
    ) -> Probe:
        """Train a coarse form of a stage; rows `valid` with raw predictions `judging` judge it."""
        small = replace(stage, rounds=stage.rounds // 3, rate=3 * stage.rate)
        booster = self.train(small, start, judged_by=(valid, judging))
        (loss,) = booster.best_score["valid_0"].values()
        return Probe(booster, small, float(loss))

    def loss_of_none(self, valid: Rows) -> float:
        """LightGBM's loss of the best constant of the training rows, on other rows."""
        loss = self._frame.loss
        y, y_valid = (loss.encode(self._frame.target(rows.y)) for rows in (self._rows, valid))
        constant = np.broadcast_to(loss.best_constant(y, self._rows.s), y_valid.shape)
        return float(loss.value(y_valid, constant, valid.s)) * (2 if loss.is_quadratic else 1)

    def raw_of(self, probe: Probe, rows: Rows, start: NDArray | None) -> NDArray:
        """Raw predictions of rows, (n,) or (n, K), by the rounds up to the best."""
        found = probe.booster.predict(self.table(rows.X, probe.stage), raw_score=True)
        return np.asarray(found if start is None else start + found)

    def train(
        self,
        stage: Stage,
        start: NDArray | None,
        judged_by: tuple[Rows, NDArray | None] | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Train LightGBM from raw predictions `start`; stops early where rows judge it.

        `judged_by` are rows and the raw predictions that they start from.
        """
        import lightgbm

        params = self._params(stage)
        data = lightgbm.Dataset(
            self._table(stage),
            weight=_in_rows(self._rows.s),
            categorical_feature=self._job.columns.categorical.tolist(),
            params=params,
            free_raw_data=False,
            **self._aim(self._rows, start),
        )
        more: dict[str, Any] = {"callbacks": []}
        if progress is not None:
            more["callbacks"].append(lambda _: progress.step())
        if judged_by is not None:
            valid, known = judged_by
            judge = lightgbm.Dataset(
                self.table(valid.X, stage), weight=_in_rows(valid.s), reference=data, params=params,
                **self._aim(valid, known),
            )  # fmt: skip
            stop = lightgbm.early_stopping(_PATIENCE, verbose=False, min_delta=_LEAST_GAIN)
            more = {"valid_sets": [judge], "callbacks": [stop]}
        # Else LightGBM writes all trees as text and reads them again.
        more["keep_training_booster"] = True
        return lightgbm.train(params, data, num_boost_round=stage.rounds, **more)

    def raw(self, booster: Any, start: NDArray | None) -> NDArray:
        """Raw predictions of the rows it was trained on, (n,) or (n, K), by what LightGBM keeps."""
        kept: list[NDArray] = []

        def keep(predicted: NDArray, _: Any) -> tuple[str, float, bool]:
            kept.append(np.array(predicted))
            return "", 0.0, True

        booster.eval_train(keep)
        found = kept[0]
        if self._frame.loss.is_quadratic:
            return found if start is None else start + found
        # They are probabilities by now, of everything that was started from too.
        if self._n_outputs > 1:
            return np.log(np.maximum(found.reshape(len(self._rows), -1), _SURE))
        return np.asarray(logit(np.clip(found, _SURE, 1 - _SURE)))

    def cells(self, booster: Any, stage: Stage) -> StageCells:
        """Put the trees into jointleaf's own form."""
        text = ModelText(booster)
        trees = self._own_units(read_trees(text, self._frame.columns.coded()), stage)
        partitioner = LightGBMPartitioner(trees.n_trees, stage.n_cells, n_jobs=self._job.n_jobs)
        partitioner.take_all_leaves(
            replace(trees, leaf_values=None), booster.feature_importance("gain")
        )
        lines = leaf_lines(text, trees.n_features)
        first = trees.leaf_starts[:-1]
        cell_of_leaf = np.argsort(lines.order)

        def codes(X: NDArray) -> NDArray:
            leaves = booster.predict(self.table(X, stage), pred_leaf=True)
            return cell_of_leaf[leaves.reshape(len(X), -1) + first] - first

        return StageCells(partitioner, *self._weights(lines, stage), codes)

    def table(self, X: NDArray, stage: Stage) -> NDArray:
        """The columns as the trees see them: numbers standardised where cells hold lines."""
        if not stage.has_lines:
            return X
        numbers = self._job.plan.numbers
        table = np.array(X, float)
        table[:, numbers] = self._frame.features.transform(X)[:, : len(numbers)]
        return table

    def _table(self, stage: Stage) -> NDArray:
        if stage.has_lines not in self._known:
            self._known[stage.has_lines] = self.table(self._rows.X, stage)
        return self._known[stage.has_lines]

    def _aim(self, rows: Rows, start: NDArray | None) -> dict[str, Any]:
        """What the trees are grown on; squared errors of what is left are those of the target."""
        y = self._frame.target(rows.y)
        if self._frame.loss.is_quadratic:
            return {"label": y if start is None else y - start}
        return {"label": y, "init_score": start}

    def _own_units(self, trees: FlatTrees, stage: Stage) -> FlatTrees:
        """Thresholds of standardised columns become those of the columns."""
        if not stage.has_lines:
            return trees
        numbers, scaler = self._job.plan.numbers, self._frame.features.scaler
        mean, scale = np.zeros(trees.n_features), np.ones(trees.n_features)
        mean[numbers] = scaler.mean[: len(numbers)]
        scale[numbers] = scaler.scale[: len(numbers)]
        at = trees.feature
        threshold = mean[at] + scale[at] * trees.threshold
        # LightGBM divides zeros from numbers just below: the mean must stay on its side.
        lost = (trees.threshold < 0) & (threshold >= mean[at])
        threshold[lost] = np.nextafter(mean[at], -np.inf)[lost]
        return replace(trees, threshold=threshold)

    def _weights(self, lines: LeafLines, stage: Stage) -> tuple[NDArray | None, NDArray]:
        """Slopes (C, m[, K]) and biases (C[, K]) of the cells in standard units."""
        plan, n_cells = self._job.plan, len(lines.constants)
        cell, numbers = np.arange(n_cells), plan.numbers
        biases = np.zeros((n_cells, self._n_outputs))
        biases[cell, lines.outputs] = lines.constants
        biases = biases[:, 0] if self._n_outputs == 1 else biases
        if not stage.has_lines:
            return None, biases
        slopes = np.zeros((n_cells, len(plan.names), self._n_outputs))
        slopes[cell, : len(numbers), lines.outputs] = lines.slopes[:, numbers]
        return slopes[:, :, 0] if self._n_outputs == 1 else slopes, biases

    def _params(self, stage: Stage) -> dict[str, Any]:
        params: dict[str, Any] = {
            "objective": "regression" if self._frame.loss.is_quadratic else "binary",
            "seed": self._job.seed,
            "num_threads": threads(self._job.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **stage.params(len(self._rows)),
        }
        if self._n_outputs > 1:
            params |= {"objective": "multiclass", "num_class": self._n_outputs}
        return params


def _in_rows(s: NDArray) -> NDArray:
    """Weights with mean one: LightGBM's penalties count rows, and the scale must not matter."""
    return s / s.mean()
