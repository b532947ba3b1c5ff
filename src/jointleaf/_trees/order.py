"""Which leaves of a tree lie below which: what the values of a monotone tree must respect.

A tree of constants is monotone in column j exactly if its values rise from a to b for all leaves a
and b that a row can change between along column j alone: their boxes have values, or missing
values, in common in every other column, and a is below b in column j. Missing values of column j
itself are compared with nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees


def ordered_cells(trees: FlatTrees, signs: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return pairs of cells (m, 2): the trees are monotone iff no value falls from first to second.

    Cells are numbered over all trees, and their number C stands for leaves that are no cell, whose
    value is zero. Pairs that follow from others are left out, and all pairs that end in a cell come
    before those that begin with it. Signs (d,) are 1 where values shall rise along a column of
    numbers, -1 where they shall fall, else 0.
    """
    _check_orderable(trees, np.flatnonzero(signs))
    cells, starts = trees.leaf_cells, trees.leaf_starts
    pairs = [np.zeros((0, 2), np.intp)]
    for tree in np.unique(trees.tree_of_split[_is_constrained(trees, signs)]).tolist():
        leaves = cells[starts[tree] : starts[tree + 1]]
        pairs.append(leaves[_reduced(_below(trees, tree, signs))])
    return np.concatenate(pairs)


def constrained_trees(trees: FlatTrees, signs: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which trees (P,) split on a column with a sign."""
    is_constrained = np.zeros(trees.n_trees, bool)
    is_constrained[trees.tree_of_split[_is_constrained(trees, signs)]] = True
    return is_constrained


def _is_constrained(trees: FlatTrees, signs: NDArray[np.integer]) -> NDArray[np.bool_]:
    padded = np.append(signs, np.zeros(len(trees.lookups), np.intp))
    return padded[trees.feature] != 0


def _check_orderable(trees: FlatTrees, columns: NDArray[np.intp]) -> None:
    """Raise where cells are no boxes in a column with a sign."""
    used = set(np.unique(trees.feature).tolist())
    for i, lookup in enumerate(trees.lookups):
        mixed = {part.column for part in lookup.parts} & set(columns.tolist())
        if trees.n_features + i in used and mixed:
            raise ValueError(
                f"monotonic_cst constrains column {min(mixed)}, which the trees combine with "
                "categories: use another partitioner, or leave combinations out "
                "(CatBoost: max_ctr_complexity=1)"
            )
    if trees.zero_is_missing and used & set(columns.tolist()):
        raise ValueError(
            "monotonic_cst is not possible with trees that take zero for a missing value: leave "
            "zero_as_missing out"
        )


class _Sides:
    """What the leaves (L,) of one tree allow in one column: an interval or categories, and NaN."""

    def __init__(self, n_leaves: int, n_categories: int) -> None:
        self.low, self.high = np.full(n_leaves, -np.inf), np.full(n_leaves, np.inf)
        self.missing = np.ones(n_leaves, bool)
        self.codes = np.ones((n_leaves, n_categories + 1), bool) if n_categories else None

    def overlap(self) -> NDArray[np.bool_]:
        """Return which leaves have a value, or missing values, in common, (L, L)."""
        if self.codes is not None:
            shared = (self.codes[:, None] & self.codes).any(axis=2)
        else:
            low, high = (
                np.maximum(self.low[:, None], self.low),
                np.minimum(self.high[:, None], self.high),
            )
            shared = low < high
        return shared | (self.missing[:, None] & self.missing)

    def below(self) -> NDArray[np.bool_]:
        """Return which leaves (rows) lie below which (columns), where both have values, (L, L)."""
        has_values = self.low < self.high
        return (self.high[:, None] <= self.low) & has_values[:, None] & has_values


def _sides(trees: FlatTrees, tree: int) -> dict[int, _Sides]:
    """Return what the leaves of a tree allow, by column; splits and leaves are in preorder."""
    first, n_leaves = int(trees.starts[tree]), int(trees.n_leaves[tree])
    sides: dict[int, _Sides] = {}
    span = {first: (0, n_leaves)}
    for split in range(first, int(trees.starts[tree + 1])):
        begin, end = span[split]
        left, right = int(trees.left[split]), int(trees.right[split])
        middle = end - 1 if right < 0 else begin + right - split
        span[left], span[right] = (begin, middle), (middle, end)
        column = int(trees.feature[split])
        n_categories = int(trees.n_categories[column]) if column < trees.n_features else 0
        here = sides.setdefault(column, _Sides(n_leaves, n_categories))
        lefts, rights = slice(begin, middle), slice(middle, end)
        if here.codes is not None:
            at = int(trees.table[split])
            goes_left = trees.categories_left[at : at + n_categories + 1]
            here.codes[lefts] &= goes_left
            here.codes[rights] &= ~goes_left
        else:
            threshold = trees.threshold[split]
            here.high[lefts] = np.minimum(here.high[lefts], threshold)
            here.low[rights] = np.maximum(here.low[rights], threshold)
        here.missing[lefts] &= trees.missing_left[split]
        here.missing[rights] &= not trees.missing_left[split]
    return sides


def _below(trees: FlatTrees, tree: int, signs: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which leaves of a tree must not have a larger value than which, (L, L)."""
    sides = _sides(trees, tree)
    overlaps = {column: side.overlap() for column, side in sides.items()}
    n_apart = np.sum(
        [~overlap for overlap in overlaps.values()], axis=0
    )  # columns that tell two leaves apart
    below = np.zeros((int(trees.n_leaves[tree]),) * 2, bool)
    for column, side in sides.items():
        sign = signs[column] if column < len(signs) else 0
        if sign:
            rising = side.below() & ~overlaps[column] & (n_apart == 1)
            below |= rising if sign > 0 else rising.T
    return below


def _reduced(below: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the pairs (m, 2) of an order that do not follow from others, from the bottom up."""
    reach = below
    while True:
        longer = reach | (reach.astype(np.float32) @ reach.astype(np.float32) > 0)
        if (longer == reach).all():
            break
        reach = longer
    follows = reach.astype(np.float32) @ reach.astype(np.float32) > 0
    pairs = np.argwhere(reach & ~follows)
    return pairs[np.argsort(reach.sum(axis=0)[pairs[:, 0]], kind="stable")]
