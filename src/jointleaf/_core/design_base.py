"""What a design is: a linear map from the weights of all cells to predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout

if TYPE_CHECKING:
    from jointleaf._core.design import LeafDesign

__all__ = ["Block", "Design"]


class Block(NamedTuple):
    """Rows and cells that have nothing to do with any others, and their design."""

    rows: slice
    cells: slice
    design: LeafDesign


class Design(ABC):
    """Maps all cell weights to predictions and back; never a dense matrix.

    Attributes
    ----------
    layout : CellLayout
        Of the weights theta (C, q) or (C, q, K).
    dtype : float32 or float64
    n_rows : int
    """

    layout: CellLayout
    dtype: np.dtype
    n_rows: int

    # -- shapes and costs ----------------------------------------------------------------------

    @abstractmethod
    def blocks(self) -> list[Block]:
        """The parts of which the map is made, with no row and no cell in common: one per task."""

    @property
    @abstractmethod
    def largest_value(self) -> float:
        """Largest absolute value of a row, the one for the bias among them."""

    @property
    def layout_shape(self) -> tuple[int, int]:
        """Shape of the weights of one output, (C, q)."""
        return self.layout.n_cells, self.layout.n_columns

    # -- related designs -----------------------------------------------------------------------

    @abstractmethod
    def merge_partitions(self) -> Design:
        """Make passes cheaper where that is possible; gives the design."""

    @abstractmethod
    def in_double(self) -> Design:
        """Give the same design in float64."""

    @abstractmethod
    def with_features(self, features: NDArray[np.intp]) -> Design:
        """Give the design of linear cells that see only some features."""

    # -- products ------------------------------------------------------------------------------

    @abstractmethod
    def matvec(self, theta: NDArray) -> NDArray:
        """Predictions f (n,) or (n, K) of weights theta (C, q) or (C, q, K)."""

    @abstractmethod
    def rmatvec(self, r: NDArray) -> NDArray:
        """Adjoint: G (C, q) or (C, q, K) with G_c = sum over rows n in cell c of r_n x_n."""

    @abstractmethod
    def bias_matvec(self, biases: NDArray) -> NDArray:
        """Predictions f of biases (C,) or (C, K) alone: Z b."""

    @abstractmethod
    def bias_rmatvec(self, r: NDArray) -> NDArray:
        """Sums of r (n,) or (n, K) over the rows of every cell, (C,) or (C, K): Z^T r."""

    @abstractmethod
    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        """Gram matrices of all cells, (C, q, q): sum over a cell's rows of h_n x_n x_n^T."""

    @abstractmethod
    def cell_diagonals(self, h: NDArray) -> NDArray[np.float64]:
        """Diagonals of `cell_grams`, (C, q): sum over a cell's rows of h_n x_n^2."""

    def lipschitz(self, h: NDArray, *, max_iter: int = 50, tol: float = 1e-3) -> float:
        """Largest eigenvalue of Phi^T diag(h) Phi, by power iteration from a fixed start."""
        v = np.random.default_rng(0).standard_normal(self.layout_shape).astype(self.dtype)
        value = 0.0
        for _ in range(max_iter):
            norm = float(np.linalg.norm(v))
            if norm == 0.0:
                return 0.0
            product = self.rmatvec(h * self.matvec(v / norm))
            previous, value = value, float(np.linalg.norm(product))
            if abs(value - previous) <= tol * value:
                break
            v = product
        return value
