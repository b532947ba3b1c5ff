"""A plain, slow design, kept beside the fast one forever: what `LeafDesign` must equal."""

from __future__ import annotations

from collections.abc import Sequence

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
        cells: CellKind | Sequence[CellKind] = "linear",
    ) -> None:
        self.X = np.asarray(X, float)
        self.codes, counts = check_codes(codes, len(self.X), n_cells, allow_no_cell=True)
        self.layout = CellLayout(counts, self.X.shape[1], cells)
        self._dense: NDArray[np.float64] | None = None

    def to_dense(self) -> NDArray[np.float64]:
        """Return the whole matrix Phi (n, N): slopes of linear cells, then biases of all."""
        if self._dense is None:  # the loops are slow: once is enough
            pairs = zip(self.X, self.codes, strict=True)
            self._dense = np.stack([self._row(x, codes) for x, codes in pairs])
        return self._dense

    def _row(self, x: NDArray, codes: NDArray) -> NDArray[np.float64]:
        slopes = []
        biases = []
        for p, (size, kind) in enumerate(
            zip(self.layout.cells_per_partition, self.layout.kinds, strict=True)
        ):
            for cell in range(size):
                is_there = float(codes[p] == cell)
                biases.append(is_there)
                if kind == "linear":
                    slopes.extend(is_there * x)
        return np.array([*slopes, *biases])

    def to_biases(self) -> NDArray[np.float64]:
        """Return Z (n, C)."""
        return self.to_dense()[:, -self.layout.n_cells :]

    def matvec(self, theta: NDArray) -> NDArray:
        """Return the predictions f (n,) or (n, K) of weights theta (N,) or (N, K)."""
        return self.to_dense() @ theta

    def rmatvec(self, r: NDArray) -> NDArray:
        """Return the adjoint product (N,) or (N, K)."""
        return self.to_dense().T @ r

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        """Return the Gram matrices of all linear cells, (L, d + 1, d + 1)."""
        rows = np.hstack([self.X, np.ones((len(self.X), 1))])
        Z = self.to_biases()[:, self.layout.linear_cells]
        return np.einsum("n,nc,ni,nj->cij", h, Z, rows, rows)

    def bias_gram(self, h: NDArray) -> NDArray[np.float64]:
        """Return the weight of the rows that every two cells share, (C, C)."""
        Z = self.to_biases()
        return Z.T @ (h[:, None] * Z)
