"""The mix of the joint fit and the partitions' own model, as weights of the cells."""

from __future__ import annotations

import numpy as np

from jointleaf._data.rows import Rows
from jointleaf._fit import Mix, own_predictions, own_values
from jointleaf._model.cell_model import CellWeights, Frame
from jointleaf.partitions import Partitioner

__all__ = ["mixed"]


def mixed(
    weights: CellWeights, mix: Mix, partitioner: Partitioner, rows: Rows, frame: Frame
) -> tuple[CellWeights, Mix]:
    """Give the weights of the mix, and the mix itself.

    The partitions' own values must do better than a constant on the training rows; otherwise
    they are in another unit or of other classes, and the joint fit stays alone.
    """
    if mix.is_joint_alone:
        return weights, mix
    loss, centre, unit = frame.loss, frame.centre, frame.unit
    codes, target = partitioner.apply(rows.X), loss.encode(frame.target(rows.y))
    values = own_values(partitioner, codes, loss, target, rows.s)
    if values is None:
        return weights, Mix()
    own = (own_predictions(values, partitioner.n_cells_, codes) - centre) / unit
    constant = np.broadcast_to(loss.best_constant(target, rows.s), own.shape)
    if not loss.value(target, own, rows.s) < loss.value(target, constant, rows.s):
        return weights, Mix()
    theta = mix.joint * weights.theta
    theta[:, -1] += mix.own * values.reshape(weights.biases.shape) / unit
    offset = mix.joint * weights.offset - mix.own * centre / unit + mix.constant
    return CellWeights(theta, offset), mix
