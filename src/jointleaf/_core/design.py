"""The design: the linear operator from all cell weights to predictions, never a dense matrix.

With the codes one-hot in a sparse Z (n x C, one entry per row and partition), the rows X
with a column of ones behind them, and weights theta (C, q) kept cell-major,

    forward   f = rowsum((Z @ theta) * X)          adjoint   G = Z.T @ (r[:, None] * X).

Both cost O(n P q) and run in SciPy's compiled sparse products, block of rows by block of rows.

**Merged partitions.** Rows that share their cell in every partition of a group see the same
sum of weights, so that a group of partitions can be replaced by one whose cells are the
non-empty intersections: Z = M T, where M has one entry per row and *group*, and T adds
up the members of every intersection. With small trees this makes a pass several times cheaper
and is exact. `merge_partitions` builds it; iterative solvers ask for it, a single pass does not.

**Small problems.** Where the whole of Phi has a hundred thousand entries at most, iterative solvers
spend their time on calls, not on arithmetic: `merge_partitions` then makes it a dense matrix.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from jointleaf._core.design_base import Block, Design
from jointleaf._core.layout import CellKind, CellLayout, check_codes

__all__ = ["LeafDesign"]

_BLOCK_BYTES = 2**19  # a block's products stay in the second-level cache
_MAX_BLOCK_ROWS = 8192
_MAX_SEGMENTS = 8  # the adjoint's partial sums: fixed, so that n_jobs cannot change a bit
_SEGMENT_BYTES = 2**28  # and their memory
_COUNTS = 2**15  # entries of a table of counts that stays in the cache
_DENSE_ENTRIES = 2**17  # of Phi, up to which it is dense for iterative solvers
_TABLE_BYTES = 2**17  # weights of one group's merged cells: beyond, gathers leave the cache


@dataclass(frozen=True)
class _Group:
    """Partitions that are passed over as one.

    `members` are the partitions; `table` (k, m) holds the cell of each member for every merged
    cell (C stands for "no cell"); `start` is the group's first merged cell.
    """

    members: range
    table: NDArray[np.int32]
    start: int


class _Block(NamedTuple):
    """A block of rows with its part of M, and that transposed: both are views of the codes."""

    rows: slice
    part: sparse.csr_array
    transposed: sparse.csc_array


class LeafDesign(Design):
    """Maps all cell weights to predictions and back.

    Parameters
    ----------
    X : array (n, d)
        Rows, used as given (standardise before).
    codes : integer array (n, P)
        Cell of every partition in which each row falls; -1 for none (zero contribution).
    n_cells : integers (P,), optional
        Cells of every partition; by default the largest code plus one.
    cells : {"linear", "constant"}
        Linear cells have d slopes and a bias, constant cells a bias only.
    dtype : float32 or float64, optional
        Of all products; by default that of X (float64 unless X is float32).
    n_jobs : int
        Threads over blocks of rows. The results are bit-identical for every value.
    """

    def __init__(
        self,
        X: ArrayLike,
        codes: ArrayLike,
        n_cells: ArrayLike | None = None,
        *,
        cells: CellKind = "linear",
        dtype: DTypeLike | None = None,
        n_jobs: int = 1,
    ) -> None:
        X = np.asarray(X)
        self.dtype = np.dtype(dtype or (np.float32 if X.dtype == np.float32 else np.float64))
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype={self.dtype} is not supported: use float32 or float64")
        checked, counts = check_codes(codes, X.shape[0], n_cells, allow_no_cell=True)
        self.layout = CellLayout(counts, X.shape[1], cells)
        self.n_rows = X.shape[0]
        self.n_jobs = max(1, n_jobs)
        self.rows = X  # as given, also where constant cells have no use for it
        self.X = self._with_ones(X)
        self._pool: ThreadPoolExecutor | None = None
        self._is_merged = False
        self._plain(checked)

    def _with_ones(self, X: NDArray) -> NDArray:
        rows = np.ones((self.n_rows, self.layout.n_columns), self.dtype)
        rows[:, : self.layout.n_slopes] = X[:, : self.layout.n_slopes]
        return rows

    def blocks(self) -> list[Block]:
        """One: all rows and all cells."""
        return [Block(slice(0, self.n_rows), slice(0, self.layout.n_cells), self)]

    @property
    def largest_value(self) -> float:
        """Largest absolute value of a row, the one for the bias among them."""
        return float(np.abs(self.X).max())

    # -- partitions, one by one or merged ------------------------------------------------------

    def _plain(self, codes: NDArray) -> None:
        """Every partition is its own group; -1 points to a row of zeros behind the weights."""
        layout = self.layout
        cells = np.empty(codes.shape, np.int32)
        np.add(codes, layout.offsets[:-1], out=cells, casting="unsafe")
        missing = codes < 0
        self._has_missing = bool(missing.any())
        if self._has_missing:
            cells[missing] = layout.n_cells
        self._set_groups(cells, None)

    def _set_groups(self, merged: NDArray[np.int32], groups: list[_Group] | None) -> None:
        self._merged = merged  # (n, number of groups), contiguous
        # All entries of M are 1 and all its rows have as many: two arrays serve every block.
        rows, width = min(_MAX_BLOCK_ROWS, max(self.n_rows, 1)), merged.shape[1]
        self._ones = _shared_ones(rows * width, self.dtype)
        self._indptr = np.arange(0, rows * width + 1, width, dtype=np.int32)
        self._kept_blocks: dict[tuple[int, int, int], list[_Block]] = {}
        self._kept_segments: dict[int, NDArray[np.int64]] = {}
        self._dense: NDArray | None = None
        self._groups = groups
        self._adder: sparse.csr_array | None = None
        self._adder_transposed: sparse.csc_array | None = None
        n_columns = self.layout.n_cells + self._has_missing
        if groups is None:
            self._n_merged = n_columns
            return
        self._n_merged = groups[-1].start + len(groups[-1].table)
        indices = np.concatenate([g.table.ravel() for g in groups])
        sizes = np.concatenate([np.full(len(g.table), len(g.members)) for g in groups])
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        self._adder = sparse.csr_array(
            (np.ones(len(indices), self.dtype), indices, indptr), shape=(self._n_merged, n_columns)
        )
        self._adder_transposed = self._adder.T

    def merge_partitions(self) -> LeafDesign:
        """Merge neighbouring partitions where that makes passes cheaper; gives the design."""
        if self._is_merged:
            return self
        self._is_merged = True
        if self.n_rows * self.layout.n_cells * self.layout.n_columns <= _DENSE_ENTRIES:
            self._dense = self._dense_matrix()
            return self
        if self.layout.n_partitions == 1 or self.n_rows == 0:
            return self
        groups: list[_Group] = []
        columns: list[NDArray[np.int32]] = []
        start = first = 0
        while first < self.layout.n_partitions:
            label, table = self._grow_group(first)
            groups.append(_Group(range(first, first + table.shape[1]), table, start))
            columns.append(label + np.int32(start))
            start += len(table)
            first += table.shape[1]
        if len(groups) < self.layout.n_partitions:
            self._set_groups(np.ascontiguousarray(np.stack(columns, axis=1)), groups)
        return self

    def _dense_matrix(self) -> NDArray:
        """Phi, (n, C, q)."""
        matrix = np.zeros((self.n_rows, self.layout.n_cells + 1, self.layout.n_columns), self.dtype)
        for column in self.cells().T:
            matrix[np.arange(self.n_rows), column] = self.X
        return np.ascontiguousarray(matrix[:, :-1])

    def _grow_group(self, first: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Merge partitions from `first` on while the cost per member, n/m + k, falls."""
        label, table = _relabel(self._merged[:, first], None)
        cost = float(self.n_rows + len(table))
        for p in range(first + 1, self.layout.n_partitions):
            new_label, new_table = _relabel(self._merged[:, p], (label, table))
            new_cost = self.n_rows / (p - first + 1) + len(new_table)
            table_bytes = len(new_table) * self.layout.n_columns * self.dtype.itemsize
            if new_cost > 0.97 * cost or table_bytes > _TABLE_BYTES:
                break
            label, table, cost = new_label, new_table, new_cost
        return label, table

    def in_double(self) -> LeafDesign:
        """Give the same design in float64."""
        cells = self.cells()
        codes = np.where(cells == self.layout.n_cells, -1, cells - self.layout.offsets[:-1])
        return LeafDesign(
            self.X[:, : self.layout.n_slopes].astype(float)
            if self.layout.n_slopes
            else np.zeros((self.n_rows, self.layout.n_features)),
            codes,
            self.layout.cells_per_partition,
            cells=self.layout.kind,
            n_jobs=self.n_jobs,
        )

    def with_features(self, features: NDArray[np.intp]) -> LeafDesign:
        """Give the design of linear cells that see only some features."""
        other = copy.copy(self)
        other.layout = self.layout.with_features(len(features))
        other.X = np.ascontiguousarray(self.X[:, np.append(features, -1)])
        other._set_groups(self.cells(), None)
        other._is_merged = False  # fewer columns: more partitions may be worth merging
        return other

    # -- blocks and threads --------------------------------------------------------------------

    def _block_rows(self, n_values: int) -> int:
        """Rows of a block, a power of two, so that few sizes are in use."""
        fits = _BLOCK_BYTES // (n_values * self.dtype.itemsize)
        return min(max(1 << (max(fits, 1).bit_length() - 1), 256), _MAX_BLOCK_ROWS)

    def _blocks(self, start: int, stop: int, n_values: int) -> list[_Block]:
        """Blocks of rows with their part of M as a sparse matrix; kept for the next pass."""
        size = self._block_rows(n_values)
        key = (start, stop, size)
        if key not in self._kept_blocks:
            self._kept_blocks[key] = self._make_blocks(start, stop, size)
        return self._kept_blocks[key]

    def _make_blocks(self, start: int, stop: int, size: int) -> list[_Block]:
        blocks = []
        for begin in range(start, stop, size):
            end = min(begin + size, stop)
            indices = self._merged[begin:end].ravel()  # views, here and below: nothing is copied
            block = sparse.csr_array(
                (self._ones[: len(indices)], indices, self._indptr[: end - begin + 1]),
                shape=(end - begin, self._n_merged),
            )
            blocks.append(_Block(slice(begin, end), block, block.T))
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

    def _segments(self, out_bytes: int) -> NDArray[np.int64]:
        """Row bounds of the adjoint's partial sums: they depend on the problem alone."""
        by_memory = _SEGMENT_BYTES // max(1, out_bytes)
        by_work = self.n_rows // 2048
        if out_bytes:  # adding up the partial sums must stay a small part of the pass
            by_work = min(by_work, self._merged.size // (8 * self._n_merged))
        count = max(1, min(_MAX_SEGMENTS, by_memory, by_work))
        if count not in self._kept_segments:
            self._kept_segments[count] = np.linspace(0, self.n_rows, count + 1).astype(np.int64)
        return self._kept_segments[count]

    # -- products ------------------------------------------------------------------------------

    def _tables(self, theta: NDArray) -> NDArray:
        """Weights of every merged cell, (C_m, q K)."""
        flat = np.ascontiguousarray(theta.reshape(self.layout.n_cells, -1), dtype=self.dtype)
        if self._has_missing:
            flat = np.concatenate([flat, np.zeros((1, flat.shape[1]), self.dtype)])
        return flat if self._adder is None else self._adder @ flat

    def matvec(self, theta: NDArray) -> NDArray:
        """Predictions f (n,) or (n, K) of weights theta (C, q) or (C, q, K)."""
        if self._dense is not None:
            flat = theta.reshape(-1, *theta.shape[2:]).astype(self.dtype, copy=False)
            return self._dense.reshape(self.n_rows, -1) @ flat
        q = self.layout.n_columns
        tables = self._tables(theta)
        n_outputs = tables.shape[1] // q
        f = np.empty((self.n_rows, n_outputs), self.dtype)

        def job(begin: int, end: int) -> None:
            for rows, block, _ in self._blocks(begin, end, tables.shape[1]):
                sums = (block @ tables).reshape(-1, q, n_outputs)
                if q == 1:
                    f[rows] = sums[:, 0]
                elif n_outputs == 1:
                    np.einsum("ij,ij->i", self.X[rows], sums[:, :, 0], out=f[rows, 0])
                else:
                    np.einsum("ij,ijk->ik", self.X[rows], sums, out=f[rows])

        self._run(job, self._segments(0))
        return f[:, 0] if theta.ndim == 2 else f

    def row_weights(self, theta: NDArray) -> NDArray:
        """Weights that act on every row, summed over its cells: (n, q) or (n, q, K)."""
        tables = self._tables(theta)
        sums = [block @ tables for _, block, _ in self._blocks(0, self.n_rows, tables.shape[1])]
        return np.concatenate(sums).reshape(self.n_rows, *theta.shape[1:])

    def rmatvec(self, r: NDArray) -> NDArray:
        """Adjoint: G (C, q) or (C, q, K) with G_c = sum over rows n in cell c of r_n x_n."""
        r = np.asarray(r, dtype=self.dtype)
        if self._dense is not None:
            products = self._dense.reshape(self.n_rows, -1).T @ r
            return products.reshape(*self.layout_shape, *r.shape[1:])
        G = self._scatter(r.reshape(self.n_rows, -1), self.X)
        return G[:, :, 0] if r.ndim == 1 else G

    def bias_matvec(self, biases: NDArray) -> NDArray:
        """Predictions f of biases (C,) or (C, K) alone: Z b."""
        if self._dense is not None:
            return self._dense[:, :, -1] @ biases.astype(self.dtype, copy=False)
        tables = self._tables(biases)
        f = np.empty((self.n_rows, tables.shape[1]), self.dtype)
        for rows, block, _ in self._blocks(0, self.n_rows, tables.shape[1]):
            f[rows] = block @ tables
        return f[:, 0] if biases.ndim == 1 else f

    def bias_rmatvec(self, r: NDArray) -> NDArray:
        """Sums of r (n,) or (n, K) over the rows of every cell, (C,) or (C, K): Z^T r."""
        r = np.asarray(r, dtype=self.dtype)
        if self._dense is not None:
            return self._dense[:, :, -1].T @ r
        sums = self._scatter(r.reshape(self.n_rows, -1), self.X[:, -1:])[:, 0]
        return sums[:, 0] if r.ndim == 1 else sums

    def _scatter(self, r: NDArray, X: NDArray) -> NDArray:
        """Sum r_n x_n over the rows of every cell: (C, columns of X, K)."""
        width, n_outputs = X.shape[1], r.shape[1]
        bounds = self._segments(self._n_merged * width * n_outputs * self.dtype.itemsize)
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
        return total[: self.layout.n_cells].reshape(self.layout.n_cells, width, n_outputs)

    # -- second-order pieces -------------------------------------------------------------------

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        """Gram matrices of all cells, (C, q, q): sum over a cell's rows of h_n x_n x_n^T."""
        q = self.layout.n_columns
        grams = np.empty((self.layout.n_cells, q, q))
        for i in range(q):  # one triangle, a row of it at a time: memory stays O(C q)
            weights = (h * self.X[:, i])[:, None].astype(self.dtype)
            part = self._scatter(weights, self.X[:, i:])[:, :, 0]
            grams[:, i, i:] = part
            grams[:, i:, i] = part
        return grams

    def cell_diagonals(self, h: NDArray) -> NDArray[np.float64]:
        """Diagonals of `cell_grams`, (C, q): sum over a cell's rows of h_n x_n^2."""
        squares = np.square(self.X)
        return self._scatter(np.asarray(h, self.dtype)[:, None], squares)[:, :, 0].astype(float)

    def bias_gram(self, h: NDArray | None = None) -> NDArray[np.float64]:
        """Weight of the rows that every two cells share: Z^T diag(h) Z, (C, C); h = 1 if None.

        The matrix is symmetric and large: its upper triangle is filled, the rest is not.
        """
        cells, offsets, C = self.cells(), self.layout.offsets, self.layout.n_cells
        gram = np.empty((C, C))  # empty, then filled: huge pages, with far fewer page faults
        gram.fill(0.0)
        exact = np.float32 if h is None and self.n_rows < 2**24 else np.float64
        for label, table, members in self._merged_labels():
            begin, end = offsets[members.start], offsets[members.stop]
            rows = np.minimum(table - begin, end - begin)  # the last collects "no cell"
            adder = sparse.csc_array(
                (
                    np.ones(rows.size, exact),
                    rows.ravel(),
                    np.arange(0, rows.size + 1, rows.shape[1]),
                ),
                shape=(int(end - begin) + 1, len(table)),
            )
            # Against the cells of its own and of later partitions, as many at a time as have
            # counts that fit into the cache.
            low = members.start
            while low < self.layout.n_partitions:
                most = offsets[low] + _COUNTS // len(table)
                high = max(low + 1, int(np.searchsorted(offsets, most, side="right")) - 1)
                width = int(offsets[high] - offsets[low]) + 1
                local = cells[:, low:high] - offsets[low]
                if self._has_missing:
                    local = np.minimum(local, width - 1)
                keys = (label.astype(np.int64) * width)[:, None] + local
                weights = None if h is None else np.repeat(np.asarray(h, float), high - low)
                counts = np.bincount(keys.ravel(), weights, minlength=len(table) * width)
                products = adder @ counts.reshape(len(table), width).astype(exact)
                gram[begin:end, offsets[low] : offsets[high]] = products[:-1, :-1]
                low = high
        return gram

    def cells(self) -> NDArray[np.int32]:
        """Cell of every row in every partition, (n, P), numbered over all of them; C for none."""
        if self._groups is None:
            return self._merged
        return np.concatenate(
            [g.table[self._merged[:, i] - g.start] for i, g in enumerate(self._groups)], axis=1
        )

    def _merged_labels(self) -> Iterator[tuple[NDArray, NDArray, range]]:
        """Merged cell of every row, the members of every merged cell, and the partitions."""
        if self._groups is None:
            for p in range(self.layout.n_partitions):
                yield *_relabel(self._merged[:, p], None), range(p, p + 1)
        else:
            for i, group in enumerate(self._groups):
                yield self._merged[:, i] - group.start, group.table, group.members


_ONES: WeakValueDictionary[tuple[int, str], NDArray] = WeakValueDictionary()


def _shared_ones(size: int, dtype: np.dtype) -> NDArray:
    """An array of ones, the same for all designs that are alive: tasks have one design each."""
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
    partitions; `group` is (label (n,), table (k, m)). Gives label (n,), table (k', m + 1).
    """
    low = int(column.min())
    width = int(column.max()) - low + 1
    local = column.astype(np.int64) - low
    keys = local if group is None else group[0].astype(np.int64) * width + local
    size = width * (1 if group is None else len(group[1]))
    if size <= max(4 * len(column), 2**16):  # count by table: no sort
        occupied = np.zeros(size, bool)
        occupied[keys] = True
        found = np.flatnonzero(occupied)
        number = np.empty(size, np.int32)
        number[found] = np.arange(len(found), dtype=np.int32)
        label = number[keys]
    else:
        found, inverse = np.unique(keys, return_inverse=True)
        label = inverse.reshape(-1).astype(np.int32)
    own = (found % width + low).astype(np.int32)[:, None]
    if group is None:
        return label, own
    return label, np.concatenate([group[1][found // width], own], axis=1)
