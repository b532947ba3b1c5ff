"""A problem on a device: the design's products, the data term and the penalty's proximal map.

The design is applied by gathers and its adjoint by segment sums, one partition and one output at
a time: the largest array is (n, d), and neither n x C nor n x P x d numbers ever exist.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray
from scipy import sparse

from jointleaf._core.arrays import double_precision, find_device, shaped
from jointleaf._core.blocks import Design
from jointleaf._core.layout import CellLayout, check_codes
from jointleaf._core.losses import Loss
from jointleaf._core.penalties.base import Penalty
from jointleaf._core.problem import DataTerm, Problem

_BLOCK_ROWS = 2**17
_LEAST_ROWS = 2**8

T = TypeVar("T")


def pytree(data: str, meta: str = "") -> Callable[[type[T]], type[T]]:
    """Make a dataclass a pytree with these fields as leaves and as structure."""

    def decorate(cls: type[T]) -> type[T]:
        return jax.tree_util.register_dataclass(
            cls, data_fields=data.split(), meta_fields=meta.split()
        )

    return decorate


# -- the design ----------------------------------------------------------------------------------


@pytree("X cells slope_rows", "layout")
@dataclass(frozen=True)
class DeviceDesign:
    """Phi as a pytree, with the methods of `LeafDesign` as pure functions that JAX can compile."""

    X: Any  # (n, d)
    #: cell of every row in every partition, numbered over all of them, C for none: int32 (P, n)
    cells: Any
    #: the same for linear partitions, as rows of the slopes (L, d), L for none: (P_linear, n)
    slope_rows: Any
    layout: CellLayout

    @property
    def dtype(self) -> Any:
        return self.X.dtype

    def matvec(self, theta: Any) -> Any:
        if theta.ndim == 2:
            return lax.map(self.matvec, theta.T).T
        slopes, biases = self.layout.split(theta)
        f = _gathered(self.cells, biases)
        if not slopes.size:
            return f
        return f + jnp.einsum("nd,nd->n", _gathered(self.slope_rows, slopes), self.X)

    def rmatvec(self, r: Any) -> Any:
        if r.ndim == 2:
            return lax.map(self.rmatvec, r.T).T
        biases = self.bias_rmatvec(r)
        if not self.layout.n_linear_cells:
            return biases
        return self.layout.join(self.slope_sums(r[:, None] * self.X), biases)

    def bias_matvec(self, biases: Any) -> Any:
        return _gathered(self.cells, biases)

    def bias_rmatvec(self, r: Any) -> Any:
        return _summed(self.cells, r, self.layout.n_cells)

    def slope_sums(self, rows: Any) -> Any:
        """Return sums of rows (n, d) over the rows of every linear cell, (L, d)."""
        return _summed(self.slope_rows, rows, self.layout.n_linear_cells)

    def cell_mass(self, h: Any) -> Any:
        return self.bias_rmatvec(h).astype(float)

    def cell_grams(self, h: Any) -> Any:
        rows = jnp.append(self.X, jnp.ones((self.X.shape[0], 1), self.dtype), axis=1)
        columns = lax.map(lambda x: self.slope_sums((h * x)[:, None] * rows), rows.T)
        return jnp.moveaxis(columns, 0, 1).astype(float)

    def cell_diagonals(self, h: Any) -> Any:
        slopes = self.slope_sums(h[:, None] * jnp.square(self.X))
        return self.layout.join(slopes, self.bias_rmatvec(h)).astype(float)


def _gathered(places: Any, weights: Any) -> Any:
    """Return sums over partitions, (n, ...), of the weights (m, ...) at places (P, n); m: none."""
    none = jnp.zeros((1, *weights.shape[1:]), weights.dtype)
    table = jnp.concatenate([weights, none])

    def add(p: Any, total: Any) -> Any:
        return total + jnp.take(table, places[p], axis=0, mode="clip")

    start = jnp.zeros((places.shape[1], *weights.shape[1:]), weights.dtype)
    return lax.fori_loop(0, places.shape[0], add, start)


def _summed(places: Any, rows: Any, count: int) -> Any:
    """Return sums (count, ...) of rows (n, ...) over the places (P, n) where they fall."""

    def add(p: Any, total: Any) -> Any:
        return total.at[places[p]].add(rows, mode="promise_in_bounds")

    start = jnp.zeros((count + 1, *rows.shape[1:]), rows.dtype)
    return lax.fori_loop(0, places.shape[0], add, start)[:-1]


def _host_design(
    X: NDArray, cells: NDArray[np.int32], layout: CellLayout, is_linear: NDArray[np.bool_]
) -> DeviceDesign:
    """Make a design of cells (P, n), of whose rows some belong to linear partitions."""
    if layout.n_linear_cells == layout.n_cells:
        return DeviceDesign(X, cells, cells, layout)
    rows = np.append(layout.slope_rows, layout.n_linear_cells).astype(np.int32)
    return DeviceDesign(X, cells, rows[cells[is_linear]], layout)


def device_design(design: Design, device: Any) -> DeviceDesign:
    """Move a design to a device; the tasks of several become one, with all their cells."""
    blocks, layout = design.blocks(), design.layout
    widest = max(block.design.layout.n_partitions for block in blocks)
    cells = np.full((widest, design.n_rows), layout.n_cells, np.int32)
    is_linear = np.zeros(widest, bool)
    for rows, cell_range, part in blocks:
        numbers = part.cells().T
        is_cell = numbers < part.layout.n_cells
        cells[: len(numbers), rows] = np.where(is_cell, numbers + cell_range.start, layout.n_cells)
        is_linear[: len(numbers)] |= np.array(part.layout.kinds) == "linear"
    X = np.concatenate([block.design.X[:, :-1] for block in blocks])
    return jax.device_put(_host_design(X, cells, layout, is_linear), device)


@jax.jit
def _matvec(design: DeviceDesign, theta: Any) -> Any:
    return design.matvec(theta)


def predict(X: NDArray, codes: NDArray, theta: NDArray, layout: CellLayout, device: str) -> NDArray:
    """Return sums over partitions, (n,) or (n, K), of rows X (n, d) with codes (n, P).

    -1 is no cell. Blocks of rows are filled up to a power of two, so that little is compiled.
    """
    place = find_device(device)
    codes, _ = check_codes(codes, len(X), layout.cells_per_partition, allow_no_cell=True)
    is_linear = np.array(layout.kinds) == "linear"
    parts = [np.zeros((0, *theta.shape[1:]), theta.dtype)]
    with double_precision():
        moved = jax.device_put(theta, place)
        for start in range(0, len(X), _BLOCK_ROWS):
            block = codes[start : start + _BLOCK_ROWS]
            size = max(_LEAST_ROWS, 1 << (len(block) - 1).bit_length())
            rows = np.zeros((size, layout.n_slopes), theta.dtype)
            rows[: len(block)] = X[start : start + _BLOCK_ROWS, : layout.n_slopes]
            cells = np.full((block.shape[1], size), layout.n_cells, np.int32)
            cells[:, : len(block)] = np.where(
                block >= 0, block + layout.offsets[:-1], layout.n_cells
            ).T
            design = _host_design(rows, cells, layout, is_linear)
            parts.append(np.asarray(_matvec(jax.device_put(design, place), moved))[: len(block)])
    return np.concatenate(parts)


# -- the data term -------------------------------------------------------------------------------


@pytree("values rows columns")
@dataclass(frozen=True)
class _Sparse:
    """A sparse matrix: its entries."""

    values: Any
    rows: Any
    columns: Any

    def __matmul__(self, f: Any) -> Any:
        parts = shaped(self.values, f) * f[self.columns]
        return jax.ops.segment_sum(parts, self.rows, f.shape[0])

    def dense(self, n: int) -> Any:
        """Return the matrix (n, n)."""
        zero = jnp.zeros((n, n), self.values.dtype)
        return zero.at[self.rows, self.columns].add(self.values)


@pytree("parts", "bounds")
@dataclass(frozen=True)
class _Smoother:
    """A block-diagonal matrix on predictions: a dense or sparse block for every task."""

    parts: tuple[Any, ...]
    bounds: tuple[int, ...]

    def __matmul__(self, f: Any) -> Any:
        pairs = zip(pairwise(self.bounds), self.parts, strict=True)
        return jnp.concatenate([part @ f[a:b] for (a, b), part in pairs])

    def dense(self) -> Any:
        """Return the matrix (n, n) of a single block."""
        (part,) = self.parts
        return part.dense(self.bounds[-1]) if isinstance(part, _Sparse) else part


@pytree("design y s offset smoother start_slope numbers", "frozen_loss")
@dataclass(frozen=True)
class DeviceProblem(DataTerm):
    """The data term of a `Problem`, on a device; the weights s (n,) of rows sum to 1.

    The loss is compiled in, but for the attributes that it says will change (`Loss.traced`).
    """

    design: DeviceDesign
    y: Any
    s: Any
    offset: Any
    smoother: Any
    start_slope: Any
    numbers: tuple[Any, ...]  # those attributes
    frozen_loss: Loss  # without them

    total = 1.0

    @property
    def loss(self) -> Loss:  # type: ignore[override]
        """The loss with all its attributes."""
        loss = copy.copy(self.frozen_loss)
        vars(loss).update(zip(loss.traced, self.numbers, strict=True))
        return loss

    def optimality(self, gradient: Any) -> Any:
        """Return the largest entry of a gradient, relative to that at zero weights."""
        return jnp.abs(gradient).max().astype(jnp.float64) / self.start_slope


def move_problem(problem: Problem, device: Any) -> DeviceProblem:
    """Move the data of a problem to a device."""
    put = partial(jax.device_put, device=device)
    loss = copy.copy(problem.loss)
    numbers = tuple(np.asarray(vars(loss).pop(name), float) for name in loss.traced)
    return DeviceProblem(
        device_design(problem.design, device),
        put(problem.y),
        put(problem.s / problem.s.sum()),
        put(problem.offset),
        put(_host_smoother(problem)),
        put(np.asarray(problem.start_slope, float)),
        put(numbers),
        loss,
    )


def _host_smoother(problem: Problem) -> _Smoother | None:
    if problem.smoother is None:
        return None
    parts: list[Any] = []
    bounds = [0]
    for matrix in getattr(problem.smoother, "parts", [problem.smoother]):
        bounds.append(bounds[-1] + matrix.shape[0])
        if sparse.issparse(matrix):
            entries = sparse.coo_array(matrix)
            rows, columns = entries.coords
            parts.append(_Sparse(entries.data, rows.astype(np.int32), columns.astype(np.int32)))
        else:
            parts.append(np.asarray(matrix))
    return _Smoother(tuple(parts), tuple(bounds))


@lru_cache(maxsize=64)
def compiled_loss(loss: Loss, shape: tuple[int, ...]) -> str | None:
    """Return why JAX cannot compile a loss of (n,) or (n, K) predictions; None where it can."""
    f = jax.ShapeDtypeStruct(shape, np.float64)

    def derivatives(y: Any, f: Any) -> Any:
        rows = loss.row_loss(y, f), loss.row_gradient(y, f), loss.row_curvature(y, f)
        return *rows, loss.row_hessian_product(loss.row_hessian(y, f), f)

    return _reason(derivatives, f, f)


def _reason(function: Any, *arguments: Any) -> str | None:
    """Return the error of tracing a function, in one line; None if there is none."""
    try:
        with double_precision():
            jax.eval_shape(function, *arguments)
    except Exception as error:  # whatever the code of a user raises
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


# -- the penalty ---------------------------------------------------------------------------------


@pytree("leaves", "structure")
@dataclass(frozen=True)
class DevicePenalty:
    """A bound penalty as a pytree: its floats and arrays are leaves, all else is structure.

    Changing strengths and weights therefore compiles nothing anew.
    """

    leaves: tuple[Any, ...]
    structure: Any

    @classmethod
    def of(cls, penalty: Penalty) -> DevicePenalty:
        """Take a penalty apart, in leaves of NumPy."""
        leaves: list[Any] = []
        structure = _take_apart(penalty, leaves)
        return cls(tuple(leaves), structure)

    def prox(self, theta: Any, step: Any) -> Any:
        """Return the proximal map of the penalty."""
        return _put_together(self.structure, iter(self.leaves)).prox(theta, step)


def _take_apart(value: Any, leaves: list[Any], *, is_fixed: bool = False) -> tuple[Any, ...]:
    """Return the structure of a value, and add its leaves."""
    if isinstance(value, Penalty):
        fields = vars(copy.copy(value))  # without what a penalty does not copy
        return "penalty", type(value), tuple(
            (name, _take_apart(field, leaves, is_fixed=name in value.compiled_in))
            for name, field in fields.items()
        )  # fmt: skip
    if isinstance(value, tuple):
        return "tuple", tuple(_take_apart(item, leaves, is_fixed=is_fixed) for item in value)
    if isinstance(value, float | np.ndarray) and not is_fixed:
        leaves.append(np.asarray(value))
        return ("leaf",)
    return "fixed", value


def _put_together(structure: Any, leaves: Iterator[Any]) -> Any:
    """Return a value from its structure and leaves: the inverse of `_take_apart`."""
    kind, *content = structure
    if kind == "leaf":
        return next(leaves)
    if kind == "fixed":
        return content[0]
    if kind == "tuple":
        return tuple(_put_together(item, leaves) for item in content[0])
    cls, fields = content
    penalty = object.__new__(cls)
    vars(penalty).update({name: _put_together(field, leaves) for name, field in fields})
    return penalty


def compiled_penalty(penalty: Penalty, theta: NDArray) -> str | None:
    """Return why JAX cannot compile the proximal map of a penalty; None where it can."""
    moved = DevicePenalty.of(penalty)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in moved.leaves)
    try:
        return _prox_reason(moved.structure, shapes, theta.shape, theta.dtype)
    except TypeError as error:  # an attribute that cannot be a part of a key
        return str(error)


@lru_cache(maxsize=256)
def _prox_reason(structure: Any, shapes: Any, shape: Any, dtype: Any) -> str | None:
    leaves = tuple(jax.ShapeDtypeStruct(*pair) for pair in shapes)
    theta, step = jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct((), np.float64)

    def prox(penalty: DevicePenalty, theta: Any, step: Any) -> Any:
        return penalty.prox(theta, step)

    return _reason(prox, DevicePenalty(leaves, structure), theta, step)
