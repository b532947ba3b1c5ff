"""Fits on a device: loops of single penalties give the answers of SciPy.

`test_jax_cross` has every loss with every penalty with every solver, in loops that penalties share.
"""

import numpy as np
import pytest

from jax_data import CODES, TARGETS, WEIGHTS, X, tasks
from jointleaf import (
    L1,
    L21,
    DirtyLasso,
    DirtyLInf,
    Frobenius,
    Laplacian,
    Nuclear,
    PerTask,
    fit_cells,
    fit_tasks,
)

pytest.importorskip("jax")

RIDGE, FREE = Frobenius(0.02), Frobenius(0.02, bias_strength=0.0)
SQUARED = [
    ("dual", RIDGE + Laplacian(0.05)),
    ("pcg", FREE),
    ("fista", L21(0.05)),
    ("fista", Nuclear(0.05)),
    ("fista", L1(0.01) + L21(0.03, bias_strength=0.1) + RIDGE),
    ("fista", L21(0.02) + Laplacian(0.05)),
]
OTHER_LOSSES = [("logistic", "fista", L21(0.02)), ("multinomial", "fista", Nuclear(0.02))]
TASKS = [
    DirtyLasso(None, 0.06, relax=0.5),
    DirtyLInf(0.1, 0.06),
    PerTask(L21(0.05)) + RIDGE,
]


def both(dtype=float, tol=1e-9, loss="squared_error", **options):
    """The answers of SciPy and of JAX."""
    rows = X.astype(dtype)
    options |= {"loss": loss, "sample_weight": WEIGHTS, "tol": tol, "max_iter": 5000}
    return [
        fit_cells(rows, CODES, TARGETS[loss], device=device, **options)
        for device in ("cpu", "jax:cpu")
    ]


def check(ours, theirs, precision):
    assert theirs.converged
    assert theirs.solver == ours.solver
    assert np.isclose(ours.objective, theirs.objective, rtol=precision, atol=0)
    assert theirs.coef.dtype == ours.coef.dtype


@pytest.mark.parametrize(("solver", "penalty"), SQUARED, ids=str)
def test_squared_error(solver, penalty):
    ours, theirs = both(solver=solver, penalty=penalty)
    check(ours, theirs, 1e-10)
    # Free biases are not unique: their predictions are.
    assert np.allclose(ours.predict(X, CODES), theirs.predict(X, CODES), atol=1e-6)


@pytest.mark.parametrize(("loss", "solver", "penalty"), OTHER_LOSSES, ids=str)
def test_other_losses(loss, solver, penalty):
    ours, theirs = both(loss=loss, solver=solver, penalty=penalty)
    check(ours, theirs, 1e-10)


def test_single_precision():
    options = {"solver": "fista", "penalty": Nuclear(0.05)}
    ours, theirs = both(np.float32, 1e-4, **options)
    exact = both(**options)[0]
    assert theirs.coef.dtype == np.float32
    check(ours, theirs, 1e-4)
    assert np.isclose(theirs.objective, exact.objective, rtol=1e-4, atol=0)


@pytest.mark.parametrize("penalty", TASKS, ids=str)
def test_tasks(penalty):
    options = {"penalty": penalty, "task_weights": [1.0, 2.0, 0.5], "tol": 1e-9, "max_iter": 5000}
    ours, theirs = (fit_tasks(tasks(), device=device, **options) for device in ("cpu", "jax:cpu"))
    assert theirs.converged
    assert np.isclose(ours.objective, theirs.objective, rtol=1e-10, atol=0)
    for (rows, codes, _), own, other in zip(tasks(), ours.tasks, theirs.tasks, strict=True):
        assert np.allclose(own.predict(rows, codes), other.predict(rows, codes), atol=1e-6)


def test_constant_cells_and_cells_without_rows():
    options = {"penalty": Frobenius(0.01), "cells": "constant", "n_cells": [6, 4, 4, 4]}
    ours, theirs = both(solver="pcg", **options)
    check(ours, theirs, 1e-10)
    assert theirs.coef.shape == (0, 5)
    assert not theirs.intercept[4:6].any()


def test_the_start_does_not_change_the_answer():
    options = {"penalty": DirtyLasso(0.1, 0.06, bias_strength=0.1), "tol": 1e-9, "max_iter": 5000}
    first = fit_tasks(tasks(), device="jax:cpu", **options)
    host = fit_tasks(tasks(), **options)
    assert np.isclose(first.objective, host.objective, rtol=1e-10, atol=0)
    start = first.theta + 1.0
    again = fit_tasks(tasks(), device="jax:cpu", init=start, **options)
    assert again.n_iter > 1
    assert np.allclose(first.theta, again.theta, atol=1e-6)
