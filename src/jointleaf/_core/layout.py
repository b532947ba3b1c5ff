"""Where the weights of every cell live: the layout shared by designs, penalties and solvers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import array_namespace, updated

CellKind = Literal["linear", "constant"]


@dataclass(frozen=True, init=False)
class CellLayout:
    """The shape of a model: its partitions, their cells, and which cells have slopes.

    Cells are numbered over all partitions, partition after partition: C in all, of which L are
    linear (d slopes and a bias) and the others constant (a bias alone). All weights are one flat
    array ``theta`` of shape (N,) or, with K outputs, (N, K): the slopes of the linear cells, cell
    after cell, then the biases of all cells, so that N = L d + C.
    """

    cells_per_partition: tuple[int, ...]  # length P
    n_features: int  # d, of a linear cell
    kinds: tuple[CellKind, ...]  # of every partition's cells; one word in __init__ stands for all

    def __init__(
        self,
        cells_per_partition: tuple[int, ...],
        n_features: int,
        kinds: Sequence[CellKind] | CellKind = "linear",
    ) -> None:
        object.__setattr__(self, "cells_per_partition", cells_per_partition)
        object.__setattr__(self, "n_features", n_features)
        object.__setattr__(self, "kinds", check_kinds(kinds, len(cells_per_partition)))

    def __getstate__(self) -> dict[str, Any]:
        # What follows from the fields would make pickles larger.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def n_partitions(self) -> int:
        """P, the number of partitions."""
        return len(self.cells_per_partition)

    @cached_property
    def n_cells(self) -> int:
        """C, the number of cells of all partitions together."""
        return int(sum(self.cells_per_partition))

    @property
    def is_mixed(self) -> bool:
        """Whether some partitions are linear and others constant."""
        return len(set(self.kinds)) > 1

    @property
    def n_slopes(self) -> int:
        """Slopes of one linear cell: d, or 0 where no partition is linear."""
        return self.n_features if "linear" in self.kinds else 0

    @cached_property
    def linear_cells(self) -> NDArray[np.intp]:
        """The cells with slopes, in the order of their slopes: shape (L,)."""
        is_linear = np.array([kind == "linear" for kind in self.kinds], bool)
        return np.flatnonzero(np.repeat(is_linear, self.cells_per_partition))

    @property
    def n_linear_cells(self) -> int:
        """L, the number of cells with slopes."""
        return len(self.linear_cells)

    @cached_property
    def slope_rows(self) -> NDArray[np.intp]:
        """The row of the slopes (L, d) of every cell, or L for constant cells: shape (C,)."""
        rows = np.full(self.n_cells, self.n_linear_cells, np.intp)
        rows[self.linear_cells] = np.arange(self.n_linear_cells)
        return rows

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

    @cached_property
    def slope_starts(self) -> NDArray[np.int64]:
        """First row of the slopes of every task, and L at the end: shape (T + 1,)."""
        counts = [task.n_linear_cells for task in self.tasks]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def cell_factors(self) -> NDArray[np.float64]:
        """gamma_t of every cell's task, (C,): terms that belong to one task are scaled by it."""
        return np.repeat(self.task_weights, np.diff(self.task_starts))

    def with_features(self, n_features: int) -> CellLayout:
        """Return the layout of the same cells with another number of features."""
        return CellLayout(self.cells_per_partition, n_features, self.kinds)

    def only(self, partitions: ArrayLike) -> CellLayout:
        """Return the layout of some partitions, given by their numbers or by a mask."""
        chosen = np.arange(self.n_partitions)[np.asarray(partitions)].tolist()
        return CellLayout(
            tuple(self.cells_per_partition[p] for p in chosen),
            self.n_features,
            tuple(self.kinds[p] for p in chosen),
        )

    # -- weights -------------------------------------------------------------------------------

    @property
    def entries_per_row(self) -> int:
        """Entries of a row of Phi that are not zero: d + 1 per linear partition, else 1."""
        return self.n_partitions + self.n_features * self.kinds.count("linear")

    @property
    def n_weights(self) -> int:
        """N = L d + C, the number of weights of one output."""
        return self.n_linear_cells * self.n_features + self.n_cells

    def split(self, theta: NDArray) -> tuple[NDArray, NDArray]:
        """View theta as slopes (L, d[, K]) and biases (C[, K])."""
        n_linear, n_features = self.n_linear_cells, self.n_features
        slopes, biases = theta[: n_linear * n_features], theta[n_linear * n_features :]
        return slopes.reshape(n_linear, n_features, *theta.shape[1:]), biases

    def join(self, slopes: NDArray, biases: NDArray) -> NDArray:
        """Put slopes (L, d[, K]) and biases (C[, K]) into one theta: the inverse of `split`."""
        xp = array_namespace(biases)
        return xp.concatenate([slopes.reshape(-1, *biases.shape[1:]), biases])

    def with_biases(self, theta: NDArray, biases: NDArray) -> NDArray:
        """Return theta with other biases (C[, K]); an array of NumPy is changed in place."""
        return updated(theta, slice(len(theta) - self.n_cells, None), biases)

    def by_cell(self, theta: NDArray) -> NDArray:
        """Return the slopes and the bias of every cell, (C, q[, K]), zeros for missing slopes.

        q is d + 1, or 1 where all cells are constant.
        """
        slopes, biases = self.split(theta)
        table = np.zeros((self.n_cells, self.n_slopes + 1, *theta.shape[1:]), theta.dtype)
        table[self.linear_cells, :-1] = slopes[:, : self.n_slopes]
        table[:, -1] = biases
        return table

    def from_cells(self, table: NDArray) -> NDArray:
        """Return theta from the slopes and the bias of every cell: the inverse of `by_cell`."""
        return self.join(table[self.linear_cells, : self.n_slopes], table[:, -1])

    def random_weights(self) -> NDArray[np.float64]:
        """Return fixed standard normal weights (N,), from which power iterations start."""
        shape = (self.n_cells, self.n_slopes + 1)
        return self.from_cells(np.random.default_rng(0).standard_normal(shape))

    def part_of(self, theta: NDArray, task: int) -> NDArray:
        """Return the part of theta that belongs to a task, in the layout of that task."""
        if len(self.tasks) == 1:
            return theta
        slopes, biases = self.split(theta)
        rows, cells = (slice(*s[task : task + 2]) for s in (self.slope_starts, self.task_starts))
        return self.tasks[task].join(slopes[rows], biases[cells])

    def join_tasks(self, parts: Sequence[NDArray]) -> NDArray:
        """Put the weights of every task into one theta: the inverse of `part_of`."""
        xp = array_namespace(parts[0])
        pairs = [task.split(part) for task, part in zip(self.tasks, parts, strict=True)]
        return self.join(*(xp.concatenate(blocks) for blocks in zip(*pairs, strict=True)))


@dataclass(frozen=True, init=False)
class TaskLayout(CellLayout):
    """The cells of several tasks, task after task; partitions are numbered over all of them.

    `parts` are the layouts of the tasks, with the same features, and `weights` their gamma_t.
    """

    parts: tuple[CellLayout, ...]
    weights: tuple[float, ...]

    def __init__(self, parts: Sequence[CellLayout], weights: Sequence[float]) -> None:
        super().__init__(
            tuple(k for part in parts for k in part.cells_per_partition),
            parts[0].n_features,
            tuple(kind for part in parts for kind in part.kinds),
        )
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "weights", tuple(map(float, weights)))

    @property
    def tasks(self) -> tuple[CellLayout, ...]:
        return self.parts

    @property
    def task_weights(self) -> NDArray[np.float64]:
        return np.array(self.weights)

    def with_features(self, n_features: int) -> TaskLayout:
        return TaskLayout([part.with_features(n_features) for part in self.parts], self.weights)


def check_kinds(kinds: Sequence[CellKind] | CellKind, n_partitions: int) -> tuple[CellKind, ...]:
    """Return the kind of every partition, from one word for all or one word for each."""
    words = (kinds,) if isinstance(kinds, str) or not isinstance(kinds, Iterable) else tuple(kinds)
    known = get_args(CellKind)
    for word in words or (kinds,):
        if not isinstance(word, str) or word not in known:
            raise ValueError(f"cells={word!r} is not known: use 'linear' or 'constant'")
    if isinstance(kinds, str):
        words *= n_partitions
    if len(words) != n_partitions:
        raise ValueError(
            f"cells has {len(words)} words for {n_partitions} partitions: use 'linear', "
            "'constant', or a sequence with one of these for every partition"
        )
    return words


def check_codes(
    codes: ArrayLike, n_rows: int, n_cells: ArrayLike | None = None, *, allow_no_cell: bool = False
) -> tuple[NDArray, tuple[int, ...]]:
    """Return checked codes (n, P), and every partition's cells: by default the largest code + 1."""
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
