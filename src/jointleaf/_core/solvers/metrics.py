"""Norms in which proximal gradient steps are measured.

A step minimises <G, move> + |move|_M^2 / (2 t) + R(theta + move) over the slopes. The nearer M is
to the Hessian, the fewer steps are needed; but R must have a proximal map in that norm.

**The metric of shared cells.** With features that are roughly independent of each other and of the
cells, the Hessian of the slopes of every feature is about Q = Z^T diag(h) Z, "how many rows do
two cells share", the same for all features and with eigenvalues over many orders of magnitude.
The l2,1 norm does not change when cells are rotated, so that in the eigenvectors of Q its proximal
map is a search for one number per feature. Tasks share no rows: Q has one block for each, and what
does not change when the cells of a task are rotated, such as the Dirty LASSO, serves as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from jointleaf._core.penalties.norms import RotationInvariant
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.biases import bias_gram

__all__ = ["Metric", "PlainMetric", "SharedCellsMetric"]

MAX_CELLS = 4096  # an eigendecomposition of C x C
WORTH = 200  # flops of it that are worth one flop of a pass, for the passes that it saves
FLOOR = 3.0  # times the mean eigenvalue: measured; smaller eigenvalues are less alike over features


class Metric(ABC):
    """M, of moves (N[, K]) whose biases are zero or count like slopes."""

    #: largest eigenvalue of M
    largest: float = 1.0

    @abstractmethod
    def prox(self, theta: NDArray, gradient: NDArray, size: float) -> tuple[NDArray, NDArray]:
        """Minimise <gradient, z - theta> + |z - theta|_M^2 / (2 size) + R(z).

        Gives z and z - theta in the coordinates in which M is diagonal.
        """

    @abstractmethod
    def weigh(self, turned: NDArray) -> NDArray:
        """M times a move, both in the coordinates in which M is diagonal."""

    @abstractmethod
    def divide(self, gradient: NDArray) -> NDArray:
        """M^-1 gradient."""


class PlainMetric(Metric):
    """The identity; for every penalty."""

    def __init__(self, problem: Problem) -> None:
        self._rest = problem.rest

    def prox(self, theta: NDArray, gradient: NDArray, size: float) -> tuple[NDArray, NDArray]:
        """The penalty's own proximal map."""
        new = self._rest.prox(theta - gradient.dtype.type(size) * gradient, size)
        return new, new - theta

    def weigh(self, turned: NDArray) -> NDArray:
        """The move itself."""
        return turned

    def divide(self, gradient: NDArray) -> NDArray:
        """The gradient itself."""
        return gradient


class SharedCellsMetric(Metric):
    """Q + floor on the slopes of every feature, for norms that rotations of cells do not change.

    Parameters
    ----------
    problem : Problem
    h : array (n,)
        Bound of the loss's curvature at every row.
    """

    def __init__(self, problem: Problem, h: NDArray) -> None:
        assert isinstance(problem.rest, RotationInvariant)
        self._norm = problem.rest
        self._layout = problem.layout
        values, self._vectors = problem.kept("cell spectrum", lambda: _spectrum(problem, h))
        dtype = problem.design.dtype
        extra = 0.0
        if problem.smooth_curvature is not None and problem.layout.n_slopes:
            extra = float(problem.layout.split(problem.smooth_curvature)[0].mean())
        self._weights = (np.maximum(values, FLOOR * values.mean()) + extra).astype(dtype)
        self.largest = float(self._weights.max())

    @staticmethod
    def fits(problem: Problem) -> bool:
        """Whether the norm allows it, and turning and its preparation are worth their time."""
        if not isinstance(problem.rest, RotationInvariant) or problem.smoother is not None:
            return False
        blocks = [block.design for block in problem.design.blocks()]
        counts = np.array([design.layout.n_linear_cells for design in blocks], float)
        entries = np.array([d.n_rows * d.layout.kinds.count("linear") for d in blocks])
        if not 0 < counts.max() <= MAX_CELLS:
            return False
        if entries.sum() < np.sum(counts**2):  # turning would cost more than the passes
            return False
        n_features = blocks[0].rows.shape[1]  # all features, alive or not
        pass_cost = 4.0 * entries.sum() * n_features
        return problem.has_kept("cell spectrum") or WORTH * pass_cost >= 10.0 * np.sum(counts**3)

    def prox(self, theta: NDArray, gradient: NDArray, size: float) -> tuple[NDArray, NDArray]:
        """In the eigenvectors of Q, feature by feature; biases stay where they are."""
        slopes, biases = self._layout.split(theta)
        start, downhill = self._turn(slopes), self._turn(self._layout.split(gradient)[0])
        goal = start - theta.dtype.type(size) * downhill / self._along(slopes)
        n_outputs = int(np.prod(slopes.shape[2:]))
        rows = np.ascontiguousarray(np.moveaxis(goal, 1, 0))  # one for every feature
        shrunk = self._norm.shrink_weighted(
            rows.reshape(goal.shape[1], -1),
            size * self._norm.strength,
            np.repeat(self._weights, n_outputs),
        )
        new = np.moveaxis(shrunk.reshape(rows.shape), 0, 1)
        moved = self._layout.join(new - start, np.zeros_like(biases))
        return self._layout.join(self._turn_back(new), biases), moved

    def weigh(self, turned: NDArray) -> NDArray:
        """Times the eigenvalues."""
        slopes, biases = self._layout.split(turned)
        return self._layout.join(self._along(slopes) * slopes, biases)

    def divide(self, gradient: NDArray) -> NDArray:
        """U diag(1 / weights) U^T gradient."""
        slopes, biases = self._layout.split(gradient)
        return self._layout.join(self._turn_back(self._turn(slopes) / self._along(slopes)), biases)

    def _along(self, slopes: NDArray) -> NDArray:
        return self._weights.reshape(-1, *(1,) * (slopes.ndim - 1))

    def _turn(self, slopes: NDArray) -> NDArray:
        return self._times([vectors.T for vectors in self._vectors], slopes)

    def _turn_back(self, slopes: NDArray) -> NDArray:
        return self._times(self._vectors, slopes)

    def _times(self, matrices: list[NDArray], slopes: NDArray) -> NDArray:
        flat, out, start = slopes.reshape(len(slopes), -1), [], 0
        for matrix in matrices:
            out.append(matrix @ flat[start : start + len(matrix)])
            start += len(matrix)
        return np.concatenate(out).reshape(slopes.shape)


def _spectrum(problem: Problem, h: NDArray) -> tuple[NDArray, list[NDArray]]:
    """Eigenvalues (L,) of Z^T diag(h) Z over linear cells, eigenvectors (L_t, L_t) of each task."""
    values, vectors = [], []
    for rows, _, design in problem.design.blocks():
        gram = bias_gram(design.linear_partitions(), h[rows])
        own, turned = eigh(gram, lower=False, overwrite_a=True, check_finite=False)
        values.append(np.maximum(own, 0.0))
        vectors.append(turned.astype(problem.design.dtype))  # one block in float64 at a time
    return np.concatenate(values), vectors
