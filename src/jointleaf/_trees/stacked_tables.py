"""Sets of leaves in tables, looked up for several trees, columns and batches of trees at a time.

A *batch* is some trees whose sets lie side by side, with one table for every column that one of
them splits on. The tables of many batches are stacked into one array. For many rows, one batch
after the other is looked up, so that its tables and the sets of a block of rows stay in the cache;
for few rows the work is in the calls, so that there is one for the first column of all batches,
one for the second, and so on. The numbers are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_WORD = 32
_SINGLE_BITS = 128  # of sets that are numbers in single precision
_BLOCK_ROWS = 1024  # whose sets, of one batch, stay in the second-level cache
_WASTE = 0.125  # fraction of the tables' bytes that may be added for all to have one width


class Table(NamedTuple):
    """The sets (S, T W) of T trees, W words each, for all states of a column.

    `states` are those of the ranks of a number, or of the codes of a category, which are in row
    `key` of what is looked up.
    """

    key: int
    states: NDArray[np.intp]
    sets: NDArray


@dataclass(frozen=True)
class Batch:
    """Trees that are looked up together, with sets of `n_words` words."""

    trees: list[int]
    n_words: int
    tables: list[Table] = field(repr=False)

    @property
    def n_bytes(self) -> int:
        """Bytes of the sets in one state."""
        return self.tables[0].sets.shape[1] * self.tables[0].sets.itemsize

    @property
    def n_states(self) -> int:
        """States of all tables."""
        return sum(len(table.sets) for table in self.tables)


class _Kind(NamedTuple):
    """How sets are written."""

    word: np.dtype
    n_words: int


class _Space(NamedTuple):
    """Two arrays of each kind, to be written again and again."""

    sets: NDArray[np.uint64]
    entries: NDArray[np.intp]


def _views(space: NDArray, shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Return the beginnings of two arrays in a shape."""
    first, second = (part[: math.prod(shape)].reshape(shape) for part in space)
    return first, second


def stacked(batches: Sequence[Batch]) -> list[Stack]:
    """Return stacks of batches with tables, of at most six widths."""
    by_width: dict[int, list[Batch]] = {}
    for batch in batches:
        by_width.setdefault(max(8, 1 << (batch.n_bytes - 1).bit_length()), []).append(batch)
    room = _WASTE * sum(batch.n_states * batch.n_bytes for batch in batches)
    widest = max(by_width, default=0)
    for width in sorted(by_width)[:-1]:
        waste = sum(batch.n_states * (widest - width) for batch in by_width[width])
        if waste <= room:
            room -= waste
            by_width[widest] += by_width.pop(width)
    return [Stack(members, width) for width, members in by_width.items()]


class Stack:
    """Finds the leaves of the trees of some batches, whose sets have `width` bytes at most."""

    def __init__(self, batches: list[Batch], width: int) -> None:
        # Those on the most columns first: what has a k-th column are the first ones.
        self.batches = sorted(batches, key=lambda batch: -len(batch.tables))
        sizes = [len(batch.tables) for batch in self.batches]
        self._n_batches = [sum(size > k for size in sizes) for k in range(sizes[0])]
        shape = sizes[0], len(sizes)
        self._keys, self._starts = np.zeros(shape, np.intp), np.zeros((*shape, 1), np.intp)
        entries: list[NDArray[np.intp]] = []  # of ranks
        sets = np.zeros((sum(batch.n_states for batch in batches), width), np.uint8)
        n_ranks = first = 0
        for b, batch in enumerate(self.batches):
            for k, table in enumerate(batch.tables):
                self._keys[k, b], self._starts[k, b] = table.key, n_ranks
                entries.append(first + table.states)
                n_ranks += len(table.states)
                last = first + len(table.sets)
                sets[first:last, : batch.n_bytes] = table.sets.view(np.uint8)
                first = last
        self._entries = np.concatenate(entries)
        self._sets = sets.view(np.uint64)
        self._kinds: list[_Kind] = []
        self._trees: list[slice | list[int]] = []
        for batch in self.batches:
            trees = batch.trees
            self._kinds.append(_Kind(batch.tables[0].sets.dtype, batch.n_words))
            begin, end = trees[0], trees[-1] + 1
            self._trees.append(slice(begin, end) if end - begin == len(trees) else trees)

    @property
    def n_bytes(self) -> int:
        """Bytes of all tables."""
        return self._sets.nbytes + self._entries.nbytes

    def __call__(self, states: NDArray[np.intp], leaves: NDArray[np.int32]) -> None:
        """Write the leaves of rows to `leaves` (P, n); `states` (K, n) are those of all keys."""
        n_rows, n_batches = leaves.shape[1], len(self.batches)
        n_rows = max(1, min(n_rows, _BLOCK_ROWS))
        step = min(n_batches, max(1, _BLOCK_ROWS // n_rows))
        # What is written again and again stays in the cache, and its memory with the process.
        sets = np.empty((2, step * n_rows * self._sets.shape[1]), np.uint64)
        space = _Space(sets, np.empty((2, len(self._n_batches) * step * n_rows), np.intp))
        for begin in range(0, n_batches, step):
            end = min(begin + step, n_batches)
            for first in range(0, leaves.shape[1], n_rows):
                rows = slice(first, first + n_rows)
                sets = self._possible(states[:, rows], begin, end, space)
                for members, found in self._leaves(sets, begin, end):
                    for b, of_batch in zip(members, found, strict=True):
                        leaves[self._trees[b], rows] = of_batch.T[: len(self.batches[b].trees)]

    def _possible(
        self, states: NDArray[np.intp], begin: int, end: int, space: _Space
    ) -> NDArray[np.uint64]:
        """Return the leaves (B, n, words) of some batches that all columns leave possible."""
        here = np.s_[: sum(n > begin for n in self._n_batches), begin:end]
        keys, starts = self._keys[here], self._starts[here]
        index, entries = _views(space.entries, (*keys.shape, states.shape[1]))
        states.take(keys, 0, index, "clip")
        np.add(index, starts, out=index)
        self._entries.take(index, 0, entries, "clip")
        shape = end - begin, states.shape[1], self._sets.shape[1]
        sets, others = _views(space.sets, shape)
        self._sets.take(entries[0], 0, sets, "clip")
        for k in range(1, len(keys)):
            m = min(self._n_batches[k], end) - begin
            self._sets.take(entries[k, :m], 0, others[:m], "clip")
            np.bitwise_and(sets[:m], others[:m], out=sets[:m])
        return sets

    def _leaves(
        self, sets: NDArray[np.uint64], begin: int, end: int
    ) -> Iterator[tuple[list[int], NDArray[np.int32]]]:
        """Yield batches of one kind, and the leaves (B', n, T) of their sets (B, n, words)."""
        by_kind: dict[_Kind, list[int]] = {}
        for b in range(begin, end):
            by_kind.setdefault(self._kinds[b], []).append(b)
        for kind, members in by_kind.items():
            is_all = len(by_kind) == 1
            chosen = sets if is_all else sets[[b - begin for b in members]]
            n_trees = max(len(self.batches[b].trees) for b in members)
            words = chosen.view(kind.word)[..., : n_trees * kind.n_words]
            yield members, _only_leaves(words, kind)


def _only_leaves(words: NDArray, kind: _Kind) -> NDArray[np.int32]:
    """Return the one leaf of every set."""
    n_bits = 8 * kind.n_words * kind.word.itemsize
    number = words.astype(np.float32 if n_bits <= _SINGLE_BITS else np.float64)
    if kind.n_words > 1:  # one word is not zero
        powers = 2.0 ** (_WORD * np.arange(kind.n_words))
        shape = *words.shape[:-1], words.shape[-1] // kind.n_words
        number = (number.reshape(-1, kind.n_words) @ powers.astype(number.dtype)).reshape(shape)
    precision = np.finfo(np.float32 if number.itemsize == 4 else np.float64)
    exponent = number.view(f"i{number.itemsize}")
    exponent >>= precision.nmant
    exponent -= precision.maxexp - 1
    return exponent
