"""The linear models that LightGBM's linear trees hold in their leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flattening import number_nodes
from jointleaf._trees.importers.lightgbm import ModelText, TreeNodes

__all__ = ["LeafLines", "leaf_lines"]


class LeafLines(NamedTuple):
    """What the leaves of all trees add to the raw predictions, tree after tree, from left to right.

    Leaf l adds ``constants[l] + slopes[l] @ x`` to output ``outputs[l]``.

    Attributes
    ----------
    constants : array (L,)
    slopes : array (L, d)
    outputs : integers (L,)
    order : integers (L,)
        Place of every leaf in LightGBM's own order.
    """

    constants: NDArray[np.float64]
    slopes: NDArray[np.float64]
    outputs: NDArray[np.intp]
    order: NDArray[np.intp]


def leaf_lines(text: ModelText, n_features: int) -> LeafLines:
    """Read the leaves of a model that was trained with ``linear_tree`` or without."""
    n_leaves = text.column("num_leaves", int)
    tree = np.repeat(np.arange(len(n_leaves)), n_leaves)
    # Of a model with linear models the first tree holds constants all the same.
    is_linear = np.array([one.get("is_linear", "0") != "0" for one in text.trees])[tree]
    constants = text.column("leaf_value", float)
    slopes = np.zeros((len(tree), n_features))
    if is_linear.any():
        constants[is_linear] = text.column("leaf_const", float)
        leaf = np.repeat(np.flatnonzero(is_linear), text.column("num_features", int))
        slopes[leaf, text.column("leaf_features", int)] = text.column("leaf_coeff", float)
    order = _left_to_right(text.nodes)
    return LeafLines(constants[order], slopes[order], (tree % text.n_outputs)[order], order)


def _left_to_right(nodes: TreeNodes) -> NDArray[np.intp]:
    """Leaves of all trees, in LightGBM's order, in the order of `FlatTrees`."""
    is_leaf = nodes.spread(np.zeros(len(nodes.splits), bool), True)
    left, right = (nodes.spread(child, -1) for child in (nodes.left, nodes.right))
    numbering = number_nodes(is_leaf, left, right, nodes.roots)
    return np.searchsorted(nodes.leaves, numbering.leaves)
