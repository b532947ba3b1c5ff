"""Seconds of a 30-point l2,1 path: 20,000 rows, 100 features, 100 partitions x 8 cells.

    python benchmarks/speed_path.py [--partitions voronoi lightgbm] [--dtype float64]

Ten of the features matter. The path goes from the smallest strength at which all slopes are zero to
a hundredth of it, on two threads, to objectives that are exact to about 1e-5.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from jointleaf import L21, strength_path
from jointleaf.partitions import make_partitioner


def make_data(n: int = 20_000, d: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal features; linear, curved and interacting effects of the first ten."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    Z = X.T
    y = 10 * np.sin(Z[0] * Z[1]) + 5 * (Z[2] - 0.5) ** 2 + 5 * Z[3] + 3 * Z[4]
    y += 2 * np.abs(Z[5]) + Z[6] * Z[7] + Z[8] + Z[9] + rng.standard_normal(n)
    return X, (y - y.mean()) / y.std()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", nargs="*", default=["voronoi", "lightgbm"])
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    X, y = make_data()
    X = X.astype(args.dtype)
    print("| partitions | biases | seconds | iterations | features at the end | worst optimality |")
    print("|---|---|---|---|---|---|")
    for name in args.partitions:
        partitioner = make_partitioner(name).set_params(n_partitions=100, n_cells=8, random_state=0)
        codes = partitioner.fit(X, y).apply(X)
        for bias_strength in (0.0, 0.1):
            start = time.perf_counter()
            path = strength_path(
                X, codes, y, penalty=L21(1.0, bias_strength), n_jobs=2, verbose=args.verbose
            )
            seconds = time.perf_counter() - start
            print(
                f"| {name} | {'penalised' if bias_strength else 'free'} | {seconds:.0f} "
                f"| {path.n_iter.sum()} | {path.n_selected[-1]} | {path.optimality.max():.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
