"""The linear models that LightGBM's linear trees hold in their leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf.partitions.libraries.lightgbm import ModelText

__all__ = ["LeafLines", "leaf_lines"]


class LeafLines(NamedTuple):
    """What the leaves of all trees add to the raw predictions, tree after tree, from left to right.

    Leaf l adds ``constants[l] + slopes[l] @ x`` to output ``outputs[l]``.

    Attributes
    ----------
    constants : array (L,)
    slopes : array (L, d)
    outputs : integers (L,)
    """

    constants: NDArray[np.float64]
    slopes: NDArray[np.float64]
    outputs: NDArray[np.intp]


def leaf_lines(text: ModelText, n_features: int) -> LeafLines:
    """Read the leaves of a model that was trained with ``linear_tree`` or without."""
    n_outputs = text.n_outputs
    constants, slopes, outputs = [], [], []
    for k, tree in enumerate(text.trees()):
        is_linear = tree.get("is_linear", "0") != "0"
        constant = _numbers(tree["leaf_const" if is_linear else "leaf_value"], float)
        own = np.zeros((len(constant), n_features))
        if is_linear:
            leaf = np.repeat(np.arange(len(constant)), _numbers(tree["num_features"], int))
            column = _numbers(tree["leaf_features"], int)
            own[leaf, column] = _numbers(tree["leaf_coeff"], float)
        order = _left_to_right(tree)
        constants.append(constant[order])
        slopes.append(own[order])
        outputs.append(np.full(len(constant), k % n_outputs))
    return LeafLines(np.concatenate(constants), np.concatenate(slopes), np.concatenate(outputs))


def _left_to_right(tree: Mapping[str, str]) -> list[int]:
    """LightGBM's numbers of a tree's leaves in the order of `FlatTrees`."""
    if int(tree["num_leaves"]) == 1:
        return [0]
    left, right = (_numbers(tree[name], int).tolist() for name in ("left_child", "right_child"))
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        if node < 0:
            order.append(~node)
        else:
            waiting += [right[node], left[node]]
    return order


def _numbers(values: str, dtype: type) -> NDArray:
    return np.array(values.split(), dtype=dtype)
