"""Sums of the weights of the cells that codes name, with the same rounding for any rows together.

The biases of 64 partitions are added up, and then these sums; so are the slopes of 128 linear
partitions, by a sparse matrix with one row for every row and such part. Of few rows all parts are
summed in one call, of many rows one after the other, so that weights and sums stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import EllipsisType

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from jointleaf._core.layout import CellLayout
from jointleaf._model.contributions import padded, sum_of_entries
from jointleaf._trees.routing import small_buffers

_PARTITIONS = 64  # whose biases are summed together
_LINEAR_PARTITIONS = 128  # whose slopes are
_ENTRIES = 2**16  # that are gathered together: they stay in the second-level cache
_FEW_ROWS = 64  # up to which buffers save time
_BLOCK_BYTES = 2**19  # the same for sums of slopes of several outputs


class CodeSums:
    """Sums of the weights of some partitions for one output, or for all (`...`).

    `may_miss` says whether rows may lie in no cell (code -1).
    """

    def __init__(
        self,
        layout: CellLayout,
        slopes: NDArray,
        biases: NDArray,
        output: int | EllipsisType,
        partitions: NDArray[np.intp],
        *,
        may_miss: bool = True,
    ) -> None:
        self.output, self._may_miss = output, may_miss
        chosen = layout.only(partitions)
        is_all = len(partitions) == layout.n_partitions
        self._partitions = None if is_all else partitions
        if not is_all:
            is_chosen = np.isin(layout.partition_of_cell, partitions)
            biases, slopes = biases[is_chosen], slopes[is_chosen[layout.linear_cells]]
        self._biases = _Table(biases[:, output])
        self._slopes = _Table(slopes[:, :, output])
        self._starts = chosen.offsets[:-1].astype(np.int32)
        linear = np.flatnonzero([kind == "linear" for kind in chosen.kinds])
        slope_starts = chosen.slope_rows[chosen.offsets[linear]].astype(np.int32)
        self._linear = [
            (_run(linear[b : b + _LINEAR_PARTITIONS]), slope_starts[b : b + _LINEAR_PARTITIONS])
            for b in range(0, len(linear), _LINEAR_PARTITIONS)
        ]

    def __call__(self, Z: NDArray, codes: NDArray[np.int32]) -> NDArray:
        """Return sums (n[, K]) of rows with linear features Z (n, m) and codes (P, n)."""
        codes = codes if self._partitions is None else codes[self._partitions]
        sums = self._bias_sums(codes, self._biases.of(Z.dtype))
        if self._slopes.size:
            slopes = self._slopes.of(Z.dtype)
            step = max(256, _BLOCK_BYTES // slopes[0].nbytes)
            for rows in (slice(start, start + step) for start in range(0, len(Z), step)):
                slope_sums = self._slope_sums(codes[:, rows], slopes)
                sums[rows] += np.einsum("ij,ij...->i...", Z[rows], slope_sums)
        return sums

    def _bias_sums(self, codes: NDArray[np.int32], biases: NDArray) -> NDArray:
        n_partitions, n = codes.shape
        if biases.ndim > 1:
            index = self._index(codes, self._starts, biases)
            return sum_of_entries(np.ascontiguousarray(index.T), biases)
        if n == 1:  # one row alone would be added up in another order
            return self._bias_sums(np.repeat(codes, 2, axis=1), biases)[:1]
        sums = np.zeros(n, biases.dtype)
        step = _PARTITIONS * max(1, _ENTRIES // (_PARTITIONS * max(1, n)))
        size = min(step, n_partitions)
        index, entries = np.empty((size, n), np.intp), np.empty((size, n), biases.dtype)
        for begin in range(0, n_partitions, step):
            here = slice(begin, min(begin + step, n_partitions))
            i, found = (a[: here.stop - begin] for a in (index, entries))
            i[:] = self._index(codes[here], self._starts[here], biases)
            biases.take(i, 0, found, "clip")
            n_whole = len(found) // _PARTITIONS
            whole = found[: n_whole * _PARTITIONS].reshape(n_whole, _PARTITIONS, n)
            for part in np.add.reduce(whole, axis=1):
                sums += part
            sums += np.add.reduce(found[n_whole * _PARTITIONS :], axis=0)
        return sums

    def _index(
        self, codes: NDArray[np.int32], starts: NDArray[np.int32], table: NDArray
    ) -> NDArray[np.int32]:
        """Return the entries (P, n) of a table that codes name."""
        if codes.shape[1] < _FEW_ROWS:
            index = codes + starts[:, None]
        else:
            with small_buffers():
                index = codes + starts[:, None]
        if self._may_miss:
            np.copyto(index, len(table) - 1, where=codes < 0)
        return index

    def _slope_sums(self, codes: NDArray[np.int32], slopes: NDArray) -> NDArray:
        """Return sums (n, m[, K]) of the slopes of the cells of rows."""
        table, n = slopes.reshape(len(slopes), -1), codes.shape[1]
        total = np.zeros((n, table.shape[1]), table.dtype)
        for parts in self._together(n):
            sizes = [len(starts) for _, starts in parts]
            indices = np.empty(n * sum(sizes), np.int32)
            begin = 0
            for (partitions, starts), size in zip(parts, sizes, strict=True):
                here = indices[begin : begin + n * size].reshape(n, size)
                here[:] = self._index(codes[partitions], starts, table).T
                begin += here.size
            indptr = np.append(0, np.cumsum(np.repeat(sizes, n))).astype(np.int32)
            ones = np.ones(len(indices), table.dtype)
            shape = len(indptr) - 1, len(table)
            sums = sparse.csr_array((ones, indices, indptr), shape=shape) @ table
            for part in sums.reshape(len(parts), *total.shape):
                total += part
        return total.reshape(n, *slopes.shape[1:])

    def _together(self, n_rows: int) -> Iterator[list]:
        step = max(1, _ENTRIES // (_LINEAR_PARTITIONS * max(1, n_rows)))
        for begin in range(0, len(self._linear), step):
            yield self._linear[begin : begin + step]


class _Table:
    """Weights, with a row of zeros at the end, in the type of the rows."""

    def __init__(self, weights: NDArray) -> None:
        self._weights, self.size = weights, weights.size
        self._by_type: dict[np.dtype, NDArray] = {}

    def of(self, dtype: np.dtype) -> NDArray:
        """Return the weights in a type."""
        if dtype not in self._by_type:
            self._by_type[dtype] = np.ascontiguousarray(padded(self._weights), dtype)
        return self._by_type[dtype]


def _run(numbers: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return rising numbers as a slice where they are consecutive."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first == len(numbers) - 1 else numbers
