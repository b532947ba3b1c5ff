"""Model files: what is saved is loaded, and predicts the same numbers."""

import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jointleaf as jl
from blend_fits import blended, small_fits
from jointleaf.io._model_file import files
from jointleaf.partitions import LightGBMPartitioner, RootCell
from model_kinds import KINDS, TASKS, X, frame, make, rows_for

METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function")
Y = TASKS["a"][1]


def equal(a, b):
    """Whether two fitted values are alike, number for number."""
    if isinstance(a, np.ndarray):
        if a.dtype == object:
            return a.tolist() == b.tolist()
        same_type = a.dtype == b.dtype or a.dtype.kind == "U"
        return (
            same_type and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, int | float | str | bool | None):
        return a == b or (a != a and b != b)
    return type(a) is type(b)


def same_array(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_array, a, b))
    return a.shape == b.shape and (a == b).all()


@pytest.fixture(scope="module")
def small():
    return jl.JOPLEnRegressor("steps", penalty=jl.Frobenius(0.1), random_state=0).fit(X, Y)


@pytest.mark.parametrize("name", KINDS)
def test_round_trip(name, tmp_path):
    model = make(name)
    path, again = tmp_path / "model.jleaf", tmp_path / "again.jleaf"
    jl.save(model, path)
    loaded = jl.load(path)
    assert type(loaded) is type(model)
    rows = rows_for(model)
    for method in METHODS:
        if hasattr(model, method):
            assert same_array(getattr(model, method)(rows), getattr(loaded, method)(rows)), method
    for key, value in vars(model).items():
        if key.endswith("_") and key != "forest_":
            assert equal(value, getattr(loaded, key)), key
    if hasattr(model, "explain"):
        which = {"task": "b"} if name == "bouts, classes" else {}
        a, b = (m.explain(rows[:5], **which) for m in (model, loaded))
        assert equal(a.values, b.values)
        assert equal(a.baseline, b.baseline)
    jl.save(loaded, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["recipe", "union", "rotated", "tasks", "bouts", "linear forest"])
def test_loaded_models_can_be_fitted_again(name, tmp_path):
    model = make(name)
    jl.save(model, tmp_path / "model.jleaf")
    loaded = jl.load(tmp_path / "model.jleaf")
    fresh = clone(loaded)
    assert set(fresh.get_params(deep=False)) == set(model.get_params(deep=False))
    if name == "union":  # its random state had been drawn from
        fresh.set_params(random_state=0)
    mine = clone(model).set_params(random_state=0)
    training = (TASKS,) if name in ("tasks", "bouts") else (X, Y)
    if name == "rotated":
        training = (X, Y > 0)
    rows = X[:20]
    a, b = (m.fit(*training).predict(rows) for m in (fresh, mine))
    assert (a == b).all()


def test_parameters_come_back(tmp_path):
    model = make("union")
    jl.save(model, tmp_path / "model.jleaf")
    loaded = jl.load(tmp_path / "model.jleaf")
    assert repr(loaded.penalty) == repr(model.penalty)
    assert repr(loaded.penalty_) == repr(model.penalty_)
    assert [str(p) for p in loaded.partitioner] == [str(p) for p in model.partitioner]
    assert loaded.random_state.randint(2**31) == model.random_state.randint(2**31)
    assert (loaded.clip, loaded.n_jobs, loaded.add_indicator) == ("cell", 2, True)


def test_what_is_left_out_is_told_when_it_is_needed(tmp_path):
    for name in ("forest", "xgboost"):
        jl.save(make(name), tmp_path / "model.jleaf")
        with pytest.raises(ValueError, match="left out when they were pickled or saved"):
            jl.load(tmp_path / "model.jleaf").fit(X, Y)


def test_polars(tmp_path):
    pl = pytest.importorskip("polars")
    table = pl.from_pandas(frame().drop(columns="house"))
    model = jl.JOPLEnRegressor("steps", penalty=jl.Frobenius(0.1)).fit(table, Y)
    jl.save(model, tmp_path / "model.jleaf")
    loaded = jl.load(tmp_path / "model.jleaf")
    assert (loaded.predict(table) == model.predict(table)).all()
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(table.rename({"size": "length"}))


def test_no_library_is_needed(tmp_path):
    """Loaded and predicting where no tree library can be imported."""
    code = """
import sys
for name in ("lightgbm", "catboost", "xgboost", "pandas"):
    sys.modules[name] = None
import numpy as np, jointleaf
for name in sys.argv[1:]:
    model = jointleaf.load(name + ".jleaf")
    X, expected = np.load(name + ".X.npy"), np.load(name + ".f.npy")
    assert (model.predict(X) == expected).all(), name
    assert sys.modules["lightgbm"] is None
"""
    names = []
    for name in ("recipe", "blend", "xgboost", "union", "linear forest, three", "bouts"):
        model = make(name)
        rows = rows_for(model)
        place = str(tmp_path / name.replace(",", "").replace(" ", "_"))
        jl.save(model, place + ".jleaf")
        np.save(place + ".X.npy", rows)
        np.save(place + ".f.npy", model.predict(rows))
        names.append(place)
    subprocess.run([sys.executable, "-c", code, *names], check=True, env=dict(os.environ))


# -- what is an error ---------------------------------------------------------------------------


def test_pipelines_are_rejected_with_the_remedy(small, tmp_path):
    pipeline = make_pipeline(StandardScaler(), small)
    with pytest.raises(jl.ModelFileError, match=r"save\(pipeline\[-1\], path\)"):
        jl.save(pipeline, tmp_path / "model.jleaf")
    jl.save(pipeline[-1], tmp_path / "model.jleaf")


def test_other_models_are_rejected(tmp_path):
    with pytest.raises(jl.ModelFileError, match="RandomForestRegressor cannot be saved"):
        jl.save(RandomForestRegressor(), tmp_path / "model.jleaf")
    with pytest.raises(NotFittedError):
        jl.save(jl.JOPLEnRegressor(), tmp_path / "model.jleaf")
    assert not list(tmp_path.iterdir())


def test_own_partitioners_are_rejected(tmp_path):
    class Own(RootCell):
        pass

    model = jl.JOPLEnRegressor(Own(), penalty=jl.Frobenius(1)).fit(X, Y)
    with pytest.raises(jl.ModelFileError, match="Own is no partitioner of jointleaf"):
        jl.save(model, tmp_path / "model.jleaf")


def test_a_newer_version_is_one_clear_line(small, tmp_path):
    path = tmp_path / "model.jleaf"
    jl.save(small, path)
    data = path.read_bytes()
    path.write_bytes(data[:8] + struct.pack("<I", 3) + os.urandom(200))
    with pytest.raises(
        jl.ModelFileError, match=r"format 3, of a newer jointleaf.*upgrade"
    ) as raised:
        jl.load(path)
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


def test_truncated_files_are_one_clear_line(small, tmp_path):
    path = tmp_path / "model.jleaf"
    jl.save(small, path)
    data = path.read_bytes()
    for length in (3, 8, 12, 31, 32, 40, 1000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(jl.ModelFileError, match="truncated") as raised:
            jl.load(path)
        assert "\n" not in str(raised.value)
    path.write_bytes(b"")
    with pytest.raises(jl.ModelFileError, match="the file is empty"):
        jl.load(path)
    path.write_bytes(b"PK\x03\x04" + data)
    with pytest.raises(jl.ModelFileError, match="not a jointleaf model file"):
        jl.load(path)
    path.write_bytes(data[:500] + b"?" + data[501:])
    with pytest.raises(jl.ModelFileError, match="checksum"):
        jl.load(path)


def test_large_files_are_rejected_before_they_are_read(small, tmp_path):
    path = tmp_path / "model.jleaf"
    jl.save(small, path)
    size = path.stat().st_size
    with pytest.raises(jl.ModelFileError, match=f"{size} bytes, more than max_bytes=1000"):
        jl.load(path, max_bytes=1000)
    jl.load(path, max_bytes=64 * size)
    with pytest.raises(jl.ModelFileError, match="raise max_bytes"):
        jl.load(path, max_bytes=size)  # it is compressed
    with open(path, "r+b") as file:
        file.truncate(files.MAX_BYTES + 1)  # sparse: nothing is written
    with pytest.raises(jl.ModelFileError, match="more than max_bytes"):
        jl.load(path)
    with pytest.raises(FileNotFoundError):
        jl.load(tmp_path / "none.jleaf")


# -- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_a_failure_leaves_the_old_file(small, tmp_path, monkeypatch, broken):
    path = tmp_path / "model.jleaf"
    path.write_bytes(b"old")

    def fail(*arguments):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, broken, fail)
        with pytest.raises(OSError, match="no space"):
            jl.save(small, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["model.jleaf"]
    jl.save(small, path)
    assert (jl.load(path).predict(X) == small.predict(X)).all()


def test_permissions_and_links(small, tmp_path):
    path, link = tmp_path / "model.jleaf", tmp_path / "link.jleaf"
    jl.save(small, path)
    (tmp_path / "usual").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
    path.chmod(0o640)
    link.symlink_to(path)
    jl.save(small, link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_model_of_100_trees_loads_in_50_ms(tmp_path):
    from time import perf_counter

    model = jl.JOPLEnRegressor("lightgbm", penalty=jl.Frobenius(0.1), random_state=0).fit(X, Y)
    assert len(model.partitioner_.n_cells_) == 101
    jl.save(model, tmp_path / "model.jleaf")
    times = []
    for _ in range(5):
        start = perf_counter()
        jl.load(tmp_path / "model.jleaf")
        times.append(perf_counter() - start)
    assert min(times) < 0.05


def test_constant_cells_store_no_slopes(tmp_path):
    """A model of boosted trees on 1,000 columns is as small as its trees."""
    rows = np.random.default_rng(0).standard_normal((100, 1000))
    y = rows[:, 0] + np.sin(3 * rows[:, 1])
    path = tmp_path / "model.jleaf"
    trees = LightGBMPartitioner(20, 8)
    options = {"cells": "constant", "root_cell": False, "penalty": jl.Frobenius(0.1)}
    model = jl.JOPLEnRegressor(trees, **options).fit(rows, y)
    jl.save(model, path)
    n_cells = model.cell_model_.layout.n_cells
    assert n_cells >= 100
    assert path.stat().st_size < 200_000 < 8 * 1000 * n_cells
    with small_fits():
        model = blended(jl.JOPLEnRegressor).fit(rows, y)  # of both kinds
    jl.save(model, path)
    layout = model.cell_model_.layout
    assert 0 < layout.n_linear_cells < layout.n_cells / 3
    assert path.stat().st_size < 8 * 1000 * layout.n_linear_cells + 500 * layout.n_cells
    assert (jl.load(path).predict(rows) == model.predict(rows)).all()


def test_metadata_comes_back_and_leaves_the_model_as_it_was(small, tmp_path):
    path = tmp_path / "model.jleaf"
    metadata = {"name": "<é>", "scores": [1, 2.5, None, True], "deep": {"x": {}}}
    jl.save(small, path, metadata=metadata)
    assert jl.load_metadata(path) == metadata
    assert (jl.load(path).predict(X) == small.predict(X)).all()
    jl.save(small, path)
    assert jl.load_metadata(path) == {}


@pytest.mark.parametrize("wrong", [{"x": np.nan}, {"x": (1, 2)}, {1: "x"}, {"x": np.ones(2)}])
def test_metadata_that_would_come_back_otherwise_is_rejected(small, tmp_path, wrong):
    with pytest.raises(jl.ModelFileError, match="metadata must be plain JSON values"):
        jl.save(small, tmp_path / "model.jleaf", metadata=wrong)
    assert not list(tmp_path.iterdir())


def test_metadata_of_a_damaged_file_is_an_error(small, tmp_path):
    path = tmp_path / "model.jleaf"
    jl.save(small, path, metadata={"x": 1})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(jl.ModelFileError, match=r"model\.jleaf: the file is truncated"):
        jl.load_metadata(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    message = r"The folder '.*none' does not exist, create it first"
    with pytest.raises(FileNotFoundError, match=message) as error:
        files.write_whole(tmp_path / "none" / "model.jleaf", b"")
    assert ".part" not in str(error.value)
