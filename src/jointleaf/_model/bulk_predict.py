"""Predictions from tables of grouped trees: no codes, one look-up for several trees.

The prediction of a row is <x, sum over partitions of the weights of its cell>. For small trees
`_trees.grouping` sums the weights of several trees in one table, so that

    f = rowsum((M @ T) * X),   M (n, G) sparse with one entry per row and group,

where T are the tables of all G groups one after the other. It is the product of
`jointleaf.LeafDesign` with fewer entries, and M comes straight from the answers to the trees'
tests. Trees with constants have tables of their own, without slopes. Partitions that are not small
trees go the usual way and are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import EllipsisType
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._data.features import LinearFeatures
from jointleaf._model.code_sums import CodeSums
from jointleaf._model.contributions import CellRanges
from jointleaf._model.joined_trees import JoinedTrees, innermost
from jointleaf._trees.grouping import GroupIndex, Grouping, group_trees, group_weights
from jointleaf._trees.routing import Router
from jointleaf.partitions import Partitioner, RootCell
from jointleaf.partitions._base import TreeCells

#: Rows from which on tables are worth it: making them takes as long as predicting some
#: thousands of rows. The rule looks at the rows of a call alone, so that equal calls give
#: equal numbers.
LEAST_ROWS = 10_000
MOST_CELLS = 16  # of half of the partitions, where tables are worth it
_MOST_CODES = 2**22  # in memory at a time, in one thread
_LEAST_SHARE = 1024  # rows of a thread
_BLOCK_ROWS = 4096  # rows whose answers and sums stay in the cache
_TABLE_BYTES = 2**18  # weights of one group: most look-ups stay in the second-level cache
_ALL_BYTES = 2**25  # weights of all groups


class PlainSums:
    """Sums of the weights of the cells that codes name.

    `sources` find the codes of their partitions side by side, which have the layout, slopes
    (L, m[, K]) and biases (C[, K]); `ranges` limit linear models.
    """

    def __init__(
        self,
        sources: Sequence[Partitioner | Router],
        layout: CellLayout,
        slopes: NDArray,
        biases: NDArray,
        ranges: CellRanges | None = None,
    ) -> None:
        members = list(innermost(sources))
        self._root: tuple[NDArray, NDArray] | None = None  # slopes and bias of every row
        is_root = [isinstance(source, RootCell) for source, _ in members]
        if ranges is None and any(is_root) and not all(is_root):
            left_out = np.repeat(is_root, [size for _, size in members])
            self._root, layout, slopes, biases = _without(layout, slopes, biases, left_out)
            members = [member for member in members if not isinstance(member[0], RootCell)]
        self.codes, self.layout, self.ranges = JoinedTrees([m for m, _ in members]), layout, ranges
        self.slopes, self.biases = slopes, biases
        self._parts: list[CodeSums] = []
        if ranges is None:
            may_miss = self.codes.may_miss
            for output, partitions in _by_output(layout, slopes, biases):
                if len(partitions):
                    part = CodeSums(layout, slopes, biases, output, partitions, may_miss=may_miss)
                    self._parts.append(part)

    def __call__(self, X: NDArray, features: LinearFeatures, n_jobs: int = 1) -> NDArray:
        """Return sums over all partitions, (n,) or (n, K), of rows X (n, d).

        Threads share the blocks of rows; no number depends on how.
        """
        most_rows = _MOST_CODES // max(1, self.layout.n_partitions)
        most_rows = max(_LEAST_SHARE, most_rows - most_rows % _LEAST_SHARE)
        step = min(most_rows, max(_LEAST_SHARE, -(-len(X) // n_jobs)))
        blocks = [X[start : start + step] for start in range(0, len(X), step)]
        if len(blocks) == 1:
            return self._block(X, features)
        if n_jobs == 1:
            return np.concatenate([self._block(rows, features) for rows in blocks])
        with ThreadPoolExecutor(n_jobs) as pool:
            return np.concatenate(list(pool.map(lambda rows: self._block(rows, features), blocks)))

    def _block(self, X: NDArray, features: LinearFeatures) -> NDArray:
        Z, codes = features.transform(X), self.codes.by_partition(X)
        if self.ranges is not None:
            return self.ranges.predict(Z, codes.T, self.layout, self.slopes, self.biases)
        sums = np.zeros((len(Z), *self.biases.shape[1:]), Z.dtype)
        if self._root is not None:
            slopes, bias = (weights.astype(Z.dtype, copy=False) for weights in self._root)
            # Not a product of matrices: its rounding depends on the number of rows.
            sums += np.einsum("ij,j...->i...", Z, slopes) + bias
        for part in self._parts:
            sums[:, part.output] += part(Z, codes)
        return sums


def _without(
    layout: CellLayout, slopes: NDArray, biases: NDArray, is_left_out: NDArray[np.bool_]
) -> tuple[tuple[NDArray, NDArray], CellLayout, NDArray, NDArray]:
    """Return the summed weights of partitions that are left out, and those of all others."""
    is_out = is_left_out[layout.partition_of_cell]
    is_out_sloped = is_out[layout.linear_cells]
    sums = slopes[is_out_sloped].sum(axis=0, dtype=float), biases[is_out].sum(axis=0, dtype=float)
    return sums, layout.only(~is_left_out), slopes[~is_out_sloped], biases[~is_out]


def _by_output(
    layout: CellLayout, slopes: NDArray, biases: NDArray
) -> Iterator[tuple[int | EllipsisType, NDArray[np.intp]]]:
    """Yield outputs with the partitions that add to them alone, and `...` with all others.

    A tree of a booster adds to one of K classes: the other K - 1 weights of its cells are zero.
    Partitions without weights are left out.
    """
    everything = np.arange(layout.n_partitions)
    if biases.ndim == 1:
        yield ..., everything
        return
    adds = np.logical_or.reduceat(biases != 0, layout.offsets[:-1], axis=0)  # (P, K)
    sloped = layout.partition_of_cell[layout.linear_cells]
    np.logical_or.at(adds, sloped, (slopes != 0).any(axis=1))
    n_outputs = adds.sum(axis=1)
    for k in range(adds.shape[1]):
        yield k, everything[(n_outputs == 1) & adds[:, k]]
    yield ..., everything[n_outputs > 1]


@dataclass(frozen=True)
class _Tables:
    """The tables of all groups of trees with one kind of cells."""

    groupings: list[Grouping]
    starts: NDArray[np.intp]  # (G,) first entry of every group
    entries: NDArray  # (N, q * K)


class GroupedSums:
    """Tables of the weights of all partitions that are small trees.

    Slopes are (L, m[, K]), biases (C[, K]); `dtype` is that of the tables and all products, and of
    the linear features.
    """

    n_groups: int  # look-ups per row; 0 where no tree is small enough
    plain: PlainSums | None  # of the partitions that have no table

    def __init__(
        self,
        partitioner: Partitioner,
        layout: CellLayout,
        slopes: NDArray,
        biases: NDArray,
        dtype: DTypeLike,
    ) -> None:
        self._outputs, self._dtype = biases.shape[1:], np.dtype(dtype)
        weights = _Weights(layout, slopes, biases)
        room = _ALL_BYTES
        root = {kind: np.zeros(weights.width(kind)) for kind in _KINDS}
        grouped: dict[CellKind, list[tuple[Grouping, NDArray]]] = {kind: [] for kind in _KINDS}
        sources: list[Partitioner | Router] = []
        without: list[NDArray[np.intp]] = []
        for source, router, numbers, kind in _members(partitioner, layout):
            if isinstance(source, RootCell):
                root[kind] += weights.of(numbers, kind)[0]
                continue
            entry = weights.width(kind) * self._dtype.itemsize
            grouping = _grouped(router, _TABLE_BYTES // entry, room // entry)
            if grouping is None:
                sources.append(source)
                without.append(numbers)
                continue
            room -= entry * sum(group.n_states for group in grouping.groups)
            grouped[kind].append((grouping, weights.of(numbers, kind)))
            if grouping.ungrouped.any():
                sources.append(Router(grouping.router.trees.only(grouping.ungrouped)))
                without.append(numbers[grouping.ungrouped])
        self._linear, self._constant = (self._tables(grouped[kind]) for kind in _KINDS)
        self.n_groups = sum(len(t.starts) for t in (self._linear, self._constant) if t is not None)
        self._constants = root["constant"].reshape(self._outputs).astype(dtype)
        self._root = root["linear"].reshape(-1, *self._outputs).astype(dtype)
        if self._linear is not None:  # one group's table holds the root cell's linear model too
            size = self._linear.starts[1] if len(self._linear.starts) > 1 else None
            self._linear.entries[:size] += root["linear"]
            self._root = np.zeros_like(self._root)
        self.plain = weights.plain(sources, np.concatenate(without)) if sources else None

    def _tables(self, grouped: list[tuple[Grouping, NDArray]]) -> _Tables | None:
        parts = [
            group_weights(grouping, group, weights)
            for grouping, weights in grouped
            for group in grouping.groups
        ]
        if not parts:
            return None
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        entries = np.concatenate(parts).astype(self._dtype)
        return _Tables([grouping for grouping, _ in grouped], starts, entries)

    def __call__(self, X: NDArray, features: LinearFeatures, n_jobs: int = 1) -> NDArray:
        """Return sums over all partitions, (n,) or (n, K), of rows X (n, d).

        Threads share the blocks of rows; no number depends on how.
        """
        f = np.empty((len(X), *self._outputs), self._dtype)
        blocks = [slice(b, min(b + _BLOCK_ROWS, len(X))) for b in range(0, len(X), _BLOCK_ROWS)]
        n_jobs = max(1, min(n_jobs, len(blocks)))

        def fill(worker: int) -> None:
            linear = None if self._linear is None else _Lookup(self._linear)
            constant = None if self._constant is None else _Lookup(self._constant)
            scaled = features.prepared(X.dtype, _BLOCK_ROWS)
            for rows in blocks[worker::n_jobs]:
                x, out = X[rows], f[rows]
                out[:] = self._constants
                if linear is not None or self._root.any():
                    sums = self._root[None] if linear is None else linear(x)
                    out += _products(scaled(x), sums.reshape(len(sums), *self._root.shape))
                if constant is not None:
                    out += constant(x).reshape(out.shape)

        if n_jobs == 1:
            fill(0)
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                list(pool.map(fill, range(n_jobs)))
        return f if self.plain is None else f + self.plain(X, features, n_jobs)


_KINDS: tuple[CellKind, CellKind] = ("linear", "constant")


class _Weights:
    """The weights of all cells, partition by partition."""

    def __init__(self, layout: CellLayout, slopes: NDArray, biases: NDArray) -> None:
        self._layout, self._slopes, self._biases = layout, slopes, biases
        self._n_outputs = int(np.prod(biases.shape[1:]))

    def width(self, kind: CellKind) -> int:
        """Weights of one cell."""
        return (self._layout.n_features + 1 if kind == "linear" else 1) * self._n_outputs

    def cells(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Cells of some partitions."""
        offsets = self._layout.offsets
        return np.concatenate([np.arange(offsets[p], offsets[p + 1]) for p in numbers])

    def of(self, numbers: NDArray[np.intp], kind: CellKind) -> NDArray:
        """Weights (C', q K) of the cells of some partitions of one kind, the bias last."""
        cells = self.cells(numbers)
        biases = self._biases[cells][:, None]
        if kind == "constant":
            return biases.reshape(len(cells), -1)
        slopes = self._slopes[self._layout.slope_rows[cells]]
        return np.concatenate([slopes, biases], axis=1).reshape(len(cells), -1)

    def plain(self, sources: list[Partitioner | Router], numbers: NDArray[np.intp]) -> PlainSums:
        layout, cells = self._layout.only(numbers), self.cells(numbers)
        rows = self._layout.slope_rows[cells]
        slopes = self._slopes[rows[rows < self._layout.n_linear_cells]]
        return PlainSums(sources, layout, slopes, self._biases[cells])


class _Lookup:
    """Sums the entries of blocks of rows, in one thread, always in the same arrays."""

    def __init__(self, tables: _Tables) -> None:
        entries, starts = tables.entries, tables.starts
        self._entries = entries[:, 0] if entries.shape[1] == 1 else entries  # a faster product
        width, size = len(starts), _BLOCK_ROWS * len(starts)
        indptr = np.arange(0, size + 1, width, dtype=np.int32)
        # One sparse matrix for all blocks: they only differ in its indices.
        self._matrix = sparse.csr_array(
            (np.ones(size, entries.dtype), np.zeros(size, np.int32), indptr),
            shape=(_BLOCK_ROWS, len(entries)),
        )
        indices = self._matrix.indices.reshape(_BLOCK_ROWS, width)
        self._index = []
        begin = 0
        for grouping in tables.groupings:
            groups = slice(begin, begin + len(grouping.groups))
            self._index.append(GroupIndex(grouping, starts[groups], indices[:, groups]))
            begin = groups.stop

    def __call__(self, X: NDArray) -> NDArray:
        """Return the sums (b, q K) or (b,) of rows X (b, d)."""
        for index in self._index:
            index(X)
        matrix = self._matrix if len(X) == _BLOCK_ROWS else self._matrix[: len(X)]
        return matrix @ self._entries


def _products(rows: NDArray, sums: NDArray) -> NDArray:
    """Return <x, slopes> + bias (b[, K]) of rows (b, m), NaN for the mean, and (b, m + 1[, K])."""
    sums = np.broadcast_to(sums, (len(rows), *sums.shape[1:]))
    products = np.einsum("ij,ij...->i...", rows, sums[:, :-1])
    if np.isnan(products).any():  # a look at the few results is cheaper than one at all rows
        rows[np.isnan(rows)] = 0.0
        products = np.einsum("ij,ij...->i...", rows, sums[:, :-1])
    return products + sums[:, -1]


def _grouped(router: Router | None, most_states: int, room: int) -> Grouping | None:
    """Group trees; None where most of them would be in no group."""
    if router is None:
        return None
    grouping = group_trees(router, most_states, room)
    return grouping if np.mean(grouping.ungrouped) <= 0.5 else None


class _Member(NamedTuple):
    """An innermost partitioner or, of trees with both kinds of cells, those of one kind."""

    source: Partitioner | Router  # what finds codes
    router: Router | None  # of trees
    numbers: NDArray[np.intp]  # of the partitions
    kind: CellKind  # of the cells; not of interest where there is no router


def _members(partitioner: Partitioner, layout: CellLayout) -> Iterator[_Member]:
    for member, first in partitioner.walk():
        numbers = first + np.arange(len(member.n_cells_))
        kinds = np.array(layout.kinds)[numbers]
        if not isinstance(member, TreeCells):
            yield _Member(member, None, numbers, layout.kinds[first])
            continue
        for kind in _KINDS:
            chosen = kinds == kind
            if chosen.all():
                yield _Member(member, member.router, numbers, kind)
            elif chosen.any():
                router = Router(member.router.trees.only(chosen))
                yield _Member(router, router, numbers[chosen], kind)
