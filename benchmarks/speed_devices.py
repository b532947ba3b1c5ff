"""The same problem on every backend and device that is at hand, in one run.

    python benchmarks/speed_devices.py                        SciPy, JAX on the CPU, GPU or TPU
    python benchmarks/speed_devices.py --joplen 240 --core 1  joplen 1.0.3 first, on its own cells

Squared error, Frobenius strength 0.01 on slopes, free biases, n = 100,000 rows, d = 20 features,
100 partitions x 64 cells, each device in a process of its own. "First fit" holds what JAX compiles,
"second fit" has another target and strength of the same shapes. Memory is the largest resident
size of the whole process, libraries and data included, and, for accelerators, the peak in use
there. Seconds of the CPU stand in brackets: they hold on a machine that does other things too.
Cells are LightGBM's or, with ``--joplen SECONDS``, those of joplen's random forest: joplen is
installed from PyPI into an environment of its own (see `speed_joplen.py`), gets one step size and
that many seconds, and its objective is evaluated by the same formula.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
STRENGTH = 0.01


def make_data(n: int, d: int, work: Path) -> Path:
    """Friedman's first function and more, with noise, standardised; a tenth for testing."""
    rng = np.random.default_rng(0)
    X = rng.random((n + n // 10, d))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + 0.5 * rng.standard_normal(len(X))
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    path = work / f"data-{n}-{d}.npz"
    np.savez(path, X_train=X[:n], y_train=y[:n], X_test=X[n:], y_test=y[n:])
    return path


def grow_cells(data: Path, args: argparse.Namespace) -> Path:
    """Write the codes of LightGBM's trees."""
    from jointleaf.partitions import LightGBMPartitioner

    arrays = np.load(data)
    partitioner = LightGBMPartitioner(
        n_partitions=args.partitions, n_cells=args.cells, random_state=0
    ).fit(arrays["X_train"], arrays["y_train"])
    path = args.work / "codes.npz"
    codes = {part: partitioner.apply(arrays[f"X_{part}"]) for part in ("train", "test")}
    np.savez(path, codes_train=codes["train"], codes_test=codes["test"])
    return path


def run_joplen(data: Path, args: argparse.Namespace) -> tuple[dict | None, Path | None]:
    """Run joplen for some seconds; its record and the file of its codes, or None if it fails."""
    from speed_joplen import joplen_python

    stem = args.work / f"joplen-{args.rows}"
    command = [
        *args.pin, str(joplen_python(args.work.resolve())), str(HERE / "joplen_worker.py"),
        str(data), "--output", str(stem), "--n-partitions", str(args.partitions),
        "--n-cells", str(args.cells), "--lam", str(STRENGTH), "--mu", str(args.joplen_step),
        "--seconds", str(args.joplen), "--warmup-passes", "1",
    ]  # fmt: skip
    if not stem.with_suffix(".json").exists():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
            print(f"joplen could not run this size: {lines[-1]}", flush=True)
            return None, None
    record = json.loads(stem.with_suffix(".json").read_text())
    values = [p["objective"] for p in record["trajectory"] if p["objective"] is not None]
    last, peak = record["trajectory"][-1], record["rss_peak_mb"]
    print(
        f"joplen: {last['passes']} passes in {last['wall_s']:.0f} s ({last['cpu_s']:.0f}), "
        f"{record['per_pass_s']:.2f} s each, lowest objective {min(values):.6g}, {peak:.0f} MB",
        flush=True,
    )
    return record, stem.with_suffix(".npz")


def measure(device: str, data: Path, codes_file: Path, dtype: str, tol: float) -> dict:
    """Fit twice on a device and give the record."""
    from jointleaf import Frobenius, fit_cells

    arrays, codes = np.load(data), np.load(codes_file)
    X, y = arrays["X_train"].astype(dtype), arrays["y_train"]
    train, test = codes["codes_train"].astype(np.int32), codes["codes_test"].astype(np.int32)
    X_test = arrays["X_test"].astype(dtype)
    options = {"tol": tol, "max_iter": 2000, "device": device}

    def fit(target: np.ndarray, strength: float):
        return fit_cells(X, train, target, penalty=Frobenius(strength, 0.0), **options)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu = [time.process_time()]
        first, solution = _timed(lambda: fit(y, STRENGTH))
        cpu.append(time.process_time())
        second, _ = _timed(lambda: fit(np.roll(y, 1) + y, 0.8 * STRENGTH))
        cpu.append(time.process_time())
    peak = _memory_mb()
    solution.predict(X_test, test, device=device)  # compiles
    predict = min(
        _timed(lambda: solution.predict(X_test, test, device=device))[0] for _ in range(3)
    )
    one_pass = _one_pass(X, train, solution.theta, y.astype(dtype), device)
    passes = [_timed(one_pass)[0] for _ in range(4)]
    return {
        "device": device,
        "first_s": first,
        "second_s": second,
        "first_cpu_s": cpu[1] - cpu[0],
        "second_cpu_s": cpu[2] - cpu[1],
        "pass_s": min(passes),
        "predict_s": predict,
        "objective": solution.objective,
        "optimality": solution.optimality,
        "iterations": solution.n_iter,
        "status": solution.status,
        "peak_mb": peak,
        "device_mb": _device_memory_mb(device),
    }


def _one_pass(X: np.ndarray, codes: np.ndarray, theta: np.ndarray, r: np.ndarray, device: str):
    """A function that computes one product with the design and one with its transpose."""
    from jointleaf import LeafDesign

    design = LeafDesign(X, codes)
    if device == "cpu":
        merged = design.merge_partitions()
        return lambda: (merged.matvec(theta), merged.rmatvec(r))
    import jax

    from jointleaf._core.arrays import find_device
    from jointleaf._core.jax.problem import device_design

    place = find_device(device)
    moved = jax.device_put((device_design(design, place), theta, r), place)
    products = jax.jit(lambda design, theta, r: (design.matvec(theta), design.rmatvec(r)))
    return lambda: jax.block_until_ready(products(*moved))


def _timed(job) -> tuple[float, object]:
    start = time.perf_counter()
    answer = job()
    return time.perf_counter() - start, answer


def _memory_mb() -> float:
    """Largest resident size of this process so far, in MiB."""
    import resource

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**20 if sys.platform == "darwin" else 2**10)


def _device_memory_mb(device: str) -> float | None:
    if device in ("cpu", "jax:cpu"):
        return None
    from jointleaf._core.arrays import find_device

    stats = find_device(device).memory_stats() or {}
    return stats.get("peak_bytes_in_use", np.nan) / 2**20


def devices_at_hand() -> list[str]:
    """SciPy, and what JAX finds."""
    from jointleaf._core.arrays import find_device

    found = ["cpu"]
    for name in ("jax:cpu", "gpu", "tpu"):
        try:
            find_device(name)
        except (ImportError, RuntimeError) as cause:
            print(f"left out: {cause}")
        else:
            found.append(name)
    return found


def run_device(device: str, data: Path, codes: Path, args: argparse.Namespace) -> dict:
    """Measure a device in a process of its own."""
    command = [
        *args.pin, sys.executable, __file__, "--worker", device, str(data), str(codes),
        "--dtype", args.dtype, "--tol", str(args.tol),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(rows: list[dict]) -> str:
    """Markdown."""
    lines = [
        "| device | first fit | second fit | iterations | pass | predict | objective | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        memory = f"{row['peak_mb']:.0f} MB"
        if row["device_mb"] is not None:
            memory += f" + {row['device_mb']:.0f} MB there"
        lines.append(
            f"| {row['device']} | {row['first_s']:.1f} s ({row['first_cpu_s']:.1f}) "
            f"| {row['second_s']:.1f} s ({row['second_cpu_s']:.1f}) "
            f"| {row['iterations']} ({row['status']}) | {1e3 * row['pass_s']:.0f} ms "
            f"| {1e3 * row['predict_s']:.0f} ms | {row['objective']:.8g} | {memory} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--devices", nargs="*", help="by default all that are at hand")
    parser.add_argument("--joplen", type=float, default=0.0, help="seconds; 0 leaves it out")
    parser.add_argument("--joplen-step", type=float, default=0.03)
    parser.add_argument("--core", type=int, help="pin everything to one core")
    parser.add_argument("--work", type=Path, default=Path("output/speed_devices"))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        device, data, codes = args.worker
        record = measure(device, Path(data), Path(codes), args.dtype, args.tol)
        print(json.dumps(record))
        return
    args.pin = [] if args.core is None else ["taskset", "-c", str(args.core)]
    if args.core is not None:
        os.environ["OMP_NUM_THREADS"] = "1"
    args.work.mkdir(parents=True, exist_ok=True)
    data = make_data(args.rows, args.features, args.work)
    codes = run_joplen(data, args)[1] if args.joplen else None
    codes = grow_cells(data, args) if codes is None else codes
    rows = []
    for device in args.devices or devices_at_hand():
        rows.append(run_device(device, data, codes, args))
        print(table(rows[-1:]), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
