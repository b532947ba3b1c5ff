"""ONNX graphs of tables with categories, and of pipelines."""

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import jointleaf as jl
from blend_fits import small_fits
from jointleaf.partitions import (
    LightGBMPartitioner,
    RandomTreesPartitioner,
    RotatedPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
)

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
PENALTY = jl.Frobenius(0.01)


def make_rows(n, seed=0, n_cities=4):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "city": rng.choice([f"c{k}" for k in range(n_cities)], n),
            "zone": rng.integers(1, 7, n),
            "age": rng.normal(size=n),
        }
    )
    y = frame["size"] * (frame["city"] == "c1") + np.sin(frame["zone"]) + 0.3 * frame["age"]
    frame["city"] = frame["city"].mask(rng.random(n) < 0.1, None)
    frame["age"] = frame["age"].mask(rng.random(n) < 0.1)
    return frame, y.to_numpy() + 0.1 * rng.normal(size=n)


FRAME, Y = make_rows(200)
NEW = pd.concat([make_rows(60, 1)[0], make_rows(20, 2)[0].assign(city="new", zone=40)])


def run(proto, rows):
    """Run a graph on the columns of a frame, or on a matrix."""
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    if isinstance(rows, np.ndarray):
        given = {"X": rows}
    else:
        given = {}
        for value in session.get_inputs():
            column = rows[value.name]
            is_text = value.type == "tensor(string)"
            values = column.fillna("").astype(object) if is_text else column.astype(float)
            given[value.name] = values.to_numpy()[:, None]
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


@pytest.mark.parametrize(
    "partitioner",
    [
        LightGBMPartitioner(8),
        UnionPartitioner([RandomTreesPartitioner(5), VoronoiPartitioner(3, 4)]),
        RotatedPartitioner(LightGBMPartitioner(5)),
        LightGBMPartitioner(5, options={"zero_as_missing": True}),
    ],
    ids=lambda partitioner: repr(partitioner)[:30],
)
@pytest.mark.parametrize("options", [{}, {"cells": "constant"}, {"add_indicator": True}])
def test_categories_of_text_and_numbers(partitioner, options):
    model = jl.JOPLEnRegressor(
        partitioner, penalty=PENALTY, random_state=0, categorical_features=["zone"], **options
    ).fit(FRAME, Y)
    found = run(jl.to_onnx(model), NEW)["variable"][:, 0]
    np.testing.assert_allclose(found, model.predict(NEW), atol=2e-5)


def test_classes_of_a_default_fit_with_target_statistics():
    frame, y = make_rows(300, n_cities=60)
    labels = np.where(y > np.median(y), "high", "low")
    with small_fits():
        model = jl.JOPLEnClassifier(random_state=0).fit(frame, labels)
    assert model.columns_.statistics is not None
    found = run(jl.to_onnx(model), NEW)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(NEW), atol=2e-5)
    assert found["label"].tolist() == model.predict(NEW).tolist()


def test_pipelines_of_scalers_and_imputers():
    numbers, new = FRAME[["size", "age"]].to_numpy(), NEW[["size", "age"]].to_numpy()
    model = jl.JOPLEnRegressor(LightGBMPartitioner(5), penalty=PENALTY, random_state=0)
    for steps in (
        [StandardScaler()],
        [SimpleImputer(), MinMaxScaler(clip=True)],
        [SimpleImputer(strategy="median"), StandardScaler(with_mean=False), "passthrough"],
    ):
        pipeline = make_pipeline(*steps, model).fit(numbers, Y)
        found = run(jl.to_onnx(pipeline), new)["variable"][:, 0]
        np.testing.assert_allclose(found, pipeline.predict(new), atol=2e-5)


def test_a_pipeline_with_a_table_takes_the_columns_that_it_makes():
    model = jl.JOPLEnRegressor(LightGBMPartitioner(5), penalty=PENALTY, random_state=0)
    table = jl.TablePreprocessor(categorical=["zone"])
    pipeline = make_pipeline(table, model).fit(FRAME, Y)
    prepared = pipeline[0].transform(NEW)
    text = prepared.assign(zone=prepared["zone"].astype(object), city=NEW["city"].to_numpy())
    found = run(jl.to_onnx(pipeline), text)["variable"][:, 0]
    np.testing.assert_allclose(found, pipeline.predict(NEW), atol=2e-5)


def test_what_cannot_be_exported_is_named():
    model = jl.JOPLEnRegressor(LightGBMPartitioner(2), penalty=PENALTY, random_state=0)
    X = np.nan_to_num(FRAME[["size", "age"]].to_numpy())
    with pytest.raises(TypeError, match=r"a PCA cannot be exported: .*to_onnx\(pipeline\[-1\]\)"):
        jl.to_onnx(make_pipeline(PCA(), model).fit(X, Y))
    flagged = make_pipeline(SimpleImputer(add_indicator=True), model).fit(FRAME[["age"]], Y)
    with pytest.raises(ValueError, match="put a number in place of NaN"):
        jl.to_onnx(flagged)
    named = FRAME.rename(columns={"size": "label"})
    with pytest.raises(ValueError, match="column 'label' has a name that the graph needs"):
        jl.to_onnx(model.fit(named, Y))
