"""Conjugate gradients, step by step: the engine of the PCG and Newton solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CGStep", "cg_steps", "dot"]


class CGStep(NamedTuple):
    """One step: weights move by `length * direction`, predictions by `length * image`."""

    length: float
    direction: NDArray
    image: NDArray
    residual: NDArray
    decrease: float


def dot(a: NDArray, b: NDArray) -> float:
    """Inner product of two arrays, added up in float64."""
    return float(np.einsum("i,i->", a.ravel(), b.ravel(), dtype=np.float64))


def cg_steps(
    operator: Callable[[NDArray], tuple[NDArray, NDArray]],
    precondition: Callable[[NDArray], NDArray],
    residual: NDArray,
) -> Iterator[CGStep]:
    """Yield the steps that minimise x^T H x / 2 - x^T residual, from x = 0.

    `operator` gives (H p, Phi p). `CGStep.decrease` is how much the quadratic falls by the
    step. Ends when the precision is exhausted; the caller ends it earlier.
    """
    dtype = residual.dtype.type
    direction = precondition(residual)
    product = dot(residual, direction)
    while product > 0:
        curved, image = operator(direction)
        bend = dot(direction, curved)
        if not bend > 0:
            return
        length = product / bend
        residual = residual - dtype(length) * curved
        yield CGStep(dtype(length), direction, image, residual, 0.5 * length * product)
        z = precondition(residual)
        previous, product = product, dot(residual, z)
        direction = z + dtype(product / previous) * direction
