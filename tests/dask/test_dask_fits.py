"""Fits on a cluster equal those in one process: the same bits for the same blocks."""

import pickle
import time
from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")
import dask.array as da
import dask.dataframe as dd
from sklearn.base import clone, is_classifier, is_regressor

import jointleaf
from dask_rows import CHUNKS, FEW, SMALL, chunked, make_rows
from jointleaf import (
    L21,
    BatchRows,
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    fit_cells,
    fit_source,
)
from jointleaf._core.row_vectors import FAN, Here, Kept
from jointleaf.dask import DaskJOPLEnClassifier, DaskJOPLEnRegressor, dask_fit_cells
from jointleaf.dask._cluster import Cluster
from jointleaf.dask._collections import Partitions, make_batch

BOUNDS = np.cumsum(CHUNKS)[:-1]


def in_batches(*values):
    """The same blocks as those of a Dask array."""
    return BatchRows(lambda: zip(*(np.split(v, BOUNDS) for v in values), strict=True))


QUADRATIC, SPARSE = Frobenius(0.2, 0.1), L21(0.02, 0.05)


@pytest.mark.parametrize(
    ("loss", "penalty"),  # every solver with one output, and several outputs
    [
        ("squared_error", QUADRATIC),
        ("logistic", QUADRATIC),
        ("squared_error", SPARSE),
        ("multinomial", SPARSE),
    ],
    ids=["pcg", "newton", "fista", "multinomial"],
)
def test_given_cells_are_fitted_as_in_one_process(client, loss, penalty):
    rng = np.random.default_rng(0)
    X, y = make_rows()
    y = {"squared_error": y, "logistic": np.sign(y), "multinomial": np.digitize(y, [0, 1])}[loss]
    codes = rng.integers(0, [3, 2], (len(X), 2))
    s = rng.uniform(0, 1, len(X)).round(1)  # some are zero
    offset = None if loss == "multinomial" else 0.1 * X[:, 3]
    # Rounding is all that differs, so that both take the same steps, however far they go.
    given = {"loss": loss, "penalty": penalty, "cells": ["linear", "constant"], "tol": 1e-3}
    expected = fit_cells(
        X, codes, y, sample_weight=s, offset=0.0 if offset is None else offset, **given
    )
    chunks = (1700, 0, 1801)
    solution = dask_fit_cells(
        chunked(X, chunks),
        chunked(codes, chunks),
        da.from_array(y, chunks=1000),  # other chunks than those of X
        sample_weight=chunked(s, chunks),
        offset=None if offset is None else chunked(offset, chunks),
        **given,
    )
    quadratic = "pcg" if loss == "squared_error" else "newton"
    assert solution.solver == (quadratic if isinstance(penalty, Frobenius) else "fista")
    assert (solution.converged, solution.n_iter) == (True, expected.n_iter)
    assert solution.objective == pytest.approx(expected.objective, rel=1e-8)
    f, got = expected.predict(X, codes), solution.predict(X, codes)
    np.testing.assert_allclose(got, f, rtol=1e-6, atol=1e-6 * np.abs(f).max())


def test_a_regressor_has_the_bits_of_a_fit_in_files(client):
    X, y = make_rows()
    s = np.random.default_rng(1).uniform(0, 1, len(y)).round(1)
    s[:900] = 0.0  # a whole block
    model = DaskJOPLEnRegressor(**SMALL, **FEW)
    assert model.fit(chunked(X), chunked(y), sample_weight=chunked(s)) is model
    expected = fit_source(JOPLEnRegressor(**SMALL), in_batches(X, y, s), **FEW)
    assert model.source_fit_ == expected.source_fit_
    assert model.source_fit_.loss_after < 0.95 * model.source_fit_.loss_before
    predictions = model.predict(chunked(X))
    assert predictions.chunks == (CHUNKS,)
    np.testing.assert_array_equal(model.to_local().predict(X), expected.predict(X))
    np.testing.assert_allclose(predictions.compute(), expected.predict(X), rtol=1e-12, atol=1e-12)
    assert is_regressor(model)


def test_few_rows_are_fitted_as_by_the_local_estimator(client):
    X, y = make_rows()
    model = DaskJOPLEnRegressor(**SMALL).fit(chunked(X), chunked(y))
    assert model.source_fit_.n_passes == 0
    expected = JOPLEnRegressor(**SMALL).fit(X, y)
    np.testing.assert_array_equal(model.to_local().predict(X), expected.predict(X))


def test_many_blocks_are_added_in_the_same_order(client):
    """Sums of sums, more blocks than are added at a time."""
    X, y = make_rows()
    chunks = (len(X) // (2 * FAN + 1),) * (2 * FAN + 1)
    n = sum(chunks)
    model = DaskJOPLEnRegressor(**SMALL, **FEW | {"max_passes": 2})
    model.fit(chunked(X[:n], chunks), chunked(y[:n], chunks))
    size = chunks[0]
    source = BatchRows(lambda: ((X[i : i + size], y[i : i + size]) for i in range(0, n, size)))
    expected = fit_source(JOPLEnRegressor(**SMALL), source, **FEW | {"max_passes": 2})
    np.testing.assert_array_equal(model.to_local().predict(X), expected.predict(X))


@pytest.fixture(scope="module")
def table():
    """Numbers, categories and missing values, and three classes of which one is in one part."""
    X, y = make_rows()
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[::7, "b"] = np.nan
    frame["word"] = np.where(X[:, 0] > 0, "above", "below")
    frame["kind"] = pd.Categorical(np.where(X[:, 1] > 0, "p", "q"))
    labels = np.where(y > 0.5, "high", "low").astype(object)
    labels[:300] = "only in the first part"
    return frame, pd.Series(labels)


def test_a_classifier_of_data_frames(client, table, tmp_path):
    frame, labels = table
    X, y = dd.from_pandas(frame, npartitions=3), dd.from_pandas(labels, npartitions=3)
    model = DaskJOPLEnClassifier(**SMALL, **FEW, class_weight="balanced").fit(X, y)
    size = -(-len(frame) // 3)
    parts = [slice(first, first + size) for first in range(0, len(frame), size)]
    source = BatchRows(lambda: ((frame[p], labels[p].to_numpy()) for p in parts))
    local = JOPLEnClassifier(**SMALL, class_weight="balanced")
    expected = fit_source(local, source, **FEW)
    assert model.source_fit_ == expected.source_fit_
    assert list(model.classes_) == list(expected.classes_)
    assert is_classifier(model)
    started = time.monotonic()
    proba, predicted = model.predict_proba(X), model.predict(X[[*"dcba", "kind", "word"]])
    assert proba.divisions == X.divisions
    assert list(proba.columns) == list(model.classes_)
    assert time.monotonic() - started < 5  # lazy
    np.testing.assert_array_equal(proba.compute().to_numpy(), expected.predict_proba(frame))
    predicted = predicted.compute()
    assert list(predicted.index) == list(frame.index)
    assert list(predicted) == list(expected.predict(frame))
    local = model.to_local()
    assert type(local) is JOPLEnClassifier
    jointleaf.save(local, tmp_path / "model.jointleaf")
    loaded = jointleaf.load(tmp_path / "model.jointleaf")
    np.testing.assert_allclose(loaded.predict_proba(frame), local.predict_proba(frame), rtol=1e-12)
    assert local.explain(frame[:5]).values.shape[0] == 5
    with pytest.raises(ValueError, match="X lacks the column"):
        model.predict(X.drop(columns=["a"]))


def test_columns_in_another_order_in_one_partition_and_sizes_that_are_not_known(client, table):
    frame, labels = table
    whole = dd.from_pandas(frame.drop(columns=["kind"]), npartitions=3)
    parts = whole.to_delayed()
    parts[1] = dd.from_delayed(parts[1], meta=whole._meta)[["word", *"cdab"]].to_delayed()[0]
    mixed = dd.from_delayed(parts, meta=whole._meta, verify_meta=False)
    y = dd.from_pandas(labels, npartitions=3)
    few = FEW | {"max_passes": 2}
    expected = DaskJOPLEnClassifier(**SMALL, **few).fit(whole, y)
    model = DaskJOPLEnClassifier(**SMALL, **few).fit(mixed, y)
    rows = frame.drop(columns=["kind"])
    probabilities = expected.to_local().predict_proba(rows)
    np.testing.assert_array_equal(model.to_local().predict_proba(rows), probabilities)
    numbers = whole[["a", "c"]]
    assert np.isnan(numbers.values.chunks[0]).all()
    unknown = DaskJOPLEnClassifier(**SMALL, **few).fit(numbers.values, y.values)
    assert unknown.predict(numbers.values).compute().shape == (len(frame),)


def test_it_is_cloned_with_its_client_and_pickled_without(client):
    model = DaskJOPLEnRegressor(**SMALL, **FEW, client=client)
    copied = clone(model)
    assert copied.client is client
    assert model.client is client
    assert copied.get_params()["sample_rows"] == 400
    assert pickle.loads(pickle.dumps(model)).client is None
    local = JOPLEnRegressor().get_params(deep=False).keys() - {"warm_start"}
    own = {"client", "sample_rows", "validation_rows", "max_passes", "checkpoint"}
    assert set(model.get_params(deep=False)) == {*local, *own}
    local = JOPLEnClassifier().get_params(deep=False).keys() - {"warm_start"}
    assert set(DaskJOPLEnClassifier().get_params(deep=False)) == {*local, *own}


def test_sums_do_not_depend_on_which_block_is_done_first(client):
    terms = np.random.default_rng(0).lognormal(0, 20, (FAN + 3, 5))
    expected = Here().sum(np.copy, Kept(list(terms)))
    assert (expected != terms.sum(axis=0)).any()  # the order matters
    cluster = Cluster(client)
    for waits in (np.linspace(0, 0.2, len(terms)), np.linspace(0.2, 0, len(terms))):
        late = Kept([cluster.submit(_later, *pair) for pair in zip(terms, waits, strict=True)])
        np.testing.assert_array_equal(cluster.sum(np.copy, late), expected)


def test_blocks_are_made_in_turns_and_spread_evenly(client):
    cluster, seconds = Cluster(client), [0.3, 0.0, 0.3, 0.0, 0.3, 0.0]
    starts = [partial(cluster.submit, _later, np.zeros(10**5), wait) for wait in seconds]
    blocks = cluster.in_turns(starts)
    workers = [worker for places in client.who_has(blocks).values() for worker in places]
    assert sorted(Counter(workers).values()) == [3, 3]


def test_partitions_that_share_a_task_are_computed_at_once():
    X = da.random.default_rng(0).normal(size=(60, 2), chunks=(20, 2))

    def are_apart(X, y):
        none = {"sample_weight": (None, 1)}
        return Partitions.of(None, make_batch, X, y=(y, 1), **none)._are_apart()

    assert are_apart(X, X[:, 0])
    assert not are_apart(X - X.mean(axis=0), X[:, 0])


def _later(term, seconds):
    time.sleep(seconds)
    return term
