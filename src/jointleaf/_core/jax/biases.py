"""The biases of all cells, solved for together on a device.

The C x C matrix Z^T diag(h) Z + D_b is made on the host, once for a problem, and factorised on the
device. Free biases leave it singular: a small multiple of the identity is added, which only makes
a step a little shorter (FISTA), or is mended by another round (conjugate gradients). Newton's
method solves with it again and again until rounding, made large in directions that hold nothing,
stops it; for it biases that are combinations of others (every partition after the first has one)
are found and stay where they are. That loses nothing but time: conjugate gradients alone take twice
as many rounds then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve
from numpy.typing import NDArray

from jointleaf._core.jax.norms import pytree
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.biases import bias_gram, is_joint_worth, smoothed_gram

__all__ = ["BiasInverse", "bias_inverse"]

_BLOCK = 512
_JITTER = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-10}
# Relative to the largest diagonal entry: what is added for the search for combinations, and the
# pivot below which a bias is one. With m biases in it its pivot is about m times the first.
_SEARCH_JITTER, _LEAST_PIVOT = 1e-12, 1e-9


@pytree("factors chosen beta", "bounds")
@dataclass(frozen=True)
class BiasInverse:
    """Inverts Z^T (diag(h) + A) Z + D_b.

    Attributes
    ----------
    factors : tuple of arrays (C_t, C_t)
        Lower Cholesky factors, one a task.
    chosen : tuple of arrays (C_t,)
        1 for biases that are solved for, 0 for combinations of others.
    beta : array (C,)
        D_b, the curvature of the penalty on biases.
    bounds : tuple of int
        First cell of every task, and C.
    """

    factors: tuple[Any, ...]
    chosen: tuple[Any, ...]
    beta: Any
    bounds: tuple[int, ...]

    def solve(self, r: Any) -> Any:
        """Apply to residuals (C,) or (C, K)."""
        parts = []
        for (a, b), factor, own in zip(
            pairwise(self.bounds), self.factors, self.chosen, strict=True
        ):
            mask = own.reshape(-1, *(1,) * (r.ndim - 1))
            parts.append(mask * cho_solve((factor, True), mask * r[a:b]))
        return jnp.concatenate(parts)


@partial(jax.jit, donate_argnums=0, static_argnums=2)
def _factorise(gram: Any, jitter: Any, independent: bool) -> tuple[Any, Any]:
    """Cholesky factor of a matrix, and 1 for columns that stay: all, or independent ones."""
    size, places = gram.diagonal().max(), jnp.arange(len(gram))

    def factor(matrix: Any, jitter: Any) -> Any:
        matrix = matrix.at[places, places].add(jitter * size)
        return lax.linalg.cholesky(matrix, symmetrize_input=False)

    if not independent:
        return factor(gram, jitter), jnp.ones(len(gram), bool)
    pivots = jnp.square(factor(gram, _SEARCH_JITTER).diagonal())
    # Where rounding ends the factorisation nothing is known.
    chosen = (pivots > _LEAST_PIVOT * size) | ~jnp.isfinite(pivots).all()
    gram = gram * chosen[:, None] * chosen[None]
    gram = gram.at[places, places].add(jnp.where(chosen, 0.0, size))
    return factor(gram, jitter), chosen


def _fill_lower(gram: NDArray) -> None:
    """Copy the upper triangle to the lower one, in place and block by block."""
    n = len(gram)
    for a in range(0, n, _BLOCK):
        rows = slice(a, min(a + _BLOCK, n))
        part = gram[rows, rows]
        part[...] = np.triu(part) + np.triu(part, 1).T
        gram[rows.stop :, rows] = gram[rows, rows.stop :].T


def bias_inverse(
    problem: Problem,
    h: NDArray,
    beta: NDArray,
    device: Any,
    *,
    smooth: bool = False,
    independent: bool = False,
) -> BiasInverse | None:
    """The joint inverse for curvatures h (n,) of the rows; None where it is not worth it.

    With `smooth` it knows the penalty on predictions, with `independent` biases that are
    combinations of others are left out. The last one made is kept for related problems.
    """
    blocks = problem.design.blocks()
    if not all(is_joint_worth(block.design, beta[block.cells]) for block in blocks):
        return None
    key = "bias inverse on device"
    stamp = (device, beta.tobytes(), smooth, independent, hash(h.tobytes()))
    if problem.has_kept(key):
        kept: Any = problem.kept(key, tuple)
        if kept[0] == stamp:
            return kept[1]
    problem.keep(key, ((), None))  # the old one must not stand beside the new one in memory
    dtype = problem.design.dtype
    smoothers = [None] * len(blocks)
    if smooth and problem.smoother is not None:
        smoothers = getattr(problem.smoother, "parts", [problem.smoother] * len(blocks))
    factors, chosen = [], []
    for (rows, cells, part), smoother in zip(blocks, smoothers, strict=True):
        gram = bias_gram(part, h[rows])
        if smoother is not None:
            gram += smoothed_gram(part, smoother)
        _fill_lower(gram)
        gram[np.diag_indices_from(gram)] += beta[cells]
        search = independent and not (beta[cells] > 0).all()
        moved = jax.device_put((gram, np.asarray(_JITTER[dtype])), device)
        del gram  # C x C numbers should not exist more often than they must
        factor, own = _factorise(*moved, search)
        del moved
        factors.append(factor.astype(dtype))
        chosen.append(own.astype(dtype))
    bounds = (0, *(block.cells.stop for block in blocks))
    moved_beta = jax.device_put(beta.astype(dtype), device)
    inverse = BiasInverse(tuple(factors), tuple(chosen), moved_beta, bounds)
    problem.keep(key, (stamp, inverse))
    return inverse
