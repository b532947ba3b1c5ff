"""From the leaf ids of a tree library to compact codes, through one flat table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf.partitions.base import NO_CELL

__all__ = ["CellNumbering"]

#: Elements encoded at a time: the temporary arrays stay in cache and small.
_BLOCK_ELEMENTS = 1 << 18


class CellNumbering:
    """Compact cell numbers for the leaf ids that training rows reached.

    Partition p owns a stretch of a flat table: one entry per id 0..m_p, where m_p is its
    largest id met in training, and one last entry that is always `NO_CELL`. Ids beyond
    the stretch (and negative ones) are sent to that last entry, so that looking up any
    id is one gather and never an error.

    Parameters
    ----------
    leaf_ids : integer ndarray (n, P)
        Leaf ids of the training rows, not negative.

    Attributes
    ----------
    n_cells : ndarray (P,)
        Number of ids met in each partition.
    """

    def __init__(self, leaf_ids: NDArray) -> None:
        n_rows, n_partitions = leaf_ids.shape
        if n_rows == 0 or leaf_ids.min(initial=0) < 0:
            raise ValueError("leaf_ids needs at least one row and no negative ids.")
        #: Position of the `NO_CELL` entry within each partition's stretch.
        self._last = leaf_ids.max(axis=0).astype(np.int64) + 1
        ends = np.cumsum(self._last + 1)
        self._start = ends - (self._last + 1)
        met = np.zeros(int(ends[-1]) if n_partitions else 0, dtype=bool)
        for rows in _row_blocks(n_rows, n_partitions):
            met[leaf_ids[rows] + self._start] = True
        total = np.concatenate([[0], np.cumsum(met)])
        before = total[self._start]
        self.n_cells = (total[ends] - before).astype(np.intp)
        number = total[1:] - 1 - np.repeat(before, self._last + 1)
        self._table = np.where(met, number, NO_CELL).astype(np.int32)

    def encode(self, leaf_ids: NDArray, out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
        """Give the codes of leaf ids.

        Parameters
        ----------
        leaf_ids : integer ndarray (n, P)
            Any integers; those not met in training give `NO_CELL`.
        out : int32 ndarray (n, P), optional
            Where to write the codes; may be `leaf_ids` itself.

        Returns
        -------
        ndarray (n, P), int32
        """
        codes = np.empty(leaf_ids.shape, dtype=np.int32) if out is None else out
        if leaf_ids.dtype.itemsize < 4:
            leaf_ids = leaf_ids.astype(np.int32)
        # Seen as unsigned, a negative id is a huge one: a single minimum catches both ends.
        unsigned = leaf_ids.view(np.dtype(f"u{leaf_ids.dtype.itemsize}"))
        last = self._last.astype(unsigned.dtype)
        for rows in _row_blocks(*leaf_ids.shape):
            position = np.minimum(unsigned[rows], last).astype(np.intp)
            position += self._start
            codes[rows] = self._table[position]
        return codes


def _row_blocks(n_rows: int, n_partitions: int) -> list[slice]:
    step = max(1, _BLOCK_ELEMENTS // max(1, n_partitions))
    return [slice(start, start + step) for start in range(0, n_rows, step)]
