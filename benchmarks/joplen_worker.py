"""Run the PyPI package ``joplen`` 1.0.3 as a black-box peer and record its path to the optimum.

``joplen`` lives in its own virtual environment; this worker runs with that environment's Python and
talks to the rest of the benchmark through files only, so that neither package ever imports the
other.  It uses joplen's public names (``JOPLEn``, ``RFPartition``, the penalty classes) and, as a
hook after every pass, its public method ``record_performance``, which
``fit(verbose=True, print_epochs=1)`` calls once per pass with the current weights.

Problem solved: random-forest partitions, one linear model per cell, squared loss, free biases
``b``, and one of three penalties on ``W``, the d x (all cells) matrix of slopes::

    J(W, b) = (1 / 2n) sum_i (f(x_i) - y_i)^2 + R(W)
    f(x)    = sum_p <w_{p,c_p(x)}, x> + b_{p,c_p(x)}
    R(W)    = (lam / 2) ||W||_F^2 (frobenius), lam * sum of the row norms of W (l21)
              or lam * sum of the singular values of W (nuclear)

joplen's updates are proximal gradient steps on this J, but it keeps or refuses a step (and then
halves mu) by a sum of its own: the full mean squared error plus the value of the penalty, which
for l21 and nuclear lacks lam.  As shipped, good steps are then refused until mu is zero, so
``--value matched`` hands it a penalty whose value makes that sum 2 J; nothing else is changed.

``J`` is evaluated here in float64, after the timed run, from the weights copied at the checkpoints;
joplen itself works in float32.

Input ``.npz``: ``X_train``, ``y_train`` (both standardised by the caller), ``X_test`` and
optionally ``y_test``, ``X_val``, ``y_val``.  Output, for ``--output NAME``:

* ``NAME.json``: settings, versions, seconds, memory, and ``trajectory``: one entry per checkpoint
  with ``passes``, ``wall_s``, ``cpu_s``, ``objective`` (and ``val_mse``/``test_mse`` where targets
  exist); ``predict_gap`` is the largest difference on the test rows between joplen's ``predict``
  and f computed here from the saved codes and weights;
* ``NAME.npz``: ``codes_train`` (n, P), ``codes_test``, ``codes_val`` (cell of every row in every
  partition), ``passes`` (K,), ``weights`` (K, d, P, cells), ``biases`` (K, P, cells).

The clocks cover the passes only: not the growing of the forest (``grow_s``), not joplen's
preparation of its dense cell indicator matrix (``prepare_s``), not JAX compilation (a warm-up fit
of the same shapes comes first; its cost is ``compile_s`` and what was still compiled inside the
timed run is ``compile_in_run_s``), and not this file's own hook.  ``rss_peak_mb`` is the peak up to
the end of the first fit of the process (the warm-up, where there is one), forest included, and
``rss_before_fit_mb`` is what the interpreter, the libraries and the data took before.

Example::

    taskset -c 1 env/bin/python joplen_worker.py data.npz --output out/case --n-partitions 100 \
        --n-cells 8 --lam 0.01 --mu 0.1 --seconds 60
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

# One thread everywhere; must be set before numpy and JAX are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

PENALTIES = {"frobenius": "SquaredFNorm", "l21": "Group21Norm", "nuclear": "NuclearNorm"}
PACKAGES = ("joplen", "jax", "jaxlib", "numpy", "scikit-learn")
MAX_PASSES = 1_000_000
PREDICT_REPEATS = 3


@dataclass(frozen=True)
class Settings:
    """What to fit and for how long."""

    n_partitions: int
    n_cells: int
    lam: float
    mu: float
    seconds: float
    random_state: int
    max_passes: int
    warmup_passes: int
    penalty: str = "frobenius"
    value: str = "shipped"


@dataclass(frozen=True)
class Checkpoint:
    """Clocks and raw weights, (d + 1, P * cells) with the biases as last row, after ``passes``."""

    passes: int
    wall_s: float
    cpu_s: float
    weights: NDArray[np.float32]


class TimeUp(Exception):
    """Raised from the hook, with the weights, to leave joplen's ``fit`` at the seconds cap."""


def is_checkpoint(passes: int) -> bool:
    """Whether ``passes`` is a rounded power of 10^(1/24), so that times are at most 10 % late."""
    return passes == round(10 ** (round(24 * math.log10(passes)) / 24))


@dataclass
class PassRecorder:
    """Hooks on a ``JOPLEn`` object that clock its passes and copy its weights at checkpoints."""

    seconds: float
    checkpoints: list[Checkpoint] = field(default_factory=list)
    pass_wall_s: list[float] = field(default_factory=list)
    started: float | None = None
    _wall: float = 0.0
    _cpu: float = 0.0
    _wall_mark: float = 0.0
    _cpu_mark: float = 0.0

    def attach(self, model: Any) -> None:
        """Make ``model`` report its passes here and start the clocks at its first gradient."""
        gradient: Callable[..., Any] = model.compute_obj_grad

        def first_gradient(*args: Any, **kwargs: Any) -> Any:
            self.started = time.perf_counter()
            model.compute_obj_grad = gradient
            self._resume()
            return gradient(*args, **kwargs)

        def report(weights: Any, *args: Any, **kwargs: Any) -> dict[str, dict[str, float | None]]:
            self.on_pass(weights)
            return {"train": {"loss": 0.0}, "val": {"loss": None}}

        model.compute_obj_grad = first_gradient
        model.record_performance = report

    def on_pass(self, weights: Any) -> None:
        """Stop the clocks, keep what is needed, raise ``TimeUp`` at the cap, restart the clocks."""
        weights.block_until_ready()
        wall, cpu = time.perf_counter() - self._wall_mark, time.process_time() - self._cpu_mark
        self._wall += wall
        self._cpu += cpu
        self.pass_wall_s.append(wall)
        passes, time_up = len(self.pass_wall_s), self._wall >= self.seconds
        if time_up or is_checkpoint(passes):
            self._keep(passes, weights)
        if time_up:
            raise TimeUp(weights)
        self._resume()

    def finish(self, weights: Any) -> None:
        """Make sure that the last pass is among the checkpoints."""
        if self.pass_wall_s and self.checkpoints[-1].passes < len(self.pass_wall_s):
            self._keep(len(self.pass_wall_s), weights)

    def _keep(self, passes: int, weights: Any) -> None:
        copy = np.array(weights, dtype=np.float32)
        self.checkpoints.append(Checkpoint(passes, self._wall, self._cpu, copy))

    def _resume(self) -> None:
        self._wall_mark, self._cpu_mark = time.perf_counter(), time.process_time()


class CompileClock:
    """Seconds JAX reports for tracing, lowering and compiling since the last :meth:`take`."""

    def __init__(self) -> None:
        import jax.monitoring

        self._seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self._seconds += duration_secs

    def take(self) -> float:
        """Return the seconds so far and start again from zero."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def memory_mb(key: str) -> float:
    """Read ``VmRSS`` (resident now) or ``VmHWM`` (its peak) of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


def import_joplen() -> None:
    """Load joplen and the libraries it needs, so that no later clock includes it."""
    import_module("JOPLEn.singletask")


def grow_partition(x: FloatArray, y: FloatArray, settings: Settings) -> Any:
    """Grow joplen's random-forest partitions."""
    from JOPLEn.enums import LossType
    from JOPLEn.partitioner import RFPartition

    return RFPartition(
        x=x,
        y=y,
        n_cells=settings.n_cells,
        n_partitions=settings.n_partitions,
        loss_type=LossType.regression,
        random_state=settings.random_state,
    )


def make_penalty(settings: Settings) -> Any:
    """Make joplen's penalty; with ``value="matched"`` its value makes joplen's sum equal 2 J."""
    parent = getattr(import_module("JOPLEn.st_penalty"), PENALTIES[settings.penalty])
    if settings.value == "shipped":
        return parent(lam=settings.lam)
    factor = 2.0 if settings.penalty == "frobenius" else 2.0 * settings.lam

    class MatchedValue(parent):  # type: ignore[misc, valid-type]
        """The same prox or gradient, another value."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return factor * super().__call__(*args, **kwargs)

    return MatchedValue(lam=settings.lam)


def build_model(partition: Any, settings: Settings, max_passes: int) -> Any:
    """Make an unfitted ``JOPLEn`` on a grown partition: no early stopping, no rescaling.

    A negative ``stop_thresh`` is never undercut by a change of the objective: only the clock ends
    a fit.
    """
    from JOPLEn.enums import CellModel
    from JOPLEn.singletask import JOPLEn
    from JOPLEn.st_loss import SquaredError

    return JOPLEn(
        partition,
        n_cells=settings.n_cells,
        n_partitions=settings.n_partitions,
        random_state=settings.random_state,
        loss_fn=SquaredError,
        cell_model=CellModel.linear,
        regularizers=[make_penalty(settings)],
        mu=settings.mu,
        max_iters=max_passes,
        stop_thresh=-1.0,
        early_stop=False,
        rescale=False,
    )


def run_passes(
    partition: Any, x: FloatArray, y: FloatArray, settings: Settings, max_passes: int
) -> tuple[Any, PassRecorder, float]:
    """Fit for ``max_passes`` or until the cap; return model, recorder and preparation seconds."""
    model = build_model(partition, settings, max_passes)
    recorder = PassRecorder(settings.seconds)
    recorder.attach(model)
    begin = time.perf_counter()
    try:
        model.fit(x, y, print_epochs=1, verbose=True)
        recorder.finish(model.w)
    except TimeUp as stop:
        # ``fit`` stores its weights when it ends; it was left early, so store them for ``predict``.
        model.w = stop.args[0]
    prepare = (recorder.started or begin) - begin
    return model, recorder, prepare


def split_weights(raw: FloatArray, n_partitions: int) -> tuple[FloatArray, FloatArray]:
    """Split a (d + 1, P * cells) matrix into weights (d, P, cells) and biases (P, cells)."""
    cube = raw.astype(np.float64).reshape(raw.shape[0], n_partitions, -1)
    return cube[:-1], cube[-1]


def ensemble_output(
    x: FloatArray, codes: IntArray, weights: FloatArray, biases: FloatArray
) -> FloatArray:
    """Compute f (top of this file) for rows ``x`` with cells ``codes``."""
    rows = np.arange(len(x))
    output = np.zeros(len(x))
    for part in range(codes.shape[1]):
        cells = x @ weights[:, part] + biases[part]
        output += cells[rows, codes[:, part]]
    return output


def penalty_value(weights: FloatArray, penalty: str, lam: float) -> float:
    """Compute R(W) (top of this file) of weights (d, P, cells)."""
    matrix = weights.reshape(len(weights), -1)
    if not np.isfinite(matrix).all():
        return math.nan  # diverged; the singular values would raise
    if penalty == "l21":
        return lam * float(np.linalg.norm(matrix, axis=1).sum())
    if penalty == "nuclear":
        return lam * float(np.linalg.svd(matrix, compute_uv=False).sum())
    return lam / 2 * float(np.sum(matrix**2))


def objective(
    x: FloatArray,
    y: FloatArray,
    codes: IntArray,
    weights: FloatArray,
    biases: FloatArray,
    settings: Settings,
) -> float:
    """Compute J(W, b) (top of this file)."""
    residual = ensemble_output(x, codes, weights, biases) - y
    loss = float(residual @ residual / (2 * len(y)))
    return loss + penalty_value(weights, settings.penalty, settings.lam)


def finite_or_none(value: float) -> float | None:
    """Return ``value``, or None where JSON has no number for it (the fit diverged)."""
    return value if math.isfinite(value) else None


def trajectory(
    data: dict[str, FloatArray],
    codes: dict[str, IntArray],
    checkpoints: Sequence[Checkpoint],
    settings: Settings,
) -> list[dict[str, float | None]]:
    """List passes, clocks, objective and mean squared errors of every checkpoint."""
    entries: list[dict[str, float | None]] = []
    for point in checkpoints:
        weights, biases = split_weights(point.weights, settings.n_partitions)
        value = objective(
            data["X_train"], data["y_train"], codes["train"], weights, biases, settings
        )
        entry = {
            "passes": point.passes,
            "wall_s": point.wall_s,
            "cpu_s": point.cpu_s,
            "objective": finite_or_none(value),
        }
        for name in ("val", "test"):
            if f"X_{name}" in data and f"y_{name}" in data:
                error = (
                    ensemble_output(data[f"X_{name}"], codes[name], weights, biases)
                    - data[f"y_{name}"]
                )
                entry[f"{name}_mse"] = finite_or_none(float(np.mean(error**2)))
        entries.append(entry)
    return entries


def time_predict(model: Any, x: FloatArray) -> tuple[FloatArray, dict[str, float]]:
    """Predict ``x``; also the seconds of the first call (it compiles) and the best later one."""
    seconds: list[float] = []
    for _ in range(1 + PREDICT_REPEATS):
        begin = time.perf_counter()
        output = np.asarray(model.predict(x), dtype=np.float64).ravel()
        seconds.append(time.perf_counter() - begin)
    return output, {"predict_first_s": seconds[0], "predict_s": min(seconds[1:])}


def load_data(path: Path) -> dict[str, FloatArray]:
    """Read the arrays of the input file, targets as vectors, everything float64."""
    with np.load(path) as stored:
        data = {name: np.ascontiguousarray(stored[name], dtype=np.float64) for name in stored.files}
    return {name: array.ravel() if name.startswith("y_") else array for name, array in data.items()}


def save_arrays(
    path: Path, codes: dict[str, IntArray], checkpoints: Sequence[Checkpoint], settings: Settings
) -> None:
    """Write codes, checkpoint weights and biases."""
    pairs = [split_weights(point.weights, settings.n_partitions) for point in checkpoints]
    arrays: dict[str, NDArray[Any]] = {
        f"codes_{name}": array.astype(np.int32) for name, array in codes.items()
    }
    arrays["passes"] = np.array([point.passes for point in checkpoints])
    arrays["weights"] = np.array([weights for weights, _ in pairs], dtype=np.float32)
    arrays["biases"] = np.array([biases for _, biases in pairs], dtype=np.float32)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def run(data: dict[str, FloatArray], settings: Settings, arrays_path: Path) -> dict[str, Any]:
    """Grow, warm up, fit and check; return the record for JSON, write the arrays."""
    x, y = data["X_train"], data["y_train"]
    import_joplen()
    compile_clock = CompileClock()
    rss_before = memory_mb("VmRSS")
    begin = time.perf_counter()
    partition = grow_partition(x, y, settings)
    grow_s = time.perf_counter() - begin

    rss_peak = None
    if settings.warmup_passes:
        run_passes(partition, x, y, settings, settings.warmup_passes)
        # Read here: a second fit in one process peaks one indicator matrix above the first.
        rss_peak = memory_mb("VmHWM")
        gc.collect()
    compile_s = compile_clock.take()
    model, recorder, prepare_s = run_passes(partition, x, y, settings, settings.max_passes)
    compile_in_run_s = compile_clock.take()
    rss_peak = memory_mb("VmHWM") if rss_peak is None else rss_peak

    predicted, predict_seconds = time_predict(model, data["X_test"])
    names = [name for name in ("train", "val", "test") if f"X_{name}" in data]
    codes = {name: np.asarray(partition.partition(data[f"X_{name}"])) for name in names}
    save_arrays(arrays_path, codes, recorder.checkpoints, settings)
    last = split_weights(recorder.checkpoints[-1].weights, settings.n_partitions)
    gap = np.max(np.abs(ensemble_output(data["X_test"], codes["test"], *last) - predicted))
    return {
        "settings": vars(settings),
        "versions": {name: version(name) for name in PACKAGES},
        "n": len(y),
        "d": x.shape[1],
        "grow_s": grow_s,
        "prepare_s": prepare_s,
        "compile_s": compile_s,
        "compile_in_run_s": compile_in_run_s,
        "passes": len(recorder.pass_wall_s),
        "per_pass_s": statistics.median(recorder.pass_wall_s),
        **predict_seconds,
        "n_test": len(predicted),
        "rss_before_fit_mb": rss_before,
        "rss_peak_mb": rss_peak,
        "predict_gap": finite_or_none(float(gap)),
        "trajectory": trajectory(data, codes, recorder.checkpoints, settings),
    }


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit joplen 1.0.3 and record its trajectory.")
    parser.add_argument("data", type=Path, help=".npz with X_train, y_train, X_test (standardised)")
    parser.add_argument(
        "--output", type=Path, required=True, help="stem of the .json and .npz to write"
    )
    parser.add_argument("--n-partitions", type=int, required=True)
    parser.add_argument("--n-cells", type=int, required=True)
    parser.add_argument("--penalty", choices=PENALTIES, default="frobenius")
    parser.add_argument("--lam", type=float, required=True, help="strength of the penalty")
    parser.add_argument(
        "--value",
        choices=("shipped", "matched"),
        default="shipped",
        help="value of the penalty in joplen's test of a step (top of this file)",
    )
    parser.add_argument("--mu", type=float, required=True, help="step size")
    parser.add_argument("--seconds", type=float, default=600.0, help="cap on the timed passes")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--max-passes", type=int, default=MAX_PASSES)
    parser.add_argument(
        "--warmup-passes", type=int, default=5, help="passes of the untimed fit that compiles"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one case and write its two files."""
    options = vars(parse_arguments(arguments))
    data, output = load_data(options.pop("data")), options.pop("output")
    output.parent.mkdir(parents=True, exist_ok=True)
    record = run(data, Settings(**options), output.with_name(output.name + ".npz"))
    output.with_name(output.name + ".json").write_text(
        json.dumps(record, indent=1, allow_nan=False) + "\n"
    )


if __name__ == "__main__":
    main()
