"""A limit on the time of a fit: what is left out, in which order, and what is said of it."""

import time

import numpy as np
import pytest
from sklearn.base import clone

from blend_fits import TASKS, X, Y, small_fits, true_fits, usual_blend
from jointleaf import JOPLEnClassifier, JOPLEnRegressor, MultiTaskJOPLEnRegressor
from jointleaf._fit import budget, recipes
from jointleaf._fit.boosting import Boosted, BoostedRandom
from jointleaf._fit.grouped_joint import GroupedJoint
from jointleaf._fit.joint import Joint
from jointleaf._fit.limits import Budget, Seconds, Size
from jointleaf._fit.linear import Linear
from jointleaf.io import load, save
from jointleaf.partitions import LightGBMPartitioner


@pytest.fixture
def slow(monkeypatch):
    """Make the estimated time of a component endless."""

    def make(*kinds):
        for kind in kinds:
            endless = classmethod(lambda cls, size: Seconds(1e9, 1e9))
            monkeypatch.setattr(kind, "seconds", endless)

    return make


@pytest.mark.parametrize("recipe", ["auto", "blend"])
@pytest.mark.parametrize("task", TASKS)
def test_with_time_enough_nothing_changes(task, recipe):
    kind, y = TASKS[task]
    model = kind(recipe=recipe, random_state=0)
    with small_fits():
        expected = usual_blend(task) if recipe == "blend" else model.fit(X, y)
        raw = expected.cell_model_.predict(X)
        found = clone(model).set_params(time_budget=1e6).fit(X, y)
    assert found.report_.left_out == expected.report_.left_out  # what was tried in vain
    assert "no time" not in found.summary()
    np.testing.assert_array_equal(found.cell_model_.predict(X), raw)


def test_what_takes_too_long_is_left_out_and_files_keep_it(tmp_path, slow):
    slow(GroupedJoint)
    with small_fits():
        model = JOPLEnRegressor(recipe="blend", time_budget=1e6, random_state=0).fit(X, Y)
    assert set(model.blend_.weights) == {"boosted", "boosted_random", "boosted_linear", "linear"}
    assert model.report_.left_out == ("2 of 3 splits", "joint")
    assert "left out 2 of 3 splits, joint" in " ".join(model.summary().split())
    assert model.calibration_.n_rows == len(X) // 5
    save(model, tmp_path / "model.jleaf")
    loaded = load(tmp_path / "model.jleaf")
    assert loaded.report_.left_out == model.report_.left_out
    assert loaded.time_budget == 1e6


def test_the_users_splits_stay(slow):
    slow(GroupedJoint)
    with small_fits():
        model = JOPLEnRegressor(recipe="blend", cv=2, time_budget=1e6, random_state=0).fit(X, Y)
    assert model.report_.left_out == ("joint",)
    assert model.calibration_.n_rows == len(X)


def test_a_blend_in_place_of_an_exact_joint_fit(slow):
    slow(Joint)
    with small_fits():
        model = JOPLEnRegressor(time_budget=1e6, random_state=0).fit(X, Y)
    assert model.report_.recipe == "blend"
    assert model.report_.left_out == ("the exact joint fit",)
    assert model.calibration_.n_rows == 3 * len(X) // 5  # in folds of the blend


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        (JOPLEnRegressor, {}, "linear"),
        (JOPLEnClassifier, {}, "linear"),
        (JOPLEnRegressor, {"root_cell": False}, "boosted"),
        (JOPLEnRegressor, {"recipe": "blend", "cells": "constant"}, "boosted"),
    ],
)
def test_too_short_for_anything(kind, options, name):
    y = Y if kind is JOPLEnRegressor else TASKS["three"][1]
    match = rf"time_budget=1e-09 .* fastest, {name},"
    with small_fits(), pytest.warns(UserWarning, match=match) as warned:
        model = kind(time_budget=1e-9, random_state=0, **options).fit(X, y)
    assert [w.filename for w in warned if "time_budget" in str(w.message)] == [__file__]
    assert model.blend_.weights == {name: 1.0}
    assert "joint" in model.report_.left_out
    assert model.score(X, y) > 0.5


def test_the_fastest_is_one_that_takes_part():
    """Without a root cell there is no linear model, and of many classes no boosted trees."""
    y = np.digitize(Y, np.quantile(Y, np.arange(1, 7) / 7))
    with small_fits(), pytest.warns(UserWarning, match="fastest, joint, is fitted"):
        model = JOPLEnClassifier(
            recipe="blend", root_cell=False, time_budget=1e-9, random_state=0
        ).fit(X, y)
    assert model.blend_.weights == {"joint": 1.0}
    assert model.report_.left_out == ("2 of 3 splits", "boosted_random")


def test_fewer_rows_where_there_is_no_time_for_all():
    """As many as there is time for by the estimate of boosted trees, and all classes."""
    rng = np.random.default_rng(0)
    many, y = rng.standard_normal((5000, 4)), np.zeros(5000, int)
    y[:2000], y[17] = 1, 2
    model = JOPLEnClassifier(random_state=0)
    context = model._read(many, y, None, None, False, None)
    needed = sum(
        kind.seconds(context.size._replace(n_rows=1250)).total(1) for kind in (Linear, Boosted)
    )
    plan = budget.plan_within(
        Budget(1.1 * needed), context, recipes.RECIPES["blend"], 3, splits_are_given=False
    )
    assert plan.n_splits == 1
    assert 1250 <= len(plan.context.rows) <= 1252
    assert set(plan.context.rows.y) == {0, 1, 2}
    assert plan.left_out[0] == "2 of 3 splits"
    assert plan.left_out[1].endswith("of 5,000 rows")
    plan = budget.plan_within(
        Budget(1e-6), context, recipes.RECIPES["blend"], 3, splits_are_given=False
    )
    assert len(plan.context.rows) == 5000  # a linear model of all is better than one of few


def test_the_pace_of_what_was_fitted_counts(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    budget = Budget(100)
    assert budget.allows(99)
    with budget.spending(Seconds(held_out=2.0, fit=4.0), 3):
        now[0] += 20  # more than three times slower than expected
    pace = (0.3 + 20) / (0.3 + 6)
    assert budget.allows(80 / pace - 4.01)  # what is left, without the fit to all rows
    assert not budget.allows(80 / pace - 3.99)


def test_estimates_grow_with_rows_and_columns():
    size = Size(n_rows=500, n_columns=10, n_outputs=1, is_regression=True)
    for kind in (Linear, Boosted, BoostedRandom, GroupedJoint, Joint):
        for more in (size._replace(n_rows=10**5), size._replace(n_columns=100)):
            assert kind.seconds(more).total(3) > kind.seconds(size).total(3) > 0


def test_of_very_many_classes_the_joint_fit_takes_the_time():
    """Boosting has as many trees in all, and the linear model no second derivatives."""
    few = Size(n_rows=500, n_columns=9, n_outputs=8, is_regression=False)
    many = few._replace(n_outputs=471)
    assert BoostedRandom.seconds(many) == BoostedRandom.seconds(few)
    assert Linear.seconds(many).total(1) < 1
    assert 5 < GroupedJoint.seconds(many).total(1) < 25  # measured: 20 seconds
    y = np.r_[np.arange(400), np.arange(100)]
    rows = np.random.default_rng(0).standard_normal((500, 9)) + y[:, None]
    with true_fits(), pytest.warns(UserWarning, match="y has 400 classes in 500 rows"):
        model = JOPLEnClassifier(time_budget=4, random_state=0).fit(rows, y)
    assert "joint" in model.report_.left_out
    assert set(model.blend_.weights) <= {"boosted_random", "linear"}


def test_tasks_share_the_time(slow):
    slow(Joint, GroupedJoint)
    model = MultiTaskJOPLEnRegressor(time_budget=1e6, random_state=0)
    with small_fits():
        model.fit(X, np.c_[Y, -Y])
    assert [report.left_out[-1] for report in model.report_] == ["joint", "joint"]


@pytest.mark.parametrize("value", [0, -1, np.inf, np.nan, "60", True])
def test_budgets_that_cannot_be(value):
    with pytest.raises(ValueError, match=r"time_budget=.* must be a positive number of seconds"):
        JOPLEnRegressor(time_budget=value).fit(X, Y)


@pytest.mark.parametrize(
    "options",
    [{"recipe": "joint"}, {"partitioner": LightGBMPartitioner(4, 4)}],
)
def test_a_budget_has_nothing_to_choose_from(options):
    with pytest.raises(ValueError, match=r"time_budget=5 chooses among the components of the def"):
        JOPLEnRegressor(time_budget=5, **options).fit(X, Y)
