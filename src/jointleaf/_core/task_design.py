"""The design of several tasks: every task's own, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.design_base import Block, Design
from jointleaf._core.layout import TaskLayout

__all__ = ["BlockSmoother", "TaskDesign"]


class TaskDesign(Design):
    """Block-diagonal: the rows and the cells of the tasks follow each other.

    Parameters
    ----------
    designs : sequence of LeafDesign
        One per task, with the same features, kind of cells and dtype.
    weights : sequence of float
        gamma_t, which penalties look up in the layout.
    n_jobs : int
        Threads over tasks. The results are bit-identical for every value.
    """

    def __init__(
        self, designs: Sequence[LeafDesign], weights: Sequence[float], n_jobs: int = 1
    ) -> None:
        self._designs = list(designs)
        self.layout = TaskLayout([design.layout for design in designs], weights)
        self.dtype = designs[0].dtype
        self.n_jobs = max(1, n_jobs)
        self._pool: ThreadPoolExecutor | None = None
        self._row_starts = np.concatenate([[0], np.cumsum([d.n_rows for d in designs])])
        self.n_rows = int(self._row_starts[-1])

    def blocks(self) -> list[Block]:
        """One per task."""
        rows, cells = self._row_starts.tolist(), self.layout.task_starts.tolist()
        return [
            Block(slice(rows[t], rows[t + 1]), slice(cells[t], cells[t + 1]), design)
            for t, design in enumerate(self._designs)
        ]

    @property
    def largest_value(self) -> float:
        """Largest absolute value of a row of any task."""
        return max(design.largest_value for design in self._designs)

    # -- related designs -----------------------------------------------------------------------

    def merge_partitions(self) -> TaskDesign:
        """Merge the partitions of every task; gives the design."""
        for design in self._designs:
            design.merge_partitions()
        return self

    def in_double(self) -> TaskDesign:
        """Give the same design in float64."""
        return self._with([design.in_double() for design in self._designs])

    def with_features(self, features: NDArray[np.intp]) -> TaskDesign:
        """Give the design of linear cells that see only some features."""
        return self._with([design.with_features(features) for design in self._designs])

    def _with(self, designs: list[LeafDesign]) -> TaskDesign:
        return TaskDesign(designs, self.layout.task_weights.tolist(), self.n_jobs)

    # -- products ------------------------------------------------------------------------------

    def _over_tasks(self, product: Callable[[Block], NDArray]) -> NDArray:
        """What a product gives for every task, behind each other."""
        if self.n_jobs == 1:
            return np.concatenate([product(block) for block in self.blocks()])
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs)
        return np.concatenate(list(self._pool.map(product, self.blocks())))

    def matvec(self, theta: NDArray) -> NDArray:
        """Predictions f (n,) or (n, K) of weights theta (C, q) or (C, q, K)."""
        return self._over_tasks(lambda block: block.design.matvec(theta[block.cells]))

    def rmatvec(self, r: NDArray) -> NDArray:
        """Adjoint: G (C, q) or (C, q, K) with G_c = sum over rows n in cell c of r_n x_n."""
        return self._over_tasks(lambda block: block.design.rmatvec(r[block.rows]))

    def bias_matvec(self, biases: NDArray) -> NDArray:
        """Predictions f of biases (C,) or (C, K) alone: Z b."""
        return self._over_tasks(lambda block: block.design.bias_matvec(biases[block.cells]))

    def bias_rmatvec(self, r: NDArray) -> NDArray:
        """Sums of r (n,) or (n, K) over the rows of every cell, (C,) or (C, K): Z^T r."""
        return self._over_tasks(lambda block: block.design.bias_rmatvec(r[block.rows]))

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        """Gram matrices of all cells, (C, q, q): sum over a cell's rows of h_n x_n x_n^T."""
        return self._over_tasks(lambda block: block.design.cell_grams(h[block.rows]))

    def cell_diagonals(self, h: NDArray) -> NDArray[np.float64]:
        """Diagonals of `cell_grams`, (C, q): sum over a cell's rows of h_n x_n^2."""
        return self._over_tasks(lambda block: block.design.cell_diagonals(h[block.rows]))


class BlockSmoother:
    """A symmetric matrix (n, n) on predictions that joins rows of the same task only.

    Parameters
    ----------
    parts : sequence of arrays or sparse arrays (n_t, n_t)
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)

    def __matmul__(self, f: NDArray) -> NDArray:
        bounds = np.cumsum([part.shape[0] for part in self.parts])[:-1]
        return np.concatenate(
            [part @ own for part, own in zip(self.parts, np.split(f, bounds), strict=True)]
        )

    def __add__(self, other: BlockSmoother) -> BlockSmoother:
        return BlockSmoother([a + b for a, b in zip(self.parts, other.parts, strict=True)])

    def astype(self, dtype: Any) -> BlockSmoother:
        """Give the same matrix in another precision."""
        return BlockSmoother([part.astype(dtype) for part in self.parts])
