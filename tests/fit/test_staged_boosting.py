"""recipe="boosting": boosted trees with linear models, then constants, in their cells."""

import lightgbm
import numpy as np
import pytest
from sklearn.datasets import make_classification, make_friedman1
from sklearn.metrics import log_loss

from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._core.losses import Logistic, Multinomial, SquaredError
from jointleaf._data.columns import Columns
from jointleaf._data.features import plan_features
from jointleaf._data.rows import canonical_rows
from jointleaf._fit.component import FitContext
from jointleaf._fit.staged_boosting import Growth, Stage
from jointleaf._trees.importers.lightgbm import ModelText, leaf_models, read_trees
from jointleaf.partitions import LightGBMPartitioner

N = 10_500


def boosted(estimator, **options):
    return estimator(recipe="boosting", **options)


def _train(X, y, **params):
    params = {"verbosity": -1, "num_threads": 1, "num_leaves": 8, **params}
    return lightgbm.train(params, lightgbm.Dataset(X, y, params=params), 12)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("n_classes", [0, 3])
def test_leaves_add_up_to_the_library_s_own_prediction(linear, n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4)).astype(np.float32).astype(float)  # as linear trees see it
    y = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 5
    params = {"objective": "regression", "linear_tree": linear}
    if n_classes:
        y = np.digitize(y, np.quantile(y, [0.3, 0.6]))
        params |= {"objective": "multiclass", "num_class": n_classes}
    booster = _train(X, y, **params)
    text = ModelText(booster)
    cells = LightGBMPartitioner()
    trees = read_trees(text, Columns.numbers(4))
    cells.set_all_leaves(trees, np.ones(4))
    lines = leaf_models(text, 4)
    leaf = cells.apply(X) + trees.leaf_starts[:-1]
    raw = np.zeros((600, max(1, n_classes)))
    for column in leaf.T:
        added = lines.constants[column] + np.einsum("nd,nd->n", lines.slopes[column], X)
        np.add.at(raw, (np.arange(600), lines.outputs[column]), added)
    own = booster.predict(X, raw_score=True).reshape(raw.shape)
    np.testing.assert_allclose(raw, own, rtol=1e-5, atol=1e-5)
    assert linear == bool(np.any(lines.slopes))


def test_smooth_regression_is_better_than_lightgbm_s_default():
    X, y = make_friedman1(N + 3000, n_features=8, noise=1.0, random_state=0)
    X = X * 10.0 ** np.arange(-4, 4) + 1000.0  # scales and offsets must not matter
    model = boosted(JOPLEnRegressor, random_state=0).fit(X[:N], y[:N])
    peer = lightgbm.LGBMRegressor(random_state=0, n_jobs=1, verbose=-1).fit(X[:N], y[:N])
    mine, theirs = (np.mean((m.predict(X[N:]) - y[N:]) ** 2) for m in (model, peer))
    assert mine < 0.9 * theirs
    assert np.abs(model.coef_).sum() > 0
    assert set(np.argsort(model.feature_importances_)[-5:]) == {0, 1, 2, 3, 4}


def test_linear_cells_predict_like_the_boosted_trees():
    # A cliff at a threshold, and slopes that differ on both sides: few trees say it all.
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (N + 1000, 2))
    y = np.where(X[:, 0] > 0.2, 3 + 2 * X[:, 1], -X[:, 1])
    model = boosted(JOPLEnRegressor, random_state=0).fit(X[:N], y[:N])
    away = np.abs(X[N:, 0] - 0.2) > 0.02
    assert np.abs(model.predict(X[N:]) - y[N:])[away].mean() < 0.05
    explanation = model.explain(X[N:])
    total = explanation.baseline + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, model.predict(X[N:]), rtol=1e-9, atol=1e-9)


def test_noise_is_not_fitted():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((N + 2000, 5)), rng.standard_normal(N + 2000)
    model = boosted(JOPLEnRegressor, random_state=0).fit(X[:N], y[:N])
    assert np.var(y[N:] - model.predict(X[N:])) < 1.03 * np.var(y[N:])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_with_missing_values_and_categories(n_classes):
    import pandas as pd

    X, y = make_classification(
        N + 8000, 8, n_informative=5, n_classes=n_classes, random_state=3, flip_y=0.1
    )
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    table["kind"] = pd.Series(np.where(X[:, 0] > 0, "up", "down")).astype("category")
    table.loc[table.index % 7 == 0, "x1"] = np.nan
    names = np.array(["ant", "bee", "cow"])[y]
    model = boosted(JOPLEnClassifier, random_state=0).fit(table[:N], names[:N])
    peer = lightgbm.LGBMClassifier(random_state=0, n_jobs=1, verbose=-1).fit(table[:N], names[:N])
    mine, theirs = (log_loss(names[N:], m.predict_proba(table[N:])) for m in (model, peer))
    assert mine < theirs


def test_columns_cannot_be_left_out_of_the_linear_models():
    X, y = make_friedman1(N, n_features=5, random_state=4)
    with pytest.raises(ValueError, match=r"linear_features=\[3\] leaves out .*recipe='blend'"):
        boosted(JOPLEnRegressor, random_state=0, linear_features=[3]).fit(X, y)
    model = boosted(JOPLEnRegressor, random_state=0, linear_features="numeric").fit(X, y)
    assert model.coef_.any()


def test_weights_are_counts():
    X, y = make_friedman1(N, n_features=5, random_state=5)
    twice = np.arange(N) < N // 2
    weighted = boosted(JOPLEnRegressor, random_state=0).fit(X, y, sample_weight=1.0 + twice)
    given = boosted(JOPLEnRegressor, random_state=0).fit(
        np.concatenate([X, X[twice]]), np.concatenate([y, y[twice]])
    )
    np.testing.assert_allclose(weighted.predict(X[:50]), given.predict(X[:50]), rtol=1e-6)


def _small_context(n_classes):
    """Rows of numbers or classes, and the targets as the loss sees them."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((500, 3)).astype(np.float32).astype(float)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(500)
    loss = {0: SquaredError(), 2: Logistic(), 3: Multinomial(3)}[n_classes]
    if n_classes:
        y = np.digitize(y, np.quantile(y, [0.5] if n_classes == 2 else [0.3, 0.6])).astype(float)
        y = 2 * y - 1 if n_classes == 2 else y
    rows, columns = canonical_rows(X, y, np.ones(500)), Columns.numbers(3)
    kind = "classification" if n_classes else "regression"
    plan = plan_features(rows.X, rows.s, columns, None)
    return FitContext(rows, columns, plan, loss, kind, None, None, 0, 1)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_the_second_stage_starts_from_what_the_first_predicts(n_classes):
    # `training_raw` reads what LightGBM holds of its training rows: the model itself must agree.
    context = _small_context(n_classes)
    rows, frame = context.rows, context.standardize(context.rows)
    growth = Growth(context, frame, rows)
    linear, constants = Stage(True, 8, 10, 0.3), Stage(False, 8, 5, 0.3)
    first = growth.train(linear, None)
    start = growth.training_raw(first, None)
    own = growth.raw(first, linear, rows, None)
    second = growth.training_raw(growth.train(constants, start), start)
    later = growth.train(constants, start).predict(rows.X, raw_score=True)
    for found, expected in ((start, own), (second, own + later)):
        if n_classes > 2:  # equal up to a constant in every row, which classes do not feel
            found, expected = (f - f.mean(axis=1, keepdims=True) for f in (found, expected))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    y = frame.loss.encode(frame.target(rows.y))
    before, after = (frame.loss.value(y, f, rows.s) for f in (start, second))
    assert after < before


def test_steps_and_slopes_are_found_by_different_stages():
    X, y = make_friedman1(N, n_features=5, random_state=6)
    model = boosted(JOPLEnRegressor, random_state=0).fit(X, y + 5 * (np.floor(30 * X[:, 0]) % 2))
    lines, constants, root = model.partitioner_.partitioners_
    bounds = np.cumsum([0, lines.n_cells_.sum(), constants.n_cells_.sum()])
    assert np.abs(model.coef_[bounds[0] : bounds[1]]).max() > 0
    assert np.abs(model.coef_[bounds[1] : bounds[2]]).max() == 0
    assert root.n_cells_.tolist() == [1]
    assert model.blend_.weights == {"staged_boosting": 1.0}
    assert set(model.cell_model_.layout.kinds[-141:-1]) == {"constant"}


def test_the_scale_of_weights_does_not_matter():
    X, y = make_friedman1(N, n_features=5, random_state=8)
    s = np.random.default_rng(0).exponential(size=N)
    expected, *others = (
        boosted(JOPLEnRegressor, random_state=0)
        .fit(X, y, sample_weight=factor * s)
        .predict(X[:100])
        for factor in (1.0, 1 / N, 1000.0)
    )
    for predictions in others:
        np.testing.assert_allclose(predictions, expected, rtol=1e-3)


def test_missing_values_keep_the_linear_models_and_count_as_the_mean():
    X, y = make_friedman1(N, n_features=5, random_state=9)
    X[:40, 3] = np.nan
    model = boosted(JOPLEnRegressor, random_state=0).fit(X, y)
    lines, _, _ = model.partitioner_.partitioners_
    cells = int(lines.n_cells_.sum())
    assert np.abs(model.coef_[:cells]).max() > 0
    mean = X[:60].copy()
    mean[:40, 3] = model.cell_model_.features.scaler.mean[3]
    np.testing.assert_array_equal(lines.apply(X[:60]), lines.apply(mean))


def test_targets_with_steps_get_constants_alone():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((N + 3000, 10))
    y = np.sign(X[:, 0]) * np.sign(X[:, 1]) + (X[:, 2] > 0.5) + 0.1 * rng.standard_normal(len(X))
    model = boosted(JOPLEnRegressor, random_state=0).fit(X[:N], y[:N])
    peer = lightgbm.LGBMRegressor(random_state=0, n_jobs=1, verbose=-1).fit(X[:N], y[:N])
    mine, theirs = (np.mean((m.predict(X[N:]) - y[N:]) ** 2) for m in (model, peer))
    assert mine < theirs
    assert np.abs(model.coef_).max() == 0
    assert "from a constant: 400 rounds with constants" in model.summary()


def test_a_model_without_splits_predicts_many_rows():
    X = np.random.default_rng(11).standard_normal((N, 3))
    model = boosted(JOPLEnRegressor, random_state=0).fit(X, np.full(N, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0)


@pytest.mark.parametrize("options", [{"cells": "constant"}, {"root_cell": False}], ids=str)
def test_other_cells_are_no_other_recipe(options):
    X, y = make_friedman1(N, n_features=5, random_state=12)
    model = boosted(JOPLEnRegressor, random_state=0, **options).fit(X, y)
    assert model.report_.recipe == "boosting"
    assert "from a constant" in model.summary()
    assert model.coef_.any() == ("root_cell" in options)
    assert model.score(X, y) > 0.95


def test_several_splits_choose_together():
    X, y = make_friedman1(N, n_features=5, noise=3.0, random_state=13)
    losses = [
        boosted(JOPLEnRegressor, random_state=0, cv=cv).fit(X, y).report_.validation_loss
        for cv in (None, 3)
    ]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
