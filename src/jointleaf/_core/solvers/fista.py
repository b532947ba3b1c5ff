"""Accelerated proximal gradient (FISTA) with adaptive restart, for any loss and penalty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import dot
from jointleaf._core.layout import CellLayout
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Run, Solver
from jointleaf._core.solvers.steps import Steps, make_steps

_LONGER = 1.05
_MIN_FEATURES = 8  # below, passes over all columns cost little more than over some
_FIRST = 10  # features let in at a time, at least


class FISTA(Solver):
    """Nesterov's accelerated proximal gradient method.

    One forward and one adjoint pass an iteration: predictions are linear in the weights and are
    extrapolated with them. The step size is found automatically, by a power iteration and then
    from step to step: it grows slowly and is shortened where its bound does not hold. Momentum
    restarts when it points uphill (O'Donoghue and Candes 2015). Biases that are free or
    penalised by their square are eliminated (`_core.solvers.steps`); penalties under which
    whole features vanish are solved on the features that are alive
    (`ActiveFeatures`).
    """

    name = "fista"

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return None: every convex loss with every penalty that has a prox fits."""
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        solve = self._on_active_features if ActiveFeatures.fits(problem) else accelerate
        return *solve(problem, theta, run), False

    def _on_active_features(
        self, problem: Problem, theta: NDArray, run: Run
    ) -> tuple[NDArray, int]:
        """Solve on some features, let in those that should move, until none should."""
        active = ActiveFeatures(problem, theta)
        n_iter, used, optimality = 0, 1, np.inf
        while True:
            previous, optimality = optimality, active.update(theta)
            is_stuck = used == 0 and not active.has_grown and optimality >= previous
            if n_iter >= run.max_iter or optimality <= run.tol or is_stuck:
                return theta, n_iter
            inner_tol = max(0.5 * run.tol, 0.1 * optimality)
            inner = run._replace(tol=inner_tol, max_iter=run.max_iter - n_iter)
            part, used = accelerate(active.problem, active.take(theta), inner, start=n_iter)
            theta = active.put(part)
            n_iter += used


def accelerate(
    problem: Problem, theta: NDArray, run: Run, *, start: int = 0
) -> tuple[NDArray, int]:
    """Minimise from theta until optimality <= tol; return weights and the number of iterations.

    Iterations are recorded with numbers from `start` on.
    """
    tol, max_iter, state, recorder = run
    design = problem.design.merge_partitions()
    steps = make_steps(problem, state)
    key = ("step size", type(steps), type(steps.metric))
    size = first = state.get(key, steps.size)  # where a related problem ended
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
            steps = Steps(problem, trust=False)
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
            optimality = problem.optimality(theta, problem.data_gradient(f))
        recorder.add(start + n_iter, objective, optimality)
    state.set(key, max(size, 0.1 * first))
    return theta, n_iter


class ActiveFeatures:
    """A growing set of features; all others have zero slopes.

    Passes cost as much as there are columns, so that the problem on the active features alone
    (`problem`) is cheap. A proximal gradient step on all features then says which others should
    move: where there are none, the answer is that of the whole problem. `has_grown` tells whether
    the last `update` let features in.
    """

    def __init__(self, problem: Problem, theta: NDArray) -> None:
        self._whole = problem
        self._mask = np.zeros(problem.layout.n_slopes, bool)
        self._mask[live_features(problem.layout, theta)] = True
        self.has_grown = False
        self.problem = problem

    @staticmethod
    def fits(problem: Problem) -> bool:
        """Whether the penalty makes features vanish, and there are enough of them."""
        if not problem.nonsmooth.is_row_sparse or problem.layout.n_slopes <= _MIN_FEATURES:
            return False
        return problem.penalty.restricted(np.arange(1)) is not None

    def update(self, theta: NDArray) -> float:
        """Let features in that should move; return the optimality of theta in the whole problem."""
        whole = self._whole
        # Other features than the active ones add nothing to predictions.
        active = theta if self.problem is whole else self.take(theta)
        gradient = whole.data_gradient(self.problem.design.matvec(active))
        moved = whole.proximal_step(theta, gradient)
        optimality = whole.optimality(theta, gradient, moved)
        size = np.square(whole.layout.split(moved)[0], dtype=float)
        size = size.sum(axis=tuple(k for k in range(size.ndim) if k != 1))
        size[self._mask] = 0.0
        most = max(_FIRST, int(self._mask.sum()))
        waiting = np.argsort(-size, kind="stable")[:most]
        waiting = waiting[size[waiting] > 0]
        self.has_grown = bool(waiting.size) or self.problem is whole
        if self.has_grown:
            self._mask[waiting] = True
            self.problem = whole.restricted(self.features)
        return optimality

    @property
    def features(self) -> NDArray[np.intp]:
        """The active features."""
        return np.flatnonzero(self._mask)

    def take(self, theta: NDArray) -> NDArray:
        """Return the weights of the active features and the biases."""
        slopes, biases = self._whole.layout.split(theta)
        return self._whole.layout.join(slopes[:, self.features], biases)

    def put(self, part: NDArray) -> NDArray:
        """The inverse of `take`."""
        theta = self._whole.zeros()
        slopes, biases = self._whole.layout.split(theta)
        slopes[:, self.features], biases[:] = self.problem.layout.split(part)
        return theta


def live_features(layout: CellLayout, theta: NDArray) -> NDArray[np.intp]:
    """Return the features with a slope that is not zero in some cell."""
    slopes, _ = layout.split(theta)
    axes = tuple(k for k in range(slopes.ndim) if k != 1)
    return np.flatnonzero(np.any(slopes != 0, axis=axes))
