"""What a fit takes in time and memory, and what wide tables and many classes go without.

The time to grow a tree and the memory of a linear cell grow with the number of columns d; a round
of boosting has a tree for every one of K classes, whose cells hold K numbers. Up to 200 columns and
50 classes nothing is spared. Beyond, a fit stays within ten times the time of LightGBM's defaults,
or nearly so, with fewer trees and splits:

- the exact joint fit has three splits. Its partitions are grown on the 100 columns that tell most
  one by one; of those that are not boosted there are 500 / (d K), a tenth at least;
- numbers are predicted by the leaf values of these boosted trees too, as classes always are;
- a blend has one split, and of wide tables no boosted trees with random thresholds or linear
  leaves, unless there are so many classes that no others take part;
- boosted trees of many classes have 15 leaves.

How much memory a fit takes is estimated before it begins. The numbers are those of the arrays that
live at the same time at the peak of a fit, with factors that were measured
(`tests/fit/test_memory.py` holds them to a factor of 1.5). For n rows with d linear features of b
bytes, P partitions with C cells, q = d + 1 weights a cell and K outputs:

============  ===========================================================================
rows          3 n d b: the rows in their own order, and standardised
codes         4 n P
design        2 n d b + 8 n P; once more with FISTA, which works on few features at a time
solver        dual: 2.5 n x n matrices, or 2.8 (4 for several outputs) for the training part of
              every fold at once;
              PCG and Newton: 3 slope blocks C q^2 and two C x C matrices of biases;
              both: 12 times the weights C q K; all: 10 n K
model         4 times the weights (dual: 6 times, while they are made), and the trees
============  ===========================================================================

Rows are counted once, everything else by every component for itself (`Component.memory`). Blocks of
rows have buffers, at the end of a fit, which take the room in which models were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.solvers import MAX_DUAL_ROWS, MAX_DUAL_ROWS_NEWTON, WIDE
from jointleaf._core.solvers.newton import MAX_BLOCK_ENTRIES, MAX_JOINT_BIASES
from jointleaf._data.memory import readable_bytes
from jointleaf._trees.encoding import Encoding, TrainingRows, centred_targets
from jointleaf.partitions import (
    LightGBMPartitioner,
    Partitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    StepPartitioner,
    UnionPartitioner,
)
from jointleaf.partitions._growers.base import least_leaf_rows

_ORDINARY_COLUMNS, _ORDINARY_OUTPUTS = 200, 50
# Of partitions: their cells may have a slope for each column and class, all up to 500 of these.
_ALL_PARTITIONS, _LEAST_PARTITIONS = 500, 0.1
#: on which partitions of wide tables are grown: of thousands the best split is most often noise
SCREENED_COLUMNS = 100
_BLOCK = 2**18  # numbers of a wide table that are sorted at a time


def is_wide(n_columns: int) -> bool:
    """Whether a table has so many columns that fits of it are cut short."""
    return n_columns > _ORDINARY_COLUMNS


def has_many_classes(n_outputs: int) -> bool:
    """Whether there are so many classes that fits are cut short."""
    return n_outputs > _ORDINARY_OUTPUTS


def is_heavy(n_columns: int, n_outputs: int) -> bool:
    """Whether fits are cut short at all."""
    return is_wide(n_columns) or has_many_classes(n_outputs)


def partition_share(n_columns: int, n_outputs: int = 1) -> float:
    """Return which part of its partitions the exact joint fit has, besides boosted ones."""
    if not is_wide(n_columns):
        return 1.0
    return max(_LEAST_PARTITIONS, min(1.0, _ALL_PARTITIONS / (n_columns * n_outputs)))


def wide_partitions(partitioner: Partitioner, n_columns: int, n_outputs: int = 1) -> Partitioner:
    """Return the unfitted partitions of an exact joint fit, made fewer in place for a wide table.

    Boosted trees on the target, whose leaf values are a model of their own, stay as many; of
    others there are at least two of each kind.
    """
    boosted: Partitioner | None = None
    for member in partitioner.nested() if is_wide(n_columns) else ():
        if boosted is None and isinstance(member, LightGBMPartitioner):
            boosted = member
        elif "n_partitions" in member.get_params(deep=False):
            share = partition_share(n_columns, n_outputs)
            member.set_params(n_partitions=max(2, round(share * member.n_partitions)))
    return partitioner


def best_columns(rows: TrainingRows, n_columns: int) -> NDArray[np.intp]:
    """Return the columns with the largest gains, in rising order."""
    gains = split_gains(rows)
    return np.sort(np.argsort(-gains, kind="stable")[:n_columns])


def split_gains(rows: TrainingRows) -> NDArray[np.float64]:
    """Return by how much the best split of every column (d,) lowers the squared error.

    That of standardised numbers, or of indicators of classes; categories are in the order of their
    mean targets. Columns without a split that leaves enough rows on both sides have -1.
    """
    s = rows.weights
    targets = centred_targets(rows, s)
    X = Encoding(rows, categories=True, missing=True).numbers(rows.X)
    n, d = X.shape
    least = least_leaf_rows(n)
    gains, step = np.full(d, -1.0), max(1, _BLOCK // n)
    if n < 2 * least:
        return gains
    ends = slice(least - 1, n - least)  # splits behind these rows
    for start in range(0, d, step):
        block = X[:, start : start + step]
        order = np.argsort(block, axis=0, kind="stable")
        values = np.take_along_axis(block, order, axis=0)
        splits = values[1:][ends] > values[:-1][ends]
        left = np.cumsum(s[order], axis=0)[ends]
        sums = [np.cumsum((s * target)[order], axis=0)[ends] for target in targets.T]
        lower = np.sum(np.square(sums), axis=0) * (1 / left + 1 / (s.sum() - left))
        gains[start : start + step] = np.where(splits, lower, -1.0).max(axis=0)
    return gains


# -- time -----------------------------------------------------------------------------------------


_PRIOR = 0.3  # seconds of a fit that are as if they had been estimated rightly


class Size(NamedTuple):
    """What the time of a component depends on."""

    n_rows: int
    n_columns: int
    n_outputs: int
    is_regression: bool


class Seconds(NamedTuple):
    """About how long a component takes on one core: for every split, and for all rows.

    They were measured on generated rows (200 to 20,000, 10 and 50 columns, up to 8 classes) and are
    right to a factor of two or so; the pace of a `Budget` makes up for other machines.
    """

    held_out: float = 0.0
    fit: float = 0.0

    def total(self, n_splits: int) -> float:
        """Return the seconds of everything."""
        return n_splits * self.held_out + self.fit


class Budget:
    """Seconds that a fit may take, from now on."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.perf_counter()
        self._expected = self._measured = _PRIOR
        self._reserved = 0.0  # for components that are to be fitted to all rows

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.perf_counter() - self._start)

    def allows(self, seconds: float) -> bool:
        """Whether there is time for something that is expected to take so long."""
        pace = self._measured / self._expected
        return pace * (self._reserved + seconds) <= self.left

    @contextmanager
    def spending(self, seconds: Seconds, n_splits: int) -> Iterator[None]:
        """Measure how long a component takes to predict its splits, and keep time to fit it."""
        start = time.perf_counter()
        yield
        self._measured += time.perf_counter() - start
        self._expected += n_splits * seconds.held_out
        self._reserved += seconds.fit


# -- memory ---------------------------------------------------------------------------------------


_BUFFERS, _BUFFER_ROWS = 24 * 2**20, 1000  # of blocks of rows, which fewer rows do not fill
SPLIT_BYTES = 60  # of a split and a leaf
_DUAL, _FOLD_DUAL, _FOLD_DUAL_OUTPUTS = 2.5, 2.8, 4.0  # n x n matrices alive
_MAX_FOLD_ROWS = 2500  # up to here penalties are chosen on several folds side by side
_USUAL = (100, 31)  # trees and leaves of a trained model that does not say


@dataclass(frozen=True, repr=False)
class MemoryEstimate:
    """Bytes that a fit needs besides the rows that it is given, by part."""

    rows: int = 0  # copies of them
    codes: int = 0
    design: int = 0
    solver: int = 0  # what it works with
    model: int = 0  # as fitted
    other: int = 0  # buffers

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(getattr(self, part.name) for part in fields(self))

    def __add__(self, other: MemoryEstimate) -> MemoryEstimate:
        names = [part.name for part in fields(self)]
        return MemoryEstimate(*(getattr(self, n) + getattr(other, n) for n in names))

    def __repr__(self) -> str:
        parts = ", ".join(f"{p.name} {readable_bytes(getattr(self, p.name))}" for p in fields(self))
        return f"MemoryEstimate({readable_bytes(self.total)}: {parts})"


@dataclass(frozen=True)
class FitShape:
    """The numbers that the memory of a fit depends on."""

    n_rows: int
    n_columns: int
    n_features: int  # d, 0 for constant cells
    n_outputs: int  # K
    n_tasks: int  # T
    itemsize: int  # b
    is_regression: bool
    root_cell: bool
    solver: str
    partitioner: Partitioner | None  # unfitted; None: the recipe chooses
    penalty: Term | None
    n_splits: int  # whose training parts are held at the same time; 0 where nothing is chosen


def joint_memory(shape: FitShape, partitioner: Partitioner, n: int) -> MemoryEstimate:
    """Return what a joint fit of unfitted partitions to n rows takes."""
    sizes = partition_sizes(partitioner)
    sizes += [(1, 1)] if shape.root_cell else []
    P, d, K, b = sum(p for p, _ in sizes), shape.n_features, shape.n_outputs, shape.itemsize
    C = shape.n_tasks * sum(p * min(k, n) for p, k in sizes)  # every task has its own
    weights = 8 * C * (d + 1) * K
    solver = _solver_name(shape, n, C * (d + 1))
    twice = 2 if solver == "fista" else 1
    n_copies, n_kept = (0, 6) if solver == "dual" else (12, 4)  # of the weights
    codes, design = 4 * n * P, twice * (2 * n * max(d, 1) * b + 8 * n * P)
    fit = MemoryEstimate(
        codes=codes,
        design=design,
        solver=_solver_bytes(solver, n, d, C) + n_copies * weights + 80 * n * K,
        model=n_kept * weights + SPLIT_BYTES * C,
    )
    f = shape.n_splits
    if f < 2 or shape.n_rows > _MAX_FOLD_ROWS:
        return fit
    # Training parts of all folds together are f - 1 times the rows, and validation parts the rows.
    if solver != "dual":
        return replace(fit, codes=f * codes, design=f * design)
    n_matrices = (_FOLD_DUAL if K == 1 else _FOLD_DUAL_OUTPUTS) * f * (1 - 1 / f) ** 2
    kernels = int(n_matrices * 8 * n**2) + 80 * n * K
    # Kernels of folds are free before all rows are fitted, their codes and designs are not.
    fit = replace(fit, codes=f * codes, design=f * design)
    folds = replace(fit, solver=kernels, model=0)
    return max(fit, folds, key=lambda part: part.total)


def fit_memory(shape: FitShape, components: Iterable[MemoryEstimate]) -> MemoryEstimate:
    """Return what a fit takes: copies of the rows, its components, and buffers of blocks of rows.

    Buffers are needed when models have been made, and take the room of what that took.
    """
    rows = 3 * shape.n_rows * max(shape.n_features, 1) * shape.itemsize
    total = sum(components, MemoryEstimate(rows=rows))
    buffers = int(_BUFFERS * min(1.0, shape.n_rows / _BUFFER_ROWS))
    return replace(total, other=max(0, buffers - total.model))


def partition_sizes(partitioner: Partitioner) -> list[tuple[int, int]]:
    """Return numbers of unfitted partitions, with how many cells each of them has at most."""
    return [size for member in partitioner.nested() for size in _sizes(member)]


def trees_memory(n_cells: int, n_slopes: int = 0) -> MemoryEstimate:
    """Return what trees with so many cells and slopes in all take."""
    return MemoryEstimate(model=SPLIT_BYTES * n_cells + 8 * n_slopes)


def _solver_name(shape: FitShape, n: int, n_weights: int) -> str:
    """Return the solver that a fit will choose, as far as that can be known before it."""
    if shape.solver != "auto":
        return getattr(shape.solver, "name", str(shape.solver))
    terms = () if shape.penalty is None else shape.penalty.terms
    if not all(type(term) is Frobenius for term in terms):
        return "fista"
    limit = MAX_DUAL_ROWS * (2 if shape.n_features > WIDE else 1)
    if not shape.is_regression:
        limit = MAX_DUAL_ROWS_NEWTON
    if n <= limit and not (shape.is_regression and n_weights < n):
        return "dual"
    return "pcg" if shape.is_regression else "newton"


def _solver_bytes(solver: str, n: int, d: int, C: int) -> int:
    if solver == "dual":
        return int(_DUAL * 8 * n**2)
    biases = 16 * C**2 if C <= MAX_JOINT_BIASES else 0
    has_blocks = C * d**2 <= MAX_BLOCK_ENTRIES and solver != "fista"
    return biases + (24 * C * (d + 1) ** 2 if has_blocks else 0)


def _sizes(partitioner: Any) -> list[tuple[int, int]]:
    """Return numbers of partitions, and of the most cells that each of them can have."""
    if isinstance(partitioner, UnionPartitioner | ResidualPartitioner | RotatedPartitioner):
        return []  # those nested in them count
    if isinstance(partitioner, RootCell):
        return [(1, 1)]
    if isinstance(partitioner, StepPartitioner):
        return [(_count(partitioner.n_partitions, _USUAL[0]), 2)]
    if hasattr(partitioner, "n_universal"):  # BoUTS
        counts = [_count(k, 50) for k in (partitioner.n_universal, partitioner.n_task)]
        return [(sum(counts), _count(partitioner.n_cells, 8))]
    if hasattr(partitioner, "model"):
        return [_model_size(partitioner.model)]
    asked = partitioner.get_params(deep=False)
    return [(_count(asked.get("n_partitions"), _USUAL[0]), _count(asked.get("n_cells"), _USUAL[1]))]


def _count(value: Any, usual: int) -> int:
    """Return a whole number as it is; wrong ones raise errors where they are used."""
    return int(value) if isinstance(value, int | np.integer) and value > 0 else usual


def _model_size(model: Any) -> tuple[int, int]:
    """Return trees and mean number of leaves of a trained model, from what its library says."""
    if hasattr(model, "estimators_"):
        trees = np.asarray(model.estimators_, dtype=object).ravel()
        leaves = [tree.get_n_leaves() for tree in trees]
        return len(leaves), int(np.ceil(np.mean(leaves)))
    if hasattr(model, "get_tree_leaf_counts"):  # CatBoost
        counts = model.get_tree_leaf_counts()
        return len(counts), int(np.ceil(np.mean(counts)))
    booster = getattr(model, "booster_", model)
    if hasattr(booster, "num_trees"):  # LightGBM
        return booster.num_trees(), int(booster.params.get("num_leaves", _USUAL[1]))
    if hasattr(booster, "get_booster"):
        booster = booster.get_booster()
    if hasattr(booster, "num_boosted_rounds"):  # XGBoost
        depth = getattr(model, "max_depth", None)
        depth = depth if isinstance(depth, int) and 0 < depth <= 16 else 6
        return int(booster.num_boosted_rounds()), 2**depth
    return int(getattr(model, "n_iter_", _USUAL[0])), _USUAL[1]
