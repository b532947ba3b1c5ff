"""refine(model, X, y) for every kind of model that it takes, and for pipelines."""

import pickle

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_friedman1
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from choices import cv_for
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, refine
from jointleaf.partitions import NO_CELL

RIDGE = Frobenius(0.01)
X, Y = make_friedman1(100, n_features=5, noise=0.5, random_state=0)
TARGETS = {
    "regression": Y,
    "binary": np.where(np.median(Y) < Y, "yes", "no"),
    "multiclass": np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) + 4,
}
SHIFTS = {"berlin": 6.0, "oslo": -6.0, "paris": 0.0, "rome": 3.0}


def numbers(task):
    """Targets as the plain boosters want them."""
    return Y if task == "regression" else np.unique(TARGETS[task], return_inverse=True)[1]


def estimator(regressor, classifier, **options):
    def train(task):
        kind = regressor if task == "regression" else classifier
        y = TARGETS[task] if classifier is not xgboost.XGBClassifier else numbers(task)
        return kind(**options).fit(X, y)

    return train


def lightgbm_booster(task):
    params = {"objective": task, "num_leaves": 4, "num_threads": 1, "verbosity": -1}
    params |= {"num_class": 3} if task == "multiclass" else {}
    return lightgbm.train(params, lightgbm.Dataset(X, label=numbers(task)), 4)


def xgboost_booster(task):
    objectives = {
        "regression": "reg:squarederror",
        "binary": "binary:logistic",
        "multiclass": "multi:softprob",
    }
    params = {"objective": objectives[task], "max_depth": 2, "nthread": 1}
    params |= {"num_class": 3} if task == "multiclass" else {}
    return xgboost.train(params, xgboost.DMatrix(X, numbers(task)), 4)


def catboost_plain(task):
    losses = {"regression": "RMSE", "binary": "Logloss", "multiclass": "MultiClass"}
    params = CATBOOST | {"loss_function": losses[task]}
    return catboost.CatBoost(params).fit(X, numbers(task))


TREES = {"n_estimators": 4, "max_leaf_nodes": 4, "random_state": 0}
FOUR = {"n_estimators": 4, "n_jobs": 1}
CATBOOST = {
    "iterations": 4,
    "depth": 2,
    "learning_rate": 0.3,
    "random_seed": 0,
    "thread_count": 1,
    "verbose": 0,
    "allow_writing_files": False,
}
MODELS = {
    "gradient_boosting": estimator(GradientBoostingRegressor, GradientBoostingClassifier, **TREES),
    "random_forest": estimator(RandomForestRegressor, RandomForestClassifier, **TREES),
    "extra_trees": estimator(ExtraTreesRegressor, ExtraTreesClassifier, **TREES),
    "histogram": estimator(
        HistGradientBoostingRegressor, HistGradientBoostingClassifier, max_iter=4, max_leaf_nodes=4
    ),
    "lightgbm": estimator(
        lightgbm.LGBMRegressor, lightgbm.LGBMClassifier, num_leaves=4, verbose=-1, **FOUR
    ),
    "lightgbm.Booster": lightgbm_booster,
    "xgboost": estimator(xgboost.XGBRegressor, xgboost.XGBClassifier, max_depth=2, **FOUR),
    "xgboost.Booster": xgboost_booster,
    "catboost": estimator(catboost.CatBoostRegressor, catboost.CatBoostClassifier, **CATBOOST),
    "catboost.CatBoost": catboost_plain,
}


def leaves(model, rows):
    """Leaf ids (n, P) as the library itself gives them; None where it does not."""
    if isinstance(model, lightgbm.Booster | lightgbm.LGBMModel):
        found = model.predict(rows, pred_leaf=True)
    elif isinstance(model, xgboost.Booster):
        found = model.predict(xgboost.DMatrix(rows), pred_leaf=True)
    elif isinstance(model, catboost.CatBoost):
        found = model.calc_leaf_indexes(rows)
    elif isinstance(model, HistGradientBoostingRegressor | HistGradientBoostingClassifier):
        return None
    else:
        found = model.apply(rows)
    return np.asarray(found).reshape(len(found), -1)


def assert_same_cells(codes, ids):
    """Cells and leaves are one to one: as many pairs as cells and as leaves."""
    assert codes.shape == ids.shape
    for column, own in zip(codes.T, ids.T, strict=True):
        pairs = len(np.unique(np.stack([column, own]), axis=1).T)
        assert pairs == len(np.unique(column)) == len(np.unique(own))


@pytest.fixture(scope="module")
def models():
    """Trained models by kind and task."""
    return {(kind, task): MODELS[kind](task) for kind in MODELS for task in TARGETS}


@pytest.mark.parametrize("penalty", [RIDGE, "auto"], ids=["given", "chosen"])
@pytest.mark.parametrize("task", TARGETS)
@pytest.mark.parametrize("kind", MODELS)
def test_every_kind(models, kind, task, penalty):
    model, y = models[kind, task], TARGETS[task]
    rows = xgboost.DMatrix(X) if kind == "xgboost.Booster" else X
    ids, expected = leaves(model, X), model.predict(rows)
    # To choose among linear cells for several classes takes its time.
    is_slow = penalty == "auto" and task == "multiclass" and kind != "lightgbm"
    cells = "constant" if is_slow else "linear"
    refined = refine(model, X, y, penalty=penalty, cv=cv_for(penalty, 2), cells=cells)
    assert type(refined) is (JOPLEnRegressor if task == "regression" else JOPLEnClassifier)
    assert refined.partitioner is model
    np.testing.assert_array_equal(model.predict(rows), expected)
    if ids is not None:
        assert_same_cells(refined.apply(X)[:, :-1], ids)
    if penalty == "auto":
        assert np.isfinite(refined.cv_results_["mean_test_score"]).all()
        assert refined.solution_.converged
    assert refined.score(X, y) > (0.6 if is_slow else 0.7)
    if task != "regression":
        np.testing.assert_array_equal(refined.classes_, np.unique(y))
        assert set(refined.predict(X)) <= set(y)
    loaded = pickle.loads(pickle.dumps(refined))
    np.testing.assert_array_equal(loaded.predict(X), refined.predict(X))


@pytest.mark.parametrize("kind", MODELS)
def test_constant_cells_without_penalty_are_at_least_as_good_as_the_model(models, kind):
    # Its own leaf values are among all leaf values that there are.
    model = models[kind, "regression"]
    rows = xgboost.DMatrix(X) if kind == "xgboost.Booster" else X
    options = {"penalty": Frobenius(1e-10), "cells": "constant", "root_cell": False}
    refined = refine(model, X, Y, **options)
    assert np.mean((refined.predict(X) - Y) ** 2) <= np.mean((model.predict(rows) - Y) ** 2) + 1e-9


@pytest.mark.parametrize("kind", MODELS)
def test_columns_must_be_those_of_the_model(models, kind):
    model = models[kind, "regression"]
    for wrong in (X[:, :4], np.hstack([X, X]), pd.DataFrame(X[:, :3])):
        expected = rf"X has {wrong.shape[1]} features, but the .* was fitted on 5"
        with pytest.raises(ValueError, match=expected):
            refine(model, wrong, Y)
        with pytest.raises(ValueError, match=expected):
            JOPLEnRegressor(model).fit(wrong, Y)


def test_a_classifier_does_not_become_a_regressor(models):
    for kind in MODELS:
        with pytest.raises(ValueError, match="continuous"):
            refine(models[kind, "binary"], X, Y)


# -- text --------------------------------------------------------------------------------------


def make_frame(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(10, 3, n),
            "city": rng.choice(list(SHIFTS), n),
            "age": rng.exponential(20, n),
        }
    )
    y = frame["size"] + frame["city"].map(SHIFTS) + 0.3 * rng.normal(size=n)
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    return frame, y.to_numpy()


FRAME, TARGET = make_frame(240)
NEW, NEW_TARGET = make_frame(100, 1)
HIGH = np.median(TARGET) < TARGET
CATEGORIES = pd.CategoricalDtype(["rome", "oslo", "berlin", "paris"])  # in an order of its own


def as_category(frame):
    return frame.astype({"city": CATEGORIES})


def as_text(frame):
    return frame.astype({"city": object})


def text_models(regressor=True):
    """Untrained models that take text, how they want it, and arguments of their fit."""
    lgb = lightgbm.LGBMRegressor if regressor else lightgbm.LGBMClassifier
    xgb = xgboost.XGBRegressor if regressor else xgboost.XGBClassifier
    cat = catboost.CatBoostRegressor if regressor else catboost.CatBoostClassifier
    hist = HistGradientBoostingRegressor if regressor else HistGradientBoostingClassifier
    grow = {"n_estimators": 8, "n_jobs": 1}
    return {
        "lightgbm": (
            lgb(num_leaves=5, verbose=-1, min_data_per_group=5, cat_l2=1.0, **grow),
            as_category,
            {},
        ),
        "xgboost": (xgb(max_depth=3, enable_categorical=True, **grow), as_category, {}),
        "catboost": (cat(**CATBOOST | {"iterations": 8}), as_text, {"cat_features": ["city"]}),
        "histogram": (hist(max_iter=8, max_leaf_nodes=5), as_category, {}),
    }


@pytest.fixture(scope="module")
def on_text():
    return {
        name: (model.fit(prepare(FRAME), TARGET, **options), prepare)
        for name, (model, prepare, options) in text_models().items()
    }


@pytest.mark.parametrize("name", text_models())
def test_frames_with_text(on_text, name):
    model, prepare = on_text[name]
    refined = refine(model, prepare(FRAME), TARGET, penalty=RIDGE)
    assert refined.columns_[1].categories.tolist() == sorted(SHIFTS)
    assert refined.score(prepare(NEW), NEW_TARGET) > 0.95
    own = leaves(model, prepare(NEW))
    codes = refined.apply(prepare(NEW))[:, :-1]
    if own is not None:
        assert_same_cells(codes, own)
    else:  # rows with the same cells have the same prediction, others another one
        groups = np.unique(codes, axis=0, return_inverse=True)[1]
        values = np.unique(model.predict(prepare(NEW)), return_inverse=True)[1]
        assert_same_cells(groups.reshape(-1, 1), values.reshape(-1, 1))
        assert groups.max() > 20
    # Text in another form is the same text.
    for other in (as_category, as_text, lambda frame: frame.astype({"city": "category"})):
        np.testing.assert_array_equal(refined.predict(other(NEW)), refined.predict(prepare(NEW)))
        again = refine(model, other(FRAME), TARGET, penalty=RIDGE)
        np.testing.assert_array_equal(again.predict(other(NEW)), refined.predict(prepare(NEW)))
    odd = NEW.assign(city="atlantis", age=np.nan)
    assert np.isfinite(refined.predict(odd)).all()
    gone = NEW.assign(city=pd.Series([None] * len(NEW), dtype=object))
    assert np.isfinite(refined.predict(gone)).all()


@pytest.mark.parametrize("name", text_models())
def test_text_with_a_chosen_penalty(on_text, name):
    model, prepare = on_text[name]
    refined = refine(model, prepare(FRAME), TARGET, cv=2, random_state=0)
    assert refined.score(prepare(NEW), NEW_TARGET) > 0.95
    assert (-refined.cv_results_["mean_test_score"]).min() < 0.1, (
        "in folds the city is used as well"
    )
    valid = refine(
        model, prepare(FRAME), TARGET, X_val=prepare(NEW), y_val=NEW_TARGET, random_state=0
    )
    assert (-valid.cv_results_["mean_test_score"]).min() < 0.1


@pytest.mark.parametrize("name", text_models())
def test_classes_with_text(name):
    model, prepare, options = text_models(regressor=False)[name]
    model.fit(prepare(FRAME), HIGH.astype(int), **options)
    refined = refine(model, prepare(FRAME), HIGH, penalty=RIDGE)
    assert refined.score(prepare(NEW), np.median(TARGET) < NEW_TARGET) > 0.9
    np.testing.assert_array_equal(refined.classes_, [False, True])


@pytest.mark.parametrize("name", text_models())
def test_categories_that_the_rows_do_not_have(on_text, name):
    # The model knows rome; the rows it is refined on do not.
    model, prepare = on_text[name]
    part = (FRAME["city"] != "rome").to_numpy()
    rows = prepare(FRAME[part])
    refined = refine(model, rows, TARGET[part], penalty=RIDGE)
    assert np.isfinite(refined.predict(prepare(NEW))).all()
    known = NEW["city"] != "rome"
    score = refined.score(prepare(NEW[known]), NEW_TARGET[known])
    assert score > 0.95
    own = leaves(model, prepare(NEW))
    if own is not None and name != "catboost":  # which does not keep the names of categories
        codes = refined.apply(prepare(NEW))[:, :-1]
        for column, ids in zip(codes.T, own.T, strict=True):
            inside = column != NO_CELL
            pairs = len(np.unique(np.stack([column, ids])[:, inside], axis=1).T)
            assert pairs == len(np.unique(column[inside]))


@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "histogram"])
def test_numbers_where_the_model_saw_text(on_text, name):
    model, _ = on_text[name]
    with pytest.raises(ValueError, match="city"):
        refine(model, FRAME.assign(city=1.0), TARGET, penalty=RIDGE)


@pytest.mark.parametrize("name", text_models())
def test_other_column_names(on_text, name):
    model, prepare = on_text[name]
    for wrong in (FRAME.rename(columns={"age": "years"}), FRAME[["city", "size", "age"]]):
        with pytest.raises(ValueError, match="same columns in the same order"):
            refine(model, prepare(wrong), TARGET)


# -- pipelines ---------------------------------------------------------------------------------


def forest():
    return RandomForestRegressor(6, max_leaf_nodes=5, random_state=0)


def test_a_scaler_and_a_forest():
    pipeline = make_pipeline(StandardScaler(), forest()).fit(X, Y)
    expected = pipeline.predict(X)
    refined = refine(pipeline, X, Y, penalty=RIDGE)
    assert isinstance(refined, Pipeline)
    assert [name for name, _ in refined.steps] == ["standardscaler", "randomforestregressor"]
    assert refined[0] is pipeline[0]
    assert type(refined[-1]) is JOPLEnRegressor
    scaled = pipeline[0].transform(X)
    assert_same_cells(refined[-1].apply(scaled)[:, :-1], pipeline[-1].apply(scaled))
    direct = refine(pipeline[-1], scaled, Y, penalty=RIDGE)
    np.testing.assert_array_equal(refined.predict(X), direct.predict(scaled))
    np.testing.assert_array_equal(pipeline.predict(X), expected)
    assert type(pipeline[-1]) is RandomForestRegressor


def test_a_pipeline_of_a_classifier():
    y = TARGETS["multiclass"]
    pipeline = make_pipeline(MinMaxScaler(), RandomForestClassifier(4, random_state=0)).fit(X, y)
    refined = refine(pipeline, X, y, penalty=RIDGE)
    assert refined.score(X, y) > 0.8
    np.testing.assert_array_equal(refined.classes_, np.unique(y))
    np.testing.assert_allclose(refined.predict_proba(X).sum(axis=1), 1)


def test_weights_parameters_and_validation_rows_pass_through():
    pipeline = make_pipeline(StandardScaler(), forest()).fit(X, Y)
    scaled = pipeline[0].transform(X)
    weights = np.linspace(0, 2, len(Y))
    refined = refine(pipeline, X, Y, weights, penalty=RIDGE, cells="constant")
    direct = refine(pipeline[-1], scaled, Y, weights, penalty=RIDGE, cells="constant")
    np.testing.assert_array_equal(refined.predict(X), direct.predict(scaled))
    assert refined[-1].cells == "constant"
    options = {"y_val": Y[60:], "random_state": 0}
    refined = refine(pipeline, X[:60], Y[:60], X_val=X[60:], **options)
    direct = refine(pipeline[-1], scaled[:60], Y[:60], X_val=scaled[60:], **options)
    found, expected = ((-m.cv_results_["mean_test_score"]) for m in (refined[-1], direct))
    np.testing.assert_array_equal(found, expected)


def one_hot(model, name="one_hot"):
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
        remainder="passthrough",
        sparse_threshold=1.0,
    )
    return Pipeline([(name, encode), ("model", model)])


SPARSE_MODELS = {
    "xgboost": xgboost.XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1),
    "lightgbm": lightgbm.LGBMRegressor(n_estimators=8, num_leaves=5, n_jobs=1, verbose=-1),
    "catboost": catboost.CatBoostRegressor(**CATBOOST | {"iterations": 8}),
    "random_forest": RandomForestRegressor(6, max_leaf_nodes=8, random_state=0),
}


@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_a_sparse_encoder_before_every_library(name):
    # XGBoost reads as missing what a sparse matrix does not store, the others as zero.
    pipeline = one_hot(SPARSE_MODELS[name]).fit(FRAME.fillna({"age": 20.0}), TARGET)
    rows, new = FRAME.fillna({"age": 20.0}), NEW.fillna({"age": 20.0})
    matrix = pipeline[0].transform(new)
    assert sparse.issparse(matrix)
    refined = refine(pipeline, rows, TARGET, penalty=RIDGE)
    assert list(refined.named_steps) == ["one_hot", "dense", "model"]
    inside = refined[:-1].transform(new)
    assert isinstance(inside, np.ndarray)
    assert_same_cells(refined[-1].apply(inside)[:, :-1], leaves(pipeline[-1], matrix))
    assert refined.score(new, NEW_TARGET) > 0.95
    linear = refine(pipeline, rows, TARGET, penalty=Frobenius(1e-4, 1e4))
    assert linear.score(new, NEW_TARGET) > 0.95, "the linear models see the city, too"
    assert np.isfinite(refined.predict(new.assign(city="atlantis"))).all()


def test_a_sparse_encoder_with_a_chosen_penalty():
    pipeline = one_hot(SPARSE_MODELS["xgboost"], "dense").fit(FRAME, TARGET)
    refined = refine(pipeline, FRAME, TARGET, cv=2, random_state=0)
    assert list(refined.named_steps) == ["dense", "dense_", "model"]
    assert refined.score(NEW, NEW_TARGET) > 0.95
    valid = refine(pipeline, FRAME, TARGET, X_val=NEW, y_val=NEW_TARGET)
    assert (-valid[-1].cv_results_["mean_test_score"]).min() < 0.1
    plain = refine(pipeline, FRAME, TARGET, penalty=RIDGE, add_indicator=False)
    assert not plain[-1].add_indicator


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_an_ordinal_encoder_and_lightgbm(output):
    encode = make_column_transformer(
        (OrdinalEncoder(), ["city"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform=output)
    model = lightgbm.LGBMRegressor(n_estimators=8, num_leaves=5, n_jobs=1, verbose=-1)
    pipeline = make_pipeline(encode, model).fit(FRAME, TARGET)
    refined = refine(pipeline, FRAME, TARGET, penalty=RIDGE)
    inside = pipeline[0].transform(NEW)
    assert_same_cells(refined[-1].apply(inside)[:, :-1], leaves(pipeline[-1], inside))
    assert refined.score(NEW, NEW_TARGET) > 0.9
    if output == "pandas":
        assert refined[-1].feature_names_in_.tolist() == ["city", "size", "age"]
    encoded = refine(pipeline, FRAME, TARGET, penalty=RIDGE, categorical_features=[0])
    assert encoded.score(NEW, NEW_TARGET) > refined.score(NEW, NEW_TARGET)


@pytest.mark.parametrize("first", ["passthrough", None, FunctionTransformer()])
def test_steps_that_do_nothing(first):
    pipeline = Pipeline([("nothing", first), ("model", forest())]).fit(X, Y)
    refined = refine(pipeline, X, Y, penalty=RIDGE)
    direct = refine(pipeline[-1], X, Y, penalty=RIDGE)
    np.testing.assert_array_equal(refined.predict(X), direct.predict(X))


def test_a_pipeline_of_one_step_and_one_in_another():
    single = make_pipeline(forest()).fit(X, Y)
    expected = refine(single[-1], X, Y, penalty=RIDGE).predict(X)
    np.testing.assert_array_equal(refine(single, X, Y, penalty=RIDGE).predict(X), expected)
    nested = make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler(), forest())).fit(X, Y)
    refined = refine(nested, X, Y, penalty=RIDGE)
    assert isinstance(refined[-1][-1], JOPLEnRegressor)
    assert refined.score(X, Y) > 0.8


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(StandardScaler(), forest()),
        make_pipeline(forest()),
        Pipeline([("scale", StandardScaler().fit(X)), ("model", forest())]),
        Pipeline([("scale", StandardScaler()), ("model", forest().fit(X, Y))]),
    ],
)
def test_a_pipeline_that_is_not_fitted(pipeline):
    with pytest.raises(NotFittedError, match="not fitted"):
        refine(pipeline, X, Y)


@pytest.mark.parametrize("last", [Ridge(), MaxAbsScaler(), "passthrough"])
def test_a_pipeline_that_ends_in_something_else(last):
    pipeline = make_pipeline(StandardScaler(), last).fit(X, Y)
    with pytest.raises(TypeError, match=r"model is of type .* RandomForestRegressor"):
        refine(pipeline, X, Y)
    encoded, rows = one_hot(last), FRAME.fillna(0)  # whose rows are sparse
    with pytest.raises(TypeError, match="model is of type"):
        refine(encoded.fit(rows, TARGET), rows, TARGET)


def test_rows_that_do_not_fit_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), forest()).fit(X, Y)
    with pytest.raises(ValueError, match="X has 3 features"):
        refine(pipeline, X[:, :3], Y)
    with pytest.raises(ValueError, match="X has 3 features"):
        refine(pipeline, X, Y, X_val=X[:, :3], y_val=Y)
    with pytest.raises(ValueError, match="give both or none"):
        refine(pipeline, X, Y, X_val=X)
