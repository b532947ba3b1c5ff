"""Which leaf of every tree a row reaches: `FlatTrees` applied to rows.

From 256 rows on, rows are followed down all trees as bits (`RowBits`). Fewer rows are looked up in
tables of the trees' columns (`ColumnTables`), once as much time was lost without these as half of
their making takes. Before that, rows of small trees are compared at all splits (`LeafBits`), of
others they are walked down all trees at once, level by level. Large trees, whose tables would be
large or slow, are left to LightGBM's C++ code where loading them pays (`_trees.native`). The cells
are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import as_codes
from jointleaf._trees.column_tables import MOST_LEAVES, ColumnTables, tabled
from jointleaf._trees.flat import FlatTrees, Lookup
from jointleaf._trees.native import ZERO, LazyTrees, NativeTrees
from jointleaf._trees.row_bits import RowBits

#: Rows at a time: enough to hide the cost of a call, few enough for their columns to stay cached.
_BLOCK_ROWS = 8192
_TURNED_ROWS = 256
_FEW_ROWS = 640  # up to which preparing trees costs more than it saves
_LOOKED_UP_ROWS = 16  # from which on tables that are there save time
_MANY_ROWS = 4096  # of all calls, from which on tables of small trees are worth making
_BIT_ROWS = 256  # from which on rows are worth being followed as bits
#: Seconds that tables of a tree cost, half of them, and what is lost without them, in a call and
#: for every row.
_TREE_TABLED, _CALL_LOST, _ROW_LOST = 4e-5, 3e-7, 5e-8
_SAVED = 2.5e-7  # seconds that LightGBM saves for one row and a tree
_HASH = np.uint64(0x4906BA494954CB65)


@dataclass(frozen=True)
class Condition:
    """The condition of a split on one column.

    It is ``x > threshold``, or ``x <= threshold`` where missing values go right (NaN makes both
    false). With `categories` (L + 2,) it is the entry of the code, of unseen categories or of
    missing values, true for left.
    """

    column: int
    threshold: float
    missing_right: bool
    categories: NDArray[np.bool_] | None = None

    @property
    def yes_is_left(self) -> bool:
        """Whether rows for which the answer is yes go left."""
        return self.missing_right or self.categories is not None


class Router:
    """Finds the cells of rows."""

    def __init__(self, trees: FlatTrees) -> None:
        self.trees = trees
        used = set(np.unique(trees.feature).tolist())
        used |= {part.column for lookup in trees.lookups for part in lookup.parts}
        used = {j for j in used if j < trees.n_features}
        self._numbers = sorted(j for j in used if trees.n_categories[j] == 0)
        self._categories = sorted(j for j in used if trees.n_categories[j] > 0)
        self._is_small = is_small(trees)
        self._n_rows = self._n_calls = 0  # that tables would have served so far

    @cached_property
    def _is_tabled(self) -> NDArray[np.bool_]:
        return tabled(self.trees)

    @cached_property
    def _native(self) -> list[LazyTrees]:
        if self._is_small.all():
            return []
        chosen = ~self._is_small & ~self._is_tabled
        return [LazyTrees(self.trees, chosen, _SAVED)] if chosen.any() else []

    @cached_property
    def _has_bits(self) -> NDArray[np.bool_]:
        return self.trees.n_leaves <= MOST_LEAVES

    @cached_property
    def _least_bit_rows(self) -> float:
        """Rows from which on following all rows as bits is worth it."""
        sizes = self.trees.n_leaves[self._has_bits]
        return 2.0 * sizes.mean() if len(sizes) else np.inf

    @cached_property
    def _row_bits(self) -> RowBits:
        return RowBits(self.trees, self._has_bits)

    @cached_property
    def _tables(self) -> ColumnTables:
        return ColumnTables(self.trees, self._is_tabled)

    @cached_property
    def _bits(self) -> LeafBits:
        return LeafBits(self.trees, self._is_small)

    @cached_property
    def leaves_are_cells(self) -> bool:
        """Whether all leaves are cells with their own numbers."""
        return np.array_equal(self.trees.cell_of_leaf, self.trees.leaf_numbers)

    def renumbered(self, trees: FlatTrees) -> Router:
        """Return the router of the same trees with other cells."""
        router = copy(self)
        router.trees, router._n_rows, router._n_calls = trees, 0, 0
        router.__dict__.pop("leaves_are_cells", None)
        return router

    def __call__(self, X: NDArray, n_jobs: int = 1) -> NDArray[np.int32]:
        """Return the cells (n, P) of rows X (n, d); -1 in leaves that no training row reached."""
        return np.ascontiguousarray(self.by_tree(X, n_jobs).T)

    def by_tree(self, X: NDArray, n_jobs: int = 1) -> NDArray[np.int32]:
        """Return the same cells, tree by tree: (P, n)."""
        leaves = np.empty((self.trees.n_trees, len(X)), dtype=np.int32)
        is_routed = np.ones(self.trees.n_trees, bool)
        if len(X) >= max(_BIT_ROWS, self._least_bit_rows):
            self._route_blocks(X, self._has_bits, leaves, n_jobs)
            is_routed &= ~self._has_bits
        elif self._looks_up(len(X)):
            self._tables(self.columns(X), leaves)
            is_routed &= ~self._is_tabled
        if (is_routed & self._is_small).any():
            self._compare(X, leaves, is_routed & self._is_small)
            is_routed &= ~self._is_small
        for chosen, native in self._native_trees(is_routed, len(X)):
            leaves[chosen] = self._native_leaves(native, chosen, X, n_jobs).T
            is_routed &= ~chosen
        if is_routed.any():
            if len(X) <= _FEW_ROWS:
                self._walk(np.flatnonzero(is_routed), self.columns(X), leaves)
            else:
                self._route_blocks(X, is_routed, leaves, n_jobs)
        if self.leaves_are_cells:
            return leaves
        leaves += self.trees.leaf_starts[:-1, None].astype(np.int32)
        return self.trees.cell_of_leaf[leaves]

    def _looks_up(self, n_rows: int) -> bool:
        """Whether tables are there or, for all calls so far, worth making."""
        is_all_small = self._is_small.all()
        if is_all_small and n_rows < _LOOKED_UP_ROWS:
            return False
        self._n_calls += 1
        self._n_rows += n_rows
        if "_tables" in self.__dict__:
            return True
        if is_all_small:
            return self._n_rows > _MANY_ROWS and bool(self._is_tabled.any())
        lost = self._n_calls * _CALL_LOST + self._n_rows * _ROW_LOST
        return lost > _TREE_TABLED and bool(self._is_tabled.any())

    def _route_blocks(
        self, X: NDArray, chosen: NDArray[np.bool_], leaves: NDArray[np.int32], n_jobs: int
    ) -> None:
        """Fill in the leaves of chosen trees, block by block."""
        blocks = [slice(b, b + _BLOCK_ROWS) for b in range(0, len(X), _BLOCK_ROWS)]
        # Made once, not in every thread.
        bits = self._row_bits if chosen is self._has_bits else None

        def fill(rows: slice) -> None:
            columns = self.columns(X[rows])
            if bits is not None:
                bits(columns, leaves[:, rows])
            else:
                self._walk_each(np.flatnonzero(chosen), columns, leaves[:, rows])

        if n_jobs == 1 or len(blocks) < 2:
            for block in blocks:
                fill(block)
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                list(pool.map(fill, blocks))

    # -- few rows of small trees ----------------------------------------------------------------

    def _compare(self, X: NDArray, leaves: NDArray[np.int32], chosen: NDArray[np.bool_]) -> None:
        """Fill in the leaves of small trees."""
        of_trees = leaves if chosen.all() else np.zeros_like(leaves)
        self._bits(self.columns(X), of_trees)
        if of_trees is not leaves:
            leaves[chosen] = of_trees[chosen]

    # -- LightGBM -------------------------------------------------------------------------------

    def _native_trees(
        self, is_routed: NDArray[np.bool_], n_rows: int
    ) -> Iterator[tuple[NDArray[np.bool_], NativeTrees]]:
        """Yield trees (P,) whose leaves LightGBM finds sooner for some rows."""
        for lazy in self._native:
            if not is_routed[lazy.chosen].all():
                continue
            # Of many rows making tables takes longer than loading trees.
            now = n_rows > _FEW_ROWS and bool(self._is_tabled[lazy.chosen].all())
            native = lazy.loaded(n_rows, now=now)
            if native is not None:
                yield lazy.chosen, native

    def _native_leaves(
        self, native: NativeTrees, chosen: NDArray[np.bool_], X: NDArray, n_jobs: int
    ) -> NDArray[np.int32]:
        """Return the leaves (n, P') of chosen trees (P,)."""
        if self._categories or self.trees.lookups:
            rows = self.columns(X).T
        elif self.trees.single_precision:
            with np.errstate(over="ignore"):
                rows = X.astype(np.float32, copy=False)
        else:
            rows = X
        leaves = native(rows, n_jobs)
        inexact = native.inexact_rows(rows)
        if len(inexact):
            columns = self.columns(X[inexact])
            walked = np.empty((self.trees.n_trees, len(inexact)), np.int32)
            self._walk_each(np.flatnonzero(chosen), columns, walked)
            leaves[inexact] = walked[chosen].T
        return leaves

    def columns(self, X: NDArray) -> NDArray[np.float64]:
        """Return the columns (D, n) as they are compared: numbers, codes, what is looked up."""
        trees, n_features = self.trees, self.trees.n_features
        columns = np.zeros((n_features + len(trees.lookups), len(X)))
        everything = len(self._numbers) == X.shape[1] == n_features
        numbers = slice(n_features) if everything else self._numbers
        with np.errstate(over="ignore"):  # too large for float32: still compares rightly
            for start in range(0, len(X), _TURNED_ROWS):  # what is turned stays in the cache
                rows = X[start : start + _TURNED_ROWS]
                rows = rows if everything else rows[:, numbers]
                rows = rows.astype(np.float32) if trees.single_precision else rows
                columns[numbers, start : start + len(rows)] = rows.T
        if trees.zero_is_missing:
            columns[:n_features][np.abs(columns[:n_features]) <= ZERO] = np.nan
        for j in self._categories:
            columns[j] = as_codes(X[:, j], int(trees.n_categories[j]))
        for i, lookup in enumerate(trees.lookups):
            column = _looked_up(lookup, columns)
            columns[n_features + i] = (
                column.astype(np.float32) if trees.single_precision else column
            )
        return columns

    # -- conditions -----------------------------------------------------------------------------

    def condition(self, node: int) -> tuple[tuple, Condition]:
        """Return a key that equal conditions share, and the condition of a split."""
        trees = self.trees
        column, missing_left = int(trees.feature[node]), bool(trees.missing_left[node])
        begin = int(trees.table[node])
        if begin < 0:
            threshold = float(trees.threshold[node])
            return (column, threshold, missing_left), Condition(column, threshold, not missing_left)
        n_categories = int(trees.n_categories[column])
        left = np.append(trees.categories_left[begin : begin + n_categories + 1], missing_left)
        return (column, left.tobytes()), Condition(column, 0.0, False, left)

    # -- large trees, and few rows -------------------------------------------------------------

    def _walk(self, trees: NDArray[np.intp], columns: NDArray, out: NDArray[np.int32]) -> None:
        """Send all rows down some trees, level by level; `out` (P, n) are all trees' leaves."""
        flat, n_rows = self.trees, columns.shape[1]
        divides = flat.n_leaves[trees] > 1
        out[trees[~divides]] = 0
        tree = np.repeat(trees[divides], n_rows)
        row = np.tile(np.arange(n_rows), np.count_nonzero(divides))
        node = flat.starts[tree]
        while len(node):
            goes_left = self._goes_left(node, columns[flat.feature[node], row])
            node = np.where(goes_left, flat.left[node], flat.right[node])
            done = node < 0
            out[tree[done], row[done]] = ~node[done]
            row, tree, node = row[~done], tree[~done], node[~done]

    def _walk_each(self, trees: NDArray[np.intp], columns: NDArray, out: NDArray) -> None:
        """Send all rows down one tree after the other, so that work stays small."""
        for p in trees:
            self._walk(np.array([p]), columns, out)

    def _goes_left(self, node: NDArray, x: NDArray) -> NDArray[np.bool_]:
        """Whether rows with these numbers or codes go left at splits on any columns."""
        trees = self.trees
        left = (x <= trees.threshold[node]) | (trees.missing_left[node] & np.isnan(x))
        on_categories = np.flatnonzero(trees.table[node] >= 0)
        if on_categories.size:
            split, code = node[on_categories], x[on_categories].astype(np.intp)
            is_missing = code > trees.n_categories[trees.feature[split]]
            inside = trees.categories_left[trees.table[split] + np.where(is_missing, 0, code)]
            left[on_categories] = np.where(is_missing, trees.missing_left[split], inside)
        return left


def leaves_as_cells(trees: FlatTrees) -> FlatTrees:
    """Return the trees with every leaf as a cell, also those that no training row reached."""
    return replace(trees, cell_of_leaf=trees.leaf_numbers.astype(np.int32))


def _looked_up(lookup: Lookup, columns: NDArray[np.float64]) -> NDArray[np.float64]:
    key: NDArray[np.uint64] | None = None
    for part in lookup.parts:
        x = columns[part.column]
        if part.hashes is None:
            above = x > np.float32(part.threshold)
            value = (above | np.isnan(x) if part.missing_above else above).astype(np.uint64)
        else:
            value = part.hashes[x.astype(np.intp)]
        key = _HASH * (_HASH * value if key is None else key + _HASH * value)
    if key is None or len(lookup.keys) == 0:
        return np.full(len(columns[lookup.parts[0].column]), lookup.default)
    place = np.minimum(np.searchsorted(lookup.keys, key), len(lookup.keys) - 1)
    return np.where(lookup.keys[place] == key, lookup.values[place], lookup.default)


# -- few rows of small trees, all splits at once --------------------------------------------------


_MOST_LEAVES = 16
_BATCH = 2**18  # comparisons at a time: their results stay in the cache


def is_small(trees: FlatTrees) -> NDArray[np.bool_]:
    """Return the trees (P,) that have few enough leaves."""
    return trees.n_leaves <= _MOST_LEAVES


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


_SETS = np.arange(1 << _MOST_LEAVES)
_FIRST_BIT = (np.frexp((_SETS & -_SETS).astype(float))[1] - 1).astype(np.int32)
