"""The portable form of trees: flat arrays that need no tree library.

Whatever grew the trees, jointleaf keeps them as the arrays of a `FlatTrees`, so that a fitted
model predicts, pickles and ships without that library. Three differences between the libraries
are settled when trees are imported, so that one rule holds here: **a row goes left where
x <= threshold**.

- XGBoost's ``x < t`` in single precision is ``x <= (the float32 before t)``;
- libraries that cast features to float32 are marked ``single_precision``;
- a missing value (NaN) goes where ``missing_left`` says, whatever the library calls its rule.

Columns with categories hold codes: 0..L-1 for the categories met in training, L for all others.
Their splits are tables of L + 1 truth values.

`flatten` makes the arrays from the lists of nodes that libraries keep. It numbers all trees at the
same time, one level at a time, so that the work grows with their depth and not with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Columns


class TrainingRows(NamedTuple):
    """What partitions are made from: rows with a positive weight only."""

    X: NDArray  # (n, d) float32 or float64; NaN for missing values, codes for categories
    y: NDArray  # (n,) targets; class numbers in classification
    weight: NDArray[np.float64] | None  # (n,) with mean 1, or None where all weights are equal
    n_classes: int  # number of classes present; 0 in regression
    columns: Columns  # what the columns of X hold

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights (n,), ones where all are equal."""
        return np.ones(len(self.X)) if self.weight is None else self.weight

    @property
    def class_numbers(self) -> NDArray[np.intp]:
        """Classes (n,) as 0, 1, ... without numbers that no row has."""
        return np.unique(self.y, return_inverse=True)[1]


@dataclass(frozen=True)
class KeyPart:
    """One ingredient of the key of a `Lookup`: the hash of a category, or whether x > threshold."""

    column: int
    hashes: NDArray[np.uint64] | None = None  # (L + 2,) of categories, unseen ones, missing values
    threshold: float = 0.0  # in single precision
    missing_above: bool = False


@dataclass(frozen=True)
class Lookup:
    """A column that is looked up: a number for each combination of categories, as in CatBoost.

    The key of a row is h_k with h_0 = 0, h_i = M (h_{i-1} + M part_i) modulo 2^64.
    """

    parts: tuple[KeyPart, ...]
    keys: NDArray[np.uint64]  # (m,), rising
    values: NDArray[np.float64]  # (m,)
    default: float  # where the key is not among `keys`


@dataclass(frozen=True)
class FlatTrees:
    """P trees as flat arrays over their N splits, and over their leaves, tree after tree.

    `leaf_values` are what the model that grew the trees adds to its K raw predictions in every
    leaf; None where it is not such a sum.
    """

    n_features: int  # d, the columns of the rows; column d + i is the i-th of `lookups`
    starts: NDArray[np.intp]  # (P + 1,) first split of every tree, and their number at the end
    feature: NDArray[np.int32]  # (N,)
    threshold: NDArray[np.float64]  # (N,) a row goes left where x <= threshold
    left: NDArray[np.int32]  # (N,) the split that follows, or ~k for leaf k of the same tree
    right: NDArray[np.int32]
    missing_left: NDArray[np.bool_]  # (N,)
    table: NDArray[np.int64]  # (N,) where a split's entries of `categories_left` begin, or -1
    categories_left: NDArray[np.bool_]  # tables of splits on categories: which codes go left
    n_leaves: NDArray[np.intp]  # (P,)
    cell_of_leaf: NDArray[np.int32]  # cell of every leaf; -1 where no training row reached it
    n_categories: NDArray[np.intp]  # (d,) categories of columns with categories, 0 for numbers
    single_precision: bool = False  # whether features are rounded before they are compared
    zero_is_missing: bool = False
    lookups: tuple[Lookup, ...] = ()
    leaf_values: NDArray[np.float64] | None = None

    def of_columns(self, columns: NDArray[np.intp], n_features: int) -> FlatTrees:
        """Return trees that were grown on some columns (m,) of a table as trees of its rows."""
        n_categories = np.zeros(n_features, self.n_categories.dtype)
        n_categories[columns] = self.n_categories
        feature = columns[self.feature].astype(self.feature.dtype)
        return replace(self, n_features=n_features, feature=feature, n_categories=n_categories)

    @property
    def n_trees(self) -> int:
        """P, the number of trees."""
        return len(self.n_leaves)

    @property
    def leaf_starts(self) -> NDArray[np.intp]:
        """First leaf of every tree in `cell_of_leaf`, and their number at the end, (P + 1,)."""
        return np.concatenate([[0], np.cumsum(self.n_leaves)]).astype(np.intp)

    @property
    def n_cells(self) -> NDArray[np.intp]:
        """Number of cells of every tree, (P,)."""
        starts = self.leaf_starts[:-1]
        return (np.maximum.reduceat(self.cell_of_leaf, starts) + 1).astype(np.intp)

    @property
    def leaf_cells(self) -> NDArray[np.intp]:
        """The cell of every leaf among those of all trees; their number C where it is none."""
        n_cells = self.n_cells
        first = np.repeat(np.cumsum(n_cells) - n_cells, self.n_leaves)
        return np.where(self.cell_of_leaf < 0, n_cells.sum(), first + self.cell_of_leaf)

    @property
    def leaf_numbers(self) -> NDArray[np.intp]:
        """The number of every leaf in its tree."""
        return np.arange(len(self.cell_of_leaf)) - np.repeat(self.leaf_starts[:-1], self.n_leaves)

    @property
    def split_features(self) -> NDArray[np.intp]:
        """Columns of the rows on which some tree splits, in rising order."""
        used = set(np.unique(self.feature).tolist())
        for i, lookup in enumerate(self.lookups):
            if self.n_features + i in used:
                used |= {part.column for part in lookup.parts}
        return np.array(sorted(j for j in used if j < self.n_features), dtype=np.intp)

    def numbered(self, leaves: NDArray) -> FlatTrees:
        """Number as cells the leaves that rows reached; `leaves` (n, P) are the leaves of rows."""
        starts = self.leaf_starts
        met = np.zeros(len(self.cell_of_leaf), bool)
        met[leaves + starts[:-1]] = True
        total = np.cumsum(met)
        before = np.concatenate([[0], total])[starts[:-1]]
        number = total - 1 - np.repeat(before, self.n_leaves)
        return replace(self, cell_of_leaf=np.where(met, number, -1).astype(np.int32))

    def scaled(self, unit: float, centre: float) -> FlatTrees:
        """Turn leaf values of a standardised target into those of the target itself."""
        if self.leaf_values is None:
            return self
        return replace(self, leaf_values=unit * self.leaf_values + centre / self.n_trees)

    def leaf_sums(self, leaves: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the sums (n, K) of the values of one leaf of every tree, numbered (n, P)."""
        assert self.leaf_values is not None
        sums = np.zeros((len(leaves), self.leaf_values.shape[1]))
        for leaf in (leaves + self.leaf_starts[:-1]).T:
            sums += self.leaf_values[leaf]
        return sums

    @property
    def cell_values(self) -> NDArray[np.float64] | None:
        """Leaf values of the cells, (C, K), tree after tree."""
        if self.leaf_values is None:
            return None
        values = np.zeros((int(self.n_cells.sum()) + 1, self.leaf_values.shape[1]))
        values[self.leaf_cells] = self.leaf_values
        return values[:-1]

    # -- merging -------------------------------------------------------------------------------

    @property
    def tree_of_split(self) -> NDArray[np.intp]:
        """The tree of every split, (N,)."""
        return np.repeat(np.arange(self.n_trees), np.diff(self.starts))

    @property
    def twigs(self) -> NDArray[np.intp]:
        """Splits whose two children are leaves, in rising order."""
        return np.flatnonzero((self.left < 0) & (self.right < 0))

    def leaves_of(self, splits: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Left and right leaf of twigs, as places in `cell_of_leaf`."""
        first = self.leaf_starts[self.tree_of_split[splits]]
        return first + ~self.left[splits], first + ~self.right[splits]

    def merged(self, splits: NDArray[np.intp]) -> FlatTrees:
        """Make one leaf of each of these `twigs`; the leaf is the cell of both that went before.

        The merged cell has the smaller number of the two (where one leaf was no cell, that of
        the other), and the cells of a tree are numbered 0, 1, ... again in their old order.
        """
        left, right = self.leaves_of(splits)
        cells = np.stack([self.cell_of_leaf[left], self.cell_of_leaf[right]])
        both = (cells >= 0).all(axis=0)
        cell_of_leaf = self.cell_of_leaf.copy()
        cell_of_leaf[left] = np.where(both, cells.min(axis=0), cells.max(axis=0))
        n_cells = self.n_cells
        first_cell = np.cumsum(n_cells) - n_cells
        gone = np.zeros(n_cells.sum(), np.intp)
        gone[(first_cell[self.tree_of_split[splits]] + cells.max(axis=0))[both]] = 1
        before = np.concatenate([[0], np.cumsum(gone)])
        start = np.repeat(first_cell, self.n_leaves)
        cell_of_leaf -= np.where(cell_of_leaf >= 0, before[start + cell_of_leaf] - before[start], 0)
        stays = np.ones(len(cell_of_leaf), bool)
        stays[right] = False
        becomes = np.full(len(self.feature), -1, np.intp)
        becomes[splits] = left
        return self._without(becomes, stays, cell_of_leaf)

    def only(self, trees: NDArray[np.bool_]) -> FlatTrees:
        """Keep some of the trees (P,), at least one."""
        becomes = np.where(trees[self.tree_of_split], -1, 0)
        return self._without(becomes, np.repeat(trees, self.n_leaves), self.cell_of_leaf)

    def _without(
        self, becomes: NDArray[np.intp], stays: NDArray[np.bool_], cell_of_leaf: NDArray[np.int32]
    ) -> FlatTrees:
        """Leave out splits that become a leaf (-1: they stay), and leaves that do not stay."""
        is_split = becomes < 0
        number = np.cumsum(is_split) - 1  # of splits that stay
        tree, leaf_starts = self.tree_of_split[is_split], self.leaf_starts
        before = np.concatenate([[0], np.cumsum(stays)])
        n_leaves = np.diff(before[leaf_starts])
        n_leaves = n_leaves[n_leaves > 0]  # of trees that stay

        def renumbered(child: NDArray[np.int32]) -> NDArray[np.int32]:
            child, first = child[is_split], leaf_starts[tree]
            inner = np.maximum(child, 0)
            is_leaf = (child < 0) | (becomes[inner] >= 0)
            leaf = np.where(child < 0, first + ~child, becomes[inner])
            new = ~(before[np.where(is_leaf, leaf, first)] - before[first])
            return np.where(is_leaf, new, number[inner]).astype(np.int32)

        return replace(
            self,
            starts=np.concatenate([[0], np.cumsum(n_leaves - 1)]).astype(np.intp),
            feature=self.feature[is_split],
            threshold=self.threshold[is_split],
            left=renumbered(self.left),
            right=renumbered(self.right),
            missing_left=self.missing_left[is_split],
            table=self.table[is_split],
            n_leaves=n_leaves.astype(np.intp),
            cell_of_leaf=cell_of_leaf[stays],
            leaf_values=None,  # of cells or trees that are no more
        )


def leaves_as_cells(trees: FlatTrees) -> FlatTrees:
    """Return the trees with every leaf as a cell, also those that no training row reached."""
    return replace(trees, cell_of_leaf=trees.leaf_numbers.astype(np.int32))


def concatenate(parts: Sequence[FlatTrees]) -> FlatTrees:
    """Return the trees of several ensembles without leaf values, grown on the same columns."""
    n_splits = np.cumsum([0, *(len(part.feature) for part in parts)])
    n_entries = np.cumsum([0, *(len(part.categories_left) for part in parts)])

    def joined(name: str, starts: NDArray | None = None) -> Any:
        """Return a field of all parts; numbers that are not negative count from `starts`."""
        fields = [getattr(part, name) for part in parts]
        if starts is not None:
            pairs = zip(fields, starts, strict=False)
            fields = [np.where(f >= 0, f + start, f).astype(f.dtype) for f, start in pairs]
        return np.concatenate(fields)

    begins = [part.starts[:-1] + first for part, first in zip(parts, n_splits, strict=False)]
    return replace(
        parts[0],
        feature=joined("feature"),
        threshold=joined("threshold"),
        missing_left=joined("missing_left"),
        categories_left=joined("categories_left"),
        n_leaves=joined("n_leaves"),
        cell_of_leaf=joined("cell_of_leaf"),
        left=joined("left", n_splits),
        right=joined("right", n_splits),
        table=joined("table", n_entries),
        starts=np.concatenate([*begins, n_splits[-1:]]).astype(np.intp),
        leaf_values=None,
    )


# -- from lists of nodes --------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeTable:
    """Trees as a library lists them: all m nodes, leaves among them.

    `threshold`, `left` and `right` are not looked at in leaves. `categories_left` has for splits on
    categories which codes go left, the last entry for unseen categories. `value` is what the model
    of the library adds to its K raw predictions in each node that is a leaf.
    """

    feature: NDArray  # (m,) column of every split; anything negative in leaves
    threshold: NDArray  # (m,) a row goes left where x <= threshold
    left: NDArray  # (m,) node numbers of the children
    right: NDArray
    missing_left: NDArray  # (m,)
    categories_left: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)  # (L + 1,)
    value: NDArray | None = None  # (m, K)
    roots: NDArray = field(default_factory=lambda: np.zeros(1, np.intp))  # (T,), tree after tree


class Numbering(NamedTuple):
    """Splits and leaves of trees, as node numbers, each from left to right, tree after tree."""

    splits: NDArray[np.intp]
    leaves: NDArray[np.intp]
    child: NDArray[np.intp]  # (m,) the place of a split in `splits`, or ~k for leaf k of its tree
    n_leaves: NDArray[np.intp]  # (T,)


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
    n_categories: NDArray | None = None,
    *,
    single_precision: bool = False,
    zero_is_missing: bool = False,
    lookups: tuple[Lookup, ...] = (),
    base: NDArray | float = 0.0,
) -> FlatTrees:
    """Put trees into flat form; leaves are numbered from left to right, each one its own cell.

    An ensemble without trees becomes one tree of a single leaf. `base` (K,) is what the model of
    the library starts its raw predictions from, dealt out to all trees; for the other arguments see
    `FlatTrees`.
    """
    if n_categories is None:
        n_categories = np.zeros(n_features, np.intp)
    nodes = _all_nodes(list(trees))
    feature = np.asarray(nodes.feature)
    left, right = np.asarray(nodes.left), np.asarray(nodes.right)
    new = number_nodes(feature < 0, left, right, nodes.roots)
    order, n_leaves = new.splits, new.n_leaves
    threshold = np.asarray(nodes.threshold, np.float64)[order]
    table, categories_left = _category_tables(nodes.categories_left, order)
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
        categories_left=categories_left,
        n_leaves=n_leaves,
        cell_of_leaf=(np.arange(len(first)) - first).astype(np.int32),
        n_categories=n_categories,
        single_precision=single_precision,
        zero_is_missing=zero_is_missing,
        lookups=lookups,
        leaf_values=values,
    )


def _all_nodes(trees: list[NodeTable]) -> NodeTable:
    """Return one table of all trees; without values unless all have them."""
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
        categories_left={
            start + int(node): table
            for tree, start in zip(trees, starts, strict=True)
            for node, table in tree.categories_left.items()
        },
        value=np.concatenate(values) if len(values) == len(trees) else None,
        roots=joined("roots", shifted=True),
    )


def tables_from_scores(trees: FlatTrees, scores: Mapping[int, NDArray]) -> FlatTrees:
    """Turn splits ``score <= threshold`` into tables of categories.

    `scores` has for every column with categories the numbers (L + 2,) of its categories, of
    unseen categories and of missing values. Where the last is NaN, missing values keep their way,
    and so do categories whose number is NaN.
    """
    if not scores:
        return trees
    table, missing_left = trees.table.copy(), trees.missing_left.copy()
    n_categories = trees.n_categories.copy()
    parts = [trees.categories_left]
    length = len(trees.categories_left)
    for j, score in scores.items():
        n_categories[j] = len(score) - 2
        for node in np.flatnonzero(trees.feature == j):
            left = np.where(np.isnan(score), missing_left[node], score <= trees.threshold[node])
            table[node] = length
            parts.append(left[:-1])
            length += len(left) - 1
            missing_left[node] = left[-1]
    return replace(
        trees,
        table=table,
        missing_left=missing_left,
        categories_left=np.concatenate(parts),
        n_categories=n_categories,
    )


def _category_tables(
    categories_left: Mapping[int, NDArray[np.bool_]], splits: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where the table of every split begins (-1: it has none), and all tables in a row."""
    begins = np.full(len(splits), -1, np.int64)
    if not categories_left:
        return begins, np.zeros(0, bool)
    tables, length = [], 0
    for place in np.flatnonzero(np.isin(splits, list(categories_left))).tolist():
        tables.append(np.asarray(categories_left[int(splits[place])], bool))
        begins[place] = length
        length += len(tables[-1])
    return begins, np.concatenate([np.zeros(0, bool), *tables])


def _float32_below(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest float32 not above each threshold: for float32 x the same split."""
    with np.errstate(over="ignore"):
        rounded = threshold.astype(np.float32)
        below = np.nextafter(rounded, np.float32(-np.inf))
    above = rounded.astype(np.float64) > threshold
    return np.where(above, below, rounded).astype(np.float64)
