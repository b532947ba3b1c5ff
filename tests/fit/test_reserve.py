"""The reserve of the recipe for few rows: larger trees, where these clearly help."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from blend_fits import small_fits
from jointleaf import JOPLEnClassifier, JOPLEnRegressor, estimate_memory, prune
from jointleaf._core.losses import Logistic, SquaredError
from jointleaf._data.rows import Rows
from jointleaf._fit import recipes
from jointleaf._fit.component import explained_part, standardized_gain
from jointleaf._fit.limits import Budget

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (1000, 6))
PARITY = np.sign(X[:, 0] * X[:, 1] * X[:, 2])
NOISY = PARITY + 0.1 * RNG.normal(size=1000)
TRAIN, TEST = slice(600), slice(600, None)


@pytest.fixture(scope="module")
def parity():
    """A default fit of what trees of eight leaves cannot tell."""
    return JOPLEnRegressor(random_state=0).fit(X[TRAIN], NOISY[TRAIN])


def test_interactions_of_three_columns(parity):
    alone = JOPLEnRegressor(random_state=0, recipe="joint").fit(X[TRAIN], NOISY[TRAIN])
    errors = [np.mean((m.predict(X[TEST]) - PARITY[TEST]) ** 2) for m in (parity, alone)]
    assert errors[0] < 0.5 * errors[1]
    assert alone.report_.recipe == "joint"
    assert [part.name for part in alone.report_.components] == ["joint"]


def test_the_report_says_so(parity):
    names = [part.name for part in parity.report_.components]
    assert "large_joint" in names
    assert parity.report_.recipe == "blend"
    assert re.search(r"^recipe +blend$", parity.summary(), re.M)
    with pytest.raises(ValueError, match="fit it again with recipe='joint'"):
        prune(parity, X[TRAIN], NOISY[TRAIN])
    with pytest.raises(ValueError, match="joint"):
        parity.update(X[TEST], NOISY[TEST])


def test_classes():
    """Here the joint fit knows one column, and larger trees the interaction of the others."""
    y = (PARITY + 2 * X[:, 3] > 0).astype(int)
    model = JOPLEnClassifier(random_state=0).fit(X[TRAIN], y[TRAIN])
    assert {part.name for part in model.report_.components} & {"boosted_random", "large_joint"}
    assert model.score(X[TEST], y[TEST]) > 0.8  # 0.75 is possible without the interaction


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_no_reserve_where_small_trees_do(loss):
    """The model is that of the joint fit, to the bit; losses with kinks have no reserve."""
    y = NOISY if loss == "absolute_error" else X[:, 0] + X[:, 1] ** 2 + 0.1 * NOISY
    with small_fits():
        fits = [
            JOPLEnRegressor(random_state=0, loss=loss, recipe=recipe).fit(X[:250], y[:250])
            for recipe in ("auto", "joint")
        ]
    first, second = (model.predict(X[TEST]) for model in fits)
    np.testing.assert_array_equal(first, second)
    assert fits[0].report_.recipe == "joint"


def has_reserve(
    n_rows=300, recipe=recipes.RECIPES["joint"], budget=None, own_link=False, offset=0.0
):
    """Whether a fit has one; nothing else of its context counts."""
    columns = np.zeros((n_rows, 1)), np.zeros(n_rows), np.ones(n_rows)
    rows = Rows(*columns, np.zeros((n_rows, 0), np.int64), offset=np.full(n_rows, offset))
    size = SimpleNamespace(n_rows=n_rows, n_columns=5, n_outputs=1, is_regression=True)
    context = SimpleNamespace(target_type="regression", has_own_link=own_link, rows=rows, size=size)
    return recipes._has_reserve(context, recipe, 3, budget)


def test_where_there_is_one():
    assert has_reserve()
    assert has_reserve(budget=Budget(100.0))
    assert not has_reserve(budget=Budget(1e-3))  # no time
    assert not has_reserve(n_rows=150)
    assert not has_reserve(own_link=True)
    assert not has_reserve(offset=1.0)
    for none in (
        recipes.choose_recipe("joint", 300, None, None),
        recipes.affordable(recipes.RECIPES["joint"], 201, 1),
        recipes.affordable(recipes.RECIPES["joint"], 5, 51),
        recipes.under_constraints(recipes.RECIPES["joint"]),
        recipes.RECIPES["blend"],
    ):
        assert not has_reserve(recipe=none)


def test_columns_that_say_nothing_one_by_one():
    """Of ten columns of bits, the parity of five: the joint fit alone tosses a coin."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (1400, 10)).astype(float)
    y = bits[:, :5].sum(axis=1).astype(int) % 2
    model = JOPLEnClassifier(random_state=0).fit(bits[:900], y[:900])
    assert model.report_.recipe == "blend"
    assert model.score(bits[900:], y[900:]) > 0.9


def test_noise_is_left_to_the_joint_fit():
    """What larger trees do not explain either is not worth them."""
    y = np.random.default_rng(3).normal(size=250)
    with small_fits():
        fits = [
            JOPLEnRegressor(random_state=0, recipe=r).fit(X[:250], y) for r in ("auto", "joint")
        ]
    assert fits[0].report_.recipe == "joint"
    first, second = (model.predict(X) for model in fits)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("loss", [SquaredError(), Logistic()])
def test_gains_in_standard_errors(loss):
    """Of weighted rows, over all splits."""
    rng = np.random.default_rng(1)
    target = np.where(rng.random(200) < 0.5, -1.0, 1.0)
    before, after, s = rng.normal(size=200), rng.normal(size=200), rng.uniform(0.1, 2.0, 200)
    rows = Rows(np.zeros((200, 1)), target, s, np.zeros((200, 0), np.int64))
    context = SimpleNamespace(loss=loss, target=lambda rows, units_of: rows.y)
    splits = [(rows, rows.take(slice(80))), (rows, rows.take(slice(80, 200)))]

    def gain(f, g):
        pairs = [[values[:80], values[80:]] for values in (f, g)]
        return standardized_gain(context, *pairs, splits)

    gains = s * (loss.row_loss(target, before) - loss.row_loss(target, after))
    expected = np.sqrt(200) * gains.mean() / gains.std()
    assert gain(before, after) == pytest.approx(expected)
    assert gain(after, before) == pytest.approx(-expected)
    assert gain(before, 2 * target) > 3
    assert gain(before, before) == 0.0


def test_a_reserve_that_does_not_help_on_all_splits_is_left_out(monkeypatch):
    monkeypatch.setattr(recipes, "RESERVE_GAIN", 1e3)
    y = X[:, 3] + NOISY
    with small_fits():
        fits = [JOPLEnRegressor(random_state=0, recipe=r).fit(X, y) for r in ("auto", "joint")]
    first, second = (model.predict(X) for model in fits)
    np.testing.assert_array_equal(first, second)
    assert [part.name for part in fits[0].report_.components] == ["joint"]
    assert [model.report_.left_out for model in fits] == [(recipes.NO_HELP,), ()]
    assert f"left out         {recipes.NO_HELP}" in fits[0].summary()


def test_what_is_explained():
    """One minus the ratio of losses, that of the training mean below it, over all splits."""
    rng = np.random.default_rng(2)
    y, s, raw = rng.normal(size=60), rng.uniform(0.1, 2.0, 60), rng.normal(size=60)
    rows = Rows(np.zeros((60, 1)), y, s, np.zeros((60, 0), np.int64))
    splits = [(rows.take(slice(30, 60)), rows.take(slice(30)))] * 2
    context = SimpleNamespace(
        loss=SquaredError(),
        target=lambda rows, units_of: rows.y,
        constant=lambda rows: np.average(rows.y, weights=rows.s),
    )
    mean = np.average(y[30:], weights=s[30:])
    expected = 1 - s[:30] @ (y - raw)[:30] ** 2 / (s[:30] @ (y[:30] - mean) ** 2)
    assert explained_part(context, [raw[:30]] * 2, splits) == pytest.approx(expected)
    assert explained_part(context, [y[:30]] * 2, splits) == 1.0
    constant = replace(rows, y=np.ones(60))
    assert explained_part(context, [np.ones(60)], [(constant, constant)]) == 1.0


def test_the_memory_of_the_larger_one_is_estimated():
    auto, joint = (JOPLEnRegressor(recipe=recipe) for recipe in ("auto", "joint"))
    for n_rows, is_larger in ((250, True), (2000, False)):
        totals = [estimate_memory(model, (n_rows, 60)).total for model in (auto, joint)]
        assert (totals[0] > totals[1]) is is_larger
