"""Solve one problem with jointleaf and record its path: the other side of `joplen_worker.py`.

Reads the data file of the case and the codes that joplen's partitions gave, solves exactly the
same convex problem in float32 (what joplen computes in) on one core, and writes a JSON file with
the trace, seconds, memory and predict time. The clock starts before the design is built.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from jointleaf import LeafDesign, fit_cells  # noqa: E402
from jointleaf._core.penalties import L21, Frobenius, Nuclear  # noqa: E402

PENALTIES = {"frobenius": Frobenius, "l21": L21, "nuclear": Nuclear}


def memory_mb(field: str) -> float:
    """VmRSS (now) or VmHWM (peak) of this process in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{field} is not reported on this system")


def warm_up(penalty: str) -> None:
    """Touch the libraries once, so that their buffers do not count as memory of the fit."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    codes = rng.integers(0, 4, (200, 5))
    for solver in ("dual", "pcg") if penalty == "frobenius" else ("auto",):
        fit_cells(X, codes, X[:, 0], penalty=PENALTIES[penalty](0.1, 0.0), solver=solver)


def solve(
    data: Path,
    codes_file: Path,
    penalty: str,
    lam: float,
    max_iter: int,
    dtype: str,
    tol: float,
) -> dict:
    """Solve the case and give its record."""
    chosen = PENALTIES[penalty](lam, 0.0)
    arrays, codes = np.load(data), np.load(codes_file)
    X, y = arrays["X_train"].astype(dtype), arrays["y_train"]
    train, test = codes["codes_train"].astype(np.int32), codes["codes_test"].astype(np.int32)
    warm_up(penalty)
    before = memory_mb("VmRSS")
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = fit_cells(X, train, y, penalty=chosen, max_iter=max_iter, tol=tol)
    total = time.perf_counter() - start
    peak = memory_mb("VmHWM")
    set_up = total - solution.trace[-1].seconds  # what came before the solver's own clock
    X_test = arrays["X_test"].astype(dtype)
    predict = min(_timed(lambda: solution.predict(X_test, test)) for _ in range(3))
    error = solution.predict(X_test, test) - arrays["y_test"]
    design = LeafDesign(X, train).merge_partitions()
    theta, r = solution.theta, np.asarray(y, dtype)
    per_pass = min(_timed(lambda: (design.matvec(theta), design.rmatvec(r))) for _ in range(5))
    return {
        "solver": solution.solver,
        "status": solution.status,
        "objective": solution.objective,
        "total_s": total,
        "trace": [(max(set_up, 0) + p.seconds, p.objective) for p in solution.trace],
        "test_mse": float(np.mean(error**2)),
        "per_pass_s": per_pass,
        "predict_s": predict,
        "rss_before_fit_mb": before,
        "rss_peak_mb": peak,
    }


def _timed(job) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("codes", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--penalty", choices=PENALTIES, default="frobenius")
    parser.add_argument("--lam", type=float, required=True)
    parser.add_argument("--max-iter", type=int, default=300)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tol", type=float, default=1e-6)
    args = parser.parse_args()
    record = solve(
        args.data, args.codes, args.penalty, args.lam, args.max_iter, args.dtype, args.tol
    )
    args.output.write_text(json.dumps(record))


if __name__ == "__main__":
    main()
