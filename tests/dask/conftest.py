"""One cluster of two workers for all tests of this folder; it must leave nothing behind."""

import gc
import os
import signal
import time

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")
import dask.array as da
import psutil
from distributed import Client, LocalCluster

from jointleaf import Frobenius
from jointleaf.partitions import LightGBMPartitioner

CHUNKS = (900, 0, 1, 1100, 700, 800)  # unequal, one empty, one of a single row


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    before = set(psutil.Process().children(recursive=True))
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        local_directory=folder,
        memory_limit=None,
    ) as made:
        yield made
    left = set(psutil.Process().children(recursive=True)) - before
    left = {process for process in left if "resource_tracker" not in " ".join(process.cmdline())}
    assert not left
    assert not [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.fixture(scope="session")
def connection(cluster):
    with Client(cluster) as made:
        yield made


@pytest.fixture
def client(cluster, connection):
    """The client, with two workers before a test and no more tasks after it than before."""
    cluster.scale(2)
    connection.wait_for_workers(2, timeout=60)
    before = set(cluster.scheduler.tasks)
    yield connection

    def is_idle():
        gc.collect()  # tracebacks of expected errors hold what they have seen
        return set(cluster.scheduler.tasks) <= before

    until(is_idle)


def until(is_so, seconds=20):
    """Wait for something; fail if it does not come."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def kill_a_worker(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


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
