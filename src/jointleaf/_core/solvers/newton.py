"""Truncated Newton for smooth losses with a quadratic penalty."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Recorder, Solution, Solver, effective_tol, finish
from jointleaf._core.solvers.cg import cg_steps, dot
from jointleaf._core.solvers.preconditioner import BlockPreconditioner

__all__ = ["Newton"]

_MAX_INNER = 250


class Newton(Solver):
    """Newton steps solved by preconditioned conjugate gradients, with a line search.

    The inner accuracy tightens with the gradient, so that convergence is superlinear. The line
    search needs no pass over the data: predictions are linear in the weights.
    """

    name = "newton"

    def lacks(self, problem: Problem) -> str | None:
        """A quadratic penalty is needed."""
        if problem.curvature is None:
            return "it needs a quadratic penalty such as Frobenius: use solver='fista'"
        return None

    def solve(
        self,
        problem: Problem,
        init: NDArray | None = None,
        *,
        tol: float = 1e-6,
        max_iter: int = 1000,
    ) -> Solution:
        """Minimise until optimality <= tol; see `Solver.solve`."""
        recorder = Recorder(problem)
        design = problem.design.merge_partitions()
        tol = effective_tol(tol, design.dtype)
        theta = problem.zeros() if init is None else np.array(init, design.dtype)
        f = design.matvec(theta)
        objective = problem.objective(theta, f)
        n_iter, stalled = 0, False
        noise = 16 * float(np.finfo(design.dtype).eps)
        while True:
            gradient = problem.data_gradient(f)
            optimality = problem.optimality(theta, gradient)
            recorder.add(n_iter, objective, optimality)
            if optimality <= tol or n_iter >= max_iter:
                break
            residual = -(gradient + problem.quadratic()[1] * theta)
            direction, image = self._direction(problem, f, residual)
            at = partial(_objective_along, problem, theta, f, direction, image)
            length, objective = _line_search(at, objective, -dot(residual, direction), noise)
            if length == 0.0:
                stalled = True
                break
            theta += theta.dtype.type(length) * direction
            f = design.matvec(theta)
            n_iter += 1
        return finish(
            problem,
            theta,
            recorder,
            solver=self.name,
            n_iter=n_iter,
            tol=tol,
            stalled=stalled,
            trace_end=False,
        )

    def _direction(
        self, problem: Problem, f: NDArray, residual: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Newton direction and its predictions, to the accuracy that the residual deserves."""
        design = problem.design
        h = problem.loss_curvature(f)
        # Rows without curvature (a linear piece of the loss) would leave directions free in which
        # the loss is not flat at all.
        flat = np.where(h > 1e-8 * h.max(), 0.0, 1e-3 * h.max()).astype(h.dtype)
        is_flat = bool(flat.any())
        h = h + flat if is_flat else h
        curvature, diagonal = problem.quadratic()
        several = h.ndim == 2  # outputs couple: one preconditioner with their mean curvature
        precondition = BlockPreconditioner(
            design,
            h.mean(axis=1) if several else h,
            curvature,
            eliminate=not several and problem.smoother is None,
        )

        def bend(image: NDArray) -> NDArray:
            curved = problem.hessian_product(f, image)
            return curved + flat * image if is_flat else curved

        def operator(p: NDArray) -> tuple[NDArray, NDArray]:
            image = precondition.complete(p, design.matvec(p))
            return design.rmatvec(bend(image)) + diagonal * p, image

        relative = float(np.abs(residual).max()) / problem.start_slope
        goal = min(0.1, np.sqrt(relative)) * float(np.linalg.norm(residual))
        direction, image = np.zeros_like(residual), np.zeros_like(f)
        if precondition.eliminates:
            image = precondition.settle(direction, image, problem.layout.split(residual)[1])
            residual = residual - design.rmatvec(bend(image)) - diagonal * direction
        for k, step in enumerate(cg_steps(operator, precondition, residual)):
            direction += step.length * step.direction
            image += step.length * step.image
            if float(np.linalg.norm(step.residual)) <= goal or k + 1 >= _MAX_INNER:
                break
        return direction, image


def _objective_along(
    problem: Problem, theta: NDArray, f: NDArray, direction: NDArray, image: NDArray, t: float
) -> float:
    return problem.objective(theta + t * direction, f + t * image)


def _line_search(
    objective_at: Callable[[float], float], start: float, slope: float, noise: float
) -> tuple[float, float]:
    """Halve the step until the objective falls enough; (0, start) if it never does."""
    length = 1.0
    for _ in range(40):
        value = objective_at(length)
        if value <= start + 1e-4 * length * slope + noise * abs(start):
            return length, value
        length *= 0.5
    return 0.0, start
