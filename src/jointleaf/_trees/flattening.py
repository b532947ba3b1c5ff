"""From the lists of nodes that libraries keep to the flat arrays of `FlatTrees`.

All trees are numbered together, one level at a time, so that the work does not grow with the number
of trees but with their depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees, Lookup

__all__ = ["NodeTable", "Numbering", "flatten", "number_nodes"]


@dataclass(frozen=True)
class NodeTable:
    """Trees as a library lists them: all nodes, leaves among them.

    Attributes
    ----------
    feature : integers (m,)
        Column of every split; anything negative in leaves.
    threshold : floats (m,)
        A row goes left where x <= threshold; not looked at in leaves and category splits.
    left, right : integers (m,)
        Node numbers of the children; not looked at in leaves.
    missing_left : bool array (m,)
        Whether missing values go left.
    levels_left : mapping from node number to bool array (L + 1,)
        For splits on categories: which codes go left, the last entry for unseen levels.
    value : floats (m, K), optional
        What the library's own model adds to its K raw predictions in each node that is a leaf.
    roots : integers (T,)
        Node numbers of the roots, tree after tree; one tree with its root first, if not said.
    """

    feature: NDArray
    threshold: NDArray
    left: NDArray
    right: NDArray
    missing_left: NDArray
    levels_left: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    value: NDArray | None = None
    roots: NDArray = field(default_factory=lambda: np.zeros(1, np.intp))


class Numbering(NamedTuple):
    """Splits and leaves of trees, each from left to right, tree after tree.

    Attributes
    ----------
    splits, leaves : integers
        Node numbers of the splits and of the leaves, in their new order.
    child : integers (m,)
        What a node is called as a child: the place of a split in `splits`, or ~k for leaf k of its
        tree.
    n_leaves : integers (T,)
    """

    splits: NDArray[np.intp]
    leaves: NDArray[np.intp]
    child: NDArray[np.intp]
    n_leaves: NDArray[np.intp]


def number_nodes(
    is_leaf: NDArray[np.bool_], left: NDArray, right: NDArray, roots: NDArray
) -> Numbering:
    """Number the nodes (m,) below some roots (T,); those that no root reaches are left out.

    A split with l leaves below has l - 1 splits there, itself included, so that counts of leaves,
    found from the deepest level upwards, say where every branch begins.
    """
    levels, level = [], np.asarray(roots, np.intp)
    while len(level):
        levels.append(level)
        splits = level[~is_leaf[level]]
        level = np.concatenate([left[splits], right[splits]]).astype(np.intp)
    count = np.ones(len(is_leaf), np.intp)  # leaves below
    for level in reversed(levels):
        splits = level[~is_leaf[level]]
        count[splits] = count[left[splits]] + count[right[splits]]
    n_leaves = count[roots]
    first_leaf = np.zeros(len(is_leaf), np.intp)  # of its branch, over all trees
    place = np.zeros(len(is_leaf), np.intp)  # of a split, over all trees
    begin = np.zeros(len(is_leaf), np.intp)  # of its tree's leaves
    first_leaf[roots] = begin[roots] = np.cumsum(n_leaves) - n_leaves
    place[roots] = np.cumsum(n_leaves - 1) - (n_leaves - 1)
    for level in levels:
        splits = level[~is_leaf[level]]
        a, b = left[splits], right[splits]
        begin[a] = begin[b] = begin[splits]
        first_leaf[a], first_leaf[b] = first_leaf[splits], first_leaf[splits] + count[a]
        place[a], place[b] = place[splits] + 1, place[splits] + count[a]
    met = np.concatenate(levels)
    splits, leaves = met[~is_leaf[met]], met[is_leaf[met]]
    return Numbering(
        splits=splits[np.argsort(place[splits])],
        leaves=leaves[np.argsort(first_leaf[leaves])],
        child=np.where(is_leaf, ~(first_leaf - begin), place),
        n_leaves=n_leaves,
    )


def flatten(
    trees: Iterable[NodeTable],
    n_features: int,
    n_levels: NDArray | None = None,
    *,
    single_precision: bool = False,
    zero_is_missing: bool = False,
    lookups: tuple[Lookup, ...] = (),
    base: NDArray | float = 0.0,
) -> FlatTrees:
    """Put trees into flat form; leaves are numbered from left to right, each one its own cell.

    An ensemble without trees becomes one tree of a single leaf.

    Parameters
    ----------
    trees : iterable of NodeTable
    n_features : int
        d, the columns of the rows.
    n_levels : integers (d,), optional
        Levels of every column, 0 for numbers (the default for all).
    single_precision, zero_is_missing, lookups
        See `FlatTrees`.
    base : number or array (K,)
        What the library's own model starts its raw predictions from; dealt out to all trees.
    """
    nodes = _all_nodes(list(trees))
    feature = np.asarray(nodes.feature)
    left, right = np.asarray(nodes.left), np.asarray(nodes.right)
    new = number_nodes(feature < 0, left, right, nodes.roots)
    order, n_leaves = new.splits, new.n_leaves
    threshold = np.asarray(nodes.threshold, np.float64)[order]
    table, levels_left = _level_tables(nodes.levels_left, order)
    values = None
    if nodes.value is not None:
        values = np.asarray(nodes.value, np.float64)[new.leaves]
        values = values + np.asarray(base, float) / len(n_leaves)
    first = np.repeat(np.cumsum(n_leaves) - n_leaves, n_leaves)
    return FlatTrees(
        n_features=n_features,
        starts=np.concatenate([[0], np.cumsum(n_leaves - 1)]).astype(np.intp),
        feature=feature[order].astype(np.int32),
        threshold=_float32_below(threshold) if single_precision else threshold,
        left=new.child[left[order]].astype(np.int32),
        right=new.child[right[order]].astype(np.int32),
        missing_left=np.asarray(nodes.missing_left, bool)[order],
        table=table,
        levels_left=levels_left,
        n_leaves=n_leaves,
        cell_of_leaf=(np.arange(len(first)) - first).astype(np.int32),
        n_levels=np.zeros(n_features, np.intp) if n_levels is None else np.asarray(n_levels),
        single_precision=single_precision,
        zero_is_missing=zero_is_missing,
        lookups=lookups,
        leaf_values=values,
    )


def _all_nodes(trees: list[NodeTable]) -> NodeTable:
    """One table of all trees; no values unless all have them."""
    if not trees:
        none, leaf = np.zeros(1, np.intp), np.full(1, -1)
        return NodeTable(leaf, np.zeros(1), none, none, none.astype(bool))
    if len(trees) == 1:
        return trees[0]
    sizes = [len(tree.feature) for tree in trees]
    starts = (np.cumsum(sizes) - sizes).tolist()
    values = [tree.value for tree in trees if tree.value is not None]

    def joined(name: str, *, shifted: bool = False) -> NDArray:
        parts = [np.asarray(getattr(tree, name)) for tree in trees]
        if shifted:
            parts = [part + start for part, start in zip(parts, starts, strict=True)]
        return np.concatenate(parts)

    return NodeTable(
        feature=joined("feature"),
        threshold=joined("threshold"),
        left=joined("left", shifted=True),
        right=joined("right", shifted=True),
        missing_left=joined("missing_left"),
        levels_left={
            start + int(node): table
            for tree, start in zip(trees, starts, strict=True)
            for node, table in tree.levels_left.items()
        },
        value=np.concatenate(values) if len(values) == len(trees) else None,
        roots=joined("roots", shifted=True),
    )


def _level_tables(
    levels_left: Mapping[int, NDArray[np.bool_]], splits: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the table of every split begins, -1 where it has none, and all tables in a row."""
    begins = np.full(len(splits), -1, np.int64)
    if not levels_left:
        return begins, np.zeros(0, bool)
    tables, length = [], 0
    for place in np.flatnonzero(np.isin(splits, list(levels_left))).tolist():
        tables.append(np.asarray(levels_left[int(splits[place])], bool))
        begins[place] = length
        length += len(tables[-1])
    return begins, np.concatenate([np.zeros(0, bool), *tables])


def _float32_below(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the largest float32 not above each threshold: for float32 x the same split."""
    with np.errstate(over="ignore"):
        rounded = threshold.astype(np.float32)
        below = np.nextafter(rounded, np.float32(-np.inf))
    above = rounded.astype(np.float64) > threshold
    return np.where(above, below, rounded).astype(np.float64)
