"""Leaves of rows from one table per tree and column, with NumPy alone.

Trees are not walked. Where the splits of a tree on one column send a row follows from the place of
its number among their thresholds, or from its category. A table has for every such state the set of
leaves that remain possible, as bits, and the sets of all columns have exactly one leaf in common
(the idea of QuickScorer, Lucchese et al. 2015, with the conditions of a column taken together).
A tree costs one look-up for each of its columns, whatever its depth. The sets of several trees lie
side by side in a table, so that one look-up copies them all.

The states of a column are the same for many trees, so that rows are sorted into them once:
libraries that grow trees from histograms have at most 255 thresholds a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.ranks import Ranks
from jointleaf._trees.stacked_tables import Batch, Table, stacked

MOST_LEAVES = 960  # whose sets, as numbers, are floats
_MOST_THRESHOLDS = 255  # of a column, in trees that share states
_WORD = 32
_ENTRY_BYTES = 256  # most of the sets of a table, in one state
#: Nanoseconds of a look-up for one row, of every byte, of the other steps for a tree, and of
#: LightGBM for it.
_LOOK_UP, _BYTE_TIME, _OTHER_TIME, _MOST_TIME = 3.0, 0.05, 5.0, 75.0
_MOST_BYTES = 2**29  # of the tables of all trees


class ColumnTables:
    """Finds the leaves of chosen trees (P,), of at most `MOST_LEAVES` leaves."""

    def __init__(self, trees: FlatTrees, chosen: NDArray[np.bool_]) -> None:
        divided = chosen & (trees.n_leaves > 1)
        self._single = np.flatnonzero(chosen & (trees.n_leaves == 1))
        groups = list(_share_states(trees, np.flatnonzero(divided)))
        keys = [(g, j) for g, (_, thresholds) in enumerate(groups) for j in thresholds]
        self.ranks = Ranks([j for _, j in keys], [groups[g][1][j] for g, j in keys])
        place = dict(zip(keys, self.ranks.places.tolist(), strict=True))
        self._categories = sorted(set(np.unique(trees.feature[trees.table >= 0]).tolist()))
        place |= {(-1, j): len(keys) + i for i, j in enumerate(self._categories)}
        order = _LeafOrder(trees)
        self.batches = []
        for g, (members, thresholds) in enumerate(groups):
            for batch in _batches(trees, members):
                n_words, tables = _tables(trees, batch, thresholds, order)
                named = [
                    Table(place[(g, j) if j in thresholds else (-1, j)], states, sets)
                    for j, states, sets in tables
                ]
                self.batches.append(Batch(batch, n_words, named))
        self.stacks = stacked(self.batches)

    def __call__(self, columns: NDArray[np.float64], leaves: NDArray[np.int32]) -> None:
        """Write the leaves of rows to `leaves` (P, n); `columns` (d, n) are those of `Router`."""
        leaves[self._single] = 0
        states = self.ranks(columns)
        if self._categories:  # a category's code is its state
            states = np.concatenate([states, columns[self._categories].astype(np.intp)])
        for stack in self.stacks:
            stack(states, leaves)


def tabled(trees: FlatTrees) -> NDArray[np.bool_]:
    """Return the trees (P,) whose leaves are found soonest in tables, of 512 MiB together."""
    width = int(trees.feature.max(initial=0)) + 1
    pairs = np.unique(trees.tree_of_split * width + trees.feature)
    n_columns = np.bincount(pairs // width, minlength=trees.n_trees)
    n_bytes = np.ceil(trees.n_leaves / _WORD) * (_WORD // 8)
    is_tabled = (n_columns * n_bytes * _BYTE_TIME + _OTHER_TIME < _MOST_TIME) & (
        trees.n_leaves <= MOST_LEAVES
    )
    # No tables are larger: a column has one per batch, and `_batches` joins trees to save time.
    most_bytes = n_columns * (n_bytes + _LOOK_UP / _BYTE_TIME)
    n_bytes = np.minimum(most_bytes, len(np.unique(trees.feature)) * n_bytes)
    n_bytes *= _MOST_THRESHOLDS + 2
    is_tabled &= np.cumsum(np.where(is_tabled, n_bytes, 0.0)) <= _MOST_BYTES
    is_tabled[trees.tree_of_split[np.isnan(trees.threshold)]] = False
    return is_tabled


# -- states ----------------------------------------------------------------------------------------


def _states_of_ranks(everything: NDArray, thresholds: NDArray) -> NDArray[np.intp]:
    """Return how many of some thresholds are below a number, from its rank among all.

    Those thresholds are where the number goes right. The last entry, one more than there are, is
    the state of missing values.
    """
    is_one = np.isin(everything, thresholds)
    return np.concatenate([[0], np.cumsum(is_one), [len(thresholds) + 1]])


def _share_states(
    trees: FlatTrees, numbers: NDArray[np.intp]
) -> Iterator[tuple[list[int], dict[int, NDArray[np.float64]]]]:
    """Yield trees with few different thresholds a column together, and these by column."""
    on_numbers = np.flatnonzero(trees.table < 0)
    pairs = np.stack([trees.feature[on_numbers], trees.threshold[on_numbers]], axis=1)
    pairs, numbered = np.unique(pairs, axis=0, return_inverse=True)
    numbered = numbered.reshape(-1)  # NumPy 2.0 keeps an axis
    columns, values = pairs[:, 0].astype(np.intp), pairs[:, 1]
    begins = np.searchsorted(on_numbers, trees.starts)
    width = int(columns.max(initial=-1)) + 1

    def shared(is_met: NDArray[np.bool_]) -> dict[int, NDArray[np.float64]]:
        return {int(j): values[is_met & (columns == j)] for j in np.unique(columns[is_met])}

    together: list[int] = []
    is_met, n_met = np.zeros(len(pairs), bool), np.zeros(width, np.intp)
    for p in numbers.tolist():
        here = np.unique(numbered[begins[p] : begins[p + 1]])
        n_new = np.bincount(columns[here[~is_met[here]]], minlength=width)
        if together and (n_met + n_new).max(initial=0) > _MOST_THRESHOLDS:
            yield together, shared(is_met)
            together, is_met = [], np.zeros(len(pairs), bool)
            n_met, n_new = 0 * n_met, np.bincount(columns[here], minlength=width)
        together.append(p)
        is_met[here] = True
        n_met = n_met + n_new
    if together:
        yield together, shared(is_met)


# -- tables ----------------------------------------------------------------------------------------


def _words(n_leaves: int) -> tuple[np.dtype, int]:
    """Return the type and the number of the words of a set of leaves."""
    if n_leaves <= 16:
        return np.dtype(np.uint8 if n_leaves <= 8 else np.uint16), 1
    return np.dtype(np.uint32), -(-n_leaves // _WORD)


def _batches(trees: FlatTrees, numbers: list[int]) -> Iterator[list[int]]:
    """Yield trees that are looked up together sooner than apart.

    A table has an entry of every tree of the batch, also of those that do not split on its column.
    """

    def time(n_columns: int, n_leaves: int, n_trees: int = 1) -> float:
        return n_columns * (_LOOK_UP + _BYTE_TIME * n_trees * _set_bytes(n_leaves))

    batch: list[int] = []
    together: set[int] = set()
    most_leaves = 0
    for p in numbers:
        n_leaves = int(trees.n_leaves[p])
        columns = set(trees.feature[trees.starts[p] : trees.starts[p + 1]].tolist())
        joined, n_trees, most = together | columns, len(batch) + 1, max(n_leaves, most_leaves)
        apart = time(len(together), most_leaves, len(batch)) + time(len(columns), n_leaves)
        is_wide = n_trees * _set_bytes(most) > _ENTRY_BYTES
        if batch and (is_wide or time(len(joined), most, n_trees) > apart):
            yield batch
            batch, joined, most = [], columns, n_leaves
        batch.append(p)
        together, most_leaves = joined, most
    if batch:
        yield batch


def _set_bytes(n_leaves: int) -> int:
    word, n_words = _words(n_leaves)
    return word.itemsize * n_words


def _tables(
    trees: FlatTrees, batch: list[int], thresholds: dict[int, NDArray], order: _LeafOrder
) -> tuple[int, list[tuple[int, NDArray[np.intp], NDArray]]]:
    """Return the words of a set and, by column, states of ranks and the leaves they allow."""
    word, n_words = _words(int(trees.n_leaves[batch].max()))
    nodes = np.concatenate([np.arange(trees.starts[p], trees.starts[p + 1]) for p in batch])
    number = np.repeat(np.arange(len(batch)), trees.n_leaves[batch] - 1)
    n_bits = 8 * word.itemsize * n_words
    left, right = (bits.view(word) for bits in order.sets_below(nodes, batch, number, n_bits))
    everything = np.stack([_all_leaves(int(trees.n_leaves[p]), word, n_words) for p in batch])
    tables = []
    for j in np.unique(trees.feature[nodes]).tolist():
        here = np.flatnonzero(trees.feature[nodes] == j)
        splits = _Splits(nodes[here], number[here], left[here], right[here])
        if j in thresholds:
            values = np.unique(trees.threshold[splits.nodes])
            states = _states_of_ranks(thresholds[j], values)
            ruled_out = _ruled_out_numbers(trees, splits, everything.shape, values)
        else:
            ruled_out = _ruled_out_categories(trees, splits, everything.shape)
            states = np.arange(len(ruled_out))
        tables.append((j, states, (everything & ~ruled_out).reshape(len(ruled_out), -1)))
    return n_words, tables


class _Splits(NamedTuple):
    """Some splits on one column: their nodes, trees, and leaves (N, W) on the left and right."""

    nodes: NDArray[np.intp]
    tree: NDArray[np.intp]
    left: NDArray
    right: NDArray


def _all_leaves(n_leaves: int, word: np.dtype, n_words: int) -> NDArray:
    """Return the set of all leaves as words (W,)."""
    return np.frombuffer(((1 << n_leaves) - 1).to_bytes(n_words * word.itemsize, "little"), word)


class _LeafOrder:
    """Places of leaves, from left to right: those below a node are a run of places.

    The leaves in the left branch of a split have the places ``first`` to ``middle``, those in the
    right branch ``middle`` to ``last``, each without its end.
    """

    def __init__(self, trees: FlatTrees) -> None:
        n, starts = len(trees.feature), trees.starts
        levels = [starts[:-1][np.diff(starts) > 0]]  # of nodes, all trees at the same time
        while len(levels[-1]):
            children = np.concatenate([trees.left[levels[-1]], trees.right[levels[-1]]])
            levels.append(children[children >= 0])
        n_left, n_below = np.ones(n, np.intp), np.empty(n, np.intp)
        for nodes in reversed(levels):
            left, right = trees.left[nodes], trees.right[nodes]
            n_left[nodes] = np.where(left < 0, 1, n_below[np.maximum(left, 0)])
            n_below[nodes] = n_left[nodes] + np.where(right < 0, 1, n_below[np.maximum(right, 0)])
        self.first = np.zeros(n, np.intp)
        self._place = np.zeros(int(trees.n_leaves.sum()), np.intp)
        self._leaf_starts = trees.leaf_starts
        first_leaf = np.repeat(self._leaf_starts[:-1], np.diff(starts))
        for nodes in levels:
            begin = self.first[nodes]
            sides = (trees.left[nodes], begin), (trees.right[nodes], begin + n_left[nodes])
            for child, place in sides:
                is_leaf = child < 0
                self.first[child[~is_leaf]] = place[~is_leaf]
                self._place[(first_leaf[nodes] + ~child)[is_leaf]] = place[is_leaf]
        self.middle, self.last = self.first + n_left, self.first + n_below

    def sets_below(
        self, nodes: NDArray[np.intp], batch: list[int], number: NDArray[np.intp], n_bits: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return sets of leaves, as bits (N, n_bits / 8), in both branches of every node.

        `number` (N,) is the place of a node's tree in the batch.
        """
        places = np.full((len(batch), n_bits), -1, np.int16)
        for row, p in zip(places, batch, strict=True):
            own = self._place[self._leaf_starts[p] : self._leaf_starts[p + 1]]
            row[: len(own)] = own
        places = places[number]
        first, middle, last = (
            ends[nodes].astype(np.int16)[:, None] for ends in (self.first, self.middle, self.last)
        )
        is_left = (places >= first) & (places < middle)
        is_right = (places >= middle) & (places < last)
        left, right = (np.packbits(side, axis=1, bitorder="little") for side in (is_left, is_right))
        return left, right


def _ruled_out_numbers(
    trees: FlatTrees, splits: _Splits, shape: tuple[int, ...], thresholds: NDArray
) -> NDArray:
    """Return the leaves (S, T, W) that the states of a number rule out, at splits on its column.

    State s goes right where the threshold is one of the first s. `shape` is (T, W).
    """
    rank, n = np.searchsorted(thresholds, trees.threshold[splits.nodes]), len(thresholds)
    lower = _unions(rank + 1, splits.tree, splits.left, (n + 1, *shape))
    higher = _unions(rank, splits.tree, splits.right, (n + 1, *shape))
    ruled_out = np.empty((n + 2, *shape), lower.dtype)
    np.bitwise_or.accumulate(lower, axis=0, out=ruled_out[:-1])
    ruled_out[:-1] |= np.bitwise_or.accumulate(higher[::-1], axis=0)[::-1]
    missing = np.where(trees.missing_left[splits.nodes][:, None], splits.right, splits.left)
    ruled_out[-1:] = _unions(np.zeros_like(rank), splits.tree, missing, (1, *shape))
    return ruled_out


def _unions(
    state: NDArray[np.intp], tree: NDArray[np.intp], sets: NDArray, shape: tuple[int, ...]
) -> NDArray:
    """Return unions (S, T, W) of sets (N, W) by state and tree."""
    unions = np.zeros((shape[2], shape[0] * shape[1]), sets.dtype)
    for word, words in zip(unions, sets.T, strict=True):
        np.bitwise_or.at(word, state * shape[1] + tree, words)
    return unions.T.reshape(shape)


def _ruled_out_categories(trees: FlatTrees, splits: _Splits, shape: tuple[int, ...]) -> NDArray:
    """Return the same for the codes of a category, the last one for missing values."""
    n_categories = int(trees.n_categories[trees.feature[splits.nodes[0]]])
    ruled_out = np.zeros((n_categories + 2, *shape), splits.left.dtype)
    for split, tree, on_left, on_right in zip(*splits, strict=True):
        begin = int(trees.table[split])
        goes_left = trees.categories_left[begin : begin + n_categories + 1]
        goes_left = np.append(goes_left, trees.missing_left[split])
        ruled_out[:, tree] |= np.where(goes_left[:, None], on_right, on_left)
    return ruled_out
