"""The design on a device: forward by gathers, adjoint by segment sums.

Partitions are passed over one at a time, so that the largest array is (n, q): neither n x C nor
n x P x q numbers ever exist. Outputs, too, are passed over one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike, DTypeLike, NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.design_base import Design
from jointleaf._core.device import double_precision, find_device
from jointleaf._core.jax.norms import pytree
from jointleaf._core.layout import CellKind

__all__ = ["DeviceDesign", "JaxLeafDesign", "device_design", "matvec"]


@pytree("X cells", "n_cells")
@dataclass(frozen=True)
class DeviceDesign:
    """Phi as a pytree; all methods are pure functions that JAX can compile.

    Attributes
    ----------
    X : array (n, q)
        Rows with a column of ones behind them.
    cells : int32 array (P, n)
        Cell of every row in every partition, numbered over all of them; C for none.
    n_cells : int
        C.
    """

    X: Any
    cells: Any
    n_cells: int

    def matvec(self, theta: Any) -> Any:
        """Predictions (n,) or (n, K) of weights (C, q) or (C, q, K)."""
        if theta.ndim == 3:
            return jnp.moveaxis(lax.map(self.matvec, jnp.moveaxis(theta, 2, 0)), 0, 1)
        return jnp.einsum("nq,nq->n", self._gathered(theta), self.X)

    def bias_matvec(self, biases: Any) -> Any:
        """Predictions (n,) or (n, K) of biases (C,) or (C, K)."""
        return self._gathered(biases)

    def _gathered(self, weights: Any) -> Any:
        """Sum over partitions of every row's cell, (n, ...), of weights (C, ...)."""
        none = jnp.zeros((1, *weights.shape[1:]), weights.dtype)  # what no cell contributes
        table = jnp.concatenate([weights, none])

        def add(p: Any, total: Any) -> Any:
            return total + jnp.take(table, self.cells[p], axis=0, mode="clip")

        start = jnp.zeros((self.X.shape[0], *weights.shape[1:]), weights.dtype)
        return lax.fori_loop(0, self.cells.shape[0], add, start)

    def rmatvec(self, r: Any) -> Any:
        """Adjoint (C, q) or (C, q, K) of r (n,) or (n, K)."""
        if r.ndim == 2:
            return jnp.moveaxis(lax.map(self.rmatvec, r.T), 0, 2)
        return self._summed(r[:, None] * self.X)

    def bias_rmatvec(self, r: Any) -> Any:
        """Sums of r (n,) or (n, K) over the rows of every cell."""
        return self._summed(r)

    def _summed(self, rows: Any) -> Any:
        """Sums of rows (n, ...) over the rows of every cell, (C, ...)."""

        def add(p: Any, total: Any) -> Any:
            return total.at[self.cells[p]].add(rows, mode="promise_in_bounds")

        start = jnp.zeros((self.n_cells + 1, *rows.shape[1:]), rows.dtype)
        return lax.fori_loop(0, self.cells.shape[0], add, start)[:-1]

    def cell_grams(self, h: Any) -> Any:
        """Gram matrices of all cells, (C, q, q); one of their columns at a time."""
        columns = lax.map(lambda x: self._summed((h * x)[:, None] * self.X), self.X.T)
        return jnp.moveaxis(columns, 0, 1)

    def cell_diagonals(self, h: Any) -> Any:
        """Diagonals of `cell_grams`, (C, q)."""
        return self._summed(h[:, None] * jnp.square(self.X))


def device_design(design: Design, device: Any) -> DeviceDesign:
    """Move a design to a device; the tasks of several become one, with all their cells."""
    blocks = design.blocks()
    n_cells = design.layout.n_cells
    widest = max(block.design.layout.n_partitions for block in blocks)
    cells = np.full((widest, design.n_rows), n_cells, np.int32)
    for rows, own, part in blocks:
        numbers = part.cells().T
        found = numbers < part.layout.n_cells
        cells[: len(numbers), rows] = np.where(found, numbers + own.start, n_cells)
    X = np.concatenate([b.design.X for b in blocks]) if len(blocks) > 1 else blocks[0].design.X
    X, cells = jax.device_put((X, cells), device)
    return DeviceDesign(X, cells, n_cells)


@jax.jit
def matvec(design: DeviceDesign, theta: Any) -> Any:
    """Predictions (n,) or (n, K) of weights (C, q) or (C, q, K), compiled."""
    return design.matvec(theta)


@jax.jit
def _rmatvec(design: DeviceDesign, r: Any) -> Any:
    return design.rmatvec(r)


@jax.jit
def _bias_matvec(design: DeviceDesign, biases: Any) -> Any:
    return design.bias_matvec(biases)


@jax.jit
def _bias_rmatvec(design: DeviceDesign, r: Any) -> Any:
    return design.bias_rmatvec(r)


@jax.jit
def _cell_grams(design: DeviceDesign, h: Any) -> Any:
    return design.cell_grams(h)


@jax.jit
def _cell_diagonals(design: DeviceDesign, h: Any) -> Any:
    return design.cell_diagonals(h)


class JaxLeafDesign(LeafDesign):
    """A `LeafDesign` whose products are computed on a device; arrays are NumPy's.

    Parameters
    ----------
    X, codes, n_cells, cells, dtype
        As for `LeafDesign`.
    device : {"gpu", "tpu", "jax:cpu"}
    """

    def __init__(
        self,
        X: ArrayLike,
        codes: ArrayLike,
        n_cells: ArrayLike | None = None,
        *,
        cells: CellKind = "linear",
        dtype: DTypeLike | None = None,
        device: str = "gpu",
    ) -> None:
        self._device = find_device(device)
        super().__init__(X, codes, n_cells, cells=cells, dtype=dtype)
        self._moved: DeviceDesign | None = None

    def merge_partitions(self) -> JaxLeafDesign:
        """Nothing: gathers need no merging."""
        return self

    def with_features(self, features: NDArray[np.intp]) -> LeafDesign:
        """Give the design of linear cells that see only some features."""
        other = super().with_features(features)
        other._moved = None  # type: ignore[attr-defined]
        return other

    def _call(self, product: Any, values: NDArray) -> NDArray:
        with double_precision():
            if self._moved is None:
                self._moved = device_design(self, self._device)
            moved = jax.device_put(np.asarray(values, self.dtype), self._device)
            return np.asarray(product(self._moved, moved))

    def matvec(self, theta: NDArray) -> NDArray:
        """Predictions f (n,) or (n, K) of weights theta (C, q) or (C, q, K)."""
        return self._call(matvec, theta)

    def rmatvec(self, r: NDArray) -> NDArray:
        """Adjoint: G (C, q) or (C, q, K) with G_c = sum over rows n in cell c of r_n x_n."""
        return self._call(_rmatvec, r)

    def bias_matvec(self, biases: NDArray) -> NDArray:
        """Predictions f of biases (C,) or (C, K) alone."""
        return self._call(_bias_matvec, biases)

    def bias_rmatvec(self, r: NDArray) -> NDArray:
        """Sums of r (n,) or (n, K) over the rows of every cell."""
        return self._call(_bias_rmatvec, r)

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        """Gram matrices of all cells, (C, q, q)."""
        return self._call(_cell_grams, h).astype(float)

    def cell_diagonals(self, h: NDArray) -> NDArray[np.float64]:
        """Diagonals of `cell_grams`, (C, q)."""
        return self._call(_cell_diagonals, h).astype(float)
