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
- boosted trees of many classes have 15 leaves;
- large trees of a wide table hold histograms of 128 MB at a time.

How much memory a fit takes is estimated before it begins. The numbers are those of the arrays that
live at the same time at the peak of a fit, with factors that were measured
(`tests/fit/test_memory.py` holds them to a factor of 1.5). For n rows with d linear features of b
bytes, P partitions with C cells, q = d + 1 weights a cell and K outputs:

============  ===========================================================================
rows          3 n d b: the rows in their own order, and standardised
codes         4 n P
design        2 n d b + 8 n P; once more with FISTA, which works on few features at a time
solver        dual: 2.5 n x n matrices; where the penalty is chosen two kernels of every fold,
              and three more of one (five with another loss than the squared error);
              PCG and Newton: 3 slope blocks C q^2 and two C x C matrices of biases;
              both: 12 times the weights C q K; all: 10 n K
model         4 times the weights (dual: 3.7 times, and 1.2 times the curvature C q), and the trees
============  ===========================================================================

Rows are counted once, everything else by every component for itself (`Component.memory`), and by
stages: what is worked with on held-out rows is free before models are made of all rows. Components
are fitted one after the other, so that of what they work with the most counts. When models have
been made, blocks of rows have buffers and look-up tables of trees, in the room of what that took.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import readable_bytes
from jointleaf._core.layout import CellKind
from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.solvers.base import MAX_DUAL_ROWS, MAX_DUAL_ROWS_NEWTON, WIDE
from jointleaf._core.solvers.newton import MAX_BLOCK_ENTRIES, MAX_JOINT_BIASES
from jointleaf._trees.flat import TrainingRows
from jointleaf.partitions import (
    LargeTreesPartitioner,
    LightGBMPartitioner,
    Partitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    StepPartitioner,
    UnionPartitioner,
)
from jointleaf.partitions._growers.base import Encoding, centred_targets, fine_bins, least_leaf_rows

_ORDINARY_COLUMNS, _ORDINARY_OUTPUTS = 200, 50
# Of partitions: their cells may have a slope for each column and class, all up to 500 of these.
_ALL_PARTITIONS, _LEAST_PARTITIONS = 500, 0.1
#: on which partitions of wide tables are grown: of thousands the best split is most often noise
SCREENED_COLUMNS = 100
#: MB of histograms that LightGBM holds for a tree of a wide table: one for every leaf is 360 MB
#: for 10,000 rows of 500 columns, and some are sooner counted again than kept
WIDE_HISTOGRAMS = 128
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


def limit_histograms(partitioner: Partitioner, n_columns: int) -> None:
    """Limit in place what unfitted large trees of a wide table hold while they grow."""
    for member in partitioner.nested() if is_wide(n_columns) else ():
        if isinstance(member, LargeTreesPartitioner):
            member.set_params(options={"histogram_pool_size": WIDE_HISTOGRAMS})


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
        lower = np.zeros(splits.shape)
        for target in targets.T:
            lower += np.square(np.cumsum((s * target)[order], axis=0)[ends])
        lower *= 1 / left + 1 / (s.sum() - left)
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

    They were measured on generated rows (200 to 20,000, 10 and 50 columns, up to 8 classes) and, of
    up to 471 classes, on real rows too. They are right to a factor of two or so; the pace of a
    `Budget` makes up for other machines.
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
_TEXT_BYTES = 500  # of a leaf, while LightGBM's text is read
_BIN_BYTES, _COLUMN_BYTES = 16, 800  # of a histogram: of a bin, and of every column
_COLUMN_ENTRIES, _TABLES = 60, 2**29  # of tables: bytes that are worth one, and the most of all
# n x n matrices alive: of the final fit, and of a fold with a squared error or another loss.
_DUAL, _FOLD_DUAL, _FOLD_NEWTON = 2.5, 3.0, 5.0
_MAX_FOLD_ROWS = 2500  # up to here penalties are chosen on several folds side by side
_READING = 200  # of a row, while rows are put in order and dealt out
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


class Stages(NamedTuple):
    """What a component takes while it is validated, and while models of all rows are made.

    The `solver` of a stage is free when the component is ready.
    """

    choosing: MemoryEstimate = MemoryEstimate()
    fitting: MemoryEstimate = MemoryEstimate()

    @property
    def largest(self) -> int:
        """The bytes of the larger stage."""
        return max(estimate.total for estimate in self)


# -- what is fitted ------------------------------------------------------------------------------


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
    keeps_split: bool = False  # whether models of the one split are those of the fit
    has_slopes: bool = True  # whether cells of an exact joint fit have them


class Used(NamedTuple):
    """What a fit will use, as far as a look at its rows has told."""

    slopes: bool = True  # in the cells of an exact joint fit
    components: tuple[str, ...] | None = None  # with very many rows; None: not known


def joint_memory(shape: FitShape, partitioner: Partitioner, n: int) -> Stages:
    """Return what a joint fit of unfitted partitions to n rows takes."""
    sizes = partition_sizes(partitioner)
    sizes += [(1, 1)] if shape.root_cell else []
    P, d, K, b = sum(p for p, _ in sizes), shape.n_features, shape.n_outputs, shape.itemsize
    n_slopes = d if shape.has_slopes else 0
    C = shape.n_tasks * sum(p * min(k, n) for p, k in sizes)  # every task has its own
    curvature = 8 * C * (n_slopes + 1)
    weights = curvature * K
    solver = _solver_name(shape, n, C * (d + 1))
    twice = 2 if solver == "fista" else 1
    n_copies, n_kept = (0, 3.7 + 1.2 / K) if solver == "dual" else (12, 4)  # of the weights
    codes, design = 4 * n * P, twice * (2 * n * max(d, 1) * b + 8 * n * P)
    fit = MemoryEstimate(
        codes=codes,
        design=design,
        solver=_solver_bytes(solver, n, d, C) + n_copies * weights + 80 * n * K,
        model=int(n_kept * weights) + SPLIT_BYTES * C,
    )
    f = shape.n_splits
    if f < 2 or shape.n_rows > _MAX_FOLD_ROWS:
        return Stages(fitting=fit)
    # Training parts of all folds together are f - 1 times the rows, and validation parts the rows.
    fit = replace(fit, codes=f * codes, design=f * design)
    if solver != "dual":
        return Stages(fitting=fit)
    # Kernels of folds are free before all rows are fitted, and so are their linear features.
    n_work = _FOLD_DUAL if shape.is_regression else _FOLD_NEWTON
    kernels = int((2 * (f - 1) + n_work * (1 - 1 / f) ** 2) * 8 * n**2) + 80 * n * K
    choosing = replace(fit, solver=kernels, model=0)
    return Stages(choosing, replace(fit, design=design + (f - 1) * n * (d * b + 8 * P)))


def grouped_memory(
    shape: FitShape,
    sizes: Sequence[tuple[CellKind, int, int]],
    n_boosted: int,
    n_steps: int,
    n_grown: int,
) -> Stages:
    """Return what a joint fit of groups takes, with so many steps along the path.

    Sizes are kinds of cells, numbers of partitions, and how many cells each has at most; there are
    boosted trees besides. Trees are grown on `n_grown` rows at most.
    """
    n, d, K, f = shape.n_rows, shape.n_features, shape.n_outputs, max(shape.n_splits, 1)
    most_cells = max(c for _, _, c in sizes)
    P = n_boosted + sum(p for _, p, _ in sizes)
    # The final fit has the constants of all splits, and the linear cells of the first.
    P_all = P + sum((f - 1) * p for kind, p, _ in sizes if kind == "constant")
    n_cells = sum(p * min(c, n) * (f if kind == "constant" else 1) for kind, p, c in sizes)
    n_linear = sum(p * min(c, n) for kind, p, c in sizes if kind == "linear")
    weights = 4 * (n_cells + n_linear * d) * K  # single precision, as linear features
    histograms = _histogram_bytes(most_cells, shape.n_columns, fine_bins(n))
    if is_wide(shape.n_columns):
        histograms = min(histograms, WIDE_HISTOGRAMS * 2**20)
    # Codes and rows of every split stay; groups are left out of copies of the codes.
    codes = f * n * P * np.min_scalar_type(-most_cells).itemsize
    splits = MemoryEstimate(codes=codes, design=8 * n * d * f)
    growing = histograms + 16 * min(n, n_grown) * d
    run = 13 * n * d + 4 * n * K * n_steps
    path = codes + f * run + 12 * weights
    # Codes of one split are joined, of several they are found anew, in four bytes.
    final = 0 if shape.keeps_split else (4 if f == 1 else 6) * n * P_all + run + 12 * weights
    return Stages(
        replace(splits, solver=max(growing, path)),
        # Vectors of the path are small: what they took is not all given back.
        replace(splits, solver=max(path, final), model=2 * weights + SPLIT_BYTES * n_cells),
    )


def fit_memory(shape: FitShape, components: Iterable[Stages]) -> MemoryEstimate:
    """Return what a fit takes: copies of the rows, and the larger stage of its components."""
    rows = 3 * shape.n_rows * max(shape.n_features, 1) * shape.itemsize
    reading = MemoryEstimate(other=_READING * shape.n_rows)
    choosing, fitting = (_together(stages) for stages in zip(Stages(), *components, strict=True))
    # Buffers of blocks of rows and tables are needed when models have been made.
    buffers = int(_BUFFERS * min(1.0, shape.n_rows / _BUFFER_ROWS)) + fitting.other
    fitting = replace(fitting, other=max(0, buffers - fitting.solver))
    largest = max(reading, choosing, fitting, key=lambda estimate: estimate.total)
    return replace(largest, rows=rows)


def _together(estimates: Sequence[MemoryEstimate]) -> MemoryEstimate:
    """Return the sum of what components take in a stage; they work one after the other."""
    total = sum(estimates, MemoryEstimate())
    return replace(total, solver=max(estimate.solver for estimate in estimates))


def partition_sizes(partitioner: Partitioner) -> list[tuple[int, int]]:
    """Return numbers of unfitted partitions, with how many cells each of them has at most."""
    return [size for member in partitioner.nested() for size in _sizes(member)]


def _histogram_bytes(n_leaves: int, n_columns: int, n_bins: int) -> int:
    """Return what LightGBM holds while it grows a tree: a histogram of every leaf."""
    return n_leaves * n_columns * (_BIN_BYTES * n_bins + _COLUMN_BYTES)


def boosted_memory(
    n_trees: int, n_leaves: int, n_columns: int, n_bins: int, n_weights: int
) -> Stages:
    """Return what boosted trees take whose leaves have so many weights each.

    Their text is read, weights are scaled and added, and of every column a table has the leaves
    that remain possible in every bin (`_trees.column_tables`).
    """
    n_cells, set_bytes = n_trees * n_leaves, 2 if n_leaves <= 16 else 4 * -(-n_leaves // 32)
    entries = min(n_columns * set_bytes, n_leaves * (set_bytes + _COLUMN_ENTRIES))
    return Stages(
        MemoryEstimate(solver=_histogram_bytes(n_leaves, n_columns, n_bins)),
        MemoryEstimate(
            solver=_TEXT_BYTES * n_cells,
            model=(SPLIT_BYTES + 3 * 8 * n_weights) * n_cells,
            other=min(n_trees * entries * (n_bins + 2), _TABLES),
        ),
    )


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
