"""The block preconditioner of the conjugate gradient solvers, and elimination of biases.

The Hessian H = Phi^T diag(h) Phi + D has one dense q x q block per cell: inverting these is
block-Jacobi. It is slow because biases of different partitions nearly cancel in many ways. Up to a
few thousand cells the biases of **all** cells are therefore solved for together, through the
C x C matrix Z^T diag(h) Z + D_b: conjugate gradients then run on the slopes alone, each direction
being completed by the biases that are best for it, and need several times fewer passes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design_base import Design
from jointleaf._core.solvers.biases import BiasSolver, cell_mass

__all__ = ["BlockPreconditioner"]

MAX_BLOCK_ENTRIES = 2**27  # C d^2 floats of slope blocks (1 GB); beyond, their diagonals


class BlockPreconditioner:
    """Approximate inverse of H = Phi^T diag(h) Phi + D, with biases eliminated where possible.

    Parameters
    ----------
    design : Design
    h : array (n,)
        Curvature of the loss at every row.
    curvature : array (C, q)
        D, the curvature of the penalty; zero for free weights.
    eliminate : bool
        Whether biases may be eliminated, which needs h to be the exact curvature.

    Attributes
    ----------
    eliminates : bool
        Biases are eliminated: `complete` must be called on every direction.
    """

    def __init__(
        self, design: Design, h: NDArray, curvature: NDArray, *, eliminate: bool = True
    ) -> None:
        layout = design.layout
        self._design, self._dtype = design, design.dtype
        self._h = h.astype(self._dtype)
        self._n_slopes = d = layout.n_slopes
        self._bias_curvature = curvature[:, d].astype(self._dtype)
        self._blocks: NDArray | None = None
        mass = cell_mass(design, h) + curvature[:, d]
        mass[mass <= 0] = 1.0  # a cell without rows and without penalty stays at zero
        if d:
            if layout.n_cells * d * d <= MAX_BLOCK_ENTRIES:
                grams = design.cell_grams(h)
                self._centre = (grams[:, :d, d] / mass[:, None]).astype(self._dtype)
                self._blocks = _inverse_blocks(grams[:, :d, :d], grams[:, :d, d], mass, curvature)
                self._blocks = self._blocks.astype(self._dtype)
            else:
                diagonal = design.cell_diagonals(h)[:, :d] + curvature[:, :d]
                self._scale = (1.0 / np.where(diagonal > 0, diagonal, 1.0)).astype(self._dtype)
        self._biases = BiasSolver(design, h, curvature[:, d], mass)
        self.eliminates = eliminate and self._biases.is_joint

    def __call__(self, residual: NDArray) -> NDArray:
        """Apply to a residual (C, q) or (C, q, K)."""
        R = residual if residual.ndim == 3 else residual[:, :, None]
        d = self._n_slopes
        out = np.zeros_like(R)
        bias = R[:, d]
        if not self.eliminates:
            out[:, d] = self._biases.solve(bias)
        if d and self._blocks is not None:
            if self.eliminates:
                out[:, :d] = self._blocks @ R[:, :d]
            else:  # centring on the cell decouples its slopes from its bias; undone afterwards
                out[:, :d] = self._blocks @ (R[:, :d] - self._centre[:, :, None] * bias[:, None, :])
                out[:, d] -= np.einsum("cd,cdk->ck", self._centre, out[:, :d])
        elif d:
            out[:, :d] = self._scale[:, :, None] * R[:, :d]
        return out if residual.ndim == 3 else out[:, :, 0]

    def complete(self, direction: NDArray, image: NDArray) -> NDArray:
        """Give a direction the biases that are best for its slopes, in place; gives its image."""
        if not self.eliminates:
            return image
        h = self._h if image.ndim == 1 else self._h[:, None]
        curvature = self._bias_curvature if image.ndim == 1 else self._bias_curvature[:, None]
        biases = direction[:, self._n_slopes]
        slope = self._design.bias_rmatvec(h * image) + curvature * biases
        return self.settle(direction, image, -slope)

    def settle(self, theta: NDArray, image: NDArray, residual: NDArray) -> NDArray:
        """Move biases, in place, until their residual (C[, K]) is zero; gives the image."""
        step = self._biases.solve(residual if residual.ndim == 2 else residual[:, None])
        step = step if residual.ndim == 2 else step[:, 0]
        theta[:, self._n_slopes] += step
        return image + self._design.bias_matvec(step)


def _inverse_blocks(
    grams: NDArray, cross: NDArray, mass: NDArray, curvature: NDArray
) -> NDArray[np.float64]:
    """Inverses of all slope blocks after centring: gram + D - cross cross^T / mass, (C, d, d)."""
    d = grams.shape[1]
    blocks = grams - cross[:, :, None] * (cross / mass[:, None])[:, None, :]
    diagonal = np.einsum("cii->ci", blocks)
    diagonal += curvature[:, :d]
    # Rounding must not make a block indefinite where the penalty is tiny against the data.
    diagonal += 1e-12 * np.einsum("cii->c", grams)[:, None] / d
    diagonal[diagonal <= 0] = 1.0
    return np.linalg.inv(blocks)
