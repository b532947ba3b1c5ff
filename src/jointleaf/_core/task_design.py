"""Matrices on the predictions of several tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BlockSmoother"]


class BlockSmoother:
    """A symmetric matrix (n, n) on predictions that joins rows of the same task only.

    Parameters
    ----------
    parts : sequence of arrays or sparse arrays (n_t, n_t)
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)

    def __matmul__(self, f: NDArray) -> NDArray:
        bounds = np.cumsum([part.shape[0] for part in self.parts])[:-1]
        return np.concatenate(
            [part @ own for part, own in zip(self.parts, np.split(f, bounds), strict=True)]
        )

    def __add__(self, other: BlockSmoother) -> BlockSmoother:
        return BlockSmoother([a + b for a, b in zip(self.parts, other.parts, strict=True)])

    def astype(self, dtype: Any) -> BlockSmoother:
        """Give the same matrix in another precision."""
        return BlockSmoother([part.astype(dtype) for part in self.parts])
