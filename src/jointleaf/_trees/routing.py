"""Which leaf of every tree a row reaches: `FlatTrees` applied to rows.

Small trees are not walked. All conditions of a tree are evaluated for a block of rows at once,
column by column, which is a handful of vector instructions each; eight answers make one byte, a
table of 256 entries turns the byte into the set of leaves that remain possible, and the sets of all
bytes have exactly one leaf in common (the idea of QuickScorer, Lucchese et al. 2015). A condition
that occurs several times in a tree, as in CatBoost's symmetric trees, is evaluated once. Trees of
more than 64 leaves are walked level by level, and few rows down all trees at once.

Where that pays, LightGBM's C++ code finds the leaves of large trees, and of small ones for up to a
few thousand rows (`_trees.native`): the cells are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import as_codes
from jointleaf._trees.flat import FlatTrees, Lookup
from jointleaf._trees.native import ZERO, LazyTrees, NativeTrees

__all__ = ["ZERO", "Condition", "Router", "leaves_as_cells"]

#: Rows at a time: enough to hide the cost of a call, few enough for their columns to stay cached.
_BLOCK_ROWS = 16384
_TURNED_ROWS = 256
_FEW_ROWS = 640  # up to which preparing trees costs more than it saves
_MOST_LEAVES = 64  # of a tree whose sets of leaves are the bits of one word
_CHUNK_SIZE = 8  # answers in a byte
#: Seconds that LightGBM saves for one row and a large or a small tree.
_SAVED, _SAVED_SMALL = 2.5e-7, 7e-8
_NATIVE_ROWS = 128  # times the leaves of small trees: fewer rows are faster with LightGBM
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


@dataclass(frozen=True)
class _Chunk:
    """Up to eight conditions, and what their answers, as bits of a byte, leave possible."""

    conditions: list[Condition]
    table: NDArray = field(repr=False)  # (256,) sets of leaves, or cells if it is the only chunk


@dataclass(frozen=True)
class _SmallTree:
    chunks: list[_Chunk]
    cells: NDArray[np.int32]  # by leaf

    def with_cells(self, cells: NDArray[np.int32]) -> _SmallTree:
        """Return the tree with these cells in place of leaves, so far their own cells."""
        if len(self.chunks) != 1:
            return _SmallTree(self.chunks, cells)
        return _SmallTree([replace(self.chunks[0], table=cells[self.chunks[0].table])], cells)


class Router:
    """Finds the cells of rows."""

    def __init__(self, trees: FlatTrees) -> None:
        self.trees = trees
        used = set(np.unique(trees.feature).tolist())
        used |= {part.column for lookup in trees.lookups for part in lookup.parts}
        used = {j for j in used if j < trees.n_features}
        self._numbers = sorted(j for j in used if trees.n_categories[j] == 0)
        self._categories = sorted(j for j in used if trees.n_categories[j] > 0)
        self._is_large = trees.n_leaves > _MOST_LEAVES
        self._native = [
            LazyTrees(trees, chosen, saved)
            for chosen, saved in ((self._is_large, _SAVED), (~self._is_large, _SAVED_SMALL))
            if chosen.any()
        ]

    @cached_property
    def _parts(self) -> list[_SmallTree | None]:
        """Trees that are not walked; None in place of those that are."""
        cells = enumerate(_cells_of_trees(self.trees))
        return [None if self._is_large[p] else self._prepare(p, part) for p, part in cells]

    def renumbered(self, trees: FlatTrees) -> Router:
        """Return the router of the same trees with other cells, where these here are the leaves."""
        router = Router(trees)
        if "_parts" in self.__dict__:
            parts = zip(self._parts, _cells_of_trees(trees), strict=True)
            router.__dict__["_parts"] = [part and part.with_cells(cells) for part, cells in parts]
        router._native = [lazy.renumbered(trees) for lazy in self._native]
        return router

    def __call__(self, X: NDArray, n_jobs: int = 1) -> NDArray[np.int32]:
        """Return the cells (n, P) of rows X (n, d); -1 in leaves that no training row reached."""
        codes = np.empty((len(X), self.trees.n_trees), dtype=np.int32)
        is_routed = np.ones(self.trees.n_trees, bool)
        for chosen, native in self._native_trees(len(X)):
            codes[:, slice(None) if chosen.all() else chosen] = self._native_cells(
                native, chosen, X, n_jobs
            )
            is_routed &= ~chosen
        if is_routed.any():
            if len(X) <= _FEW_ROWS:
                self._walk(np.flatnonzero(is_routed), _as_matrix(self.columns(X), len(X)), codes.T)
            else:
                self._route_blocks(X, np.flatnonzero(is_routed), codes, n_jobs)
        return codes

    def _route_blocks(
        self, X: NDArray, trees: NDArray[np.intp], codes: NDArray[np.int32], n_jobs: int
    ) -> None:
        """Fill in the codes of some trees, block by block."""
        blocks = [slice(b, b + _BLOCK_ROWS) for b in range(0, len(X), _BLOCK_ROWS)]

        def fill(rows: slice) -> None:
            self._route(X[rows], trees, codes[rows])

        if n_jobs == 1 or len(blocks) < 2:
            for block in blocks:
                fill(block)
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                list(pool.map(fill, blocks))

    def _route(self, X: NDArray, trees: NDArray[np.intp], codes: NDArray[np.int32]) -> None:
        columns = self.columns(X)
        cells = np.empty((self.trees.n_trees, len(X)), dtype=np.int32)
        work = _Work(len(X))
        large = trees[self._is_large[trees]]
        for p in trees.tolist():
            part = self._parts[p]
            if part is not None:
                self._score(part, columns, work, cells[p])
        if len(large):
            self._walk_each(large, _as_matrix(columns, len(X)), cells)
        chosen = slice(None) if len(trees) == len(cells) else trees
        for start in range(0, len(X), _TURNED_ROWS):  # turned in pieces that stay in the cache
            rows = slice(start, start + _TURNED_ROWS)
            codes[rows, chosen] = cells[chosen, rows].T

    # -- LightGBM -------------------------------------------------------------------------------

    def _native_trees(self, n_rows: int) -> Iterator[tuple[NDArray[np.bool_], NativeTrees]]:
        """Yield trees (P,) whose leaves LightGBM finds sooner for some rows."""
        for lazy in self._native:
            now = False
            if not self._is_large[lazy.chosen].any():
                most_rows = _NATIVE_ROWS * self.trees.n_leaves[lazy.chosen].mean()
                if n_rows > max(_FEW_ROWS, most_rows):
                    continue
                # Preparing small trees takes longer than loading them.
                now = n_rows > _FEW_ROWS and "_parts" not in self.__dict__
            native = lazy.loaded(n_rows, now=now)
            if native is not None:
                yield lazy.chosen, native

    def _native_cells(
        self, native: NativeTrees, chosen: NDArray[np.bool_], X: NDArray, n_jobs: int
    ) -> NDArray[np.int32]:
        """Return the cells (n, P') of chosen trees (P,)."""
        if self._categories or self.trees.lookups:
            rows = _as_matrix(self.columns(X), len(X)).T
        elif self.trees.single_precision:
            with np.errstate(over="ignore"):
                rows = X.astype(np.float32, copy=False)
        else:
            rows = X
        cells = native(rows, n_jobs)
        inexact = native.inexact_rows(rows)
        if len(inexact):
            columns = _as_matrix(self.columns(X[inexact]), len(inexact))
            walked = np.empty((self.trees.n_trees, len(inexact)), np.int32)
            self._walk_each(np.flatnonzero(chosen), columns, walked)
            cells[inexact] = walked[chosen].T
        return cells

    def columns(self, X: NDArray) -> list[NDArray]:
        """Return the columns as they are compared: numbers, or codes as indices."""
        trees = self.trees
        dtype = np.float32 if trees.single_precision else np.float64
        columns: list[NDArray] = [np.zeros(0)] * (trees.n_features + len(trees.lookups))
        numbers = np.empty((len(self._numbers), len(X)), dtype)
        with np.errstate(over="ignore"):  # too large for float32: still compares rightly
            everything = len(self._numbers) == X.shape[1]
            for start in range(0, len(X), _TURNED_ROWS):  # what is turned stays in the cache
                rows = X[start : start + _TURNED_ROWS]
                rows = rows if everything else rows[:, self._numbers]
                numbers[:, start : start + len(rows)] = rows.astype(dtype).T
        if trees.zero_is_missing:
            numbers[np.abs(numbers) <= ZERO] = np.nan
        for j, column in zip(self._numbers, numbers, strict=True):
            columns[j] = column
        for j in self._categories:
            columns[j] = as_codes(X[:, j], int(trees.n_categories[j]))
        for i, lookup in enumerate(trees.lookups):
            columns[trees.n_features + i] = _looked_up(lookup, columns).astype(dtype)
        return columns

    # -- small trees ---------------------------------------------------------------------------

    def _prepare(self, p: int, cells: NDArray[np.int32]) -> _SmallTree:
        trees = self.trees
        nodes = range(int(trees.starts[p]), int(trees.starts[p + 1]))
        numbers: dict[tuple, int] = {}
        conditions: list[Condition] = []
        sets: list[tuple[int, int]] = []  # leaves that stay possible for answers 0 and 1
        below = self._leaves_below(nodes)
        everything = (1 << int(trees.n_leaves[p])) - 1
        for node in nodes:
            key, condition = self.condition(node)
            k = numbers.setdefault(key, len(conditions))
            if k == len(conditions):
                conditions.append(condition)
                sets.append((everything, everything))
            no, yes = below[node] if condition.yes_is_left else below[node][::-1]
            sets[k] = (sets[k][0] & ~no, sets[k][1] & ~yes)  # what the answer rules out
        word = np.min_scalar_type(everything)
        chunks = []
        for begin in range(0, len(conditions), _CHUNK_SIZE):
            part = sets[begin : begin + _CHUNK_SIZE]
            table = _possible_leaves(part, everything).astype(word)
            chunks.append(_Chunk(conditions[begin : begin + _CHUNK_SIZE], table))
        if len(chunks) == 1:
            leaf = _leaf_of(chunks[0].table.astype(np.uint64))
            chunks = [_Chunk(conditions, cells[np.minimum(leaf, len(cells) - 1)])]
        return _SmallTree(chunks, cells)

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

    def _leaves_below(self, nodes: range) -> dict[int, tuple[int, int]]:
        """Sets of leaves, as bits, in the left and the right branch of every split."""
        trees = self.trees
        below: dict[int, tuple[int, int]] = {}

        def leaves(child: int) -> int:
            return 1 << ~child if child < 0 else below[child][0] | below[child][1]

        for node in reversed(nodes):  # children come after parents
            below[node] = (leaves(int(trees.left[node])), leaves(int(trees.right[node])))
        return below

    def _score(
        self, tree: _SmallTree, columns: list[NDArray], work: _Work, out: NDArray[np.int32]
    ) -> None:
        if not tree.chunks:
            out.fill(tree.cells[0])
            return
        if len(tree.chunks) == 1:
            np.take(tree.chunks[0].table, work.answers(tree.chunks[0], columns), 0, out, "clip")
            return
        possible = tree.chunks[0].table[work.answers(tree.chunks[0], columns)]
        for chunk in tree.chunks[1:]:
            possible &= chunk.table[work.answers(chunk, columns)]
        np.take(tree.cells, _leaf_of(possible), 0, out, "clip")

    # -- large trees, and few rows -------------------------------------------------------------

    def _walk(self, trees: NDArray[np.intp], columns: NDArray, out: NDArray[np.int32]) -> None:
        """Send all rows down some trees, one level at a time; `out` (P, n) are all trees' cells."""
        flat, n_rows = self.trees, columns.shape[1]
        cells, first = flat.cell_of_leaf, flat.leaf_starts
        divides = flat.n_leaves[trees] > 1
        out[trees[~divides]] = cells[first[trees[~divides]]][:, None]
        tree = np.repeat(trees[divides], n_rows)
        row = np.tile(np.arange(n_rows), np.count_nonzero(divides))
        node = flat.starts[tree]
        while len(node):
            goes_left = self._goes_left(node, columns[flat.feature[node], row])
            node = np.where(goes_left, flat.left[node], flat.right[node])
            done = node < 0
            out[tree[done], row[done]] = cells[first[tree[done]] + ~node[done]]
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


def _cells_of_trees(trees: FlatTrees) -> list[NDArray[np.int32]]:
    return np.split(trees.cell_of_leaf, trees.leaf_starts[1:-1])


def _as_matrix(columns: list[NDArray], n_rows: int) -> NDArray[np.float64]:
    """Return columns as one array (d, n); zeros where a column is not used."""
    matrix = np.zeros((len(columns), n_rows))
    for j, column in enumerate(columns):
        if column.size:
            matrix[j] = column
    return matrix


class _Work:
    """Arrays that one block of rows is worked on in."""

    def __init__(self, n_rows: int) -> None:
        self._answer = np.empty(n_rows, bool)
        self._shifted = np.empty(n_rows, np.uint8)
        self._byte = np.empty(n_rows, np.uint8)

    def answers(self, chunk: _Chunk, columns: list[NDArray]) -> NDArray[np.uint8]:
        """Return the answers to the conditions of a chunk as the bits of one byte per row."""
        answer = self._answer
        for k, condition in enumerate(chunk.conditions):
            x = columns[condition.column]
            if condition.categories is not None:
                np.take(condition.categories, x, 0, answer, "clip")
            elif condition.missing_right:
                np.less_equal(x, x.dtype.type(condition.threshold), out=answer)
            else:
                np.greater(x, x.dtype.type(condition.threshold), out=answer)
            if k == 0:
                self._byte[:] = answer.view(np.uint8)
                continue
            np.multiply(answer.view(np.uint8), np.uint8(1 << k), out=self._shifted)
            np.bitwise_or(self._byte, self._shifted, out=self._byte)
        return self._byte


def _looked_up(lookup: Lookup, columns: list[NDArray]) -> NDArray[np.float64]:
    key: NDArray[np.uint64] | None = None
    for part in lookup.parts:
        x = columns[part.column]
        if part.hashes is None:
            above = x > np.float32(part.threshold)
            value = (above | np.isnan(x) if part.missing_above else above).astype(np.uint64)
        else:
            value = part.hashes[x]
        key = _HASH * (_HASH * value if key is None else key + _HASH * value)
    if key is None or len(lookup.keys) == 0:
        return np.full(len(columns[lookup.parts[0].column]), lookup.default)
    place = np.minimum(np.searchsorted(lookup.keys, key), len(lookup.keys) - 1)
    return np.where(lookup.keys[place] == key, lookup.values[place], lookup.default)


def _possible_leaves(sets: list[tuple[int, int]], everything: int) -> NDArray[np.uint64]:
    """Return the set of leaves that every byte of answers leaves possible, (256,)."""
    table = np.full(1 << _CHUNK_SIZE, everything, dtype=np.uint64)
    answers = np.arange(1 << _CHUNK_SIZE)
    for k, (no, yes) in enumerate(sets):
        table &= np.where(answers >> k & 1, np.uint64(yes), np.uint64(no))
    return table


_EXPONENT = np.zeros(1 << 16, dtype=np.intp)
_EXPONENT[1 << np.arange(16)] = np.arange(16)


def _leaf_of(sets: NDArray) -> NDArray[np.intp]:
    """Return the number of the leaf in every set of one; in others, of no row, any number."""
    if sets.dtype.itemsize <= 2:
        return _EXPONENT[sets]
    return np.frexp(sets.astype(np.float64))[1] - 1
