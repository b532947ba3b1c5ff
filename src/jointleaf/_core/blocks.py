"""Rows in blocks: the same cells for more rows than fit into memory.

Every product of a design is a sum over rows, or one number for each of them. A `BlockDesign` passes
over designs of blocks of rows with the same cells, one after the other, and adds up in this order
and in float64: results depend on the blocks alone, not on where they are. Vectors with a number for
every row stay in memory; rows and codes, which are a hundred times as large, need not:
`StoredDesigns` keeps them in files.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.cell_sums import shared_workspaces
from jointleaf._core.design import Block, LeafDesign, TaskDesign

Change = Callable[[LeafDesign], LeafDesign]

_ALIGNMENT = 64  # bytes, of arrays in files


class StoredDesigns:
    """Designs in the files of a folder; one at a time is mapped into memory, and can be read only.

    Partitions are merged before they are written. The files are those of this process: they are
    not a format.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: list[_StoredDesign] = []
        self._changes: tuple[Change, ...] = ()

    def append(self, design: LeafDesign) -> None:
        """Write a design behind the others."""
        path = self._folder / f"block{len(self._files)}.bin"
        self._files.append(_StoredDesign(path, design.merge_partitions()))

    def changed(self, change: Change) -> StoredDesigns:
        """Return the designs with a change that is made whenever one of them is read."""
        designs = StoredDesigns(self._folder)
        designs._files, designs._changes = self._files, (*self._changes, change)
        return designs

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(file.path.stat().st_size for file in self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[LeafDesign]:
        for file in self._files:
            design = file.load()
            for change in self._changes:
                design = change(design)
            yield design


class _StoredDesign:
    """A file with the arrays of one design, and what else it is made of."""

    def __init__(self, path: Path, design: LeafDesign) -> None:
        self.path = path
        buffers: list[pickle.PickleBuffer] = []
        self._rest = pickle.dumps(design, protocol=5, buffer_callback=buffers.append)
        self._bounds: list[tuple[int, int]] = []
        with path.open("wb") as file:
            for buffer in buffers:
                start = file.seek(-(-file.tell() // _ALIGNMENT) * _ALIGNMENT)
                self._bounds.append((start, start + file.write(buffer.raw())))

    def load(self) -> LeafDesign:
        """Return the design; its arrays are views of the file."""
        view = memoryview(b"")
        if any(stop > start for start, stop in self._bounds):
            with self.path.open("rb") as file:
                view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return pickle.loads(self._rest, buffers=[view[a:b] for a, b in self._bounds])


class BlockDesign:
    """Rows of one task in blocks that see the same cells, one block after the other.

    Its methods are those of `LeafDesign`; `designs` are those of the blocks, with one layout and
    dtype, and may have no rows.
    """

    def __init__(self, designs: list[LeafDesign] | StoredDesigns) -> None:
        if not len(designs):
            raise ValueError("designs is empty: at least one block of rows is needed")
        self._designs = designs
        row_counts = []
        for number, design in enumerate(designs):
            if number == 0:
                self.layout, self.dtype = design.layout, design.dtype
                self.n_row_features = design.n_row_features
            elif (design.layout, design.dtype) != (self.layout, self.dtype):
                raise ValueError(
                    f"designs[{number}] differs from designs[0] in its cells or its dtype: give "
                    "n_cells, cells and dtype to all of them"
                )
            row_counts.append(design.n_rows)
        self._row_starts = np.concatenate([[0], np.cumsum(row_counts)]).tolist()
        self.n_rows = self._row_starts[-1]
        # Kept from one block to the next, of which only one may be alive.
        self._workspaces = shared_workspaces(self.dtype)

    def blocks(self) -> list[Block]:
        """Return the only task."""
        return [Block(slice(0, self.n_rows), slice(0, self.layout.n_cells), self)]

    @property
    def largest_value(self) -> float:
        return max(design.largest_value for design in self._designs)

    # -- related designs -----------------------------------------------------------------------

    def merge_partitions(self) -> BlockDesign:
        if isinstance(self._designs, list):
            for design in self._designs:
                design.merge_partitions()
        return self

    def in_double(self) -> BlockDesign:
        return self._changed(LeafDesign.in_double)

    def with_features(self, features: NDArray[np.intp]) -> BlockDesign:
        in_memory = isinstance(self._designs, list)  # what is read anew must not be merged anew
        return self._changed(lambda design: design.with_features(features, merge_anew=in_memory))

    def linear_partitions(self) -> BlockDesign:
        if self.layout.n_linear_cells == self.layout.n_cells:
            return self
        return self._changed(LeafDesign.linear_partitions)

    def _changed(self, change: Change) -> BlockDesign:
        if isinstance(self._designs, list):
            return BlockDesign([change(design) for design in self._designs])
        return BlockDesign(self._designs.changed(change))

    # -- numbers of rows, and sums over rows ---------------------------------------------------

    def _stacked(self, numbers: Callable[[LeafDesign], NDArray]) -> NDArray:
        return np.concatenate([numbers(design) for design in self._designs])

    def _sum(self, part: Callable[[LeafDesign, slice], NDArray]) -> NDArray[np.float64]:
        total: NDArray | None = None
        for start, design in zip(self._row_starts, self._designs, strict=False):
            if not design.n_rows and total is not None:
                continue
            terms = part(design, slice(start, start + design.n_rows))
            total = terms.astype(float) if total is None else np.add(total, terms, out=total)
        assert total is not None
        return total

    def matvec(self, theta: NDArray) -> NDArray:
        return self._stacked(lambda design: design.matvec(theta))

    def bias_matvec(self, biases: NDArray) -> NDArray:
        return self._stacked(lambda design: design.bias_matvec(biases))

    def squared_norms(self) -> NDArray[np.float64]:
        return self._stacked(LeafDesign.squared_norms)

    def rmatvec(self, r: NDArray) -> NDArray:
        return self._sum(lambda d, rows: d.rmatvec(r[rows])).astype(self.dtype, copy=False)

    def bias_rmatvec(self, r: NDArray) -> NDArray:
        return self._sum(lambda d, rows: d.bias_rmatvec(r[rows])).astype(self.dtype, copy=False)

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        return self._sum(lambda d, rows: d.cell_grams(h[rows]))

    def cell_mass(self, h: NDArray) -> NDArray[np.float64]:
        return self._sum(lambda d, rows: d.cell_mass(h[rows]))

    def cell_diagonals(self, h: NDArray) -> NDArray[np.float64]:
        return self._sum(lambda d, rows: d.cell_diagonals(h[rows]))

    def bias_gram(self, h: NDArray | None = None) -> NDArray[np.float64]:
        return self._sum(lambda d, rows: d.bias_gram(None if h is None else h[rows]))


Design = LeafDesign | TaskDesign | BlockDesign
