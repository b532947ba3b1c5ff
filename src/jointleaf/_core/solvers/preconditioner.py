"""The block preconditioner of the conjugate gradient solvers, and elimination of biases.

The Hessian H = Phi^T diag(h) Phi + D has one dense block per cell: inverting these is
block-Jacobi. It is slow because biases of different partitions nearly cancel in many ways. Up to a
few thousand cells the biases of **all** cells are therefore solved for together, through the
C x C matrix Z^T diag(h) Z + D_b: conjugate gradients then run on the slopes alone, each direction
being completed by the biases that are best for it, and need several times fewer passes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import Design
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
    curvature : array (N,)
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
        self._layout = layout = design.layout
        self._design, self._dtype = design, design.dtype
        self._h = h.astype(self._dtype)
        on_slopes, on_biases = layout.split(curvature)
        self._bias_curvature = on_biases.astype(self._dtype)
        self._blocks: NDArray | None = None
        mass = cell_mass(design, h) + on_biases
        mass[mass <= 0] = 1.0  # a cell without rows and without penalty stays at zero
        if on_slopes.size:
            d = layout.n_features
            if layout.n_linear_cells * d * d <= MAX_BLOCK_ENTRIES:
                grams = design.cell_grams(h)
                weight = mass[layout.linear_cells]
                self._centre = (grams[:, :d, d] / weight[:, None]).astype(self._dtype)
                blocks = _inverse_blocks(grams[:, :d, :d], grams[:, :d, d], weight, on_slopes)
                self._blocks = blocks.astype(self._dtype)
            else:
                diagonal = layout.split(design.cell_diagonals(h))[0] + on_slopes
                self._scale = (1.0 / np.where(diagonal > 0, diagonal, 1.0)).astype(self._dtype)
        self._biases = BiasSolver(design, h, on_biases, mass)
        self.eliminates = eliminate and self._biases.is_joint

    def __call__(self, residual: NDArray) -> NDArray:
        """Apply to a residual (N,) or (N, K)."""
        R = residual if residual.ndim == 2 else residual[:, None]
        out = np.zeros_like(R)
        (slopes, biases), (on_slopes, on_biases) = self._layout.split(out), self._layout.split(R)
        if not self.eliminates:
            biases[:] = self._biases.solve(on_biases)
        if slopes.size and self._blocks is not None:
            if self.eliminates:
                slopes[:] = self._blocks @ on_slopes
            else:  # centring on the cell decouples its slopes from its bias; undone afterwards
                linear = self._layout.linear_cells
                pull = self._centre[:, :, None] * on_biases[linear][:, None, :]
                slopes[:] = self._blocks @ (on_slopes - pull)
                biases[linear] -= np.einsum("cd,cdk->ck", self._centre, slopes)
        elif slopes.size:
            slopes[:] = self._scale[:, :, None] * on_slopes
        return out if residual.ndim == 2 else out[:, 0]

    def complete(self, direction: NDArray, image: NDArray) -> NDArray:
        """Give a direction the biases that are best for its slopes, in place; gives its image."""
        if not self.eliminates:
            return image
        h = self._h if image.ndim == 1 else self._h[:, None]
        curvature = self._bias_curvature if image.ndim == 1 else self._bias_curvature[:, None]
        biases = self._layout.split(direction)[1]
        slope = self._design.bias_rmatvec(h * image) + curvature * biases
        return self.settle(direction, image, -slope)

    def settle(self, theta: NDArray, image: NDArray, residual: NDArray) -> NDArray:
        """Move biases, in place, until their residual (C[, K]) is zero; gives the image."""
        step = self._biases.solve(residual if residual.ndim == 2 else residual[:, None])
        step = step if residual.ndim == 2 else step[:, 0]
        self._layout.split(theta)[1][:] += step
        return image + self._design.bias_matvec(step)


def _inverse_blocks(
    grams: NDArray, cross: NDArray, mass: NDArray, curvature: NDArray
) -> NDArray[np.float64]:
    """Inverses of all slope blocks after centring: gram + D - cross cross^T / mass, (L, d, d)."""
    blocks = grams - cross[:, :, None] * (cross / mass[:, None])[:, None, :]
    diagonal = np.einsum("cii->ci", blocks)
    diagonal += curvature
    # Rounding must not make a block indefinite where the penalty is tiny against the data.
    diagonal += 1e-12 * np.einsum("cii->c", grams)[:, None] / grams.shape[1]
    diagonal[diagonal <= 0] = 1.0
    return np.linalg.inv(blocks)
