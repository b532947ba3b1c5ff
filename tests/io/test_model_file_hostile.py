"""Files that a reviewer made who knew the reader, to take memory and time beyond their budget."""

import importlib
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import jointleaf as jl
from jointleaf._data.columns import Column, Columns
from jointleaf.io._model_file import files
from jointleaf.io._model_file.container import Budget, ModelFileError, pack, unpack
from jointleaf.io._model_file.values import Plain, check_keys
from jointleaf.partitions import RandomTreesPartitioner
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
from model_kinds import X, Y

OLD = Path(__file__).parent / "model_files" / "format-1"


@pytest.fixture(scope="module")
def small():
    penalty = jl.Frobenius(0.1)
    return jl.JOPLEnRegressor(RandomTreesPartitioner(2, 3), penalty=penalty).fit(X, Y)


@pytest.fixture(scope="module")
def data(small):
    return plain(files._to_bytes(small))


def long_and_short(n=6_000):
    """Texts of which NumPy makes n^2 characters."""
    return ["a" * n] + [""] * n


def with_report(data, **fields):
    return edited(data, lambda header: header["model"]["report"].update(fields))


def test_columns_of_results_are_not_made_arrays(data):
    table = {"dict": [["x", {"tuple": long_and_short()}]]}
    refused(with_report(data, cv_results=table), "must hold columns of one length")


@pytest.mark.parametrize(
    "constant",
    [long_and_short(), "text", None, [1.0], {"texts": ["a"]}, {"float": "nan"}],
    ids=["texts", "text", "null", "list", "array", "nan"],
)
def test_constants_of_a_blend_are_numbers(data, constant):
    blend = {"weights": {"dict": [["joint", 1.0]]}, "constant": constant}
    refused(with_report(data, blend=blend), "constant must be a number or one for every class")


def test_lists_of_old_files_are_not_multiplied():
    n = 4_000

    def change(header):
        model = header["model"]
        model["models"], model["penalties"], model["solutions"] = [None] * n, [None] * n, None

    refused(edited((OLD / "tasks.jl").read_bytes(), change), "no valid model of format 1")


def test_names_of_old_files_are_paid_for():
    names = {"objects": [""] * 600_000}
    file = (OLD / "bouts.jl").read_bytes()
    refused(edited(file, lambda header: header["model"].update(feature_names=names)))


def test_one_list_that_many_tasks_share_is_paid_for_each_time():
    """Files of format 1 have one table for all tasks, of which each has a copy."""
    budget = Budget(0, 0, 0)
    budget.spend(MOST - 2**20)
    place = files.Place("model", [], budget)
    assert Plain().read([0] * 10_000, place, files.Scope()) == [0] * 10_000
    with pytest.raises(ModelFileError, match="more memory"):
        Plain().read([0] * 10_000, place, files.Scope())


def test_messages_are_cut_before_they_are_split():
    message = "a " * 2**20
    tracemalloc.start()
    text = str(ModelFileError(message))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text.startswith("a a a")
    assert text.endswith("...")
    assert len(text) == 403
    assert peak < 2**18


@pytest.mark.parametrize("kind", ["arrays", "objects"])
def test_messages_do_not_show_very_many_values(data, kind):
    root = {"class": "RootCell", "parameters": {}}
    item = {"array": 0} if kind == "arrays" else {"partitioner": root}
    refused(with_parameter(data, [item] * 20_000, "penalty"))


def test_arrays_in_messages_are_short(data):
    whole = unpack(data)
    header, arrays = whole.header, [*whole.arrays, np.arange(900.0)]
    header["model"]["parameters"]["penalty"] = [{"array": len(arrays) - 1}]
    del header["arrays"]
    refused(pack(header, arrays), r"penalty=\[array\(\[ ?0\., 1\., \.\.\., 898")


def test_keys_that_are_no_text_are_few(data):
    """Whole numbers can be chosen so that a dict finds no free place for them."""
    place = files.Place("model", [], Budget(0, 0, 0))
    check_keys(list(range(2**14)), place)
    check_keys([str(k) for k in range(2**14 + 1)], place)
    keys = {"dict": [[k, 0] for k in range(2**14 + 1)]}
    refused(with_parameter(data, keys), "more than 16384 keys that are no text")


def test_keys_that_are_no_text_are_paid_for_by_the_pair(data):
    """Each of very many dicts may take as long as its keys squared."""
    keys = {"dict": [[k, 0] for k in range(2**14)]}
    files._from_bytes(with_parameter(data, keys))
    refused(with_parameter(data, [keys] * 4))


def test_categories_that_a_dict_would_take_long_to_find(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    numbers = np.array(importlib.import_module("benchmarks.hostile_files").probing_keys())
    column = Columns((Column("a", np.sort(numbers)),))
    start = time.process_time()
    codes = column.encode(numbers[:, None].astype(object))[:, 0]
    assert time.process_time() - start < 1  # 4 s by a dict
    np.testing.assert_array_equal(np.sort(numbers)[codes.astype(int)], numbers)
    unseen = column.encode(np.array([[-1], [2**62]], object))[:, 0]
    np.testing.assert_array_equal(unseen, len(numbers))


def test_arrays_of_old_files_are_paid_for_each_time():
    """Very many tasks may refer to one array, whose numbers are added for each of them."""
    file = unpack((OLD / "tasks.jl").read_bytes())
    header, arrays, n = file.header, [*file.arrays, np.zeros(4_000_000, np.int8)], 2_000
    large = {"array": len(arrays) - 1}
    header["model"] |= {
        "models": [{"theta": large, "offset": large}] * n,
        "solutions": [{"theta": large, "n_cells": large}] * n,
        "penalties": [{"left_out": "x"}] * n,
        "cv_results": None,
    }
    del header["arrays"]
    data = pack(header, arrays)
    refused(data[:8] + (1).to_bytes(4, "little") + data[12:])


@pytest.mark.parametrize("place", ["metadata", "parameter"])
def test_numbers_beyond_all_numbers(data, small, place):
    """JSON has numbers that Python reads as infinity, and JSON cannot have again."""
    if place == "metadata":
        data = plain(files._to_bytes(small, {"x": 1234567.5}))
    else:
        data = with_parameter(data, 1234567.5, "time_budget")
    body = data[START:].replace(b"1234567.5", b"1.2e+3456")
    refused(packed(body, int.from_bytes(data[24:32], "little"), 2), r"holds 1\.2e\+3456")


def test_levels_of_trees_are_counted(small):
    refused(with_chain(small, 4097, n_stumps=1), "has a tree of more than 4096 levels")
    refused(with_chain(small, 4096, n_stumps=1), "slopes has shape")  # of a model with fewer cells


def test_arrays_of_lists_come_back(small, tmp_path):
    values = np.empty(2, dtype=object)
    values[:] = [[1, 2], [3, 4]]
    model = jl.JOPLEnRegressor("steps", penalty=jl.Frobenius(0.1)).fit(X, Y)
    model.set_params(linear_features=values)
    jl.save(model, tmp_path / "model.jleaf")
    assert jl.load(tmp_path / "model.jleaf").linear_features.tolist() == [[1, 2], [3, 4]]
