"""The biases of all cells, solved for together.

Biases of different partitions nearly cancel in many ways, which makes iterative solvers slow. Up to
a few thousand cells the C x C matrix Z^T diag(h) Z + D_b is therefore factorised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from jointleaf._core.design import Design, LeafDesign

MAX_JOINT_BIASES = 8192  # C^2 floats: half a gigabyte
# Flops of the factorisation that are worth one flop of a pass, for the passes that it saves;
# measured, also that free biases save many more.
JOINT_WORTH = {"penalised": 250, "free": 2500}


class BiasSolver:
    """Inverts Z^T (diag(h) + A) Z + D_b: jointly where that is worth it, else cell by cell.

    Tasks have no cell in common, so that each has an inverse of its own. h (n,) is the curvature of
    the loss at every row, `curvature` (C,) that of the penalty on biases, D_b, zero for free ones;
    `mass` (C,) is the diagonal of the matrix, with 1 in place of zeros. A is the smoother (n, n) of
    a penalty on predictions, which only the joint inverse knows.
    """

    def __init__(
        self, design: Design, h: NDArray, curvature: NDArray, mass: NDArray, smoother: Any = None
    ) -> None:
        blocks = design.blocks()
        smoothers = getattr(smoother, "parts", [smoother] * len(blocks))
        self._parts: list[tuple[slice, _BlockInverse]] = [
            (cells, _BlockInverse(part, h[rows], curvature[cells], mass[cells], smooth))
            for (rows, cells, part), smooth in zip(blocks, smoothers, strict=True)
        ]

    @property
    def is_joint(self) -> bool:
        """Whether the biases of all cells of a task are solved for together, exactly."""
        return all(inverse.is_joint for _, inverse in self._parts)

    def solve(self, r: NDArray) -> NDArray:
        """Apply to residuals (C,) or (C, K)."""
        R = r.reshape(len(r), -1)
        out = np.empty_like(R)
        for cells, inverse in self._parts:
            out[cells] = inverse.solve(R[cells])
        return out.reshape(r.shape)


class _BlockInverse:
    """The inverse of one task; arguments as for `BiasSolver`."""

    def __init__(
        self, design: LeafDesign, h: NDArray, curvature: NDArray, mass: NDArray, smoother: Any
    ) -> None:
        self._dtype = design.dtype
        self._diagonal = (1.0 / mass).astype(self._dtype)
        self._factor: NDArray | None = None
        if not is_joint_worth(design, curvature):
            return
        gram = bias_gram(design, h)
        if smoother is not None:
            gram += smoothed_gram(design, smoother)
        gram[np.diag_indices_from(gram)] += curvature
        # Pivoting finds the biases that are combinations of others (with free biases every
        # partition after the first has one): these stay where they are, which loses nothing.
        tol = 1e-10 * float(gram.diagonal().max())
        factor, pivots, rank, _ = lapack.dpstrf(gram.T, tol=tol, lower=1, overwrite_a=1)
        self._factor = np.empty((rank, rank), self._dtype, order="F")
        self._factor[...] = factor[:rank, :rank]
        self._chosen = pivots[:rank] - 1
        # Called directly: for small tasks what surrounds a call costs more than the call.
        (self._potrs,) = lapack.get_lapack_funcs(("potrs",), (self._factor,))

    @property
    def is_joint(self) -> bool:
        """Whether the biases of all cells are solved for together."""
        return self._factor is not None

    def solve(self, r: NDArray) -> NDArray:
        """Apply to residuals (C, K)."""
        if self._factor is None:
            return self._diagonal[:, None] * r
        out = np.zeros_like(r)
        out[self._chosen], _ = self._potrs(self._factor, r[self._chosen], lower=True)
        return out


def is_joint_worth(design: LeafDesign, curvature: NDArray) -> bool:
    """Whether factorising the matrix of all biases of a task saves more than it costs.

    `curvature` (C,) is that of the penalty on biases.
    """
    n_cells, layout = len(curvature), design.layout
    # With all features, alive or not: the inverse serves related problems too.
    pass_cost = 4.0 * design.n_rows * layout.with_features(design.rows.shape[1]).entries_per_row
    worth = JOINT_WORTH["penalised" if (curvature > 0).all() else "free"]
    return n_cells <= MAX_JOINT_BIASES and n_cells**3 / 3 <= worth * pass_cost


def bias_gram(design: LeafDesign, h: NDArray) -> NDArray[np.float64]:
    """Z^T diag(h) Z; equal weights are counted as integers, which is faster."""
    if np.ptp(h) > 1e-12 * np.abs(h).max():
        return design.bias_gram(h)
    gram = design.bias_gram()
    gram *= float(h[0])
    return gram


def smoothed_gram(design: LeafDesign, smoother: Any) -> NDArray[np.float64]:
    """Z^T A Z, (C, C)."""
    cells, C = design.cells(), design.layout.n_cells
    n, P = cells.shape
    indptr = np.arange(0, n * P + 1, P)
    Z = sparse.csr_array((np.ones(n * P), cells.ravel(), indptr), shape=(n, C + 1))
    product = Z.T @ (smoother @ Z)
    dense = product.toarray() if sparse.issparse(product) else np.asarray(product)
    return dense[:C, :C]
