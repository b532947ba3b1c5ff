"""What each split on a row's way through a tree is worth.

Every node of a tree has the expected value of a training row that reaches it,

    v(node) = sum of (share of training weight) * (value) over the leaves below, divided by the
              sum of the shares; zero where no training row came.

From the root to its leaf a row changes this value step by step. Each change, v(child) - v(parent),
is credited to the column that the parent splits on (Saabas 2014, "treeinterpreter"). The credits
of a row add up to v(leaf) - v(root), and their mean over the training rows is zero for every
column. They depend on the leaf alone, so that they are a table with a row per leaf, and explaining
a row costs what predicting it costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from jointleaf._trees.flat import FlatTrees

__all__ = ["TreeCredits", "parents", "tree_credits"]

_DENSE_WIDTH = 64  # columns of credits up to which products with a dense table are faster
_DENSE_SIZE = 2**23  # numbers in it


@dataclass(frozen=True)
class TreeCredits:
    """Credits of all leaves.

    Attributes
    ----------
    table : array or csr_array (L, d * K)
        Column j * K + k is what column j of the rows changes in output k.
    mean : array (K,)
        Sum of the values of all roots: the mean over training rows.
    """

    table: NDArray[np.float64] | sparse.csr_array
    mean: NDArray[np.float64]


def tree_credits(trees: FlatTrees, values: NDArray, weights: NDArray) -> TreeCredits:
    """Deal out the values of leaves to the columns on which trees split.

    A split on a number that CatBoost looks up for a combination of columns is credited to these
    columns in equal parts.

    Parameters
    ----------
    trees : FlatTrees
    values : array (L, K)
        Of all leaves, tree after tree.
    weights : array (L,)
        Share of the training weight in every leaf.
    """
    n_splits, n_leaves, n_outputs = len(trees.feature), *values.shape
    parent = parents(trees)
    value, weight = np.zeros((n_splits + n_leaves, n_outputs)), np.zeros(n_splits + n_leaves)
    value[n_splits:], weight[n_splits:] = values, weights
    value[n_splits:] *= weights[:, None]
    for level in reversed(_levels(parent)):  # sums of what is below, from the bottom up
        has_parent = level[parent[level] >= 0]
        np.add.at(weight, parent[has_parent], weight[has_parent])
        np.add.at(value, parent[has_parent], value[has_parent])
    reached = weight > 0
    value[reached] /= weight[reached, None]
    value[n_splits:] = values  # also of leaves that no training row reached
    rows, columns, changes = [], [], []
    leaf = np.arange(n_leaves)
    node = n_splits + leaf
    while len(node):
        above = parent[node]
        inner = above >= 0
        leaf, node, above = leaf[inner], node[inner], above[inner]
        rows.append(leaf)
        columns.append(trees.feature[above].astype(np.intp))
        changes.append(value[node] - value[above])
        node = above
    mean = value[parent < 0].sum(axis=0)
    entries = np.concatenate(rows), np.concatenate(columns), np.concatenate(changes)
    return TreeCredits(_table(trees, *entries, (n_leaves, n_outputs)), mean)


def parents(trees: FlatTrees) -> NDArray[np.intp]:
    """The split above every split and, behind them, every leaf (N + L,); -1 for roots."""
    n_splits = len(trees.feature)
    first = trees.leaf_starts[trees.tree_of_split]
    parent = np.full(n_splits + int(trees.n_leaves.sum()), -1, np.intp)
    for child in (trees.left, trees.right):
        place = np.where(child >= 0, child, n_splits + first + ~child)
        parent[place] = np.arange(n_splits)
    return parent


def _levels(parent: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Nodes by their distance from the root."""
    depth = np.zeros(len(parent), np.intp)
    node, above = np.arange(len(parent)), parent
    while len(node):
        inner = above >= 0
        node, above = node[inner], above[inner]
        depth[node] += 1
        above = parent[above]
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1)


def _table(
    trees: FlatTrees,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    changes: NDArray[np.float64],
    shape: tuple[int, int],
) -> NDArray[np.float64] | sparse.csr_array:
    """Sum the changes (E, K) of leaves and columns (E,) in a table (L, d * K)."""
    d, (n_leaves, n_outputs) = trees.n_features, shape
    rows, columns, changes = _dealt_out(trees, rows, columns, changes)
    places = (columns[:, None] * n_outputs + np.arange(n_outputs)).reshape(-1)
    table = sparse.coo_array(
        (changes.reshape(-1), (np.repeat(rows, n_outputs), places)),
        shape=(n_leaves, d * n_outputs),
    ).tocsr()
    small = d * n_outputs <= _DENSE_WIDTH and n_leaves * d * n_outputs <= _DENSE_SIZE
    return table.toarray() if small else table


def _dealt_out(
    trees: FlatTrees,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    changes: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Replace columns that are looked up by those that they are made of."""
    plain = columns < trees.n_features
    parts = [(rows[plain], columns[plain], changes[plain])]
    for i, lookup in enumerate(trees.lookups):
        own = columns == trees.n_features + i
        sources = sorted({part.column for part in lookup.parts})
        for j in sources:
            parts.append((rows[own], np.full(own.sum(), j, np.intp), changes[own] / len(sources)))
    found = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    return found[0], found[1], found[2]
