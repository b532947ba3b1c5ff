"""Columns with few values: a cell for each of them, and a linear model of classes with these."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder

import jointleaf as jl
from jointleaf._fit import shares
from jointleaf.estimators import _base as base
from jointleaf.partitions import CategoryPartitioner

RNG = np.random.default_rng(0)
KIND, SIZE = RNG.integers(0, 6, 240) * 2.0, RNG.choice([-1.0, 0.5, 7.0], 240)
X = np.column_stack([KIND, RNG.normal(size=240), SIZE, RNG.integers(0, 2, 240)])
#: of the values of KIND, in no order
HEIGHTS = np.array([3.0, -3.0, 2.0, -2.0, 3.0, -3.0])
RAW = HEIGHTS[(KIND / 2).astype(int)] + X[:, 1]
Y = (RAW + RNG.logistic(size=240) > 0).astype(int)
THREE = np.digitize(RAW + RNG.logistic(size=240), [-1, 1.5])
FEW = {"cv": 3, "random_state": 0}


# -- in the mix of classes ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=[Y, THREE], ids=["two", "three"])
def fitted(request):
    return jl.JOPLEnClassifier(**FEW).fit(X, request.param)


def test_values_in_no_order_are_found(fitted):
    assert fitted.shares_.levels > 0.3
    assert fitted.shares_.levels > fitted.shares_.linear
    assert "levels" in str(fitted.summary())
    assert isinstance(fitted.partitioner_.partitioners_[0], CategoryPartitioner)


@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
def test_the_part_is_logistic_regression_with_indicators(y, monkeypatch):
    add, kept = base.with_simpler, {}

    def alone(fit, given, rows):
        kept["strength"] = given.levels_strength
        chosen = given._replace(joint=0.0, linear=0.0, own=0.0, levels=0.7)
        return add(fit, chosen, rows)

    monkeypatch.setattr(base, "with_simpler", alone)
    model = jl.JOPLEnClassifier(**FEW).fit(X, y)
    ones = OneHotEncoder(sparse_output=False).fit_transform(X[:, [0, 2]])
    table = np.concatenate([(X - X.mean(axis=0)) / X.std(axis=0), ones / ones.std(axis=0)], axis=1)
    peer = LogisticRegression(C=1 / (kept["strength"] * len(y)), tol=1e-10, max_iter=10_000)
    expected = 0.7 * peer.fit(table, y).decision_function(table)
    found = model.decision_function(X)
    if found.ndim == 2:
        found, expected = (f - f.mean(axis=1, keepdims=True) for f in (found, expected))
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


def test_files_and_explanations(fitted, tmp_path):
    jl.save(fitted, tmp_path / "model.jleaf")
    loaded = jl.load(tmp_path / "model.jleaf")
    expected = fitted.decision_function(X)
    np.testing.assert_allclose(loaded.decision_function(X), expected, rtol=1e-12)
    assert loaded.shares_ == fitted.shares_
    parts = fitted.explain(X[:20])
    total = parts.baseline + parts.values.sum(axis=1) + parts.cells_rest
    np.testing.assert_allclose(total, expected[:20], rtol=1e-7, atol=1e-9)


def test_no_part_without_such_columns_or_with_too_many_weights(monkeypatch):
    numbers = jl.JOPLEnClassifier(**FEW).fit(X[:, [1, 3]], Y)
    assert numbers.shares_.levels == 0
    monkeypatch.setattr(shares, "_MAX_WEIGHTS", 12)  # 4 features and 9 values
    assert jl.JOPLEnClassifier(**FEW).fit(X, Y).shares_.levels == 0


def test_values_that_only_all_rows_show_leave_a_linear_model():
    """Every fold has 20 of the values, and all rows together 21."""
    rng = np.random.default_rng(1)
    column = np.append(rng.integers(0, 20, 238), [20, 20]).astype(float)
    rows = np.column_stack([column, rng.normal(size=240)])
    others = np.arange(238)
    splits = [(others[k::2], others[1 - k :: 2]) for k in (0, 1)]
    y = (rows[:, 1] + np.sin(column) + 0.3 * rng.normal(size=240) > 0).astype(int)
    model = jl.JOPLEnClassifier(cv=splits, random_state=0).fit(rows, y)
    assert model.shares_.levels_strength > 0
    assert not any(isinstance(p, CategoryPartitioner) for p in model.partitioner_.partitioners_)
    assert model.score(rows, y) > 0.8


def test_pruning_merges_cells_of_the_joint_fit(fitted):
    assert fitted.shares_.levels > 0
    small = jl.prune(fitted, X, Y, n_cells=60)
    assert int(small.partitioner_.n_cells_.sum()) <= 60
    assert np.mean(small.predict(X) == Y) > 0.75


def test_the_summary_gives_the_log_loss():
    # Settings are first compared by squared errors, which are no log-losses.
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(330, 3))
    classes = np.digitize(rows[:, 0] + rng.normal(size=330), [-0.7, 0.7])
    model = jl.JOPLEnClassifier(**FEW).fit(rows, classes)
    table = model.cv_results_
    assert not table["own_loss"].all()
    best = np.min(table["mean_loss"][table["own_loss"]])
    assert f"{best:.4g} ±" in model.summary()
    assert best > np.min(table["mean_loss"])
