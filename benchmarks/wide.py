"""Errors of wide tables with few rows.

The first six functions had a part in choosing which columns partitions are grown on; the others had
none in any rule.

    python -m benchmarks.wide --rows 100 --columns 500 --target classes
    python -m benchmarks.wide --rows 1000 --columns 50 --target numbers

One line for every function: the log-loss (classes) or NMSE (numbers) of 2,000 new rows by jointleaf
and by LightGBM with their defaults, a mean over seeds, and CPU seconds of a fit on one thread.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

for _name in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
from lightgbm import LGBMClassifier, LGBMRegressor  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402

import jointleaf as jl  # noqa: E402

N_TEST = 2000
Function = Callable[[NDArray, np.random.Generator], NDArray]


def _clusters(X: NDArray, rng: np.random.Generator) -> NDArray:
    """Move rows to six clusters in eight columns; the score is that of every second one."""
    cluster = rng.integers(6, size=len(X))
    X[:, :8] += 2.5 * rng.standard_normal((6, 8))[cluster]
    return cluster % 2 - 0.5


def _factors(X: NDArray, rng: np.random.Generator) -> NDArray:
    """Make columns of five factors, as genes have them, of which two count."""
    factors, d = rng.standard_normal((len(X), 5)), X.shape[1]
    X += factors @ (rng.standard_normal((5, d)) * (rng.random((5, d)) < 0.1))
    return factors[:, 0] + factors[:, 1] ** 2 - 1 + 0.5 * rng.standard_normal(len(X))


def _noisy(score: Callable[[NDArray], NDArray], noise: float) -> Function:
    return lambda X, rng: score(X) + noise * rng.standard_normal(len(X))


FUNCTIONS: dict[str, Function] = {
    "clusters": _clusters,
    "factors": _factors,
    "ten slopes": _noisy(lambda X: X[:, :10].sum(axis=1), 1.0),
    "three steps": _noisy(lambda X: np.sign(X[:, :3]).sum(axis=1), 0.5),
    "a rule": _noisy(
        lambda X: ((X[:, 0] > 0) & (X[:, 1] > -0.5) | (X[:, 2] > 1)).astype(float) - 0.5, 0.25
    ),
    "a product": _noisy(
        lambda X: X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * X[:, 4], 0.3
    ),
    "a bump": _noisy(lambda X: 2 * np.exp(-(X[:, 0] ** 2)) - 1.2 + 0.7 * X[:, 1], 0.3),
    "the largest": _noisy(lambda X: X[:, :3].max(axis=1) - 0.85, 0.3),
    "four steps": _noisy(lambda X: (X[:, :4] > [0.8, -0.8, 0.3, -0.3]) @ [2, 1, 2, 1] - 3, 0.5),
}


def error(
    name: str, n: int, d: int, seed: int, *, is_classes: bool, of: str
) -> tuple[float, float]:
    """Return the error of new rows, and the seconds of a fit."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + N_TEST, d))
    y = FUNCTIONS[name](X, rng)
    y = (y > 0).astype(int) if is_classes else y
    kinds: dict[str, Any] = {
        "jointleaf": (jl.JOPLEnRegressor, jl.JOPLEnClassifier),
        "LightGBM": (LGBMRegressor, LGBMClassifier),
    }
    options = {"verbosity": -1} if of == "LightGBM" else {}
    model = kinds[of][is_classes](n_jobs=1, random_state=0, **options)
    start = time.process_time()
    model.fit(X[:n], y[:n])
    seconds = time.process_time() - start
    if is_classes:
        return float(log_loss(y[n:], model.predict_proba(X[n:]))), seconds
    return float(np.mean((model.predict(X[n:]) - y[n:]) ** 2) / np.var(y[n:])), seconds


def main() -> None:
    """Print a line for every function."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--target", choices=("classes", "numbers"), default="classes")
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{arguments.rows} x {arguments.columns}, {arguments.target}")
    for name in arguments.functions:
        parts = []
        for of in ("jointleaf", "LightGBM"):
            shape = name, arguments.rows, arguments.columns
            is_classes = arguments.target == "classes"
            runs = [error(*shape, k, is_classes=is_classes, of=of) for k in range(arguments.seeds)]
            parts.append("{:.3f} in {:.1f} s".format(*np.mean(runs, axis=0)))
        print(f"| {name} | {parts[0]} | {parts[1]} |", flush=True)


if __name__ == "__main__":
    main()
