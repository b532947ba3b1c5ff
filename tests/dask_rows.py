"""Rows in chunks and small fits for tests with a Dask cluster, and what such tests wait for."""

import os
import signal
import sys
import time
from contextlib import contextmanager

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

import dask
from jointleaf import Frobenius
from jointleaf.partitions import LightGBMPartitioner

CHUNKS = (900, 0, 1, 1100, 700, 800)  # unequal, one empty, one of a single row


def until(is_so, seconds=20):
    """Wait for something; fail if it does not come."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def kill_a_worker(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


@contextmanager
def quick_starts():
    """Workers are forks of a process that has loaded all they need: many are killed."""
    if sys.platform != "linux":
        yield
        return
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", "lightgbm", "jointleaf.dask"])
        yield


@contextmanager
def cluster_of_threads():
    """One worker in this process, which starts at once, and its client."""
    with (
        LocalCluster(1, processes=False, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield cluster, client


def make_rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((sum(CHUNKS), 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + 0.1 * rng.standard_normal(len(X))
    return X, y


def chunked(values, chunks=CHUNKS):
    """A Dask array in chunks of rows."""
    return da.from_array(values, chunks=(chunks, *values.shape[1:]))


SMALL = {
    "partitioner": LightGBMPartitioner(10, n_cells=5),
    "penalty": Frobenius(0.001),
    "random_state": 0,
}
FEW = {"sample_rows": 400, "validation_rows": 300, "max_passes": 6}
