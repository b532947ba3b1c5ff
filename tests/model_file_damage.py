"""Damage to model files, with right checksums, and models to damage."""

import copy
import json
import math
import random
import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest

import jointleaf as jl
from jointleaf.io._model_file import files
from jointleaf.io._model_file.container import pack, unpack
from jointleaf.partitions import RandomTreesPartitioner, StepPartitioner
from model_kinds import MISSING, ROTATED, THREE, TREES, TWO, VORONOI, X, Y, frame, make

START = 32
MOST = 2**26  # bytes that any file may take
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

    def __init__(self, data, seed, n_mutations=1):
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
            yield self.random.choice([*ways, self.numbers, self.shape, self.compress, self.grow])()

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

    def file(self, header, tail=b""):
        text = json.dumps(header).encode()
        padding = bytes(-(START + len(text)) % 64)
        return packed(text + padding + self.arrays + tail, len(text), self.version)

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

    def grow(self):
        """Lists, texts and dicts that are very long, and arrays without numbers or of zeros."""
        header = copy.deepcopy(self.header)
        owner, key = self.random.choice(places(header["model"], []))
        n = self.random.choice([10, 300, 5000])
        value = owner[key]
        zeros = len(header["arrays"])
        if self.random.random() < 0.2:
            shape = [self.random.choice([0, 1, 4, n, 2**20, 2**34]) for _ in range(3)]
            entry = [self.random.choice(["<f8", "<i8", "|b1"]), shape, "C", 0]
            header["arrays"].append(entry)
            owner[key] = {"array": zeros}
            n_bits = -(-math.prod(shape) // 8)
            place = -(len(self.arrays)) % 64
            tail = bytes(place + (n_bits if n_bits < 2**21 else 0))
            return self.file(header, tail)
        if isinstance(value, list) and value:
            owner[key] = [*value, *[self.random.choice(value)] * n]
        elif isinstance(value, str):
            owner[key] = value + "a" * 20 * n
        else:
            wide = ["a" * n, *[""] * n]
            numbers = [[k * (2**61 - 1), 0] for k in range(n)]
            kinds = [{"texts": wide}, {"dict": numbers}, {"objects": [value] * n}]
            owner[key] = self.random.choice([*kinds, [value] * n])
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
        chosen = self.random.randrange(len(self.header["arrays"]))
        place = 0
        for kind, shape, _, *count in self.header["arrays"][: chosen + 1]:
            size, width = math.prod(shape), np.dtype(kind).itemsize
            place += -place % 64 + (-(-size // 8) if count else 0)
            n_values = count[0] if count else size
            place += n_values * width
        array = np.frombuffer(body, kind, n_values, place - n_values * width)
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
                assert len(model._raw_of_task(matrix, t)) == len(matrix)
        else:
            numbers = np.clip(model.encoding_.numbers(matrix), -1e38, 1e38)
            raw = model.linear_.predict(matrix) + model.forest_.predict(numbers)
            assert len(raw) == len(matrix)


def edited(data, change):
    """A file whose header was changed, with a right checksum."""
    mutations = Mutations(data, 0)
    change(mutations.header)
    return mutations.file(mutations.header)


def with_parameter(data, value, name="categorical_features"):
    return edited(data, lambda header: header["model"]["parameters"].update({name: value}))


def refused(data, match="more memory than a file of its size"):
    """Load a file that must be refused in bounded time and memory."""
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(jl.ModelFileError, match=match):
        files._from_bytes(data)
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 5
    assert peak < MOST + 256 * len(data)


def put_chain(model, arrays, n, n_stumps=0):
    """Give the first member of a model's fields a tree of n splits, each of which has a leaf.

    Trees without splits come before it; their arrays are appended to those of the file.
    """
    trees = model["cell_model"]["partitioner"]["partitioners"][0]["trees"]
    parts = {
        "n_leaves": np.array([*[1] * n_stumps, n + 1]),
        "starts": np.array([*[0] * n_stumps, 0, n]),
        "feature": np.zeros(n, np.int32),
        "threshold": np.arange(n, 0.0, -1.0),
        "left": np.append(np.arange(1, n), ~n).astype(np.int32),
        "right": ~np.arange(n, dtype=np.int32),
        "missing_left": np.zeros(n, bool),
        "table": np.full(n, -1, np.int64),
        "cell_of_leaf": np.append(np.zeros(n_stumps), np.arange(n + 1)).astype(np.int32),
    }
    for name, array in parts.items():
        trees[name] = {"array": len(arrays)}
        arrays.append(array)
    trees["leaf_values"] = None


def with_chain(model, n, n_stumps=0):
    """A file of a model with a tree of n splits, each of which has a leaf."""
    whole = unpack(files._to_bytes(model))
    put_chain(whole.header["model"], whole.arrays, n, n_stumps)
    del whole.header["arrays"]
    return pack(whole.header, whole.arrays)
