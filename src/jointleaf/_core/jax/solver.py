"""A solver that runs on a device: a problem is moved there, solved, and measured on the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import double_precision, find_device
from jointleaf._core.jax import dual, fista, newton
from jointleaf._core.jax.newton import Outcome, bias_inverse
from jointleaf._core.jax.problem import (
    DevicePenalty,
    DeviceProblem,
    compiled_loss,
    compiled_penalty,
    move_problem,
)
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Run, Solver

move_penalty = DevicePenalty.of  # tests put their own in its place


class OnDevice(Solver):
    """One of the four solvers, compiled for a device.

    The data of a problem are moved once and serve all problems made from it, such as the points of
    a path. Between the move and the answer nothing passes between host and device. The trace has
    the start and the end alone. `device` is "gpu", "tpu" or "jax:cpu".
    """

    def __init__(self, name: str, device: str) -> None:
        self.name = name
        self.device = device
        self.in_double = name == "dual"

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return what JAX cannot compile: losses and penalties that are written in NumPy alone."""
        reason = compiled_loss(problem.loss, problem.outputs[0] if problem.outputs else None)
        if reason is not None:
            return (
                f"the loss {type(problem.loss).__name__} is written in NumPy alone: use "
                f"device='cpu', or write it for arrays of JAX too or as a JaxLoss ({reason})"
            )
        # The other solvers know the penalty by its curvature.
        if self.name == "fista":
            reason = compiled_penalty(problem.nonsmooth, problem.zeros())
        if reason is not None:
            return (
                f"the penalty {problem.nonsmooth!r} is written in NumPy alone: use device='cpu', "
                f"or write it for arrays of JAX too ({reason})"
            )
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        device = find_device(self.device)
        solvers: dict[str, Any] = {
            "dual": _dual,
            "fista": _fista,
            "newton": partial(_conjugate_gradients, is_newton=True),
            "pcg": partial(_conjugate_gradients, is_newton=False),
        }
        with double_precision():
            key = "on device", self.device
            moved = run.state.get(key, lambda: move_problem(problem, device))
            outcome = solvers[self.name](problem, theta, run, moved, device)
            theta, n_iter, _, stalled = jax.device_get(tuple(outcome))
        return np.array(theta), int(n_iter), bool(stalled)


def call(function: Any, device: Any, *arguments: Any) -> Any:
    """Move arguments and call a compiled function; any other transfer is an error."""
    moved = jax.device_put(arguments, device)
    with jax.transfer_guard("disallow"):
        return function(*moved)


def _conjugate_gradients(
    problem: Problem, theta: NDArray, run: Run, moved: DeviceProblem, device: Any, is_newton: bool
) -> Outcome:
    curvature, _ = problem.quadratic()

    def at_zero() -> NDArray:
        h = problem.loss_curvature(problem.zero_predictions()).astype(float)
        return h if h.ndim == 1 else h.mean(axis=1)

    h = run.state.get("curvature at zero", at_zero) if is_newton else problem.s / problem.s.sum()
    beta = problem.layout.split(curvature)[1]
    biases = bias_inverse(problem, run.state, h, beta, device, independent=is_newton)
    solve, diagonal = newton.newton if is_newton else newton.pcg, curvature.astype(theta.dtype)
    return call(solve, device, moved, diagonal, biases, theta, run.tol, run.max_iter)


def _fista(
    problem: Problem, theta: NDArray, run: Run, moved: DeviceProblem, device: Any
) -> Outcome:
    diagonal = problem.smooth_curvature
    diagonal = np.zeros(len(theta)) if diagonal is None else diagonal
    biases, beta = None, problem.penalty.bias_curvature()
    if beta is not None and np.isfinite(problem.loss.max_curvature):  # they can be eliminated
        h = problem.loss.max_curvature * problem.s / problem.s.sum()
        biases = bias_inverse(problem, run.state, h, beta, device, smooth=True)
    diagonal, nonsmooth = jax.device_put(
        (diagonal.astype(theta.dtype), move_penalty(problem.nonsmooth)), device
    )

    def first_size() -> NDArray:
        start = problem.layout.random_weights().astype(theta.dtype)
        return jax.device_get(call(fista.first_size, device, moved, diagonal, biases, start))

    key = "step size on device", biases is None
    size = run.state.get(key, first_size)
    limits = np.asarray(problem.prox_step), run.tol, run.max_iter
    arguments = moved, diagonal, nonsmooth, biases, theta, size, *limits
    outcome = call(fista.minimise, device, *arguments)
    run.state.set(key, np.maximum(jax.device_get(outcome.size), 0.1 * np.asarray(size)))
    return outcome


def _dual(problem: Problem, theta: NDArray, run: Run, moved: DeviceProblem, device: Any) -> Outcome:
    penalty, layout = problem.penalty, problem.layout
    assert isinstance(penalty, Frobenius)
    weights = penalty.partition_weights
    weights = np.ones(layout.n_partitions) if weights is None else weights
    arguments = moved, penalty.curvature(), penalty.column_strengths(layout), weights
    if not problem.loss.is_quadratic:
        return call(dual.newton, device, *arguments, run.tol, run.max_iter)
    solve = dual.squared if penalty.bias_strength > 0 else dual.squared_free_biases
    return call(solve, device, *arguments)
