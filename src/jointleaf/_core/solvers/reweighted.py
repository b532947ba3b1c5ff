"""Other losses by least squares: Newton-like steps, each of them one Krylov run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Run, Solver, line_search
from jointleaf._core.solvers.krylov import KrylovPath
from jointleaf._core.solvers.solution import Solution


class Reweighted(Solver):
    """Least squares with weights and responses of a quadratic model of the loss, again and again.

    The quadratic model has the loss's working curvature: its expected second derivative, or that
    of a parabola above it. Every problem of least squares, of `n_rounds` at most, is solved by
    `n_steps` Lanczos steps, which regularises like the penalty; steps are shortened until the
    objective falls.
    """

    name = "reweighted"

    def __init__(self, n_rounds: int = 5, n_steps: int = 60) -> None:
        self.n_rounds, self.n_steps = n_rounds, n_steps

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return why the problem does not fit: several outputs, or weights that are free."""
        if problem.outputs or problem.smoother is not None:
            return "it needs one output and no term on predictions: use 'newton' or 'fista'"
        curvature = problem.penalty.curvature()
        if curvature is None or not np.all(curvature > 0):
            return "it needs a quadratic penalty on all slopes and biases: use 'newton' or 'fista'"
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        curvature, diagonal = problem.quadratic()
        f = problem.design.matvec(theta)
        objective = problem.objective(theta, f)
        for n_iter in range(min(self.n_rounds, run.max_iter)):
            gradient = problem.data_gradient(f)
            optimality = problem.optimality(theta, gradient)
            run.recorder.add(n_iter, objective, optimality)
            if optimality <= run.tol:
                return theta, n_iter, False
            goal = self._goal(problem, curvature, f).astype(theta.dtype)
            move = goal - theta
            image = problem.design.matvec(move)
            slope = float(np.vdot(gradient + diagonal * theta, move))
            at = partial(problem.objective_along, theta, f, move, image)
            noise = 16 * float(np.finfo(theta.dtype).eps)
            length, objective = line_search(at, objective, min(slope, 0.0), noise)
            if length == 0.0:
                return theta, n_iter, True
            theta = theta + length.astype(theta.dtype) * move
            f = problem.design.matvec(theta)
        return theta, min(self.n_rounds, run.max_iter), False

    def _goal(self, problem: Problem, curvature: NDArray, f: NDArray) -> NDArray:
        """Return the weights at which the quadratic model around predictions f is least."""
        loss, raw = problem.loss, (f + problem.offset).astype(float)
        y = problem.y.astype(float)
        h = np.maximum(loss.row_working_curvature(y, raw), 1e-12)
        response, s = f - loss.row_gradient(y, raw) / h, problem.s * h
        # The run divides by the sum of the weights s h, the problem by that of s.
        ratio = float(s.sum() / problem.s.sum())
        path = KrylovPath(problem.design, curvature, response, s)
        path.extend(self.n_steps)
        return path.weights(1.0 / ratio)

    def _finish(
        self, problem: Problem, run: Run, theta: NDArray, n_iter: int, stalled: bool
    ) -> Solution:
        solution = super()._finish(problem, run, theta, n_iter, stalled)
        if solution.converged or n_iter == run.max_iter < self.n_rounds:
            return solution
        message = (
            f"reweighted least squares took the {n_iter} rounds of {self.n_steps} steps that were "
            f"chosen for it, to optimality {solution.optimality:.1e}"
        )
        return replace(solution, status="stopped", message=message)
