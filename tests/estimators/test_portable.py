"""Fitted models travel: pickles hold no tree library, and predict where none can be imported."""

import copy
import pickle
import subprocess
import sys
import textwrap

import catboost
import joblib
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, refine
from jointleaf.partitions import FittedEnsemble, UnionPartitioner, make_partitioner
from jointleaf.partitions._base import LeftOut

RIDGE = Frobenius(0.01)
NUMBERS = ["size", "age"]
SIZE = {"n_estimators": 6, "random_state": 0, "n_jobs": 1}


def make_frame(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "age": rng.normal(size=n),
            "city": rng.choice(["berlin", "oslo", "rome"], n),
        }
    )
    shift = X["city"].map({"berlin": 3.0, "oslo": -3.0, "rome": 0.0})
    return X, (X["size"] + shift).to_numpy() + 0.1 * rng.normal(size=n)


X, Y = make_frame(240, 0)
NEW = pd.concat([make_frame(50, 1)[0], X.assign(city="atlantis")[:5]], ignore_index=True)
THREE = np.digitize(Y, [-1, 1])


def categories(X):
    return X.astype({"city": pd.CategoricalDtype(["oslo", "berlin", "rome"])})


def catboost_model(kind):
    return kind(
        iterations=6, depth=3, random_seed=0, thread_count=1, verbose=0, allow_writing_files=False
    )


#: Untrained models, the columns they get, and how they get them.
REGRESSORS = {
    "lightgbm": (lightgbm.LGBMRegressor(num_leaves=4, verbose=-1, **SIZE), categories),
    "xgboost": (xgboost.XGBRegressor(max_depth=2, enable_categorical=True, **SIZE), categories),
    "catboost": (catboost_model(catboost.CatBoostRegressor), lambda X: X),
    "hist_gradient_boosting": (
        HistGradientBoostingRegressor(max_iter=6, max_leaf_nodes=4, random_state=0),
        categories,
    ),
    "random_forest": (RandomForestRegressor(max_leaf_nodes=5, **SIZE), lambda X: X[NUMBERS]),
}
CLASSIFIERS = {
    "lightgbm": lightgbm.LGBMClassifier(num_leaves=4, verbose=-1, **SIZE),
    "xgboost": xgboost.XGBClassifier(max_depth=2, enable_categorical=True, **SIZE),
    "catboost": catboost_model(catboost.CatBoostClassifier),
    "hist_gradient_boosting": HistGradientBoostingClassifier(max_iter=6, max_leaf_nodes=4),
    "random_forest": RandomForestClassifier(max_leaf_nodes=5, **SIZE),
}


def train(name, kind="regressor"):
    model, prepare = REGRESSORS[name]
    model, y = (clone(model), Y) if kind == "regressor" else (clone(CLASSIFIERS[name]), THREE)
    options = {"cat_features": ["city"]} if name == "catboost" else {}
    return model.fit(prepare(X), y, **options)


@pytest.fixture(scope="module")
def trained():
    """Trained models."""
    return {name: train(name) for name in REGRESSORS}


@pytest.fixture(scope="module")
def fitted(trained):
    """Everything that is to travel: names, fitted estimators and rows to predict."""
    found = {}
    for name, (_, prepare) in REGRESSORS.items():
        rows, new = prepare(X), NEW[NUMBERS] if name == "random_forest" else NEW
        part = make_partitioner(name).set_params(n_partitions=6, n_cells=4)
        options = {"penalty": RIDGE, "random_state": 0}
        found[f"{name} grown"] = (JOPLEnRegressor(part, **options).fit(X, Y), NEW)
        found[f"{name} grown, classes"] = (JOPLEnClassifier(part, **options).fit(X, THREE), NEW)
        found[f"{name} refined"] = (refine(trained[name], rows, Y, **options), new)
        model = refine(train(name, "classifier"), rows, THREE, **options)
        found[f"{name} refined, classes"] = (model, new)
    both = [trained["lightgbm"], "voronoi", FittedEnsemble(trained["xgboost"])]
    found["list"] = (JOPLEnRegressor(both, penalty=RIDGE).fit(categories(X), Y), NEW)
    pipeline = make_pipeline(StandardScaler(), RandomForestRegressor(3, random_state=0))
    pipeline.fit(X[NUMBERS], Y)
    found["pipeline"] = (refine(pipeline, X[NUMBERS], Y, penalty=RIDGE), NEW[NUMBERS])
    chosen = refine(trained["lightgbm"], categories(X), Y, cv=2)
    found["penalty chosen"] = (chosen, NEW)
    return found


KEYS = [
    f"{name} {how}"
    for name in REGRESSORS
    for how in ("grown", "grown, classes", "refined", "refined, classes")
] + ["list", "pipeline", "penalty chosen"]

ELSEWHERE = """
    import pickle, sys

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("lightgbm", "xgboost", "catboost"):
                raise ImportError(f"{name} is not installed here")

    sys.meta_path.insert(0, Blocked())
    answers = {}
    with open(sys.argv[1], "rb") as file:
        everything = pickle.load(file)
    for name, (content, rows) in everything.items():
        model = pickle.loads(content)
        answer = getattr(model, "predict_proba", model.predict)
        answers[name] = answer(rows), getattr(model, "apply", model.predict)(rows)
    assert not {"lightgbm", "xgboost", "catboost"} & set(sys.modules)
    with open(sys.argv[2], "wb") as file:
        pickle.dump(answers, file)
"""


@pytest.fixture(scope="module")
def elsewhere(fitted, tmp_path_factory):
    """What the pickles answer in a process in which the tree libraries cannot be imported."""
    path = tmp_path_factory.mktemp("portable")
    content = {name: (pickle.dumps(model), rows) for name, (model, rows) in fitted.items()}
    (path / "models").write_bytes(pickle.dumps(content))
    command = [sys.executable, "-c", textwrap.dedent(ELSEWHERE), path / "models", path / "answers"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return pickle.loads((path / "answers").read_bytes())


def answers(model, rows):
    return getattr(model, "predict_proba", model.predict)(rows)


def test_everything_is_tested(fitted):
    assert set(fitted) == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_pickles_predict_without_the_tree_libraries(fitted, elsewhere, key):
    model, rows = fitted[key]
    found, codes = elsewhere[key]
    np.testing.assert_array_equal(found, answers(model, rows))
    np.testing.assert_array_equal(codes, getattr(model, "apply", model.predict)(rows))
    assert np.ptp(found) > 0.1


@pytest.mark.parametrize("key", KEYS)
def test_pickles_name_no_tree_library(fitted, key):
    content = pickle.dumps(fitted[key][0])
    for module in (b"lightgbm.", b"xgboost.", b"catboost.core", b"_catboost", b"sklearn.ensemble"):
        assert module not in content.replace(b"growers." + module, b"")


@pytest.mark.parametrize("name", REGRESSORS)
def test_joblib(fitted, name, tmp_path):
    model, rows = fitted[f"{name} refined"]
    joblib.dump(model, tmp_path / "model", compress=3)
    loaded = joblib.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))


@pytest.mark.parametrize("name", REGRESSORS)
def test_an_unpickled_refined_model_says_why_it_cannot_be_fitted(fitted, trained, name):
    model, _ = fitted[f"{name} refined"]
    loaded = pickle.loads(pickle.dumps(model))
    expected = rf"The {type(trained[name]).__name__} behind these cells was left out .* pickled"
    rows = REGRESSORS[name][1](X)
    for again in (loaded, clone(loaded)):
        with pytest.raises(ValueError, match=expected):
            again.fit(rows, Y)
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    assert model.partitioner is trained[name], "the model that was pickled keeps it"
    twice = pickle.loads(pickle.dumps(loaded))
    np.testing.assert_array_equal(twice.predict(rows), model.predict(rows))


def test_an_unpickled_list_of_models_says_so_too(fitted):
    loaded = pickle.loads(pickle.dumps(fitted["list"][0]))
    with pytest.raises(ValueError, match="LGBMRegressor behind these cells was left out"):
        loaded.fit(categories(X), Y)


def test_an_unpickled_grown_model_can_be_fitted_again(fitted):
    model, rows = fitted["lightgbm grown"]
    again = pickle.loads(pickle.dumps(model)).fit(X, Y)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_an_unfitted_estimator_keeps_the_model(trained):
    model = JOPLEnRegressor(trained["random_forest"], penalty=RIDGE)
    loaded = pickle.loads(pickle.dumps(model))
    assert isinstance(loaded.partitioner, RandomForestRegressor)
    assert loaded.fit(X[NUMBERS], Y).score(X[NUMBERS], Y) > 0.2


def test_partitioners_leave_the_model_out_too(trained):
    cells = FittedEnsemble(trained["random_forest"]).fit(X[NUMBERS])
    union = UnionPartitioner([cells]).fit(X[NUMBERS])
    for part in (cells, union):
        loaded = pickle.loads(pickle.dumps(part))
        np.testing.assert_array_equal(loaded.apply(NEW[NUMBERS]), part.apply(NEW[NUMBERS]))
    loaded = pickle.loads(pickle.dumps(cells))
    assert loaded.model == LeftOut("RandomForestRegressor")
    with pytest.raises(ValueError, match="left out"):
        loaded.fit(X[NUMBERS])
    with pytest.raises(ValueError, match="left out"):
        loaded.fresh().fit(X[NUMBERS], Y)
    estimator = JOPLEnRegressor(UnionPartitioner([FittedEnsemble(trained["random_forest"])]))
    estimator.set_params(penalty=RIDGE).fit(X[NUMBERS], Y)
    assert b"RandomForestRegressor" in pickle.dumps(estimator), "its name"
    assert b"sklearn.ensemble" not in pickle.dumps(estimator)


@pytest.mark.parametrize("name", REGRESSORS)
def test_the_model_itself_is_not_changed(name):
    model, rows = train(name), REGRESSORS[name][1](X)
    params, expected = copy.deepcopy(model.get_params()), model.predict(rows)
    state = None if name in ("catboost", "lightgbm") else pickle.dumps(model)
    refine(model, rows, Y, cv=2)
    np.testing.assert_array_equal(model.predict(rows), expected)
    assert str(model.get_params()) == str(params)
    if state is not None:
        assert pickle.dumps(model) == state


@pytest.mark.parametrize("name", REGRESSORS)
def test_clones_hold_the_model(fitted, trained, name):
    model, rows = fitted[f"{name} refined"]
    again = clone(model)
    assert again.partitioner is trained[name]
    again.fit(REGRESSORS[name][1](X), Y)
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_cross_validation_in_other_processes(fitted):
    rows = categories(X)
    model = fitted["lightgbm refined"][0]
    expected = cross_val_score(model, rows, Y, cv=2)
    np.testing.assert_allclose(cross_val_score(model, rows, Y, cv=2, n_jobs=2), expected)
