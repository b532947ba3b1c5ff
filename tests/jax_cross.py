"""Every loss, penalty and solver on one tiny problem, and compiled loops that penalties share.

Nearly all the time of these tests would go into compilation. Penalties of one structure therefore
share a loop: it holds the proximal maps of all of them, and a number that is not compiled in says
which is used. All else is as in any fit.
"""

import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from jointleaf import (
    L1,
    L21,
    DirtyLasso,
    DirtyLInf,
    Frobenius,
    GrOWL,
    KyFan,
    Laplacian,
    LInf1,
    Lp1,
    Nuclear,
    PerTask,
    SchattenP,
)
from jointleaf._core.fitting import make_problem
from jointleaf._core.jax.problem import DevicePenalty, pytree
from jointleaf._core.losses import JaxLoss, Logistic, Multinomial, SquaredError
from jointleaf._core.penalties import Free
from jointleaf._core.penalties.per_task import Scaled
from jointleaf._core.tasks import task_problem

jnp: Any = importlib.import_module("jax.numpy")
lax: Any = importlib.import_module("jax.lax")

N, D, CELLS = 60, 3, (3, 2, 3)
_rng = np.random.default_rng(0)
X = _rng.standard_normal((N, D))
CODES = np.stack([_rng.integers(0, k, N) for k in CELLS], axis=1)
WEIGHTS = _rng.uniform(0.5, 2.0, N)
SIGNAL = np.abs(X[:, 0]) + X[:, 1] * CODES[:, 0] + 0.5 * _rng.standard_normal(N)


def _poisson(y, f):
    return jnp.exp(f) - y * f


#: a loss and its targets; the user's own has no bound of its curvature
LOSSES = {
    "squared_error": (SquaredError(), SIGNAL),
    "logistic": (Logistic(), np.where(SIGNAL - np.median(SIGNAL) > 0, 1, -1)),
    "multinomial": (Multinomial(3), np.digitize(SIGNAL, np.quantile(SIGNAL, [0.3, 0.6]))),
    "jax_poisson": (JaxLoss(_poisson), _rng.poisson(np.exp(0.3 * SIGNAL))),
}

RIDGE = Frobenius(0.03)
SINGLE = {
    "ridge": RIDGE,
    "ridge, free biases": Frobenius(0.03, bias_strength=0.0),
    "ridge, weights": Frobenius(
        0.03, 0.1, feature_weights=[1, 2, 0.5], partition_weights=[1, 2, 0.5]
    ),
    "2 ridges": RIDGE + Frobenius(0.01, 0.02),
    "Scaled ridge": Scaled(2.0, RIDGE),
    "L1": L1(0.03, bias_strength=0.01),
    "L21": L21(0.05),
    "LInf1": LInf1(0.05),
    "Lp1, p < 2": Lp1(0.05, p=1.5),
    "Lp1, p > 2": Lp1(0.05, p=3),
    "GrOWL": GrOWL(0.05),
    "Nuclear": Nuclear(0.05),
    "KyFan": KyFan(0.05, k=2),
    "SchattenP, p = 3": SchattenP(0.05, p=3),
    "SchattenP, p = inf": SchattenP(0.05, p=np.inf),
    "L1 + L21": L1(0.01, bias_strength=0.01) + L21(0.03, bias_strength=0.02),
    "L21 + Nuclear": L21(0.02) + Nuclear(0.03),
    "L1 + LInf1 + GrOWL": L1(0.01) + LInf1(0.02) + GrOWL(0.02),
    "Scaled L21": Scaled(2.0, L21(0.03, bias_strength=0.01)),
    "L1 + L21 + ridge": L1(0.01) + L21(0.03) + RIDGE,
    "KyFan + ridge": KyFan(0.03, k=2) + RIDGE,
    "ridge + Laplacian": RIDGE + Laplacian(0.05),
    "L21 + ridge + Laplacian": L21(0.03) + RIDGE + Laplacian(0.05),
    "Nuclear + ridge + Laplacian": Nuclear(0.03) + RIDGE + Laplacian(0.05),
}
_SUPPORT = np.array([[1, 1], [1, 0], [0, 1]], bool)
TASKS = {
    "tasks, ridge": RIDGE,
    "tasks, PerTask ridge": PerTask(RIDGE),
    "tasks, PerTask L21 + ridge": PerTask(L21(0.03)) + RIDGE,
    "tasks, L21": L21(0.05),
    "tasks, PerTask L21": PerTask(L21(0.05, bias_strength=0.01)),
    "tasks, PerTask Nuclear": PerTask(Nuclear(0.05)),
    "tasks, DirtyLasso": DirtyLasso(0.05, 0.04),
    "tasks, DirtyLasso, common alone": DirtyLasso(0.05, None, bias_strength=0.01),
    "tasks, DirtyLasso, tasks alone": DirtyLasso(None, 0.04),
    "tasks, DirtyLasso, relaxed": DirtyLasso(0.05, 0.04).relaxed(0.5, _SUPPORT),
    "tasks, DirtyLInf": DirtyLInf(0.05, 0.04, bias_strength=0.01),
    "tasks, DirtyLInf, common alone": DirtyLInf(0.05, None),
    "tasks, DirtyLInf, tasks alone": DirtyLInf(None, 0.04),
    "tasks, DirtyLInf, relaxed": DirtyLInf(0.05, 0.04).relaxed(0.5, _SUPPORT),
    "tasks, L1 + DirtyLasso": L1(0.01) + DirtyLasso(0.05, 0.04),
    "tasks, L1 + DirtyLInf": L1(0.01) + DirtyLInf(0.05, 0.04),
    "tasks, ridge + Laplacian": RIDGE + Laplacian(0.05, graph="neighbors"),
    "tasks, DirtyLasso + ridge + Laplacian": (
        DirtyLasso(0.05, 0.04) + RIDGE + Laplacian(0.05, graph="neighbors")
    ),
}
PENALTIES = SINGLE | TASKS
PRECISIONS = {np.float64: (1e-9, 1e-10), np.float32: (1e-4, 1e-4)}  # tol, of the objective
MAX_ITER = 50_000


def fits(loss, penalty):
    """Whether the problem exists: several tasks have losses with one output."""
    return not (loss == "multinomial" and penalty in TASKS)


def problem_of(loss, penalty, dtype=np.float64):
    """The problem of a loss and a penalty, by their names."""
    made_loss, y = LOSSES[loss]
    rows = X.astype(dtype)
    if penalty in SINGLE:
        problem = _one_task(rows, CODES, y, made_loss, SINGLE[penalty], WEIGHTS)
    else:
        halves = slice(0, 35), slice(35, N)
        parts = [
            _one_task(rows[half], CODES[half, : 3 - t], y[half], made_loss, Free(), WEIGHTS[half])
            for t, half in enumerate(halves)
        ]
        problem = task_problem(
            [part.leaf_design for part in parts],
            [part.y for part in parts],
            made_loss,
            TASKS[penalty],
            [part.s for part in parts],
            [1.0, 0.7],
            [0.0, 0.0],
        )
    return problem


def _one_task(rows, codes, y, loss, penalty, weights):
    return make_problem(
        rows, codes, y, loss=loss, penalty=penalty, cells="linear", sample_weight=weights,
        n_cells=None, n_jobs=1,
    )  # fmt: skip


# -- loops that several penalties share ----------------------------------------------------------


@pytree("which parts")
@dataclass(frozen=True)
class _OneOf:
    """One of several proximal maps; which one is not compiled in."""

    which: Any
    parts: tuple[Any, ...]

    def prox(self, theta, step):
        return lax.switch(self.which, [own.prox for own in self.parts], theta, step)


@lru_cache
def _structure(penalty):
    """What decides the structure of a compiled loop besides the proximal map."""
    problem = problem_of("squared_error", penalty)
    parts = getattr(problem.smoother, "parts", [problem.smoother])
    smoothers = tuple(sparse.issparse(part) for part in parts)
    has_smoother = problem.smoother is not None
    return penalty in TASKS, problem.smooth_curvature is None, has_smoother, smoothers


@lru_cache
def _group(structure):
    """Penalties of a structure: their names, and what FISTA has proximal maps of."""
    names = [name for name in PENALTIES if _structure(name) == structure]
    return names, [problem_of("squared_error", name).nonsmooth for name in names]


def shared_prox(penalty):
    """Stands in for `DevicePenalty.of`: the map of this penalty among all of its structure."""
    group, rests = _group(_structure(penalty))

    def stand_in(rest):
        parts = [DevicePenalty.of(other) for other in rests]
        own = group.index(penalty)
        parts[own] = DevicePenalty.of(rest)
        return _OneOf(np.asarray(own, np.int32), tuple(parts))

    return stand_in
