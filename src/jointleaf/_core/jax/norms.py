"""Norms of the slopes W (d, m) on a device: their proximal maps as pytrees.

``shrink(W, t)`` is argmin_Z |Z - W|_F^2 / 2 + t |Z|. Radii and weights are leaves; what decides the
computation (p, k, the columns of tasks) is structure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jointleaf._core.jax import shrink

__all__ = ["DirtyNorm", "GrOWLNorm", "LpNorm", "SpectralNorm", "pytree"]


T = TypeVar("T")


def pytree(data: str, meta: str = "") -> Callable[[type[T]], type[T]]:
    """Make a dataclass a pytree with these fields as leaves and as structure."""

    def decorate(cls: type[T]) -> type[T]:
        return jax.tree_util.register_dataclass(
            cls, data_fields=data.split(), meta_fields=meta.split()
        )

    return decorate


@pytree("", "p")
@dataclass(frozen=True)
class LpNorm:
    """Sum over rows of their l_p norms; p = 1 is the l1 norm."""

    p: float

    def shrink(self, W: Any, t: Any) -> Any:
        """Row by row."""
        return shrink.shrink_lp(W, t, self.p)


@pytree("weights")
@dataclass(frozen=True)
class GrOWLNorm:
    """Ordered weighted sum of row lengths; weights (d,)."""

    weights: Any

    def shrink(self, W: Any, t: Any) -> Any:
        """Rows keep their directions."""
        lengths = jnp.linalg.norm(W, axis=1).astype(jnp.float64)
        shorter = shrink.shrink_sorted(lengths, t * self.weights)
        return W * (shorter / jnp.where(lengths > 0, lengths, 1))[:, None].astype(W.dtype)


@pytree("", "p k")
@dataclass(frozen=True)
class SpectralNorm:
    """l_p norm of the singular values or, with k, the sum of the k largest."""

    p: float
    k: int | None

    def shrink(self, W: Any, t: Any) -> Any:
        """Through the smaller Gram matrix, in float64."""
        if W.shape[0] > W.shape[1]:
            return self.shrink(W.T, t).T
        wide = W.astype(jnp.float64)
        values, U = jnp.linalg.eigh(wide @ wide.T)
        sigma, U = jnp.sqrt(jnp.maximum(values[::-1], 0)), U[:, ::-1]
        keep = sigma > 1e-8 * jnp.maximum(sigma[0], 1e-300)
        sigma = jnp.where(keep, sigma, 0)
        if self.k is None:
            new = shrink.shrink_lp(sigma[None], t, self.p)[0]
        else:
            new = shrink.shrink_sorted(sigma, t * (jnp.arange(len(sigma)) < self.k))
        scale = jnp.where(keep, new / jnp.where(keep, sigma, 1), 0)
        return ((U * scale) @ U.T).astype(W.dtype) @ W


@pytree("kappa ratio support", "bounds is_largest has_common has_task")
@dataclass(frozen=True)
class DirtyNorm:
    """The Dirty LASSOs: W minus its projection on one ball and a ball for every task.

    Attributes
    ----------
    kappa : array (T,)
        Radii of the tasks' balls.
    ratio : number
        Radius of the common ball.
    support : array (d, T) or None
        1 where a feature may have slopes in a task.
    bounds : tuple of int (T + 1,)
        First column of every task, and m.
    is_largest : bool
        Largest absolute values instead of lengths.
    has_common, has_task : bool
        Whether there is the common ball, and balls of tasks.
    """

    kappa: Any
    ratio: Any
    support: Any
    bounds: tuple[int, ...]
    is_largest: bool
    has_common: bool
    has_task: bool

    def shrink(self, W: Any, t: Any) -> Any:
        """W minus its projection."""
        if self.support is not None:
            W = W * self._spread(self.support.astype(W.dtype))
        return self._cut(W, t) if self.is_largest else self._shorten(W, t)

    def _parts(self, W: Any) -> list[Any]:
        return [W[:, a:b] for a, b in pairwise(self.bounds)]

    def _spread(self, values: Any) -> Any:
        """Values (d, T) on the columns of their tasks, (d, m)."""
        widths = np.diff(self.bounds)
        return jnp.repeat(values, widths, axis=1, total_repeat_length=self.bounds[-1])

    def _shorten(self, W: Any, t: Any) -> Any:
        if not self.has_task:
            return shrink.shrink_l2(W, (t * self.ratio).astype(W.dtype))
        lengths = jnp.stack(
            [jnp.linalg.norm(part.astype(jnp.float64), axis=1) for part in self._parts(W)], axis=1
        )
        caps = t * self.kappa
        if self.has_common:
            scale = shrink.cap_l2(lengths, caps, t * self.ratio)
        else:
            positive = jnp.where(lengths > 0, lengths, 1)
            scale = jnp.where(lengths > caps, caps / positive, 1)
        return W * self._spread(1 - scale).astype(W.dtype)

    def _cut(self, W: Any, t: Any) -> Any:
        sizes = [-jnp.sort(-jnp.abs(p.astype(jnp.float64)), axis=1) for p in self._parts(W)]
        kappa = [t * k for k in self.kappa] if self.has_task else None
        levels = shrink.cap_l1(sizes, kappa, t * self.ratio if self.has_common else None)
        level = self._spread(levels).astype(W.dtype)
        return jnp.clip(W, -level, level)
