"""Tables of grouped trees: the sums that codes and cells give, without codes."""

import pickle
from dataclasses import replace

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn import ensemble

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, refine
from jointleaf._core.layout import CellLayout
from jointleaf._data.columns import Columns
from jointleaf._data.features import plan_features
from jointleaf._model import bulk_predict as sums_module
from jointleaf._model.bulk_predict import LEAST_ROWS, GroupedSums, PlainSums
from jointleaf._trees import grouping as grouping_module
from jointleaf._trees.grouping import group_trees
from jointleaf.partitions import (
    FittedEnsemble,
    LightGBMPartitioner,
    ResidualPartitioner,
    RootCell,
    StepPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
)

N_ROWS = 9001  # two full blocks and a part of one
QUIET = {"verbosity": -1, "num_threads": 1, "min_child_samples": 1}


def training_rows(n=1500, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[:, 1] = np.round(X[:, 1])
    X[rng.random((n, d)) < 0.1] = 0.0
    y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) - X[:, 3] ** 2 + X[:, 4:].sum(axis=1)
    X[rng.random((n, d)) < 0.1] = np.nan
    return X, y


def new_rows(X, trees, seed=1):
    """Rows of which half the numbers lie exactly at a threshold or one step beside it."""
    rng = np.random.default_rng(seed)
    rows = X[rng.integers(0, len(X), N_ROWS)] * rng.choice([1.0, 1.01, 50.0], (N_ROWS, 1))
    for j in range(X.shape[1]):
        at = trees.threshold[(trees.feature == j) & np.isfinite(trees.threshold)]
        if len(at):
            places = rng.random(N_ROWS) < 0.5
            values = rng.choice(at, places.sum())
            near = [np.nextafter(values, -np.inf), values, np.nextafter(values, np.inf)]
            rows[places, j] = np.choose(rng.integers(0, 3, len(values)), near)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows


def by_hand(Z, codes, layout, slopes, biases):
    """Sums over partitions, one partition after the other."""
    slopes = np.concatenate([slopes, np.zeros((1, *slopes.shape[1:]))]).astype(Z.dtype)
    slope_rows = np.append(layout.slope_rows, len(slopes) - 1)
    biases = np.concatenate([biases, np.zeros((1, *biases.shape[1:]))]).astype(Z.dtype)
    f = np.zeros((len(Z), *biases.shape[1:]), Z.dtype)
    for p, start in enumerate(layout.offsets[:-1]):
        cells = np.where(codes[:, p] < 0, layout.n_cells, codes[:, p] + start)
        f += np.einsum("nm,nm...->n...", Z, slopes[slope_rows[cells]]) + biases[cells]
    return f


def check(partitioner, X, rows, columns=None, *, kind="linear", outputs=(), dtype=float, one=()):
    """The tables give what the product of codes and weights gives; give the tables.

    Partitions `one` have weights for one output only, as boosted trees of several classes do.
    """
    columns = Columns.numbers(X.shape[1]) if columns is None else columns
    ones = np.ones(len(X))
    features = plan_features(X, ones, columns).fit(X, ones)
    rows = rows.astype(dtype)
    codes, Z = partitioner.apply(rows), features.transform(rows)
    layout = CellLayout(tuple(int(k) for k in partitioner.n_cells_), Z.shape[1], kind)
    rng = np.random.default_rng(2)
    slopes = rng.standard_normal((layout.n_linear_cells, layout.n_features, *outputs))
    biases = rng.standard_normal((layout.n_cells, *outputs))
    for p in one:
        is_other = np.arange(outputs[0]) != p % outputs[0]
        cells = np.flatnonzero(layout.partition_of_cell == p)
        biases[np.ix_(cells, is_other)] = 0.0
        for row in layout.slope_rows[cells[np.isin(cells, layout.linear_cells)]]:
            slopes[row, :, is_other] = 0.0
    expected = by_hand(Z, codes, layout, slopes, biases)
    tables = GroupedSums(partitioner, layout, slopes, biases, rows.dtype)
    found = tables(rows, features)
    np.testing.assert_array_equal(found, tables(rows, features, n_jobs=3))
    scale = np.abs(expected).max()
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    tol = 1e-13 if dtype is float else 1e-5
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * scale)
    return tables


def grown(kind):
    """Regression models with small trees, some of which ask the same questions."""
    if kind.startswith("lightgbm"):
        leaves = int(kind.split()[1])
        more = {"zero_as_missing": True} if "zero" in kind else {}
        return lightgbm.LGBMRegressor(n_estimators=20, num_leaves=leaves, **QUIET, **more)
    if kind == "histogram":
        return ensemble.HistGradientBoostingRegressor(max_iter=20, max_leaf_nodes=5)
    if kind == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        return xgboost.XGBRegressor(n_estimators=20, max_depth=3, n_jobs=1)
    catboost = pytest.importorskip("catboost")
    policy = "SymmetricTree" if kind == "catboost" else "Depthwise"
    return catboost.CatBoostRegressor(
        iterations=20, depth=3, grow_policy=policy, verbose=False, allow_writing_files=False
    )


KINDS = ["lightgbm 2", "lightgbm 4", "lightgbm 8", "lightgbm 4 zero", "histogram", "xgboost"]


@pytest.mark.parametrize("kind", [*KINDS, "catboost", "catboost, not symmetric"])
def test_tables_equal_codes_for_every_library(kind):
    X, y = training_rows()
    model = grown(kind).fit(X, y)
    partitioner = FittedEnsemble(model).fit(X)
    rows = new_rows(X, partitioner.trees_)
    assert check(partitioner, X, rows).n_groups <= 15
    assert check(partitioner, X, rows, kind="constant", outputs=(3,)).plain is None


@pytest.mark.parametrize("dtype", [float, np.float32])
@pytest.mark.parametrize("outputs", [(), (1,), (3,)])
@pytest.mark.parametrize("kind", ["linear", "constant"])
def test_kinds_of_cells_outputs_and_precisions(kind, outputs, dtype):
    X, y = training_rows()
    partitioner = LightGBMPartitioner(30, 5, random_state=0).fit(X, y)
    rows = new_rows(X, partitioner.trees_)
    tables = check(partitioner, X, rows, kind=kind, outputs=outputs, dtype=dtype)
    assert 0 < tables.n_groups <= 15


def test_forests_of_both_kinds_of_trees():
    X, y = training_rows()
    X = np.nan_to_num(X)
    model = ensemble.RandomForestRegressor(20, max_leaf_nodes=6, random_state=0).fit(X, y)
    partitioner = FittedEnsemble(model).fit(X)
    check(partitioner, X, np.nan_to_num(new_rows(X, partitioner.trees_)))


def test_cells_without_training_rows_add_nothing():
    X, y = training_rows()
    model = lightgbm.LGBMRegressor(n_estimators=20, num_leaves=8, **QUIET).fit(X, y)
    partitioner = FittedEnsemble(model).fit(X[:15])
    rows = new_rows(X, partitioner.trees_)
    assert (partitioner.apply(rows) < 0).any()
    check(partitioner, X, rows, outputs=(2,))


def test_unions_with_large_trees_and_without_trees():
    X, y = training_rows()
    small = LightGBMPartitioner(12, 4, random_state=0)
    large = LightGBMPartitioner(3, 100, random_state=0)
    steps = StepPartitioner(40)
    voronoi = VoronoiPartitioner(4, 3, random_state=0)
    inner = UnionPartitioner([RootCell(), steps])
    union = UnionPartitioner([large, small, inner, voronoi, RootCell()]).fit(X, y)
    rows = new_rows(X, union.partitioners_[1].trees_)
    tables = check(union, X, rows, outputs=(2,))
    assert tables.plain.layout.n_partitions == 7  # large trees and Voronoi cells
    assert tables.n_groups < 20


def test_some_large_trees_among_small_ones():
    X, y = training_rows()
    model = ensemble.GradientBoostingRegressor(n_estimators=10, max_depth=2)
    model.fit(np.nan_to_num(X), y)
    model.set_params(n_estimators=13, max_depth=9, warm_start=True).fit(np.nan_to_num(X), y)
    partitioner = FittedEnsemble(model).fit(np.nan_to_num(X))
    tables = check(partitioner, X, np.nan_to_num(new_rows(X, partitioner.trees_)))
    assert tables.plain.layout.n_partitions == 3


@pytest.mark.parametrize("dtype", [float, np.float32])
@pytest.mark.parametrize("kind", ["linear", "constant", "mixed"])
@pytest.mark.parametrize("one", [range(30), range(7, 30), [4], [0, 3, 6]])
def test_trees_that_add_to_one_output_each(one, kind, dtype):
    X, y = training_rows()
    labels = np.digitize(y, [-1.0, 1.0])
    model = lightgbm.LGBMClassifier(n_estimators=10, num_leaves=50, **QUIET).fit(X, labels)
    partitioner = FittedEnsemble(model).fit(X[:300])
    kinds = ["linear" if p % 4 else "constant" for p in range(30)] if kind == "mixed" else kind
    rows = new_rows(X, partitioner.trees_)
    assert (partitioner.apply(rows) < 0).any()
    tables = check(partitioner, X, rows, kind=kinds, outputs=(3,), dtype=dtype, one=one)
    assert tables.plain.layout.n_partitions > 25


def test_partitions_without_weights_add_nothing():
    X, y = training_rows()
    partitioner = LightGBMPartitioner(4, 100, random_state=0).fit(X, y)
    n_cells = tuple(partitioner.n_cells_.tolist())
    layout = CellLayout(n_cells, X.shape[1], "constant")
    features = plan_features(X, np.ones(len(X)), Columns.numbers(6)).fit(X, np.ones(len(X)))
    layout = layout.with_features(len(features.plan.names))
    slopes, biases = np.zeros((0, layout.n_features, 2)), np.zeros((layout.n_cells, 2))
    sums = PlainSums([partitioner], layout, slopes, biases)
    np.testing.assert_array_equal(sums(X, features), np.zeros((len(X), 2)))
    biases[: n_cells[0], 1] = 1.0
    sums = PlainSums([partitioner], layout, slopes, biases)
    np.testing.assert_array_equal(sums(X, features), np.tile([0.0, 1.0], (len(X), 1)))


def category_table(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.standard_normal(n),
            "city": rng.choice(["Oslo", "Rome", "Bonn", "Lima", None], n),
            "colour": rng.choice(list("rgbcmyk"), n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "a"] = np.nan
    y = frame["a"].fillna(0.3) * (frame["city"] == "Oslo") + frame["colour"].isin(list("rgb"))
    return frame, y.to_numpy(float)


@pytest.mark.parametrize("name", ["lightgbm", "catboost"])
def test_categories_unseen_ones_and_their_statistics(name):
    if name == "catboost":
        pytest.importorskip("catboost")
    frame, y = category_table(800)
    more, _ = category_table(LEAST_ROWS, seed=1)
    more.loc[::7, "city"] = "Nowhere"
    more.loc[::11, "colour"] = None
    model = JOPLEnRegressor(name, penalty=Frobenius(0.01), random_state=0).fit(frame, y)
    trees = model.partitioner_.partitioners_[0].trees_
    assert trees.lookups if name == "catboost" else (trees.table >= 0).any()
    at_once = model.predict(more)
    assert model.cell_model_.lookup_tables(np.dtype(float)).n_groups > 0
    parts = [model.predict(more[b : b + 999]) for b in range(0, len(more), 999)]
    np.testing.assert_allclose(at_once, np.concatenate(parts), rtol=0, atol=1e-12)


def test_many_thresholds_of_one_column_fit_into_bytes():
    X = np.random.default_rng(0).standard_normal((2000, 1))
    partitioner = StepPartitioner(600).fit(X)
    tables = check(partitioner, X, new_rows(X, partitioner.trees_), kind="constant")
    # A byte holds 255 thresholds with missing values on the left, another as many on the right.
    assert tables.n_groups == 2


def test_groups_keep_to_their_limits():
    X, y = training_rows()
    partitioner = LightGBMPartitioner(40, 6, random_state=0).fit(X, y)
    for most_states, room in ((64, 10**6), (1000, 10**6), (1000, 2500)):
        grouping = group_trees(partitioner.router, most_states, room)
        states = [group.n_states for group in grouping.groups]
        assert max(states) <= most_states
        assert sum(states) <= room
        in_groups = sorted(p for group in grouping.groups for p in group.trees)
        assert in_groups == np.flatnonzero(~grouping.ungrouped).tolist()
        assert grouping.ungrouped.any() == (room == 2500)


@pytest.mark.parametrize("kind", [*KINDS, "histogram"])
def test_states_are_counted_before_conditions_are_read(kind, monkeypatch):
    X, y = training_rows()
    router = FittedEnsemble(grown(kind).fit(X, y)).fit(X).router
    least = grouping_module._least_states(router.trees)
    conditions = grouping_module._Conditions(router)
    families = [conditions.of_tree(p) for p in range(router.trees.n_trees)]
    expected = [grouping_module._n_states(by_family.values()) for by_family in families]
    np.testing.assert_allclose(least, np.maximum(expected, router.trees.n_leaves), rtol=1e-12)
    without = group_trees(router, 500, 10**6)
    monkeypatch.setattr(grouping_module, "_least_states", lambda trees: trees.n_leaves)
    assert group_trees(router, 500, 10**6).groups == without.groups


def test_partitions_grown_on_residuals_have_tables():
    X, y = training_rows()
    inner = UnionPartitioner([LightGBMPartitioner(12, 4, random_state=0), RootCell()])
    union = UnionPartitioner([ResidualPartitioner(inner), StepPartitioner(40)]).fit(X, y)
    tables = check(union, X, new_rows(X, union.partitioners_[1].trees_))
    assert tables.plain is None


# ------------------------------------------------------------------ estimators


@pytest.mark.parametrize("kind", [JOPLEnRegressor, JOPLEnClassifier])
def test_all_trees_of_the_default_model_have_tables(kind):
    X, y = training_rows(250, 4)
    model = kind(cv=2, random_state=0).fit(X, y if kind is JOPLEnRegressor else y > 0)
    raw = getattr(model, "decision_function", model.predict)
    rows = np.tile(X, (LEAST_ROWS // len(X) + 1, 1))
    many, few = raw(rows)[: len(X)], raw(X)
    assert model.cell_model_.lookup_tables(np.dtype(float)).plain is None
    np.testing.assert_allclose(many, few, rtol=0, atol=1e-12 * np.abs(few).max())


@pytest.fixture
def made_tables(monkeypatch):
    """Types of all tables that are made."""
    types = []

    def make(*args):
        types.append(args[-1])
        return GroupedSums(*args)

    monkeypatch.setattr("jointleaf._model.cell_model.GroupedSums", make)
    return types


def test_estimators_use_tables_for_many_rows_only(monkeypatch, made_tables):
    X, y = training_rows()
    model = JOPLEnRegressor(penalty=Frobenius(0.01), n_jobs=2, random_state=0).fit(X, y)
    rows = new_rows(X, model.partitioner_.partitioners_[0].trees_)
    rows = np.concatenate([rows, rows])[:LEAST_ROWS]
    few = np.concatenate([model.predict(rows[b : b + 4000]) for b in range(0, len(rows), 4000)])
    assert not made_tables
    size = len(pickle.dumps(model))
    many = model.predict(rows)
    np.testing.assert_allclose(many, few, rtol=0, atol=1e-12 * np.abs(few).max())
    assert made_tables == [np.float64]
    assert len(pickle.dumps(model)) <= size + 1000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(rows), many)
    monkeypatch.setattr(model, "n_jobs", 1)
    np.testing.assert_array_equal(model.predict(rows), many)


def test_classes_and_single_precision(made_tables):
    X, y = training_rows()
    labels = np.digitize(y, [-1.0, 1.0])
    model = JOPLEnClassifier(penalty=Frobenius(0.01), random_state=0).fit(X, labels)
    rows = np.tile(X, (LEAST_ROWS // len(X) + 1, 1))
    many = model.predict_proba(rows)
    np.testing.assert_allclose(many[: len(X)], model.predict_proba(X), rtol=0, atol=1e-12)
    single = model.predict_proba(rows.astype(np.float32))
    assert made_tables == [np.float64, np.float32]
    np.testing.assert_allclose(
        single[: len(X)], model.predict_proba(X.astype(np.float32)), rtol=0, atol=1e-5
    )


def test_ranges_of_cells_and_large_trees_go_the_usual_way(monkeypatch):
    X, y = training_rows()
    rows = np.tile(X, (LEAST_ROWS // len(X) + 1, 1))
    clipped = JOPLEnRegressor(penalty=Frobenius(0.01), clip="cell", random_state=0).fit(X, y)
    np.testing.assert_array_equal(clipped.predict(rows)[: len(X)], clipped.predict(X))
    large = lightgbm.LGBMRegressor(n_estimators=5, num_leaves=100, **QUIET).fit(X, y)
    refined = refine(large, X, y, penalty=Frobenius(0.01))
    np.testing.assert_array_equal(refined.predict(rows)[: len(X)], refined.predict(X))
    monkeypatch.setattr(sums_module, "_ALL_BYTES", 0)
    model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(rows)[: len(X)], model.predict(X))


def test_a_changed_weight_changes_the_tables():
    X, y = training_rows()
    model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, y)
    rows = np.tile(X, (LEAST_ROWS // len(X) + 1, 1))
    before = model.predict(rows)
    cells = model.cell_model_
    doubled = replace(cells, slopes=2 * cells.slopes, biases=2 * cells.biases)
    base = cells.centre + cells.unit * cells.offset
    np.testing.assert_allclose(doubled.predict(rows, 1) - base, 2 * (before - base), atol=1e-9)
