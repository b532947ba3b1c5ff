"""Partitioners that grow trees with XGBoost or with scikit-learn's histogram gradient boosting."""

import pickle
import sys

import numpy as np
import pytest

from jointleaf._data.columns import Columns
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.routing import Router
from jointleaf.partitions import HistGradientBoostingPartitioner, XGBoostPartitioner

KINDS = {"xgboost": XGBoostPartitioner, "histogram": HistGradientBoostingPartitioner}
TASKS = ("regression", "binary", "multiclass")


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param == "xgboost":
        pytest.importorskip("xgboost")
    return KINDS[request.param]


def make_rows(n, seed):
    """Numbers with missing values, and codes of 14 and of 3 categories in columns 2 and 3."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 2] = rng.integers(0, 14, n)
    X[:, 3] = rng.integers(0, 3, n)
    signal = X[:, 0] + np.sin(2 * X[:, 4]) + (X[:, 2] * 5 % 7) / 3 + (X[:, 3] == 1) + 0.3 * X[:, 1]
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, signal


def target(signal, task):
    if task == "regression":
        return signal
    return np.digitize(signal, [1.0] if task == "binary" else [0.5, 1.5])


@pytest.fixture(scope="module")
def training():
    return make_rows(2000, 0)


@pytest.fixture(scope="module")
def coded():
    return Columns.read(make_rows(2000, 0)[0], categorical=[2, 3])


def fit(kind, X, y, task="regression", *, columns=None, weight=None, **params):
    target_type = "regression" if task == "regression" else "classification"
    partitioner = kind(**{"n_partitions": 12, "random_state": 0, **params})
    return partitioner.fit(X, y, weight, target_type=target_type, columns=columns)


@pytest.mark.parametrize("task", TASKS)
def test_cells(kind, task, training, coded):
    X, signal = training
    y = target(signal, task)
    partitioner = fit(kind, X, y, task, columns=coded, n_cells=6)
    codes = partitioner.apply(X)
    assert codes.shape == (len(X), 12)
    np.testing.assert_array_equal(codes.max(axis=0) + 1, partitioner.n_cells_)
    assert partitioner.n_cells_.max() == 6
    assert set(partitioner.split_features_) >= {0, 2, 4}
    assert partitioner.split_gains_[[0, 2, 4]].min() > 0
    again = fit(kind, X, y, task, columns=coded, n_cells=6, n_jobs=2).apply(X)
    np.testing.assert_array_equal(again, codes)
    other = fit(kind, X, y, task, columns=coded, n_cells=6, random_state=1)
    assert not np.array_equal(other.apply(X), codes)
    heavy = fit(kind, X, y, task, columns=coded, n_cells=6, weight=np.full(len(X), 7.0))
    np.testing.assert_array_equal(heavy.apply(X), codes)
    counted = fit(kind, X, y, task, columns=coded, n_cells=6, weight=1 + (X[:, 0] > 0))
    assert not np.array_equal(counted.apply(X), codes)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(partitioner)).apply(X), codes)


def test_cells_are_the_leaves_of_the_model(kind, training, coded):
    """The adapters' own tests show that these are the leaves of the library."""
    X, signal = training
    grown = []

    class Watched(kind):
        def _grow(self, rows):
            grown.append(super()._grow(rows))
            return grown[-1]

    partitioner = Watched(12, 40, random_state=0).fit(X, signal, columns=coded)
    model = grown[0]
    leaves = Router(find_adapter(model).trees(model, coded.coded()))(X)
    codes = partitioner.apply(X)
    for p in range(12):
        expected = np.unique(leaves[:, p], return_inverse=True)[1]
        np.testing.assert_array_equal(codes[:, p], expected)


def test_leaves_hold_five_rows(kind, training):
    X, signal = training
    options = {"subsample": 1.0} if kind is XGBoostPartitioner else {}
    codes = fit(kind, X, signal, n_cells=100, options=options).apply(X)
    assert min(np.bincount(codes[:, p]).min() for p in range(12)) >= 5


def test_options(kind, training, coded):
    X, signal = training
    is_xgboost = kind is XGBoostPartitioner
    shallow = fit(kind, X, signal, columns=coded, n_cells=30, options={"max_depth": 1})
    assert shallow.n_cells_.max() == 2
    rounds = ("num_boost_round", "n_estimators") if is_xgboost else ("max_iter",)
    for name in rounds:
        assert len(fit(kind, X, signal, columns=coded, options={name: 3}).n_cells_) == 3
    loss = {"objective": "reg:absoluteerror"} if is_xgboost else {"loss": "absolute_error"}
    robust = fit(kind, X, signal, columns=coded, options=loss)
    assert not np.array_equal(robust.apply(X), fit(kind, X, signal, columns=coded).apply(X))


def test_options_of_xgboost_under_any_name(training):
    pytest.importorskip("xgboost")
    X, signal = training
    pairs = [
        ("eta", "learning_rate", 0.9),
        ("lambda", "reg_lambda", 99.0),
        ("n_jobs", "nthread", 2),
    ]
    pairs += [("gamma", "min_split_loss", 200.0), ("alpha", "reg_alpha", 50.0)]
    plain = fit(XGBoostPartitioner, X, signal).apply(X)
    for short, long, value in pairs:
        codes = fit(XGBoostPartitioner, X, signal, options={short: value}).apply(X)
        other = fit(XGBoostPartitioner, X, signal, options={long: value}).apply(X)
        np.testing.assert_array_equal(codes, other)
        assert np.array_equal(codes, plain) == (short == "n_jobs")


def test_cells_do_not_depend_on_the_scale_of_targets(kind, training):
    X, signal = training
    codes = fit(kind, X, signal).apply(X)
    np.testing.assert_array_equal(fit(kind, X, 1e20 * signal + 3e22).apply(X), codes)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_degenerate_rows(kind, task, coded):
    X, signal = make_rows(40, 5)
    y = signal if task == "regression" else (signal > 1).astype(int)
    cases = {
        "constant target": (X, np.full(40, 3 if task == "classification" else 1e9)),
        "one row": (X[:1], y[:1]),
        "constant rows": (np.zeros_like(X), y),
        "nothing but missing values": (np.full_like(X, np.nan), y),
    }
    for name, (rows, targets) in cases.items():
        found = fit(kind, rows, targets, task, columns=coded)
        assert found.n_cells_.tolist() == [1] * 12, name
        np.testing.assert_array_equal(found.split_gains_, np.zeros(5))
    empty = X.copy()
    empty[:, [1, 3]] = np.nan
    assert fit(kind, empty, y, task, columns=coded).n_cells_.max() > 1
    assert np.isnan(empty[:, [1, 3]]).all()
    two = fit(kind, np.array([[0.0], [1.0]]), np.array([0, 1]), task)
    assert two.n_cells_.max() == 2


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_targets_without_noise_and_huge_numbers(kind, task):
    """No penalty on leaf values holds them back, but none explodes: trees go on being grown."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X[:, 0] > 0).astype(int)
    assert fit(kind, X, y, task, n_partitions=60).n_cells_.min() > 1
    with np.errstate(over="ignore"):
        assert fit(kind, 1e300 * X, y, task).n_cells_.max() > 1


def test_more_categories_than_scikit_learn_takes():
    rng = np.random.default_rng(0)
    n = 4000
    X = np.column_stack([rng.integers(0, 400, n), rng.normal(size=n), rng.integers(0, 5, n)])
    y = (X[:, 0] % 2) * 3 + 0.5 * X[:, 1] + (X[:, 2] == 3) + 0.1 * rng.normal(size=n)
    X[::9, 0] = np.nan
    columns = Columns.read(X, categorical=[0, 2])
    partitioner = fit(HistGradientBoostingPartitioner, X, y, columns=columns)
    trees = partitioner.trees_
    assert partitioner.split_gains_.argmax() == 0
    assert set(partitioner.split_features_) == {0, 1, 2}
    np.testing.assert_array_equal(trees.n_categories, [400, 0, 5])
    np.testing.assert_array_equal(trees.table >= 0, trees.feature != 1)
    p = next(p for p in range(12) if trees.feature[trees.starts[p]] == 0)
    begin = trees.table[trees.starts[p]]
    left = trees.categories_left[begin : begin + 400]
    odd = np.arange(400) % 2 == 1
    assert abs(np.mean(left == odd) - 0.5) > 0.48  # the root parts odd from even categories
    fewer = fit(HistGradientBoostingPartitioner, X, y, columns=columns, options={"max_bins": 4})
    assert set(fewer.split_features_) == {0, 1, 2}


def test_missing_library(monkeypatch, training):
    X, signal = training
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match=r"pip install 'jointleaf\[xgboost\]'"):
        fit(XGBoostPartitioner, X, signal)
