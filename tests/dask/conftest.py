"""One cluster of two workers for all tests of this folder; it must leave nothing behind."""

import gc

import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")
import psutil
from distributed import Client, LocalCluster

from dask_rows import quick_starts, until


def open_ports():
    """Ports on which this process listens."""
    found = psutil.Process().net_connections("inet")
    return {connection.laddr.port for connection in found if connection.status == "LISTEN"}


def stays(process):
    """Whether a process outlives those that it was started for: Python's own, and joblib's pool.

    Tests of other folders, in the same process, may have started the pool (loky).
    """
    names = ("resource_tracker", "forkserver", "loky")
    return any(name in " ".join(process.cmdline()) for name in names)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    before, ports = set(psutil.Process().children(recursive=True)), open_ports()
    settings = {"dashboard_address": None, "local_directory": folder, "memory_limit": None}
    with quick_starts(), LocalCluster(n_workers=2, threads_per_worker=1, **settings) as made:
        yield made
    left = set(psutil.Process().children(recursive=True)) - before
    assert not {process for process in left if not stays(process)}
    assert open_ports() <= ports
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
    before, ports = set(cluster.scheduler.tasks), open_ports()
    yield connection
    assert open_ports() <= ports  # clusters of tests' own are closed, and fits open none

    def is_idle():
        gc.collect()  # tracebacks of expected errors hold what they have seen
        return set(cluster.scheduler.tasks) <= before

    until(is_idle)
