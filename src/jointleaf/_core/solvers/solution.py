"""The record that a solve gives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import check_device, place
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import Loss
from jointleaf._core.progress import iterations

#: "stopped": after as many steps as were asked for, see `Krylov`
Status = Literal["converged", "max_iter", "stalled", "stopped"]


class TracePoint(NamedTuple):
    """One line of a solver's trace."""

    iteration: int
    seconds: float
    objective: float
    optimality: float


@dataclass(frozen=True)
class Solution:
    """The outcome of a solve, of one task or of several.

    Attributes
    ----------
    coef : array (L, d) or (L, d, K)
        Slopes of the linear cells, partition after partition, and task after task.
    intercept : array (C,) or (C, K)
        Biases.
    status : {"converged", "max_iter", "stalled", "stopped"}
    message : str
        The status in words and, where it is not "converged", what to try.
    solver : str
    n_iter : int
    objective : float
        J at the solution.
    optimality : float
        Scale-free distance from the first-order conditions (`Problem.optimality`). For a loss with
        kinks the derivatives of a smooth loss stand in for a subgradient, and what these fail to
        be one by (`Problem.excess`), relative to the loss at zero weights, counts where it is more.
    gap : float
        Certified bound of J minus its minimum; infinite where some weight is not penalised.
    trace : list of TracePoint
        Iteration, seconds since the start, objective and optimality.
    layout : CellLayout
    common_coef : array (L, d) or None
        Part of `coef` that belongs to features that all tasks share; None where there is none.
    loss : Loss or None
        What was minimised, with the scale that was found for it; None for a model that was loaded.
    """

    coef: NDArray
    intercept: NDArray
    status: Status
    message: str
    solver: str
    n_iter: int
    objective: float
    optimality: float
    gap: float
    layout: CellLayout
    trace: list[TracePoint] = field(default_factory=list, repr=False)
    common_coef: NDArray | None = None
    loss: Loss | None = field(default=None, repr=False, compare=False)

    @property
    def converged(self) -> bool:
        """Whether the optimality measure reached the tolerance."""
        return self.status == "converged"

    @property
    def theta(self) -> NDArray:
        """Slopes and biases in one array, (N,) or (N, K)."""
        return self.layout.join(self.coef, self.intercept)

    @property
    def slope_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's slopes over all cells and outputs, (d,)."""
        squares = np.square(self.coef, dtype=float)
        return np.sqrt(squares.sum(axis=(0, *range(2, squares.ndim))))

    @property
    def tasks(self) -> tuple[Solution, ...]:
        """The solution of every task."""
        tasks = []
        for t, layout in enumerate(self.layout.tasks):
            rows = slice(*self.layout.slope_starts[t : t + 2])
            cells = slice(*self.layout.task_starts[t : t + 2])
            common = None if self.common_coef is None else self.common_coef[rows]
            coef, intercept = self.coef[rows], self.intercept[cells]
            tasks.append(
                replace(self, coef=coef, intercept=intercept, layout=layout, common_coef=common)
            )
        return tuple(tasks)

    @property
    def common(self) -> NDArray:
        """C, the slopes of features that all tasks share, (L, d)."""
        return np.zeros_like(self.coef) if self.common_coef is None else self.common_coef

    @property
    def specific(self) -> NDArray:
        """T, the slopes of features of a single task, (L, d): W = C + T."""
        return self.coef - self.common

    @property
    def common_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's common slopes in every task, (d, T)."""
        return _norms([task.common for task in self.tasks])

    @property
    def specific_norms(self) -> NDArray[np.float64]:
        """Euclidean norm of every feature's slopes of single tasks, (d, T)."""
        return _norms([task.specific for task in self.tasks])

    def predict(self, X: ArrayLike, codes: ArrayLike, *, device: str = "cpu") -> NDArray:
        """Raw predictions (n,) or (n, K) of rows X (n, d) with codes (n, P); -1 is no cell.

        `device` is as for `jointleaf.fit_cells`.
        """
        check_device(device)
        rows = np.asarray(X, dtype=self.coef.dtype)
        if rows.ndim != 2 or rows.shape[1] != self.layout.n_features:
            raise ValueError(
                f"X has shape {rows.shape}, but the cells were fitted with "
                f"{self.layout.n_features} features"
            )
        theta = self.theta
        device = place(device, len(rows) * self.layout.entries_per_row * theta[0].size)
        if device != "cpu":
            from jointleaf._core.jax.problem import predict

            return predict(rows, np.asarray(codes), theta, self.layout, device)
        counts, kinds = self.layout.cells_per_partition, self.layout.kinds
        return LeafDesign(rows, codes, counts, cells=kinds).matvec(theta)

    def __repr__(self) -> str:
        n_tasks = len(self.layout.tasks)
        return (
            f"Solution({f'{n_tasks} tasks, ' if n_tasks > 1 else ''}{self.solver}: {self.status} "
            f"after {iterations(self.n_iter)}, objective={self.objective:.8g}, "
            f"optimality={self.optimality:.1e})"
        )


def _norms(slopes: list[NDArray]) -> NDArray[np.float64]:
    return np.stack([np.linalg.norm(part.astype(float), axis=0) for part in slopes], axis=1)
