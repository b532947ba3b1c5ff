"""Leaves of many rows from one table per tree and column, with NumPy alone.

Trees are not walked. Where the splits of a tree on one column send a row follows from the place of
its number among their thresholds, or from its category. A table has for every such state the set of
leaves that remain possible, as bits, and the sets of all columns have exactly one leaf in common
(the idea of QuickScorer, Lucchese et al. 2015, with the conditions of a column taken together).
A tree costs one look-up for each of its columns, whatever its depth.

The states of a column are the same for many trees, so that rows are sorted into them once:
libraries that grow trees from histograms have at most 255 thresholds a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees

__all__ = ["MOST_LEAVES", "ColumnTables", "tabled"]

MOST_LEAVES = 960  # whose sets, as numbers, are floats
_MOST_THRESHOLDS = 255  # of a column, in trees that share states
_WORD = 64
_MOST_COMPARED = 8  # thresholds in an interval
_LEAST_INTERVALS = 512
#: Nanoseconds of a look-up for one row, of every word of its set, and of LightGBM for a whole tree.
_LOOK_UP, _WORD_TIME, _MOST_TIME = 0.9, 0.4, 75.0
_MOST_BYTES = 2**27  # of the tables of all trees


@dataclass(frozen=True)
class _TableTree:
    """The tables of one tree: (S,) or, with sets of several words, (S, W), by column."""

    number: int
    tables: list[tuple[int, NDArray]]


@dataclass(frozen=True)
class _SharedStates:
    """Trees whose columns have the same states."""

    states: dict[int, NDArray[np.intp]]  # of the ranks of a column's numbers among all thresholds
    trees: list[_TableTree] = field(repr=False)


class _Ranks:
    """Finds how many thresholds (k,), rising, are below each number of a column.

    Numbers fall into equal intervals, with few thresholds each: those of lower intervals are
    counted before, and those of its own interval are compared with the number. It is `searchsorted`
    five times faster, as nothing is searched; that is left where some interval has many.
    """

    def __init__(self, thresholds: NDArray) -> None:
        self._thresholds = thresholds
        finite = thresholds[np.isfinite(thresholds)]
        self._low = finite[0] if len(finite) else thresholds.dtype.type(0)
        self._last = max(_LEAST_INTERVALS, 4 * len(thresholds))
        with np.errstate(all="ignore"):
            width = (finite[-1] - self._low) / self._last if len(finite) else 1.0
            self._factor = thresholds.dtype.type(1.0 / width)
            is_possible = np.isfinite(self._factor) and self._factor > 0
        self._layers: list[NDArray] = []
        if not is_possible:
            return
        interval = self._intervals(thresholds)
        counts = np.bincount(interval, minlength=self._last + 1)
        if counts.max(initial=0) > _MOST_COMPARED:
            return
        self._n_below = np.cumsum(counts) - counts
        place = np.arange(len(thresholds)) - self._n_below[interval]
        for k in range(int(counts.max(initial=0))):
            layer = np.full(self._last + 1, np.inf, thresholds.dtype)
            layer[interval[place == k]] = thresholds[place == k]
            self._layers.append(layer)

    def _intervals(self, numbers: NDArray) -> NDArray[np.intp]:
        scaled = numbers - self._low
        scaled *= self._factor
        np.clip(scaled, 0, self._last, out=scaled)
        return scaled.astype(np.intp)

    def __call__(self, column: NDArray) -> NDArray[np.intp]:
        """Return the numbers of thresholds (n,), and one more than there are for NaN."""
        ranks = self._numbers_below(column)
        is_missing = np.isnan(column)
        if is_missing.any():
            ranks[is_missing] = len(self._thresholds) + 1
        return ranks

    def _numbers_below(self, column: NDArray) -> NDArray[np.intp]:
        if not self._layers:
            return np.searchsorted(self._thresholds, column)
        with np.errstate(invalid="ignore", over="ignore"):
            interval = self._intervals(column)
        ranks = self._n_below.take(interval, 0, None, "clip")
        for layer in self._layers:
            ranks += column > layer.take(interval, 0, None, "clip")
        return ranks


class ColumnTables:
    """Finds the leaves of some trees.

    Parameters
    ----------
    trees : FlatTrees
    chosen : truth values (P,)
        The trees, of at most `MOST_LEAVES` leaves.
    """

    def __init__(self, trees: FlatTrees, chosen: NDArray[np.bool_]) -> None:
        groups = list(_share_states(trees, np.flatnonzero(chosen)))
        columns = {j for _, thresholds in groups for j in thresholds}
        dtype = np.float32 if trees.single_precision else np.float64
        everything = {
            j: np.unique(np.concatenate([thresholds.get(j, []) for _, thresholds in groups]))
            for j in columns
        }
        self._ranks = {j: _Ranks(values.astype(dtype)) for j, values in everything.items()}
        self._groups = [
            _SharedStates(
                {j: _states_of_ranks(everything[j], values) for j, values in thresholds.items()},
                [_tables(trees, p, thresholds) for p in numbers],
            )
            for numbers, thresholds in groups
        ]

    def __call__(self, columns: list[NDArray], leaves: NDArray[np.int32]) -> None:
        """Write the leaves of rows to `leaves` (P, n); `columns` (n,) are those of `Router`."""
        work = _Work(leaves.shape[1])
        ranks = {j: rank(columns[j]) for j, rank in self._ranks.items()}
        for group in self._groups:
            states = {
                j: of_rank.take(ranks[j], 0, None, "clip") for j, of_rank in group.states.items()
            }
            for tree in group.trees:
                # A category's code is its state.
                work.find(tree, {j: states.get(j, columns[j]) for j, _ in tree.tables}, leaves)


def tabled(trees: FlatTrees) -> NDArray[np.bool_]:
    """Return the trees (P,) whose leaves are found soonest in tables, of 128 MiB together."""
    width = int(trees.feature.max(initial=0)) + 1
    pairs = np.unique(trees.tree_of_split * width + trees.feature)
    n_columns = np.bincount(pairs // width, minlength=trees.n_trees)
    n_words = np.ceil(trees.n_leaves / _WORD)
    seconds = n_columns * (_LOOK_UP + _WORD_TIME * n_words)
    is_tabled = (seconds < _MOST_TIME) & (trees.n_leaves <= MOST_LEAVES)
    n_bytes = n_columns * n_words * 8 * (_MOST_THRESHOLDS + 2)
    is_tabled &= np.cumsum(np.where(is_tabled, n_bytes, 0)) <= _MOST_BYTES
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
    together: list[int] = []
    sets: dict[int, set[float]] = {}
    for p in numbers.tolist():
        nodes = slice(int(trees.starts[p]), int(trees.starts[p + 1]))
        here: dict[int, set[float]] = {}
        on_numbers = trees.table[nodes] < 0
        features, thresholds = trees.feature[nodes][on_numbers], trees.threshold[nodes][on_numbers]
        for j, threshold in zip(features.tolist(), thresholds.tolist(), strict=True):
            here.setdefault(j, set()).add(threshold)
        if together and any(
            len(sets.get(j, set()) | values) > _MOST_THRESHOLDS for j, values in here.items()
        ):
            yield together, {j: np.array(sorted(values)) for j, values in sets.items()}
            together, sets = [], {}
        together.append(p)
        for j, values in here.items():
            sets[j] = sets.get(j, set()) | values
    if together:
        yield together, {j: np.array(sorted(values)) for j, values in sets.items()}


# -- tables ----------------------------------------------------------------------------------------


def _tables(trees: FlatTrees, p: int, thresholds: dict[int, NDArray]) -> _TableTree:
    """Return the sets of leaves that every state of a column leaves possible."""
    nodes = np.arange(int(trees.starts[p]), int(trees.starts[p + 1]))
    left, right = _leaves_below(trees, nodes, int(trees.n_leaves[p]))
    everything = (left[:1] | right[:1])[0] if len(nodes) else left
    tables = []
    for j in np.unique(trees.feature[nodes]).tolist():
        here = np.flatnonzero(trees.feature[nodes] == j)
        splits, branches = nodes[here], (left[here], right[here])
        if j in thresholds:
            ruled_out = _ruled_out_numbers(trees, splits, branches, thresholds[j])
        else:
            ruled_out = _ruled_out_categories(trees, splits, branches)
        table = everything & ~ruled_out
        tables.append((j, table[:, 0].copy() if table.shape[1] == 1 else table))
    return _TableTree(p, tables)


def _leaves_below(trees: FlatTrees, nodes: NDArray, n_leaves: int) -> tuple[NDArray, NDArray]:
    """Return sets of leaves, as words (N, W), in the left and the right branch of every split."""
    n_words = -(-n_leaves // _WORD)
    word = np.min_scalar_type((1 << min(n_leaves, _WORD)) - 1)
    below: dict[int, int] = {}
    branches: list[list[int]] = [[], []]
    for node in reversed(nodes.tolist()):  # children come after parents
        children = int(trees.left[node]), int(trees.right[node])
        sets = [1 << ~child if child < 0 else below.pop(child) for child in children]
        below[node] = sets[0] | sets[1]
        for branch, leaves in zip(branches, sets, strict=True):
            branch.append(leaves)
    size = n_words * word.itemsize
    left, right = (
        np.frombuffer(b"".join(leaves.to_bytes(size, "little") for leaves in branch[::-1]), word)
        for branch in branches
    )
    return left.reshape(len(nodes), n_words), right.reshape(len(nodes), n_words)


def _ruled_out_numbers(
    trees: FlatTrees, splits: NDArray, branches: tuple[NDArray, NDArray], thresholds: NDArray
) -> NDArray:
    """Return the leaves (S, W) that the states of a number rule out, at splits on its column.

    State s goes right where the threshold is one of the first s. `branches` are the sets (N, W) of
    leaves on the left and on the right of every split.
    """
    left, right = branches
    rank = np.searchsorted(thresholds, trees.threshold[splits])
    order = np.argsort(rank)
    none = np.zeros_like(left[:1])
    lower = np.concatenate([none, np.bitwise_or.accumulate(left[order])])
    higher = np.concatenate([none, np.bitwise_or.accumulate(right[order[::-1]])])[::-1]
    n_lower = np.searchsorted(rank[order], np.arange(len(thresholds) + 1))
    missing = np.where(trees.missing_left[splits][:, None], right, left)
    return np.concatenate(
        [lower[n_lower] | higher[n_lower], np.bitwise_or.reduce(missing, axis=0, keepdims=True)]
    )


def _ruled_out_categories(
    trees: FlatTrees, splits: NDArray, branches: tuple[NDArray, NDArray]
) -> NDArray:
    """Return the same for the codes of a category, the last one for missing values."""
    left, right = branches
    n_categories = int(trees.n_categories[trees.feature[splits[0]]])
    ruled_out = np.zeros((n_categories + 2, left.shape[1]), left.dtype)
    for split, on_left, on_right in zip(splits.tolist(), left, right, strict=True):
        begin = int(trees.table[split])
        goes_left = trees.categories_left[begin : begin + n_categories + 1]
        goes_left = np.append(goes_left, trees.missing_left[split])
        ruled_out |= np.where(goes_left[:, None], on_right, on_left)
    return ruled_out


# -- rows ------------------------------------------------------------------------------------------


class _Work:
    """Arrays that one block of rows is worked on in."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._sets: dict[tuple, tuple[NDArray, NDArray]] = {}

    def find(
        self, tree: _TableTree, states: dict[int, NDArray[np.intp]], leaves: NDArray[np.int32]
    ) -> None:
        """Write the leaves of the rows to those of the tree among `leaves` (P, n)."""
        out = leaves[tree.number]
        if not tree.tables:
            out.fill(0)
            return
        (j, table), *others = tree.tables
        key = (table.dtype, table.shape[1:])
        if key not in self._sets:
            shape = (self._n_rows, *table.shape[1:])
            self._sets[key] = np.empty(shape, table.dtype), np.empty(shape, table.dtype)
        possible, another = self._sets[key]
        table.take(states[j], 0, possible, "clip")
        for j, table in others:
            table.take(states[j], 0, another, "clip")
            np.bitwise_and(possible, another, out=possible)
        if possible.dtype.itemsize <= 2:
            _EXPONENT.take(possible, 0, out, "clip")
            return
        number = possible.astype(np.float64)
        if number.ndim == 2:  # one word is not zero
            number = number @ 2.0 ** (_WORD * np.arange(number.shape[1]))
        exponent = number.view(np.int64)
        exponent >>= _FRACTION_BITS
        np.subtract(exponent, _EXPONENT_OF_ONE, out=out, casting="same_kind")


_FRACTION_BITS, _EXPONENT_OF_ONE = 52, 1023  # of float64
_EXPONENT = np.zeros(1 << 16, dtype=np.int32)
_EXPONENT[1 << np.arange(16)] = np.arange(16)
