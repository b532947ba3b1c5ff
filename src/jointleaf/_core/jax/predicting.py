"""Prediction on a device: rows in blocks of few sizes, so that little is compiled."""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import NDArray

from jointleaf._core.device import double_precision, find_device
from jointleaf._core.jax.design import DeviceDesign, matvec
from jointleaf._core.layout import CellLayout, check_codes

__all__ = ["predict"]

_BLOCK_ROWS = 2**17
_LEAST_ROWS = 2**8


def predict(X: NDArray, codes: NDArray, theta: NDArray, layout: CellLayout, device: str) -> NDArray:
    """Sums over partitions, (n,) or (n, K), of rows X (n, d) with codes (n, P); -1 is no cell.

    Blocks are filled up with rows of zeros to a power of two.
    """
    place = find_device(device)
    codes, _ = check_codes(codes, len(X), layout.cells_per_partition, allow_no_cell=True)
    parts = [np.zeros((0, *theta.shape[2:]), theta.dtype)]
    with double_precision():
        moved = jax.device_put(theta, place)
        for start in range(0, len(X), _BLOCK_ROWS):
            rows = slice(start, min(start + _BLOCK_ROWS, len(X)))
            count = rows.stop - rows.start
            size = max(_LEAST_ROWS, 1 << (count - 1).bit_length())
            design = _block(X[rows], codes[rows], layout, size, theta.dtype)
            parts.append(np.asarray(matvec(jax.device_put(design, place), moved))[:count])
    return np.concatenate(parts)


def _block(
    X: NDArray, codes: NDArray, layout: CellLayout, size: int, dtype: np.dtype
) -> DeviceDesign:
    """The design of some rows, filled up to a size; on the host."""
    filled = np.zeros((size, layout.n_columns), dtype)
    filled[: len(X), : layout.n_slopes] = X[:, : layout.n_slopes]
    filled[: len(X), -1] = 1.0
    cells = np.full((codes.shape[1], size), layout.n_cells, np.int32)
    cells[:, : len(X)] = np.where(codes >= 0, codes + layout.offsets[:-1], layout.n_cells).T
    return DeviceDesign(filled, cells, layout.n_cells)
