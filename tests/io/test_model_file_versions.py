"""Files of every format are loaded, and predict what they predicted when they were written."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jointleaf as jl
from jointleaf.io._model_file.container import FORMAT

PLACE = Path(__file__).parent / "model_files"
FILES = sorted(path for path in PLACE.glob("*/*") if path.suffix in (".jl", ".jleaf"))


def table(rows):
    """Rows as they were given: an array, or a data frame."""
    if isinstance(rows, dict):
        return pd.DataFrame(rows)
    return np.array(rows, dtype=float)


def check(predicted, expected):
    if isinstance(predicted, list):
        for predicted_of_task, expected_of_task in zip(predicted, expected, strict=True):
            check(predicted_of_task, expected_of_task)
    elif predicted.dtype.kind == "f":
        np.testing.assert_allclose(predicted, np.array(expected, float), rtol=1e-9, atol=1e-12)
    else:
        assert predicted.tolist() == expected


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_old_files(path):
    model = jl.load(path)
    answers = json.loads(path.with_suffix(".json").read_text())
    rows = table(answers.pop("rows"))
    assert answers
    for method, expected in answers.items():
        check(getattr(model, method)(rows), expected)


def test_files_are_there_and_small():
    assert len(FILES) >= 40
    assert all(path.stat().st_size < 100_000 for path in FILES)
    assert {path.parent.name for path in FILES} == {f"format-{n + 1}" for n in range(FORMAT)}


def old(name):
    return jl.load(PLACE / "format-1" / f"{name}.jl")


@pytest.mark.parametrize("name", ["very_many_rows", "very_many_rows_classes"])
def test_old_files_of_boosted_trees_claim_no_joint_fit(name):
    model = old(name)
    assert model.solution_ is None
    assert model.penalty_ is None
    assert model.blend_.weights == {"staged_boosting": 1.0}
    assert model.report_.recipe == "boosting"
    assert model.n_iter_ == model.report_.n_rounds > 0
    n_outputs = model.cell_model_.n_outputs
    assert len(model.partitioner_.n_cells_) == 1 + n_outputs * model.n_iter_
    assert model.cv_results_ is None


@pytest.mark.parametrize(
    ("name", "recipe", "weights"),
    [
        ("many_rows", "blend", {"joint": 0.4392, "linear": 0, "boosted": 0.1957}),
        ("recipe_blend", "joint", {"joint": 0.4792, "linear": 0.2064, "leaf_values": 0.7028}),
        ("recipe_levels", "joint", {"joint": 0.6340, "categories": 0.0348}),
        ("recipe_table", "joint", {"joint": 0.8987, "leaf_values": 0}),
        ("laplacian", "joint", {"joint": 1}),
    ],
)
def test_old_files_tell_their_blend(name, recipe, weights):
    model = old(name)
    report = model.report_
    assert report.recipe == recipe
    assert set(weights) <= set(report.blend.weights)
    for component, weight in weights.items():
        assert report.blend.weights[component] == pytest.approx(weight, abs=1e-4)
    assert [part.name for part in report.components] == report.blend.active
    assert report.solution.converged
    if report.cv_results is not None:
        scores = report.cv_results["mean_test_score"]
        assert (scores < 0).all()
        assert report.cv_results["rank_test_score"][scores.argmax()] == 1
    assert report.lines()
