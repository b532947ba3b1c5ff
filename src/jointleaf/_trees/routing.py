"""Which leaf of every tree a row reaches: `FlatTrees` applied to rows.

From 256 rows on, of small trees 128, rows are followed down all trees as bits (`RowBits`). Fewer
rows are looked up in tables of the trees' columns (`ColumnTables`), once as much time was lost
without these as half of their making takes. Before that, rows of small trees are compared at all
splits (`LeafBits`), of others they are walked down all trees at once, level by level. Large trees,
whose tables would be large or slow, are left to LightGBM's C++ code where loading them pays
(`_trees.native`). The cells are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import as_codes
from jointleaf._trees.column_tables import MOST_LEAVES, ColumnTables, tabled
from jointleaf._trees.flat import FlatTrees, Lookup
from jointleaf._trees.leaf_bits import SMALL, LeafBits
from jointleaf._trees.native import ZERO, LazyTrees, NativeTrees

#: Rows at a time: enough to hide the cost of a call, few enough for their columns to stay cached.
_BLOCK_ROWS = 8192
_TURNED_ROWS = 256
_FEW_ROWS = 640  # up to which preparing trees costs more than it saves
_LOOKED_UP_ROWS = 16  # from which on tables that are there save time
_MANY_ROWS = 4096  # of all calls, from which on tables of small trees are worth making
_BIT_ROWS = 256  # from which on rows are worth being followed as bits,
_SMALL_BIT_ROWS = 128  # and where all trees are small
#: Seconds that tables of a tree cost, half of them, and what is lost without them, in a call and
#: for every row.
_TREE_TABLED, _CALL_LOST, _ROW_LOST = 4e-5, 3e-7, 5e-8
_SAVED = 2.5e-7  # seconds that LightGBM saves for one row and a tree
_HASH = np.uint64(0x4906BA494954CB65)
_NODES = 4096  # of trees whose rows are followed together
_FOLLOWED_ROWS = 2048  # whose bits at these nodes stay in the second-level cache
_COMPARED = 2**17  # numbers at a time
_WORD = 64
_LEAST_BUFFER = 16


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
        least = _SMALL_BIT_ROWS if self._is_small.all() else _BIT_ROWS
        return max(least, 2.0 * sizes.mean()) if len(sizes) else np.inf

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
        if len(X) >= self._least_bit_rows:
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


def is_small(trees: FlatTrees) -> NDArray[np.bool_]:
    """Return the trees (P,) that have few enough leaves for `LeafBits`."""
    return trees.n_leaves <= SMALL


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


# -- many rows, with one bit for each -------------------------------------------------------------


@contextmanager
def small_buffers() -> Iterator[None]:
    """Let NumPy combine a number with many where it lies.

    It would copy the number into larger buffers, once for each of the many.
    """
    size = np.setbufsize(_LEAST_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(size)


class RowBits:
    """Finds the leaves of many rows of chosen trees (P,), with one bit for every row.

    Whether a row meets the condition of a split is a bit, and those of 64 rows are a word. A row is
    in the left branch of a split if it is at the split and meets the condition: the rows that are
    at a node, as bits, come from those at its parent with one operation on 64 rows, for all splits
    of a level of many trees together. The bits of a leaf's number are the unions of the rows at
    some nodes. Every different condition is evaluated once, for all trees.
    """

    def __init__(self, trees: FlatTrees, chosen: NDArray[np.bool_]) -> None:
        self._conditions = _Conditions(trees, np.flatnonzero(chosen[trees.tree_of_split]))
        numbers, size = np.flatnonzero(chosen), 0
        self._batches: list[_Batch] = []
        batch: list[int] = []
        for p, n_leaves in zip(numbers.tolist(), trees.n_leaves[numbers].tolist(), strict=True):
            if batch and size + 2 * n_leaves > _NODES:
                self._batches.append(_Batch(trees, np.array(batch), self._conditions.of_split))
                batch, size = [], 0
            batch.append(p)
            size += 2 * n_leaves
        if batch:
            self._batches.append(_Batch(trees, np.array(batch), self._conditions.of_split))

    def __call__(self, columns: NDArray[np.float64], leaves: NDArray[np.int32]) -> None:
        """Write the leaves of rows to `leaves` (P, n); `columns` (D, n) are those of `Router`."""
        n_nodes = max((batch.n_nodes for batch in self._batches), default=0)
        for begin in range(0, columns.shape[1], _FOLLOWED_ROWS):
            rows = slice(begin, begin + _FOLLOWED_ROWS)
            meets = self._conditions(columns[:, rows])
            here = np.empty((n_nodes + 1, meets.shape[1]), np.uint64)
            for batch in self._batches:
                batch.write(meets, here, leaves[:, rows])


class _Conditions:
    """The different conditions of some splits: which rows go left."""

    def __init__(self, trees: FlatTrees, splits: NDArray[np.intp]) -> None:
        on_numbers = splits[trees.table[splits] < 0]
        keys = trees.missing_left, trees.threshold, trees.feature
        values = [key[on_numbers] for key in keys]
        order = np.lexsort(values)
        is_new = np.zeros(len(order), bool)
        for value in values:
            is_new[1:] |= value[order][1:] != value[order][:-1]
        is_new[:1] = True
        self.of_split = np.full(len(trees.feature), -1, np.intp)
        self.of_split[on_numbers[order]] = np.cumsum(is_new) - 1
        different = order[is_new]
        missing_left, self._thresholds, feature = (value[different] for value in values)
        self._missing_left = missing_left.astype(bool)
        ends = np.searchsorted(feature, np.arange(feature[-1] + 2 if len(feature) else 1))
        self._columns = [(j, a, b) for j, (a, b) in enumerate(pairwise(ends.tolist()))]
        self._categories: list[tuple[int, NDArray[np.bool_]]] = []
        known: dict[tuple[int, bytes], int] = {}
        self._n_numbers = len(different)
        for split in splits[trees.table[splits] >= 0].tolist():
            column, begin = int(trees.feature[split]), int(trees.table[split])
            left = trees.categories_left[begin : begin + int(trees.n_categories[column]) + 1]
            left = np.append(left, trees.missing_left[split])
            number = known.setdefault((column, left.tobytes()), len(known))
            if number == len(self._categories):
                self._categories.append((column, left))
            self.of_split[split] = self._n_numbers + number

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return for every condition the bits (n / 64,) of the rows that go left."""
        n_rows = columns.shape[1]
        n_words = -(-n_rows // _WORD)
        n_conditions = self._n_numbers + len(self._categories)
        meets = np.empty((n_conditions, 8 * n_words), np.uint8)
        step = max(1, _COMPARED // (_WORD * max(1, n_words)))
        answers = np.zeros((step, _WORD * n_words), bool)
        with small_buffers():
            for column, first, end in self._columns:
                for begin in range(first, end, step):
                    some = slice(begin, min(begin + step, end))
                    here, limits = answers[: some.stop - begin], self._thresholds[some, None]
                    np.less_equal(columns[column], limits, out=here[:, :n_rows])
                    _pack(here, meets[some])
        for column, first, end in self._columns:
            x = columns[column]
            if first < end and self._missing_left[first:end].any():
                is_missing = np.isnan(x)
                if is_missing.any():
                    answers[0, :n_rows] = is_missing
                    of_missing = np.packbits(answers[0], bitorder="little")
                    here = first + np.flatnonzero(self._missing_left[first:end])
                    meets[here] |= of_missing
        for number, (column, left) in enumerate(self._categories, self._n_numbers):
            left.take(columns[column].astype(np.intp), 0, answers[0, :n_rows], "clip")
            _pack(answers[:1], meets[number : number + 1])
        return meets.view(np.uint64)


def _pack(answers: NDArray[np.bool_], out: NDArray[np.uint8]) -> None:
    """Write answers, a whole number of words of rows each, as bits: in one go."""
    out.reshape(-1)[:] = np.packbits(answers.reshape(-1), bitorder="little")


class _Batch:
    """Trees whose rows are followed together, level by level."""

    def __init__(
        self, trees: FlatTrees, numbers: NDArray[np.intp], condition: NDArray[np.intp]
    ) -> None:
        """Number the nodes level by level, the left children of a level before the right ones."""
        begin, end = int(numbers[0]), int(numbers[-1]) + 1
        self.trees = slice(begin, end) if end - begin == len(numbers) else numbers
        node = np.where(trees.n_leaves[numbers] > 1, trees.starts[numbers], ~0)
        tree, place = np.arange(len(numbers)), np.arange(len(numbers))
        self._levels: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
        nodes, tree_of, parents = [node], [tree], [np.full(len(numbers), -1)]
        n = len(numbers)
        while True:
            is_split = node >= 0
            node, tree, place = node[is_split], tree[is_split], place[is_split]
            if not len(node):
                break
            self._levels.append((place, condition[node]))
            node = np.concatenate([trees.left[node], trees.right[node]])
            tree, parent = np.concatenate([tree, tree]), np.concatenate([place, place])
            place = n + np.arange(len(node))
            n += len(node)
            nodes.append(node)
            tree_of.append(tree)
            parents.append(parent)
        self.n_nodes = n
        self._plan(np.concatenate(nodes), np.concatenate(tree_of), np.concatenate(parents))

    def _plan(self, node: NDArray, tree: NDArray[np.intp], parent: NDArray[np.intp]) -> None:
        """Choose the nodes whose rows have a bit of their leaves' numbers.

        All leaves below a node have the bits of `common`; those that are not its parent's, too,
        come from this node.
        """
        common = np.where(node < 0, ~node, -1)
        end = len(node)
        for place, _ in reversed(self._levels):
            begin = end - 2 * len(place)
            common[place] = np.bitwise_and(*common[begin:end].reshape(2, -1))
            end = begin
        own = common & ~np.where(parent < 0, 0, common[parent])
        n_trees = np.count_nonzero(parent < 0)
        self._n_bits = int((~node[node < 0]).max()).bit_length()
        union, first = [], []
        n = 0
        for bit in range(self._n_bits):
            here = np.flatnonzero(own >> bit & 1)
            # A row of zeros for every tree, of which none may have the bit.
            of_tree = np.concatenate([tree[here], np.arange(n_trees)])
            here = np.append(here, np.full(n_trees, self.n_nodes))
            order = np.argsort(of_tree, kind="stable")
            union.append(here[order])
            first.append(n + np.searchsorted(of_tree[order], np.arange(n_trees)))
            n += len(here)
        self._union = np.concatenate(union) if union else np.zeros(0, np.intp)
        self._first = np.concatenate(first) if first else np.zeros(0, np.intp)

    def write(
        self, meets: NDArray[np.uint64], here: NDArray[np.uint64], leaves: NDArray[np.int32]
    ) -> None:
        """Write the leaves of the rows that meet conditions; `here` is for the rows at nodes."""
        if not self._n_bits:
            leaves[self.trees] = 0
            return
        n_trees = len(self._first) // self._n_bits
        here[:n_trees], here[self.n_nodes] = ~np.uint64(0), 0
        n = n_trees
        for place, condition in self._levels:
            m = len(place)
            at_split, left, right = here.take(place, 0), here[n : n + m], here[n + m : n + 2 * m]
            meets.take(condition, 0, left, "clip")
            np.bitwise_and(at_split, left, out=left)
            np.bitwise_xor(at_split, left, out=right)
            n += 2 * m
        bits = np.bitwise_or.reduceat(here.take(self._union, 0), self._first, axis=0)
        bits = np.unpackbits(bits.view(np.uint8).reshape(-1), bitorder="little")
        planes = bits.reshape(self._n_bits, n_trees, -1)
        numbers = planes[-1] if self._n_bits <= 8 else planes[-1].astype(np.uint16)
        for plane in planes[-2::-1]:
            numbers += numbers
            numbers |= plane
        leaves[self.trees] = numbers[:, : leaves.shape[1]]
