"""SELECT statements predict what the models predict, in SQLite and DuckDB."""

import math
import sqlite3

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jointleaf as jl
from blend_fits import small_fits
from jointleaf.partitions import (
    ExtraTreesPartitioner,
    LightGBMPartitioner,
    RandomTreesPartitioner,
    VoronoiPartitioner,
)

RNG = np.random.default_rng(0)
PENALTY = jl.Frobenius(0.01)


def make_rows(n, seed=0):
    """Numbers, categories of text and of whole numbers, truth values and missing values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a b": rng.normal(size=n),
            'say "x"': rng.normal(size=n).astype(np.float32),
            "city": rng.choice(["Oslo", "Rome", "l'Aquila", "Lima"], n),
            "zone": rng.integers(1, 5, n),
            "flag": rng.random(n) < 0.5,
        }
    )
    y = frame["a b"] * (frame["city"] == "Rome") + frame["zone"] + 0.5 * frame["flag"]
    frame.loc[rng.random(n) < 0.1, "a b"] = np.nan
    frame.loc[rng.random(n) < 0.1, "city"] = None
    return frame, y.fillna(0).to_numpy() + 0.1 * rng.normal(size=n)


FRAME, Y = make_rows(200)
NEW = pd.concat([make_rows(60, 1)[0], make_rows(20, 2)[0].assign(city="Paris", zone=9)])
NEW = NEW.reset_index(drop=True).assign(key=np.arange(80))
NEW.loc[:5, "a b"] = [-50.0, 50.0, 0.0, -0.0, 1e-300, np.nan]
ROWS = NEW.drop(columns="key")


def sqlite(sql):
    database = sqlite3.connect(":memory:")
    database.create_function("EXP", 1, math.exp)  # where SQLite was built without
    NEW.to_sql("rows", database, index=False)
    return pd.read_sql(sql, database)


def duckdb(sql):
    module = pytest.importorskip("duckdb")
    rows = NEW  # noqa: F841, which DuckDB finds by its name
    return module.sql(sql).df()


def fit(model, y=Y, frame=FRAME):
    return model.set_params(categorical_features=["zone"]).fit(frame, y)


MODELS = {
    "linear cells": jl.JOPLEnRegressor(LightGBMPartitioner(8), penalty=PENALTY, random_state=0),
    "constant cells": jl.JOPLEnRegressor(
        RandomTreesPartitioner(8), cells="constant", penalty=PENALTY, random_state=0
    ),
    "single precision": jl.JOPLEnRegressor(
        ExtraTreesPartitioner(8), penalty=PENALTY, random_state=0, clip=False, add_indicator=True
    ),
    "zero is missing": jl.JOPLEnRegressor(
        LightGBMPartitioner(4, options={"zero_as_missing": True}), penalty=PENALTY, random_state=0
    ),
    "counts": jl.JOPLEnRegressor(
        LightGBMPartitioner(4), penalty=PENALTY, random_state=0, loss="poisson"
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return fit(MODELS[request.param], np.exp(Y / 3) if request.param == "counts" else Y)


@pytest.mark.parametrize("run", [sqlite, duckdb])
def test_numbers_are_those_of_predict(model, run):
    result = run(jl.to_sql(model, "rows", keep=["key"]))
    assert list(result.columns) == ["key", "prediction"]
    result = result.sort_values("key")
    np.testing.assert_allclose(result["prediction"], model.predict(ROWS), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("run", [sqlite, duckdb])
@pytest.mark.parametrize("labels", [["no", "it's"], [3, 1], ["a", "b", "c"]])
def test_classes_and_probabilities_are_those_of_predict(labels, run):
    y = np.array(labels)[np.digitize(Y, np.quantile(Y, np.linspace(0, 1, len(labels) + 1)[1:-1]))]
    estimator = jl.JOPLEnClassifier(LightGBMPartitioner(5), penalty=PENALTY, random_state=0)
    model = fit(estimator, y)
    result = run(jl.to_sql(model, "rows", keep=["key"])).sort_values("key")
    names = [f"probability {label}" for label in model.classes_]
    assert list(result.columns) == ["key", "prediction", *names]
    assert result["prediction"].tolist() == model.predict(ROWS).tolist()
    np.testing.assert_allclose(result[names], model.predict_proba(ROWS), atol=1e-9)


@pytest.mark.parametrize("run", [sqlite, duckdb])
def test_blends_and_target_statistics(run):
    many = RNG.choice([f"c{k}" for k in range(60)], 200)
    frame = FRAME.assign(city=many)
    with small_fits():
        model = jl.JOPLEnRegressor(random_state=0).fit(frame, Y)
    assert model.columns_.statistics is not None
    result = run(jl.to_sql(model, "rows", keep=["key"])).sort_values("key")
    np.testing.assert_allclose(result["prediction"], model.predict(ROWS), rtol=1e-8, atol=1e-8)


def test_thresholds_before_rounding_are_exact():
    from jointleaf.io._sql import _before_rounding

    for threshold in [0.1, np.float64(np.float32(0.1)), -3.7, 1e-20, 5.0, -0.3, 16777217.0]:
        limit = _before_rounding(float(threshold))
        rounded, next_one = np.array([limit, np.nextafter(limit, np.inf)]).astype(np.float32)
        assert float(rounded) <= threshold < float(next_one)


def test_what_cannot_be_exported_is_named():
    X = FRAME[["a b", "zone"]]
    plain = jl.JOPLEnRegressor(LightGBMPartitioner(2), penalty=PENALTY, random_state=0)
    with pytest.raises(TypeError, match=r"to_sql\(pipeline\[-1\]\)"):
        jl.to_sql(make_pipeline(StandardScaler(), plain))
    with pytest.raises(TypeError, match="a RandomForestRegressor cannot be exported"):
        jl.to_sql(RandomForestRegressor())
    with pytest.raises(ValueError, match="matrix without column names: fit a data frame"):
        jl.to_sql(plain.fit(X.to_numpy(), Y))
    with pytest.raises(ValueError, match=r"VoronoiPartitioner cannot be exp.* recipe='joint'"):
        jl.to_sql(jl.JOPLEnRegressor(VoronoiPartitioner(2), penalty=PENALTY).fit(X, Y))
    with pytest.raises(ValueError, match="clip='cell'"):
        jl.to_sql(plain.set_params(clip="cell").fit(X, Y))


def test_columns_that_are_read_from_text_are_plain_numbers_in_the_table(tmp_path):
    """Of $1,200 and 5 % the numbers; they are named, as a database might read '10,9' as 10."""
    rng = np.random.default_rng(0)
    fees, rates = rng.integers(1000, 2000, 40), rng.integers(1, 30, 40)
    heated = rng.random(40) < 0.5
    raw = pd.DataFrame({
        "fee": [f"${fee:,}" for fee in fees], "rate": [f"{rate} %" for rate in rates],
        "heated": np.where(heated, "yes", "no"), "area": rng.permutation(40),
        "sold": pd.date_range("2024-01-01", periods=40, freq="5D").astype(str),
    })  # fmt: skip
    steps = jl.TablePreprocessor(), jl.JOPLEnRegressor("lightgbm", penalty=PENALTY)
    pipeline = make_pipeline(*steps).fit(raw, fees * rates / 1000 + raw["area"])
    jl.save(pipeline, tmp_path / "model.jleaf")
    model = jl.load(tmp_path / "model.jleaf")
    with pytest.warns(UserWarning, match="columns 'fee', 'rate', 'heated' held text in training"):
        sql = jl.to_sql(model, "flats")
    database = sqlite3.connect(":memory:")
    flats = model.columns_.preparation.transform(raw)
    assert flats["rate"].tolist() == rates.tolist()
    flats.to_sql("flats", database, index=False)
    found = [row[0] for row in database.execute(sql)]
    np.testing.assert_allclose(found, model.predict(raw), rtol=1e-12)


def test_kept_columns_are_checked():
    table = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0) % 7})
    model = jl.JOPLEnRegressor("lightgbm", penalty=PENALTY).fit(table, table["a"] % 5)
    with pytest.raises(TypeError, match=r"keep='a' must be a list of names: give \['a'\]"):
        jl.to_sql(model, "t", keep="a")
    with pytest.raises(ValueError, match="keep names 'prediction', which a prediction has"):
        jl.to_sql(model, "t", keep=["prediction"])
