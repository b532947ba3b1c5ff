"""Sums over cells: the passes of a design over partitions of one kind.

**Merged partitions.** Rows that share their cell in every partition of a group see the same
sum of weights, so that a group of partitions can be replaced by one whose cells are the
non-empty intersections: Z = M T, where M has one entry per row and *group*, and T adds
up the members of every intersection. With small trees this makes a pass several times cheaper
and is exact. `merge_partitions` builds it; iterative solvers ask for it, a single pass does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from jointleaf._core.layout import CellLayout

_BLOCK_BYTES = 2**19  # a block's products stay in the second-level cache
_MAX_BLOCK_ROWS = 8192
_MAX_SEGMENTS = 8  # the adjoint's partial sums: fixed, so that n_jobs cannot change a bit
_SEGMENT_BYTES = 2**28  # and their memory
_TABLE_BYTES = 2**17  # weights of one group's merged cells: beyond, gathers leave the cache


@dataclass(frozen=True)
class _Group:
    """Partitions that are passed over as one.

    `members` (m,) are the partitions' numbers; `table` (k, m) holds the cell of each member for
    every merged cell; `start` is the group's first merged cell.
    """

    members: range
    table: NDArray[np.int32]
    start: int


class _RowBlock(NamedTuple):
    """A block of rows with its part of M, and that transposed: both are views of the codes."""

    rows: slice
    part: sparse.csr_array
    transposed: sparse.csc_array


class CellSums:
    """Partitions of one kind: sums over a row's cells, and over the rows of every cell.

    `cells` (n, P) is the cell of every row in every partition, numbered over these partitions, C
    for none; `partitions` (P,) and `numbers` (C + 1,) are the numbers of the partitions and of the
    cells (and "no cell") in the layout; X (n, q) are rows with a one in the last column.
    """

    def __init__(
        self,
        cells: NDArray[np.int32],
        partitions: NDArray[np.intp],
        numbers: NDArray[np.int32],
        X: NDArray,
        n_jobs: int,
    ) -> None:
        self.partitions, self.numbers, self.X, self.n_jobs = partitions, numbers, X, n_jobs
        self.dtype, self.n_rows, self.n_cells = X.dtype, len(X), len(numbers) - 1
        self._has_missing = bool((cells == self.n_cells).any())
        self._pool: ThreadPoolExecutor | None = None
        self._set_groups(cells, None)

    @classmethod
    def of_codes(
        cls, codes: NDArray, layout: CellLayout, partitions: NDArray, X: NDArray, n_jobs: int
    ) -> CellSums:
        """Return the sums of some partitions of a layout; -1 in the codes is no cell."""
        if len(partitions) < layout.n_partitions:
            codes = codes[:, partitions]
        sizes = np.asarray(layout.cells_per_partition)[partitions]
        cells = np.empty(codes.shape, np.int32)
        np.add(codes, np.cumsum(sizes) - sizes, out=cells, casting="unsafe")
        cells[codes < 0] = sizes.sum()
        owned = np.isin(layout.partition_of_cell, partitions)
        numbers = np.append(np.flatnonzero(owned), layout.n_cells).astype(np.int32)
        return cls(cells, partitions, numbers, X, n_jobs)

    def with_rows(self, X: NDArray) -> CellSums:
        """Return the sums over other rows in the same cells."""
        return CellSums(self.cells(), self.partitions, self.numbers, X, self.n_jobs)

    # -- partitions, one by one or merged ------------------------------------------------------

    def _set_groups(self, merged: NDArray[np.int32], groups: list[_Group] | None) -> None:
        self._merged = merged  # (n, number of groups), contiguous
        # All entries of M are 1 and all its rows have as many: two arrays serve every block.
        rows, width = min(_MAX_BLOCK_ROWS, max(self.n_rows, 1)), merged.shape[1]
        self._ones = _shared_ones(rows * width, self.dtype)
        self._indptr = np.arange(0, rows * width + 1, width, dtype=np.int32)
        self._row_blocks: dict[tuple[int, int, int], list[_RowBlock]] = {}
        self._segment_bounds: dict[int, NDArray[np.int64]] = {}
        self.groups = groups
        self._adder: sparse.csr_array | None = None
        self._adder_transposed: sparse.csc_array | None = None
        n_columns = self.n_cells + self._has_missing
        if groups is None:
            self._n_merged = n_columns
            return
        self._n_merged = groups[-1].start + len(groups[-1].table)
        indices = np.concatenate([g.table.ravel() for g in groups])
        sizes = np.concatenate([np.full(len(g.table), g.table.shape[1]) for g in groups])
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        self._adder = sparse.csr_array(
            (np.ones(len(indices), self.dtype), indices, indptr), shape=(self._n_merged, n_columns)
        )
        self._adder_transposed = self._adder.T

    def merge(self) -> None:
        """Merge neighbouring partitions where that makes passes cheaper."""
        n_partitions = len(self.partitions)
        if n_partitions == 1 or self.n_rows == 0 or self.groups is not None:
            return
        if self.n_cells**2 > self.n_rows * n_partitions**2:
            return  # two partitions of so many cells have about as many intersections as rows
        groups: list[_Group] = []
        columns: list[NDArray[np.int32]] = []
        start = first = 0
        while first < n_partitions:
            label, table = self._grow_group(first)
            number = int(self.partitions[first])
            groups.append(_Group(range(number, number + table.shape[1]), table, start))
            columns.append(label + np.int32(start))
            start += len(table)
            first += table.shape[1]
        if len(groups) < n_partitions:
            self._set_groups(np.ascontiguousarray(np.stack(columns, axis=1)), groups)

    def _grow_group(self, first: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Merge partitions from `first` on while the cost per member, n/m + k, falls."""
        label, table = _relabel(self._merged[:, first], None)
        cost = float(self.n_rows + len(table))
        for p in range(first + 1, len(self.partitions)):
            if self.partitions[p] != self.partitions[p - 1] + 1:
                break  # a group is a range of the layout's partitions
            new_label, new_table = _relabel(self._merged[:, p], (label, table))
            new_cost = self.n_rows / (p - first + 1) + len(new_table)
            table_bytes = len(new_table) * self.X.shape[1] * self.dtype.itemsize
            if new_cost > 0.97 * cost or table_bytes > _TABLE_BYTES:
                break
            label, table, cost = new_label, new_table, new_cost
        return label, table

    def cells(self) -> NDArray[np.int32]:
        """Cell of every row in every partition, (n, P), numbered over these; C for none."""
        if self.groups is None:
            return self._merged
        return np.concatenate(
            [g.table[self._merged[:, i] - g.start] for i, g in enumerate(self.groups)], axis=1
        )

    def labels(self) -> Iterator[tuple[NDArray, NDArray, range]]:
        """Yield rows' merged cells, the members of these in the layout, and the partitions."""
        if self.groups is None:
            for i, p in enumerate(self.partitions.tolist()):
                label, table = _relabel(self._merged[:, i], None)
                yield label, self.numbers[table], range(p, p + 1)
        else:
            for i, group in enumerate(self.groups):
                yield self._merged[:, i] - group.start, self.numbers[group.table], group.members

    # -- blocks and threads --------------------------------------------------------------------

    def _block_rows(self, n_values: int) -> int:
        """Rows of a block, a power of two, so that few sizes are in use."""
        fits = _BLOCK_BYTES // (n_values * self.dtype.itemsize)
        return min(max(1 << (max(fits, 1).bit_length() - 1), 256), _MAX_BLOCK_ROWS)

    def _blocks(self, start: int, stop: int, n_values: int) -> list[_RowBlock]:
        """Blocks of rows with their part of M as a sparse matrix; kept for the next pass."""
        size = self._block_rows(n_values)
        key = (start, stop, size)
        if key not in self._row_blocks:
            self._row_blocks[key] = self._make_blocks(start, stop, size)
        return self._row_blocks[key]

    def _make_blocks(self, start: int, stop: int, size: int) -> list[_RowBlock]:
        blocks = []
        for begin in range(start, stop, size):
            end = min(begin + size, stop)
            indices = self._merged[begin:end].ravel()  # views, here and below: nothing is copied
            block = sparse.csr_array(
                (self._ones[: len(indices)], indices, self._indptr[: end - begin + 1]),
                shape=(end - begin, self._n_merged),
            )
            blocks.append(_RowBlock(slice(begin, end), block, block.T))
        return blocks

    def _run(self, job: Callable[[int, int], None], bounds: NDArray[np.int64]) -> None:
        """Run the job on every segment of rows, on threads where there are any."""
        segments = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        if self.n_jobs == 1 or len(segments) == 1:
            for begin, end in segments:
                job(begin, end)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs)
        for done in [self._pool.submit(job, begin, end) for begin, end in segments]:
            done.result()

    def segments(self, out_bytes: int) -> NDArray[np.int64]:
        """Row bounds of the adjoint's partial sums: they depend on the problem alone."""
        by_memory = _SEGMENT_BYTES // max(1, out_bytes)
        by_work = self.n_rows // 2048
        if out_bytes:  # adding up the partial sums must stay a small part of the pass
            by_work = min(by_work, self._merged.size // (8 * self._n_merged))
        count = max(1, min(_MAX_SEGMENTS, by_memory, by_work))
        if count not in self._segment_bounds:
            self._segment_bounds[count] = np.linspace(0, self.n_rows, count + 1).astype(np.int64)
        return self._segment_bounds[count]

    # -- products ------------------------------------------------------------------------------

    def table(self, slopes: NDArray | None, biases: NDArray) -> NDArray:
        """Return the weights of every merged cell, (C_m, q K): slopes (L, d, K), biases (C, K).

        Without slopes the table has the biases alone.
        """
        q = 1 if slopes is None else self.X.shape[1]
        table = np.zeros((self.n_cells + self._has_missing, q, biases.shape[1]), self.dtype)
        if slopes is not None and q > 1:
            table[: self.n_cells, :-1] = slopes
        table[: self.n_cells, -1] = biases[self.numbers[:-1]]
        flat = table.reshape(len(table), -1)
        return flat if self._adder is None else self._adder @ flat

    def forward(self, table: NDArray) -> NDArray:
        """Return the predictions (n, K) of a table of weights."""
        q = self.X.shape[1]
        n_outputs = table.shape[1] // q
        f = np.empty((self.n_rows, n_outputs), self.dtype)

        def job(begin: int, end: int) -> None:
            for rows, block, _ in self._blocks(begin, end, table.shape[1]):
                sums = (block @ table).reshape(-1, q, n_outputs)
                if q == 1:
                    f[rows] = sums[:, 0]
                elif n_outputs == 1:
                    np.einsum("ij,ij->i", self.X[rows], sums[:, :, 0], out=f[rows, 0])
                else:
                    np.einsum("ij,ijk->ik", self.X[rows], sums, out=f[rows])

        self._run(job, self.segments(0))
        return f

    def row_sums(self, table: NDArray) -> NDArray:
        """Return the sums of a table's rows over the cells of every row, (n, columns)."""
        sums = np.empty((self.n_rows, table.shape[1]), self.dtype)
        for rows, block, _ in self._blocks(0, self.n_rows, table.shape[1]):
            sums[rows] = block @ table
        return sums

    def scatter(self, r: NDArray, X: NDArray) -> NDArray:
        """Return the sums of r_n x_n over the rows of every cell, (C, columns of X, K)."""
        width, n_outputs = X.shape[1], r.shape[1]
        bounds = self.segments(self._n_merged * width * n_outputs * self.dtype.itemsize)
        sums = np.zeros((len(bounds) - 1, self._n_merged, width * n_outputs), self.dtype)

        def job(begin: int, end: int) -> None:
            partial = sums[int(np.searchsorted(bounds, begin, side="right")) - 1]
            for rows, _, transposed in self._blocks(begin, end, width * n_outputs):
                products = X[rows][:, :, None] * r[rows][:, None, :]
                partial += transposed @ products.reshape(-1, width * n_outputs)

        self._run(job, bounds)
        total = sums.sum(axis=0) if len(sums) > 1 else sums[0]
        if self._adder is not None:
            total = self._adder_transposed @ total
        return total[: self.n_cells].reshape(self.n_cells, width, n_outputs)


_ONES: WeakValueDictionary[tuple[int, str], NDArray] = WeakValueDictionary()


def _shared_ones(size: int, dtype: np.dtype) -> NDArray:
    """Return an array of ones, the same for all designs alive: tasks have one design each."""
    key = (size, dtype.str)
    ones = _ONES.get(key)
    if ones is None:
        ones = _ONES[key] = np.ones(size, dtype)
    return ones


def _relabel(
    column: NDArray[np.int32], group: tuple[NDArray[np.int32], NDArray[np.int32]] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Intersect one partition with a group: number of every row's intersection, and its members.

    Only intersections that hold a row are numbered. `column` (n,) has cells numbered over all
    partitions; `group` is (label (n,), table (k, m)). Returns label (n,), table (k', m + 1).
    """
    low = int(column.min())
    width = int(column.max()) - low + 1
    local = column.astype(np.int64) - low
    keys = local if group is None else group[0].astype(np.int64) * width + local
    size = width * (1 if group is None else len(group[1]))
    if size <= max(4 * len(column), 2**16):  # count by table: no sort
        occupied = np.zeros(size, bool)
        occupied[keys] = True
        present = np.flatnonzero(occupied)
        number = np.empty(size, np.int32)
        number[present] = np.arange(len(present), dtype=np.int32)
        label = number[keys]
    else:
        present, inverse = np.unique(keys, return_inverse=True)
        label = inverse.reshape(-1).astype(np.int32)
    cells = (present % width + low).astype(np.int32)[:, None]
    if group is None:
        return label, cells
    return label, np.concatenate([group[1][present // width], cells], axis=1)
