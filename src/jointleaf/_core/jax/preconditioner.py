"""The block preconditioner of the conjugate gradient solvers, on a device.

As `_core.solvers.preconditioner`: an inverse q x q block for every cell, and the biases of all
cells together where their joint inverse is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from jointleaf._core.jax.biases import BiasInverse
from jointleaf._core.jax.design import DeviceDesign
from jointleaf._core.jax.norms import pytree
from jointleaf._core.jax.problem import dot, shaped
from jointleaf._core.solvers.preconditioner import MAX_BLOCK_ENTRIES

__all__ = ["Preconditioner", "SmoothState", "conjugate_gradients", "make_preconditioner"]


class SmoothState(NamedTuple):
    """What a loop of conjugate gradients or Newton steps carries on."""

    theta: Any
    f: Any
    gradient: Any
    optimality: Any
    objective: Any
    stalled: Any
    n_iter: Any


@pytree("blocks centre scale inverse_mass biases h", "eliminates")
@dataclass(frozen=True)
class Preconditioner:
    """Approximate inverse of Phi^T diag(h) Phi + D.

    Attributes
    ----------
    blocks : array (C, d, d) or None
        Inverses of the slope blocks after centring.
    centre : array (C, d) or None
        Weighted means of every cell's rows.
    scale : array (C, d) or None
        Inverse diagonals, in place of blocks that would be too large.
    inverse_mass : array (C,)
    biases : BiasInverse or None
    h : array (n,)
    eliminates : bool
        Directions are completed by the biases that are best for them.
    """

    blocks: Any
    centre: Any
    scale: Any
    inverse_mass: Any
    biases: BiasInverse | None
    h: Any
    eliminates: bool

    def solve_biases(self, r: Any) -> Any:
        """Apply to the residuals of biases, (C,) or (C, K)."""
        if self.biases is None:
            return shaped(self.inverse_mass, r) * r
        return self.biases.solve(r)

    def __call__(self, residual: Any) -> Any:
        """Apply to a residual (C, q) or (C, q, K)."""
        R = residual if residual.ndim == 3 else residual[:, :, None]
        slopes, bias = R[:, :-1], R[:, -1]
        out_bias = jnp.zeros_like(bias) if self.eliminates else self.solve_biases(bias)
        if self.blocks is not None:
            if self.eliminates:
                slopes = self.blocks @ slopes
            else:  # centring on the cell decouples its slopes from its bias; undone afterwards
                slopes = self.blocks @ (slopes - self.centre[:, :, None] * bias[:, None])
                out_bias = out_bias - jnp.einsum("cd,cdk->ck", self.centre, slopes)
        elif self.scale is not None:
            slopes = self.scale[:, :, None] * slopes
        out = jnp.concatenate([slopes, out_bias[:, None]], axis=1)
        return out if residual.ndim == 3 else out[:, :, 0]

    def complete(self, design: DeviceDesign, direction: Any, image: Any) -> tuple[Any, Any]:
        """Give a direction the biases that are best for its slopes."""
        if not self.eliminates:
            return direction, image
        assert self.biases is not None
        biases = direction[:, -1]
        slope = design.bias_rmatvec(shaped(self.h, image) * image)
        slope = slope + shaped(self.biases.beta, biases) * biases
        return self.settle(design, direction, image, -slope)

    def settle(
        self, design: DeviceDesign, theta: Any, image: Any, residual: Any
    ) -> tuple[Any, Any]:
        """Move biases until their residual (C[, K]) is zero."""
        step = self.solve_biases(residual)
        return theta.at[:, -1].add(step), image + design.bias_matvec(step)


def make_preconditioner(
    design: DeviceDesign, h: Any, curvature: Any, biases: BiasInverse | None, *, eliminate: bool
) -> Preconditioner:
    """Make it for curvatures h (n,) of the rows and D (C, q) of the penalty."""
    dtype, d = design.X.dtype, design.X.shape[1] - 1
    wide = curvature.astype(jnp.float64)
    blocks = centre = scale = None
    mass = design.bias_rmatvec(h).astype(jnp.float64) + wide[:, -1]
    mass = jnp.where(mass > 0, mass, 1.0)
    if d and design.n_cells * d * d <= MAX_BLOCK_ENTRIES:
        grams = design.cell_grams(h).astype(jnp.float64)
        cross = grams[:, :d, d]
        centre = (cross / mass[:, None]).astype(dtype)
        blocks = _inverse_blocks(grams[:, :d, :d], cross, mass, wide[:, :d]).astype(dtype)
    elif d:
        diagonal = design.cell_diagonals(h)[:, :d] + wide[:, :d]
        scale = (1.0 / jnp.where(diagonal > 0, diagonal, 1.0)).astype(dtype)
    inverse_mass = (1.0 / mass).astype(dtype)
    is_exact = eliminate and biases is not None
    return Preconditioner(blocks, centre, scale, inverse_mass, biases, h.astype(dtype), is_exact)


def _inverse_blocks(grams: Any, cross: Any, mass: Any, curvature: Any) -> Any:
    """Inverses of all slope blocks after centring: gram + D - cross cross^T / mass, (C, d, d)."""
    d = grams.shape[1]
    blocks = grams - cross[:, :, None] * (cross / mass[:, None])[:, None]
    diagonal = jnp.diagonal(blocks, axis1=1, axis2=2) + curvature
    # Rounding must not make a block indefinite where the penalty is tiny against the data.
    diagonal = diagonal + 1e-12 * jnp.trace(grams, axis1=1, axis2=2)[:, None] / d
    diagonal = jnp.where(diagonal > 0, diagonal, 1.0)
    places = jnp.arange(d)
    return jnp.linalg.inv(blocks.at[:, places, places].set(diagonal))


def conjugate_gradients(
    operator: Any, precondition: Any, x: Any, image: Any, residual: Any, is_done: Any, most: Any
) -> tuple[Any, Any, Any]:
    """Minimise x^T H x / 2 - x^T residual from x; gives x, its image and the steps taken.

    `operator(p)` gives a completed direction, H p and Phi p; `is_done(residual)` ends it, as do
    `most` steps and the end of the precision.
    """
    first = precondition(residual)

    def go_on(state: Any) -> Any:
        _, _, residual, _, product, k = state
        return (k < most) & (product > 0) & ~is_done(residual)

    def turn(state: Any) -> Any:
        x, image, residual, direction, product, k = state
        direction, curved, own = operator(direction)
        bend = dot(direction, curved)
        is_good = bend > 0
        length = jnp.where(is_good, product / jnp.where(is_good, bend, 1.0), 0.0)
        length = length.astype(x.dtype)
        x, image = x + length * direction, image + length * own
        residual = residual - length * curved
        z = precondition(residual)
        new = dot(residual, z)
        direction = z + (new / product).astype(x.dtype) * direction
        return x, image, residual, direction, jnp.where(is_good, new, 0.0), k + 1

    start = x, image, residual, first, dot(residual, first), 0
    x, image, _, _, _, k = lax.while_loop(go_on, turn, start)
    return x, image, k
