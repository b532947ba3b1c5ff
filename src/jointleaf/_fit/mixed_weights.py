"""The mix of the joint fit and the partitions' own model, as one model."""

from __future__ import annotations

import numpy as np

from jointleaf._data.rows import Rows
from jointleaf._fit import Mix, own_predictions, own_values
from jointleaf._model.cell_model import CellModel, Frame

__all__ = ["mixed"]


def mixed(model: CellModel, mix: Mix, rows: Rows, frame: Frame) -> tuple[CellModel, Mix]:
    """Return the model of the mix, and the mix itself.

    The partitions' own values must do better than a constant on the training rows; otherwise
    they are in another unit or of other classes, and the joint fit stays alone.
    """
    if mix.is_joint_alone:
        return model, mix
    loss, centre, unit = frame.loss, frame.centre, frame.unit
    partitioner = model.partitioner
    codes, target = partitioner.apply(rows.X), loss.encode(frame.target(rows.y))
    values = own_values(partitioner, codes, loss, target, rows.s)
    if values is None:
        return model, Mix()
    own = (own_predictions(values, partitioner.n_cells_, codes) - centre) / unit
    constant = np.broadcast_to(loss.best_constant(target, rows.s), own.shape)
    if not loss.value(target, own, rows.s) < loss.value(target, constant, rows.s):
        return model, Mix()
    leaf_values = CellModel.of_leaf_values(frame, partitioner, values)
    return (mix.joint * model + mix.own * leaf_values).plus_constant(mix.constant), mix
