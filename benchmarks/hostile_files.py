"""Load model files that were made to take much memory or time, each in a process of its own.

    python -m benchmarks.hostile_files

Prints the size of every file, what loading it gave, and the time and the memory that it took beyond
that of a process with jointleaf. The files are those with which an attacker took gigabytes from an
earlier version, and then those that two reviewers made who knew the code of the reader.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(_TESTS))

import jointleaf as jl  # noqa: E402
from jointleaf.io._model_file import files  # noqa: E402
from jointleaf.io._model_file.container import pack, unpack  # noqa: E402
from jointleaf.partitions import RandomTreesPartitioner, RootCell, VoronoiPartitioner  # noqa: E402
from model_file_damage import put_chain  # noqa: E402

_LIMIT = 12 * 2**30
_OLD = _TESTS / "io" / "model_files" / "format-1"


def changed(model: Any, change: Callable[[dict[str, Any], list], None], **metadata: Any) -> bytes:
    """Return the file of a model whose header and arrays were changed, with a right checksum."""
    file = unpack(files._to_bytes(model))
    header, arrays = {**file.header, **metadata}, list(file.arrays)
    del header["arrays"]
    change(header["model"], arrays)
    return pack(header, arrays)


def fitted(partitioner: Any, d: int = 2, **options: Any) -> Any:
    """Return a small model of d columns."""
    X = np.random.default_rng(0).standard_normal((20, d))
    return jl.JOPLEnRegressor(partitioner, penalty=jl.Frobenius(0.1), **options).fit(X, X[:, 0])


def texts(n: int) -> bytes:
    """Return a file with one long text among many short ones."""
    value = {"texts": ["a" * n] + [""] * n}
    return changed(
        fitted(RandomTreesPartitioner(2, 3)),
        lambda model, _: model["parameters"].update(categorical_features=value),
    )


def centres() -> bytes:
    """Return a file with very many centres in a space without dimensions."""

    def change(model: dict[str, Any], arrays: list) -> None:
        cells = model["cell_model"]["partitioner"]["partitioners"][0]
        empty = {"array": len(arrays)}
        arrays += [np.zeros(0), np.zeros(0, np.int64), np.zeros((2**30, 1, 0))]
        cells["features"]["plan"].update(names=[], numbers={"array": len(arrays) - 2})
        cells["features"]["scaler"].update(mean=empty, scale=empty, low=empty, high=empty)
        cells["centres"] = {"array": len(arrays) - 1}

    return changed(fitted(VoronoiPartitioner(2, 3)), change)


def roots(n: int) -> bytes:
    """Return a file with a union of n root cells, and n columns."""

    def change(model: dict[str, Any], arrays: list) -> None:
        root = {"class": "RootCell", "parameters": {}}
        union = {"class": "UnionPartitioner", "partitioners": [root] * n}
        union["parameters"] = {"partitioners": [{"partitioner": root}]}
        model["cell_model"]["partitioner"] = union

    return changed(fitted(RootCell(), n, root_cell=False), change)


def tasks(n: int, d: int) -> bytes:
    """Return a file of n tasks that share their arrays."""
    X = np.random.default_rng(0).standard_normal((30, 2))
    model = jl.BoUTSRegressor(1, 1).fit({"a": (X, X[:, 0]), "b": (X, X[:, 1])})

    def change(fields: dict[str, Any], arrays: list) -> None:
        large, zeros, none = ({"array": len(arrays) + k} for k in range(3))
        arrays += [np.ones(d), np.zeros(d, np.int64), np.zeros(0, np.int64)]
        columns = [{"label": f"x{j}", "categories": None} for j in range(d)]
        fields["columns"] = {"columns": columns, "statistics": None}
        trees = {**fields["trees"][0], "n_features": d, "n_categories": zeros}
        fields |= {
            "task_names": list(range(n)),
            "task_importances": [large] * n,
            "trees": [trees] * n,
            "leaf_weights": fields["leaf_weights"][:1] * n,
            "task_features": [none] * n,
            "universal_features": none,
        }

    return changed(model, change)


def trace() -> bytes:
    """Return a file with a long trace of a solver."""

    def change(model: dict[str, Any], arrays: list) -> None:
        model["report"]["joint"]["solution"]["trace"] = {"array": len(arrays)}
        arrays.append(np.random.default_rng(0).standard_normal((10**6, 4)))

    return changed(fitted(RandomTreesPartitioner(2, 3)), change)


def chain(n: int) -> bytes:
    """Return a file with a tree of which every split has a leaf."""
    small = fitted(RandomTreesPartitioner(1, 3))
    return changed(small, lambda model, arrays: put_chain(model, arrays, n))


def with_parameter(**values: Any) -> bytes:
    """Return a file with other parameters."""
    small = fitted(RandomTreesPartitioner(2, 3))
    return changed(small, lambda model, _: model["parameters"].update(values))


def metadata(n: int) -> bytes:
    """Return a file with very many empty lists."""
    small = fitted(RandomTreesPartitioner(2, 3))
    return changed(small, lambda *_: None, metadata={"x": [[]] * n})


# -- of a reviewer ------------------------------------------------------------------------------


def in_report(**fields: Any) -> bytes:
    """Return a file with another report."""
    small = fitted(RandomTreesPartitioner(2, 3))
    return changed(small, lambda model, _: model["report"].update(fields))


def constant(n: int) -> bytes:
    """Return a file whose blend adds texts, one of which is long."""
    weights = {"dict": [["joint", 1.0]]}
    return in_report(blend={"weights": weights, "constant": ["a" * n] + [""] * n})


def penalties(n: int) -> bytes:
    """Return a file of format 1 with n penalties for n tasks."""
    file = unpack((_OLD / "tasks.jl").read_bytes())
    header, model = dict(file.header), file.header["model"]
    del header["arrays"]
    model["models"], model["penalties"], model["solutions"] = [None] * n, [None] * n, None
    data = pack(header, file.arrays)
    return data[:8] + struct.pack("<I", 1) + data[12:]


def arrays_of_a_parameter(n: int) -> bytes:
    """Return a file with a list of arrays that an error would show."""

    def change(model: dict[str, Any], arrays: list) -> None:
        model["parameters"]["penalty"] = [{"array": len(arrays)}] * n
        arrays.append(np.arange(1000) % 50 + np.int8(50))

    return changed(fitted(RandomTreesPartitioner(2, 3)), change)


def chains(n: int) -> bytes:
    """Return a file with a union of n chains of 4,095 splits."""
    file = unpack(chain(4095))
    header = dict(file.header)
    del header["arrays"]
    union = header["model"]["cell_model"]["partitioner"]
    union["partitioners"] = union["partitioners"][:1] * n
    return pack(header, file.arrays)


def cells_of_tasks(n: int, size: int) -> bytes:
    """Return a file of format 1 with n tasks, whose numbers of cells are one array."""
    file = unpack((_OLD / "tasks.jl").read_bytes())
    header, arrays = dict(file.header), [*file.arrays, np.zeros(size, np.int8)]
    del header["arrays"]
    large = {"array": len(arrays) - 1}
    header["model"] |= {
        "models": [{"theta": large, "offset": large}] * n,
        "solutions": [{"theta": large, "n_cells": large}] * n,
        "penalties": [{"left_out": "x"}] * n,
        "cv_results": None,
    }
    data = pack(header, arrays)
    return data[:8] + struct.pack("<I", 1) + data[12:]


def probing_dicts(n: int) -> bytes:
    """Return a file with n dicts of 16,000 keys each for which a dict looks long."""
    keys = {"dict": [[key, 0] for key in probing_keys(16_000, 2**15)]}
    return with_parameter(categorical_features=[keys] * n)


def probing_keys(n: int = 40_000, size: int = 2**16) -> list[int]:
    """Return numbers for which a dict of `size` places looks for a free one very long.

    Most follow each other on the way on which a dict looks for free places; the others come upon
    this way and follow it to its end.
    """
    taken, way, place = np.zeros(size, bool), [], 1
    for _ in range(3 * n // 4):
        way.append(place)
        taken[place] = True
        place = (5 * place + 1) % size
    number = np.arange(size, 2**23)
    place, rest = number % size, number.copy()
    for _ in range(8):
        number, place, rest = (part[taken[place]] for part in (number, place, rest))
        rest >>= 5
        place = (5 * place + rest + 1) % size
    return way + number[taken[place]].tolist()[: n - len(way)]


_PADDED = {"dict": [["x", {"tuple": ["a" * 40_000] + [""] * 40_000}]]}

FILES = {
    "one text of 50,000 characters, 50,000 short": lambda: texts(50_000),
    "one text of 20,000 characters, 20,000 short": lambda: texts(20_000),
    "2^30 centres without dimensions": centres,
    "union of 20,000 root cells, 20,000 columns": lambda: roots(20_000),
    "union of 100,000 root cells, 100,000 columns": lambda: roots(100_000),
    "5,000 tasks that share arrays, 10^6 columns": lambda: tasks(5_000, 10**6),
    "metadata of 30 million empty lists": lambda: metadata(30 * 10**6),
    "a trace of 10^6 steps": trace,
    "a chain of 10^6 splits": lambda: chain(10**6),
    "40,000 keys of one hash": lambda: with_parameter(
        categorical_features={"dict": [[k * (2**61 - 1), 0] for k in range(1, 40_001)]}
    ),
    "device=3": lambda: with_parameter(device=3),
    "n_jobs=65,536": lambda: with_parameter(n_jobs=65_536),
    "one text of 40,000 characters in a table of results": lambda: in_report(cv_results=_PADDED),
    "one text of 40,000 characters in a constant": lambda: constant(40_000),
    "20,000 penalties for 20,000 tasks of format 1": lambda: penalties(20_000),
    "100,000 arrays in a parameter that is wrong": lambda: arrays_of_a_parameter(100_000),
    "a union of 4,000 chains of 4,095 splits": lambda: chains(4_000),
    "40,000 numbers for which a dict looks long": lambda: with_parameter(
        categorical_features={"dict": [[key, 0] for key in probing_keys()]}
    ),
    "10,000 tasks of format 1 whose cells are one array": lambda: cells_of_tasks(10_000, 8 * 10**6),
    "20 dicts of 16,000 such numbers": lambda: probing_dicts(20),
}


def load(path: str) -> None:
    """Load a file with a limit of memory; print the outcome, seconds and megabytes."""
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT, _LIMIT))
    before = _peak()
    start = time.perf_counter()
    try:
        jl.load(path)
        outcome = "loaded"
    except jl.ModelFileError as error:
        outcome = str(error).removeprefix(f"{path}: ")
    seconds = time.perf_counter() - start
    print(json.dumps([outcome, seconds, _peak() - before]))


def _peak() -> float:
    """Return the megabytes that this process has had at most (of Linux), without its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Make every file, load it in another process, and print a line."""
    for name, make in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.jleaf"
            path.write_bytes(make())
            size = path.stat().st_size / 1e6
            command = [sys.executable, "-m", "benchmarks.hostile_files", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        outcome, seconds, peak = json.loads(done.stdout)
        print(
            f"| {name} | {size:.2f} MB | +{peak:.0f} MB | {seconds:.1f} s | {outcome} |", flush=True
        )


if __name__ == "__main__":
    load(sys.argv[1]) if len(sys.argv) > 1 else main()
