"""Leaves of many rows of all trees, with one bit for every row.

Whether a row meets the condition of a split is a bit, and those of 64 rows are a word. A row is in
the left branch of a split if it is at the split and meets the condition: the rows that are at a
node, as bits, come from those at its parent with one operation on 64 rows, for all splits of a
level of many trees together. The bits of a leaf's number are the unions of the rows at some nodes.
Every different condition is evaluated once, for all trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees

_NODES = 4096  # of trees whose rows are followed together
_BLOCK_ROWS = 2048  # whose bits at these nodes stay in the second-level cache
_COMPARED = 2**17  # numbers at a time
_WORD = 64
_LEAST_BUFFER = 16


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
    """Finds the leaves of all rows of chosen trees (P,)."""

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
        for begin in range(0, columns.shape[1], _BLOCK_ROWS):
            rows = slice(begin, begin + _BLOCK_ROWS)
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
