"""scikit-learn's histogram gradient boosting: its trees, growing again, and the partitioner."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from tree_rows import training_rows

from jointleaf._data.columns import Columns
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.importers.histogram import HistogramAdapter
from jointleaf._trees.routing import Router

TASKS = ("regression", "binary", "multiclass")
SETTINGS = {
    "plain": {},
    "large": {"max_leaf_nodes": 90, "min_samples_leaf": 3},
    "deep": {"max_depth": 4, "max_features": 0.5, "max_bins": 30, "l2_regularization": 1.0},
}
TEXT = np.array(["lp", "é", "", "m", "a", "zz", "b", "q", "k", "x1", "x", "ß", "u", "w"])
WHOLE = np.array([20, -3, 7])


def make_rows(n, seed, *, unseen=False):
    """Numbers with missing values (one column on a coarse grid), codes of 14 and 3 categories."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 1] = np.round(2 * X[:, 1]) / 2
    X[:, 2] = rng.integers(0, 14, n)
    X[:, 3] = rng.integers(0, 3, n)
    signal = X[:, 0] + np.sin(2 * X[:, 4]) + (X[:, 2] * 5 % 7) / 3 + (X[:, 3] == 1) + 0.3 * X[:, 1]
    X[rng.random(X.shape) < 0.1] = np.nan
    if unseen:
        rows = rng.integers(0, n, n // 10)
        X[rows, rng.choice([2, 3], len(rows))] = rng.choice([14.0, 31, 32, 254, 1000], len(rows))
    return X, signal


def as_frame(X, library="pandas"):
    """The same rows as a data frame: codes in columns 2 and 3 become text and whole numbers."""
    text = [None if np.isnan(c) else str(TEXT[int(c)]) if c < 14 else f"new{c}" for c in X[:, 2]]
    numbers = {"a": X[:, 0], "b": X[:, 1], "e": X[:, 4]}
    if library == "polars":
        pl = pytest.importorskip("polars")
        frame = pl.DataFrame({**numbers, "c": pl.Series(text, dtype=pl.Categorical), "d": X[:, 3]})
        return frame.select("a", "b", "c", "d", "e")
    pd = pytest.importorskip("pandas")
    whole = [c if np.isnan(c) else int(WHOLE[int(c)]) if c < 3 else 99 for c in X[:, 3]]
    frame = pd.DataFrame({**numbers, "c": pd.Categorical(text), "d": pd.Categorical(whole)})
    return frame[["a", "b", "c", "d", "e"]]


def target(signal, task):
    if task == "regression":
        return signal
    return np.digitize(signal, [1.0] if task == "binary" else [0.5, 1.5])


def make_model(setting, task, **extra):
    kind = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
    params = {"max_iter": 5, "max_leaf_nodes": 12, "early_stopping": False, "random_state": 0}
    return kind(**{**params, **SETTINGS[setting], **extra})


def native_leaves(model, X):
    """Leaf numbers (n, P) from scikit-learn's own code: every node's value becomes its number."""
    numbered = copy.deepcopy(model)
    rows = numbered._preprocess_X(X, reset=False)
    known, place = numbered._bin_mapper.make_known_categories_bitsets()
    leaves = []
    for round_ in numbered._predictors:
        for tree in round_:
            tree.nodes["value"] = np.arange(len(tree.nodes))
            leaves.append(tree.predict(rows, known, place, 1).astype(int))
    return np.column_stack(leaves)


def columns_of(model, X):
    return Columns.read(X, known=HistogramAdapter().categories(model))


def assert_same_leaves(model, X, columns):
    """Our leaves are those of scikit-learn by other names."""
    codes = Router(HistogramAdapter().trees(model, columns))(columns.encode(X))
    leaves = native_leaves(model, X)
    assert codes.shape == leaves.shape
    for p in range(codes.shape[1]):
        pairs = np.unique(np.column_stack([codes[:, p], leaves[:, p]]), axis=0)
        assert len(pairs) == len(np.unique(codes[:, p])) == len(np.unique(leaves[:, p]))
    return codes


def at_thresholds(model, X):
    """Rows with one value exactly at a split of the model, or one step from it."""
    bounds = model._bin_mapper.bin_thresholds_
    n_categorical = 0 if model.is_categorical_ is None else model.is_categorical_.sum()
    rows = []
    for j, column in enumerate(np.flatnonzero(~model.is_categorical_)):
        for t in bounds[n_categorical + j][::3]:
            for value in (t, np.nextafter(t, -np.inf), np.nextafter(t, np.inf)):
                rows.append(X[len(rows) % len(X)].copy())
                rows[-1][column] = value
    return np.array(rows)


@pytest.fixture(scope="module")
def training():
    return make_rows(2000, 0)


@pytest.fixture(scope="module")
def new_rows():
    return make_rows(10_000, 1, unseen=True)[0]


# -- trees -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_leaves_on_a_frame(setting, task, training, new_rows):
    X, signal = training
    model = make_model(setting, task).fit(as_frame(X), target(signal, task))
    before = pickle.dumps(model)
    columns = columns_of(model, as_frame(X))
    assert columns[2].categories.tolist() == sorted(TEXT)
    assert columns[3].categories.tolist() == sorted(WHOLE)
    rows = np.concatenate([X, new_rows, at_thresholds(model, new_rows)])
    assert_same_leaves(model, as_frame(rows), columns)
    assert pickle.dumps(model) == before
    adapter = find_adapter(model)
    assert isinstance(adapter, HistogramAdapter)
    assert adapter.is_classifier(model) == (task != "regression")
    assert adapter.feature_names(model) == list("abcde")
    assert adapter.trees(model, columns).n_trees == (15 if task == "multiclass" else 5)


@pytest.mark.parametrize("task", TASKS)
def test_leaves_on_a_matrix(task, training, new_rows):
    X, signal = training
    model = make_model("large", task, categorical_features=[2, 3]).fit(X, target(signal, task))
    columns = columns_of(model, X)
    assert list(columns.categorical) == [2, 3]
    rows = np.concatenate([X, new_rows, at_thresholds(model, new_rows)])
    assert_same_leaves(model, rows, columns)
    assert find_adapter(model).feature_names(model) is None


def test_leaves_on_other_tables(training, new_rows):
    X, signal = training
    model = make_model("plain", "regression").fit(as_frame(X, "polars"), signal)
    columns = columns_of(model, as_frame(X, "polars"))
    assert list(columns.categorical) == [2]
    assert_same_leaves(model, as_frame(new_rows, "polars"), columns)
    text = np.array([None if np.isnan(c) else TEXT[int(c)] for c in X[:, 2]], dtype=object)
    objects = np.column_stack([text, np.nan_to_num(X[:, 0])]).astype(object)
    model = make_model("plain", "regression", categorical_features=[0]).fit(objects, signal)
    assert_same_leaves(model, objects, columns_of(model, objects))
    numbers = make_model("plain", "regression").fit(X, signal)  # no categories at all
    assert_same_leaves(numbers, new_rows, Columns.numbers(5))
    only = make_model("plain", "regression", categorical_features=[0, 1]).fit(X[:, [2, 3]], signal)
    assert_same_leaves(only, new_rows[:, [2, 3]], columns_of(only, X[:, [2, 3]]))
    truths = np.where(np.isnan(X[:, 3]), None, X[:, 3] == 1)
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"t": pd.Categorical(truths), "a": X[:, 0]})
    model = make_model("plain", "regression").fit(frame, signal)
    assert_same_leaves(model, frame, columns_of(model, frame))


def test_leaves_agree_with_public_predictions(training, new_rows):
    """Rows of one leaf get the same step in every stage, rows of different leaves another one."""
    X, signal = training
    model = make_model("plain", "regression").fit(as_frame(X), signal)
    columns, rows = columns_of(model, as_frame(X)), as_frame(new_rows)
    codes = Router(HistogramAdapter().trees(model, columns))(columns.encode(rows))
    stages = np.array(list(model.staged_predict(rows)))
    steps = np.diff(stages, axis=0)
    for p, step in enumerate(steps, start=1):
        values = [step[codes[:, p] == k] for k in np.unique(codes[:, p])]
        assert max(np.ptp(value) for value in values) < 1e-12
        assert len({round(value[0], 9) for value in values}) == len(values)


def test_early_stopping_and_gains(training):
    X, _ = training
    noise = np.random.default_rng(0).normal(size=len(X))
    model = make_model("plain", "regression", max_iter=200, early_stopping=True)
    model.set_params(n_iter_no_change=3, categorical_features=[2, 3]).fit(X, noise)
    assert model.n_iter_ < 200
    adapter = HistogramAdapter()
    columns = columns_of(model, X)
    assert adapter.trees(model, columns).n_trees == model.n_iter_
    assert len(regrow(model, X, noise)._predictors) == model.n_iter_
    clear = make_model("plain", "regression", categorical_features=[2]).fit(
        X, np.nan_to_num(X[:, 2] % 2)
    )
    gains = adapter.split_gains(clear)
    assert gains.argmax() == 2
    assert gains[2] > 0.9 * gains.sum()
    other = make_model("plain", "regression", categorical_features=[2])
    gains = adapter.split_gains(other.fit(X, np.nan_to_num(X[:, 4])))
    assert gains.argmax() == 4
    constant = make_model("plain", "regression").fit(X, np.ones(len(X)))
    np.testing.assert_array_equal(adapter.split_gains(constant), np.zeros(5))
    assert adapter.trees(constant, Columns.numbers(5)).n_leaves.tolist() == [1] * 5


def test_what_is_rejected(training):
    X, signal = training
    adapter = HistogramAdapter()
    model = make_model("plain", "regression", categorical_features=[2, 3]).fit(X, signal)
    with pytest.raises(ValueError, match="trained with categories in column x2"):
        adapter.trees(model, Columns.numbers(5))
    with pytest.raises(ValueError, match="trained with numbers in column x1"):
        adapter.trees(model, Columns.read(np.round(X), categorical=[1, 2, 3]))
    changed = copy.deepcopy(model)
    changed._predictors[0][0].nodes = changed._predictors[0][0].nodes[["value", "left", "right"]]
    with pytest.raises(RuntimeError, match=r"scikit-learn \d.*cannot read"):
        adapter.trees(changed, columns_of(model, X))
    del changed._predictors
    with pytest.raises(RuntimeError, match=r"scikit-learn \d.*cannot read"):
        adapter.split_gains(changed)


# -- growing again -----------------------------------------------------------------------------


def regrow(model, X, y, weight=None, n_jobs=1):
    rows = training_rows(X, y, weight, categorical=[2, 3])
    return HistogramAdapter().regrow(model, rows, random_state=4, n_jobs=n_jobs)


@pytest.mark.parametrize("task", TASKS)
def test_models_are_grown_again_as_they_were(task, training, new_rows):
    X, signal = training
    y = target(signal, task)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    model = make_model("deep", task, categorical_features=[2, 3]).fit(X, y, sample_weight=weight)
    before = pickle.dumps(model)
    again = regrow(model, X, y, weight, n_jobs=2)
    np.testing.assert_array_equal(native_leaves(again, new_rows), native_leaves(model, new_rows))
    assert pickle.dumps(model) == before
    unseeded = make_model("deep", task, random_state=None).fit(as_frame(X), y)
    first, second = regrow(unseeded, X, y), regrow(unseeded, X, y)
    np.testing.assert_array_equal(native_leaves(first, X), native_leaves(second, X))


def test_growing_again_with_classes_that_are_gone(training):
    X, signal = training
    y = target(signal, "multiclass")
    model = make_model("plain", "multiclass", class_weight={0: 1.0, 1: 5.0, 2: 9.0}).fit(X, y)
    gone = y != 1
    fewer = regrow(model, X[gone], y[gone])
    assert fewer.class_weight == {0: 1.0, 1: 9.0}
    assert len(fewer.classes_) == 2
    weighted = make_model("plain", "multiclass", categorical_features=[2, 3])
    weighted.fit(X[gone], y[gone], sample_weight=np.where(y[gone] == 2, 9.0, 1.0))
    np.testing.assert_array_equal(native_leaves(fewer, X), native_leaves(weighted, X))


def test_growing_again_with_names_and_empty_columns(training):
    X, signal = training
    model = make_model("plain", "regression", monotonic_cst={"a": 1, "e": -1})
    model.fit(as_frame(X), signal)
    again = regrow(model, X, signal)
    assert list(again.monotonic_cst) == [1, 0, 0, 0, -1]
    empty = X.copy()
    empty[:, [1, 2]] = np.nan
    empty[:5, 2] = 1
    found = regrow(model, empty, signal)
    assert 1 not in HistogramAdapter().trees(found, columns_of(found, empty)).split_features
