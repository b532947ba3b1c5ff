"""Explanations add up to the prediction, for every kind of model and row."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from frame_data import NAMES, NEW, SMALL, TASKS, make_frame, raw
from frame_data import X as FRAME
from jointleaf import (
    L21,
    BoUTSClassifier,
    BoUTSRegressor,
    DirtyLasso,
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    MultiTaskJOPLEnClassifier,
    MultiTaskJOPLEnRegressor,
    prune,
    refine,
)
from jointleaf.inspection import explain
from jointleaf.partitions import Partitioner, StepPartitioner, VoronoiPartitioner

RIDGE = Frobenius(0.01)
X, Y = make_friedman1(200, n_features=6, noise=0.5, random_state=0)
NEW_X = 1.5 * make_friedman1(60, n_features=6, random_state=1)[0] - 0.25  # outside the range too
BINARY = np.where(np.median(Y) < Y, "yes", "no")
THREE = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))


def assert_sums(explanation, prediction):
    """Baseline and parts give the prediction up to rounding, and fit each other."""
    scale = max(1.0, np.abs(prediction).max())
    assert explanation.values.shape[:2] == explanation.data.shape
    whole = explanation.baseline + explanation.values.sum(axis=1) + explanation.cells_rest
    np.testing.assert_allclose(whole, prediction, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.prediction, prediction, rtol=0, atol=1e-10 * scale)


def assert_centred(explanation, training_prediction):
    """Over the training rows the baseline is the mean, and every column's mean is zero."""
    scale = np.abs(training_prediction).max()
    mean = training_prediction.mean(axis=0)
    np.testing.assert_allclose(explanation.baseline, mean, rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.values.mean(axis=0), 0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.linear.mean(axis=0), 0, atol=1e-10 * scale)
    np.testing.assert_allclose(explanation.cells_rest.mean(axis=0), 0, atol=1e-10 * scale)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_all_partitioners_with_text_and_gaps(name, kind):
    estimator, y = TASKS[kind]
    model = estimator(name, penalty=RIDGE, random_state=0).fit(FRAME, y)
    unseen = NEW.assign(city=NEW["city"].where(NEW.index % 3 > 0, "nowhere"))
    assert_sums(model.explain(unseen), raw(model, unseen))
    assert_centred(model.explain(FRAME), raw(model, FRAME))


@pytest.mark.parametrize(
    "options",
    [
        {"clip": False},
        {"clip": "cell"},
        {"cells": "constant"},
        {"cells": "constant", "clip": "cell"},
        {"root_cell": False},
        {"missing_indicator": True},
        {"linear_features": ["age", "kind"]},
        {"categorical_features": ["noise"]},
    ],
    ids=str,
)
def test_options(options):
    frame, y = make_frame()
    frame["noise"] = frame["noise"].round()
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0, **options).fit(frame, y)
    far = NEW.assign(size=3 * NEW["size"], noise=NEW["noise"].round())
    assert_sums(model.explain(far), model.predict(far))
    assert_centred(model.explain(frame), model.predict(frame))
    if options.get("cells") == "constant":
        assert not model.explain(far).linear.any()


@pytest.mark.parametrize("y", [Y, BINARY, THREE], ids=["regression", "binary", "multiclass"])
def test_the_default_recipe(y):
    estimator = JOPLEnRegressor if y is Y else JOPLEnClassifier
    model = estimator(random_state=0).fit(X, y)
    assert_sums(model.explain(NEW_X), raw(model, NEW_X))
    assert_centred(model.explain(X), raw(model, X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.explain(NEW_X).values, model.explain(NEW_X).values)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_the_recipe_for_many_rows(n_classes):
    if n_classes:
        X, y = make_classification(
            2300, 8, n_informative=6, n_classes=n_classes, flip_y=0.1, random_state=0
        )
        model = JOPLEnClassifier(random_state=0).fit(X, y)
    else:
        X, y = make_friedman1(2300, n_features=8, noise=1.0, random_state=0)
        model = JOPLEnRegressor(random_state=0).fit(X, y)
    assert model.shares_.boosted
    explanation = model.explain(X)
    assert_sums(explanation, raw(model, X))
    assert_centred(explanation, raw(model, X))
    # From 10,000 rows on predictions come from tables.
    many = np.tile(X[:1000], (11, 1))
    assert_sums(model.explain(many), raw(model, many))


def _libraries():
    import catboost
    import lightgbm
    import xgboost

    yield GradientBoostingRegressor(n_estimators=20, random_state=0), Y
    yield GradientBoostingClassifier(n_estimators=10, random_state=0), THREE
    yield HistGradientBoostingRegressor(max_iter=20), Y
    yield ExtraTreesRegressor(10, max_leaf_nodes=20, random_state=0), Y
    yield RandomForestClassifier(10, max_depth=4, random_state=0), BINARY
    yield lightgbm.LGBMRegressor(n_estimators=20, verbose=-1), Y
    yield lightgbm.LGBMClassifier(n_estimators=8, verbose=-1), THREE
    yield xgboost.XGBRegressor(n_estimators=20, max_depth=4), Y
    yield xgboost.XGBClassifier(n_estimators=10, max_depth=3), (BINARY == "yes").astype(int)
    yield catboost.CatBoostRegressor(iterations=20, depth=4, verbose=0), Y
    yield catboost.CatBoostClassifier(iterations=10, depth=3, verbose=0), THREE


@pytest.mark.parametrize("library", range(11))
def test_refined_models(library):
    pytest.importorskip("catboost")
    pytest.importorskip("xgboost")
    trained, y = list(_libraries())[library]
    gaps = X.copy()
    gaps[::7, 2] = np.nan if hasattr(trained, "get_booster") else 0.0
    model = refine(trained.fit(gaps, y), gaps, y, penalty=RIDGE)
    assert_sums(model.explain(NEW_X), raw(model, NEW_X))
    assert_centred(model.explain(gaps), raw(model, gaps))


def test_a_refined_model_that_keeps_some_of_the_trained_one():
    trained = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(X, BINARY)
    model = refine(trained, X, BINARY)
    assert model.mix_.own > 0
    assert_sums(model.explain(NEW_X), model.decision_function(NEW_X))
    assert_centred(model.explain(X), model.decision_function(X))


def test_pruned_models():
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(X, Y)
    small = prune(model, X, Y, n_cells=60)
    assert_sums(small.explain(NEW_X), small.predict(NEW_X))
    assert_centred(small.explain(X), small.predict(X))
    assert np.abs(small.explain(NEW_X).values - model.explain(NEW_X).values).max() > 1e-3


def test_pipelines():
    trained = make_pipeline(StandardScaler(), GradientBoostingRegressor(random_state=0)).fit(X, Y)
    model = refine(trained, X, Y, penalty=RIDGE)
    assert_sums(explain(model, NEW_X), model.predict(NEW_X))


def test_weights_of_rows_count():
    s = np.random.default_rng(0).integers(0, 4, len(Y)).astype(float)
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(X, Y, s)
    explanation = model.explain(X)
    mean = np.average(model.predict(X), weights=s)
    assert explanation.baseline == pytest.approx(mean, rel=1e-12)
    np.testing.assert_allclose(np.average(explanation.values, axis=0, weights=s), 0, atol=1e-12)


# -- cells that are not made by splits ------------------------------------------------------------


def test_voronoi_cells_have_a_rest_and_steps_have_none():
    voronoi = JOPLEnRegressor(VoronoiPartitioner(20, 5), penalty=RIDGE, random_state=0).fit(X, Y)
    found = voronoi.explain(NEW_X)
    assert_sums(found, voronoi.predict(NEW_X))
    assert found.cells_rest.any()
    assert not found.cells.any()
    steps = JOPLEnRegressor(StepPartitioner(30), penalty=RIDGE, random_state=0).fit(X, Y)
    found = steps.explain(NEW_X)
    assert_sums(found, steps.predict(NEW_X))
    assert not found.cells_rest.any()
    assert found.cells.any()


def test_the_union_of_trees_and_voronoi_cells():
    mixed = ["voronoi", "lightgbm"]
    model = JOPLEnClassifier(mixed, penalty=RIDGE, random_state=0).fit(X, THREE)
    found = model.explain(NEW_X)
    assert_sums(found, model.decision_function(NEW_X))
    assert found.cells_rest.any()
    assert found.cells.any()


class Halves(Partitioner):
    """Partitions of a user, with rows that lie in no cell."""

    def fit(self, X, y=None, sample_weight=None, *, target_type="regression", columns=None):
        self.n_features_in_ = X.shape[1]
        self.n_cells_ = np.array([2, 2])
        self.split_gains_ = np.ones(X.shape[1])
        return self

    def apply(self, X):
        codes = (X[:, :2] > 0.5).astype(np.int32)
        codes[X[:, 0] > 1] = -1
        return codes


def test_partitions_of_a_user_and_rows_in_no_cell():
    model = JOPLEnRegressor(Halves(), penalty=RIDGE, random_state=0).fit(X, Y)
    assert (model.apply(NEW_X) < 0).any()
    found = model.explain(NEW_X)
    assert_sums(found, model.predict(NEW_X))
    assert found.cells_rest.any()


def test_leaves_that_no_training_row_reached():
    trained = ExtraTreesRegressor(10, random_state=0).fit(X, Y)
    model = refine(trained, X[:40], Y[:40], penalty=RIDGE)
    assert (model.apply(NEW_X) < 0).any()
    assert_sums(model.explain(NEW_X), model.predict(NEW_X))
    assert_centred(model.explain(X[:40]), model.predict(X[:40]))


# -- several tasks --------------------------------------------------------------------------------

PAIRS = {"a": (X[:120], Y[:120]), "b": (X[120:], -Y[120:] + X[120:, 5])}


@pytest.mark.parametrize(
    "penalty", [DirtyLasso(0.05, 0.05, bias_strength=0.1), L21(0.05), RIDGE], ids=str
)
def test_tasks_as_pairs(penalty):
    model = MultiTaskJOPLEnRegressor("lightgbm", penalty=penalty, random_state=0).fit(PAIRS)
    both = model.explain(NEW_X)
    assert both.output_names == ("a", "b")
    assert_sums(both, model.predict(NEW_X))
    for name, (own, _) in PAIRS.items():
        assert_sums(model.explain(NEW_X, task=name), model.predict(NEW_X, task=name))
        assert_centred(model.explain(own, task=name), model.predict(own, task=name))
        np.testing.assert_array_equal(
            both.output(name).values, model.explain(NEW_X, task=name).values
        )
    labels = np.where(NEW_X[:, 0] > 0.5, "a", "b")
    mixed = model.explain(NEW_X, task=labels)
    assert mixed.baseline.shape == (len(NEW_X),)
    assert_sums(mixed, model.predict(NEW_X, task=labels))
    assert_sums(mixed[3:5], model.predict(NEW_X, task=labels)[3:5])


@pytest.mark.parametrize("clip", [True, "cell"])
def test_tasks_as_columns_of_y(clip):
    targets = np.column_stack([Y, X[:, 0] - Y, Y**2])
    model = MultiTaskJOPLEnRegressor("voronoi", penalty=RIDGE, clip=clip, random_state=0)
    model.fit(X, targets)
    assert_sums(model.explain(NEW_X), model.predict(NEW_X))


def test_tasks_of_a_long_table_and_each_with_its_recipe():
    frame, y = make_frame(120)
    model = MultiTaskJOPLEnRegressor(random_state=0).fit(frame, y, task="kind")
    assert_sums(model.explain(NEW), model.predict(NEW))
    assert model.explain(NEW).feature_names == ("size", "city", "age", "noise")
    assert_sums(model.explain(NEW, task="old"), model.predict(NEW, task="old"))


def test_tasks_with_two_classes():
    targets = np.column_stack([BINARY == "yes", X[:, 0] > 0.5]).astype(int)
    model = MultiTaskJOPLEnClassifier("lightgbm", penalty=RIDGE, random_state=0).fit(X, targets)
    odds = [np.log(p[:, 1] / p[:, 0]) for p in model.predict_proba(NEW_X)]
    assert_sums(model.explain(NEW_X), np.stack(odds, axis=1))
    single = MultiTaskJOPLEnClassifier("lightgbm", penalty=RIDGE, random_state=0).fit(X, BINARY)
    shares = single.predict_proba(NEW_X)
    assert_sums(single.explain(NEW_X), np.log(shares[:, 1] / shares[:, 0]))


def test_bouts():
    model = BoUTSRegressor(n_universal=20, n_task=20).fit(PAIRS)
    assert_sums(model.explain(NEW_X), model.predict(NEW_X))
    assert_sums(model.explain(NEW_X, task="b"), model.predict(NEW_X, task="b"))
    own = PAIRS["b"][0]
    assert_centred(model.explain(own, task="b"), model.predict(own, task="b"))
    unused = np.setdiff1d(np.arange(6), [*model.universal_features_, *model.task_features_["b"]])
    assert not model.explain(NEW_X, task="b").values[:, unused].any()


def test_bouts_with_classes():
    tasks = {"two": (X, BINARY), "three": (X, THREE)}
    model = BoUTSClassifier(n_universal=10, n_task=10).fit(tasks)
    shares = model.predict_proba(NEW_X, task="two")
    odds = np.log(shares[:, 1] / shares[:, 0])
    assert_sums(model.explain(NEW_X, task="two"), odds)
    found = model.explain(NEW_X, task="three").prediction
    shares = np.exp(found) / np.exp(found).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, model.predict_proba(NEW_X, task="three"), atol=1e-12)
    with pytest.raises(ValueError, match="task 'three' has several classes"):
        model.explain(NEW_X)


# -- what cannot be explained ---------------------------------------------------------------------


def test_errors():
    with pytest.raises(TypeError, match="cannot be explained: give a fitted estimator"):
        explain(Ridge().fit(X, Y), X)
    with pytest.raises(NotFittedError):
        explain(JOPLEnRegressor(), X)
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="the model has no tasks"):
        explain(model, X, task="a")
    with pytest.raises(ValueError, match="features"):
        model.explain(X[:, :3])
    tasks = MultiTaskJOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(PAIRS)
    with pytest.raises(ValueError, match=r"task 'c' is not known: the tasks are \['a', 'b'\]"):
        tasks.explain(X, task="c")
    with pytest.raises(ValueError, match="one for each of the 200 rows"):
        tasks.explain(X, task=["a", "b"])
