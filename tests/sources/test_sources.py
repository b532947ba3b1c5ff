"""Fits of sources: the same model as in memory, whatever the batches, and nothing left behind."""

import re
import tracemalloc
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import jointleaf
from jointleaf import (
    BatchRows,
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    ParquetRows,
    fit_source,
)
from jointleaf._core.blocks import BlockDesign
from jointleaf._core.problem import Problem
from jointleaf._sources import checkpoint as checkpoints
from jointleaf._sources import rows as many_rows
from jointleaf.partitions import LightGBMPartitioner

N = 50_000


def _rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + 0.3 * rng.standard_normal(n)
    return X, y


def _small(kind=JOPLEnRegressor, **parameters):
    trees = LightGBMPartitioner(20, n_cells=6)
    return kind(trees, penalty=Frobenius(0.001), random_state=0, **parameters)


def _write(folder, X, y, bounds, **columns):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.split(np.arange(len(y)), bounds)):
        columns_here = {f"x{j}": X[part, j] for j in range(X.shape[1])}
        more = {name: np.asarray(values)[part] for name, values in columns.items()}
        pq.write_table(
            pa.table(columns_here | more | {"y": y[part]}), folder / f"part{number}.parquet"
        )
    return folder


def test_a_folder_of_files_equals_the_same_rows_in_memory(tmp_path):
    X, y = _rows(N)
    folder = _write(tmp_path / "rows", X, y, [20_000, 20_001])
    settings = {"sample_rows": 3000, "validation_rows": 2000}
    blocks = ParquetRows(folder, "y", batch_rows=7000)
    model = fit_source(_small(), blocks, cache_dir=tmp_path, **settings)
    names = [f"x{j}" for j in range(4)]
    at_once = BatchRows(lambda: [(pl.DataFrame(X, schema=names), y)])
    expected = fit_source(_small(), at_once, memory_limit=2**33, **settings)
    fresh, target = _rows(5000, seed=1)
    fresh = pl.DataFrame(fresh, schema=names)
    got, wanted = model.predict(fresh), expected.predict(fresh)
    np.testing.assert_allclose(got, wanted, atol=1e-6 * np.abs(wanted).max())
    outcome = model.source_fit_
    assert (outcome.n_rows, outcome.n_sample, outcome.n_validation) == (N, 3000, 2000)
    assert outcome.strengths == expected.source_fit_.strengths != []
    assert 0 < outcome.n_passes <= 20
    assert outcome.loss_after < 0.95 * outcome.loss_before
    error = np.mean((got - target) ** 2) / 2 / model.cell_model_.unit**2
    assert error == pytest.approx(outcome.loss_after, rel=0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_the_correction_is_that_of_rows_in_memory():
    X, y = _rows(N)
    settings = {"sample_rows": 3000, "validation_rows": 2000}
    source = BatchRows(lambda: ((X[k : k + 7000], y[k : k + 7000]) for k in range(0, N, 7000)))
    model = fit_source(_small(), source, **settings)
    draw = many_rows.Draw.of(_small(), N, *settings.values())
    batch = many_rows.Batch(X, y, None)
    sample = batch.take(draw.sample)
    fitted = many_rows.FittedSample.of(_small().fit(sample.X, sample.y), sample)
    rest = np.setdiff1d(np.arange(N), draw.validation)
    problem, held_out = (
        Problem(part.design, part.y, fitted.loss, fitted.penalty, *part[2:])
        for part in (fitted.prepare(batch, rest), fitted.prepare(batch, draw.validation))
    )
    expected = many_rows.fit_correction(problem, held_out, 20)
    before, after = fitted.estimator.cell_model_, model.cell_model_
    slopes, biases = before.layout.split(expected.theta)
    moved = replace(before, slopes=before.slopes + slopes, biases=before.biases + biases)
    fresh = _rows(5000, seed=1)[0]
    wanted = moved.predict(fresh)
    assert np.abs(wanted - before.predict(fresh)).max() > 0.1  # it does something
    np.testing.assert_allclose(after.predict(fresh), wanted, atol=1e-6 * np.abs(wanted).max())


def test_a_block_is_made_in_less_than_three_times_its_memory():
    X, y = _rows(N)
    X = np.tile(X, 4).astype(np.float32)
    trees = LightGBMPartitioner(64, n_cells=6)
    estimator = JOPLEnRegressor(trees, penalty=Frobenius(0.001), random_state=0)
    batch = many_rows.Batch(X, y, None)
    sample = batch.take(np.arange(2000))
    model = many_rows.FittedSample.of(estimator.fit(sample.X, sample.y), sample)
    model.prepare(sample).design.merge_partitions()  # what stays with the model is made
    tracemalloc.start()
    try:
        prepared = model.prepare(batch, np.arange(1, N))
        prepared.design.merge_partitions()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    block = sum(part.__sizeof__() for part in prepared)
    assert peak < 3 * block


def test_the_model_is_an_ordinary_one(tmp_path):
    X, y = _rows(4000)
    X[::7, 1] = np.nan
    text = np.where(X[:, 0] > 0, "above", "below")
    weights = np.random.default_rng(0).uniform(0, 1, 4000).round(1)
    folder = _write(tmp_path / "rows", X, y, [1500], word=text, weight=weights)
    source = ParquetRows(folder, "y", sample_weight="weight", batch_rows=1000)
    model = fit_source(_small(), source, sample_rows=1000)
    fit = model.source_fit_
    assert fit.strengths
    told = f"4,000 rows, of which a sample of 1,000 was fitted .* by 3,200: {fit.n_passes} passes"
    assert re.search(told, model.summary())
    table = pq.read_table(folder).drop_columns(["y", "weight"])
    predictions = model.predict(table)
    jointleaf.save(model, tmp_path / "model.jointleaf")
    loaded = jointleaf.load(tmp_path / "model.jointleaf")
    np.testing.assert_allclose(loaded.predict(table), predictions, rtol=1e-12)
    explanation = model.explain(table.slice(0, 20))
    total = explanation.baseline + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, predictions[:20], rtol=1e-6)
    with pytest.raises(ValueError, match="call calibrate with fresh rows"):
        model.predict_interval(table)
    model.fit(table, pq.read_table(folder)["y"].to_numpy())
    assert not hasattr(model, "source_fit_")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_are_corrected_too(n_classes):
    X, y = _rows(6000)
    labels = np.array(["a", "b", "c"])[np.digitize(y, [0.5, 1.2][: n_classes - 1])]
    source = BatchRows(lambda: ((X[i : i + 900], labels[i : i + 900]) for i in range(0, 6000, 900)))
    model = fit_source(_small(JOPLEnClassifier), source, sample_rows=600)
    assert model.source_fit_.loss_after < 0.95 * model.source_fit_.loss_before
    assert list(model.classes_) == sorted(set(labels))


def test_a_sample_of_all_rows_is_an_ordinary_fit():
    X, y = _rows(700)
    source = BatchRows(lambda: [(X[:300], y[:300]), (X[300:], y[300:])])
    model = fit_source(_small(), source, sample_rows=700)
    outcome = model.source_fit_
    assert (outcome.n_rows, outcome.n_sample, outcome.n_validation) == (700, 700, 0)
    assert (outcome.n_passes, outcome.strengths, outcome.loss_after) == (0, [], None)
    np.testing.assert_array_equal(model.predict(X), _small().fit(X, y).predict(X))


# -- what cannot be fitted -------------------------------------------------------------------------


@pytest.fixture
def growing(monkeypatch):
    """Fail if anything is fitted."""

    def fit(self, *args):
        raise AssertionError("trees must not be grown")

    monkeypatch.setattr(JOPLEnRegressor, "fit", fit)
    monkeypatch.setattr(JOPLEnClassifier, "fit", fit)


@pytest.mark.usefixtures("growing")
def test_files_that_disagree_are_told_before_trees_are_grown(tmp_path):
    X, y = _rows(100)
    folder = _write(tmp_path / "rows", X, y, [50])
    pq.write_table(pa.table({"x0": ["a"], "y": [0.0]}), folder / "part2.parquet")
    with pytest.raises(ValueError, match=r"column 'x0' is string in .*part2.* and double in .*"):
        fit_source(_small(), ParquetRows(folder, "y"))
    pq.write_table(pa.table({"x0": [1.0], "y": [0.0]}), folder / "part2.parquet")
    with pytest.raises(ValueError, match=r"column 'x1' is missing in .*part2.*: write all files"):
        fit_source(_small(), ParquetRows(folder, "y"))


@pytest.mark.usefixtures("growing")
def test_bad_sources_are_told_before_trees_are_grown(tmp_path):
    X, y = _rows(100)
    folder = _write(tmp_path / "rows", X, y, [])
    with pytest.raises(ValueError, match=r"has no column 'price': it has \['x0'"):
        ParquetRows(folder, "price")
    with pytest.raises(ValueError, match="does not exist: give a Parquet file or a folder"):
        ParquetRows(tmp_path / "nothing", "y")
    _write(tmp_path / "none", X[:0], y[:0], [])
    with pytest.raises(ValueError, match="holds no rows"):
        fit_source(_small(), ParquetRows(tmp_path / "none", "y"))
    y[37] = np.nan
    with pytest.raises(ValueError, match="the target is missing in row 37"):
        fit_source(_small(), ParquetRows(_write(tmp_path / "rows", X, y, []), "y", batch_rows=9))
    with pytest.raises(ValueError, match="the target is missing in row 1"):
        fit_source(_small(), BatchRows(lambda: [(X[:2], ["a", None])]))
    with pytest.raises(ValueError, match="gave no rows"):
        fit_source(_small(), BatchRows(list))
    with pytest.raises(ValueError, match=r"begins with row 100 has the columns \(3,\)"):
        fit_source(_small(), BatchRows(lambda: [(X, X[:, 0]), (X[:, :3], X[:, 0])]))
    with pytest.raises(TypeError, match="make_batches is a list and must be a function that re"):
        BatchRows([(X, y)])
    with pytest.raises(ValueError, match=r"numbers with fractions, such as .*: use a regressor"):
        fit_source(JOPLEnClassifier(), BatchRows(lambda: [(X, X[:, 0])]), sample_rows=50)


@pytest.mark.usefixtures("growing")
def test_bad_arguments_are_told_before_trees_are_grown():
    X, y = _rows(1000)
    source = BatchRows(lambda: [(X, y)])
    with pytest.raises(TypeError, match="must be ParquetRows or BatchRows"):
        fit_source(_small(), X)
    with pytest.raises(TypeError, match="must be a JOPLEnRegressor or a JOPLEnClassifier"):
        fit_source(LightGBMPartitioner(), source)
    with pytest.raises(ValueError, match="sample_rows=0 must be a whole number"):
        fit_source(_small(), source, sample_rows=0)
    with pytest.raises(ValueError, match="tol=-1"):
        fit_source(_small(tol=-1), source)
    with pytest.raises(ValueError, match=r"clip='cell'.*use clip=True"):
        fit_source(_small(clip="cell"), source)
    with pytest.raises(ValueError, match=r"time_budget=9 is not possible.*: use max_passes"):
        fit_source(_small(time_budget=9), source)
    with pytest.raises(ValueError, match=r"monotonic_cst=.* is not possible.*: leave it out"):
        fit_source(_small(monotonic_cst=[1, 0, 0, 0]), source)
    with pytest.raises(MemoryError, match=r"memory_limit=.* is too little for 1000 rows"):
        fit_source(_small(), source, memory_limit=1000)
    with pytest.raises(MemoryError, match=r"of sample_rows=800 rows.*: lower sample_rows"):
        fit_source(_small(), source, memory_limit=1e6, sample_rows=800)
    rare = BatchRows(lambda: [(X, np.where(np.arange(1000) == 3, "rare", "often"))])
    with pytest.raises(ValueError, match="class 'rare' is not among the sample_rows=10"):
        fit_source(_small(JOPLEnClassifier), rare, sample_rows=10)


def test_numbers_that_are_no_classes_are_told_so():
    X, y = _rows(1000)

    def refused(message, targets, **settings):
        with pytest.raises(ValueError, match=message):
            fit_source(_small(JOPLEnClassifier), BatchRows(lambda: [(X, targets)]), **settings)

    refused("numbers with fractions, such as .*, which are no classes: use a regressor", y)
    refused(
        r"\d+ different numbers in 800 rows, which are no classes: use a regressor",
        (1e6 * y).round(),
        sample_rows=800,
    )
    refused(
        r"class .* is not among .*if 100 different numbers are no classes, use a regressor",
        np.arange(1000) % 100,
        sample_rows=60,
    )


def test_a_failure_leaves_no_file_and_no_half_fitted_model(tmp_path, monkeypatch):
    X, y = _rows(3000)
    model = _small().fit(X[:500], y[:500])
    before = clone(model).fit(X[:500], y[:500]).predict(X)

    def fail(*args, **kwargs):
        assert any(tmp_path.rglob("block*.bin"))
        raise RuntimeError("no space left")

    monkeypatch.setattr(many_rows, "fit_correction", fail)
    with pytest.raises(RuntimeError, match="no space left"):
        fit_source(model, BatchRows(lambda: [(X, y)]), sample_rows=800, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_source_must_not_change():
    X, y = _rows(1000)
    sizes = iter([1000, 900])
    source = BatchRows(lambda: [(X[:n], y[:n]) for n in [next(sizes)]])
    with pytest.raises(ValueError, match="gave 1000 rows at first and 900 now"):
        fit_source(_small(), source)


# -- checkpoints -----------------------------------------------------------------------------------


class _Crash(BaseException):
    """What no one catches."""


def _crash_after(monkeypatch, n_products):
    """Crash in a pass; return the undoing of it."""
    product, count = BlockDesign.gram_product, [0]

    def crashing(self, *args):
        count[0] += 1
        if count[0] > n_products:
            raise _Crash
        return product(self, *args)

    monkeypatch.setattr(BlockDesign, "gram_product", crashing)
    return lambda: monkeypatch.setattr(BlockDesign, "gram_product", product)


@pytest.mark.parametrize("n_products", [2, 12, 17])
@pytest.mark.parametrize("kind", [JOPLEnRegressor, JOPLEnClassifier])
def test_a_fit_goes_on_from_its_checkpoint(tmp_path, monkeypatch, kind, n_products):
    X, y = _rows(3000)
    X[::7, 1] = np.nan
    y = y if kind is JOPLEnRegressor else np.where(y > 0.5, "high", "low")
    source = BatchRows(lambda: ((X[i : i + 900], y[i : i + 900]) for i in range(0, 3000, 900)))
    settings = {"sample_rows": 400, "max_passes": 20}
    expected = fit_source(_small(kind), source, **settings)
    monkeypatch.setattr(checkpoints, "_EVERY", 0.0)
    restart = _crash_after(monkeypatch, n_products)
    folder = tmp_path / "fit"
    with pytest.raises(_Crash):
        fit_source(_small(kind), source, checkpoint=folder, **settings)
    assert (folder / "state.npz").exists() == (n_products > 2)
    restart()
    products = []
    product = BlockDesign.gram_product
    monkeypatch.setattr(
        BlockDesign, "gram_product", lambda *args: (products.append(1), product(*args))[1]
    )
    fit, fits = kind.fit, []
    monkeypatch.setattr(kind, "fit", lambda *args: (fits.append(1), fit(*args))[1])
    model = fit_source(_small(kind), source, checkpoint=folder, **settings)
    assert not fits  # the sample's model is taken from the file
    kept = n_products // 5 * 5
    assert len(products) == expected.source_fit_.n_passes - kept
    assert model.source_fit_ == expected.source_fit_
    method = "predict" if kind is JOPLEnRegressor else "predict_proba"
    np.testing.assert_array_equal(getattr(model, method)(X), getattr(expected, method)(X))
    assert not folder.exists()


def test_checkpoints_of_other_fits_are_refused(tmp_path, monkeypatch):
    X, y = _rows(1000)
    source = BatchRows(lambda: [(X, y)])
    _crash_after(monkeypatch, 0)
    settings = {"sample_rows": 300, "checkpoint": tmp_path / "fit"}
    with pytest.raises(_Crash):
        fit_source(_small(), source, **settings)
    with pytest.raises(ValueError, match="belongs to a fit of other parameters, or another number"):
        fit_source(_small(clip=False), source, **settings)
    with pytest.raises(ValueError, match="belongs to a fit of other parameters, or another number"):
        fit_source(_small(), BatchRows(lambda: [(X[:900], y[:900])]), **settings)
    with pytest.raises(ValueError, match="belongs to a fit of other rows: remove it, or give"):
        fit_source(_small(), BatchRows(lambda: [(X, y + 1)]), **settings)
    with pytest.raises(_Crash):
        fit_source(_small(verbose=0, n_jobs=1), source, **settings)
    (tmp_path / "fit" / "draw.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"damaged file draw.npz .*: remove the folder"):
        fit_source(_small(), source, **settings)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"checkpoint=.*file' is a file: give a folder"):
        fit_source(_small(), source, checkpoint=tmp_path / "file")
