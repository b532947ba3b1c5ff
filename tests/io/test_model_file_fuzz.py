"""Damaged model files: every one raises ModelFileError, or it is a model that predicts."""

import copy
import json
import random
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

import jointleaf as jl
from jointleaf._data.rows import read_rows
from jointleaf.io._model_file import files
from jointleaf.partitions import RandomTreesPartitioner, StepPartitioner
from model_kinds import MISSING, ROTATED, THREE, TREES, TWO, VORONOI, X, Y, frame, make

START = 32
PER_KIND, PER_OLD_FILE = 1250, 300
ODD = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63, -(2**70), 10**300, 1.5, -0.0, 1e308),
    *("", "x", "inf", "nan", "auto", "linear", "constant", [], {}, [[]], [0], {"array": 0}),
    *({"array": 5}, {"array": -1}, {"array": 10**9}, {"array": True}, {"float": "nan"}),
    *({"tuple": [1]}, {"dict": []}, {"scalar": ["int64", 3]}, {"texts": ["a", "b"]}),
    *({"left_out": "KFold"}, {"objects": [None]}, "RootCell", "UnionPartitioner", "Sum"),
]


def _small(kind, y, partitioner, rows=X, **options):
    return kind(partitioner, penalty=jl.Frobenius(0.1), random_state=0, **options).fit(rows, y)


MODELS = {
    "trees": lambda: _small(jl.JOPLEnClassifier, THREE, RandomTreesPartitioner(6, 5)),
    "cells": lambda: _small(jl.JOPLEnRegressor, Y, [TREES, VORONOI], MISSING, clip="cell"),
    "rotated": lambda: _small(jl.JOPLEnRegressor, Y, [ROTATED, "steps"], MISSING),
    "table": lambda: _small(jl.JOPLEnClassifier, TWO, StepPartitioner(8), frame()),
    "catboost": lambda: make("catboost"),
    "forest": lambda: jl.LinearForestClassifier(3, max_leaf_nodes=8, random_state=0).fit(X, THREE),
    "tasks": lambda: make("tasks"),
    "bouts": lambda: jl.BoUTSClassifier(3, 3).fit({"a": (X, TWO), "b": (X[:90], THREE[:90])}),
}
OLD = Path(__file__).parent / "model_files" / "format-1"
OLD_FILES = ("recipe_table", "many_rows", "tasks_alone", "bouts_classes", "forest")


def packed(body, n_header, version):
    """A file with a right start and a right checksum around these bytes."""
    checked = struct.pack("<QQ", START + len(body), n_header) + body
    return b"\x89JLEAF\r\n" + struct.pack("<II", version, zlib.crc32(checked)) + checked


def plain(data):
    """The same file without compression."""
    body, (n_header,) = data[START:], struct.unpack("<Q", data[24:32])
    if body[:1] == b"{":
        return data
    return packed(zlib.decompress(body), n_header, struct.unpack("<I", data[8:12])[0])


def parts(data):
    n_header = struct.unpack("<Q", data[24:32])[0]
    return json.loads(data[START : START + n_header]), data[START + n_header :]


def places(value, collected, key=None, owner=None):
    """All places in a tree of JSON values."""
    if owner is not None:
        collected.append((owner, key))
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for k, v in list(items):
            places(v, collected, k, value)
    return collected


class Mutations:
    """Random damage to one file."""

    def __init__(self, data, seed, n_mutations=PER_KIND):
        self.n_mutations = n_mutations
        self.compressed, data = data, plain(data)
        self.data = data
        self.random = random.Random(seed)
        self.header, arrays = parts(data)
        self.n_header = len(data) - START - len(arrays)
        self.version = struct.unpack("<I", data[8:12])[0]
        begin = -(START + self.n_header) % 64
        self.arrays = arrays[begin:]

    def __iter__(self):
        ways = [self.flip, self.cut, self.swap, self.edit, self.edit, self.edit, self.numbers]
        for _ in range(self.n_mutations):
            yield self.random.choice([*ways, self.numbers, self.shape, self.compress])()

    def flip(self):
        """Some bytes anywhere, without a new checksum or with one."""
        data = bytearray(self.data)
        for _ in range(self.random.choice([1, 1, 2, 20])):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        if self.random.random() < 0.2:
            return bytes(data)
        return packed(bytes(data[START:]), self.n_header, self.version)

    def compress(self):
        """What was damaged before it was compressed, or after it."""
        if self.random.random() < 0.5:
            data = self.random.choice([self.cut, self.swap, self.edit, self.numbers, self.shape])()
            return packed(zlib.compress(data[START:]), self.n_header, self.version)
        body = bytearray(self.compressed[START:])
        for _ in range(self.random.choice([1, 1, 2, 20])):
            body[self.random.randrange(len(body))] = self.random.randrange(256)
        if self.random.random() < 0.2:
            body = body[: self.random.randrange(len(body))]
        return packed(bytes(body), self.n_header, self.version)

    def cut(self):
        end = self.random.randrange(len(self.data))
        data = self.data[:end]
        return (
            data
            if self.random.random() < 0.5
            else packed(data[START:], self.n_header, self.version)
        )

    def swap(self):
        """Two stretches change places."""
        body = self.data[START:]
        a, b, c = sorted(self.random.sample(range(len(body)), 3))
        width = min(b - a, c - b, 512)
        one, two = body[a : a + width], body[b : b + width]
        body = body[:a] + two + body[a + width : b] + one + body[b + width :]
        return packed(body, self.n_header, self.version)

    def file(self, header):
        text = json.dumps(header).encode()
        padding = bytes(-(START + len(text)) % 64)
        return packed(text + padding + self.arrays, len(text), self.version)

    def edit(self):
        """Other values, fields that are gone, and values from elsewhere in the header."""
        header = copy.deepcopy(self.header)
        for _ in range(self.random.choice([1, 1, 1, 3])):
            collected = places(header["model"], [])
            owner, key = self.random.choice(collected)
            way = self.random.random()
            if way < 0.15:
                del owner[key]
            elif way < 0.5:
                source, place = self.random.choice(collected)
                owner[key] = copy.deepcopy(source[place])
            elif way < 0.6 and isinstance(owner[key], int | float):
                owner[key] = owner[key] + self.random.choice([-1, 1, 100])
            else:
                owner[key] = copy.deepcopy(self.random.choice(ODD))
        return self.file(header)

    def shape(self):
        """Other shapes, types and orders of arrays, huge ones too."""
        header = copy.deepcopy(self.header)
        entry = self.random.choice(header["arrays"])
        way = self.random.randrange(4)
        if way == 0:
            entry[0] = self.random.choice(["<f8", "<i8", "|b1", "<u8", "|O", "<U9", "<M8[s]", 3])
        elif way == 1:
            entry[1] = [self.random.choice([0, 1, -1, 2**31, 2**40, 2**62, 10**30, None, "3"])] * (
                self.random.randrange(6)
            )
        elif way == 2 and entry[1]:
            k = self.random.randrange(len(entry[1]))
            entry[1][k] = self.random.choice([0, entry[1][k] + 1, 2**33, entry[1][::-1]])
        else:
            entry[2] = self.random.choice(["F", "K", None])
        return self.file(header)

    def numbers(self):
        """Numbers of the arrays, in their own types."""
        body = bytearray(self.arrays)
        kind, shape, _ = self.random.choice(self.header["arrays"])
        place = 0
        for dtype, lengths, _ in self.header["arrays"]:
            place += -place % 64
            if dtype == kind and lengths == shape:
                break
            place += int(np.prod(lengths, dtype=int)) * np.dtype(dtype).itemsize
        array = np.frombuffer(body, kind, int(np.prod(shape, dtype=int)), place)
        if len(array):
            odd = [-2, -1, 0, 1, 2, 3, 1000, 2**31 - 1, -(2**31)]
            if array.dtype.kind == "f":
                odd += [np.nan, np.inf, -np.inf, 1e308, 1e-308]
            for _ in range(self.random.choice([1, 2, 10])):
                with np.errstate(all="ignore"):
                    value = np.array(self.random.choice(odd)).astype(array.dtype)
                array[self.random.randrange(len(array))] = value
        padding = bytes(-(START + self.n_header) % 64)
        text = self.data[START : START + self.n_header]
        return packed(text + padding + bytes(body), self.n_header, self.version)


def predict(model, matrix):
    """Predict as the class does, from numbers and codes."""
    if model.n_features_in_ != matrix.shape[1]:
        matrix = np.zeros((len(matrix), model.n_features_in_))
    with np.errstate(all="ignore"):
        if isinstance(model, jl.JOPLEnRegressor | jl.JOPLEnClassifier):
            raw = model.cell_model_.predict(matrix, 1)
            assert len(raw) == len(matrix)
            if isinstance(model, jl.JOPLEnClassifier):
                model.classes_[(raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)]
        elif hasattr(model, "cell_models_"):
            for cells in model.cell_models_:
                assert len(cells.predict(matrix, 1)) == len(matrix)
        elif hasattr(model, "task_names_"):
            for t in range(len(model.task_names_)):
                assert len(model.raw_predictions(matrix, t)) == len(matrix)
        else:
            assert len(model.predict(matrix)) == len(matrix)


@pytest.mark.parametrize(
    ("name", "is_old"), [*((n, False) for n in MODELS), *((n, True) for n in OLD_FILES)]
)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files(name, is_old):
    n_mutations = PER_OLD_FILE if is_old else PER_KIND
    if is_old:
        data = (OLD / f"{name}.jl").read_bytes()
        model = files._from_bytes(data)
    else:
        model = MODELS[name]()
        data = files._to_bytes(model)
    is_table = hasattr(model, "feature_names_in_")
    matrix = X[:3].copy()
    if is_table:
        matrix = np.nan_to_num(X[:3]) if name == "catboost" else read_rows(model, frame().iloc[:3])
        matrix[:, 1] = [0, 1, 5]
    matrix[0, 0] = np.nan
    predict(files._from_bytes(data), matrix)
    counts, longest = {"errors": 0, "valid": 0}, ""
    for mutated in Mutations(data, name, n_mutations):
        start = time.perf_counter()
        try:
            loaded = files._from_bytes(mutated)
        except jl.ModelFileError as error:
            longest = max(longest, str(error), key=len)
            counts["errors"] += 1
        else:
            predict(loaded, matrix)
            counts["valid"] += 1
        assert time.perf_counter() - start < 3
    assert "\n" not in longest
    assert len(longest) < 450
    assert counts["errors"] > n_mutations // 3
    assert counts["valid"] > n_mutations // 100, counts


def edited(data, change):
    """A file whose header was changed, with a right checksum."""
    mutations = Mutations(data, 0)
    change(mutations.header)
    return mutations.file(mutations.header)


@pytest.mark.parametrize("n_features", [2**31, 2**40, 10**300, -1, 4.0, "4", None])
def test_numbers_in_old_headers_ask_for_no_memory(n_features):
    data = (OLD / "bouts_classes.jl").read_bytes()
    start = time.perf_counter()
    with pytest.raises(jl.ModelFileError):
        files._from_bytes(edited(data, lambda h: h["model"].update(n_features=n_features)))
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize(
    ("name", "number", "field", "shape", "match"),
    [
        ("cells", 1, "centres", [2**36, 4, 0], r"partitioners\[1\]\.centres is empty"),
        ("rotated", 0, "rotations", [3, 0, 2**36], r"rotations has no possible directions"),
    ],
)
def test_arrays_without_bytes_ask_for_no_memory(name, number, field, shape, match):
    def change(header):
        partitioner = header["model"]["cell_model"]["partitioner"]["partitioners"][number]
        features = partitioner["features"]
        empty = len(header["arrays"])
        header["arrays"] += [["<f8", [0], "C"], ["<i8", [0], "C"], ["<f8", shape, "C"]]
        features["plan"].update(names=[], numbers={"array": empty + 1})
        for moment in ("mean", "scale", "low", "high"):
            features["scaler"][moment] = {"array": empty}
        partitioner[field] = {"array": empty + 2}

    data = plain(files._to_bytes(MODELS[name]()))
    data += bytes(-len(data) % 64)  # where the empty arrays are
    start = time.perf_counter()
    with pytest.raises(jl.ModelFileError, match=match):
        files._from_bytes(edited(data, change))
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda r: r["members"].pop(), r"members has 2 entries, but must have 3"),
        (
            lambda r: r["members"].__setitem__(0, {"class": "RootCell", "parameters": {}}),
            r"members holds something other than trees of numbers",
        ),
        (lambda r: r["members"][0]["trees"].update(n_features=4), r"n_features must be a whole"),
        (lambda r: r["parameters"].update(partitioner=3), r"something that is no partitioner"),
        (lambda r: r.update(rotations=r["split_gains"]), r"rotations has shape \(4,\)"),
    ],
)
def test_damaged_rotations(change, match):
    data = files._to_bytes(MODELS["rotated"]())
    with pytest.raises(jl.ModelFileError, match=match):
        files._from_bytes(
            edited(
                data, lambda h: change(h["model"]["cell_model"]["partitioner"]["partitioners"][0])
            )
        )


def test_number_of_mutations():
    assert len(MODELS) * PER_KIND >= 10_000
