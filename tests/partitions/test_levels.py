"""Columns with few values: a cell for each of them, and a linear model of classes with these."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder

import jointleaf as jl
from jointleaf._data.columns import Columns
from jointleaf._fit import linear
from jointleaf._fit.blend import Blend, Stacking
from jointleaf._fit.report import loss_table
from jointleaf.partitions import LevelsPartitioner

RNG = np.random.default_rng(0)
KIND, SIZE = RNG.integers(0, 6, 240) * 2.0, RNG.choice([-1.0, 0.5, 7.0], 240)
X = np.column_stack([KIND, RNG.normal(size=240), SIZE, RNG.integers(0, 2, 240)])
#: of the values of KIND, in no order
HEIGHTS = np.array([3.0, -3.0, 2.0, -2.0, 3.0, -3.0])
RAW = HEIGHTS[(KIND / 2).astype(int)] + X[:, 1]
Y = (RAW + RNG.logistic(size=240) > 0).astype(int)
THREE = np.digitize(RAW + RNG.logistic(size=240), [-1, 1.5])
FEW = {"cv": 3, "random_state": 0}


# -- the cells ---------------------------------------------------------------------------------


def test_a_cell_for_every_value():
    cells = LevelsPartitioner().fit(X)
    np.testing.assert_array_equal(cells.n_cells_, [6, 3])
    np.testing.assert_array_equal(cells.split_features_, [0, 2])
    np.testing.assert_array_equal(cells.split_gains_, [1, 0, 1, 0])
    codes = cells.apply(X)
    for codes_of, column in zip(codes.T, (KIND, SIZE), strict=True):
        np.testing.assert_array_equal(codes_of, np.unique(column, return_inverse=True)[1])


def test_other_numbers_lie_with_the_nearer_value_and_gaps_with_the_median():
    column = np.array([[0.0], [1.0], [1.0], [5.0], [np.nan]])
    cells = LevelsPartitioner().fit(column)
    new = np.array([[-9.0], [0.4], [0.6], [2.9], [3.1], [99.0], [np.nan]])
    np.testing.assert_array_equal(cells.apply(new).ravel(), [0, 0, 1, 1, 2, 2, 1])


@pytest.mark.parametrize(("n_values", "n_cells"), [(2, [1]), (3, [3]), (20, [20]), (21, [1])])
def test_how_many_values_are_few(n_values, n_cells):
    column = np.arange(60.0)[:, None] % n_values
    np.testing.assert_array_equal(LevelsPartitioner().fit(column).n_cells_, n_cells)
    few = LevelsPartitioner(n_cells=n_values).fit(column)
    np.testing.assert_array_equal(few.n_cells_, [n_values if n_values > 2 else 1])


def test_columns_with_the_fewest_values_come_first():
    table = np.stack([np.arange(60.0) % k for k in (20,) * 9 + (10, 5, 10)], axis=1)
    cells = LevelsPartitioner().fit(table)
    np.testing.assert_array_equal(cells.n_cells_, [20] * 8 + [10, 5, 10])
    np.testing.assert_array_equal(cells.split_features_, [*range(8), 9, 10, 11])


def test_categories_are_left_out():
    columns = Columns.read(X, [0])
    np.testing.assert_array_equal(LevelsPartitioner().fit(X, columns=columns).n_cells_, [3])


def test_conventions():
    cells = LevelsPartitioner().fit(X, sample_weight=np.where(KIND == 10, 0.0, 1.0))
    np.testing.assert_array_equal(cells.n_cells_, [5, 3])
    copy = pickle.loads(pickle.dumps(cells))
    np.testing.assert_array_equal(copy.apply(X), cells.apply(X))
    assert not hasattr(clone(cells), "trees_")
    with pytest.raises(ValueError, match="n_cells"):
        LevelsPartitioner(0).fit(X)


# -- in the blend of classes ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=[Y, THREE], ids=["two", "three"])
def fitted(request):
    return jl.JOPLEnClassifier(**FEW).fit(X, request.param)


def test_values_in_no_order_are_found(fitted):
    weights = fitted.blend_.weights
    assert weights["categories"] > 0.3
    assert weights["categories"] > weights["linear"]
    assert "a constant for every category" in fitted.summary()
    assert any(isinstance(p, LevelsPartitioner) for p, _ in fitted.partitioner_.walk())


@pytest.mark.parametrize("y", [Y, THREE], ids=["two", "three"])
def test_the_component_is_logistic_regression_with_indicators(y, monkeypatch):
    fitted = {}

    def alone(self, context, components, held_out, splits):
        fitted.update(components)
        return Blend({"categories": 0.7})

    monkeypatch.setattr(Stacking, "fit", alone)
    model = jl.JOPLEnClassifier(**FEW).fit(X, y)
    ones = OneHotEncoder(sparse_output=False).fit_transform(X[:, [0, 2]])
    table = np.concatenate([(X - X.mean(axis=0)) / X.std(axis=0), ones / ones.std(axis=0)], axis=1)
    strength = fitted["categories"].strength
    peer = LogisticRegression(C=1 / (strength * len(y)), tol=1e-10, max_iter=10_000)
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
    assert loaded.blend_ == fitted.blend_
    parts = fitted.explain(X[:20])
    total = parts.baseline + parts.values.sum(axis=1) + parts.cells_rest
    np.testing.assert_allclose(total, expected[:20], rtol=1e-7, atol=1e-9)


def test_no_part_without_such_columns_or_with_too_many_weights(monkeypatch):
    numbers = jl.JOPLEnClassifier(**FEW).fit(X[:, [1, 3]], Y)
    assert "categories" not in numbers.blend_.weights
    monkeypatch.setattr(linear, "_MAX_WEIGHTS", 12)  # 4 features and 9 values
    assert "categories" not in jl.JOPLEnClassifier(**FEW).fit(X, Y).blend_.weights


def test_values_that_only_all_rows_show_leave_a_linear_model():
    """Every fold has 20 of the values, and all rows together 21."""
    rng = np.random.default_rng(1)
    column = np.append(rng.integers(0, 20, 238), [20, 20]).astype(float)
    rows = np.column_stack([column, rng.normal(size=240)])
    others = np.arange(238)
    splits = [(others[k::2], others[1 - k :: 2]) for k in (0, 1)]
    y = (rows[:, 1] + np.sin(column) + 0.3 * rng.normal(size=240) > 0).astype(int)
    model = jl.JOPLEnClassifier(cv=splits, random_state=0).fit(rows, y)
    assert "categories" in model.blend_.weights
    assert not any(isinstance(p, LevelsPartitioner) for p, _ in model.partitioner_.walk())
    assert model.score(rows, y) > 0.8


def test_pruning_merges_cells_of_the_joint_fit(fitted):
    assert fitted.blend_.weights["categories"] > 0
    small = jl.prune(fitted, X, Y, n_cells=60)
    assert int(small.partitioner_.n_cells_.sum()) <= 60
    assert np.mean(small.predict(X) == Y) > 0.75


def test_the_summary_gives_the_log_loss():
    # Settings are first compared by squared errors, which are no log-losses.
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(330, 3))
    classes = np.digitize(rows[:, 0] + rng.normal(size=330), [-0.7, 0.7])
    model = jl.JOPLEnClassifier(**FEW).fit(rows, classes)
    table = loss_table(model.cv_results_)
    assert not table["is_exact"].all()
    best = np.min(table["mean_loss"][table["is_exact"]])
    assert f"{best:.4g} ±" in model.summary()
    assert best > np.min(table["mean_loss"])
