"""Accelerated proximal gradient (FISTA) with adaptive restart, for any loss and penalty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf.problem import Problem
from jointleaf.solvers.base import Recorder, Solution, Solver, effective_tol, finish
from jointleaf.solvers.cg import dot

__all__ = ["FISTA"]


class FISTA(Solver):
    """Nesterov's accelerated proximal gradient method.

    One forward and one adjoint pass an iteration: predictions are linear in the weights and are
    extrapolated with them. The step is found automatically, from a power iteration and the
    loss's bound on its curvature, and shortened if the objective says that it was too long.
    Momentum restarts when it points uphill (O'Donoghue and Candes 2015).
    """

    name = "fista"

    def lacks(self, problem: Problem) -> str | None:
        """Nothing: every convex loss with every penalty that has a prox."""
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
        design, penalty = problem.design.merge_partitions(), problem.penalty
        tol = effective_tol(tol, design.dtype)
        theta = problem.zeros() if init is None else np.array(init, design.dtype)
        f = design.matvec(theta)
        step = problem.prox_step = self._first_step(problem)
        ahead, f_ahead, momentum = theta, f, 1.0
        noise = 16 * float(np.finfo(design.dtype).eps)
        n_iter = 0
        recorder.add(0, problem.objective(theta, f), self._optimality(problem, theta, f))
        while n_iter < max_iter and recorder.points[-1].optimality > tol:
            n_iter += 1
            value = problem.data_value(f_ahead)
            gradient = problem.data_gradient(f_ahead)
            while True:
                new = penalty.prox(ahead - gradient.dtype.type(step) * gradient, step)
                f_new = design.matvec(new)
                move = new - ahead
                bound = value + dot(gradient, move) + dot(move, move) / (2 * step)
                new_value = problem.data_value(f_new)
                if new_value <= bound + noise * abs(bound) or step < 1e-30:
                    break
                step *= 0.5
            if dot(ahead - new, new - theta) > 0:  # momentum points uphill
                momentum = 1.0
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            push = theta.dtype.type((momentum - 1) / following)
            ahead, f_ahead = new + push * (new - theta), f_new + push * (f_new - f)
            theta, f, momentum = new, f_new, following
            # (ahead - new) / step is a subgradient up to a bounded factor, and free: the true
            # measure costs a pass and is taken when this one is small.
            cheap = float(np.abs(move).max()) / step / problem.start_slope
            if cheap <= tol:
                cheap = self._optimality(problem, theta, f)
            recorder.add(n_iter, new_value + penalty.value(theta), cheap)
        return finish(
            problem, theta, recorder, solver=self.name, n_iter=n_iter, tol=tol, trace_end=False
        )

    def _first_step(self, problem: Problem) -> float:
        """1 / (largest curvature of the loss along the design), slightly shortened."""
        shares = problem.s / problem.s.sum()
        bound = problem.loss.max_curvature
        if not np.isfinite(bound):  # unknown: start from the curvature at zero, then backtrack
            h = problem.loss_curvature(problem.zero_predictions())
            bound = float(np.max(h.reshape(len(shares), -1).max(axis=1) / shares))
        largest = bound * problem.design.lipschitz(shares.astype(problem.design.dtype))
        return 1.0 / (1.02 * largest) if largest > 0 else 1.0

    def _optimality(self, problem: Problem, theta: NDArray, f: NDArray) -> float:
        return problem.optimality(theta, problem.data_gradient(f))
