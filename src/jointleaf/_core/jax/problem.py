"""The problem on a device: everything that solvers need, moved there once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from jointleaf._core.jax.design import DeviceDesign, device_design
from jointleaf._core.jax.losses import RowLoss, row_loss
from jointleaf._core.jax.norms import pytree
from jointleaf._core.problem import Problem

__all__ = ["DeviceProblem", "dot", "move_problem", "shaped"]


@pytree("matrix")
@dataclass(frozen=True)
class _Dense:
    """A matrix (n, n)."""

    matrix: Any

    def times(self, f: Any) -> Any:
        return self.matrix @ f


@pytree("values rows columns")
@dataclass(frozen=True)
class _Sparse:
    """A sparse matrix: its entries."""

    values: Any
    rows: Any
    columns: Any

    def times(self, f: Any) -> Any:
        parts = shaped(self.values, f) * f[self.columns]
        return jax.ops.segment_sum(parts, self.rows, f.shape[0])


@pytree("parts", "bounds")
@dataclass(frozen=True)
class _Smoother:
    """A block-diagonal matrix on predictions: a block for every task."""

    parts: tuple[Any, ...]
    bounds: tuple[int, ...]

    def times(self, f: Any) -> Any:
        """The matrix times predictions (n,) or (n, K)."""
        pairs = zip(self.bounds[:-1], self.bounds[1:], self.parts, strict=True)
        return jnp.concatenate([part.times(f[a:b]) for a, b, part in pairs])

    def dense(self) -> Any:
        """The matrix (n, n) of a single block."""
        (part,) = self.parts
        if isinstance(part, _Dense):
            return part.matrix
        n = self.bounds[-1]
        zero = jnp.zeros((n, n), part.values.dtype)
        return zero.at[part.rows, part.columns].add(part.values)


@pytree("design y shares offset smoother start_slope", "loss")
@dataclass(frozen=True)
class DeviceProblem:
    """The data term of a `Problem`, on a device.

    Attributes
    ----------
    design : DeviceDesign
    y : array (n,) or (n, K)
    shares : float64 array (n,)
        s / S.
    offset : array
    smoother : _Smoother or None
    start_slope : number
        Largest gradient at zero weights, to which optimality is relative.
    loss : RowLoss
    """

    design: DeviceDesign
    y: Any
    shares: Any
    offset: Any
    smoother: Any
    start_slope: Any
    loss: RowLoss

    def value(self, f: Any) -> Any:
        """The data term at predictions f of the cells."""
        raw = f + self.offset
        value = self.loss.value(self.y, raw, self.shares)
        return value if self.smoother is None else value + 0.5 * dot(raw, self.smoother.times(raw))

    def slope(self, f: Any) -> Any:
        """Its derivative by predictions."""
        raw = f + self.offset
        slope = self.loss.gradient(self.y, raw, self.shares)
        return slope if self.smoother is None else slope + self.smoother.times(raw)

    def gradient(self, f: Any) -> Any:
        """Its derivative by weights: one adjoint pass."""
        return self.design.rmatvec(self.slope(f))

    def curvature(self, f: Any) -> Any:
        """Second derivative of the loss by every prediction."""
        return self.loss.curvature(self.y, f + self.offset, self.shares)

    def hessian_product(self, f: Any, v: Any) -> Any:
        """Hessian of the data term by predictions, at f, times v."""
        product = self.loss.hessian_product(self.y, f + self.offset, self.shares, v)
        return product if self.smoother is None else product + self.smoother.times(v)

    def curvature_bound(self) -> Any:
        """Bound (n,) of the loss's curvature; where none is known, that at zero weights."""
        bound: Any = self.loss.max_curvature
        if not np.isfinite(bound):
            h = self.curvature(jnp.zeros_like(self.y))
            h = h if h.ndim == 1 else h.max(axis=1)
            bound = (h / self.shares).max()
        return (bound * self.shares).astype(self.y.dtype)

    def weigh(self, h: Any, image: Any) -> Any:
        """(diag(h) + A) times predictions."""
        weighed = shaped(h, image) * image
        return weighed if self.smoother is None else weighed + self.smoother.times(image)


def dot(a: Any, b: Any) -> Any:
    """Inner product of two arrays, added up in float64."""
    return jnp.sum(a.astype(jnp.float64) * b.astype(jnp.float64))


def shaped(values: Any, like: Any) -> Any:
    """Values with axes behind them, to multiply an array with more outputs."""
    return values.reshape(*values.shape, *(1,) * (like.ndim - values.ndim))


def move_problem(problem: Problem, device: Any) -> DeviceProblem:
    """Move the data of a problem to a device."""
    loss = row_loss(problem.loss)
    assert loss is not None, "checked by the solver"
    put = partial(jax.device_put, device=device)
    return DeviceProblem(
        device_design(problem.design, device),
        put(problem.y),
        put(problem.s / problem.s.sum()),
        put(problem.offset),
        put(_host_smoother(problem)),
        put(np.asarray(problem.start_slope, float)),
        loss,
    )


def _host_smoother(problem: Problem) -> _Smoother | None:
    if problem.smoother is None:
        return None
    parts: list[Any] = []
    bounds = [0]
    for matrix in getattr(problem.smoother, "parts", [problem.smoother]):
        bounds.append(bounds[-1] + matrix.shape[0])
        if sparse.issparse(matrix):
            entries = sparse.coo_array(matrix)
            rows, columns = entries.coords
            parts.append(_Sparse(entries.data, rows.astype(np.int32), columns.astype(np.int32)))
        else:
            parts.append(_Dense(np.asarray(matrix)))
    return _Smoother(tuple(parts), tuple(bounds))
