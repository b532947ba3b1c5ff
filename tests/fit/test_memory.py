"""The memory of a fit: estimates against measured peaks, and rejections before any work."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import RandomForestRegressor

import jointleaf as jl
from jointleaf._core import arrays
from jointleaf.partitions import (
    LightGBMPartitioner,
    RandomTreesPartitioner,
    RotatedPartitioner,
    UnionPartitioner,
)

#: Every fit runs in a fork of its own, for its own peak; one process loads everything for all.
MEASURE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import jointleaf as jl
from jointleaf.partitions import *
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
def measure(name, n, d, dtype, model, n_classes=3, told_by=None):
    model = eval(model)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    y = X[:, 0] + np.sin(3 * X[:, 1]) + rng.standard_normal(n)
    if hasattr(model, "predict_proba"):
        y = np.digitize(y, [-1, 1])
    if told_by == "slopes" or (told_by is None and n_classes != 3 and d > 200):
        y = (X[:, :8] @ rng.standard_normal((8, n_classes))).argmax(axis=1)
    elif n_classes != 3:  # trees tell them
        cluster = rng.integers(3 * n_classes, size=n)
        X[:, :8] += 2.5 * rng.standard_normal((3 * n_classes, 8))[cluster]
        y = cluster % n_classes
    before = peak()
    model.fit(X, y)
    looked_at = None if told_by is None else y  # what decides
    estimate = jl.estimate_memory(model, X, looked_at, n_classes=n_classes)
    print(name, peak() - before, estimate.total, flush=True)
X, y = np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0)
jl.JOPLEnRegressor(n_jobs=1).fit(X, y)  # loads LightGBM, too
for name, case in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        measure(name, *case)
        os._exit(0)
    os.wait()
"""
FITS = {
    "pcg": (50_000, 25, "f8", "jl.JOPLEnRegressor('steps', penalty=jl.Frobenius(1), max_iter=2)"),
    "float32": (
        100_000, 12, "f4",
        "jl.JOPLEnRegressor(StepPartitioner(60), penalty=jl.Frobenius(1), max_iter=2)",
    ),
    "dual": (2000, 10, "f8", "jl.JOPLEnRegressor('voronoi', penalty=jl.Frobenius(1))"),
    "fista": (30_000, 30, "f8", "jl.JOPLEnRegressor('steps', penalty=jl.L21(0.1), max_iter=2)"),
    "wide": (
        3000, 200, "f8",
        "jl.JOPLEnRegressor(VoronoiPartitioner(25, 8), penalty=jl.Frobenius(1), solver='pcg',"
        " max_iter=2)",
    ),
    "recipe": (21_000, 3, "f8", "jl.JOPLEnRegressor(random_state=0)"),
    "splits": (2_600, 12, "f8", "jl.JOPLEnRegressor(random_state=0)"),
    "exact": (1_000, 20, "f8", "jl.JOPLEnRegressor(random_state=0)"),
    "exact_classes": (700, 12, "f8", "jl.JOPLEnClassifier(random_state=0)"),
    "few_rows_of_classes": (100, 300, "f8", "jl.JOPLEnClassifier(random_state=0)", 12),
    "wide_classes": (300, 1000, "f8", "jl.JOPLEnClassifier(random_state=0)", 2),
    "wide_splits": (2500, 300, "f8", "jl.JOPLEnRegressor(random_state=0)"),
    "boosted_classes": (800, 30, "f8", "jl.JOPLEnClassifier(random_state=0)", 12),
    "looked_at_slopes": (100, 500, "f8", "jl.JOPLEnClassifier(random_state=0)", 20, "slopes"),
    "looked_at_two": (400, 1500, "f8", "jl.JOPLEnClassifier(random_state=0)", 2, "trees"),
    "looked_at_wide": (100, 5000, "f8", "jl.JOPLEnClassifier(random_state=0)", 20, "trees"),
    "looked_at_sample": (160_000, 8, "f8", "jl.JOPLEnClassifier(random_state=0)", 2, "trees"),
    "classes": (
        40_000, 15, "f8", "jl.JOPLEnClassifier('steps', penalty=jl.Frobenius(1), max_iter=1)"
    ),
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
def test_estimates_are_right_to_a_factor_of_one_and_a_half():
    code = [sys.executable, "-c", MEASURE, json.dumps(FITS)]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    bytes_of = {
        name: map(int, values) for name, *values in map(str.split, done.stdout.splitlines())
    }
    assert bytes_of.keys() == FITS.keys(), done.stderr
    for name, (measured, estimated) in bytes_of.items():
        assert measured > 20e6, name  # of less, few megabytes would decide
        assert measured / 1.5 < estimated < 1.5 * measured, name


def _few_rows_of_clusters():
    rng = np.random.default_rng(0)
    cluster, X = rng.integers(40, size=100), rng.standard_normal((100, 400))
    X[:, :8] += 2.5 * rng.standard_normal((40, 8))[cluster]
    return X, cluster % 20


def test_a_look_at_the_targets_tells_what_a_fit_has_no_use_for():
    X, y = _few_rows_of_clusters()
    model = jl.JOPLEnClassifier(random_state=np.random.RandomState(0))
    state = model.random_state.get_state()[1].tolist()
    whole, looked = jl.estimate_memory(model, X, n_classes=20), jl.estimate_memory(model, X, y)
    assert looked.total < whole.total / 10
    assert not hasattr(model, "columns_")  # the estimator stays as it was
    assert model.random_state.get_state()[1].tolist() == state
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((100, 6))
    X, y = X + factors @ rng.standard_normal((6, 400)), (factors @ rng.standard_normal((6, 9)))
    whole = jl.estimate_memory(model, X, n_classes=9)
    assert jl.estimate_memory(model, X, y.argmax(axis=1)) == whole  # which slopes tell


@pytest.mark.parametrize(
    "options", [{"time_budget": 60}, {"penalty": jl.Frobenius(0.1)}, {"cells": "constant"}]
)
def test_where_nothing_is_decided_a_look_changes_nothing(options):
    X, y = _few_rows_of_clusters()
    model = jl.JOPLEnClassifier(random_state=0, **options)
    assert jl.estimate_memory(model, X, y) == jl.estimate_memory(model, X, n_classes=20)


def test_of_very_many_rows_one_component_of_a_family_counts():
    model = jl.JOPLEnRegressor()
    few, many, more = (jl.estimate_memory(model, (n, 8)) for n in (150_000, 160_000, 320_000))
    # A thousand small trees, whose cells a byte tells, instead of hundreds of large ones.
    assert many.codes == 1001 * 160_000
    assert few.codes < many.codes
    # From 200,000 rows on models of the split are those of the fit, without codes of all rows.
    assert more.solver < 1.7 * many.solver


@pytest.mark.parametrize("cv", [None, 2, 5])
def test_models_of_a_split_are_those_of_the_fit_only_without_cv(cv):
    """Else codes of all rows are found anew, in four bytes besides the two of splits."""
    n = 400_000
    estimate = jl.estimate_memory(jl.JOPLEnRegressor(cv=cv), (n, 8))
    assert (estimate.solver > 6 * n * 1001) == (cv is not None)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_with_statistics_of_categories_all_rows_are_fitted(library):
    n, model = 220_000, jl.JOPLEnRegressor()
    few, many = (
        jl.estimate_memory(
            model, library({"a": np.zeros(n), "b": np.char.mod("c%d", np.arange(n) % k)})
        )
        for k in (50, 51)
    )
    assert few == jl.estimate_memory(model, (n, 2))
    assert many.solver > 4 * n * 1001 > few.solver
    given = jl.JOPLEnRegressor(categorical_features=["a"])  # whole numbers
    numbers = library({"a": np.arange(n) % 51, "b": np.zeros(n)})
    assert jl.estimate_memory(given, numbers) == many
    assert jl.estimate_memory(model, numbers) == few


def test_within_a_budget_all_components_of_very_many_rows_count():
    """As they do without one up to 150,000 rows."""
    few = jl.estimate_memory(jl.JOPLEnRegressor(), (150_000, 8))
    plain = jl.estimate_memory(jl.JOPLEnRegressor(), (160_000, 8))
    hurried = jl.estimate_memory(jl.JOPLEnRegressor(time_budget=60), (160_000, 8))
    for name in ("codes", "model", "solver"):
        expected = pytest.approx(getattr(few, name) * 160 / 150, rel=0.05)
        assert getattr(hurried, name) == expected, name
        assert getattr(plain, name) != expected, name


def test_histograms_of_wide_tables_are_limited():
    model = jl.JOPLEnRegressor()
    narrow, wide = (jl.estimate_memory(model, (20_000, d)) for d in (200, 201))
    of_each_leaf = 500 * 200 * (16 * 255 + 800)
    assert narrow.solver > of_each_leaf > 400e6
    assert wide.solver < narrow.solver / 2


def test_parts_grow_as_they_should():
    model = jl.JOPLEnRegressor("lightgbm", penalty=jl.Frobenius(0.1))
    one, two = (jl.estimate_memory(model, (n, 20)) for n in (100_000, 200_000))
    assert two.rows == 2 * one.rows
    assert two.codes == 2 * one.codes
    assert one.total == one.rows + one.codes + one.design + one.solver + one.model + one.other
    small = jl.estimate_memory(model, np.zeros((100_000, 20), np.float32))
    assert 2 * small.rows == one.rows
    more = jl.estimate_memory(model, (100_000, 20), n_classes=9)
    assert more == one  # a regressor has no classes
    assert str(one).startswith("MemoryEstimate(227 MB: rows 48 MB, codes 40 MB")


def test_partitions_are_counted():
    def codes(partitioner):
        model = jl.JOPLEnRegressor(partitioner, penalty=jl.Frobenius(0.1), root_cell=False)
        return jl.estimate_memory(model, (10_000, 5)).codes / 40_000

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 5)), rng.standard_normal(100)
    trees = RandomTreesPartitioner(7, 4)
    assert codes("steps") == 100
    assert codes([trees, LightGBMPartitioner(11), "voronoi"]) == 118
    assert codes([RotatedPartitioner(trees), "rotated_trees"]) == 107
    assert codes(UnionPartitioner([trees, trees])) == 14
    assert codes(RandomForestRegressor(13).fit(X, y)) == 13


def test_a_fit_that_cannot_fit_is_rejected_with_the_numbers(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 5)), rng.standard_normal(3000)
    model = jl.JOPLEnRegressor("voronoi", penalty=jl.Frobenius(0.1))
    monkeypatch.setattr("jointleaf._core.arrays.available_memory", lambda: 50_000_000)
    with pytest.raises(MemoryError, match=r"3000 rows with 5 .* about 1\d\d MB .* and 50 MB are"):
        model.fit(X, y)
    assert not hasattr(model, "partitioner_")
    tasks = jl.MultiTaskJOPLEnRegressor("steps", penalty=jl.DirtyLasso(0.1, 0.1))
    monkeypatch.setattr("jointleaf._core.arrays.available_memory", lambda: 10_000_000)
    with pytest.raises(MemoryError, match="600 rows with 5 columns"):
        tasks.fit([(X[:300], y[:300]), (X[300:600], y[300:600])])
    monkeypatch.setattr(
        "jointleaf._core.arrays.available_memory", lambda: None
    )  # not known: not rejected
    model.set_params(partitioner=RandomTreesPartitioner(3, 4)).fit(X[:100], y[:100])


def test_available_memory(monkeypatch, tmp_path):
    found = arrays.available_memory()
    assert found > 0 if sys.platform == "linux" else found is None or found > 0
    for name, text in (("max", "9000"), ("current", "5000"), ("stat", "anon 1\nfile 3000\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(
        arrays, "_MEMORY_LIMITS", ((str(tmp_path), "memory.max", "memory.current", "file"),)
    )
    assert arrays.available_memory() == 7000
    (tmp_path / "memory.max").write_text("max\n")
    # Two readings of a live system differ: the one of the system is given.
    monkeypatch.setattr(arrays, "_system_memory", lambda: 123_456_789)
    assert arrays.available_memory() == 123_456_789
    monkeypatch.setenv(arrays.MEMORY_VARIABLE, "1e9")
    assert arrays.available_memory() == 10**9
    monkeypatch.setenv(arrays.MEMORY_VARIABLE, "much")
    with pytest.raises(ValueError, match="JOINTLEAF_MAX_MEMORY='much'"):
        arrays.available_memory()


def test_a_look_needs_the_rows_themselves():
    with pytest.raises(ValueError, match=r"y is given, but X=\(400, 1500\) is the number of rows"):
        jl.estimate_memory(jl.JOPLEnClassifier(), (400, 1500), np.arange(400) % 2)


def test_bad_arguments():
    with pytest.raises(TypeError, match="estimator is a RandomForestRegressor"):
        jl.estimate_memory(RandomForestRegressor(), (10, 2))
    with pytest.raises(ValueError, match=r"X=\(10,\) must be rows"):
        jl.estimate_memory(jl.JOPLEnRegressor(), (10,))
