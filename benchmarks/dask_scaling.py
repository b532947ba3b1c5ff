"""One pass over all rows on Dask workers against one process: seconds, CPU seconds and memory.

    python benchmarks/dask_scaling.py [--rows 2000000] [--blocks 12] [--passes 8] [--trim]

A pass is Phi^T diag(h) Phi v, forth and back, as every step of the fit makes it. 100 trees of 32
cells are grown on 20,000 rows; every block generates its rows where it is, and is prepared as a fit
does it. Seconds are the best of several passes, CPU seconds their median over all processes. An
empty round sends the same weights and adds arrays of the same size, and computes nothing. What a
process took is its peak memory, generated rows among it, less what it had with all libraries before
blocks were made: that of the worker that took most, and in brackets how often its share of all
blocks' bytes that is.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import psutil
from distributed import Client, LocalCluster
from numpy.typing import NDArray

import dask
from jointleaf import Frobenius, JOPLEnRegressor
from jointleaf._core.blocks import BlockDesign
from jointleaf._core.design import LeafDesign
from jointleaf._core.row_vectors import Kept
from jointleaf._data.sources import Batch
from jointleaf._sources.rows import FittedSample
from jointleaf.dask._cluster import Cluster
from jointleaf.partitions import LightGBMPartitioner

#: Workers keep memory that they free, up to so many bytes, instead of asking for it in every pass.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": 2**25, "MALLOC_MMAP_THRESHOLD_": 2**22}


def make_rows(n: int, d: int, seed: int) -> tuple[NDArray, NDArray]:
    """Return rows in float32, and targets with interactions and noise."""
    rng = np.random.default_rng([0, seed])
    X = rng.standard_normal((n, d), np.float32)
    f = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) * X[:, 3] + (X[:, 4] > 0.3) * (1 + X[:, 5])
    return X, f + 0.5 * rng.standard_normal(n, np.float32)


def make_block(seed: int, n: int, d: int, model: FittedSample) -> LeafDesign:
    """Return the design of generated rows."""
    X, y = make_rows(n, d, seed)
    return model.prepare(Batch(X, y, None)).design.merge_partitions()


def nothing(design: LeafDesign, v: NDArray) -> NDArray:
    """Return what a pass returns, without computing it."""
    return v


def times(run: Callable[[], Any], processes: list[psutil.Process], n: int) -> tuple[float, float]:
    """Return seconds, the least, and CPU seconds of processes, the median, of n runs."""
    seconds, cpu = [], []
    for _ in range(n):
        before, start = cpu_of(processes), time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
        cpu.append(cpu_of(processes) - before)
    return min(seconds), float(np.median(cpu))


def cpu_of(processes: list[psutil.Process]) -> float:
    """Return the CPU seconds that processes have taken."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure(design: BlockDesign, processes: list[psutil.Process], n: int) -> tuple[float, float]:
    """Return seconds and CPU seconds of a pass, after one that makes what all others use."""
    v = np.ones(design.layout.n_weights, design.dtype)
    h = design.vector_of(design.matvec(v).expression, np.empty(0, design.dtype))
    design.gram_product(h, v)
    return times(lambda: design.gram_product(h, v), processes, n)


def on_workers(given: Any, model: FittedSample, n_workers: int) -> None:
    """Measure on a cluster, and print a line of the table."""
    size = given.rows // given.blocks
    kept = {} if given.trim else {"distributed.nanny.pre-spawn-environ": MALLOC}
    with (
        dask.config.set(kept),
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.run(import_libraries)
        before = client.run(memory, "VmRSS")
        cluster = Cluster(client)
        shared = cluster.share(model)
        blocks = Kept(
            cluster.in_turns(
                [
                    partial(cluster.submit, make_block, k, size, given.features, shared)
                    for k in range(given.blocks)
                ]
            )
        )
        design = BlockDesign(blocks, cluster)
        held = sum(cluster.collect(LeafDesign.__sizeof__, blocks)) / n_workers
        workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        seconds, cpu = measure(design, workers, given.passes)
        peaks = client.run(memory, "VmHWM")
        most = max(peaks[worker] - before[worker] for worker in before)
        v = np.ones(design.layout.n_weights, design.dtype)
        empty, _ = times(lambda: cluster.sum(nothing, blocks, v), workers, given.passes)
    print(
        f"| Dask, {n_workers} worker(s) | {seconds:.2f} | {cpu:.2f} | {1000 * empty:.0f} ms | "
        f"{held / 2**20:.0f} MB | {most:.0f} MB ({most / (held / 2**20):.2f}) |"
    )


def import_libraries() -> None:
    """Import in a worker what the process that measures has imported, so that neither counts it."""
    import jointleaf.dask
    import jointleaf.partitions  # noqa: F401


def memory(line: str) -> float:
    """Return memory of this process in MB: "VmRSS" for what it has, "VmHWM" for the most so far."""
    with open("/proc/self/status") as file:
        return next(float(text.split()[1]) for text in file if text.startswith(line)) / 1024


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--trim", action="store_true", help="leave malloc of workers as Dask does")
    given = parser.parse_args()
    X, y = make_rows(20_000, given.features, 10**6)
    trees = LightGBMPartitioner(100, n_cells=32)
    estimator = JOPLEnRegressor(trees, penalty=Frobenius(0.01), random_state=0).fit(X, y)
    model = FittedSample.of(estimator, Batch(X, y, None))
    size, n_cells = given.rows // given.blocks, estimator.cell_model_.layout.n_cells
    print(f"{given.rows:,} rows x {given.features}, {n_cells} cells, load", os.getloadavg())
    print("| where | seconds | CPU seconds | empty round | blocks of a worker | what it took |")
    print("|---|---|---|---|---|---|")
    before = memory("VmRSS")
    designs = [make_block(k, size, given.features, model) for k in range(given.blocks)]
    seconds, cpu = measure(BlockDesign(designs), [psutil.Process()], given.passes)
    held = sum(design.__sizeof__() for design in designs) / 2**20
    most = memory("VmHWM") - before
    print(
        f"| one process | {seconds:.2f} | {cpu:.2f} | | {held:.0f} MB | "
        f"{most:.0f} MB ({most / held:.2f}) |"
    )
    del designs
    for n_workers in (1, 2):
        on_workers(given, model, n_workers)


if __name__ == "__main__":
    main()
