"""Predictions from tables of grouped trees: no codes, one look-up for several trees.

The prediction of a row is <x, sum over partitions of the weights of its cell>. For small trees
`_trees.grouping` sums the weights of several trees in one table, so that

    f = rowsum((M @ T) * X),   M (n, G) sparse with one entry per row and group,

where T are the tables of all G groups one after the other. It is the product of
`jointleaf.LeafDesign` with fewer entries, and M comes straight from the answers to the trees'
tests. Partitions that are not small trees go the usual way and are added.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from jointleaf._core.layout import CellLayout
from jointleaf._data.features import LinearFeatures
from jointleaf._trees.grouping import Grouping, group_trees, group_weights
from jointleaf._trees.indexing import GroupIndex
from jointleaf._trees.routing import Router
from jointleaf.partitions import Partitioner, RootCell
from jointleaf.partitions._cells import TreeCells

__all__ = ["LEAST_ROWS", "GroupedSums", "Rest"]

#: Rows from which on tables are worth it: making them takes as long as predicting some
#: thousands of rows. The rule looks at the rows of a call alone, so that equal calls give
#: equal numbers.
LEAST_ROWS = 10_000
_BLOCK_ROWS = 4096  # rows whose answers and sums stay in the cache
_TABLE_BYTES = 2**18  # weights of one group: most look-ups stay in the second-level cache
_ALL_BYTES = 2**25  # weights of all groups


@dataclass(frozen=True)
class _Part:
    """Partitions that go the usual way: some of those of one member."""

    member: Partitioner | Router
    columns: NDArray[np.intp]  # their numbers among all partitions

    def codes(self, X: NDArray) -> NDArray[np.int32]:
        return self.member(X) if isinstance(self.member, Router) else self.member.apply(X)


@dataclass(frozen=True)
class Rest:
    """Partitions that have no table.

    Attributes
    ----------
    parts : list
    layout : CellLayout
        Of these partitions alone.
    theta : array (C', q[, K])
        The weights of their cells.
    """

    parts: list[_Part]
    layout: CellLayout
    theta: NDArray

    def codes(self, X: NDArray) -> NDArray[np.int32]:
        """Cells (n, P') of rows X (n, d)."""
        return np.concatenate([part.codes(X) for part in self.parts], axis=1)


class GroupedSums:
    """Tables of the weights of all partitions that are small trees.

    Parameters
    ----------
    partitioner : Partitioner
        Fitted.
    layout : CellLayout
    theta : array (C, q[, K])
    dtype : float32 or float64
        Of the tables and all products: the one of the linear features.

    Attributes
    ----------
    n_groups : int
        Look-ups per row; 0 where no tree is small enough.
    rest : Rest or None
        The partitions that have no table.
    """

    def __init__(
        self, partitioner: Partitioner, layout: CellLayout, theta: NDArray, dtype: DTypeLike
    ) -> None:
        self._shape = theta.shape[1:]  # (q,) or (q, K)
        weights = theta.reshape(layout.n_cells, -1)
        width = weights.shape[1]
        entry = width * np.dtype(dtype).itemsize
        room = _ALL_BYTES // entry
        constant = np.zeros((1, width))
        tables, self._groupings, parts = [], [], []
        for member, first in partitioner.walk():
            number = first + np.arange(len(member.n_cells_))
            own = weights[layout.offsets[first] : layout.offsets[first + len(number)]]
            if isinstance(member, RootCell):
                constant = constant + own
                continue
            grouping = _grouped(member, _TABLE_BYTES // entry, room)
            if grouping is None:
                parts.append(_Part(member, number))
                continue
            room -= sum(group.n_states for group in grouping.groups)
            self._groupings.append(grouping)
            tables += [group_weights(grouping, group, own) for group in grouping.groups]
            if grouping.rest.any():
                some = Router(grouping.router.trees.only(grouping.rest))
                parts.append(_Part(some, number[grouping.rest]))
        self.n_groups = len(tables)
        if tables:
            tables[0] = tables[0] + constant
        sizes = [len(table) for table in tables]
        self._starts = np.cumsum([0, *sizes])[:-1]
        self._tables = np.concatenate([np.zeros((0, width)), *tables]).astype(dtype)
        self.rest = _rest(parts, layout, theta)

    def __call__(self, X: NDArray, features: LinearFeatures, n_jobs: int = 1) -> NDArray:
        """Sums over all partitions but those in `rest`, (n,) or (n, K), of rows X (n, d).

        Threads share the blocks of rows; no number depends on how.
        """
        f = np.empty((len(X), *self._shape[1:]), self._tables.dtype)
        blocks = [slice(b, min(b + _BLOCK_ROWS, len(X))) for b in range(0, len(X), _BLOCK_ROWS)]
        n_jobs = max(1, min(n_jobs, len(blocks)))

        def fill(worker: int) -> None:
            work = _Worker(self._groupings, self._starts, self._tables, self._shape)
            scaled = features.prepared(X.dtype, _BLOCK_ROWS)
            for rows in blocks[worker::n_jobs]:
                work(X[rows], scaled, f[rows])

        if n_jobs == 1:
            fill(0)
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                list(pool.map(fill, range(n_jobs)))
        return f


class _Worker:
    """Predicts blocks of rows, in one thread, always in the same arrays."""

    def __init__(
        self,
        groupings: list[Grouping],
        starts: NDArray[np.intp],
        tables: NDArray,
        shape: tuple[int, ...],
    ) -> None:
        self._tables = tables[:, 0] if tables.shape[1] == 1 else tables  # a faster product
        self._shape = shape
        width, size = len(starts), _BLOCK_ROWS * len(starts)
        indptr = np.arange(0, size + 1, width, dtype=np.int32)
        # One sparse matrix for all blocks: they only differ in its indices.
        self._matrix = sparse.csr_array(
            (np.ones(size, tables.dtype), np.zeros(size, np.int32), indptr),
            shape=(_BLOCK_ROWS, len(tables)),
        )
        entries = self._matrix.indices.reshape(_BLOCK_ROWS, width)
        self._index = []
        begin = 0
        for grouping in groupings:
            groups = slice(begin, begin + len(grouping.groups))
            self._index.append(GroupIndex(grouping, starts[groups], entries[:, groups]))
            begin = groups.stop

    def __call__(self, X: NDArray, scaled: Callable[[NDArray], NDArray], out: NDArray) -> None:
        """Write the sums of rows X (b, d) to `out` (b[, K])."""
        n_rows = len(X)
        for index in self._index:
            index(X)
        matrix = self._matrix if n_rows == _BLOCK_ROWS else self._matrix[:n_rows]
        sums = (matrix @ self._tables).reshape(n_rows, *self._shape)
        if self._shape[0] == 1:  # constant cells
            out[:] = sums[:, 0]
            return
        rows = scaled(X)
        self._products(rows, sums, out)
        if np.isnan(out).any():  # a look at the few results is cheaper than one at all rows
            rows[np.isnan(rows)] = 0.0
            self._products(rows, sums, out)

    def _products(self, rows: NDArray, sums: NDArray, out: NDArray) -> None:
        """<x, slopes> + bias of every row."""
        np.einsum("ij,ij...->i...", rows, sums[:, :-1], out=out)
        out += sums[:, -1]


def _grouped(member: Partitioner, most_states: int, room: int) -> Grouping | None:
    """Group the trees of a partitioner; None where most of its partitions would be in no group."""
    if not isinstance(member, TreeCells):
        return None
    grouping = group_trees(member.router, most_states, room)
    return grouping if np.mean(grouping.rest) <= 0.5 else None


def _rest(parts: list[_Part], layout: CellLayout, theta: NDArray) -> Rest | None:
    if not parts:
        return None
    chosen = np.concatenate([part.columns for part in parts])
    cells = np.concatenate([np.arange(*layout.offsets[[p, p + 1]]) for p in chosen])
    counts = tuple(layout.cells_per_partition[p] for p in chosen)
    return Rest(parts, CellLayout(counts, layout.n_features, layout.kind), theta[cells])
