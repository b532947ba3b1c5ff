"""recipe="blend": a joint fit of few partitions, a linear model and boosted trees."""

import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

from frame_data import make_frame
from jointleaf import L21, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._data.rows import Rows
from jointleaf._fit import boosting, joint, recipes
from jointleaf._fit.blend import Stacking
from jointleaf._fit.boosting import Boosted, add_values
from jointleaf._fit.component import target_scale
from jointleaf._fit.linear import fit_logistic
from jointleaf.partitions import NO_CELL

X, Y = make_friedman1(360, n_features=6, noise=0.5, random_state=0)
NEW, NEW_Y = make_friedman1(400, n_features=6, noise=0.5, random_state=1)
TASKS = {
    "regression": (JOPLEnRegressor, 1000 + 50 * Y),
    "binary": (JOPLEnClassifier, np.where(np.median(Y) < Y, "yes", "no")),
    "three": (JOPLEnClassifier, np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10),
}
WEIGHTS = np.random.default_rng(0).integers(0, 4, 360).astype(float)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(boosting, "_ROUNDS", 30)
    monkeypatch.setattr(boosting, "_CELLS", 8)


def blended(estimator, **options):
    return estimator(recipe="blend", random_state=0, **options)


def raw(model, rows):
    return getattr(model, "decision_function", model.predict)(rows)


@pytest.fixture
def pieces(monkeypatch):
    """What the blend of fits from here on is fitted to."""
    fitted = {}
    fit = Stacking.fit

    def keep(self, context, components, held_out, splits):
        fitted.update(context=context, components=components, held_out=held_out, splits=splits)
        return fit(self, context, components, held_out, splits)

    monkeypatch.setattr(Stacking, "fit", keep)
    return fitted


# -- the sum -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_the_prediction_is_the_sum_of_its_components(task, weighted, pieces):
    estimator, y = TASKS[task]
    model = blended(estimator).fit(X, y, WEIGHTS if weighted else None)
    weights, components, context = model.blend_.weights, pieces["components"], pieces["context"]
    assert min(weights.values()) >= 0
    rows, solution = context.rows, model.solution_
    frame = context.standardize(rows)
    codes = components["joint"].partitioner.apply(NEW)
    Z = frame.features.transform(NEW)
    expected = weights["joint"] * (solution.predict(Z, codes) + model.report_.joint.offset)
    assert ("linear" in weights) == (task != "regression")
    if task != "regression":
        target, strength = frame.target(rows.y), components["linear"].strength
        theta = fit_logistic(frame.features.transform(rows.X), target, rows.s, strength)
        expected = expected + weights["linear"] * (Z @ theta[:-1] + theta[-1])
    for name in ("boosted", "randomized_boosted"):
        component = components[name]
        n_trees = component.n_rounds * context.n_outputs
        grown = clone(component.booster).set_params(n_partitions=n_trees)
        y = rows.y if task == "regression" else rows.y.astype(int)
        grown.fit(rows.X, y, rows.s, target_type=context.target_type)
        values = add_values(grown.leaf_values_, grown.n_cells_, grown.apply(NEW))
        expected = expected + weights[name] * (values - frame.centre) / frame.unit
    expected = frame.centre + frame.unit * expected
    np.testing.assert_allclose(raw(model, NEW), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_coefficients_give_the_predictions(task):
    estimator, y = TASKS[task]
    model = blended(estimator).fit(X, y)
    rows = X[:40]
    assert len(model.coef_) == model.partitioner_.n_cells_.sum()
    found = []
    for x, codes in zip(rows, model.apply(rows), strict=True):
        cells = (model.cell_starts_ + codes)[codes != NO_CELL]
        slopes = np.tensordot(model.coef_[cells].sum(axis=0), x, axes=(0, 0))
        found.append(model.offset_ + slopes + model.intercept_[cells].sum(axis=0))
    np.testing.assert_allclose(raw(model, rows), found, rtol=1e-7, atol=1e-7)
    if task != "regression":
        np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1)
        assert set(model.predict(X)) <= set(y)


# -- validation --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_boosting_ends_at_the_best_multiple_of_ten(task, weighted, pieces, monkeypatch):
    monkeypatch.setattr(boosting, "_ROUNDS", 90)
    estimator, y = TASKS[task]
    blended(estimator).fit(X, y, WEIGHTS if weighted else None)
    context, ((train, valid),) = pieces["context"], pieces["splits"]
    loss, n_outputs = context.loss, context.n_outputs
    assert boosting._EVERY == 10
    for name in ("boosted", "randomized_boosted"):
        component = pieces["components"][name]
        centre, unit = target_scale(train.y, train.s, context.target_type)
        target, by_round = loss.encode((valid.y - centre) / unit), {}
        y = train.y if task == "regression" else train.y.astype(int)
        for n in range(10, 90 // n_outputs + 1, 10):
            grown = clone(component.booster).set_params(n_partitions=n * n_outputs)
            grown.fit(train.X, y, train.s, target_type=context.target_type)
            values = add_values(grown.leaf_values_, grown.n_cells_, grown.apply(valid.X))
            by_round[n] = (values - centre) / unit
        losses = {n: loss.value(target, f, valid.s) for n, f in by_round.items()}
        assert component.n_rounds == min(losses, key=losses.get)
        (predictions,) = pieces["held_out"][name]
        np.testing.assert_allclose(predictions, by_round[component.n_rounds], rtol=1e-6, atol=1e-6)


def test_early_stopping_takes_a_smaller_number(pieces, monkeypatch):
    monkeypatch.setattr(boosting, "_RATE", 0.9)
    noise = np.random.default_rng(0).normal(size=360)
    blended(JOPLEnRegressor).fit(X, noise)
    rounds = [c.n_rounds for c in pieces["components"].values() if isinstance(c, Boosted)]
    assert rounds == [10, 10], "noise is learned by heart"


def test_the_strength_is_the_best_of_those_tried():
    model = blended(JOPLEnRegressor).fit(X, Y)
    table = model.cv_results_
    assert list(table["param_strength"]) == list(joint._SAMPLE_STRENGTHS)
    best = table["param_strength"][np.argmax(table["mean_test_score"])]
    assert model.report_.joint.setting["strength"] == best


def test_validation_rows_that_are_given_choose(pieces):
    rows = np.r_[0:300]
    blended(JOPLEnRegressor).fit(X[rows], Y[rows], X_val=X[300:], y_val=Y[300:])
    ((train, valid),) = pieces["splits"]
    np.testing.assert_array_equal(valid.X, X[300:])
    assert {tuple(x) for x in train.X} == {tuple(x) for x in X[rows]}
    split = np.r_[0:250], np.r_[250:360]
    blended(JOPLEnRegressor, cv=[split]).fit(X, Y)
    ((train, valid),) = pieces["splits"]
    assert {tuple(x) for x in valid.X} == {tuple(x) for x in X[250:]}
    assert {tuple(x) for x in train.X} == {tuple(x) for x in X[:250]}


def test_every_split_that_is_given_counts(pieces):
    model = blended(JOPLEnRegressor, cv=3).fit(X, Y)
    assert len(pieces["splits"]) == 3
    assert {len(parts) for parts in pieces["held_out"].values()} == {3}
    assert model.blend_ != blended(JOPLEnRegressor).fit(X, Y).blend_


def test_a_class_that_training_lacks(pieces):
    y = np.where(np.median(Y) < Y, 2, 0)
    y[5] = 1
    train, valid = np.setdiff1d(np.arange(250), [5]), np.append(np.arange(250, 360), 5)
    model = blended(JOPLEnClassifier, cv=[(train, valid)]).fit(X, y)
    ((used, held_out),) = pieces["splits"]
    assert set(used.y) == {0, 1, 2}
    assert set(held_out.y) == {0, 2}
    for name in ("boosted", "randomized_boosted"):
        assert np.ptp(pieces["held_out"][name][0], axis=1).min() > 0
    assert model.score(NEW, np.where(np.median(Y) < NEW_Y, 2, 0)) > 0.8


# -- how good ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_better_than_a_constant_and_a_linear_model(weighted):
    s = WEIGHTS if weighted else None
    model = blended(JOPLEnRegressor).fit(X, Y, s)
    error = np.mean((model.predict(NEW) - NEW_Y) ** 2)
    for other in (DummyRegressor(), LinearRegression()):
        assert error < 0.6 * np.mean((other.fit(X, Y, s).predict(NEW) - NEW_Y) ** 2)
    shifted = blended(JOPLEnRegressor).fit(X, 1e6 + 100 * Y, s).predict(NEW)
    np.testing.assert_allclose((shifted - 1e6) / 100, model.predict(NEW), atol=0.1)


def test_weights_count_as_rows():
    whole = blended(JOPLEnRegressor).fit(X, Y, WEIGHTS).predict(NEW)
    kept = np.repeat(np.arange(360), WEIGHTS.astype(int))
    order = np.random.default_rng(0).permutation(kept)
    again = blended(JOPLEnRegressor).fit(X[order], Y[order]).predict(NEW)
    np.testing.assert_array_equal(whole, again)


def test_same_seed_same_model_whatever_the_threads():
    one, two = (blended(JOPLEnRegressor, n_jobs=k).fit(X, Y).predict(NEW) for k in (1, 2))
    np.testing.assert_array_equal(one, two)
    other = JOPLEnRegressor(recipe="blend", random_state=1).fit(X, Y).predict(NEW)
    assert (one != other).any()


def test_a_frame_with_categories_and_missing_values():
    frame, y = make_frame(300)
    new, new_y = make_frame(200, seed=1)
    model = blended(JOPLEnRegressor).fit(frame, y)
    known = new["city"].notna().to_numpy()
    assert model.score(new[known], new_y[known]) > 0.9
    classes = blended(JOPLEnClassifier).fit(frame, np.median(y) < y)
    assert classes.score(new, np.median(y) < new_y) > 0.85
    odd = new.assign(city="atlantis")
    assert np.isfinite(model.predict(odd)).all()


@pytest.mark.parametrize("y", [np.ones(360), 1e6 + np.zeros(360)])
def test_a_constant_target(y):
    np.testing.assert_allclose(blended(JOPLEnRegressor).fit(X, y).predict(NEW), y[0])


# -- when it is used ---------------------------------------------------------------------------


def test_rows_decide_by_default(pieces, monkeypatch):
    names = [recipes.recipe_for(n) for n in (2, 2000, 2001, 10_000, 10_001, 10**9)]
    assert names == ["joint", "joint", "blend", "blend", "boosting", "boosting"]
    fewer = {**recipes.RECIPES, "joint": replace(recipes.RECIPES["joint"], max_rows=100)}
    monkeypatch.setattr(recipes, "RECIPES", fewer)
    assert JOPLEnRegressor(random_state=0, cv=2).fit(X[:100], Y[:100]).report_.recipe == "joint"
    assert JOPLEnRegressor(random_state=0).fit(X[:101], Y[:101]).report_.recipe == "blend"
    assert JOPLEnRegressor("lightgbm", cv=2).fit(X[:110], Y[:110]).report_.recipe == "joint"


@pytest.mark.parametrize("task", TASKS)
def test_other_cells_are_no_other_recipe(task):
    estimator, y = TASKS[task]
    usual, far = blended(estimator).fit(X, y), NEW + 3.0
    for options in ({"cells": "constant"}, {"root_cell": False}, {"clip": "cell"}):
        model = blended(estimator, **options).fit(X, y)
        assert model.report_.recipe == "blend"
        assert {"joint", "boosted", "randomized_boosted"} <= set(model.blend_.weights)
        assert ("linear" in model.blend_.weights) == (task != "regression" and "clip" in options)
        assert not np.allclose(raw(model, far), raw(usual, far)), options
        assert "cells" not in options or not model.coef_.any()


def test_the_same_partitions_with_every_penalty():
    for n, n_partitions in ((300, 401), (2100, 76)):
        rows, y = make_friedman1(n, n_features=5, random_state=0)
        fits = [
            JOPLEnRegressor(penalty=penalty, random_state=0, max_iter=3, tol=0.1).fit(rows, y)
            for penalty in ("auto", L21(10.0))
        ]
        assert [fit.solution_.layout.n_partitions for fit in fits] == [n_partitions] * 2
        joint = fits[0].apply(rows)[:, :n_partitions]
        assert {tuple(c) for c in joint.T} == {tuple(c) for c in fits[1].apply(rows).T}


ELSEWHERE = """
    import pickle, sys
    sys.modules.update({"lightgbm": None, "xgboost": None, "catboost": None})
    models, rows = pickle.load(open(sys.argv[1], "rb"))
    answers = [getattr(m, "predict_proba", m.predict)(rows) for m in models]
    pickle.dump(answers, open(sys.argv[2], "wb"))
"""


def test_pickles_predict_without_lightgbm(tmp_path):
    models = [blended(estimator).fit(X, y) for estimator, y in TASKS.values()]
    (tmp_path / "models").write_bytes(pickle.dumps((models, NEW)))
    names = tmp_path / "models", tmp_path / "answers"
    command = [sys.executable, "-c", textwrap.dedent(ELSEWHERE), *names]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    for model, answer in zip(models, pickle.loads(names[1].read_bytes()), strict=True):
        np.testing.assert_array_equal(answer, getattr(model, "predict_proba", model.predict)(NEW))


def test_rows_of_lacking_classes_move():
    y = np.array([0.0, 1, 2, 0, 1])
    rows = Rows(np.arange(5.0)[:, None], y, np.arange(1.0, 6), np.zeros((5, 0), np.int64))
    context = SimpleNamespace(rows=rows, is_regression=False)
    train, valid = rows.take(slice(2)), rows.take(slice(2, 5))
    moved, left = recipes._with_all_classes(context, train, valid)
    np.testing.assert_array_equal(moved.X[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(moved.s, [1, 2, 3])
    np.testing.assert_array_equal(left.X[:, 0], [3, 4])
    assert recipes._with_all_classes(context, rows, valid) == (rows, valid)
