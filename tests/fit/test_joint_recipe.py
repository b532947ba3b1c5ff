"""The default recipe for few rows: one joint fit, for classes with simpler models beside it."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad, lsq_linear, minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import make_friedman1

from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._data.rows import Rows, deal_rows
from jointleaf._fit import folds, joint, linear, recipes
from jointleaf._fit.blend import Stacking, least_squares_weights, logistic_weights
from jointleaf._fit.component import Blend
from jointleaf._fit.default_partitions import many_partitions
from jointleaf._fit.folds import loss_table
from jointleaf._fit.leaf_values import add_values
from jointleaf._fit.linear import fit_logistic
from jointleaf.partitions import (
    NO_CELL,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    UnionPartitioner,
)

X, Y = make_friedman1(90, n_features=5, noise=0.5, random_state=0)
NEW, _ = make_friedman1(60, n_features=5, noise=0.5, random_state=1)
BINARY = np.where(np.median(Y) < Y, "yes", "no")
THREE = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10
TASKS = {
    "regression": (JOPLEnRegressor, 1000 + 50 * Y),
    "binary": (JOPLEnClassifier, BINARY),
    "three": (JOPLEnClassifier, THREE),
}


@pytest.fixture(scope="module", autouse=True)
def fewer_trees():
    """The recipe with a tenth of its trees."""
    patch = pytest.MonkeyPatch()
    whole = joint.many_partitions

    def tenth(part):
        for name, value in part.get_params(deep=False).items():
            if name == "n_partitions":
                part.set_params(n_partitions=value // 10)
            elif name == "partitioner":
                tenth(value)
            elif name == "partitioners":
                for member in value:
                    tenth(member)
        return part

    patch.setattr(joint, "many_partitions", lambda kind: tenth(whole(kind)))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def fitted():
    return {name: kind(random_state=0, cv=3).fit(X, y) for name, (kind, y) in TASKS.items()}


def raw(model, rows):
    return getattr(model, "decision_function", model.predict)(rows)


# -- partitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "n_boosted"), [("regression", 50), ("classification", 100)])
def test_four_kinds_of_partitions(kind, n_boosted):
    boosted, random, residual = many_partitions(kind).partitioners
    assert (boosted.n_partitions, boosted.n_cells) == (n_boosted, 4)
    assert (random.n_partitions, random.n_cells) == (100, 8)
    assert isinstance(random, RandomTreesPartitioner)
    assert isinstance(residual, ResidualPartitioner)
    inner = [(p.n_partitions, p.n_cells) for p in residual.partitioner.partitioners]
    assert inner == [(50, 4), (100, 8), (100, 4)]


def test_estimators_grow_the_partitions_of_their_kind(fitted):
    for name, n_boosted in (("regression", 5), ("binary", 10), ("three", 9)):
        members = fitted[name].partitioner_.partitioners_
        assert [len(part.n_cells_) for part in members[:3]] == [n_boosted, 10, 25]
        assert list(members[3].n_cells_) == [1]
        assert None not in [p.random_state for p in members[:2]]


# -- the setting -------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_the_setting_is_the_best_of_those_tried(fitted, task):
    model = fitted[task]
    table, setting = loss_table(model.cv_results_), model.report_.joint.setting
    k = np.argmin(table["mean_loss"])
    assert setting == {name: float(table[name][k]) for name in setting}
    assert model.report_.recipe == "joint"
    assert (model.blend_ == Blend({"joint": 1.0})) == (task == "regression")


# -- components --------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", ["linear", "constant"])
@pytest.mark.parametrize("task", ["binary", "three"])
def test_the_model_is_the_sum_of_its_components(task, cells, monkeypatch):
    estimator, y = TASKS[task]
    weights = {"joint": 0.5, "linear": 0.3, "leaf_values": 0.7}
    fitted = {}

    def keep(self, context, components, held_out, splits):
        fitted.update(context=context, **components)
        assert set(weights) <= set(held_out)
        return Blend(weights)

    monkeypatch.setattr(Stacking, "fit", keep)
    scales = (0.0,) if cells == "constant" else (1.0,)
    monkeypatch.setattr("jointleaf._fit.search.SLOPE_SCALES", scales)
    plan = joint.default_plan(is_regression=False)
    monkeypatch.setattr(joint, "default_plan", lambda _: replace(plan, scales=scales))
    model = estimator(random_state=0, cv=3).fit(X, y, np.linspace(0.5, 2, 90))
    context, component, solution = fitted["context"], fitted["joint"], model.solution_
    assert set(solution.layout.kinds) == {cells}
    frame, rows = context.standardize(context.rows), context.rows
    codes = component.partitioner.apply(NEW)
    f = solution.predict(frame.features.transform(NEW), codes) + frame.offset
    theta = fit_logistic(
        frame.features.transform(rows.X), rows.y, rows.s, fitted["linear"].strength
    )
    f_linear = frame.features.transform(NEW) @ theta[:-1] + theta[-1]
    boosted = component.partitioner.partitioners_[0]
    f_values = add_values(boosted.leaf_values_, boosted.n_cells_, boosted.apply(NEW))
    expected = 0.5 * f + 0.3 * f_linear + 0.7 * f_values
    np.testing.assert_allclose(raw(model, NEW), expected, rtol=1e-7, atol=1e-9)
    assert model.blend_.weights == weights


@pytest.mark.parametrize("task", TASKS)
def test_coefficients_give_the_predictions(fitted, task):
    model = fitted[task]
    inside = np.clip(NEW, X.min(axis=0), X.max(axis=0))
    found = []
    for x, codes in zip(inside, model.apply(inside), strict=True):
        cells = (model.cell_starts_ + codes)[codes != NO_CELL]
        slopes = np.tensordot(model.coef_[cells].sum(axis=0), x, axes=(0, 0))
        found.append(model.offset_ + slopes + model.intercept_[cells].sum(axis=0))
    np.testing.assert_allclose(raw(model, inside), found, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("options", [{"cells": "constant"}, {"root_cell": False}], ids=str)
@pytest.mark.parametrize("y", [BINARY, THREE], ids=["binary", "three"])
def test_constant_cells_and_no_root_cell_get_no_linear_model(y, options):
    model = JOPLEnClassifier(random_state=0, cv=2, **options).fit(X, y)
    assert set(model.blend_.weights) == {"joint", "leaf_values"}
    assert "cells" not in options or not model.coef_.any()


def test_a_class_that_a_fold_lacks_leaves_the_joint_fit_alone():
    y = THREE.copy()
    y[y == 20] = 0
    y[0] = 20
    model = JOPLEnClassifier(random_state=0, cv=3).fit(X, y)
    assert model.blend_ == Blend({"joint": 1.0})
    assert set(model.predict(X)) <= {0, 10, 20}


# -- weights of a blend ------------------------------------------------------------------------


def predictions(n, classes, seed=0):
    """Raw predictions of a good model, of one half as good, and of noise, with targets."""
    rng = np.random.default_rng(seed)
    shape = (n,) if classes == 2 else (n, classes)
    good, noise, more = (k * rng.normal(size=shape) for k in (2, 1, 1))
    if classes == 2:
        target = np.where(rng.random(n) < expit(good), 1.0, -1.0)
    else:
        chosen = (softmax(good, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        target = np.eye(classes)[np.minimum(chosen, classes - 1)]
    return [good, good / 2 + more, noise], target


START = np.array([0.5, 0.25, 0.25])


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_follow_the_data_where_there_are_many_rows(classes):
    parts, target = predictions(20_000, classes)
    found, _ = logistic_weights(parts, target, np.ones(20_000), START, 100)
    assert min(found) >= 0
    np.testing.assert_allclose(found, [1, 0, 0], atol=0.07)
    few, target = predictions(3, classes)
    found, _ = logistic_weights(few, target, np.ones(3), START, 100)
    np.testing.assert_allclose(found, START, atol=0.2)


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_are_the_minimiser_with_a_hundred_more_rows(classes):
    parts, target = predictions(80, classes)
    s = np.random.default_rng(0).uniform(0.5, 2, 80)
    before = sum(w * p for w, p in zip(START, parts, strict=True))
    if classes == 2:  # as two classes with raw predictions 0 and f
        parts = [np.stack([np.zeros(80), p], axis=1) for p in parts]
        before = np.stack([np.zeros(80), before], axis=1)
        is_class = np.stack([target < 0, target > 0], axis=1).astype(float)
    else:
        is_class = target

    def objective(w):
        logs = log_softmax(sum(a * p for a, p in zip(w, parts, strict=True)), axis=1)
        rows, more = (is_class * logs).sum(axis=1), (softmax(before, axis=1) * logs).sum(axis=1)
        return -(s @ rows + 100 / 80 * s @ more)

    peer = minimize(objective, START, bounds=[(0, None)] * 3, tol=1e-12).x
    parts, target = predictions(80, classes)
    found, _ = logistic_weights(parts, target, s, START, 100)
    np.testing.assert_allclose(found, peer, atol=2e-3)


def test_least_squares_against_scipy():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 3))
    target, s = A @ [1.0, 0.4, -0.5] + 0.3 * rng.normal(size=50), rng.uniform(0.5, 2, 50)
    more = A @ START * 1.0
    weights = np.sqrt(np.concatenate([s, s * 100 / 50]))
    peer = lsq_linear(
        weights[:, None] * np.concatenate([A, A]),
        weights * np.concatenate([target, more]),
        (0, np.inf),
        tol=1e-14,
    ).x
    found = least_squares_weights(list(A.T), target, s, START, 100)
    np.testing.assert_allclose(found, peer, atol=1e-6)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_linear_model_is_optimal(classes, few, monkeypatch):
    if not few:
        monkeypatch.setattr(linear, "_MAX_WEIGHTS", 0)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.digitize(Y, np.quantile(Y, np.arange(1, classes) / classes))
    s, strength = np.random.default_rng(0).uniform(0.1, 5, 90), 0.02
    theta = fit_logistic(Z, y, s, strength)
    assert theta.shape == ((6,) if classes == 2 else (6, 3))
    rows = np.column_stack([Z, np.ones(90)])

    def objective(w):
        f = rows @ w.reshape(theta.shape)
        logs = log_softmax(np.stack([0 * f, f], axis=1) if classes == 2 else f, axis=1)
        ridge = strength / 2 * np.sum(w.reshape(theta.shape)[:-1] ** 2)
        return -np.average(logs[np.arange(90), y], weights=s) + ridge

    slope = check_grad(objective, np.zeros_like, theta.ravel(), epsilon=1e-7)  # against zero
    assert slope < 1e-4 * np.sqrt(theta.size), "the tolerance of the solver is 1e-4 an entry"
    assert np.linalg.norm(theta) > 1


# -- folds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_rows_with_the_same_x_are_never_on_both_sides(kind):
    rng = np.random.default_rng(0)
    values = rng.choice([0.0, -0.0, 1.0, np.nan, 2.0], size=(300, 2))
    y = rng.integers(0, 3, 300).astype(float)
    rows = Rows(values, y, np.ones(300), np.zeros((300, 0), np.int64))
    number = deal_rows(rows, 4, by_class=kind == "classification")
    assert set(number) == {0, 1, 2, 3}
    seen = {}
    for x, k in zip(np.where(np.isnan(values), 9.0, values + 0.0), number, strict=True):
        assert seen.setdefault(tuple(x), k) == k
    assert len(seen) == 16


def test_different_rows_are_dealt_out_evenly_class_by_class():
    y = np.repeat([0.0, 1.0], [70, 30])
    rows = Rows(np.arange(100.0)[:, None], y, np.ones(100), np.zeros((100, 0), np.int64))
    number = deal_rows(rows, 5, by_class=True)
    assert list(np.bincount(number)) == [20] * 5
    assert list(np.bincount(number[y == 1])) == [6] * 5


@pytest.mark.parametrize(("n", "n_folds"), [(9, 4), (200, 5), (201, 3), (2000, 3), (2001, 5)])
def test_number_of_folds(n, n_folds):
    rows = Rows(np.arange(n)[:, None] * 1.0, np.arange(n) * 1.0, np.ones(n), np.zeros((n, 0), int))
    default, given = recipes.RECIPES["joint"], recipes.choose_recipe("auto", n, RootCell(), None)
    for recipe, expected in ((default, n_folds), (given, min(5, n // 2))):
        dealt, held = recipes.n_folds_and_splits(recipe, n)
        splits = folds.make_splits(rows, None, None, "regression", n_folds=dealt, n_splits=held)
        assert len(splits) == expected
        assert sorted(np.concatenate([valid.y for _, valid in splits])) == list(range(n))
    assert recipes.n_folds_and_splits(default, 400, "classification") == (5, 5)
    assert recipes.n_folds_and_splits(default, 401, "classification") == (3, 3)


# -- an estimator like others ------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_same_model_whatever_the_order_and_the_copy(fitted, task):
    model, (_, y) = fitted[task], TASKS[task]
    expected = raw(model, NEW)
    order = np.random.default_rng(0).permutation(90)
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert again.get_params()["partitioner"] == "auto"
    assert not hasattr(again, "coef_")
    np.testing.assert_array_equal(raw(again.fit(X[order], y[order]), NEW), expected)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(raw(loaded, NEW), expected)
    assert loaded.blend_ == model.blend_
    assert isinstance(model.partitioner_, UnionPartitioner)


def test_a_weight_of_two_is_a_row_given_twice():
    twice = np.arange(90) % 3 == 0
    weighted = JOPLEnClassifier(random_state=0, cv=2).fit(X, BINARY, 1.0 + twice)
    rows, y = np.concatenate([X, X[twice]]), np.concatenate([BINARY, BINARY[twice]])
    given = JOPLEnClassifier(random_state=0, cv=2).fit(rows, y)
    np.testing.assert_array_equal(raw(weighted, NEW), raw(given, NEW))
