"""A fitted estimator of one task as other modules see it: its rows, loss, units and model."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_X_y

from jointleaf._core.losses import Loss
from jointleaf._core.problem import check_weights
from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows, canonical_rows, read_coded_rows
from jointleaf._fit.report import FitReport
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._trees.importers.base import threads
from jointleaf.estimators._checks import class_factors
from jointleaf.partitions._base import TargetType


class Fitted:
    """An estimator of one task: how its targets become numbers, and what its fit leaves."""

    cell_model_: CellModel
    columns_: Columns
    feature_importances_: NDArray
    report_: FitReport
    device: str
    n_jobs: int | None
    _target_type: ClassVar[TargetType]

    @property
    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of the fit, in its units."""

    @abstractmethod
    def _encode_known(self, y: NDArray) -> NDArray:
        """Return targets of validation rows, encoded as the training targets were."""

    def _class_weights(self, y: NDArray, weights: NDArray) -> dict[Any, float] | None:
        """Return the weight of every class of targets (n,); None where all are 1."""
        return None

    def _without_offset(self, y: NDArray, offset: NDArray) -> tuple[NDArray, NDArray]:
        """Return targets and offsets; where the loss is of residuals, only targets are left."""
        return y, offset


def class_weights_of(estimator: Fitted, y: NDArray, weights: NDArray) -> dict[Any, float] | None:
    """Return the weight of every class of targets (n,); None where all are 1."""
    return estimator._class_weights(y, weights)


def read_known_rows(
    estimator: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    offset: NDArray | None = None,
) -> Rows:
    """Return rows of positive weight as the fit sees new rows."""
    rows = _read_coded(estimator, X, y, sample_weight, offset)
    return replace(rows, X=estimator.columns_.matrix(rows.X))


def read_fit_rows(
    estimator: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    merge: bool = True,
) -> Rows:
    """Return training rows as the fit saw them: with cross-fitted statistics.

    With `merge` they are in canonical order, else as they are given.
    """
    if estimator.report_.has_offset:
        raise ValueError(
            "the model was fitted with exposure or an offset, and what fits its cells again "
            "(prune, paths of strengths) takes none: fit another model instead"
        )
    labels = np.asarray(y)
    weights = check_weights(sample_weight, len(labels))
    weights = weights * class_factors(estimator._class_weights(labels, weights), labels)
    rows, statistics = _read_coded(estimator, X, y, weights), estimator.columns_.statistics
    rows = canonical_rows(rows.X, rows.y, rows.s) if merge else rows
    return rows if statistics is None else statistics.fit(rows)[1]


def _read_coded(
    estimator: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    offset: NDArray | None = None,
) -> Rows:
    matrix, targets = check_X_y(
        read_coded_rows(estimator, X),
        y,
        ensure_all_finite="allow-nan",
        y_numeric=estimator._target_type == "regression",
    )
    weights = check_weights(sample_weight, len(targets))
    shift = np.zeros(len(targets)) if offset is None else offset
    labels = np.zeros((len(targets), 0), np.int64)
    rows = Rows(matrix, targets, weights, labels, offset=shift).take(weights > 0)
    y, shift = estimator._without_offset(estimator._encode_known(rows.y), rows.offset)
    return replace(rows, y=y, offset=shift)


def fitted_loss(estimator: Fitted) -> Loss:
    """Return the loss of the fit, in its units."""
    return estimator._loss


def fitted_frame(estimator: Fitted) -> Frame:
    """Return how rows and targets became standard numbers in the joint fit."""
    model, offset = estimator.cell_model_, estimator.report_.joint_or_raise("pruning").offset
    return Frame(
        estimator.columns_.of_matrix(),
        model.features,
        estimator._loss,
        offset,
        model.centre,
        model.unit,
        threads(estimator.n_jobs),
    )


def store_model(estimator: Fitted, model: CellModel, importances: NDArray, rows: Rows) -> None:
    """Put a model of training rows, and the importances of what it sees, on an estimator."""
    columns = estimator.columns_
    statistics = columns.statistics
    if statistics is not None:  # explanations measure from rows as they are predicted
        model, importances = model.described(statistics.matrix(statistics.coded(rows)), rows.s)
    estimator.cell_model_, estimator.feature_importances_ = model, columns.credited(importances)
