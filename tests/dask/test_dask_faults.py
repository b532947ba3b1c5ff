"""Workers that die, come late or go, and clients that are closed: the same model, or one error."""

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")
from distributed import Client

from dask_rows import (
    FEW,
    SMALL,
    chunked,
    cluster_of_threads,
    kill_a_worker,
    make_rows,
    until,
)
from jointleaf import JOPLEnRegressor
from jointleaf._sources import checkpoint as checkpoints
from jointleaf.dask import DaskJOPLEnRegressor, _cluster
from jointleaf.dask._cluster import Cluster

SETTINGS = SMALL | FEW


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def expected(connection, rows):
    """Predictions of a fit that nothing disturbs, on two workers."""
    X, y = rows
    connection.wait_for_workers(2, timeout=60)
    return DaskJOPLEnRegressor(**SETTINGS).fit(chunked(X), chunked(y)).to_local().predict(X)


@pytest.fixture
def at_pass(monkeypatch):
    """Do something when the tasks of a turn or a pass have been started; count these."""

    def plan(number, action):
        count = [0]
        wait = Cluster._wait

        def disturbed(self, futures):
            count[0] += 1
            if count[0] == number:
                action()
            return wait(self, futures)

        monkeypatch.setattr(Cluster, "_wait", disturbed)
        return count

    return plan


@pytest.mark.parametrize("number", [1, 4, 8], ids=["survey", "blocks", "pass"])
def test_a_worker_is_killed_during_a_fit(client, rows, expected, at_pass, number):
    X, y = rows
    count = at_pass(number, lambda: kill_a_worker(client))
    persisted = chunked(X).persist()  # rows that were on the worker are made again
    model = DaskJOPLEnRegressor(**SETTINGS, client=client).fit(persisted, chunked(y))
    assert count[0] > number
    np.testing.assert_array_equal(model.to_local().predict(X), expected)


def test_a_worker_is_killed_while_partitions_are_grown(client, rows, expected, monkeypatch):
    X, y = rows
    fit = JOPLEnRegressor.fit

    def disturbed(self, *args):
        kill_a_worker(client)
        return fit(self, *args)

    monkeypatch.setattr(JOPLEnRegressor, "fit", disturbed)
    model = DaskJOPLEnRegressor(**SETTINGS).fit(chunked(X), chunked(y))
    np.testing.assert_array_equal(model.to_local().predict(X), expected)
    future = client.compute(model.predict(chunked(X)))
    kill_a_worker(client)  # and once more during predict
    np.testing.assert_allclose(future.result(timeout=60), expected, rtol=1e-12, atol=1e-12)


def test_one_worker_and_one_that_joins_late(rows, expected, at_pass):
    X, y = rows
    with cluster_of_threads() as (cluster, client):

        def join():
            cluster.scale(2)
            until(lambda: len(client.nthreads()) == 2)

        assert len(client.nthreads()) == 1
        at_pass(5, join)
        model = DaskJOPLEnRegressor(**SETTINGS, client=client).fit(chunked(X), chunked(y))
    np.testing.assert_array_equal(model.to_local().predict(X), expected)


def test_a_client_that_is_closed_ends_the_fit(client, cluster, rows, at_pass):
    X, y = rows
    with Client(cluster, set_as_default=False) as other:
        at_pass(5, other.close)
        model = DaskJOPLEnRegressor(**SETTINGS, client=other)
        with pytest.raises(RuntimeError, match=r"the client was closed"):
            model.fit(chunked(X), chunked(y))
        assert not hasattr(model, "model_")
        with pytest.raises(ValueError, match=r"client is closed: start another one"):
            model.fit(chunked(X), chunked(y))


def test_a_cluster_without_workers_ends_the_fit(rows, at_pass, monkeypatch):
    X, y = rows
    monkeypatch.setattr(_cluster, "_LOOK", 0.2)
    monkeypatch.setattr(_cluster, "_NO_WORKERS", 1.0)

    with cluster_of_threads() as (cluster, client):

        def stop():
            cluster.scale(0)
            until(lambda: not client.nthreads())

        at_pass(5, stop)
        model = DaskJOPLEnRegressor(**SETTINGS, client=client)
        with pytest.raises(RuntimeError, match="the cluster has had no worker for 1 seconds"):
            model.fit(chunked(X), chunked(y))


def test_a_scheduler_that_is_gone_and_a_checkpoint(rows, expected, at_pass, monkeypatch, tmp_path):
    X, y = rows
    monkeypatch.setattr(checkpoints, "_EVERY", 0.0)
    monkeypatch.setattr(_cluster, "_LOOK", 0.2)
    monkeypatch.setattr(_cluster, "_NO_WORKERS", 2.0)

    def fit(*disturbance):
        with cluster_of_threads() as (other, client):
            for number in disturbance:
                at_pass(number, other.close)
            model = DaskJOPLEnRegressor(**SETTINGS, client=client, checkpoint=tmp_path / "fit")
            return model.fit(chunked(X), chunked(y)).to_local()

    with pytest.raises(RuntimeError, match="fit again"):
        fit(16)
    assert (tmp_path / "fit" / "model.jleaf").exists()
    np.testing.assert_array_equal(fit().predict(X), expected)
    assert not any(tmp_path.iterdir())
