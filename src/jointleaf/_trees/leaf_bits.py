"""Leaves of few rows of small trees, from all splits at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees

SMALL = 16  # most leaves of a tree
_BATCH = 2**18  # comparisons at a time: their results stay in the cache


class LeafBits:
    """Finds the leaves of chosen trees (P,), of at most 16 leaves, from all splits at once.

    A row is compared at every split of a tree, not only at those on its way. Where it goes right,
    the leaves on the left are ruled out, as bits of a set; the first leaf that is left is the row's
    (QuickScorer, Lucchese et al. 2015). Nothing has to be prepared but the sets, and every step is
    one operation on the splits of all trees.
    """

    def __init__(self, trees: FlatTrees, chosen: NDArray[np.bool_]) -> None:
        self._trees = trees
        self._single = np.flatnonzero(chosen & (trees.n_leaves == 1))
        self._divided = np.flatnonzero(chosen & (trees.n_leaves > 1))
        splits = np.flatnonzero(chosen[trees.tree_of_split])
        sizes = trees.n_leaves[self._divided] - 1
        self._starts = np.cumsum(sizes) - sizes
        self._feature, self._threshold = trees.feature[splits], trees.threshold[splits][:, None]
        self._missing_left = trees.missing_left[splits][:, None]
        self._on_categories = np.flatnonzero(trees.table[splits] >= 0)
        self._tables = trees.table[splits][self._on_categories]
        first = _first_leaves(trees)
        right = trees.right[splits]
        middle = np.where(right < 0, ~right, first[np.maximum(right, 0)])
        word = np.uint8 if trees.n_leaves[chosen].max(initial=1) <= 8 else np.uint16
        ruled_out = (1 << middle) - (1 << first[splits])
        self._remain = (~ruled_out).astype(word)[:, None]

    def __call__(self, columns: NDArray[np.float64], leaves: NDArray[np.int32]) -> None:
        """Write the leaves of rows to `leaves` (P, n); `columns` (d, n) hold numbers or codes."""
        leaves[self._single] = 0
        if not len(self._divided):
            return
        step = max(1, _BATCH // len(self._feature))
        has_missing = bool(np.isnan(columns).any())
        for start in range(0, columns.shape[1], step):
            rows = slice(start, start + step)
            goes_left = self._goes_left(columns[:, rows], has_missing)
            possible = np.negative(goes_left.astype(self._remain.dtype))
            possible |= self._remain
            possible = np.bitwise_and.reduceat(possible, self._starts, axis=0)
            leaves[self._divided, rows] = _FIRST_BIT[possible]

    def _goes_left(self, columns: NDArray[np.float64], has_missing: bool) -> NDArray[np.bool_]:
        """Return whether rows go left at every split, (N, n)."""
        x = columns.take(self._feature, axis=0)
        left = x <= self._threshold
        if has_missing:
            left |= self._missing_left & np.isnan(x)
        here = self._on_categories
        if here.size:
            codes = x[here].astype(np.intp)
            most = self._trees.n_categories[self._feature[here]][:, None]
            is_missing = codes > most
            place = self._tables[:, None] + np.where(is_missing, 0, codes)
            inside = self._trees.categories_left[place]
            left[here] = np.where(is_missing, self._missing_left[here], inside)
        return left


def _first_leaves(trees: FlatTrees) -> NDArray[np.int32]:
    """Return the leftmost leaf below every split, as its number in the tree."""
    below = trees.left.copy()
    inner = np.flatnonzero(below >= 0)
    while inner.size:
        below[inner] = trees.left[below[inner]]
        inner = inner[below[inner] >= 0]
    return ~below


_SETS = np.arange(1 << SMALL)
_FIRST_BIT = (np.frexp((_SETS & -_SETS).astype(float))[1] - 1).astype(np.int32)
