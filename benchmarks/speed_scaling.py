"""How the cost of a fit grows with the number of rows: jointleaf alone, one core.

    python benchmarks/speed_scaling.py [--rows 10000 100000 1000000] [--dtype float64]

Fixed strength 0.01, d = 20 features, 100 LightGBM trees x 64 cells, each size in
a process of its own. "grow" is LightGBM, "solve" the joint fit to the
default tolerance, "predict" is of 100,000
rows (or n, if fewer) beside LightGBM's own predict of the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402


def make_data(n: int, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Friedman's first function and more, with noise."""
    rng = np.random.default_rng(0)
    X = rng.random((n, d), dtype=np.float32)
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + 3 * X[:, 5] * X[:, 6] - 4 * np.abs(X[:, 7] - 0.3)
    return X, y + 0.5 * rng.standard_normal(n)


def measure(n: int, dtype: str) -> dict:
    """Fit once and give seconds and memory."""
    from jointleaf import Frobenius, JOPLEnRegressor
    from jointleaf.partitions import LightGBMPartitioner
    from jointleaf_worker import memory_mb, warm_up

    warm_up()
    X, y = make_data(n)
    X = X.astype(dtype)
    before = memory_mb("VmRSS")
    partitioner = LightGBMPartitioner(n_partitions=100, n_cells=64, random_state=0)
    model = JOPLEnRegressor(partitioner, penalty=Frobenius(0.01))
    start = time.perf_counter()
    model.fit(X, y)
    total = time.perf_counter() - start
    rows = X[: min(n, 100_000)]
    predict = min(_timed(lambda: model.predict(rows)) for _ in range(3))
    # The un-refitted ensemble's own predict is the measure for ours.
    booster = model.partitioner_.partitioners_[0].model_
    native = min(_timed(lambda: booster.predict(rows)) for _ in range(3))
    solution = model.solution_
    return {
        "n": n,
        "total_s": total,
        "solve_s": solution.trace[-1].seconds,
        "iterations": solution.n_iter,
        "optimality": solution.optimality,
        "status": solution.status,
        "predict_s": predict,
        "native_s": native,
        "growth_mb": memory_mb("VmHWM") - before,
    }


def _timed(job) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.dtype)))
        return
    print("| rows | fit | of it the joint solve | per row | iterations | memory growth "
          "| predict | LightGBM's own predict |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for n in args.rows:
        command = [sys.executable, __file__, "--one", str(n), "--dtype", args.dtype]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        r = json.loads(done.stdout.splitlines()[-1])
        per_row = 1e6 * r["solve_s"] / n
        print(
            f"| {n:,} | {r['total_s']:.1f} s | {r['solve_s']:.1f} s | {per_row:.0f} us "
            f"| {r['iterations']} ({r['status']}) | {r['growth_mb']:.0f} MB "
            f"| {r['predict_s']:.2f} s | {r['native_s']:.2f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
