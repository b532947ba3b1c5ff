"""Generated data and small tools that several test files share."""

import environment  # noqa: F401, I001, must come before the libraries that it is for

import gc
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

from blend_fits import small_fits
from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import make_loss
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem

HERE = Path(__file__).parent
#: Files that take many seconds of one core: all their tests are marked slow.
SLOW_FILES = {
    *("cli/test_cli_commands.py", "cli/test_cli_docs.py", "cli/test_cli_recipes.py"),
    "cli/test_cli_report.py",
    "core/test_blocks.py",
    *("core/test_extending.py", "core/test_jax_cross.py", "core/test_jax_device.py"),
    *("core/test_jax_loss.py", "core/test_jax_penalties.py", "core/test_jax_solvers.py"),
    *("core/test_relaxing.py", "core/test_tasks.py", "core/oracle/test_mixed_cells.py"),
    *("core/oracle/test_against_cvxpy.py", "core/oracle/test_penalties_against_cvxpy.py"),
    *("core/oracle/test_losses_against_cvxpy.py", "core/oracle/test_monotone_against_cvxpy.py"),
    *("core/oracle/test_tasks_against_cvxpy.py", "core/property/test_dirty_lasso.py"),
    *("dask/test_dask_bad_input.py", "dask/test_dask_faults.py", "dask/test_dask_fits.py"),
    *("estimators/test_estimator_checks.py", "estimators/test_parameters_act.py"),
    *("estimators/test_portable.py", "estimators/test_refine.py"),
    "estimators/test_refine_models.py",
    *("fit/test_blend_components.py", "fit/test_blend_recipe.py"),
    *("fit/test_interpolation.py", "fit/test_memory.py"),
    *("fit/test_pruning.py", "fit/test_reserve.py", "fit/test_search.py", "fit/test_strengths.py"),
    *("inspection/test_explain_models.py", "inspection/test_explain_recipe.py"),
    *("io/test_model_file.py", "io/test_model_file_fuzz.py", "io/test_onnx.py"),
    "model/test_grouped_sums.py",
    *("multitask/test_bouts.py", "multitask/test_multitask_checks.py"),
    *("multitask/test_multitask_estimators.py", "multitask/test_multitask_tuning.py"),
    *("plot/test_displays.py", "plot/test_displays_tasks.py", "plot/test_displays_task_path.py"),
    "plot/test_explain_displays.py",
    *("project/test_docs.py", "project/test_experiments.py"),
    "project/test_experiments_all.py",
    *("project/test_experiments_multitask.py", "project/test_experiments_pmlb.py"),
    *("trees/test_catboost.py", "trees/test_histogram.py", "trees/test_xgboost.py"),
}


def is_slow(path):
    return path.is_relative_to(HERE) and path.relative_to(HERE).as_posix() in SLOW_FILES


def pytest_ignore_collect(collection_path, config):
    """Do not even import slow files, with JAX and cvxpy, for ``-m "not slow"``."""
    return True if config.option.markexpr == "not slow" and is_slow(collection_path) else None


def pytest_collection_modifyitems(items):
    """Mark the tests of slow files."""
    for item in items:
        if is_slow(item.path):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Leave what was loaded out of all later garbage collections, and collect less often."""
    gc.freeze()  # there are millions of objects
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give every worker whole files as far as possible: their fixtures are then made once."""
    if config.option.dist != "load":  # the user's own choice
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


#: Folders with tests of what is done with models: it does not depend on how many trees they have.
SMALL_FITS = {"cli", "data", "estimators", "inspection", "io", "multitask", "plot", "project"}


@pytest.fixture(scope="module", autouse=True)
def _small_fits(request):
    with small_fits() if request.path.parent.name in SMALL_FITS else nullcontext():
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_disks():
    """Files are read back by the same machine: nothing need be on the disk itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@dataclass(frozen=True)
class Case:
    """Rows, codes, targets and sample weights of one generated problem."""

    X: np.ndarray
    codes: np.ndarray
    y: np.ndarray
    s: np.ndarray

    @property
    def data(self):
        return self.X, self.codes, self.y


def _make_case(loss="squared_error", *, n=60, d=3, cells=(4, 3, 5), seed=0, missing=0.0):
    """Random rows and codes; targets depend on both, and suit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    codes = np.column_stack([rng.integers(0, k, n) for k in cells])
    signal = X @ np.linspace(1, -1, d) + 0.5 * codes[:, 0] + 0.8 * rng.standard_normal(n)
    if loss == "logistic":
        y = np.where(signal > 0.5, 1.0, -1.0)
    elif loss == "multinomial":
        y = np.digitize(signal, [0.0, 1.0])
    else:
        y = signal
    codes[rng.random(codes.shape) < missing] = -1
    return Case(X, codes, y, rng.uniform(0.3, 2.0, n))


@pytest.fixture(scope="session")
def make_case():
    return _make_case


@pytest.fixture(scope="session")
def make_problem():
    """Make the weighted `Problem` of a case."""

    def make(case, loss="squared_error", penalty=None, *, cells="linear", offset=0.0):
        design = LeafDesign(case.X, case.codes, cells=cells)
        penalty = penalty or Frobenius(0.05, 0.02)
        return Problem(design, case.y, make_loss(loss), penalty, case.s, offset)

    return make


@pytest.fixture(scope="session")
def numeric_gradient():
    """Central differences of a scalar function, in the shape of its argument."""

    def differentiate(function, x, step=1e-5):
        x = np.asarray(x, float)
        gradient = np.empty_like(x)
        for i in np.ndindex(x.shape):
            up, down = x.copy(), x.copy()
            up[i] += step
            down[i] -= step
            gradient[i] = (function(up) - function(down)) / (2 * step)
        return gradient

    return differentiate


@pytest.fixture(scope="session")
def diabetes():
    """Training rows, their targets, and other rows."""
    X, y = load_diabetes(return_X_y=True)
    return X[:300], y[:300], X[300:]


@pytest.fixture(scope="session")
def iris():
    return load_iris(return_X_y=True)
