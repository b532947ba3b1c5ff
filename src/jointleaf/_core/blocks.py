"""Rows in blocks: the same cells for more rows than fit into memory.

Every product of a design is a sum over rows, or one number for each of them. A `BlockDesign` passes
over designs of blocks of rows with the same cells, and adds up in the order of their numbers and in
float64: results depend on the blocks alone, not on where they are. Numbers of rows stay with the
blocks (`RowVector`). `StoredDesigns` keeps rows and codes, which take a hundred times as much, in
files.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.cell_sums import shared_workspaces
from jointleaf._core.design import Block, LeafDesign, TaskDesign
from jointleaf._core.row_vectors import Call, Here, Kept, Place, RowVector

_ALIGNMENT = 64  # bytes, of arrays in files


class StoredDesigns:
    """Designs in the files of a folder; one at a time is mapped into memory, and can be read only.

    Partitions are merged before they are written. The files are those of this process: they are
    not a format.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: list[_StoredDesign] = []

    def append(self, design: LeafDesign) -> None:
        """Write a design behind the others."""
        path = self._folder / f"block{len(self._files)}.bin"
        self._files.append(_StoredDesign(path, design.merge_partitions()))

    def designs(self) -> Call:
        """Return the designs, each of which is read whenever it is needed."""
        return Call(_StoredDesign.load, (Kept(list(self._files)),))


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

    Its methods are those of `LeafDesign`, with numbers of rows as `RowVector`. The designs of the
    blocks, which may have no rows, have one layout and dtype, and are at a place, by default here.
    """

    def __init__(
        self, designs: list[LeafDesign] | StoredDesigns | Kept | Call, place: Place | None = None
    ) -> None:
        if isinstance(designs, list):
            if not designs:
                raise ValueError("designs is empty: at least one block of rows is needed")
            designs = Kept(designs)
        self._designs = designs.designs() if isinstance(designs, StoredDesigns) else designs
        self.place = Here() if place is None else place
        parts = self.place.collect(_description, self._designs)
        self.layout, self.dtype, self.n_row_features = parts[0][:3]
        for number, part in enumerate(parts):
            if part[:2] != parts[0][:2]:
                raise ValueError(
                    f"designs[{number}] differs from designs[0] in its cells or its dtype: give "
                    "n_cells, cells and dtype to all of them"
                )
        self._counts = tuple(part[3] for part in parts)
        self.largest_value = max(part[4] for part in parts)
        self.n_rows = sum(self._counts)
        # Kept from one block to the next, of which only one may be alive.
        self._workspaces = shared_workspaces(self.dtype)

    def blocks(self) -> list[Block]:
        """Return the only task."""
        return [Block(slice(0, self.n_rows), slice(0, self.layout.n_cells), self)]

    @property
    def most_joint_cells(self) -> float:
        return self.place.most_joint_cells

    def vector(self, values: Any) -> RowVector:
        """Return numbers (n,) or (n, K) of all rows, an array in this process, in blocks."""
        if isinstance(values, RowVector):
            return values
        parts = np.split(values, np.cumsum(self._counts)[:-1])
        return RowVector(self.place, Kept(parts), values[:0], self._counts)

    def vector_of(self, numbers: Call | Kept, example: NDArray) -> RowVector:
        """Return numbers of rows that are where the blocks are; `example` is one of no rows."""
        return RowVector(self.place, numbers, example, self._counts)

    # -- related designs -----------------------------------------------------------------------

    def merge_partitions(self) -> BlockDesign:
        if isinstance(self._designs, Kept):  # others are merged
            self._designs = self.place.keep(LeafDesign.merge_partitions, self._designs)
        return self

    def in_double(self) -> BlockDesign:
        return self if self.dtype == np.float64 else self._changed(LeafDesign.in_double)

    def with_features(self, features: NDArray[np.intp]) -> BlockDesign:
        # What is read anew must not be merged anew.
        anew = isinstance(self._designs, Kept)
        return self._changed(partial(LeafDesign.with_features, merge_anew=anew), features)

    def linear_partitions(self) -> BlockDesign:
        if self.layout.n_linear_cells == self.layout.n_cells:
            return self
        return self._changed(LeafDesign.linear_partitions)

    def _changed(self, change: Callable[..., LeafDesign], *args: Any) -> BlockDesign:
        if isinstance(self._designs, Kept):
            return BlockDesign(self.place.keep(change, self._designs, *args), self.place)
        return BlockDesign(Call(change, (self._designs, *args)), self.place)

    # -- numbers of rows, and sums over rows ---------------------------------------------------
    # To solvers a RowVector is an array.

    def _numbers(self, product: Callable[..., NDArray], *args: NDArray) -> RowVector:
        outputs = args[0].shape[1:] if args else ()
        dtype = self.dtype if args else np.float64
        kept = self.place.keep(product, self._designs, *args)
        return RowVector(self.place, kept, np.empty((0, *outputs), dtype), self._counts)

    def _sum(self, product: Callable[..., NDArray], *args: Any) -> NDArray[np.float64]:
        return self.place.sum(product, self._designs, *args)

    def matvec(self, theta: NDArray) -> Any:
        return self._numbers(LeafDesign.matvec, theta)

    def bias_matvec(self, biases: NDArray) -> Any:
        return self._numbers(LeafDesign.bias_matvec, biases)

    def squared_norms(self) -> Any:
        return self._numbers(LeafDesign.squared_norms)

    def rmatvec(self, r: Any) -> NDArray:
        return self._sum(LeafDesign.rmatvec, self.vector(r)).astype(self.dtype, copy=False)

    def bias_rmatvec(self, r: Any) -> NDArray:
        return self._sum(LeafDesign.bias_rmatvec, self.vector(r)).astype(self.dtype, copy=False)

    def gram_product(self, h: Any, theta: NDArray) -> NDArray:
        product = self._sum(LeafDesign.gram_product, self.vector(h), theta)
        return product.astype(self.dtype, copy=False)

    def cell_grams(self, h: Any) -> NDArray[np.float64]:
        return self._sum(LeafDesign.cell_grams, self.vector(h))

    def cell_mass(self, h: Any) -> NDArray[np.float64]:
        return self._sum(LeafDesign.cell_mass, self.vector(h))

    def cell_diagonals(self, h: Any) -> NDArray[np.float64]:
        return self._sum(LeafDesign.cell_diagonals, self.vector(h))

    def bias_gram(self, h: Any = None) -> NDArray[np.float64]:
        return self._sum(LeafDesign.bias_gram, *([] if h is None else [self.vector(h)]))


def _description(design: LeafDesign) -> tuple[Any, ...]:
    return (design.layout, design.dtype, design.n_row_features, design.n_rows, design.largest_value)


Design = LeafDesign | TaskDesign | BlockDesign
