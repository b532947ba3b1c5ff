"""Rows beyond memory: seconds per pass and peak memory of `fit_source`, from files of Parquet.

    python benchmarks/out_of_core.py [--rows 2000000] [--features 20] [--memory-limit 2e9]

Rows are generated in pieces to a temporary folder; 100 trees of 32 cells are grown on a sample. For
comparison the files are read once without a fit. Seconds are CPU seconds, apart from "wall".
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from jointleaf import Frobenius, JOPLEnRegressor, ParquetRows, fit_source
from jointleaf._sources import rows as many_rows
from jointleaf.partitions import LightGBMPartitioner

PIECE = 100_000


def make_rows(n: int, d: int, seed: int) -> tuple[NDArray, NDArray]:
    """Return rows in float32, and targets with interactions and noise."""
    rng = np.random.default_rng([0, seed])
    X = rng.standard_normal((n, d)).astype(np.float32)
    f = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) * X[:, 3] + (X[:, 4] > 0.3) * (1 + X[:, 5])
    return X, f + 0.5 * rng.standard_normal(n).astype(np.float32)


def table(X: NDArray) -> pa.Table:
    """Return rows with names of columns."""
    return pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])})


def write(folder: Path, n: int, d: int) -> None:
    """Write the rows as one file for every piece."""
    for seed, start in enumerate(range(0, n, PIECE)):
        X, y = make_rows(min(PIECE, n - start), d, seed)
        pq.write_table(table(X).append_column("y", pa.array(y)), folder / f"{seed:05d}.parquet")


def peak() -> float:
    """Return the largest resident memory of the process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--memory-limit", type=float, default=2e9)
    given = parser.parse_args()
    passes: list[float] = []
    fit_correction = many_rows.fit_correction

    def timed(*args, **kwargs):
        start = time.process_time(), time.perf_counter()
        found = fit_correction(*args, **kwargs)
        passes.extend([time.process_time() - start[0], time.perf_counter() - start[1]])
        return found

    many_rows.fit_correction = timed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "rows"
        folder.mkdir()
        write(folder, given.rows, given.features)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        source = ParquetRows(folder, "y")
        start = time.process_time()
        n_rows = sum(len(batch.y) for batch in source.batches())
        read = time.process_time() - start
        before = peak()
        trees = LightGBMPartitioner(100, n_cells=32)
        penalty = Frobenius(0.001, 0.001)
        model = JOPLEnRegressor(trees, penalty=penalty, tol=1e-3, random_state=0)
        start = time.process_time()
        fit_source(model, source, memory_limit=given.memory_limit, cache_dir=name)
        total = time.process_time() - start
    outcome = model.source_fit_
    n = outcome.n_passes
    print(f"{n_rows:,} rows x {given.features}, {size:.0f} MB of Parquet, read once {read:.1f} s")
    print(f"peak memory {before:.0f} MB before the fit, {peak():.0f} MB after it")
    print(f"fit {total:.0f} s; {n} passes, {passes[0] / n:.2f} s each ({passes[1] / n:.2f} s wall)")
    X, y = make_rows(50_000, given.features, seed=10**6)
    print(f"held-out loss {outcome.loss_before:.5f} -> {outcome.loss_after:.5f}")
    print(f"R2 on 50,000 fresh rows {model.score(table(X), y):.4f}")


if __name__ == "__main__":
    main()
