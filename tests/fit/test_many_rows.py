"""The default recipe for many rows: a sum of a joint fit, a linear model and boosted trees."""

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from jointleaf._fit.many_rows import ManyRows
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression

from frame_data import make_frame
from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._data.rows import Rows
from jointleaf._fit import fit_linear, many_rows, own_predictions, target_scale
from jointleaf.estimators import _base as base
from jointleaf.partitions import NO_CELL, ResidualPartitioner, UnionPartitioner

X, Y = make_friedman1(360, n_features=6, noise=0.5, random_state=0)
NEW, NEW_Y = make_friedman1(400, n_features=6, noise=0.5, random_state=1)
TASKS = {
    "regression": (JOPLEnRegressor, 1000 + 50 * Y),
    "binary": (JOPLEnClassifier, np.where(np.median(Y) < Y, "yes", "no")),
    "three": (JOPLEnClassifier, np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10),
}
WEIGHTS = np.random.default_rng(0).integers(0, 4, 360).astype(float)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(base, "MANY_ROWS", 100)
    monkeypatch.setattr(many_rows, "_ROUNDS", 30)
    monkeypatch.setattr(many_rows, "_CELLS", 8)


def raw(model, rows):
    return getattr(model, "decision_function", model.predict)(rows)


@pytest.fixture
def pieces(monkeypatch):
    """The joint fit, rows and factors of fits from here on, and what was judged."""
    kept = {"judged": []}
    judge, add = ManyRows._judge, ManyRows._with_boosted

    def judged(self, booster, train, valid):
        found = judge(self, booster, train, valid)
        kept["judged"].append((booster, train, valid, *found))
        return found

    def added(self, fit, shares, rounds):
        kept.update(job=self, fit=fit, shares=shares, rounds=rounds)
        return add(self, fit, shares, rounds)

    monkeypatch.setattr(ManyRows, "_judge", judged)
    monkeypatch.setattr(ManyRows, "_with_boosted", added)
    return kept


# -- the sum -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_the_prediction_is_the_sum_of_its_parts(task, weighted, pieces):
    estimator, y = TASKS[task]
    model = estimator(random_state=0).fit(X, y, WEIGHTS if weighted else None)
    fit, shares, rows = pieces["fit"], model.shares_, pieces["job"].job.rows
    assert shares is pieces["shares"]
    assert min(shares.joint, shares.linear, *shares.boosted) >= 0
    frame = fit.frame
    design = frame.design(NEW, fit.model.partitioner, "linear")
    expected = shares.joint * (design.matvec(fit.solution.theta) + frame.offset)
    if task != "regression":
        theta = fit_linear(
            frame.features.transform(rows.X), frame.target(rows.y), rows.s, shares.strength
        )
        linear = frame.features.transform(NEW) @ theta[0, :-1] + theta[0, -1]
        expected = expected + shares.linear * linear
    else:
        assert shares.linear == 0
    kind = "regression" if task == "regression" else "classification"
    for booster, n, factor in zip(
        pieces["job"]._boosters(), pieces["rounds"], shares.boosted, strict=True
    ):
        grown = clone(booster).set_params(n_partitions=n)
        grown.fit(
            rows.X, rows.y if kind == "regression" else rows.y.astype(int), rows.s, target_type=kind
        )
        own = own_predictions(grown.leaf_values_, grown.n_cells_, grown.apply(NEW))
        expected = expected + factor * (own - frame.centre) / frame.unit
    expected = frame.centre + frame.unit * expected
    np.testing.assert_allclose(raw(model, NEW), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_coefficients_give_the_predictions(task):
    estimator, y = TASKS[task]
    model = estimator(random_state=0).fit(X, y)
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


# -- judging -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_boosting_ends_at_the_best_multiple_of_ten(task, weighted, pieces, monkeypatch):
    monkeypatch.setattr(many_rows, "_ROUNDS", 90)
    estimator, y = TASKS[task]
    estimator(random_state=0).fit(X, y, WEIGHTS if weighted else None)
    kind = "regression" if task == "regression" else "classification"
    loss, per_round = pieces["job"].job.loss, 3 if task == "three" else 1
    assert many_rows._EVERY == 10
    assert len(pieces["judged"]) == 2
    for booster, train, valid, best, kept in pieces["judged"]:
        centre, unit = target_scale(train.y, train.s, kind)
        target = loss.encode((valid.y - centre) / unit)
        found = {}
        for n in range(10, booster.n_partitions // per_round + 1, 10):
            other = clone(booster).set_params(n_partitions=n * per_round)
            other.fit(
                train.X,
                train.y if kind == "regression" else train.y.astype(int),
                train.s,
                target_type=kind,
            )
            own = own_predictions(other.leaf_values_, other.n_cells_, other.apply(valid.X))
            found[n * per_round] = (own - centre) / unit
        losses = {n: loss.value(target, f, valid.s) for n, f in found.items()}
        assert best == min(losses, key=losses.get)
        np.testing.assert_allclose(kept, found[best], rtol=1e-6, atol=1e-6)


def test_early_stopping_takes_a_smaller_number(pieces, monkeypatch):
    monkeypatch.setattr(many_rows, "_RATE", 0.9)
    noise = np.random.default_rng(0).normal(size=360)
    JOPLEnRegressor(random_state=0).fit(X, noise)
    assert pieces["rounds"] == (10, 10), "noise is learned by heart"


def test_the_setting_is_the_best_of_those_tried():
    model = JOPLEnRegressor(random_state=0).fit(X, Y)
    table = model.cv_results_
    k = np.argmin(table["mean_loss"])
    assert model.setting_.strength == table["strength"][k]
    assert list(table["strength"]) == list(many_rows._STRENGTHS)


def test_validation_rows_that_are_given_are_those_that_judge(pieces):
    rows = np.r_[0:300]
    JOPLEnRegressor(random_state=0).fit(X[rows], Y[rows], X_val=X[300:], y_val=Y[300:])
    for _, train, valid, _, _ in pieces["judged"]:
        np.testing.assert_array_equal(valid.X, X[300:])
        assert {tuple(x) for x in train.X} == {tuple(x) for x in X[rows]}
    pieces["judged"].clear()
    split = np.r_[0:250], np.r_[250:360]
    JOPLEnRegressor(random_state=0, cv=[split]).fit(X, Y)
    for _, train, valid, _, _ in pieces["judged"]:
        assert {tuple(x) for x in valid.X} == {tuple(x) for x in X[250:]}
        assert {tuple(x) for x in train.X} == {tuple(x) for x in X[:250]}


def test_a_class_that_training_lacks(pieces):
    y = np.where(np.median(Y) < Y, 2, 0)
    y[5] = 1
    train, valid = np.setdiff1d(np.arange(250), [5]), np.append(np.arange(250, 360), 5)
    model = JOPLEnClassifier(random_state=0, cv=[(train, valid)]).fit(X, y)
    for _, used, held_out, _, kept in pieces["judged"]:
        assert set(used.y) == {0, 1, 2}
        assert set(held_out.y) == {0, 2}
        assert np.ptp(kept, axis=1).min() > 0
    assert model.score(NEW, np.where(np.median(Y) < NEW_Y, 2, 0)) > 0.8


# -- how good ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_better_than_a_constant_and_a_linear_model(weighted):
    s = WEIGHTS if weighted else None
    model = JOPLEnRegressor(random_state=0).fit(X, Y, s)
    error = np.mean((model.predict(NEW) - NEW_Y) ** 2)
    for other in (DummyRegressor(), LinearRegression()):
        assert error < 0.6 * np.mean((other.fit(X, Y, s).predict(NEW) - NEW_Y) ** 2)
    shifted = JOPLEnRegressor(random_state=0).fit(X, 1e6 + 100 * Y, s).predict(NEW)
    np.testing.assert_allclose((shifted - 1e6) / 100, model.predict(NEW), atol=0.1)


def test_weights_count_as_rows():
    whole = JOPLEnRegressor(random_state=0).fit(X, Y, WEIGHTS).predict(NEW)
    kept = np.repeat(np.arange(360), WEIGHTS.astype(int))
    order = np.random.default_rng(0).permutation(kept)
    again = JOPLEnRegressor(random_state=0).fit(X[order], Y[order]).predict(NEW)
    np.testing.assert_array_equal(whole, again)


def test_same_seed_same_model_whatever_the_threads():
    one, two = (JOPLEnRegressor(random_state=0, n_jobs=k).fit(X, Y).predict(NEW) for k in (1, 2))
    np.testing.assert_array_equal(one, two)
    other = JOPLEnRegressor(random_state=1).fit(X, Y).predict(NEW)
    assert (one != other).any()


def test_a_frame_with_categories_and_gaps():
    frame, y = make_frame(300)
    new, new_y = make_frame(200, seed=1)
    model = JOPLEnRegressor(random_state=0).fit(frame, y)
    known = new["city"].notna().to_numpy()
    assert model.score(new[known], new_y[known]) > 0.9
    classes = JOPLEnClassifier(random_state=0).fit(frame, np.median(y) < y)
    assert classes.score(new, np.median(y) < new_y) > 0.85
    odd = new.assign(city="atlantis")
    assert np.isfinite(model.predict(odd)).all()


@pytest.mark.parametrize("y", [np.ones(360), 1e6 + np.zeros(360)])
def test_a_constant_target(y):
    np.testing.assert_allclose(JOPLEnRegressor(random_state=0).fit(X, y).predict(NEW), y[0])


# -- when it is used ---------------------------------------------------------------------------


def test_only_the_default_with_enough_rows_is_fitted_so(pieces, monkeypatch):
    for options in ({"cells": "constant"}, {"root_cell": False}, {"clip": "cell"}):
        model = JOPLEnRegressor(random_state=0, cv=2, **options).fit(X[:110], Y[:110])
        assert "fit" not in pieces
        assert model.shares_ is None
    JOPLEnRegressor("lightgbm", random_state=0, cv=2).fit(X[:110], Y[:110])
    JOPLEnRegressor(random_state=0, cv=2).fit(X[:100], Y[:100])
    assert "fit" not in pieces
    model = JOPLEnRegressor(random_state=0).fit(X[:101], Y[:101])
    assert "fit" in pieces
    members = [type(p) for p in model.partitioner_.partitioners_]
    assert members.count(ResidualPartitioner) == 1
    assert isinstance(model.partitioner_, UnionPartitioner)


ELSEWHERE = """
    import pickle, sys
    sys.modules.update({"lightgbm": None, "xgboost": None, "catboost": None})
    models, rows = pickle.load(open(sys.argv[1], "rb"))
    answers = [getattr(m, "predict_proba", m.predict)(rows) for m in models]
    pickle.dump(answers, open(sys.argv[2], "wb"))
"""


def test_pickles_predict_without_lightgbm(tmp_path):
    models = [estimator(random_state=0).fit(X, y) for estimator, y in TASKS.values()]
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
    train, valid = rows.take(slice(2)), rows.take(slice(2, 5))
    more, left = many_rows.with_all_classes(rows, train, valid, "classification")
    np.testing.assert_array_equal(more.X[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(more.s, [1, 2, 3])
    np.testing.assert_array_equal(left.X[:, 0], [3, 4])
    same = many_rows.with_all_classes(rows, rows, valid, "classification")
    assert same == (rows, valid)
