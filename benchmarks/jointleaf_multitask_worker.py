"""Solve one multitask problem with jointleaf: the other side of `joplen_multitask_worker.py`.

Reads the data and the cells that joplen made, solves the same Dirty LASSO problem in float32 (what
joplen computes in) on one core, and writes a JSON file with the trace, seconds and memory. The
clock starts before anything is built. The final weights are judged by the benchmark's own
objective, and the trace by the solver's: the two must agree at the end (``objective_gap``).
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

from dirty_lasso_objective import Problem, load_problem, objective, outputs, selected  # noqa: E402
from jointleaf import DirtyLasso, fit_tasks  # noqa: E402
from jointleaf_worker import memory_mb  # noqa: E402


def local_codes(codes: np.ndarray, n_cells: int) -> np.ndarray:
    """Cells of each partition counted from zero (n, P), from columns of the weights."""
    return (codes - n_cells * np.arange(codes.shape[1])).astype(np.int32)


def warm_up() -> None:
    """Touch the libraries once, so that their buffers do not count as memory of the fit."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    codes = rng.integers(0, 4, (200, 5))
    tasks = [(X, codes, X[:, 0]), (X, codes, X[:, 1])]
    fit_tasks(tasks, penalty=DirtyLasso(common=0.1, task=0.07))


def whole(parts: list[np.ndarray], problem: Problem, n_cells: int) -> np.ndarray:
    """Put slopes (cells, d) or biases (cells,) of tasks where joplen has them, cells last.

    jointleaf knows the cells of a partition only up to the last one with a training row.
    """
    full = []
    for part, codes in zip(parts, problem.codes, strict=True):
        last = local_codes(codes, n_cells).max(axis=0)
        at = [n_cells * p + cell for p, top in enumerate(last) for cell in range(top + 1)]
        cells = np.zeros((codes.shape[1] * n_cells, *part.shape[1:]))
        cells[at] = part
        full.append(np.moveaxis(cells, 0, -1))
    return np.array(full)


def solve(args: argparse.Namespace) -> dict:
    """Solve the problem and give its record."""
    problem = load_problem(args.data, args.codes, args.common, args.task)
    X = problem.X.astype(args.dtype)
    tasks = [
        (X, local_codes(codes, args.n_cells), problem.Y[:, t])
        for t, codes in enumerate(problem.codes)
    ]
    penalty = DirtyLasso(args.common, args.task, bias_strength=0.0)
    warm_up()
    before = memory_mb("VmRSS")
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = fit_tasks(tasks, penalty=penalty, tol=args.tol, max_iter=args.max_iter)
    total = time.perf_counter() - start
    peak = memory_mb("VmHWM")
    set_up = max(total - solution.trace[-1].seconds, 0.0)  # before the solver's own clock
    C = whole([task.common for task in solution.tasks], problem, args.n_cells)
    T = whole([task.specific for task in solution.tasks], problem, args.n_cells)
    biases = whole([task.intercept for task in solution.tasks], problem, args.n_cells)
    value = objective(problem, C, T, biases)
    common, of_tasks = selected(C, T)
    return {
        "objective": value,
        "objective_gap": abs(value - solution.objective) / value,
        "total_s": total,
        "trace": [(set_up + point.seconds, point.objective) for point in solution.trace],
        "iterations": solution.trace[-1].iteration,
        "rss_before_fit_mb": before,
        "rss_peak_mb": peak,
        "selected": {"common": common, "tasks": of_tasks},
        "train_mse": [
            float(np.mean((outputs(problem.X, c, C[t] + T[t], biases[t]) - problem.Y[:, t]) ** 2))
            for t, c in enumerate(problem.codes)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("codes", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--n-cells", type=int, required=True)
    parser.add_argument("--common", type=float, required=True)
    parser.add_argument("--task", type=float, required=True)
    parser.add_argument("--max-iter", type=int, default=5000)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--tol", type=float, default=1e-6)
    args = parser.parse_args()
    args.output.write_text(json.dumps(solve(args)))


if __name__ == "__main__":
    main()
