"""What a model file may cost when it is read or written is bounded by its size."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import jointleaf as jl
from jointleaf._core.arrays import threads
from jointleaf.io._model_file import files
from jointleaf.io._model_file.container import pack, unpack
from jointleaf.partitions import RandomTreesPartitioner, RootCell
from model_file_damage import (
    MOST,
    START,
    edited,
    packed,
    plain,
    refused,
    with_chain,
    with_parameter,
)
from model_kinds import TASKS, X, Y


@pytest.fixture(scope="module")
def small():
    penalty = jl.Frobenius(0.1)
    return jl.JOPLEnRegressor(RandomTreesPartitioner(3, 4), penalty=penalty).fit(X, Y)


@pytest.fixture(scope="module")
def data(small):
    return plain(files._to_bytes(small))


@pytest.mark.parametrize("n", [20_000, 50_000])
def test_texts_are_not_padded_beyond_the_budget(data, n):
    refused(with_parameter(data, {"texts": ["a" * n] + [""] * n}))


def test_numbers_of_many_roots_and_columns():
    """Every root cell of a union has gains for all columns."""
    d, n = 2_000, 5_000
    rows = np.zeros((2, d))
    rows[1, 0] = 1.0
    model = jl.JOPLEnRegressor(RootCell(), penalty=jl.Frobenius(0.1), root_cell=False)
    file = plain(files._to_bytes(model.fit(rows, np.arange(2.0))))

    def change(header):
        root = {"class": "RootCell", "parameters": {}}
        union = {"class": "UnionPartitioner", "partitioners": [root] * n}
        union["parameters"] = {"partitioners": [{"partitioner": root}]}
        header["model"]["cell_model"]["partitioner"] = union

    refused(edited(file, change))


@pytest.mark.parametrize(("item", "n"), [([], 1_000_000), ({}, 300_000)])
def test_metadata_of_many_small_objects(small, tmp_path, item, n):
    path = tmp_path / "model.jleaf"
    with pytest.raises(jl.ModelFileError, match="too many small objects"):
        jl.save(small, path, metadata={"x": [item] * n})
    assert not path.exists()
    jl.save(small, path, metadata={"x": [item] * 1000})


def test_arrays_that_two_objects_share(data):
    """The rows of a trace become Python objects, once for every solution that has it."""
    trace = np.zeros((2**20, 4))
    header, arrays = unpack(data).header, unpack(data).arrays
    header["model"]["report"]["joint"]["solution"]["trace"] = {"array": len(arrays)}
    del header["arrays"]
    refused(pack(header, [*arrays, trace]))


def test_converted_arrays_are_shared(data):
    whole = unpack(data)
    place = files.Place("model", whole.arrays, whole.budget)
    number = next(k for k, array in enumerate(whole.arrays) if array.dtype == np.int32)
    assert place.array(number, np.intp) is place.at("x").array(number, np.intp)


def test_importances_of_many_tasks():
    """One array that very many tasks share is not copied for each of them."""
    model = jl.BoUTSRegressor(1, 1).fit(TASKS)
    model.task_importances_ = dict.fromkeys(model.task_names_, np.ones(4))
    n = 600
    whole = unpack(files._to_bytes(model))
    d = 3_000
    fields = whole.header["model"]
    arrays = [*whole.arrays, np.ones(d), np.zeros(d, np.int64), np.zeros(0, np.int64)]
    large, zeros, none = ({"array": k} for k in range(len(arrays) - 3, len(arrays)))
    columns = [{"label": f"x{j}", "categories": None} for j in range(d)]
    fields["columns"] = {"columns": columns, "statistics": None}
    fields["task_names"], fields["task_importances"] = list(range(n)), [large] * n
    trees = {**fields["trees"][0], "n_features": d, "n_categories": zeros}
    fields["trees"], fields["leaf_weights"] = [trees] * n, fields["leaf_weights"][:1] * n
    fields["task_features"], fields["universal_features"] = [none] * n, none
    del whole.header["arrays"]
    tracemalloc.start()
    try:
        loaded = files._from_bytes(pack(whole.header, arrays))
    except jl.ModelFileError:
        pass
    else:
        np.testing.assert_array_equal(loaded.feature_importances_, np.ones(d))
    assert tracemalloc.get_traced_memory()[1] < 8 * n * d / 2
    tracemalloc.stop()


def collisions():
    """Pairs of whole numbers below 2^63 whose tuples have the same hash."""
    from itertools import count

    prime_1, prime_2, prime_5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
    mask = 2**64 - 1

    def turned(value, by):
        return ((value << by) | (value >> (64 - by))) & mask

    def step(sum_before, lane):
        return turned((sum_before + lane * prime_2) & mask, 31) * prime_1 & mask

    goal = step(step(prime_5, 1), 1)
    undone = turned(goal * pow(prime_1, -1, 2**64) & mask, 33)
    for first in count(1):
        second = (undone - step(prime_5, first)) * pow(prime_2, -1, 2**64) & mask
        if second < 2**61 - 1:
            yield [first, second]


@pytest.mark.parametrize("kind", ["numbers", "tuples"])
def test_keys_of_one_hash(data, kind):
    if kind == "numbers":
        keys = [k * (2**61 - 1) for k in range(1, 2_001)]
        match = "too large a number"
    else:
        pairs = collisions()
        keys = [{"tuple": next(pairs)} for _ in range(2_000)]
        assert len({hash(tuple(key["tuple"])) for key in keys}) == 1
        match = "slow to look up"
    refused(with_parameter(data, {"dict": [[key, 0] for key in keys]}), match)


def test_task_names_of_one_hash():
    pairs = collisions()
    names = [{"tuple": next(pairs)} for _ in range(2_000)]
    file = plain(files._to_bytes(jl.BoUTSRegressor(1, 1).fit(TASKS)))
    refused(edited(file, lambda h: h["model"].update(task_names=names)), "slow to look up")


def test_scalars_beyond_python_numbers_come_back(small, tmp_path):
    model = jl.JOPLEnRegressor("steps", penalty=jl.Frobenius(0.1)).fit(X, Y)
    model.set_params(random_state=np.uint64(2**64 - 1))
    with pytest.raises(jl.ModelFileError, match="Seed must be"):
        jl.save(model, tmp_path / "model.jleaf")  # as fit would
    model.set_params(random_state=None, linear_features=[np.uint64(2**64 - 1), np.int64(-3)])
    jl.save(model, tmp_path / "model.jleaf")
    again = jl.load(tmp_path / "model.jleaf").linear_features
    assert again == [np.uint64(2**64 - 1), np.int64(-3)]
    assert [type(value) for value in again] == [np.uint64, np.int64]


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("device", 3, "device must be text"),
        ("device", "nonsense", "device is 'nonsense'"),
        ("n_jobs", 65_536, "n_jobs must be null or a number of threads up to 1024"),
        ("n_jobs", 0, "n_jobs must be"),
        ("n_jobs", "all", "n_jobs must be"),
        ("clip", "sell", "clip='sell' must be"),
        ("recipe", "stew", "recipe='stew' is not known"),
        ("solver", "magic", "solver='magic'"),
        ("tol", -1.0, "tol=-1.0"),
        ("max_iter", 0, "max_iter=0"),
        ("cells", "cubic", "cells='cubic'"),
        ("loss", "cubic", "loss='cubic'"),
        ("partitioner", "cubic", "partitioner='cubic'"),
        ("penalty", 3, "penalty=3 must be"),
        ("random_state", "x", "cannot be used to seed"),
        ("time_budget", -1, "time_budget=-1"),
    ],
)
def test_parameters_have_the_rules_of_fit(data, name, value, match):
    refused(with_parameter(data, value, name), match)


def test_parameters_of_other_estimators():
    for model, name, match in [
        (jl.BoUTSRegressor(1, 1).fit(TASKS), "max_depth", "max_depth=-1"),
        (jl.LinearForestRegressor(2).fit(X, Y), "n_estimators", "n_estimators=-1"),
    ]:
        refused(with_parameter(plain(files._to_bytes(model)), -1, name), match)


def test_devices_of_other_machines_are_loaded(data):
    assert files._from_bytes(with_parameter(data, "tpu", "device")).device == "tpu"


def test_no_more_threads_than_cores():
    assert threads(1000) == threads(-1) == os.cpu_count()
    assert threads(None) == 1


def test_chains_of_splits(small):
    """A row of a chain would take as many steps as it has splits."""
    refused(with_chain(small, 100_000), "more than 4096 levels")


# -- saving and loading ----------------------------------------------------------------------------


def test_what_load_refuses_is_not_saved(small, tmp_path):
    path = tmp_path / "model.jleaf"
    with pytest.raises(jl.ModelFileError, match="more than max_bytes=1000"):
        jl.save(small, path, max_bytes=1000)
    jl.save(small, path)
    size = path.stat().st_size
    with pytest.raises(jl.ModelFileError, match="raise max_bytes"):
        jl.save(small, path, max_bytes=size)  # it is compressed


def test_memory_of_saving_and_loading(tmp_path):
    rng = np.random.default_rng(0)
    d = 2000
    model = jl.JOPLEnRegressor(
        RandomTreesPartitioner(20, 16), penalty=jl.Frobenius(0.1), max_iter=2, solver="fista"
    )
    with pytest.warns(UserWarning, match="stopped"):
        model.fit(rng.standard_normal((64, d)), rng.standard_normal(64))
    path = tmp_path / "model.jleaf"
    size = model.cell_model_.slopes.nbytes
    assert size > 4_000_000
    peaks = []
    for work in (lambda: jl.save(model, path), lambda: jl.load(path)):
        tracemalloc.start()
        work()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    unpacked = sum(array.nbytes for array in unpack(path.read_bytes()).arrays)
    assert max(peaks) < 3.5 * unpacked, [peak / unpacked for peak in peaks]


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_only_regular_files_are_opened(tmp_path, kind):
    path = tmp_path / "model.jleaf"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path = "/dev/zero"
    for function in (jl.load, jl.load_metadata):
        with pytest.raises(jl.ModelFileError, match="no regular file"):
            function(path)


def test_long_names_and_names_that_are_not_utf8(small, tmp_path):
    for name in ["x" * 249 + ".jleaf", "é" * 124 + ".jleaf", os.fsdecode(b"\xff\xfe.jleaf")]:
        jl.save(small, tmp_path / name)
        assert os.listdir(tmp_path) == [name]
        (tmp_path / name).unlink()


def test_permissions_are_never_wider_than_those_of_the_file(small, tmp_path, monkeypatch):
    path, seen = tmp_path / "model.jleaf", []
    path.write_bytes(b"old")
    path.chmod(0o600)

    def look(number):
        seen.append(os.fstat(number).st_mode & 0o777)

    monkeypatch.setattr(files.os, "fsync", look)
    monkeypatch.delattr(files.os, "umask")  # which all threads share
    jl.save(small, path)
    assert seen == [0o600]


@pytest.mark.parametrize("kind", ["labels", "layout", "columns"])
def test_arrays_of_many_zeros_that_would_become_objects(data, kind):
    """Millions of zeros take kilobytes in a file, and bytes as long as they are an array."""
    n = 2**23
    whole = unpack(data)
    header, arrays = whole.header, [*whole.arrays, np.zeros(n, np.int8), np.ones(2**21, np.int32)]
    zeros, ones = ({"array": len(arrays) - k} for k in (2, 1))
    if kind == "labels":
        header["model"]["columns"]["columns"][0]["categories"] = zeros
    elif kind == "layout":
        header["model"]["report"]["joint"]["solution"]["layout"]["cells_per_partition"] = ones
    else:
        old = Path(__file__).parent / "model_files" / "format-1" / "bouts.jl"
        whole = unpack(old.read_bytes())
        header, arrays = whole.header, [*whole.arrays, np.zeros(n, np.int8)]
        header["model"]["n_features"] = n
        for task in header["model"]["tasks"]:
            task["importances"] = {"array": len(arrays) - 1}
    del header["arrays"]
    file = pack(header, arrays)
    if kind == "columns":
        file = packed(file[START:], int.from_bytes(file[24:32], "little"), 1)
    tracemalloc.start()
    with pytest.raises(jl.ModelFileError):
        files._from_bytes(file)
    assert tracemalloc.get_traced_memory()[1] < MOST + 5 * (n + 2**23)
    tracemalloc.stop()


def test_many_columns_and_classes_without_slopes(tmp_path):
    """Arrays without numbers that models have are not taken for those that ask for memory."""
    empty = np.zeros((0, 20_000, 400))
    assert unpack(pack({"jointleaf": "1", "model": {}}, [np.arange(9000.0), empty])).arrays[1].shape
    path = tmp_path / "model.jleaf"
    X = np.random.default_rng(0).standard_normal((12, 3000))
    trees = RandomTreesPartitioner(2, 3)
    options = {"cells": "constant", "penalty": jl.Frobenius(0.1)}
    model = jl.JOPLEnClassifier(trees, **options).fit(X, np.arange(12) % 4)
    jl.save(model, path)
    assert (jl.load(path).predict(X) == model.predict(X)).all()
