"""Preconditioned conjugate gradients for the squared error with a quadratic penalty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Recorder, Solution, Solver, effective_tol, finish
from jointleaf._core.solvers.cg import cg_steps
from jointleaf._core.solvers.preconditioner import BlockPreconditioner

__all__ = ["PCG"]

# In float32 the running residual drifts from the true one: start again from it now and then.
_CYCLE = {np.dtype(np.float32): 100, np.dtype(np.float64): 10**9}


class PCG(Solver):
    """Conjugate gradients on (Phi^T diag(s/S) Phi + D) theta = Phi^T diag(s/S) y.

    One forward and one adjoint pass an iteration, preconditioned and with biases eliminated by
    `BlockPreconditioner`. For large n with squared error.
    """

    name = "pcg"

    def lacks(self, problem: Problem) -> str | None:
        """Squared error and a quadratic penalty are needed."""
        if not problem.loss.is_quadratic:
            return "it needs the squared error loss: use solver='newton' or 'fista'"
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
        h = problem.loss_curvature(f)
        curvature, diagonal = problem.quadratic()
        precondition = BlockPreconditioner(
            design,
            h if h.ndim == 1 else h[:, 0],
            curvature,
            eliminate=problem.smoother is None,
        )

        def operator(p: NDArray) -> tuple[NDArray, NDArray]:
            image = precondition.complete(p, design.matvec(p))
            return design.rmatvec(problem.hessian_product(f, image)) + diagonal * p, image

        iteration, stalled = 0, False
        best = best_objective = np.inf
        noise = 10 * float(np.finfo(design.dtype).eps)
        while True:
            gradient = problem.data_gradient(f)
            optimality = problem.optimality(theta, gradient)
            objective = problem.objective(theta, f)
            recorder.add(iteration, objective, optimality)
            stalled = optimality > 0.9 * best and objective > (1 - noise) * best_objective
            if optimality <= tol or stalled or iteration >= max_iter or np.isnan(optimality):
                break
            best, best_objective = optimality, objective
            residual = -(gradient + diagonal * theta)
            if precondition.eliminates:
                f = precondition.settle(theta, f, problem.layout.split(residual)[1])
                residual = -(problem.data_gradient(f) + diagonal * theta)
                iteration += 1
                if iteration >= max_iter:
                    continue
            last = min(max_iter, iteration + _CYCLE[design.dtype])
            for step in cg_steps(operator, precondition, residual):
                theta += step.length * step.direction
                f += step.length * step.image
                iteration += 1
                optimality = float(np.abs(step.residual).max()) / problem.start_slope
                recorder.add(iteration, problem.objective(theta, f), optimality)
                if optimality <= 0.5 * tol or iteration >= last:
                    break
            f = design.matvec(theta)
        return finish(
            problem,
            theta,
            recorder,
            solver=self.name,
            n_iter=iteration,
            tol=tol,
            stalled=stalled and iteration < max_iter,
            trace_end=False,
        )
