"""Accelerated proximal gradient (FISTA) with adaptive restart, for any loss and penalty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.problem import Problem
from jointleaf._core.solvers.active import ActiveFeatures
from jointleaf._core.solvers.base import Recorder, Solution, Solver, effective_tol, finish
from jointleaf._core.solvers.cg import dot
from jointleaf._core.solvers.steps import PlainSteps, make_steps

__all__ = ["FISTA"]

_LONGER = 1.05


class FISTA(Solver):
    """Nesterov's accelerated proximal gradient method.

    One forward and one adjoint pass an iteration: predictions are linear in the weights and are
    extrapolated with them. The step size is found automatically, by a power iteration and then
    from step to step: it grows slowly and is shortened where its bound does not hold. Momentum
    restarts when it points uphill (O'Donoghue and Candes 2015). Biases that are free or
    penalised by their square are eliminated (`_core.solvers.steps`); penalties under which
    whole features vanish are solved on the features that are alive
    (`_core.solvers.active`).
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
        tol = effective_tol(tol, problem.design.dtype)
        theta = problem.zeros() if init is None else np.array(init, problem.design.dtype)
        if ActiveFeatures.fits(problem):
            theta, n_iter = self._on_active_features(problem, theta, recorder, tol, max_iter)
        else:
            theta, n_iter = accelerate(problem, theta, recorder, tol, max_iter)
        return finish(
            problem, theta, recorder, solver=self.name, n_iter=n_iter, tol=tol, trace_end=False
        )

    def _on_active_features(
        self, problem: Problem, theta: NDArray, recorder: Recorder, tol: float, max_iter: int
    ) -> tuple[NDArray, int]:
        """Solve on some features, let in those that should move, until none should."""
        active = ActiveFeatures(problem, theta)
        n_iter, used, optimality = 0, 1, np.inf
        while True:
            previous, optimality = optimality, active.update(theta)
            is_stuck = used == 0 and not active.has_grown and optimality >= previous
            if n_iter >= max_iter or optimality <= tol or is_stuck:
                return theta, n_iter
            inner_tol = max(0.5 * tol, 0.1 * optimality)
            part, used = accelerate(
                active.problem,
                active.take(theta),
                recorder,
                inner_tol,
                max_iter - n_iter,
                start=n_iter,
            )
            theta = active.put(part)
            problem.prox_step = active.problem.prox_step
            n_iter += used


def accelerate(
    problem: Problem,
    theta: NDArray,
    recorder: Recorder,
    tol: float,
    max_iter: int,
    *,
    start: int = 0,
) -> tuple[NDArray, int]:
    """Minimise from theta until optimality <= tol; gives weights and the number of iterations.

    Iterations are recorded with numbers from `start` on.
    """
    design = problem.design.merge_partitions()
    steps = make_steps(problem)
    key = ("step size", type(steps), type(steps.metric))
    size = first = problem.kept(key, steps.size)  # where a related problem ended
    problem.prox_step = size / steps.metric.largest
    theta, f = steps.settle(theta, design.matvec(theta))
    ahead, f_ahead, momentum = theta, f, 1.0
    objective = problem.objective(theta, f)
    optimality = problem.optimality(theta, problem.data_gradient(f))
    recorder.add(start, objective, optimality)
    noise = 16 * float(np.finfo(design.dtype).eps)
    n_iter = 0
    while n_iter < max_iter and optimality > tol:
        n_iter += 1
        new, f_new, size, distance = steps.advance(ahead, f_ahead, size * _LONGER)
        move = new - ahead
        new_objective = problem.objective(new, f_new)
        is_higher = new_objective > objective + noise * abs(objective)
        if is_higher and momentum == 1.0 and steps.knows_curvature:
            # Without momentum a step cannot lead uphill, unless the loss understates its curvature.
            steps = PlainSteps(problem, trust=False)
            size = steps.size()
            continue
        if dot(move, new - theta) < 0 or is_higher:  # momentum points uphill
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        push = theta.dtype.type((momentum - 1) / following)
        ahead, f_ahead = new + push * (new - theta), f_new + push * (f_new - f)
        theta, f, momentum, objective = new, f_new, following, new_objective
        # The move over the step size is a subgradient up to a bounded factor, and free: the true
        # measure costs a pass and is taken when this one is small.
        optimality = distance / problem.start_slope
        if optimality <= tol:
            problem.prox_step = size / steps.metric.largest
            optimality = problem.optimality(theta, problem.data_gradient(f))
        recorder.add(start + n_iter, objective, optimality)
    problem.keep(key, max(size, 0.1 * first))
    return theta, n_iter
