"""The partitioner that grows its trees with CatBoost."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("catboost")

from jointleaf._data.columns import Column, Columns
from jointleaf.partitions import CatBoostPartitioner

#: Categories of the columns of `coded_rows`, 0 for numbers.
N_CATEGORIES = [0, 4, 33, 0, 2, 7]


def coded_rows(n=1500):
    """Numbers and codes, both with missing values; effects of combinations."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(0, k, n) if k else rng.normal(size=n) for k in N_CATEGORIES], axis=1)
    y = X[:, 0] * (X[:, 1] != 1) + 2 * (X[:, 1] == 0) + X[:, 2] % 3
    y += 2 * (X[:, 3] > 0) * (X[:, 5] < 3) - 3 * (X[:, 5] == 6) * X[:, 4]
    X[rng.random(n) < 0.2, 3] = np.nan
    X[rng.random(n) < 0.1, 1] = np.nan
    columns = [Column(f"x{j}", np.arange(k) if k else None) for j, k in enumerate(N_CATEGORIES)]
    return X, y + rng.normal(size=n) / 2, Columns(tuple(columns))


def labels_of(kind, y):
    if kind == "regressor":
        return y
    return (y > 0).astype(int) if kind == "binary" else np.digitize(y, [-0.5, 1.0])


@pytest.mark.parametrize(("n_cells", "most"), [(2, 2), (7, 4), (16, 16)])
@pytest.mark.parametrize("kind", ["regressor", "binary", "multiclass"])
def test_partitioner_grows_symmetric_trees(kind, n_cells, most):
    codes, y, columns = coded_rows()
    task = "regression" if kind == "regressor" else "classification"
    cells = CatBoostPartitioner(n_partitions=12, n_cells=n_cells, random_state=0)
    cells.fit(codes, labels_of(kind, y), target_type=task, columns=columns)
    assert len(cells.n_cells_) == 12  # also for several classes
    assert cells.n_cells_.max() <= most
    assert cells.trees_.n_leaves.max() == most
    assert cells.n_cells_.max() > 1
    assert cells.split_gains_.shape == (6,)
    found = cells.apply(codes)
    np.testing.assert_array_equal(found.max(axis=0) + 1, cells.n_cells_)
    assert found.min() == 0


def test_partitioner_grows_leaf_by_leaf():
    codes, y, columns = coded_rows()
    for policy, most in [("Lossguide", 7), ("Depthwise", 4)]:
        cells = CatBoostPartitioner(8, 7, random_state=0, options={"grow_policy": policy})
        cells.fit(codes, y, columns=columns)
        assert cells.n_cells_.max() == most
        # At least 5 rows a leaf, but for those that statistics of the whole table leave empty.
        rows = [np.bincount(c)[np.bincount(c) > 0].min() for c in cells.apply(codes).T]
        assert np.median(rows) >= 5


def test_partitioner_seeds_and_threads():
    codes, y, columns = coded_rows()

    def grow(seed, n_jobs=1):
        cells = CatBoostPartitioner(10, 8, random_state=seed, n_jobs=n_jobs)
        return cells.fit(codes, y, columns=columns).apply(codes)

    np.testing.assert_array_equal(grow(1), grow(1))
    np.testing.assert_array_equal(grow(1), grow(1, n_jobs=2))
    assert (grow(1) != grow(2)).any()


@pytest.mark.parametrize(
    "options",
    [
        {"n_estimators": 3, "max_depth": 1},
        {"num_trees": 3, "eta": 0.3, "random_state": 7},
        {"num_boost_round": 3, "verbose": 0},
        {"iterations": 3, "silent": True, "bootstrap_type": "Bayesian"},
        {"iterations": 3, "bagging_temperature": 0.5, "reg_lambda": 0},
        {"iterations": 3, "objective": "MAE", "colsample_bylevel": 1.0},
        {"iterations": 3, "loss_function": "Poisson", "subsample": 0.5},
        {"iterations": 3, "grow_policy": "Lossguide", "num_leaves": 3, "min_child_samples": 2},
    ],
)
def test_partitioner_options_under_any_name(options, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    codes, y, columns = coded_rows(400)
    cells = CatBoostPartitioner(n_partitions=5, random_state=0, n_jobs=1, options=options)
    cells.fit(codes, np.abs(y), columns=columns)
    assert len(cells.n_cells_) == 3
    if "max_depth" in options:
        assert cells.n_cells_.max() == 2
    if "num_leaves" in options:
        assert cells.n_cells_.max() == 3
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().out == ""


def test_partitioner_weights_count():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.where(np.arange(600) < 300, X[:, 0] > 0, X[:, 1] > 0).astype(float)
    first = np.where(np.arange(600) < 300, 1.0, 1e-3)
    cells = CatBoostPartitioner(10, 2, random_state=0).fit(X, y, first)
    assert cells.split_gains_[0] > 10 * cells.split_gains_[1]


@pytest.mark.parametrize(
    ("X", "y", "task"),
    [
        (np.random.default_rng(0).normal(size=(50, 2)), np.ones(50), "regression"),
        (np.random.default_rng(0).normal(size=(50, 2)), np.ones(50, int), "classification"),
        (np.ones((50, 2)), np.arange(50.0), "regression"),
        (np.ones((50, 2)), np.arange(50) % 3, "classification"),
        (np.ones((1, 2)), np.ones(1), "regression"),
        (np.full((50, 2), np.nan), np.arange(50.0), "regression"),
    ],
)
def test_partitioner_without_anything_to_split(X, y, task):
    cells = CatBoostPartitioner(5, random_state=0).fit(X, y, target_type=task)
    assert set(cells.n_cells_.tolist()) == {1}
    assert not cells.split_gains_.any()
    assert not cells.apply(X).any()


def test_partitioner_on_few_rows_and_large_numbers():
    rng = np.random.default_rng(0)
    one_column = CatBoostPartitioner(20, 4, random_state=0)
    one_column.fit(rng.normal(size=(100, 1)), rng.normal(size=100))
    assert one_column.n_cells_.min() > 1
    tiny = CatBoostPartitioner(5, random_state=0).fit([[0.0], [1.0]], [0, 1])
    assert tiny.n_cells_.max() == 2
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    plain = CatBoostPartitioner(5, random_state=0).fit(X, y)
    large = CatBoostPartitioner(5, random_state=0).fit(X, 1e12 + 1e4 * y)
    np.testing.assert_array_equal(plain.apply(X), large.apply(X))


def test_partitioner_keeps_missing_codes_apart():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, (800, 1)).astype(float)
    codes[rng.random(800) < 0.3] = np.nan
    y = np.isnan(codes[:, 0]) + rng.normal(size=800) / 10
    columns = Columns((Column("c", np.arange(5)),))
    cells = CatBoostPartitioner(1, 2, random_state=0).fit(codes, y, columns=columns)
    found = cells.apply(np.array([[0.0], [1], [2], [3], [4], [np.nan]]))[:, 0]
    assert (found[:-1] != found[-1]).all()


def test_partitioner_without_catboost(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ImportError, match=r"pip install 'jointleaf\[catboost\]'"):
        CatBoostPartitioner(2).fit([[0.0], [1.0]], [0.0, 1.0])
