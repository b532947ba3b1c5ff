"""Boosted trees grown by LightGBM, and their leaves as cells."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from jointleaf._core.losses import Logistic, Multinomial, Poisson, SquaredError
from jointleaf._data.columns import Columns
from jointleaf._data.features import plan_features
from jointleaf._data.rows import canonical_rows
from jointleaf._fit import boosting
from jointleaf._fit.boosting import Boosted, Growth, Stage
from jointleaf._fit.component import FitContext
from jointleaf._trees.importers.lightgbm import ModelText, leaf_models, read_trees
from jointleaf.partitions import LightGBMPartitioner

STAGES = {
    "linear": Stage(True, 8, 20, 0.2),
    "constant": Stage(False, 8, 20, 0.2),
    "random": Stage(False, 8, 20, 0.2, is_random=True),
}


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


def _context(n_classes=0, n_missing=0):
    """Rows of columns in different units, the first with missing values."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((500, 3)).astype(np.float32).astype(float)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(500)
    loss = {0: SquaredError(), 2: Logistic(), 3: Multinomial(3)}[n_classes]
    if n_classes:
        y = np.digitize(y, np.quantile(y, [0.5] if n_classes == 2 else [0.3, 0.6])).astype(float)
        y = 2 * y - 1 if n_classes == 2 else y
    X = 1000.0 + X * 10.0 ** np.arange(-2, 1)
    X[:n_missing, 0] = np.nan
    rows, columns = canonical_rows(X, y, np.ones(500)), Columns.numbers(3)
    kind = "classification" if n_classes else "regression"
    plan = plan_features(rows.X, rows.s, columns, None)
    return FitContext(rows, columns, plan, loss, kind, None, None, 0, 1)


def _grown(context, stage, rows=None):
    rows = context.rows if rows is None else rows
    growth = Growth(context, context.standardize(rows), rows, stage)
    return growth, growth.train()


@pytest.mark.parametrize("kind", STAGES)
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_the_model_predicts_as_the_library(kind, n_classes):
    context = _context(n_classes, n_missing=20)
    rows, stage = context.rows, STAGES[kind]
    growth, booster = _grown(context, stage)
    model, own = growth.model(booster), growth.raw(booster, rows)
    found = (model.predict(rows.X) - model.centre) / model.unit
    np.testing.assert_allclose(found, own, rtol=1e-4, atol=1e-4)
    assert set(model.layout.kinds) == {"linear" if stage.is_linear else "constant"}
    few = growth.model(booster, 5)
    assert few.layout.n_partitions == 5 * context.n_outputs
    frame = context.standardize(rows)
    y = frame.loss.encode(frame.target(rows.y))
    constant = np.broadcast_to(frame.loss.best_constant(y, rows.s), own.shape)
    losses = [frame.loss.value(y, f, rows.s) for f in (own, constant)]
    assert losses[0] < 0.7 * losses[1]


@pytest.mark.parametrize("kind", STAGES)
def test_the_scale_of_weights_does_not_matter(kind):
    context = _context()
    s = np.random.default_rng(0).exponential(size=len(context.rows))
    expected, *others = (
        growth.raw(booster, context.rows)
        for growth, booster in (
            _grown(context, STAGES[kind], replace(context.rows, s=factor * s))
            for factor in (1.0, 1 / 500, 1000.0)
        )
    )
    for found in others:
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_missing_values_count_as_the_mean_where_cells_are_linear():
    context = _context(n_missing=40)
    X = context.rows.X
    growth, booster = _grown(context, STAGES["linear"])
    model, mean = growth.model(booster), X.copy()
    assert np.isnan(X[:, 0]).sum() == 40
    mean[np.isnan(X)] = model.features.scaler.mean[0]
    assert np.abs(model.slopes).max() > 0
    np.testing.assert_array_equal(model.partitioner.apply(X), model.partitioner.apply(mean))


def test_validation_rows_stop_the_growth():
    context = _context()
    rows = replace(context.rows, y=np.random.default_rng(0).standard_normal(500))
    train, valid = rows.take(slice(300)), rows.take(slice(300, None))
    stage = replace(STAGES["constant"], rounds=400)
    growth = Growth(context, context.standardize(train), train, stage)
    booster = growth.train(valid)
    assert booster.current_iteration() < 400
    assert growth.model(booster).layout.n_partitions == booster.best_iteration


def _counts(rates):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 4))
    rows = canonical_rows(X, rng.poisson(rates(X)).astype(float), np.ones(600))
    columns = Columns.numbers(4)
    context = FitContext(
        rows, columns, plan_features(rows.X, rows.s, columns, None), Poisson(), "regression",
        None, None, 0, 1, units=(0.0, 1.0),
    )  # fmt: skip
    return context, (rows.take(slice(400)), rows.take(slice(400, None)))


def test_rare_counts_have_smaller_trees():
    context, (train, valid) = _counts(lambda X: 0.3 * np.exp(X[:, 0]))
    boosted = Boosted(context, {})
    large = Growth(context, context.standardize(train), train, boosted._stage)
    raw = large.raw(large.train(valid), valid)
    (smaller,) = boosted.held_out([(train, valid)])
    assert boosted._stage.n_cells < 31
    assert f"of {boosted._stage.n_cells} leaves" in boosted.describe()
    losses = [Poisson().value(valid.y, f, valid.s) for f in (smaller, raw)]
    assert losses[0] < losses[1]


def test_boosting_that_goes_on_keeps_its_trees(monkeypatch):
    context, split = _counts(lambda X: 0.3 * np.exp(X[:, 0]))
    monkeypatch.setattr(boosting, "_EARLY", 3)
    boosted = Boosted(context, {})
    boosted.held_out([split])
    assert boosted.n_rounds > 3
    assert boosted._stage.n_cells == 31


def test_other_targets_keep_their_trees():
    context = _context()
    boosted = Boosted(context, {})
    boosted.held_out([(context.rows.take(slice(300)), context.rows.take(slice(300, None)))])
    assert boosted._stage.n_cells == 31
