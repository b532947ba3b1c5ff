"""Damaged model files: every one raises ModelFileError, or it is a model that predicts."""

import time
from pathlib import Path

import numpy as np
import pytest

import jointleaf as jl
from jointleaf._data.rows import read_rows
from jointleaf.io._model_file import files
from model_file_damage import MODELS, Mutations, edited, plain, predict
from model_kinds import X, frame

PER_KIND, PER_OLD_FILE = 400, 120  # benchmarks/fuzz_files.py damages as many as one likes
OLD = Path(__file__).parent / "model_files" / "format-1"
OLD_FILES = ("recipe_table", "many_rows", "tasks_alone", "bouts_classes", "forest")


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
        start = time.process_time()
        try:
            loaded = files._from_bytes(mutated)
        except jl.ModelFileError as error:
            longest = max(longest, str(error), key=len)
            counts["errors"] += 1
        else:
            predict(loaded, matrix)
            counts["valid"] += 1
        assert time.process_time() - start < 3
    assert "\n" not in longest
    assert len(longest) < 450
    assert counts["errors"] > n_mutations // 3
    assert counts["valid"] > n_mutations // 100, counts


@pytest.mark.parametrize("n_features", [2**31, 2**40, 10**300, -1, 4.0, "4", None])
def test_numbers_in_old_headers_ask_for_no_memory(n_features):
    data = (OLD / "bouts_classes.jl").read_bytes()
    start = time.process_time()
    with pytest.raises(jl.ModelFileError):
        files._from_bytes(edited(data, lambda h: h["model"].update(n_features=n_features)))
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("name", "number", "field", "shape", "match"),
    [
        ("cells", 1, "centres", [9, 4, 0], r"partitioners\[1\]\.centres is empty"),
        ("cells", 1, "centres", [2**36, 4, 0], r"64 times the file"),
        ("rotated", 0, "rotations", [3, 0, 9], r"rotations has no possible directions"),
        ("rotated", 0, "rotations", [3, 0, 2**36], r"64 times the file"),
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
    start = time.process_time()
    with pytest.raises(jl.ModelFileError, match=match):
        files._from_bytes(edited(data, change))
    assert time.process_time() - start < 3


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
    assert len(MODELS) * PER_KIND >= 3_000


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda h: h.pop("model"), "lacks its parts jointleaf, model and arrays"),
        (lambda h: h.update(other=1), "lacks its parts jointleaf, model and arrays"),
        (lambda h: h["model"].update(classes={"texts": ["a"]}), "has less than 2 labels"),
    ],
)
def test_headers_without_a_part_and_a_single_class(change, match):
    data = files._to_bytes(MODELS["trees"]())
    with pytest.raises(jl.ModelFileError, match=match):
        files._from_bytes(edited(data, change))
