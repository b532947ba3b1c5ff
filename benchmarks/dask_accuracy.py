"""Whole fits on a Dask cluster against local ones: errors on test rows, and their ratio.

    python -m benchmarks.dask_accuracy --data FOLDER [--sets uci.kin40k ...] [--sample-rows 20000]

The local fit is the default one of all training rows. That of the cluster, two workers of one
thread and eight partitions, grows its trees on `sample-rows` rows, in the process of the client,
and corrects the weights of their cells by all others. With the default, 100,000 rows, it is the
local fit wherever there are no more. Split 0 of `benchmarks.accuracy`; the error is the RMSE, for
classes the log-loss. CPU seconds are those of the client and of the workers.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import psutil
from benchmarks.accuracy.loading import load
from benchmarks.accuracy.sets import DataSet, select_sets
from distributed import Client, LocalCluster
from numpy.typing import NDArray
from sklearn.metrics import log_loss, root_mean_squared_error

from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.dask import DaskJOPLEnClassifier, DaskJOPLEnRegressor

SETS = ["uci.kin40k", "uci.protein", "564_fried", "574_house_16H", "pmlb.adult"]
PARTS = 8


def error(entry: DataSet, model: Any, X: Any, y: NDArray) -> float:
    """Return the RMSE, or the log-loss of classes."""
    if entry.task == "regression":
        return root_mean_squared_error(y, model.predict(X))
    return log_loss(y, model.predict_proba(X))


def cpu_of(processes: list[psutil.Process]) -> float:
    """Return the CPU seconds that processes have taken."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def in_parts(X: Any, y: NDArray) -> tuple[Any, Any]:
    """Return collections of Dask, in partitions of rows."""
    size = -(-len(y) // PARTS)
    if isinstance(X, np.ndarray):
        return da.from_array(X, chunks=(size, -1)), da.from_array(y, chunks=size)
    import pandas as pd

    X = X.reset_index(drop=True)
    return dd.from_pandas(X, npartitions=PARTS), dd.from_pandas(pd.Series(y), npartitions=PARTS)


def compare(entry: DataSet, folder: Path, sample_rows: list[int], client: Client) -> None:
    """Print the lines of one set."""
    data = load(entry, folder)
    train, test = data.split(entry.task, 0)
    take = data.X.iloc.__getitem__ if hasattr(data.X, "iloc") else data.X.__getitem__
    rows, fresh, y = take(train), (take(test), data.y[test]), data.y[train]
    is_regression = entry.task == "regression"
    start = time.process_time()
    local = (JOPLEnRegressor if is_regression else JOPLEnClassifier)(random_state=0).fit(rows, y)
    seconds = time.process_time() - start
    expected = error(entry, local, *fresh)
    print(f"| {entry.name} | {len(train):,} | local | {expected:.5f} | | | {seconds:.0f} |")
    X, target = in_parts(rows, y)
    kind = DaskJOPLEnRegressor if is_regression else DaskJOPLEnClassifier
    processes = [psutil.Process(), *map(psutil.Process, client.run(os.getpid).values())]
    for count in sample_rows:
        start = cpu_of(processes)
        model = kind(random_state=0, sample_rows=count, client=client).fit(X, target)
        seconds = cpu_of(processes) - start
        value, fit = error(entry, model.to_local(), *fresh), model.source_fit_
        print(
            f"| | | sample of {fit.n_sample:,} | {value:.5f} | {value / expected:.4f} | "
            f"{fit.n_passes} | {seconds:.0f} |",
            flush=True,
        )


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--sample-rows", nargs="+", type=int, default=[100_000, 20_000])
    given = parser.parse_args()
    print("| set | training rows | fit | error | to the local one | passes | CPU s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for entry in select_sets(given.sets):
            compare(entry, given.data, given.sample_rows, client)


if __name__ == "__main__":
    main()
