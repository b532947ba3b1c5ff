"""Data frames with text and missing values: every partitioner, scikit-learn's tools, bad input."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from frame_data import (
    BINARY,
    FORMS,
    NAMES,
    NEW,
    NEW_Y,
    RIDGE,
    SMALL,
    TASKS,
    THREE,
    X,
    Y,
    raw,
)
from jointleaf import (
    L21,
    CVDisplay,
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    LinearForestClassifier,
    LinearForestRegressor,
    PathDisplay,
    load,
    save,
)
from jointleaf._data.rows import read_rows
from jointleaf.partitions import (
    NO_CELL,
    PARTITIONERS,
    RootCell,
    VoronoiPartitioner,
    make_partitioner,
)


@pytest.fixture(scope="module")
def fitted():
    """One fitted model per task, with a fixed penalty."""
    return {
        task: estimator(SMALL, penalty=RIDGE, random_state=0).fit(X, y)
        for task, (estimator, y) in TASKS.items()
    }


@pytest.fixture(scope="module")
def regressor(fitted):
    return fitted["regression"]


# -- every partitioner -------------------------------------------------------------------------


def small(name):
    partitioner = make_partitioner(name)
    trees = getattr(partitioner, "partitioner", partitioner)
    known = trees.get_params()
    options = {"n_partitions": 25 if name == "steps" else 12, "n_cells": 4}
    trees.set_params(**{key: options[key] for key in options if key in known})
    return partitioner


def test_all_names_are_tested():
    assert set(NAMES) == set(PARTITIONERS)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_every_partitioner_takes_text_and_missing_values(name, task):
    estimator, y = TASKS[task]
    model = estimator(small(name), penalty=RIDGE, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.85
    codes = model.apply(NEW)
    assert (codes < model.partitioner_.n_cells_).all()
    assert codes.min() >= NO_CELL
    np.testing.assert_array_equal(model.apply(FORMS["polars"](NEW)), codes)
    odd = NEW.assign(city="atlantis", kind=None, age=np.nan)
    assert np.isfinite(raw(model, odd)).all()
    if task == "regression":
        assert model.score(NEW, NEW_Y) > 0.8


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("linear_forest", "voronoi")])
def test_cells_split_on_categories(name):
    # Constant cells know of the city by splits alone; in no order of names is it a threshold.
    y = X["city"].isin(["berlin", "rome"]).to_numpy() * 2.0 - 1
    model = JOPLEnRegressor(
        small(name), cells="constant", root_cell=False, penalty=Frobenius(1e-4), random_state=0
    ).fit(X, y)
    assert model.score(X, y) > 0.9
    if name != "steps":  # which counts all features alike
        assert np.argmax(model.feature_importances_) == 1


def test_names_and_lists_of_partitioners():
    both = [SMALL, VoronoiPartitioner(5, 4)]
    model = JOPLEnRegressor(both, penalty=RIDGE, random_state=0).fit(X, Y)
    assert model.apply(X).shape == (len(X), 10 + 5 + 1)
    assert model.score(NEW, NEW_Y) > 0.8
    shares = JOPLEnClassifier(["steps", SMALL], penalty=RIDGE, random_state=0).fit(X, THREE)
    assert shares.score(X, THREE) > 0.9


@pytest.mark.parametrize(
    ("estimator", "y"), [(LinearForestRegressor, Y), (LinearForestClassifier, THREE)]
)
def test_linear_forests_take_frames(estimator, y):
    model = estimator(10, random_state=0).fit(X, y)
    expected = model.predict(NEW)
    assert model.score(X, y) > 0.9
    np.testing.assert_array_equal(model.predict(FORMS["polars"](NEW)), expected)
    assert np.isfinite(getattr(model, "predict_proba", model.predict)(NEW.assign(city="x"))).all()


# -- tools of scikit-learn and pictures --------------------------------------------------------


def test_cross_validation_and_search():
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0)
    assert cross_val_score(model, X, Y, cv=3).min() > 0.8
    assert cross_val_score(model, FORMS["category"](X), Y, cv=2).min() > 0.8
    grid = {"penalty": [RIDGE, Frobenius(100.0)], "linear_features": [None, "numeric"]}
    search = GridSearchCV(model, grid, cv=2).fit(X, Y)
    assert search.best_params_ == {"penalty": RIDGE, "linear_features": None}
    assert search.score(NEW, NEW_Y) > 0.8


def test_in_a_pipeline():
    scale = make_column_transformer(
        (StandardScaler(), ["size", "noise"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    model = JOPLEnRegressor(RootCell(), penalty=RIDGE)
    pipeline = make_pipeline(scale, clone(model)).fit(X, Y)
    expected = model.fit(X, Y).predict(NEW)
    np.testing.assert_allclose(pipeline.predict(NEW), expected)


def test_own_splits_and_clones():
    splits = list(KFold(2, shuffle=True, random_state=0).split(X))
    model = JOPLEnRegressor(SMALL, cv=splits, categorical_features=["kind"], random_state=0)
    again = clone(model)
    assert again.categorical_features == ["kind"]
    np.testing.assert_array_equal(model.fit(X, Y).predict(NEW), again.fit(X, Y).predict(NEW))


def test_validation_rows():
    model = JOPLEnRegressor(SMALL, random_state=0)
    chosen = model.fit(X, Y, X_val=NEW, y_val=NEW_Y).cv_results_["mean_test_score"]
    polars = model.fit(X, Y, X_val=FORMS["polars"](NEW), y_val=NEW_Y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(chosen, polars)
    unseen = model.fit(X, Y, X_val=NEW.assign(city="atlantis"), y_val=NEW_Y)
    assert unseen.cv_results_["mean_test_score"].max() < 2 * chosen.max() < 0
    labels = JOPLEnClassifier(SMALL, random_state=0)
    labels.fit(X, BINARY, X_val=NEW, y_val=np.where(np.median(Y) < NEW_Y, "yes", "no"))
    assert labels.score(X, BINARY) > 0.9
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(X, Y, X_val=NEW.rename(columns={"age": "years"}), y_val=NEW_Y)
    with pytest.raises(ValueError, match="column 'age' held numbers in training"):
        model.fit(X, Y, X_val=NEW.assign(age="old"), y_val=NEW_Y)


@pytest.fixture(scope="module")
def sparse_model():
    """A model that selects features, and the rows it was fitted on: four columns are noise."""
    noise = np.random.default_rng(5).normal(size=(len(X), 4))
    rows = X.drop(columns="noise").join(pd.DataFrame(noise, columns=list("abcd")))
    model = JOPLEnRegressor(RootCell(), root_cell=False, penalty=L21("auto"), cv=2)
    return model.fit(rows, Y), rows


def test_features_are_selected_on_a_frame(sparse_model):
    model, _ = sparse_model
    assert {0, 1} <= set(model.selected_features_)
    assert len(model.selected_features_) < 8
    assert model.slope_norms_.shape == (8,)
    assert model.coef_.shape == (1, 13)
    with pytest.raises(ValueError, match="no slopes to penalise"):
        JOPLEnRegressor(SMALL, penalty=L21("auto"), cells="constant").fit(X, Y)


def test_the_picture_of_a_path(sparse_model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    model, rows = sparse_model
    display = PathDisplay.from_estimator(model, rows, Y, n_strengths=5, X_val=rows, y_val=Y)
    labels = [line.get_label() for line in display.lines_]
    assert labels == model.linear_feature_names_.tolist()
    assert display.path.validation_error.min() < 0.3
    matplotlib.pyplot.close(display.figure_)


def test_the_picture_of_a_choice(sparse_model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    chosen = JOPLEnRegressor(SMALL, cv=2, random_state=0).fit(X, Y)
    for model in (sparse_model[0], chosen):
        display = CVDisplay.from_estimator(model)
        assert display.ax_.lines
        matplotlib.pyplot.close(display.figure_)


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda F: F.assign(age="old"), ValueError, "column 'age' held numbers .* 'old' now"),
        (lambda F: F.assign(city=1.0), ValueError, "column 'city' held text .* numbers now"),
        (lambda F: F.assign(age=np.inf), ValueError, "column 'age' contains infinity"),
        (lambda F: F.assign(age=-np.inf).astype(object), ValueError, "'age' contains infinity"),
        (lambda F: F.assign(age=pd.Timestamp("2020")), ValueError, "column 'age' holds times"),
        (lambda F: F.assign(age=[{}] * len(F)), TypeError, "column 'age' holds {}"),
        (lambda F: F.assign(city=["a", 1.0] * 80), ValueError, "column 'city' mixes text"),
        (lambda F: F.drop(columns="age"), ValueError, "feature names should match"),
        (lambda F: F.assign(more=1.0), ValueError, "feature names should match"),
        (lambda F: F.rename(columns={"age": "years"}), ValueError, "names should match"),
        (lambda F: F[F.columns[::-1]], ValueError, "must be in the same order"),
        (lambda F: F[:0], ValueError, "0 sample"),
        (lambda F: F["size"], ValueError, "1D|2D|2-dim"),
        (lambda F: F.to_numpy()[:, :3], ValueError, "X has 3 features"),
    ],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("method", ["predict", "apply"])
def test_rows_that_cannot_be_predicted(regressor, change, error, message, method):
    with pytest.raises(error, match=message):
        getattr(regressor, method)(change(NEW))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda F: F.assign(age=np.inf), ValueError, "column 'age' contains infinity"),
        (lambda F: F.assign(age=F["age"].astype(str)), ValueError, "'age' holds numbers as text"),
        (lambda F: F.rename(columns={"age": "city"}), ValueError, "several .* name 'city'"),
        (lambda F: F[["size"]].assign(x=1.0).set_axis(["a", "a"], axis=1), ValueError, "several"),
        (lambda F: F[:1], ValueError, "minimum of 2"),
        (lambda F: F[:0], ValueError, "0 sample|no values"),
        (lambda F: F[:-1], ValueError, "inconsistent numbers"),
    ],
)
def test_frames_that_cannot_be_fitted(change, error, message):
    model = JOPLEnRegressor(SMALL, penalty=RIDGE)
    rows = change(X)
    y = Y if len(rows) > 1 and len(rows) != len(Y) else Y[: len(rows)]
    with pytest.raises(error, match=message):
        model.fit(rows, y)
    assert not hasattr(model, "n_features_in_")
    assert not hasattr(model, "columns_")


def test_a_failed_fit_leaves_the_fitted_frame_model_alone(regressor):
    model = clone(regressor).fit(X, Y)
    with pytest.raises(ValueError, match="holds times"):
        model.fit(X.assign(age=pd.Timedelta(days=2)), Y)
    np.testing.assert_array_equal(model.predict(NEW), regressor.predict(NEW))


def test_frames_of_numbers_give_what_arrays_give():
    rows, new = (F[["size", "age", "noise"]].astype(np.float32).astype(float) for F in (X, NEW))
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0)
    expected = model.fit(rows.to_numpy(), Y).predict(new.to_numpy())
    frames = [rows, rows.astype(object), rows.astype("Float64")]
    frames += [FORMS[form](rows) for form in ("polars", "pyarrow", "pyarrow batch")]
    for frame in frames:
        np.testing.assert_array_equal(model.fit(frame, Y).predict(new), expected)
    single = model.fit(rows.astype(np.float32), Y)
    assert read_rows(single, new.astype(np.float32)).dtype == np.float32
    assert read_rows(single, FORMS["pyarrow"](new.astype(np.float32))).dtype == np.float32
    assert read_rows(single, new).dtype == np.float64
    np.testing.assert_allclose(single.predict(new.astype(np.float32)), expected, atol=0.01)


def test_a_frame_is_as_good_as_hand_made_indicators():
    city = pd.get_dummies(X["city"], dummy_na=True).to_numpy(float)
    kind = (X["kind"] == "new").to_numpy(float)[:, None]
    age = X["age"].fillna(X["age"].mean()).to_numpy()[:, None]
    hand = np.hstack([X[["size", "noise"]].to_numpy(), age, city, kind])
    ridge = make_pipeline(StandardScaler(), Ridge(1e-6)).fit(hand, Y)
    weak = JOPLEnRegressor(RootCell(), root_cell=False, penalty=Frobenius(1e-9, 0)).fit(X, Y)
    np.testing.assert_allclose(weak.predict(X), ridge.predict(hand), atol=1e-3)


def test_rows_in_a_form_of_a_library_are_rejected(regressor):
    import catboost
    import xgboost

    numbers = X[["size", "noise"]]
    for rows, message in (
        (FORMS["polars"](X).lazy(), r"LazyFrame.*X.collect\(\)"),
        (xgboost.DMatrix(numbers), "X is a DMatrix.*data frame or matrix"),
        (catboost.Pool(numbers), "X is a Pool.*data frame or matrix"),
    ):
        with pytest.raises(TypeError, match=message):
            regressor.predict(rows)
        with pytest.raises(TypeError, match=message):
            clone(regressor).fit(rows, Y)


@pytest.mark.parametrize("texts", [["a" * 100_000, "b", "c"], ["b", "b\0", "c"]])
def test_long_texts_and_nul_characters_as_categories(tmp_path, texts):
    """NumPy would make all texts as long as the longest, and lose NUL characters at their ends."""
    frame = pd.DataFrame({"text": texts * 20 + [f"t{k}" for k in range(60)]})
    y = np.append(np.tile([0.0, 1.0, 2.0], 20), np.zeros(60))
    model = JOPLEnRegressor("steps", penalty=Frobenius(0.01)).fit(frame, y)
    assert model.columns_[0].categories.tolist() == sorted({*frame["text"]})
    predicted = model.predict(frame)
    assert len(set(predicted[:3].round(6))) == 3
    tracemalloc.start()
    save(model, tmp_path / "model.jleaf")
    loaded = load(tmp_path / "model.jleaf")
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    np.testing.assert_array_equal(loaded.predict(frame), predicted)
    assert loaded.columns_[0].categories.tolist() == model.columns_[0].categories.tolist()
