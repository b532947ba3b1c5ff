"""Explanations add up to the prediction, for every kind of model and row."""

import numpy as np
import pytest
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

from explain_checks import BINARY, NEW_X, QUIET, RIDGE, THREE, X, Y, assert_centred, assert_sums
from frame_data import NAMES, NEW, SMALL, TASKS, make_frame, raw
from frame_data import X as FRAME
from jointleaf import (
    JOPLEnClassifier,
    JOPLEnRegressor,
    MultiTaskJOPLEnRegressor,
    prune,
    refine,
)
from jointleaf.inspection import explain
from jointleaf.partitions import (
    Partitioner,
    RandomTreesPartitioner,
    RotatedPartitioner,
    StepPartitioner,
    VoronoiPartitioner,
)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_all_partitioners_with_text_and_missing_values(name, kind):
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
        {"add_indicator": True},
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
    yield catboost.CatBoostRegressor(iterations=20, depth=4, **QUIET), Y
    yield catboost.CatBoostClassifier(iterations=10, depth=3, **QUIET), THREE


@pytest.mark.parametrize("library", range(11))
def test_refined_models(library):
    pytest.importorskip("catboost")
    pytest.importorskip("xgboost")
    trained, y = list(_libraries())[library]
    with_missing = X.copy()
    with_missing[::7, 2] = np.nan if hasattr(trained, "get_booster") else 0.0
    model = refine(trained.fit(with_missing, y), with_missing, y, penalty=RIDGE)
    assert_sums(model.explain(NEW_X), raw(model, NEW_X))
    assert_centred(model.explain(with_missing), raw(model, with_missing))


def test_a_refined_model_that_keeps_some_of_the_trained_one():
    trained = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(X, BINARY)
    model = refine(trained, X, BINARY)
    assert model.blend_.weights["leaf_values"] > 0
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


@pytest.mark.parametrize(
    "partitioner", [VoronoiPartitioner(20, 5), RotatedPartitioner(RandomTreesPartitioner(20, 5), 4)]
)
def test_cells_without_splits_on_columns_have_a_rest(partitioner):
    model = JOPLEnRegressor(partitioner, penalty=RIDGE, random_state=0).fit(X, Y)
    found = model.explain(NEW_X)
    assert_sums(found, model.predict(NEW_X))
    assert found.cells_rest.any()
    assert not found.cells.any()
    assert "\ncells: the constants of cells that combine columns" in found.describe()


def test_steps_have_no_rest():
    steps = JOPLEnRegressor(StepPartitioner(30), penalty=RIDGE, random_state=0).fit(X, Y)
    found = steps.explain(NEW_X)
    assert_sums(found, steps.predict(NEW_X))
    assert not found.cells_rest.any()
    assert found.cells.any()
    assert "cells" not in found.describe()


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
    tasks = MultiTaskJOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    tasks.fit({"a": (X, Y), "b": (X, -Y)})
    with pytest.raises(ValueError, match=r"task 'c' is not known: the tasks are \['a', 'b'\]"):
        tasks.explain(X, task="c")
    with pytest.raises(ValueError, match="one for each of the 200 rows"):
        tasks.explain(X, task=["a", "b"])
