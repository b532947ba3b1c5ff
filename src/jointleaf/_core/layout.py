"""Where the weights of every cell live: the layout shared by designs, penalties and solvers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["CellKind", "CellLayout", "TaskLayout", "check_codes"]

CellKind = Literal["linear", "constant"]


@dataclass(frozen=True)
class CellLayout:
    """The shape of a model: its partitions, their cells and the columns of a cell's weights.

    Weights are kept cell-major as one array ``theta`` of shape (C, q) or, with K outputs,
    (C, q, K): C cells over all partitions, numbered partition after partition, and
    q = d + 1 columns for linear cells (d slopes, then the bias) or q = 1 for constant
    cells (the bias alone).

    Attributes
    ----------
    cells_per_partition : tuple of int, length P
    n_features : int
        d, the number of features of a linear cell.
    kind : {"linear", "constant"}
    """

    cells_per_partition: tuple[int, ...]
    n_features: int
    kind: CellKind = "linear"

    def __post_init__(self) -> None:
        if self.kind not in get_args(CellKind):
            raise ValueError(f"cells={self.kind!r} is not known: use 'linear' or 'constant'")

    @property
    def n_partitions(self) -> int:
        """P, the number of partitions."""
        return len(self.cells_per_partition)

    @cached_property
    def n_cells(self) -> int:
        """C, the number of cells of all partitions together."""
        return int(sum(self.cells_per_partition))

    @property
    def n_slopes(self) -> int:
        """Slopes of one cell: d, or 0 for constant cells."""
        return self.n_features if self.kind == "linear" else 0

    @property
    def n_columns(self) -> int:
        """q, the weights of one cell."""
        return self.n_slopes + 1

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First cell of every partition, and C at the end: shape (P + 1,)."""
        return np.concatenate([[0], np.cumsum(self.cells_per_partition)]).astype(np.int64)

    @cached_property
    def partition_of_cell(self) -> NDArray[np.intp]:
        """The partition of every cell: shape (C,)."""
        return np.repeat(np.arange(self.n_partitions), self.cells_per_partition)

    # -- tasks ---------------------------------------------------------------------------------

    @property
    def tasks(self) -> tuple[CellLayout, ...]:
        """The layout of every task; without tasks there is one, with all cells."""
        return (self,)

    @property
    def task_weights(self) -> NDArray[np.float64]:
        """gamma_t of every task, (T,)."""
        return np.ones(1)

    @cached_property
    def task_starts(self) -> NDArray[np.int64]:
        """First cell of every task, and C at the end: shape (T + 1,)."""
        return np.concatenate([[0], np.cumsum([t.n_cells for t in self.tasks])]).astype(np.int64)

    def cell_factors(self) -> NDArray[np.float64]:
        """gamma_t of every cell's task, (C,): terms that belong to one task are scaled by it."""
        return np.repeat(self.task_weights, np.diff(self.task_starts))

    def with_features(self, n_features: int) -> CellLayout:
        """Give the same cells with another number of features."""
        return CellLayout(self.cells_per_partition, n_features, self.kind)

    # -- weights -------------------------------------------------------------------------------

    def split(self, theta: NDArray) -> tuple[NDArray, NDArray]:
        """View theta as slopes (C, d[, K]) and biases (C[, K])."""
        return theta[:, : self.n_slopes], theta[:, self.n_slopes]

    def join(self, coef: NDArray, intercept: NDArray) -> NDArray:
        """Put slopes (C, d[, K]) and biases (C[, K]) into one theta: the inverse of `split`."""
        return np.concatenate([coef[:, : self.n_slopes], intercept[:, None]], axis=1)


@dataclass(frozen=True)
class TaskLayout(CellLayout):
    """The cells of several tasks, task after task; partitions are numbered over all of them.

    Attributes
    ----------
    parts : tuple of CellLayout
        The layout of every task, with the same features and kind of cells.
    weights : tuple of float
        gamma_t.
    """

    parts: tuple[CellLayout, ...] = ()
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[CellLayout], weights: Sequence[float]) -> TaskLayout:
        """Put the cells of tasks behind each other."""
        cells = tuple(k for part in parts for k in part.cells_per_partition)
        first = parts[0]
        return cls(cells, first.n_features, first.kind, tuple(parts), tuple(map(float, weights)))

    @property
    def tasks(self) -> tuple[CellLayout, ...]:
        """The layout of every task."""
        return self.parts

    @property
    def task_weights(self) -> NDArray[np.float64]:
        """gamma_t of every task, (T,)."""
        return np.array(self.weights)

    def with_features(self, n_features: int) -> TaskLayout:
        """Give the same cells with another number of features."""
        return TaskLayout.of([part.with_features(n_features) for part in self.parts], self.weights)


def check_codes(
    codes: ArrayLike, n_rows: int, n_cells: ArrayLike | None = None, *, allow_no_cell: bool = False
) -> tuple[NDArray, tuple[int, ...]]:
    """Check a code matrix and give it with the number of cells of every partition.

    Parameters
    ----------
    codes : integers (n, P)
        Cell of each partition in which each row falls; ``-1`` (in no cell) only with
        `allow_no_cell`.
    n_rows : int
        The n that is expected.
    n_cells : integers (P,), optional
        Cells of every partition; by default the largest code plus one.
    """
    codes = np.asarray(codes)
    if codes.ndim != 2:
        raise ValueError(f"codes must be an (n, P) matrix, got an array of shape {codes.shape}")
    if not np.issubdtype(codes.dtype, np.integer):
        raise ValueError(f"codes must be integers, got dtype {codes.dtype}: use codes.astype(int)")
    n, n_partitions = codes.shape
    if n != n_rows:
        raise ValueError(f"codes has {n} rows but X has {n_rows}: give one row of codes per row")
    if n_partitions == 0:
        raise ValueError("codes has no column: at least one partition is needed")
    lowest = -1 if allow_no_cell else 0
    if n and codes.min() < lowest:
        raise ValueError(
            f"codes holds {codes.min()}: number the cells of every partition from 0, for example "
            "with numpy.unique(column, return_inverse=True)"
        )
    # As floats: a code can be the largest number of its own type.
    highest = codes.max(axis=0).astype(float) if n else np.full(n_partitions, -1.0)
    if n_cells is None:
        counts = np.maximum(highest + 1, 1)
    else:
        counts = np.asarray(n_cells)
        if not np.issubdtype(counts.dtype, np.integer):
            raise ValueError(f"n_cells must be integers, got dtype {counts.dtype}")
        if counts.shape != (n_partitions,):
            raise ValueError(
                f"n_cells has shape {counts.shape}, but codes has {n_partitions} partitions"
            )
        if (highest >= counts).any():
            p = int(np.argmax(highest >= counts))
            raise ValueError(
                f"codes holds {highest[p]:.0f} in partition {p}, which has only {counts[p]} cells"
            )
    if counts.sum(dtype=float) >= 2**31 - 1:
        raise ValueError(
            f"codes asks for {counts.sum(dtype=float):.3g} cells: number the cells of every "
            "partition 0, 1, 2, ..., for example with numpy.unique(column, return_inverse=True)"
        )
    return codes, tuple(int(k) for k in counts)
