"""Choice of a device, its errors, and what the compiled code promises."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from jax_data import CODES, SIGNAL, TARGETS, X
from jointleaf import (
    L21,
    DirtyLasso,
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    LeafDesign,
    MultiTaskJOPLEnRegressor,
    fit_cells,
    fit_tasks,
    strength_path,
)
from jointleaf._core.fitting import make_problem
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import SquaredError
from jointleaf._core.penalties import Penalty
from jointleaf._core.solvers.base import choose_solver

jax = pytest.importorskip("jax")

from jointleaf._core import arrays as devices  # noqa: E402
from jointleaf._core.jax import fista  # noqa: E402
from jointleaf._core.jax.problem import DeviceDesign, device_design  # noqa: E402
from jointleaf._core.jax.solver import OnDevice  # noqa: E402


@pytest.fixture
def compiled():
    """Names of functions that are compiled during a test."""
    names = []

    def listen(event, seconds, **more):
        if event.endswith("backend_compile_duration"):
            names.append(more.get("fun_name", event))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


def problem_of(penalty, y=SIGNAL, rows=X):
    return make_problem(
        rows, CODES, y, loss="squared_error", penalty=penalty, cells="linear",
        sample_weight=None, n_cells=None, n_jobs=1,
    )  # fmt: skip


# -- the design ----------------------------------------------------------------------------------


MIXED = ("linear", "constant") * 2


@pytest.mark.parametrize(
    ("kinds", "dtype"),  # single precision with both kinds of cells at once
    [("linear", np.float64), ("constant", np.float64), (MIXED, np.float64), (MIXED, np.float32)],
    ids=str,
)
@pytest.mark.parametrize("outputs", [(), (3,)])
def test_design_on_a_device(dtype, outputs, kinds):
    rng = np.random.default_rng(0)
    codes = np.where(rng.random(CODES.shape) < 0.1, -1, CODES)
    ours = LeafDesign(X.astype(dtype), codes, cells=kinds)
    theta = rng.standard_normal((ours.layout.n_weights, *outputs)).astype(dtype)
    biases = ours.layout.split(theta)[1]
    r = rng.standard_normal((len(X), *outputs)).astype(dtype)
    h = rng.random(len(X)).astype(dtype)
    near = {"rtol": 0, "atol": 1e3 * np.finfo(dtype).eps}
    with devices.double_precision():
        theirs = device_design(ours, devices.find_device("jax:cpu"))
        for name, argument in (
            ("matvec", theta), ("rmatvec", r), ("bias_matvec", biases), ("bias_rmatvec", r),
        ):  # fmt: skip
            got = getattr(theirs, name)(jax.numpy.asarray(argument))
            assert got.dtype == dtype
            assert np.allclose(got, getattr(ours, name)(argument), **near)
        if not outputs and kinds != "constant":
            for name in ("cell_grams", "cell_mass", "cell_diagonals"):
                assert np.allclose(getattr(theirs, name)(h), getattr(ours, name)(h), **near)


def test_no_large_array_is_made():
    """Temporaries of both passes are a few times (n, q), far from n x C and n x P x q."""
    n, q, P, C = 20_000, 11, 50, 50 * 64
    shape = jax.ShapeDtypeStruct
    cells, layout = shape((P, n), np.int32), CellLayout((64,) * P, q - 1)
    made = DeviceDesign(shape((n, q - 1), np.float32), cells, cells, layout)
    largest = 0
    for name, argument in (("matvec", (C * q,)), ("rmatvec", (n,))):
        function = jax.jit(lambda design, v, name=name: getattr(design, name)(v))
        done = function.lower(made, shape(argument, np.float32)).compile()
        largest = max(largest, done.memory_analysis().temp_size_in_bytes)
    assert largest <= 4 * (n * q + C * q) * 4
    assert largest < n * P * q * 4 / 10


# -- no recompilation, no transfers --------------------------------------------------------------


def test_strengths_and_data_of_the_same_shape_compile_nothing_anew(compiled):
    solver = OnDevice("fista", "jax:cpu")
    problem = problem_of(L21(0.05))
    solver.solve(problem, tol=1e-4)
    compiled.clear()
    for strength in (0.04, 0.03):
        solver.solve(problem.with_penalty(L21(strength)), tol=1e-5)
    assert solver.solve(problem_of(L21(0.02), y=SIGNAL[::-1], rows=X[::-1])).converged
    assert compiled == []
    solver = OnDevice("pcg", "jax:cpu")
    solver.solve(problem_of(Frobenius(0.1)))
    compiled.clear()
    solver.solve(problem_of(Frobenius(0.2, bias_strength=0.0), y=-SIGNAL))
    assert compiled == []
    solver.solve(problem_of(Frobenius(0.1), rows=X[:, :3]))  # another shape: the count can count
    assert compiled


def test_a_path_compiles_once(compiled):
    options = {"penalty": L21(1.0), "n_strengths": 6, "tol": 1e-4}
    ours = strength_path(X, CODES, SIGNAL, **options)
    theirs = strength_path(X, CODES, SIGNAL, device="jax:cpu", **options)
    assert np.allclose(ours.objective, theirs.objective, rtol=1e-5)
    assert np.array_equal(ours.n_selected[:4], theirs.n_selected[:4])
    assert sum("minimise" in name for name in compiled) <= 1


def test_nothing_passes_between_host_and_device_inside_the_loop(monkeypatch):
    problem = problem_of(L21(0.05))
    seen = []

    def guarded(*arguments):
        assert jax.config.jax_transfer_guard_host_to_device == "disallow"
        assert jax.config.jax_transfer_guard_device_to_host == "disallow"
        text = fista.minimise.lower(*arguments).compile().as_text()
        seen.append(text)
        return original(*arguments)

    original = fista.minimise
    monkeypatch.setattr("jointleaf._core.jax.solver.fista.minimise", _Wrapped(guarded, original))
    OnDevice("fista", "jax:cpu").solve(problem)
    assert len(seen) == 1
    assert "while" in seen[0]
    for word in ("outfeed", "infeed", "callback", "send(", "recv("):
        assert word not in seen[0]


class _Wrapped:
    """A compiled function with something before its call."""

    def __init__(self, call, original):
        self._call, self.lower = call, original.lower

    def __call__(self, *arguments):
        return self._call(*arguments)


def test_precision_elsewhere_stays_as_it_is():
    assert jax.numpy.ones(1).dtype == np.float32
    OnDevice("pcg", "jax:cpu").solve(problem_of(Frobenius(0.1)))
    assert jax.numpy.ones(1).dtype == np.float32


# -- the choice ----------------------------------------------------------------------------------


def test_auto_needs_an_accelerator_and_enough_work(monkeypatch):
    monkeypatch.setattr(devices, "LEAST_WORK", 1000)
    assert devices.place("auto", 1e9) == "cpu"  # no accelerator here
    asked = []
    monkeypatch.setattr(devices, "find_device", lambda name: asked.append(name))
    assert devices.place("auto", 1001) == "gpu"
    assert devices.place("auto", 999) == "cpu"
    assert devices.place("cpu", 1e9) == "cpu"
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert devices.place("auto", 1001) == "cpu"
    assert asked == ["gpu"]


def test_the_solver_is_placed_by_the_rule(monkeypatch):
    assert type(choose_solver(problem_of(L21(0.1)))).__name__ == "FISTA"
    assert type(choose_solver(problem_of(L21(0.1)), device="auto")).__name__ == "FISTA"
    placed = choose_solver(problem_of(L21(0.1)), device="jax:cpu")
    assert (placed.name, placed.device) == ("fista", "jax:cpu")
    monkeypatch.setattr("jointleaf._core.solvers.base.place", lambda device, work: "jax:cpu")
    assert isinstance(choose_solver(problem_of(L21(0.1)), device="auto"), OnDevice)
    # What cannot run there stays on the CPU under "auto".
    assert type(choose_solver(problem_of(Mine()), device="auto")).__name__ == "FISTA"


class Mine(Penalty):
    """A penalty in NumPy."""

    def value(self, theta):
        return 0.0

    def prox(self, theta, step):
        return np.abs(theta)


class MyLoss(SquaredError):
    """A loss in NumPy."""

    def row_gradient(self, y, f):
        return np.subtract(f, y)


def test_errors_name_what_is_missing():
    with pytest.raises(ValueError, match=r"Mine.*written in NumPy alone"):
        fit_cells(X, CODES, SIGNAL, penalty=Mine(), device="jax:cpu")
    with pytest.raises(ValueError, match=r"MyLoss is written in NumPy alone.*JaxLoss"):
        fit_cells(X, CODES, SIGNAL, loss=MyLoss(), device="jax:cpu")
    with pytest.raises(ValueError, match="solver='dual' does not fit"):
        fit_cells(X, CODES, SIGNAL, penalty=L21(0.1), solver="dual", device="jax:cpu")
    for call in (
        lambda device: fit_cells(X, CODES, SIGNAL, device=device),
        lambda device: fit_tasks([(X, CODES, SIGNAL)], penalty=L21(0.1), device=device),
        lambda device: strength_path(X, CODES, SIGNAL, penalty=L21(0.1), device=device),
        lambda device: JOPLEnRegressor(device=device).fit(X, SIGNAL),
        lambda device: MultiTaskJOPLEnRegressor(device=device).fit(X, SIGNAL),
    ):
        with pytest.raises(ValueError, match="device='cuda' is not known: use one of cpu, gpu"):
            call("cuda")
        if jax.default_backend() == "cpu":
            with pytest.raises(RuntimeError, match=r"finds no GPU, only cpu: pip install 'joint"):
                call("gpu")


WITHOUT_JAX = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "jax":
            raise ImportError("no jax here")
sys.meta_path.insert(0, Blocker())
import numpy as np
from jointleaf import JOPLEnRegressor, Frobenius, fit_cells
X = np.random.default_rng(0).normal(size=(60, 3))
codes = (X > 0).astype(int)
fit_cells(X, codes, X[:, 0])
for name in ("gpu", "jax:cpu"):
    try:
        fit_cells(X, codes, X[:, 0], device=name)
    except ImportError as error:
        print(error)
assert not any(name.split(".")[0] == "jax" for name in sys.modules)
"""


def test_without_jax():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["device='gpu' needs JAX", "device='jax"]
    assert all("pip install 'jointleaf[jax]'" in line for line in lines)


# -- estimators and predictions ------------------------------------------------------------------


def test_estimators_on_a_device():
    options = {"penalty": Frobenius(0.02), "random_state": 0}
    y = TARGETS["multinomial"]
    ours = JOPLEnClassifier("voronoi", **options).fit(X, y)
    theirs = JOPLEnClassifier("voronoi", device="jax:cpu", **options).fit(X, y)
    assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    assert theirs.get_params()["device"] == "jax:cpu"
    moved = theirs.set_params(device="cpu")  # a fitted model predicts anywhere
    assert np.allclose(ours.predict_proba(X), moved.predict_proba(X), atol=1e-6)


def test_tasks_on_a_device():
    options = {"penalty": DirtyLasso(0.1, 0.06, bias_strength=0.1), "random_state": 0}
    Y = np.column_stack([SIGNAL, X[:, 3]])
    ours = MultiTaskJOPLEnRegressor("voronoi", tol=1e-7, **options).fit(X, Y)
    theirs = MultiTaskJOPLEnRegressor("voronoi", tol=1e-7, device="jax:cpu", **options).fit(X, Y)
    assert np.allclose(ours.predict(X), theirs.predict(X), atol=1e-5)
    assert np.array_equal(ours.selected_features_, theirs.selected_features_)


def test_predictions_on_a_device():
    solution = fit_cells(X, CODES, SIGNAL)
    codes = CODES.copy()
    codes[::7, 1] = -1
    for rows in (slice(0), slice(3), slice(None)):
        got = solution.predict(X[rows], codes[rows], device="jax:cpu")
        assert np.allclose(got, solution.predict(X[rows], codes[rows]), atol=1e-12)
    with pytest.raises(ValueError, match="codes holds 9 in partition 0"):
        solution.predict(X[:1], [[9, 0, 0, 0]], device="jax:cpu")


def test_a_solve_that_ends_early_says_so():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        fit_cells(X, CODES, SIGNAL, penalty=L21(0.05), device="jax:cpu")
    with pytest.warns(ConvergenceWarning, match="fista stopped after 3 iterations"):
        early = fit_cells(X, CODES, SIGNAL, penalty=L21(0.05), device="jax:cpu", max_iter=3)
    assert early.status == "max_iter"
    assert early.n_iter == 3
