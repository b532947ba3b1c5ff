"""Monotone weights as a penalty: zero where inequalities hold, and infinite elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Penalty

_ROUNDING = 1e-13  # of inequalities, relative to the largest bias


class Monotone(Penalty):
    """The constraint that biases rise along pairs of cells, and that slopes have given signs.

    Its proximal map is the projection, whose result violates no inequality, not even by rounding.

    Parameters
    ----------
    pairs : integers (m, 2)
        The bias of the first cell shall not be larger than that of the second, both of one
        partition; C stands for no cell, whose bias is zero. They have no cycle, and all pairs that
        end in a cell come before those that begin with it.
    signs : integers (d,)
        Of slopes: 1 where they shall not be negative, -1 where they shall not be positive, else 0.
    """

    _orders: _Orders | None = None

    def __init__(self, pairs: NDArray[np.intp], signs: NDArray[np.integer]) -> None:
        self.pairs, self.signs = pairs, signs

    def __repr__(self) -> str:
        n_signs = np.count_nonzero(self.signs)
        return f"Monotone(<{len(self.pairs)} pairs of cells, {n_signs} signs of slopes>)"

    def __rmul__(self, factor: float) -> Monotone:
        return self

    def bind(self, layout: CellLayout) -> Monotone:
        return self.replaced(_layout=layout, _orders=_Orders(self.pairs, layout))

    def value(self, theta: Any) -> Any:
        slopes, biases = self._split(theta)
        holds = (biases[self.pairs[:, 0]] <= biases[self.pairs[:, 1]]).all()
        return 0.0 if holds and (self.signs * slopes >= 0).all() else np.inf

    def prox(self, theta: Any, step: Any) -> Any:
        """Return the nearest weights that are monotone."""
        slopes, biases = self._split(theta)
        slopes = np.where(self.signs * slopes < 0, 0.0, slopes)
        self._known(self._orders).project(biases)
        return self.layout.join(slopes, biases[:-1]).astype(theta.dtype)

    def _split(self, theta: NDArray) -> tuple[NDArray, NDArray]:
        """Return slopes (L, d) and a copy of the biases, (C + 1,) with zero for no cell."""
        slopes, biases = self.layout.split(theta.astype(float))
        return slopes, np.append(biases, 0.0)


class _Orders:
    """Isotonic regression on the partial orders of the cells of T partitions, side by side.

    With the differences A y >= 0 of the pairs of a partition, the projection of biases y is
    y + A^T u with multipliers u >= 0, zero where a difference is positive. Those that are not zero
    are linear in y, and from one iteration of a solver to the next they are mostly of the same
    pairs: these solutions (`_guess`) are tried first, and where they are not right, non-negative
    least squares finds others. All arrays are as large as the largest partition needs.
    """

    def __init__(self, pairs: NDArray[np.intp], layout: CellLayout) -> None:
        n_cells = layout.n_cells
        partition = layout.partition_of_cell[pairs.min(axis=1)]  # one of the two is a cell
        members = [pairs[partition == p] for p in np.unique(partition)]
        places = [np.setdiff1d(part, n_cells) for part in members]
        n_orders, width = len(members), max(map(len, places), default=0)
        height = max(map(len, members), default=0)
        self._cells = np.full((n_orders, width + 1), n_cells)
        self._pairs = np.full((height, n_orders, 2), width)
        self._differences = np.zeros((n_orders, height, width + 1))
        for t, (part, cells) in enumerate(zip(members, places, strict=True)):
            self._cells[t, : len(cells)] = cells
            local = np.searchsorted(cells, part)
            local[part == n_cells] = width
            self._pairs[: len(part), t] = local
            each = np.arange(len(part))
            self._differences[t, each, local[:, 0]] = -1.0
            self._differences[t, each, local[:, 1]] = 1.0
        self._differences[:, :, -1] = 0.0  # what is no cell does not move
        self._has_zeros = bool((pairs == n_cells).any())
        self._guess = np.zeros_like(self._differences)

    def project(self, biases: NDArray[np.float64]) -> None:
        """Change biases (C + 1,) in place to the nearest ones in order."""
        if not len(self._cells):
            return
        values = biases[self._cells]
        multipliers = np.einsum("tml,tl->tm", self._guess, values)
        nearest = values + np.einsum("tml,tm->tl", self._differences, multipliers)
        steps = np.einsum("tml,tl->tm", self._differences, nearest)
        limit = -_ROUNDING * np.abs(values).max()
        is_wrong = (multipliers < limit).any(axis=1) | (steps < limit).any(axis=1)
        for t in np.flatnonzero(is_wrong).tolist():
            nearest[t] = self._solve(t, values[t])
        each = np.arange(len(nearest))
        if self._has_zeros:  # what must not be above zero is not raised to it by rounding
            ceiling = np.where(np.arange(nearest.shape[1]) == nearest.shape[1] - 1, 0.0, np.inf)
            ceiling = np.tile(ceiling, (len(nearest), 1))
            for low, high in reversed(self._pairs.transpose(0, 2, 1)):
                ceiling[each, low] = np.minimum(ceiling[each, low], ceiling[each, high])
            nearest = np.minimum(nearest, ceiling)
        for low, high in self._pairs.transpose(0, 2, 1):
            nearest[each, high] = np.maximum(nearest[each, high], nearest[each, low])
        biases[self._cells] = nearest

    def _solve(self, t: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the nearest values of one partition, and keep which multipliers they have."""
        differences = self._differences[t]
        multipliers, _ = nnls(differences.T, -values)
        is_tied = multipliers > 0
        self._guess[t] = 0.0
        self._guess[t, is_tied] = -np.linalg.pinv(differences[is_tied].T)
        return values + differences.T @ multipliers
