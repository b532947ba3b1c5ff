"""Sums over cells: the passes of a design over partitions of one kind.

**Merged partitions.** Rows that share their cell in every partition of a group see the same
sum of weights, so that a group of partitions can be replaced by one whose cells are the
non-empty intersections: Z = M T, where M has one entry per row and *group*, and T adds
up the members of every intersection. With small trees this makes a pass several times cheaper
and is exact. `merge_partitions` builds it; iterative solvers ask for it, a single pass does not.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from jointleaf._core.layout import CellLayout

# Of a product with a block of rows, below what malloc asks the system for every time anew: in
# processes with a fixed threshold, such as Dask's workers, that would cost more than the product.
_BLOCK_BYTES = 2**17 - 1
_MIN_BLOCK_ROWS, _MAX_BLOCK_ROWS = 128, 8192
_TILE_ROWS = 1024  # codes become columns of so many rows at a time
_MOST_MATRICES = 8  # of different shapes that a workspace keeps
_ADJOINT_BYTES = 2**25  # of what the adjoint computes from at a time
_COLUMNS = 16  # of codes that are turned at a time
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


class _Workspace:
    """Memory of one thread: blocks of rows of M as sparse matrices, and their products."""

    def __init__(self, dtype: np.dtype) -> None:
        self._columns, self._ones = np.empty(0, np.int32), np.empty(0, dtype)
        self._products = np.empty(0, dtype)
        self._matrices: dict[tuple[Any, ...], Any] = {}
        self._tiled: tuple[NDArray, NDArray] | None = None

    def matrix(self, codes: NDArray, offsets: NDArray[np.int32], n_columns: int) -> Any:
        """Return the block of M of codes (n, width), a CSR matrix, good until the next call."""
        return self._matrix(sparse.csr_array, codes, offsets, n_columns)

    def transposed(self, codes: NDArray, offsets: NDArray[np.int32], n_columns: int) -> Any:
        """Return its transpose."""
        return self._matrix(sparse.csc_array, codes, offsets, n_columns)

    def _matrix(self, form: Any, codes: NDArray, offsets: NDArray, n_columns: int) -> Any:
        n, width = codes.shape
        if self._columns.size < codes.size:
            self._columns = np.empty(codes.size, np.int32)
            self._ones = np.ones(codes.size, self._ones.dtype)
            self._matrices = {}
        self._fill(codes, offsets)
        key = (form, n, width, n_columns)
        if key not in self._matrices:
            if len(self._matrices) > _MOST_MATRICES:
                self._matrices = {}
            shape = (n, n_columns) if form is sparse.csr_array else (n_columns, n)
            matrix = form(shape, dtype=self._ones.dtype)
            # All entries of M are 1 and all its rows have as many. Views are put in afterwards:
            # given to the constructor, those of much larger arrays are copied.
            matrix.data, matrix.indices = self._ones[: codes.size], self._columns[: codes.size]
            matrix.indptr = np.arange(0, codes.size + 1, width, dtype=np.int32)
            self._matrices[key] = matrix
        return self._matrices[key]

    def _fill(self, codes: NDArray, offsets: NDArray[np.int32]) -> None:
        """Write codes plus offsets into the columns; offsets written out are added faster."""
        n, width = codes.shape
        if self._tiled is None or self._tiled[0] is not offsets:
            self._tiled = offsets, np.tile(offsets, (_TILE_ROWS, 1))
        columns = self._columns[: codes.size].reshape(n, width)
        for first in range(0, n, _TILE_ROWS):
            part = columns[first : first + _TILE_ROWS]
            np.copyto(part, codes[first : first + _TILE_ROWS])
            np.add(part, self._tiled[1][: len(part)], out=part)

    def products(self, *shape: int) -> NDArray:
        """Return an array to be filled, the same memory at every call."""
        size = int(np.prod(shape))
        if self._products.size < size:
            self._products = np.empty(size, self._products.dtype)
        return self._products[:size].reshape(shape)


class Workspaces:
    """Memory that all designs of a precision share, as much as threads use at a time."""

    def __init__(self, dtype: np.dtype) -> None:
        self._dtype, self._free = dtype, deque[_Workspace]()

    @contextmanager
    def lend(self) -> Iterator[_Workspace]:
        """Lend a workspace to one thread; it is kept for the next."""
        try:
            space = self._free.pop()
        except IndexError:
            space = _Workspace(self._dtype)
        yield space
        self._free.append(space)


_SHARED: WeakValueDictionary[np.dtype, Workspaces] = WeakValueDictionary()


def shared_workspaces(dtype: np.dtype) -> Workspaces:
    """Return the workspaces of a precision; they are freed with the last one who keeps them."""
    workspaces = _SHARED.get(dtype)
    if workspaces is None:
        workspaces = _SHARED[dtype] = Workspaces(dtype)
    return workspaces


class CellSums:
    """Partitions of one kind: sums over a row's cells, and over the rows of every cell.

    `codes` (n, P) plus `starts` (P,) is the cell of every row in every partition, numbered over
    these partitions, C for none; `partitions` (P,) and `numbers` (C + 1,) are the numbers of the
    partitions and of the cells (and "no cell") in the layout; X (n, q) are rows with a one in the
    last column, None for constant cells, which have nothing but that one.
    """

    def __init__(
        self,
        codes: NDArray,
        starts: NDArray[np.int32],
        partitions: NDArray[np.intp],
        numbers: NDArray[np.int32],
        X: NDArray | None,
        dtype: DTypeLike,
        n_jobs: int,
    ) -> None:
        self.partitions, self.numbers, self.X, self.n_jobs = partitions, numbers, X, n_jobs
        self.dtype, self.n_rows, self.n_cells = np.dtype(dtype), len(codes), len(numbers) - 1
        self.q = 1 if X is None else X.shape[1]
        self._starts = starts
        blocks = range(0, len(codes), _MAX_BLOCK_ROWS)
        self._has_missing = any(
            (codes[first : first + _MAX_BLOCK_ROWS] == self.n_cells - starts).any()
            for first in blocks
        )
        self._set_groups(codes, starts, None)

    @classmethod
    def of_codes(
        cls,
        codes: NDArray,
        layout: CellLayout,
        partitions: NDArray,
        X: NDArray | None,
        dtype: DTypeLike,
        n_jobs: int,
        *,
        is_owned: bool = False,
    ) -> CellSums:
        """Return the sums of some partitions of a layout; -1 in the codes is no cell.

        Codes that are owned may be changed, which saves a copy.
        """
        if len(partitions) < layout.n_partitions:
            first, last = partitions[0], partitions[-1] + 1
            is_run = last - first == len(partitions)
            codes = codes[:, first:last] if is_run else codes[:, partitions]
        sizes = np.asarray(layout.cells_per_partition)[partitions]
        starts = (np.cumsum(sizes) - sizes).astype(np.int32)
        has_missing = codes.size > 0 and codes.min() < 0
        largest = sizes.sum() if has_missing else sizes.max() - 1
        dtype_of_codes = np.dtype(_code_dtype(largest))
        missing = codes < 0 if has_missing else None
        if is_owned and codes.dtype.itemsize == dtype_of_codes.itemsize:
            local = codes.view(dtype_of_codes)
        else:
            local = codes.astype(dtype_of_codes)
        if missing is not None:
            local[missing] = np.broadcast_to(sizes.sum() - starts, codes.shape)[missing]
        owned = np.isin(layout.partition_of_cell, partitions)
        numbers = np.append(np.flatnonzero(owned), layout.n_cells).astype(np.int32)
        return cls(local, starts, partitions, numbers, X, dtype, n_jobs)

    def with_rows(self, X: NDArray) -> CellSums:
        """Return the sums over other rows in the same cells, not merged."""
        return self._unmerged(self.partitions, self.numbers, X)

    def alone(self) -> CellSums:
        """Return the sums in a layout that has these partitions and no others, not merged."""
        numbers = np.arange(self.n_cells + 1, dtype=np.int32)
        return self._unmerged(np.arange(len(self.partitions)), numbers, self.X)

    def narrowed(self, X: NDArray) -> CellSums:
        """Return the sums over other rows in the same cells, merged as they are."""
        sums = copy.copy(self)
        sums.X, sums.q = X, X.shape[1]
        return sums

    def _unmerged(self, partitions: NDArray, numbers: NDArray, X: NDArray | None) -> CellSums:
        codes = self.cells() - self._starts
        codes = codes.astype(_code_dtype(codes.max(initial=0)))
        return CellSums(codes, self._starts, partitions, numbers, X, self.dtype, self.n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again: memory, threads and the sparse form of the groups."""
        left_out = {"_pool", "_workspaces", "_turned", "_adder", "_adder_transposed"}
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_groups(self._merged, self._offsets, self.groups)

    def __sizeof__(self) -> int:
        arrays = [self._merged, self.numbers, *(group.table for group in self.groups or [])]
        if self._adder is not None:
            arrays += [self._adder.data, self._adder.indices, self._adder.indptr]
        return object.__sizeof__(self) + sum(array.nbytes for array in arrays)

    # -- partitions, one by one or merged ------------------------------------------------------

    def _set_groups(
        self, merged: NDArray, offsets: NDArray[np.int32], groups: list[_Group] | None
    ) -> None:
        # (n, number of groups): the merged cell of every row, numbered in its group, contiguous
        self._merged, self._offsets = np.ascontiguousarray(merged), offsets
        self._pool: ThreadPoolExecutor | None = None
        self._workspaces = shared_workspaces(self.dtype)
        self.groups = groups
        self._turned: tuple[int, NDArray] | None = None  # some columns, each contiguous
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
        columns: list[NDArray] = []
        most = max(int(np.diff(self._starts, append=self.n_cells).max()), self._most_merged)
        room = np.empty((0, self.n_rows), _code_dtype(most))
        start = first = 0
        while first < n_partitions:
            label, table = self._grow_group(first)
            number = int(self.partitions[first])
            groups.append(_Group(range(number, number + table.shape[1]), table, start))
            if not len(room):  # many columns at a time: malloc returns large arrays to the system
                room = np.empty((_COLUMNS, self.n_rows), room.dtype)
            room[0] = label
            columns.append(room[0])
            room = room[1:]
            start += len(table)
            first += table.shape[1]
        self._turned = None
        if len(groups) < n_partitions:
            offsets = np.array([group.start for group in groups], np.int32)
            del self._merged  # before the merged cells are there twice
            dtype = _code_dtype(max(len(group.table) for group in groups) - 1)
            merged = np.stack(columns, axis=1, dtype=dtype, casting="unsafe")
            self._set_groups(merged, offsets, groups)

    @property
    def _most_merged(self) -> int:
        """Merged cells whose weights stay in the cache."""
        return _TABLE_BYTES // (self.q * self.dtype.itemsize)

    def _grow_group(self, first: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Merge partitions from `first` on while the cost per member, n/m + k, falls."""
        label, table = _relabel(self._column(first), None)
        cost = float(self.n_rows + len(table))
        for p in range(first + 1, len(self.partitions)):
            if self.partitions[p] != self.partitions[p - 1] + 1:
                break  # a group is a range of the layout's partitions
            new_label, new_table = _relabel(self._column(p), (label, table))
            new_cost = self.n_rows / (p - first + 1) + len(new_table)
            if new_cost > 0.97 * cost or len(new_table) > self._most_merged:
                break
            label, table, cost = new_label, new_table, new_cost
        return label, table

    def _column(self, group: int) -> NDArray[np.int32]:
        """Return the merged cell of every row in one group, numbered over all groups."""
        start = group - group % _COLUMNS
        if self._turned is None or self._turned[0] != start:
            columns = self._merged[:, start : start + _COLUMNS]
            self._turned = start, np.ascontiguousarray(columns.T)
        # With a type: NumPy 1 would add a small offset in the type of the codes, a byte.
        return np.add(self._turned[1][group - start], self._offsets[group], dtype=np.int32)

    def cells(self) -> NDArray[np.int32]:
        """Cell of every row in every partition, (n, P), numbered over these; C for none."""
        if self.groups is None:
            return self._merged + self._offsets
        return np.concatenate(
            [g.table[self._merged[:, i]] for i, g in enumerate(self.groups)], axis=1
        )

    def labels(self) -> Iterator[tuple[NDArray, NDArray, range]]:
        """Yield rows' merged cells, the members of these in the layout, and the partitions."""
        if self.groups is None:
            for i, p in enumerate(self.partitions.tolist()):
                label, table = _relabel(self._column(i), None)
                yield label, self.numbers[table], range(p, p + 1)
        else:
            for i, group in enumerate(self.groups):
                yield self._merged[:, i], self.numbers[group.table], group.members

    # -- blocks and threads --------------------------------------------------------------------

    def _row_sums(self, table: NDArray, begin: int, end: int) -> Iterator[tuple[slice, NDArray]]:
        """Yield blocks of rows and the sums of a table's rows over their cells."""
        fits = _BLOCK_BYTES // (table.shape[1] * self.dtype.itemsize)
        n_blocks = -(-(end - begin) // min(max(fits, _MIN_BLOCK_ROWS), _MAX_BLOCK_ROWS))
        size = -(-(end - begin) // max(n_blocks, 1))
        with self._workspaces.lend() as space:
            for first in range(begin, end, max(size, 1)):
                # The last block begins earlier, to be of the same size: rows do not interact.
                rows = slice(min(first, end - size), min(first + size, end))
                block = space.matrix(self._merged[rows], self._offsets, self._n_merged)
                yield rows, block @ table

    def _cell_sums(self, r: NDArray, X: NDArray | None, begin: int, end: int) -> NDArray:
        """Return the sums of r_n x_n over some rows of every merged cell, (C_m, q K)."""
        width, n_outputs = 1 if X is None else X.shape[1], r.shape[1]
        row_bytes = width * n_outputs * self.dtype.itemsize + 8 * self._merged.shape[1]
        # Every product makes a table of all cells: with enough rows that is a small part of it.
        size = min(max(2 * self._n_merged, _MAX_BLOCK_ROWS), _ADJOINT_BYTES // row_bytes)
        size = max(size, _MIN_BLOCK_ROWS)
        sums = None
        with self._workspaces.lend() as space:
            for first in range(begin, end, size):
                rows = slice(first, min(first + size, end))
                products = r[rows]
                if X is not None:
                    products = space.products(len(products), width, n_outputs)
                    np.multiply(X[rows][:, :, None], r[rows][:, None, :], out=products)
                block = space.transposed(self._merged[rows], self._offsets, self._n_merged)
                part = block @ products.reshape(-1, width * n_outputs)
                sums = part if sums is None else np.add(sums, part, out=sums)
        return np.zeros((self._n_merged, width * n_outputs), self.dtype) if sums is None else sums

    def _run(self, job: Callable[[int, int], Any], bounds: NDArray[np.int64]) -> Iterator[Any]:
        """Yield what the job gives for every segment of rows, on threads where there are any."""
        segments = list(pairwise(bounds.tolist()))
        if self.n_jobs == 1 or len(segments) == 1:
            return (job(begin, end) for begin, end in segments)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs)
        return self._pool.map(job, *zip(*segments, strict=True))

    def segments(self, out_bytes: int) -> NDArray[np.int64]:
        """Row bounds of the adjoint's partial sums: they depend on the problem alone."""
        by_memory = _SEGMENT_BYTES // max(1, out_bytes)
        by_work = self.n_rows // 2048
        if out_bytes:  # adding up the partial sums must stay a small part of the pass
            by_work = min(by_work, self._merged.size // (8 * self._n_merged))
        count = max(1, min(_MAX_SEGMENTS, by_memory, by_work))
        if count == 1:  # of small problems, whose steps take little longer than this
            return np.array([0, self.n_rows], np.int64)
        return np.linspace(0, self.n_rows, count + 1).astype(np.int64)

    # -- products ------------------------------------------------------------------------------

    def table(self, slopes: NDArray | None, biases: NDArray) -> NDArray:
        """Return the weights of every merged cell, (C_m, q K): slopes (L, d, K), biases (C, K).

        Without slopes the table has the biases alone.
        """
        q = 1 if slopes is None else self.q
        table = np.zeros((self.n_cells + self._has_missing, q, biases.shape[1]), self.dtype)
        if slopes is not None and q > 1:
            table[: self.n_cells, :-1] = slopes
        table[: self.n_cells, -1] = biases[self.numbers[:-1]]
        flat = table.reshape(len(table), -1)
        return flat if self._adder is None else self._adder @ flat

    def forward(self, table: NDArray) -> NDArray:
        """Return the predictions (n, K) of a table of weights."""
        n_outputs = table.shape[1] // self.q
        f = np.empty((self.n_rows, n_outputs), self.dtype)

        def job(begin: int, end: int) -> None:
            for rows, sums in self._row_sums(table, begin, end):
                if self.X is None or self.q == 1:
                    f[rows] = sums
                elif n_outputs == 1:
                    np.einsum("ij,ij->i", self.X[rows], sums, out=f[rows, 0])
                else:
                    by_column = sums.reshape(-1, self.q, n_outputs)
                    np.einsum("ij,ijk->ik", self.X[rows], by_column, out=f[rows])

        for _ in self._run(job, self.segments(0)):
            pass
        return f

    def row_sums(self, table: NDArray) -> NDArray:
        """Return the sums of a table's rows over the cells of every row, (n, columns)."""
        total = np.empty((self.n_rows, table.shape[1]), self.dtype)
        for rows, sums in self._row_sums(table, 0, self.n_rows):
            total[rows] = sums
        return total

    def scatter(self, r: NDArray, X: NDArray | None) -> NDArray:
        """Return the sums of r_n x_n over the rows of every cell, (C, columns of X, K).

        Where X is None, x_n is 1.
        """
        width, n_outputs = 1 if X is None else X.shape[1], r.shape[1]
        bounds = self.segments(self._n_merged * width * n_outputs * self.dtype.itemsize)
        parts = self._run(lambda a, b: self._cell_sums(r, X, a, b), bounds)
        total = next(parts)
        for sums in parts:  # as they come: each is as large as all weights of merged cells
            total += sums
        if self._adder is not None:
            total = self._adder_transposed @ total
        return total[: self.n_cells].reshape(self.n_cells, width, n_outputs)


def _code_dtype(largest: int) -> DTypeLike:
    """Return the smallest type of codes up to a number."""
    return np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32


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
