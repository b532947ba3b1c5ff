"""The paper's own variants: the joint fit is stopped early on the validation rows.

Biases of linear cells are free, as in the paper, and start at zero like all weights: what holds
them back is that accelerated proximal gradient descent ends where the validation loss does. The
solvers of jointleaf cannot be used for this: they eliminate free biases exactly at every step.

The paper also searches the step size, in the units of its own code. Here it is the reciprocal of
the largest curvature.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from experiments.pmlb.data import Data
from experiments.pmlb.ensembles import Fit, Predict
from experiments.pmlb.joint import CELLS, make_penalty
from experiments.pmlb.losses import loss
from experiments.pmlb.space import Parameters
from jointleaf._core.design import LeafDesign, largest_eigenvalue
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Logistic, SquaredError
from jointleaf._core.problem import Problem

__all__ = ["descend", "stopped_fit"]

#: Iterations without a gain after which descent ends, and the most there can be.
PATIENCE, MAX_ITER = 30, 1000
#: What counts as a gain: a smaller one would keep flat descents going for nothing.
GAIN = 1e-3


def stopped_fit(cells_of: str, *, linear: bool, laplacian: bool) -> Fit:
    """JOPLEn or global refinement as `joint.joint_fit`, stopped early."""

    def fit(data: Data, parameters: Parameters, seed: int) -> Predict:
        cells = CELLS[cells_of](
            parameters["n_partitions"], parameters["n_cells"], random_state=seed
        )
        X, y = data.X["train"], data.y["train"]
        if data.is_binary:
            cells.fit(X, y.astype(int), target_type="classification")
        else:
            cells.fit(X, y)

        def design(rows: NDArray) -> LeafDesign:
            codes = cells.apply(rows)
            kind: CellKind = "linear" if linear else "constant"
            return LeafDesign(rows.astype(np.float32), codes, cells.n_cells_, cells=kind)

        free = parameters | {"bias_strength": 0.0} if linear else parameters
        of_rows = Logistic() if data.is_binary else SquaredError()
        targets = 2 * y - 1 if data.is_binary else y
        problem = Problem(design(X), targets, of_rows, make_penalty(free))
        link = expit if data.is_binary else np.asarray
        valid = design(data.X["valid"])
        theta = descend(
            problem, lambda theta: loss(data, "valid", link(valid.matvec(theta).astype(float)))
        )
        return lambda rows: link(design(rows).matvec(theta).astype(float))

    return fit


def descend(problem: Problem, valid_loss: Callable[[NDArray], float]) -> NDArray:
    """Follow accelerated proximal gradient descent from zero weights.

    Returns
    -------
    array (N,)
        The weights with the least validation loss on the way.
    """
    design = problem.leaf_design.merge_partitions()
    step = _step(problem, design)
    theta = ahead = best = problem.zeros()
    f = f_ahead = problem.zero_predictions()
    least, waited, momentum = valid_loss(theta), 0, 1.0
    for _ in range(MAX_ITER):
        gradient = design.rmatvec(problem.slope(f_ahead))
        new = problem.penalty.prox(ahead - theta.dtype.type(step) * gradient, step)
        f_new = design.matvec(new)
        value = valid_loss(new)
        waited += 1
        if value < least:
            waited = 0 if value < (1 - GAIN) * least else waited
            best, least = new, value
        if waited >= PATIENCE or not np.isfinite(value):
            break
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        push = theta.dtype.type((momentum - 1) / following)
        ahead, f_ahead = new + push * (new - theta), f_new + push * (f_new - f)
        theta, f, momentum = new, f_new, following
    return best


def _step(problem: Problem, design: LeafDesign) -> float:
    """The reciprocal of the data term's largest curvature."""
    bound = problem.curvature_bound().astype(design.dtype)
    largest = largest_eigenvalue(
        lambda v: design.rmatvec(problem.weigh(bound, design.matvec(v))),
        design.layout.random_weights().astype(design.dtype),
        50,
        1e-3,
    )
    return 1 / (1.02 * largest) if largest > 0 else 1.0
