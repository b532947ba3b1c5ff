"""Trees in portable form: every row reaches the leaf that the library's own call says."""

import pickle
import subprocess
import sys

import lightgbm
import numpy as np
import pytest
from sklearn import ensemble

from jointleaf._data.columns import Columns
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.routing import Router
from jointleaf.partitions import FittedEnsemble, LightGBMPartitioner

SIZES = [2, 4, 16, 31, 64, 65, 300]  # of sets of leaves
QUIET = {"verbosity": -1, "num_threads": 1, "min_child_samples": 1, "min_child_weight": 0.0}
ROWS = 10_000


def native_leaves(model, X):
    """Leaf ids from the library's own public call, (n, P)."""
    if isinstance(model, lightgbm.Booster | lightgbm.LGBMModel):
        leaves = model.predict(X, pred_leaf=True)
    else:
        leaves = model.apply(X)
    return np.asarray(leaves).reshape(len(X), -1).astype(int)


def assert_same_leaves(codes, leaves):
    """Codes are leaf ids in other words: the same rows lie together in every tree."""
    assert codes.dtype == np.int32
    assert codes.shape == leaves.shape
    for code, leaf in zip(codes.T, leaves.T, strict=True):
        pairs = np.unique(np.stack([code, leaf]), axis=1).shape[1]
        assert pairs == len(np.unique(code)) == len(np.unique(leaf))


def trees_of(model, columns=None):
    adapter = find_adapter(model)
    columns = Columns.numbers(adapter.n_features(model)) if columns is None else columns
    return adapter.trees(model, columns)


def training_rows(n=2000, d=5, missing=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[:, 1] = np.round(X[:, 1])  # ties, zeros among them
    X[rng.random((n, d)) < 0.1] = 0.0
    y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) - X[:, 3] ** 2 + 0.1 * rng.standard_normal(n)
    X[rng.random((n, d)) < missing] = np.nan
    return X, y


def edge_rows(X, thresholds, missing=0.1, seed=1):
    """Rows near and far, many exactly at a threshold or one step of a float beside it."""
    rng = np.random.default_rng(seed)
    rows = X[rng.integers(0, len(X), ROWS)] + 0.01 * rng.standard_normal((ROWS, X.shape[1]))
    rows[rng.random(rows.shape) < 0.05] *= 100.0
    for j in range(X.shape[1]):
        at = [t for feature, t in thresholds if feature == j and np.isfinite(t)] or [0.0]
        places = rng.random(ROWS) < 0.5
        values = rng.choice(at, places.sum())
        for kind in (np.float64, np.float32):
            step = rng.integers(0, 3, len(values))
            with np.errstate(over="ignore", under="ignore"):
                near = [np.nextafter(values.astype(kind), kind(s)) for s in (-np.inf, np.inf)]
            values = np.choose(step, [near[0].astype(float), values, near[1].astype(float)])
        rows[places, j] = values
    zero = 1.0000000180025095e-35  # LightGBM's bound
    tiny = [0.0, -0.0, 1e-36, -1e-36, zero, -zero, np.nextafter(zero, 1), np.nextafter(-zero, -1)]
    chosen = rng.random(rows.shape) < 0.05
    rows[chosen] = rng.choice(tiny, chosen.sum())
    rows[rng.random(rows.shape) < missing] = np.nan
    return rows


def assert_routed(model, X, missing=0.1):
    """The adapter's trees send rows where the model does; give the trees."""
    trees = trees_of(model)
    thresholds = list(zip(trees.feature.tolist(), trees.threshold.tolist(), strict=True))
    for estimator in np.ravel(getattr(model, "estimators_", [])):  # before they were rounded
        tree = estimator.tree_
        thresholds += zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True)
    rows = edge_rows(X, thresholds, missing)
    codes = Router(trees)(rows)
    assert_same_leaves(codes, native_leaves(model, rows))
    assert codes.min() >= 0
    assert (codes.max(axis=0) < trees.n_leaves).all()
    return trees


# ------------------------------------------------------------------ LightGBM


@pytest.mark.parametrize("n_leaves", SIZES)
def test_lightgbm_of_every_size(n_leaves):
    X, y = training_rows()
    model = lightgbm.LGBMRegressor(n_estimators=4, num_leaves=n_leaves, **QUIET).fit(X, y)
    trees = assert_routed(model, X)
    np.testing.assert_array_equal(trees.n_leaves, np.full(4, n_leaves))


LIGHTGBM = {
    "zero_as_missing": {"zero_as_missing": True},
    "use_missing": {"use_missing": False},
    "neither": {"use_missing": False, "zero_as_missing": True},
    "linear_tree": {"linear_tree": True},
    "dart": {"boosting": "dart"},
    "forest": {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
}


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("kind", LIGHTGBM)
def test_lightgbm_kinds_of_missing_values_and_trees(kind, missing):
    X, y = training_rows(missing=missing)
    params = {**QUIET, "num_leaves": 20, **LIGHTGBM[kind]}
    booster = lightgbm.train(params, lightgbm.Dataset(X, y, params=params), 6)
    trees = assert_routed(booster, X)
    assert trees.zero_is_missing == (kind == "zero_as_missing")
    again = trees_of(lightgbm.Booster(model_str=booster.model_to_string()))
    for name, values in vars(trees).items():
        np.testing.assert_array_equal(getattr(again, name), values, err_msg=name)


@pytest.mark.parametrize("classes", [2, 3])
def test_lightgbm_classifiers(classes):
    X, y = training_rows()
    labels = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    model = lightgbm.LGBMClassifier(n_estimators=5, num_leaves=9, **QUIET).fit(X, labels)
    for each in (model, model.booster_):
        assert assert_routed(each, X).n_trees == (5 if classes == 2 else 15)


def test_lightgbm_that_stopped_early():
    X, y = training_rows()
    params = {**QUIET, "learning_rate": 0.9, "num_leaves": 40}
    data = lightgbm.Dataset(X[:300], y[:300])
    check = lightgbm.Dataset(X[300:], y[300:], reference=data)
    stop = [lightgbm.early_stopping(3, verbose=False)]
    booster = lightgbm.train(
        params, data, 60, valid_sets=[check], callbacks=stop, keep_training_booster=True
    )
    assert assert_routed(booster, X).n_trees == booster.best_iteration < booster.num_trees()


def test_lightgbm_without_a_split():
    X, y = training_rows(50)
    constant = lightgbm.LGBMRegressor(n_estimators=3, **QUIET).fit(X, np.ones_like(y))
    assert set(trees_of(constant).n_leaves) == {1}
    assert not Router(trees_of(constant))(X).any()


def test_zeros_that_mean_two_things_are_rejected():
    X, y = training_rows()
    params = {**QUIET, "num_leaves": 8}
    first = lightgbm.train(params, lightgbm.Dataset(X, y), 2)
    other = {**params, "zero_as_missing": True}
    both = lightgbm.train(other, lightgbm.Dataset(X, y, params=other), 2, init_model=first)
    with pytest.raises(ValueError, match="zeros mean two things"):
        trees_of(both)


# ------------------------------------------------------------------ LightGBM's categories


def coloured(n, seed, categories, ordered=False):
    """A frame with a text column of unequal categories and missing values, and numbers."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    categories = np.array(categories)
    number = rng.integers(0, len(categories), n)
    text = pd.Categorical(categories[number], categories=categories, ordered=ordered)
    frame = pd.DataFrame({"x": rng.standard_normal(n), "colour": text})
    y = np.sin(7.0 * number) * 3 + frame["x"].to_numpy() * (number % 3)
    frame.loc[rng.random(n) < 0.1, "colour"] = np.nan
    frame.loc[rng.random(n) < 0.1, "x"] = np.nan
    return frame, y


SEEN = [f"category {k}" for k in (5, 9, 2, 7, 30, 4, 21, 8)]  # not in sorted order
MANY = [f"{k}" for k in range(75)]  # sets of several words


@pytest.mark.parametrize("zero_as_missing", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("categories", [SEEN, MANY])
def test_lightgbm_text_categories(categories, ordered, zero_as_missing):
    frame, y = coloured(2000, 0, categories[:-1], ordered)
    model = lightgbm.LGBMRegressor(
        n_estimators=6, num_leaves=20, zero_as_missing=zero_as_missing, **QUIET
    ).fit(frame, y)
    # Columns of other rows: they lack some categories and know one that the model does not.
    other, _ = coloured(40, 1, [*categories, "new"], ordered)
    known = find_adapter(model).categories(model)
    assert list(known) == ([] if ordered else [1])
    for columns in (Columns.read(other), Columns.read(frame), Columns.read(other, known=known)):
        trees = trees_of(model, columns)
        rows, _ = coloured(ROWS, 2, [*categories, "new", "newer"], ordered)
        codes = Router(trees)(columns.encode(rows))
        seen = {*columns[1].categories.tolist(), *categories[-1:], "new", "newer", np.nan}
        here = rows["colour"].isin(seen).to_numpy()  # the others have become "unseen"
        assert_same_leaves(codes[here], native_leaves(model, rows[here]))
    assert here.all() or ordered
    assert (trees.table >= 0).any()


def test_lightgbm_whole_numbers_as_categories():
    rng = np.random.default_rng(0)
    values = np.array([-3.0, 0.0, 3.0, 31.0, 32.0, 33.0, 64.0, 100.0, 250.0, np.nan])
    X = np.column_stack([rng.choice(values, 3000), rng.standard_normal(3000)])
    y = np.sin(np.nan_to_num(X[:, 0], nan=-9.0)) + X[:, 1] * (X[:, 0] > 32)
    data = lightgbm.Dataset(X, y, categorical_feature=[0])
    booster = lightgbm.train({**QUIET, "num_leaves": 12, "min_data_per_group": 5}, data, 6)
    columns = Columns.read(X, [0])
    assert columns[0].categories[0] == -3
    rows = np.column_stack([rng.choice([*values, -1, 7, 96, 9999], ROWS), rng.normal(size=ROWS)])
    codes = Router(trees_of(booster, columns))(columns.encode(rows))
    assert_same_leaves(codes, native_leaves(booster, rows))
    partitioner = FittedEnsemble(booster).fit(columns.encode(X), columns=columns)
    leaves, new = native_leaves(booster, X), native_leaves(booster, rows)
    met = np.stack([np.isin(new[:, p], leaves[:, p]) for p in range(6)], axis=1)
    np.testing.assert_array_equal(partitioner.apply(columns.encode(rows)) >= 0, met)
    with pytest.raises(ValueError, match="splits column 0 by categories"):
        trees_of(booster)


def test_lightgbm_text_beside_declared_numbers_and_ordered_categories():
    pd = pytest.importorskip("pandas")
    frame, y = coloured(2000, 0, SEEN)
    rng = np.random.default_rng(3)
    frame["code"] = rng.integers(0, 9, 2000)
    frame["size"] = pd.Categorical(
        rng.choice(["s", "m", "l"], 2000), categories=["s", "m", "l"], ordered=True
    )
    y = y + np.sin(frame["code"]) + frame["size"].cat.codes
    models = [
        lightgbm.LGBMRegressor(n_estimators=6, num_leaves=20, **QUIET).fit(
            frame[names], y, categorical_feature=declared
        )
        for names, declared in (
            (["x", "code", "colour"], ["code", "colour"]),
            (["size", "x", "colour"], "auto"),
            (["x", "code", "size"], ["code"]),
        )
    ]
    for model in models:
        part = frame[model.feature_name_]
        columns = Columns.read(part, [name for name in part if name == "code"])
        codes = Router(trees_of(model, columns))(columns.encode(part))
        assert_same_leaves(codes, native_leaves(model, part))
    part = frame[models[0].feature_name_]
    with pytest.raises(ValueError, match="does not name them"):
        trees_of(models[0], Columns.numbers(3))
    with pytest.raises(ValueError, match="holds text"):
        trees_of(
            lightgbm.LGBMRegressor(**QUIET).fit(frame[["x", "code"]], y),
            Columns.read(part[["x", "colour"]]),
        )


# ------------------------------------------------------------------ scikit-learn

KINDS = ["RandomForest", "ExtraTrees", "GradientBoosting"]


@pytest.mark.parametrize("n_leaves", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_sklearn_regressors_of_every_size(kind, n_leaves):
    takes_missing = kind != "GradientBoosting"
    X, y = training_rows(missing=0.1 * takes_missing)
    options = {} if takes_missing else {"max_depth": None}
    model = getattr(ensemble, kind + "Regressor")(
        n_estimators=3, max_leaf_nodes=n_leaves, random_state=0, **options
    ).fit(X, y)
    trees = assert_routed(model, X, missing=0.1 * takes_missing)
    np.testing.assert_array_equal(trees.n_leaves, np.full(3, n_leaves))
    assert trees.single_precision


@pytest.mark.parametrize("kind", KINDS)
def test_sklearn_classifiers_and_missing_values_met_for_the_first_time(kind):
    X, y = training_rows(missing=0.0)
    labels = np.digitize(y, [-1.0, 1.0])
    boosting = kind == "GradientBoosting"
    for target, rounds_of in ((labels, 3), (labels > 0, 1)):
        model = (
            getattr(ensemble, kind + "Classifier")(4, random_state=0)
            if not boosting
            else (ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0))
        )
        model.fit(X, target)
        trees = assert_routed(model, X, missing=0.0 if boosting else 0.1)
        assert trees.n_trees == 4 * (rounds_of if boosting else 1)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_sklearn_trees_on_whole_numbers_declared_categories(kind):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.choice([-2.0, 3, 7, 40, np.nan], 1500), rng.normal(size=1500)])
    y = np.nan_to_num(X[:, 0], nan=20.0) * X[:, 1]
    model = getattr(ensemble, kind + "Regressor")(5, max_leaf_nodes=20, random_state=0).fit(X, y)
    columns = Columns.read(X, [0])
    router = Router(trees_of(model, columns))
    assert_same_leaves(router(columns.encode(X)), native_leaves(model, X))
    unseen, missing = np.array([[8.0, 0.1]]), np.array([[np.nan, 0.1]])
    np.testing.assert_array_equal(router(columns.encode(unseen)), router(columns.encode(missing)))
    text = Columns.read(np.array([["a", 1.0], ["b", 2.0]], dtype=object))
    with pytest.raises(ValueError, match="holds text"):
        trees_of(model, text)


# ------------------------------------------------------------------ without the library


def test_pickled_cells_need_no_library(tmp_path):
    X, y = training_rows(n=400)
    members = [
        LightGBMPartitioner(5, 8, random_state=0).fit(X, y),
        FittedEnsemble(lightgbm.LGBMRegressor(n_estimators=5, **QUIET).fit(X, y)).fit(X),
        FittedEnsemble(ensemble.RandomForestRegressor(5, random_state=0).fit(X, y)).fit(X),
    ]
    assert not any("router" in m.__getstate__() for m in members)  # made anew
    (tmp_path / "cells").write_bytes(pickle.dumps((members, X, [m.apply(X) for m in members])))
    code = (
        f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n"
        "sys.modules.update({'lightgbm': None, 'sklearn.ensemble': None})\n"
        "import pickle\n"
        f"members, X, codes = pickle.load(open({str(tmp_path / 'cells')!r}, 'rb'))\n"
        "assert all((m.apply(X) == c).all() for m, c in zip(members, codes))\n"
        "try:\n    members[2].fit(X)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "RandomForestRegressor behind these cells was left out" in done.stdout
