"""XGBoost: its trees in portable form, growing models again, and the partitioner."""

import json
import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from tree_rows import training_rows

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import TrainingRows
from jointleaf._trees.importers.base import check_fitted_model, find_adapter
from jointleaf._trees.importers.xgboost import XGBoostAdapter
from jointleaf._trees.routing import Router
from jointleaf.partitions import FittedEnsemble

xgboost = pytest.importorskip("xgboost")
pd = pytest.importorskip("pandas")

TASKS = ("regression", "binary", "multiclass")
#: Scikit-learn style settings, each of which makes trees of another kind.
KINDS = {
    "plain": {},
    "onehot": {"max_cat_to_onehot": 50},
    "partition": {"max_cat_to_onehot": 1, "grow_policy": "lossguide", "max_leaves": 70},
    "approx": {"tree_method": "approx"},
    "dart": {"booster": "dart", "rate_drop": 0.4},
    "parallel": {"num_parallel_tree": 2, "subsample": 0.7},
    "forest": {"forest": True},
}
OBJECTIVES = {
    "regression": {"objective": "reg:squarederror"},
    "binary": {"objective": "binary:logistic"},
    "multiclass": {"objective": "multi:softprob", "num_class": 3},
}


def make_rows(n, seed, *, unseen=False):
    """Numbers with missing values (one column on a coarse grid), codes of 14 and 3 categories."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)).astype(np.float64)
    X[:, 1] = np.round(2 * X[:, 1]) / 2
    X[:, 2] = rng.integers(0, 14, n)
    X[:, 3] = rng.integers(0, 3, n)
    signal = X[:, 0] + np.sin(2 * X[:, 4]) + (X[:, 2] * 5 % 7) / 3 + (X[:, 3] == 1) + 0.3 * X[:, 1]
    X[rng.random(X.shape) < 0.1] = np.nan
    if unseen:
        rows = rng.integers(0, n, n // 10)
        X[rows, rng.choice([2, 3], len(rows))] = rng.choice([14.0, 31, 32, 64, 1000], len(rows))
    return X, np.where(np.isnan(signal), 0, signal)


TYPES = ["q", "q", "c", "c", "q"]
TEXT = np.array(["lp", "e", "", "m", "a", "zz", "b", "q", "k", "x1", "x", "s", "u", "w"])
WHOLE = np.array([20, -3, 7])


def as_frame(X, library="pandas"):
    """The same rows as a data frame: codes in columns 2 and 3 become text and whole numbers."""
    text = [None if np.isnan(c) else str(TEXT[int(c)]) for c in X[:, 2]]
    numbers = {"a": X[:, 0], "b": X[:, 1], "e": X[:, 4]}
    if library == "polars":
        pl = pytest.importorskip("polars")
        series = pl.Series(text, dtype=pl.Enum(TEXT.tolist()))
        frame = pl.DataFrame({**numbers, "c": series, "d": X[:, 3]})
        return frame.select("a", "b", "c", "d", "e")
    whole = [None if np.isnan(c) else int(WHOLE[int(c)]) for c in X[:, 3]]
    # The order of the categories is neither sorted nor that of our codes.
    frame = pd.DataFrame(
        {
            **numbers,
            "c": pd.Categorical(text, categories=TEXT.tolist()),
            "d": pd.Categorical(whole, categories=WHOLE.tolist()),
        }
    )
    return frame[["a", "b", "c", "d", "e"]]


def target(signal, task):
    if task == "regression":
        return signal
    return np.digitize(signal, [1.0] if task == "binary" else [0.5, 1.5])


def sklearn_model(kind, task, **extra):
    params = {"n_estimators": 5, "max_depth": 5, "n_jobs": 1, **KINDS[kind], **extra}
    forest = "RF" if params.pop("forest", False) else ""
    suffix = "Regressor" if task == "regression" else "Classifier"
    return getattr(xgboost, f"XGB{forest}{suffix}")(enable_categorical=True, **params)


def booster_of(X, y, rounds=5, **params):
    data = xgboost.DMatrix(X, y, feature_types=TYPES, enable_categorical=True, nthread=1)
    return xgboost.train({"nthread": 1, **params}, data, rounds)


def native_leaves(model, X):
    if isinstance(model, xgboost.Booster):
        types = TYPES if isinstance(X, np.ndarray) else None
        data = xgboost.DMatrix(X, feature_types=types, enable_categorical=True, nthread=1)
        leaves = model.predict(data, pred_leaf=True)
    else:
        leaves = model.apply(X)
    return np.asarray(leaves).reshape(len(X), -1).astype(int)


def columns_of(model, X):
    return Columns.read(X, known=XGBoostAdapter().categories(model))


def assert_same_leaves(model, X, columns):
    """Our leaves are those of XGBoost by other names, and every tree has all its leaves."""
    codes = Router(XGBoostAdapter().trees(model, columns))(columns.encode(X))
    leaves = native_leaves(model, X)
    assert codes.shape == leaves.shape
    for p in range(codes.shape[1]):
        pairs = np.unique(np.column_stack([codes[:, p], leaves[:, p]]), axis=0)
        assert len(pairs) == len(np.unique(codes[:, p])) == len(np.unique(leaves[:, p]))


def splits_of(booster):
    """Pairs of column name and threshold of all splits on numbers."""
    nodes = [json.loads(tree) for tree in booster.get_dump(dump_format="json")]
    found = set()
    while nodes:
        node = nodes.pop()
        nodes += node.get("children", [])
        if isinstance(node.get("split_condition"), float | int):
            found.add((node["split"], node["split_condition"]))
    return found


def at_thresholds(model, X):
    """Rows with one value exactly at a split of the model, or one step from it."""
    booster = model if isinstance(model, xgboost.Booster) else model.get_booster()
    names = booster.feature_names or [f"f{j}" for j in range(X.shape[1])]
    rows = []
    for name, split in sorted(splits_of(booster)):
        t = np.float32(split)
        below, above = np.nextafter(t, np.float32(-np.inf)), np.nextafter(t, np.float32(np.inf))
        close = 0.001 * float(t) + 0.999 * float(below)  # float32 rounds it down
        for value in (t, below, above, close):
            row = X[len(rows) % len(X)].copy()
            row[names.index(name)] = float(value)
            rows.append(row)
    return np.array(rows)


@pytest.fixture(scope="module")
def training():
    return make_rows(2000, 0)


@pytest.fixture(scope="module")
def new_rows():
    return make_rows(10_000, 1)[0]


# -- trees -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_leaves_on_a_frame(kind, task, training, new_rows):
    X, signal = training
    model = sklearn_model(kind, task).fit(as_frame(X), target(signal, task))
    before = pickle.dumps(model)
    columns = columns_of(model, as_frame(X))
    assert columns[2].categories.tolist() == sorted(TEXT)
    assert columns[3].categories.tolist() == sorted(WHOLE)
    rows = np.concatenate([X, new_rows, at_thresholds(model, new_rows)])
    assert_same_leaves(model, as_frame(rows), columns)
    assert pickle.dumps(model) == before
    adapter = find_adapter(model)
    assert adapter.is_classifier(model) == (task != "regression")
    assert adapter.feature_names(model) == list("abcde")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["plain", "onehot", "partition", "dart"])
def test_leaves_on_a_matrix_with_unseen_categories(kind, task, training):
    X, signal = training
    y = target(signal, task)
    params = {**OBJECTIVES[task], **KINDS[kind], "max_depth": 5}
    new = make_rows(10_000, 2, unseen=True)[0]
    for model in (
        booster_of(X, y, **params),
        sklearn_model(kind, task, feature_types=TYPES).fit(X, y),
    ):
        columns = columns_of(model, X)
        assert list(columns.categorical) == [2, 3]
        assert_same_leaves(model, np.concatenate([new, at_thresholds(model, new)]), columns)
        assert find_adapter(model).is_classifier(model) == (task != "regression")
        assert find_adapter(model).feature_names(model) is None


def test_leaves_on_a_polars_frame(training, new_rows):
    X, signal = training
    model = sklearn_model("partition", "regression").fit(as_frame(X, "polars"), signal)
    columns = columns_of(model, as_frame(X, "polars"))
    assert columns[2].categories.tolist() == sorted(TEXT)
    rows = as_frame(np.concatenate([new_rows, at_thresholds(model, new_rows)]), "polars")
    assert_same_leaves(model, rows, columns)


def test_leaves_with_vectors_as_values(training, new_rows):
    X, signal = training
    y = target(signal, "multiclass")
    numbers = [0, 1, 4]
    params = {"n_estimators": 4, "multi_strategy": "multi_output_tree", "n_jobs": 1}
    model = xgboost.XGBClassifier(**params).fit(X[:, numbers], y)
    rows = np.concatenate([new_rows[:, numbers], at_thresholds(model, new_rows[:, numbers])])
    assert_same_leaves(model, rows, Columns.numbers(3))
    assert XGBoostAdapter().trees(model, Columns.numbers(3)).n_trees == 4
    rows = TrainingRows(X[:, numbers], y, None, 0, Columns.numbers(3))
    again = XGBoostAdapter().regrow(model, rows, random_state=0, n_jobs=1)
    assert dump(again) == dump(model)


def test_exact_splits_and_booster_on_a_frame(training, new_rows):
    X, signal = training
    model = xgboost.XGBRegressor(n_estimators=4, tree_method="exact", n_jobs=1)
    numbers = [0, 1, 4]
    model.fit(X[:, numbers], signal)
    rows = np.concatenate([new_rows[:, numbers], at_thresholds(model, new_rows[:, numbers])])
    assert_same_leaves(model, rows, Columns.numbers(3))
    booster = sklearn_model("plain", "regression").fit(as_frame(X), signal).get_booster()
    assert_same_leaves(booster, as_frame(new_rows), columns_of(booster, as_frame(X)))


def test_thresholds_at_zero_and_tiny_numbers():
    tiny = np.float32(1e-45)
    x = np.repeat(np.array([-1, 0, tiny, 2e-38, 3e38], dtype=np.float32), 20)[:, None]
    model = xgboost.XGBRegressor(n_estimators=3, max_depth=4, min_child_weight=0, n_jobs=1)
    model.fit(x, np.repeat([0.0, 3, 1, 4, 2], 20))
    new = np.array([-0.0, 0.0, -tiny, tiny, 2 * tiny, 2e-38, 1.9e-38, -1, -2, 3e38, 2.9e38])
    assert_same_leaves(model, new[:, None], Columns.numbers(1))
    assert ("f0", 0.0) in splits_of(model.get_booster())


def test_early_stopping(training):
    X, _ = training
    noise = np.random.default_rng(0).normal(size=len(X))
    model = xgboost.XGBRegressor(
        n_estimators=60, early_stopping_rounds=3, n_jobs=1, feature_types=TYPES
    )
    model.fit(X[:1000], noise[:1000], eval_set=[(X[1000:], noise[1000:])], verbose=False)
    used = model.best_iteration + 1
    booster = model.get_booster()
    assert used < booster.num_boosted_rounds() < 60
    columns = columns_of(model, X)
    assert_same_leaves(model, X, columns)
    assert_same_leaves(booster, X, columns)
    adapter = XGBoostAdapter()
    # Growing it again must leave these out: there is nothing to stop on.
    model.set_params(callbacks=[xgboost.callback.EarlyStopping(rounds=3)])
    assert adapter.trees(model, columns).n_trees == used
    assert adapter.trees(booster, columns).n_trees == booster.num_boosted_rounds()
    np.testing.assert_allclose(
        adapter.split_gains(model), adapter.split_gains(booster[:used]), rtol=1e-6
    )
    rows = TrainingRows(X, noise, None, 0, columns)
    again = adapter.regrow(model, rows, random_state=0, n_jobs=1)
    assert again.get_booster().num_boosted_rounds() == used


def test_gains_are_those_of_xgboost(training):
    X, signal = training
    model = sklearn_model("plain", "multiclass").fit(as_frame(X), target(signal, "multiclass"))
    scores = model.get_booster().get_score(importance_type="total_gain")
    expected = [scores.get(name, 0.0) for name in "abcde"]
    np.testing.assert_allclose(XGBoostAdapter().split_gains(model), expected, rtol=1e-5)
    constant = booster_of(X, np.ones(len(X)))
    np.testing.assert_array_equal(XGBoostAdapter().split_gains(constant), np.zeros(5))
    assert XGBoostAdapter().trees(constant, columns_of(constant, X)).n_leaves.tolist() == [1] * 5


# -- what is rejected ---------------------------------------------------------------------------


def test_what_has_no_trees_or_no_levels_is_rejected(training):
    X, signal = training
    adapter = XGBoostAdapter()
    linear = xgboost.XGBRegressor(booster="gblinear", n_estimators=2).fit(X[:, :2], signal)
    with pytest.raises(ValueError, match="gblinear"):
        adapter.trees(linear, Columns.numbers(2))
    odd = xgboost.XGBRegressor(n_estimators=2, missing=-999.0).fit(X[:, :2], signal)
    with pytest.raises(ValueError, match="-999"):
        adapter.trees(odd, Columns.numbers(2))
    model = sklearn_model("plain", "regression", feature_types=TYPES).fit(X, signal)
    with pytest.raises(ValueError, match="does not hold the categories of column c"):
        adapter.trees(model, Columns.read(as_frame(X)))
    with pytest.raises(ValueError, match="trained with categories in column x2"):
        adapter.trees(model, Columns.numbers(5))
    with pytest.raises(ValueError, match="trained with numbers in column x1"):
        adapter.trees(model, Columns.read(np.round(X), categorical=[1, 2, 3]))


def test_a_frame_model_without_categories_is_rejected(training):
    """Before XGBoost 3.1 models of frames held codes only: 20, -3, 7 are not codes."""
    X, signal = training
    data = xgboost.DMatrix(X, signal, feature_names=list("abcde"), feature_types=TYPES)
    model = xgboost.train({"nthread": 1}, data, 2)
    frame = pd.DataFrame(X, columns=list("abcde"))
    XGBoostAdapter().trees(model, columns_of(model, frame))
    frame["d"] += 1
    with pytest.raises(ValueError, match="does not hold the categories of column d"):
        XGBoostAdapter().trees(model, columns_of(model, frame))


def test_categories_that_xgboost_mixes_up_are_rejected():
    codes = np.arange(60) % 3
    categories = ["\u5317\u4eac\u5e02", "\u4e0a\u6d77\u5e02", "x"]
    frame = pd.DataFrame({"a": pd.Categorical.from_codes(codes, categories=categories)})
    model = xgboost.XGBRegressor(n_estimators=2, enable_categorical=True, n_jobs=1)
    model.fit(frame, codes.astype(float))
    with pytest.raises(ValueError, match="beyond ASCII"):
        XGBoostAdapter().categories(model)


def test_models_that_are_not_fitted():
    for model in (xgboost.XGBClassifier(), xgboost.XGBRFRegressor(), xgboost.Booster()):
        with pytest.raises(NotFittedError, match=type(model).__name__):
            check_fitted_model(model)


def test_a_ranker_gives_cells_but_is_not_grown_again(training):
    X, signal = training
    model = xgboost.XGBRanker(n_estimators=3, n_jobs=1, feature_types=TYPES)
    model.fit(X, (signal > 1).astype(int), qid=np.arange(len(X)) // 50)
    assert_same_leaves(model, X, columns_of(model, X))
    with pytest.raises(ValueError, match="ranks rows within groups"):
        regrow(model, X, signal)


# -- growing again -----------------------------------------------------------------------------


def regrow(model, X, y, weight=None, n_jobs=1):
    rows = training_rows(X, y, weight, categorical=[2, 3])
    return XGBoostAdapter().regrow(model, rows, random_state=0, n_jobs=n_jobs)


def dump(model):
    booster = model if isinstance(model, xgboost.Booster) else model.get_booster()
    return booster.get_dump(with_stats="multi_output" not in booster.save_config())


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_models_are_grown_again_as_they_were(kind, task, training):
    X, signal = training
    y = target(signal, task)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    model = sklearn_model(kind, task, feature_types=TYPES, colsample_bynode=0.7, random_state=3)
    model.fit(X, y, sample_weight=weight)
    before = pickle.dumps(model)
    again = regrow(model, X, y, weight)
    assert type(again) is type(model)
    assert dump(again) == dump(model)
    assert pickle.dumps(model) == before


BOOSTER_PARAMS = {
    "trees": {
        "max_depth": 3,
        "eta": 0.07,
        "lambda": 2.5,
        "alpha": 0.1,
        "gamma": 0.01,
        "subsample": 0.6,
        "colsample_bytree": 0.8,
        "seed": 5,
        "base_score": 0.25,
        "monotone_constraints": "(1,0,0,0,0)",
        "interaction_constraints": "[[0, 1, 4], [2, 3]]",
        "max_cat_to_onehot": 2,
    },
    "leafwise": {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0, "max_bin": 32},
    "dart": {"booster": "dart", "rate_drop": 0.5, "tree_method": "approx"},
    "poisson": {"objective": "count:poisson", "max_delta_step": 0.4},
    "quantile": {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.8]},
    "binary": {"objective": "binary:logistic", "scale_pos_weight": 3.0, "num_parallel_tree": 2},
    "multi": {"objective": "multi:softmax", "num_class": 4, "min_child_weight": 0.1},
}


@pytest.mark.parametrize("name", BOOSTER_PARAMS)
def test_boosters_are_grown_again_as_they_were(name, training):
    X, signal = training
    params = BOOSTER_PARAMS[name]
    task = {"binary": "binary", "multi": "multiclass", "poisson": "multiclass"}.get(name)
    y = target(signal, task or "regression")
    booster = booster_of(X, y, **params)
    before = booster.save_raw()
    assert dump(regrow(booster, X, y)) == dump(booster)
    assert dump(regrow(pickle.loads(pickle.dumps(booster)), X, y)) == dump(booster)
    assert booster.save_raw() == before


def test_boosters_that_cannot_be_grown_again(training):
    X, signal = training

    def squares(predicted, data):
        return predicted - data.get_label(), np.ones_like(predicted)

    data = xgboost.DMatrix(X, signal, feature_types=TYPES)
    own = xgboost.train({"max_depth": 2}, data, 3, obj=squares)
    with pytest.raises(ValueError, match="custom objective"):
        regrow(own, X, signal)
    trained = booster_of(X, signal, max_depth=2)
    loaded = xgboost.Booster(model_file=trained.save_raw())
    assert_same_leaves(loaded, X, columns_of(loaded, X))
    with pytest.raises(ValueError, match="does not hold the parameters"):
        regrow(loaded, X, signal)
    loaded.set_param({"max_depth": 2})
    assert dump(regrow(loaded, X, signal)) == dump(trained)


def test_growing_again_with_names_and_missing_classes(training):
    X, signal = training
    model = sklearn_model(
        "plain",
        "multiclass",
        monotone_constraints={"a": 1},
        interaction_constraints=[["a", "b"], ["c", "d", "e"]],
    )
    y = target(signal, "multiclass")
    model.fit(as_frame(X), y)
    again = regrow(model, X, y)
    assert dump(again)[0].replace("f4<", "e<").splitlines()[0] == dump(model)[0].splitlines()[0]
    assert (
        json.loads(again.get_booster().save_config())["learner"]["gradient_booster"][
            "tree_train_param"
        ]["interaction_constraints"].replace(" ", "")
        == "[[0,1],[2,3,4]]"
    )
    for kept in ([0, 2], [1]):
        rows = np.isin(y, kept)
        fewer = regrow(model, X[rows], y[rows])
        assert fewer.n_classes_ == len(kept)
        assert_same_leaves(fewer, X, columns_of(fewer, X))
    multi = booster_of(X, y, objective="multi:softprob", num_class=3)
    assert len(dump(regrow(multi, X[y < 2], y[y < 2]))) == len(dump(multi))


def test_own_objective_of_the_sklearn_style(training):
    X, signal = training

    def squares(y, predicted):
        return predicted - y, np.ones_like(y)

    model = sklearn_model("plain", "regression", objective=squares, feature_types=TYPES)
    model.fit(X, signal)
    assert dump(regrow(model, X, signal)) == dump(model)


def test_cells_of_a_model_in_a_partitioner(training, new_rows):
    X, signal = training
    model = sklearn_model("plain", "binary").fit(as_frame(X), target(signal, "binary"))
    columns = columns_of(model, as_frame(X))
    partitioner = FittedEnsemble(model).fit(columns.encode(as_frame(X)), columns=columns)
    assert partitioner.apply(columns.encode(as_frame(new_rows))).shape == (len(new_rows), 5)
    fresh = partitioner.fresh().fit(
        columns.encode(as_frame(X)),
        target(signal, "binary"),
        target_type="classification",
        columns=columns,
    )
    assert len(fresh.n_cells_) == 5
