"""The fitted model of all cells: what predicts, and can be scaled and added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import NonZeros, place
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.problem import Problem
from jointleaf._data.columns import Columns
from jointleaf._data.features import LinearFeatures
from jointleaf._data.rows import Rows
from jointleaf._model.bulk_predict import LEAST_ROWS, MOST_CELLS, GroupedSums, PlainSums
from jointleaf._model.contributions import (
    CellRanges,
    LinearContributions,
    TrainingMeans,
    TrainingSums,
    column_importances,
    padded,
)
from jointleaf.partitions import Partitioner, RootCell, UnionPartitioner

if TYPE_CHECKING:
    from jointleaf._core.solvers.solution import Solution

_DESCRIBED_ROWS = 4000  # most rows of which means and importances are
_DESCRIBED_ENTRIES = 2**20  # codes and contributions of rows that are looked at together


@dataclass(frozen=True)
class Frame:
    """What the cells are fitted in: how rows and targets become standardised numbers."""

    columns: Columns
    features: LinearFeatures
    loss: Loss
    offset: NDArray
    centre: float
    unit: float
    n_jobs: int

    def design(
        self, X: NDArray, partitioner: Partitioner, kinds: CellKind | Sequence[CellKind]
    ) -> LeafDesign:
        """Return the design of rows X (n, d) and all cells of a fitted partitioner."""
        features, codes = self.features.transform(X), partitioner.apply(X)
        n_cells, n_jobs = partitioner.n_cells_, self.n_jobs
        return LeafDesign(features, codes, n_cells, cells=kinds, n_jobs=n_jobs)

    def target(self, y: NDArray) -> NDArray:
        """Return targets (n,) in standard units."""
        return (y - self.centre) / self.unit

    def problem(self, design: LeafDesign, rows: Rows, penalty: Term) -> Problem:
        """Return the joint problem of rows."""
        offset = self.offset + rows.offset if rows.offset.any() else self.offset
        return Problem(design, self.target(rows.y), self.loss, penalty, rows.s, offset)


@dataclass(frozen=True, eq=False)
class CellModel:
    """Partitions, how rows become linear features, and the weights of all cells.

    With the linear features z of a row and its cell c_p in every partition, the raw prediction is

        centre + unit * (sum_p (<slopes of c_p, z> + bias of c_p) + offset).

    Models with the same linear features, centre and unit form a vector space: ``a * m1 + b * m2``
    is the model whose predictions in standard units, (raw - centre) / unit, are a f_1 + b f_2.
    Cells of partitioners that both models hold get the sum of both weights, all others stay
    beside each other.

    Attributes
    ----------
    partitioner : Partitioner
        Fitted.
    features : LinearFeatures
    layout : CellLayout
    slopes : array (L, m) or (L, m, K)
        Of the cells of linear partitions, in standard units.
    biases : array (C,) or (C, K)
        Of all cells, in standard units.
    offset : array () or (K,)
        In standard units.
    centre, unit : float
        Of the target.
    ranges : CellRanges or None
        To which the linear models of the cells are limited.
    means : TrainingMeans or None
        What explanations measure from (`jointleaf.inspection`).
    """

    partitioner: Partitioner
    features: LinearFeatures
    layout: CellLayout
    slopes: NDArray
    biases: NDArray
    offset: NDArray
    centre: float
    unit: float
    ranges: CellRanges | None = None
    means: TrainingMeans | None = None

    # -- making --------------------------------------------------------------------------------

    @classmethod
    def of_solution(
        cls,
        frame: Frame,
        partitioner: Partitioner,
        solution: Solution,
        ranges: CellRanges | None = None,
    ) -> CellModel:
        """Return the model of a joint fit in a frame."""
        return cls(
            partitioner, frame.features, solution.layout, solution.coef, solution.intercept,
            np.asarray(frame.offset), frame.centre, frame.unit, ranges,
        )  # fmt: skip

    @classmethod
    def of_constants(
        cls, frame: Frame, partitioner: Partitioner, values: ArrayLike, offset: ArrayLike = 0.0
    ) -> CellModel:
        """Return a model of constants (C,), (C, 1) or (C, K) of all cells, in standard units."""
        biases = np.asarray(values, float)
        biases = biases[:, 0] if biases.ndim == 2 and biases.shape[1] == 1 else biases
        m, outputs = len(frame.features.plan.names), biases.shape[1:]
        layout = CellLayout(tuple(partitioner.n_cells_.tolist()), m, "constant")
        offset = np.broadcast_to(np.asarray(offset, float), outputs).copy()
        return cls(
            partitioner, frame.features, layout, np.zeros((0, m, *outputs)), biases, offset,
            frame.centre, frame.unit,
        )  # fmt: skip

    @classmethod
    def of_leaf_values(cls, frame: Frame, partitioner: Partitioner, values: NDArray) -> CellModel:
        """Return the model whose raw predictions are sums of leaf values (C, K)."""
        offset = -frame.centre / frame.unit
        return cls.of_constants(frame, partitioner, values / frame.unit, offset)

    @classmethod
    def linear(cls, frame: Frame, slopes: NDArray, bias: ArrayLike) -> CellModel:
        """Return a global linear model, slopes (m[, K]) and bias () or (K,), in a root cell."""
        root = RootCell().fit(np.zeros((1, len(frame.columns))))
        bias = np.asarray(bias, float)
        return cls(
            root, frame.features, CellLayout((1,), len(slopes), "linear"), slopes[None],
            bias[None], np.zeros(bias.shape), frame.centre, frame.unit,
        )  # fmt: skip

    def described(self, X: NDArray, s: NDArray) -> tuple[CellModel, NDArray[np.float64]]:
        """Return the model with the means of training rows, and the importances of columns (d,).

        Of rows X (n, d) with weights s (n,) only the first 4,000 are used: their order is random,
        and finding the cells of all would take as long as growing many of the trees.
        """
        contributions, n_partitions = self.contributions, len(self.layout.cells_per_partition)
        sums = TrainingSums(self.layout, self.n_outputs)
        width = n_partitions + self.layout.n_features * self.n_outputs
        n, step = min(len(X), _DESCRIBED_ROWS), max(1, _DESCRIBED_ENTRIES // width)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            codes = self.partitioner.apply(X[rows])
            sums.add(contributions(self.features.transform(X[rows]), codes), codes, s[rows])
        importances = column_importances(
            sums.spread(), self.partitioner, self.features.plan.sources
        )
        return replace(self, means=sums.means(len(X))), importances

    def in_units(self, frame: Frame) -> CellModel:
        """Return the same model, of cells with constants, in the standard units of a frame."""
        if self.slopes.size:
            raise ValueError("slopes are those of standardised features: fit them in the frame")
        ratio, shift = self.unit / frame.unit, (self.centre - frame.centre) / frame.unit
        return replace(
            self,
            features=frame.features,
            biases=ratio * self.biases,
            offset=np.asarray(ratio * self.offset + shift),
            centre=frame.centre,
            unit=frame.unit,
            means=None,
        )

    # -- algebra -------------------------------------------------------------------------------

    def __mul__(self, factor: float) -> CellModel:
        return replace(
            self,
            slopes=factor * self.slopes,
            biases=factor * self.biases,
            offset=np.asarray(factor * self.offset),
            means=None,
        )

    __rmul__ = __mul__

    def __add__(self, other: CellModel) -> CellModel:
        if not isinstance(other, CellModel):
            return NotImplemented
        self._check_frame(other)
        return _sum(self, other)

    def __sub__(self, other: CellModel) -> CellModel:
        return self + -1.0 * other

    def plus_constant(self, constant: ArrayLike) -> CellModel:
        """Return the model plus a constant () or (K,) in standard units."""
        return replace(self, offset=np.asarray(self.offset + constant), means=None)

    def _check_frame(self, other: CellModel) -> None:
        if self.biases.shape[1:] != other.biases.shape[1:]:
            raise ValueError(
                f"a model with outputs {self.biases.shape[1:]} and one with outputs "
                f"{other.biases.shape[1:]} cannot be added: fit both to the same classes"
            )
        units, others = (self.centre, self.unit), (other.centre, other.unit)
        if not self.features.equals(other.features) or units != others:
            raise ValueError(
                "models in different units cannot be added: fit both in the same frame"
            )

    # -- describing ----------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        """K, or 1."""
        return int(np.prod(self.biases.shape[1:]))

    @property
    def contributions(self) -> LinearContributions:
        """What the linear features add to predictions, in standard units."""
        return LinearContributions(self.layout, self.slopes, self.ranges)

    def slope_norms(self) -> NDArray[np.float64]:
        """Return the norm of each linear feature's slopes over all cells and outputs, (m,)."""
        squares = np.square(self.slopes, dtype=float)
        return np.sqrt(squares.sum(axis=(0, *range(2, squares.ndim))))

    def coef(self) -> NDArray:
        """Return the slopes of all cells in the units of the input, (C, m) or (C, m, K)."""
        return padded(self.unit * self._raw_slopes())[self.layout.slope_rows]

    def intercept(self) -> NDArray:
        """Return the biases of all cells in the units of the input, (C,) or (C, K)."""
        shift = np.einsum("cd...,d->c...", self._raw_slopes(), self.features.scaler.mean)
        biases = self.biases.astype(np.result_type(self.biases, shift))
        biases[self.layout.linear_cells] -= shift
        return self.unit * biases

    def _raw_slopes(self) -> NDArray:
        extra = (None,) * (self.slopes.ndim - 2)
        return self.slopes / self.features.scaler.scale[(slice(None), *extra)]

    # -- predicting ----------------------------------------------------------------------------

    def predict(self, X: NDArray, n_jobs: int = 1, device: str = "cpu") -> NDArray:
        """Return predictions on the scale of the loss, (n,) or (n, K), of rows X (n, d).

        From `LEAST_ROWS` rows on small trees are looked up in tables, several at a time
        (`GroupedSums`), where most trees are small; the numbers are the same up to rounding. On
        other devices than the CPU all cells are gathered.
        """
        sums = self._sums(X, n_jobs, device)
        # With a type: NumPy 1 would add a single offset in that of the sums.
        total = np.add(sums, self.offset, dtype=np.result_type(sums.dtype, self.offset.dtype))
        return self.centre + self.unit * total

    def _sums(self, X: NDArray, n_jobs: int, device: str) -> NDArray:
        # Counting the entries of a row takes longer than some of the steps below.
        n_entries = 0 if device == "cpu" else len(X) * self.layout.entries_per_row * self.n_outputs
        chosen = place(device, n_entries)
        if self.ranges is None and chosen != "cpu":
            return self._on_device(X, chosen)
        if self.ranges is None and len(X) >= LEAST_ROWS and self._is_of_small_trees:
            tables = self.lookup_tables(X.dtype)
            if tables.n_groups:
                return tables(X, self.features, n_jobs)
        return self._plain_sums(X, self.features, n_jobs)

    def _on_device(self, X: NDArray, device: str) -> NDArray:
        from jointleaf._core.jax.problem import predict

        features, codes = self.features.transform(X), self.partitioner.apply(X)
        theta = self.layout.join(self.slopes, self.biases).astype(features.dtype)
        return predict(features, codes, theta, self.layout, device)

    @cached_property
    def _plain_sums(self) -> PlainSums:
        return PlainSums([self.partitioner], self.layout, self.slopes, self.biases, self.ranges)

    @property
    def _is_of_small_trees(self) -> bool:
        """Whether most partitions may be looked up in tables, several at a time."""
        return bool(np.median(self.layout.cells_per_partition) <= MOST_CELLS)

    def lookup_tables(self, dtype: np.dtype) -> GroupedSums:
        """Return the tables, made when they are needed for the first time."""
        tables: dict[np.dtype, GroupedSums] = self.__dict__.setdefault("_tables_by_dtype", {})
        if dtype not in tables:
            # Sums of several trees are as precise as the rows, whatever the weights are.
            slopes, biases = self.slopes.astype(dtype), self.biases.astype(dtype)
            tables[dtype] = GroupedSums(self.partitioner, self.layout, slopes, biases, dtype)
        return tables[dtype]

    def __getstate__(self) -> dict[str, Any]:
        # Tables are made anew from the weights: they would only make pickles larger.
        cached = ("_plain_sums", "_tables_by_dtype")
        state = {k: value for k, value in self.__dict__.items() if k not in cached}
        for name in ("slopes", "biases"):  # a boosted tree adds to one of K classes
            state[name] = NonZeros.of(state[name]) or state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in ("slopes", "biases"):
            if isinstance(state[name], NonZeros):
                state[name] = state[name].array()
        self.__dict__.update(state)


# -- sums ------------------------------------------------------------------------------------------


def _sum(first: CellModel, second: CellModel) -> CellModel:
    """Add the weights of common partitioners' cells, and append the other partitioners."""
    common = _members(first.partitioner)
    appended: list[Partitioner] = []
    counts, kinds = list(first.layout.cells_per_partition), list(first.layout.kinds)
    partitions: list[int] = []  # in the sum, of every partition of the second model
    for member, begin in _members(second.partitioner):
        end = begin + len(member.n_cells_)
        start = _place(member, slice(begin, end), common, first, second)
        if start in partitions:  # of two equal members the second has no place left
            start = None
        if start is None:
            start = len(counts)
            appended.append(member)
            counts += second.layout.cells_per_partition[begin:end]
            kinds += second.layout.kinds[begin:end]
        for p in range(begin, end):
            partitions.append(start + p - begin)
            if second.layout.kinds[p] == "linear":
                kinds[partitions[-1]] = "linear"
    layout = CellLayout(tuple(counts), first.layout.n_features, tuple(kinds))
    steps = layout.offsets[partitions] - second.layout.offsets[:-1]
    cells = np.arange(second.layout.n_cells) + steps[second.layout.partition_of_cell]
    biases = np.zeros((layout.n_cells, *first.biases.shape[1:]))
    biases[: first.layout.n_cells] = first.biases
    biases[cells] += second.biases
    rows = layout.slope_rows[first.layout.linear_cells]
    second_rows = layout.slope_rows[cells[second.layout.linear_cells]]
    slopes = np.zeros((layout.n_linear_cells, *first.slopes.shape[1:]))
    slopes[rows] = first.slopes
    slopes[second_rows] += second.slopes
    partitioner = first.partitioner
    if appended:
        partitioner = UnionPartitioner.of_fitted([*(m for m, _ in common), *appended])
    return replace(
        first,
        partitioner=partitioner,
        layout=layout,
        slopes=slopes.astype(_precision(first.slopes, second.slopes), copy=False),
        biases=biases.astype(_precision(first.biases, second.biases), copy=False),
        offset=np.asarray(first.offset + second.offset),
        ranges=_joined_ranges(layout, [(first.ranges, rows), (second.ranges, second_rows)]),
        means=None,
    )


def _precision(*weights: NDArray) -> np.dtype:
    """Return the least precise type: a sum with rounded numbers is no more precise than these."""
    types = [array.dtype for array in weights if array.size]
    return min(types, key=lambda dtype: dtype.itemsize, default=weights[0].dtype)


def _members(partitioner: Partitioner) -> list[tuple[Partitioner, int]]:
    """The members of a union, or the partitioner itself, with their first partitions."""
    is_union = isinstance(partitioner, UnionPartitioner)
    members = partitioner.partitioners_ if is_union else [partitioner]
    sizes = [len(member.n_cells_) for member in members]
    return list(zip(members, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))


def _place(
    member: Partitioner,
    partitions: slice,
    common: list[tuple[Partitioner, int]],
    first: CellModel,
    second: CellModel,
) -> int | None:
    """First partition of the same partitioner in the first model; None where there is none.

    Linear models with ranges of their own cannot be added: a cell has one range.
    """
    has_one_range = first.ranges is None and second.ranges is None
    has_one_range |= first.ranges is second.ranges and first.partitioner is second.partitioner
    for candidate, start in common:
        is_same = candidate is member
        if not is_same and not (isinstance(candidate, RootCell) and isinstance(member, RootCell)):
            continue
        kinds = first.layout.kinds[start : start + partitions.stop - partitions.start]
        pairs = zip(kinds, second.layout.kinds[partitions], strict=True)
        if has_one_range or ("linear", "linear") not in pairs:
            return start
    return None


def _joined_ranges(
    layout: CellLayout, parts: list[tuple[CellRanges | None, NDArray[np.intp]]]
) -> CellRanges | None:
    """Ranges of all linear cells from those of some (their rows in the slopes)."""
    known = [(ranges, rows) for ranges, rows in parts if ranges is not None]
    if not known:
        return None
    shape = (layout.n_linear_cells + 1, layout.n_features)
    low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
    low[-1], high[-1] = 0.0, 0.0
    for ranges, rows in known:
        low[rows], high[rows] = ranges.low[:-1], ranges.high[:-1]
    return CellRanges(low, high)
