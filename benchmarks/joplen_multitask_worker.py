"""Run ``MTJOPLEn`` of the PyPI package ``joplen`` 1.0.3 as a black box and record its path.

The multitask sister of `joplen_worker.py`, with the same rules: joplen's own environment, files
in between, public names only, and as a hook after every pass the public method
``record_performance``, which ``fit(verbose=True, print_epochs=1)`` calls with the current weights.

Problem: Dirty LASSO on Voronoi cells (`dirty_lasso_objective.py`). joplen's pass is a proximal
gradient step on it: gradient of half the mean squared error, thresholds ``mu * lam``, the same
step for all tasks (``rel_lr`` of ones); the ``alpha`` penalties, which it has besides, are zero.

Input ``.npz``: ``X_train`` (n, d), ``Y_train`` (n, tasks), standardised by the caller, so that
joplen's own standardisation changes nothing (checked). Output, for ``--output NAME``:

* ``NAME.json``: settings, versions, seconds, memory, ``trajectory`` (``passes``, ``wall_s``,
  ``cpu_s``, ``objective`` of every checkpoint), ``selected`` features of the last one, and
  ``predict_gap``, the largest difference between joplen's ``predict`` and f computed here;
* ``NAME.npz``: ``codes_train`` (tasks, n, P), columns of the weights; ``core``, ``task`` (tasks, d,
  cells) and ``biases`` (tasks, cells) of the last checkpoint.

The clocks cover the passes only: not the cells, not JAX compilation (a warm-up fit of the same
shapes comes first), not this file's own hook, and, as there is no hook before it, not the first
pass. ``rss_peak_mb`` is the peak up to the end of the warm-up fit, and ``rss_before_fit_mb`` what
the interpreter, the libraries and the data took before.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

# The sister sets one thread everywhere, before NumPy and JAX are imported.
from joplen_worker import (  # isort: skip
    MAX_PASSES,
    PACKAGES,
    CompileClock,
    TimeUp,
    finite_or_none,
    is_checkpoint,
    memory_mb,
)

import numpy as np
from numpy.typing import NDArray

from dirty_lasso_objective import Problem, objective, outputs, selected

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """What to fit and for how long."""

    n_partitions: int
    n_cells: int
    common: float
    task: float
    mu: float
    seconds: float
    random_state: int
    max_passes: int
    warmup_passes: int


@dataclass(frozen=True)
class Checkpoint:
    """Clocks and raw weights (tasks, d + 1, cells), biases as last row, after ``passes``."""

    passes: int
    wall_s: float
    cpu_s: float
    core: Weights
    task: Weights


@dataclass
class PassRecorder:
    """The hook on an ``MTJOPLEn`` object: clocks its passes, copies weights at checkpoints."""

    seconds: float
    checkpoints: list[Checkpoint] = field(default_factory=list)
    pass_wall_s: list[float] = field(default_factory=list)
    first: dict[str, Any] | None = None
    _wall: float = 0.0
    _cpu: float = 0.0
    _marks: tuple[float, float] | None = None

    def attach(self, model: Any) -> None:
        """Make ``model`` report its passes here."""
        signature = inspect.signature(model.record_performance)

        def report(*args: Any, **kwargs: Any) -> dict[str, Any]:
            self.on_pass(signature.bind(*args, **kwargs).arguments)
            return {}

        model.record_performance = report

    def on_pass(self, given: dict[str, Any]) -> None:
        """Stop the clocks, keep what is needed, raise ``TimeUp`` at the cap, restart the clocks."""
        for part in (*given["lst_wb_next"], *given["lst_ws_next"]):
            part.block_until_ready()
        if self._marks is not None:
            wall = time.perf_counter() - self._marks[0]
            self._wall += wall
            self._cpu += time.process_time() - self._marks[1]
            self.pass_wall_s.append(wall)
        else:
            self.first = {name: given[name] for name in ("lst_x_aug", "lst_y", "lst_s")}
        passes, time_up = len(self.pass_wall_s) + 1, self._wall >= self.seconds
        if time_up or is_checkpoint(passes):
            core, task = (stack(given[name]) for name in ("lst_wb_next", "lst_ws_next"))
            self.checkpoints.append(Checkpoint(passes, self._wall, self._cpu, core, task))
        if time_up:
            raise TimeUp
        self._marks = time.perf_counter(), time.process_time()


def stack(parts: Any) -> Weights:
    """Copy the weights of all tasks into one array."""
    return np.stack([np.array(part, dtype=np.float32) for part in parts])


def run_passes(
    X: NDArray, Y: NDArray, settings: Settings, max_passes: int
) -> tuple[Any, PassRecorder]:
    """Fit for ``max_passes`` or until the cap; return model and recorder."""
    module, enums = import_module("JOPLEn.multitask"), import_module("JOPLEn.enums")
    model = module.MTJOPLEn(
        import_module("JOPLEn.partitioner").VPartition,
        n_cells=settings.n_cells,
        n_partitions=settings.n_partitions,
        random_state=settings.random_state,
    )
    recorder = PassRecorder(settings.seconds)
    recorder.attach(model)
    n_tasks = Y.shape[1]
    with contextlib.suppress(TimeUp):
        model.fit(
            [X] * n_tasks,
            [np.ascontiguousarray(Y[:, t]) for t in range(n_tasks)],
            core_lam=settings.common,
            task_lam=settings.task,
            core_alpha=0.0,
            task_alpha=0.0,
            mu=settings.mu,
            max_iters=max_passes,
            print_epochs=1,
            verbose=True,
            norm_type=enums.NormType.L21,
            rel_lr=[1.0] * n_tasks,
        )
    return model, recorder


def read_codes(
    recorder: PassRecorder, X: NDArray, Y: NDArray, settings: Settings
) -> NDArray[np.int32]:
    """Cells of the training rows (tasks, n, P), as columns of the weights; checks the data too."""
    assert recorder.first is not None
    shape = (len(X), settings.n_partitions, settings.n_cells)
    codes = []
    for t, dense in enumerate(recorder.first["lst_s"]):
        inside = np.array(dense).reshape(shape)
        if not (inside.sum(axis=2) == 1).all():
            raise RuntimeError("a row is not in exactly one cell of every partition")
        codes.append(inside.argmax(axis=2) + settings.n_cells * np.arange(shape[1]))
        used = np.array(recorder.first["lst_x_aug"][t])[:, : X.shape[1]]
        target = np.array(recorder.first["lst_y"][t]).ravel()
        gap = max(np.abs(used - X).max(), np.abs(target - Y[:, t]).max())
        if gap > 1e-4:
            raise RuntimeError(f"joplen changed the standardised data of task {t} by {gap:.2g}")
    return np.array(codes, dtype=np.int32)


def split(point: Checkpoint) -> tuple[NDArray, NDArray, NDArray]:
    """Common slopes, task slopes (tasks, d, cells) and biases (tasks, cells) in float64."""
    core, task = point.core.astype(np.float64), point.task.astype(np.float64)
    return core[:, :-1], task[:, :-1], core[:, -1] + task[:, -1]


def predict_gap(model: Any, problem: Problem, point: Checkpoint) -> float:
    """Largest difference on the training rows between ``predict`` and the formula used here."""
    C, T, biases = split(point)
    return max(
        float(
            np.abs(
                np.asarray(model.predict(problem.X, t)).ravel()
                - outputs(problem.X, codes, C[t] + T[t], biases[t])
            ).max()
        )
        for t, codes in enumerate(problem.codes)
    )


def trajectory(problem: Problem, points: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    """Passes, clocks and objective of every checkpoint; no objective where the fit diverged."""
    with np.errstate(all="ignore"):
        return [
            {
                "passes": point.passes,
                "wall_s": point.wall_s,
                "cpu_s": point.cpu_s,
                "objective": finite_or_none(objective(problem, *split(point))),
            }
            for point in points
        ]


def run(X: NDArray, Y: NDArray, settings: Settings, arrays_path: Path) -> dict[str, Any]:
    """Warm up, fit and check; return the record for JSON, write the arrays."""
    import_module("JOPLEn.multitask")
    clock = CompileClock()
    rss_before = memory_mb("VmRSS")
    warm_model, warm = run_passes(X, Y, settings, settings.warmup_passes)
    rss_peak = memory_mb("VmHWM")
    codes = read_codes(warm, X, Y, settings)
    problem = Problem(X, Y, codes, settings.common, settings.task)
    gap = predict_gap(warm_model, problem, warm.checkpoints[-1])
    del warm_model, warm
    gc.collect()
    compile_s = clock.take()
    _, recorder = run_passes(X, Y, settings, settings.max_passes)
    if not np.array_equal(codes, read_codes(recorder, X, Y, settings)):
        raise RuntimeError("the second fit has other cells than the first")
    last = recorder.checkpoints[-1]
    C, T, biases = split(last)
    common, of_tasks = selected(C, T)
    np.savez_compressed(
        arrays_path, allow_pickle=False, codes_train=codes, core=C, task=T, biases=biases
    )
    return {
        "settings": vars(settings),
        "versions": {name: version(name) for name in PACKAGES},
        "n": len(X),
        "compile_s": compile_s,
        "compile_in_run_s": clock.take(),
        "passes": last.passes,
        "per_pass_s": statistics.median(recorder.pass_wall_s),
        "rss_before_fit_mb": rss_before,
        "rss_peak_mb": rss_peak,
        "predict_gap": finite_or_none(gap),
        "selected": {"common": common, "tasks": of_tasks},
        "trajectory": trajectory(problem, recorder.checkpoints),
    }


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit MTJOPLEn 1.0.3 and record its trajectory.")
    parser.add_argument("data", type=Path, help=".npz with X_train, Y_train (standardised)")
    parser.add_argument("--output", type=Path, required=True, help="stem of .json and .npz")
    parser.add_argument("--n-partitions", type=int, required=True)
    parser.add_argument("--n-cells", type=int, required=True)
    parser.add_argument("--common", type=float, required=True, help="strength on common slopes")
    parser.add_argument("--task", type=float, required=True, help="strength on task slopes")
    parser.add_argument("--mu", type=float, required=True, help="step size")
    parser.add_argument("--seconds", type=float, default=600.0, help="cap on the timed passes")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--max-passes", type=int, default=MAX_PASSES)
    parser.add_argument("--warmup-passes", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    """Run one case and write its two files."""
    options = vars(parse_arguments())
    output = options.pop("output")
    with np.load(options.pop("data")) as arrays:
        X, Y = (arrays[name].astype(np.float64) for name in ("X_train", "Y_train"))
    output.parent.mkdir(parents=True, exist_ok=True)
    record = run(X, Y, Settings(**options), output.with_name(output.name + ".npz"))
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    output.with_name(output.name + ".json").write_text(text)


if __name__ == "__main__":
    main()
