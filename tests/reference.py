"""A plain, slow design, kept beside the fast one forever: what `LeafDesign` must equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.layout import CellKind, CellLayout, check_codes

__all__ = ["ReferenceDesign"]


class ReferenceDesign:
    """The design of `LeafDesign` written as loops over rows and partitions, in float64.

    Parameters and products are those of `LeafDesign`; nothing is clever here.
    """

    def __init__(
        self,
        X: ArrayLike,
        codes: ArrayLike,
        n_cells: ArrayLike | None = None,
        *,
        cells: CellKind = "linear",
    ) -> None:
        rows = np.asarray(X, float)
        self.codes, counts = check_codes(codes, len(rows), n_cells, allow_no_cell=True)
        self.layout = CellLayout(counts, rows.shape[1], cells)
        ones = np.ones((len(rows), 1))
        self.X = np.hstack([rows[:, : self.layout.n_slopes], ones])

    def to_dense(self) -> NDArray[np.float64]:
        """Give the whole matrix Phi (n, C q): row n holds x_n in the columns of its cells."""
        n, q = self.X.shape
        phi = np.zeros((n, self.layout.n_cells, q))
        for row in range(n):
            for p, code in enumerate(self.codes[row]):
                if code >= 0:
                    phi[row, self.layout.offsets[p] + code] = self.X[row]
        return phi.reshape(n, -1)

    def matvec(self, theta: NDArray) -> NDArray:
        """Predictions f (n,) or (n, K) of weights theta (C, q) or (C, q, K)."""
        outputs = theta.shape[2:]
        return self.to_dense() @ theta.reshape(-1, *outputs)

    def rmatvec(self, r: NDArray) -> NDArray:
        """Adjoint G (C, q) or (C, q, K)."""
        shape = (self.layout.n_cells, self.layout.n_columns, *r.shape[1:])
        return (self.to_dense().T @ r).reshape(shape)

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        """Gram matrices of all cells, (C, q, q)."""
        q = self.layout.n_columns
        phi = self.to_dense().reshape(len(self.X), self.layout.n_cells, q)
        return np.einsum("n,nci,ncj->cij", h, phi, phi)

    def bias_gram(self, h: NDArray) -> NDArray[np.float64]:
        """Weight of the rows that every two cells share, (C, C)."""
        last = self.layout.n_columns - 1
        Z = self.to_dense().reshape(len(self.X), self.layout.n_cells, -1)[:, :, last]
        return Z.T @ (h[:, None] * Z)
