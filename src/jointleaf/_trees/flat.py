"""The portable form of trees: flat arrays that need no tree library.

Whatever grew the trees, jointleaf keeps them as the arrays of a `FlatTrees`, so that a fitted
model predicts, pickles and ships without that library. Three differences between the libraries
are settled when trees are imported, so that one rule holds here: **a row goes left where
x <= threshold**.

- XGBoost's ``x < t`` in single precision is ``x <= (the float32 before t)``;
- libraries that cast features to float32 are marked ``single_precision``;
- a missing value (NaN) goes where ``missing_left`` says, whatever the library calls its rule.

Columns with categories hold codes: the levels 0..L-1 met in training and L for every other level.
Their splits are tables of L + 1 truth values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["FlatTrees", "KeyPart", "Lookup"]


@dataclass(frozen=True)
class KeyPart:
    """One ingredient of the key of a `Lookup`.

    Attributes
    ----------
    column : int
    hashes : uint64 array (L + 2,) or None
        Number of every level, then of unseen levels, then of a missing value.
    threshold : float
        Where `hashes` is None: the part is 1 where x > threshold (float32), else 0.
    missing_above : bool
        Where `hashes` is None: whether the part of a missing value is 1.
    """

    column: int
    hashes: NDArray[np.uint64] | None = None
    threshold: float = 0.0
    missing_above: bool = False


@dataclass(frozen=True)
class Lookup:
    """A column that is looked up: a number for every combination of levels (CatBoost's statistics).

    The key of a row is h_k with h_0 = 0, h_i = M (h_{i-1} + M part_i) modulo 2^64.

    Attributes
    ----------
    parts : tuple of KeyPart
    keys : uint64 array (m,), rising
    values : float array (m,)
    default : float
        Where the key is not among `keys`.
    """

    parts: tuple[KeyPart, ...]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]
    default: float


@dataclass(frozen=True)
class FlatTrees:
    """Trees as flat arrays over the splits of all trees, tree after tree.

    Attributes
    ----------
    n_features : int
        d, the columns of the rows. Column d + i is the i-th of `lookups`.
    starts : integers (P + 1,)
        First split of every tree, and their number at the end.
    feature : int32 array (N,)
    threshold : float64 array (N,)
        A row goes left where x <= threshold.
    left, right : int32 arrays (N,)
        The split that follows, or ~k for leaf k of the same tree.
    missing_left : bool array (N,)
    table : int64 array (N,)
        Where the split's entries of `levels_left` begin; -1 for splits on numbers.
    levels_left : bool array
        Tables of all splits on categories: which codes go left.
    n_leaves : integers (P,)
    cell_of_leaf : int32 array (sum of n_leaves)
        Cell number of every leaf, tree after tree; -1 for leaves that no training row reached.
    n_levels : integers (d,)
        Number L of levels of columns with categories, 0 for numbers.
    single_precision : bool
        Whether features are rounded to float32 before they are compared.
    zero_is_missing : bool
        Whether zeros count as missing.
    lookups : tuple of Lookup
    leaf_values : float64 array (sum of n_leaves, K) or None
        What the library's own model adds to its raw predictions in every leaf, tree after tree;
        None where that is not known.
    """

    n_features: int
    starts: NDArray[np.intp]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    table: NDArray[np.int64]
    levels_left: NDArray[np.bool_]
    n_leaves: NDArray[np.intp]
    cell_of_leaf: NDArray[np.int32]
    n_levels: NDArray[np.intp]
    single_precision: bool = False
    zero_is_missing: bool = False
    lookups: tuple[Lookup, ...] = ()
    leaf_values: NDArray[np.float64] | None = None

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
    def split_features(self) -> NDArray[np.intp]:
        """Columns of the rows on which some tree splits, in rising order."""
        used = set(np.unique(self.feature).tolist())
        for i, lookup in enumerate(self.lookups):
            if self.n_features + i in used:
                used |= {part.column for part in lookup.parts}
        return np.array(sorted(j for j in used if j < self.n_features), dtype=np.intp)

    def numbered(self, leaves: NDArray) -> FlatTrees:
        """Number as cells the leaves that rows reached; `leaves` (n, P) are the leaves of rows."""
        met = np.zeros(len(self.cell_of_leaf), bool)
        starts = self.leaf_starts
        for p in range(self.n_trees):
            met[starts[p] + np.unique(leaves[:, p])] = True
        total = np.cumsum(met)
        before = np.concatenate([[0], total])[starts[:-1]]
        number = total - 1 - np.repeat(before, self.n_leaves)
        return replace(self, cell_of_leaf=np.where(met, number, -1).astype(np.int32))

    def scaled(self, unit: float, centre: float) -> FlatTrees:
        """Turn leaf values of a standardised target into those of the target itself."""
        if self.leaf_values is None:
            return self
        return replace(self, leaf_values=unit * self.leaf_values + centre / self.n_trees)

    @property
    def cell_values(self) -> NDArray[np.float64] | None:
        """Leaf values of the cells, (C, K), tree after tree."""
        if self.leaf_values is None:
            return None
        is_cell = self.cell_of_leaf >= 0
        start = np.repeat(np.cumsum(self.n_cells) - self.n_cells, self.n_leaves)
        values = np.zeros((int(self.n_cells.sum()), self.leaf_values.shape[1]))
        values[(start + self.cell_of_leaf)[is_cell]] = self.leaf_values[is_cell]
        return values

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
        new_leaf = np.arange(len(cell_of_leaf))
        new_leaf[right] = -1
        becomes = np.full(len(self.feature), -1, np.intp)
        becomes[splits] = left
        return self._without(becomes, new_leaf >= 0, cell_of_leaf.astype(np.int32))

    def _without(
        self,
        becomes: NDArray[np.intp],
        stays: NDArray[np.bool_],
        cell_of_leaf: NDArray[np.int32],
    ) -> FlatTrees:
        """Leave out splits that become a leaf (-1: they stay), and leaves that do not stay."""
        kept = becomes < 0
        number = np.cumsum(kept) - 1  # of splits that stay
        tree, leaf_starts = self.tree_of_split, self.leaf_starts
        before = np.concatenate([[0], np.cumsum(stays)])
        n_leaves = np.diff(before[leaf_starts])

        def renumbered(child: NDArray[np.int32]) -> NDArray[np.int32]:
            child, first = child[kept], leaf_starts[tree[kept]]
            inner = np.maximum(child, 0)
            is_leaf = (child < 0) | (becomes[inner] >= 0)
            leaf = np.where(child < 0, first + ~child, becomes[inner])
            new = ~(before[np.where(is_leaf, leaf, first)] - before[first])
            return np.where(is_leaf, new, number[inner]).astype(np.int32)

        sizes = np.bincount(tree[kept], minlength=self.n_trees)
        return replace(
            self,
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
            feature=self.feature[kept],
            threshold=self.threshold[kept],
            left=renumbered(self.left),
            right=renumbered(self.right),
            missing_left=self.missing_left[kept],
            table=self.table[kept],
            n_leaves=n_leaves.astype(np.intp),
            cell_of_leaf=cell_of_leaf[stays],
            leaf_values=None,  # of cells that are no more
        )

    def only(self, trees: NDArray[np.bool_]) -> FlatTrees:
        """Keep some of the trees (P,), at least one."""
        kept = trees[self.tree_of_split]
        shift = np.cumsum(~kept)
        sizes = np.diff(self.starts)[trees]

        def moved(child: NDArray[np.int32]) -> NDArray[np.int32]:
            child = child[kept]
            return (child - np.where(child >= 0, shift[kept], 0)).astype(np.int32)

        return replace(
            self,
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
            feature=self.feature[kept],
            threshold=self.threshold[kept],
            left=moved(self.left),
            right=moved(self.right),
            missing_left=self.missing_left[kept],
            table=self.table[kept],
            n_leaves=self.n_leaves[trees],
            cell_of_leaf=self.cell_of_leaf[np.repeat(trees, self.n_leaves)],
            leaf_values=None,  # of trees that are no more
        )
