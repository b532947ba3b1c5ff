"""CatBoost models: their trees in portable form against CatBoost itself."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")

from jointleaf._data.columns import Columns  # noqa: E402
from jointleaf._trees.flat import TrainingRows  # noqa: E402
from jointleaf._trees.importers.base import find_adapter, is_ensemble  # noqa: E402
from jointleaf._trees.importers.catboost import CatBoostAdapter  # noqa: E402
from jointleaf._trees.routing import Router  # noqa: E402
from jointleaf.partitions import FittedEnsemble  # noqa: E402
from jointleaf.partitions._factory import RegrownEnsemble  # noqa: E402

ADAPTER = CatBoostAdapter()
POLICIES = ["SymmetricTree", "Depthwise", "Lossguide"]
KINDS = ["regressor", "binary", "multiclass"]
QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
CATEGORICAL = ["city", "number", "pair", "letter"]


def numeric_table(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)).astype(np.float32), columns=list("abcd"))
    X.loc[rng.random(n) < 0.2, "b"] = np.nan
    X["d"] = rng.integers(0, 6, n).astype(np.float32)
    y = X.a * (X.d - 2) + 2 * X.b.isna() + X.c**2 + rng.normal(size=n) / 2
    return X, y.to_numpy()


def mixed_table(n=2000, seed=0):
    """Numbers with missing values, text, whole numbers; effects of combinations."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=n).astype(np.float32),
            "city": rng.choice(["x", "y", "z", "w"], n),
            "number": rng.integers(-3, 30, n),
            "b": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)).astype(np.float32),
            "pair": rng.choice(["p", "q"], n),
            "letter": rng.choice(list("ABCDEFG"), n),
        }
    )
    y = X.a * (X.city != "y") + 2 * (X.city == "x") + X.number % 3
    y += 2 * X.b.isna() * (X.letter < "D") - 3 * (X.letter == "G") * (X.pair == "p")
    return X, (y + rng.normal(size=n) / 2).to_numpy()


def labels_of(kind, y):
    if kind == "regressor":
        return y
    return (y > 0).astype(int) if kind == "binary" else np.digitize(y, [-0.5, 1.0])


def train(kind, X, y, **params):
    known = {"cat_features": CATEGORICAL} if "city" in X else {}
    params = {"iterations": 15, "depth": 4, **QUIET, **known, **params}
    model = catboost.CatBoostRegressor if kind == "regressor" else catboost.CatBoostClassifier
    return model(**params).fit(X, labels_of(kind, y))


def probes(model, X, n=10_000, seed=1):
    """Rows that are hard to route: at borders and just above, missing, with unseen categories."""
    rng = np.random.default_rng(seed)
    P = pd.DataFrame({name: rng.choice(X[name].to_numpy(), n) for name in X})
    for j, name in enumerate(X):
        chosen = rng.random(n) < 0.3
        if name in CATEGORICAL:
            P.loc[chosen, name] = 99 if name == "number" else "unseen"
            continue
        borders = np.array(model.get_borders().get(j, []), dtype=np.float32)
        borders = borders[np.abs(borders) < 1e38]
        if len(borders):
            above = np.nextafter(borders, np.float32(np.inf))
            P.loc[chosen, name] = rng.choice(np.concatenate([borders, above]), chosen.sum())
        P.loc[rng.random(n) < 0.1, name] = np.nan  # also where training had none
    return P


def same_cells(ours, theirs):
    """Whether two numberings (n, P) divide the rows alike, tree by tree."""
    assert ours.shape == theirs.shape
    for a, b in zip(ours.T, theirs.T, strict=True):
        pairs = len(np.unique(np.stack([a, b]), axis=1).T)
        if not pairs == len(np.unique(a)) == len(np.unique(b)):
            return False
    return True


def check_routing(model, X, columns=None):
    """Compare our leaves with CatBoost's; give the trees for further checks."""
    columns = Columns.read(X, known=ADAPTER.categories(model)) if columns is None else columns
    before = (model.get_params(), np.asarray(model.predict(X)))
    trees = ADAPTER.trees(model, columns)
    router = Router(trees)
    assert trees.n_trees == model.tree_count_
    for rows in (X, probes(model, X)):
        native = np.asarray(model.calc_leaf_indexes(rows))
        ours = router(columns.encode(rows))
        assert same_cells(ours, native)
        if model.get_all_params().get("grow_policy") == "SymmetricTree":
            np.testing.assert_array_equal(ours, native)
    assert model.get_params() == before[0]
    np.testing.assert_array_equal(np.asarray(model.predict(X)), before[1])
    return trees


# -- reading models --------------------------------------------------------------------------------


@pytest.mark.parametrize("nan_mode", ["Min", "Max"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_with_missing_values(kind, policy, nan_mode):
    X, y = numeric_table()
    trees = check_routing(train(kind, X, y, grow_policy=policy, nan_mode=nan_mode), X)
    assert trees.single_precision
    goes_left = trees.missing_left[trees.feature == 1]
    assert goes_left.size
    assert (goes_left == (nan_mode == "Min")).all()


@pytest.mark.parametrize("one_hot", [2, 10])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_categories(kind, policy, one_hot):
    X, y = mixed_table()
    model = train(kind, X, y, grow_policy=policy, one_hot_max_size=one_hot, max_ctr_complexity=4)
    trees = check_routing(model, X)
    assert trees.lookups
    assert (trees.table >= 0).any()  # one-hot
    if policy == "SymmetricTree" and one_hot == 2:
        assert max(len(lookup.parts) for lookup in trees.lookups) > 1


@pytest.mark.parametrize("nan_mode", ["Min", "Max"])
@pytest.mark.parametrize(
    "statistic",
    [
        "Borders:TargetBorderCount=3",
        "Buckets:TargetBorderCount=3",
        "BinarizedTargetMeanValue:TargetBorderCount=4",
        "Counter:Prior=1:Prior=0.3",
    ],
)
def test_statistics_of_combinations(statistic, nan_mode):
    X, y = mixed_table()
    model = train(
        "regressor",
        X,
        y,
        depth=5,
        iterations=40,
        nan_mode=nan_mode,
        max_ctr_complexity=4,
        simple_ctr=[statistic],
        combinations_ctr=[statistic],
    )
    trees = check_routing(model, X)
    parts = [part for lookup in trees.lookups for part in lookup.parts]
    assert any(part.hashes is None for part in parts)  # a number in a combination
    assert max(len(lookup.parts) for lookup in trees.lookups) > 2
    if nan_mode == "Max" and not statistic.startswith("Borders"):
        assert any(part.hashes is None and part.missing_above for part in parts)


@pytest.mark.parametrize(
    ("told", "instead"),
    [("Counter", "FeatureFreq"), ("BinarizedTargetMeanValue", "FloatTargetMeanValue")],
)
def test_statistics_that_only_a_gpu_trains(told, instead, tmp_path):
    X, y = mixed_table()
    ctr = {"simple_ctr": [told], "combinations_ctr": [told], "max_ctr_complexity": 3}
    model = train("regressor", X, y, **ctr)
    path = tmp_path / "model.json"
    model.save_model(str(path), format="json")
    text = json.loads(path.read_text().replace(told, instead))
    text["model_info"]["params"] = {}  # which name statistics that no CPU trains
    for statistic in text["features_info"]["ctrs"]:
        statistic |= {"prior_denomerator": 2.5, "shift": 0.25, "scale": 13}
    if instead.startswith("Float"):
        for table in text["ctr_data"].values():
            step, entries = table["hash_stride"], table["hash_map"]
            entries[1::step] = [1.3717 * total for total in entries[1::step]]
    path.write_text(json.dumps(text))
    changed = catboost.CatBoostRegressor().load_model(str(path), format="json")
    assert (changed.calc_leaf_indexes(X) != model.calc_leaf_indexes(X)).any()
    columns = Columns.read(X, known=ADAPTER.categories(changed))
    router = Router(ADAPTER.trees(changed, columns))
    rows = probes(model, X)
    np.testing.assert_array_equal(router(columns.encode(rows)), changed.calc_leaf_indexes(rows))


def test_categories_beside_those_of_training():
    # Columns may know more categories, in another order, than the model was trained on.
    X, y = mixed_table()
    model = train("regressor", X[:500], y[:500], max_ctr_complexity=2)
    more = pd.concat([X, X[:5].assign(city="A new one", number=-50)])
    check_routing(model, X, Columns.read(more, known=ADAPTER.categories(model)))


def test_missing_categories_of_a_users_model_are_unseen():
    X, y = mixed_table()
    model = train("regressor", X, y, one_hot_max_size=5, max_ctr_complexity=3)
    columns = Columns.read(X, known=ADAPTER.categories(model))
    router = Router(ADAPTER.trees(model, columns))
    rows = columns.encode(X)
    unseen = rows.copy()
    for j in columns.categorical:
        rows[::2, j] = np.nan
        unseen[::2, j] = columns.n_categories[j]
    np.testing.assert_array_equal(router(rows), router(unseen))


def test_numbers_of_the_model_that_are_categories_here():
    X, y = numeric_table()
    model = train("regressor", X, y)
    columns = Columns.read(X, ["d"])
    ours = Router(ADAPTER.trees(model, columns))(columns.encode(X))
    np.testing.assert_array_equal(ours, model.calc_leaf_indexes(X))


def test_categories_that_are_numbers_here_are_rejected():
    X, y = mixed_table(300)
    model = train("regressor", X, y)
    with pytest.raises(ValueError, match="column 'x1' holds categories"):
        ADAPTER.trees(model, Columns.numbers(6))


def test_a_stopped_model_is_used_up_to_its_best_round():
    X, y = numeric_table()
    model = catboost.CatBoostRegressor(iterations=300, learning_rate=0.5, **QUIET)
    model.fit(X[:500], y[:500], eval_set=(X[500:], y[500:]), early_stopping_rounds=3)
    assert model.tree_count_ == model.best_iteration_ + 1 < 300
    check_routing(model, X)


def test_facts_about_models():
    X, y = mixed_table(500)
    model = train("regressor", X, y)
    assert find_adapter(model) is not None
    assert is_ensemble(model)
    assert ADAPTER.is_fitted(model)
    assert not ADAPTER.is_fitted(catboost.CatBoost())
    assert ADAPTER.n_features(model) == 6
    assert ADAPTER.feature_names(model) == list(X)
    assert ADAPTER.categories(model) == {1: None, 2: None, 4: None, 5: None}
    assert ADAPTER.classes(model) is None
    assert not ADAPTER.is_classifier(model)
    assert not ADAPTER.is_classifier(catboost.CatBoost())
    gains = ADAPTER.split_gains(model)
    assert gains.shape == (6,)
    assert (gains >= 0).all()
    assert gains.any()
    plain = catboost.CatBoost({"loss_function": "Logloss", "iterations": 2, **QUIET})
    assert ADAPTER.is_classifier(plain)
    plain.fit(X[["a", "b"]].to_numpy(), (y > 0).astype(int))
    assert ADAPTER.is_classifier(plain)
    assert ADAPTER.feature_names(plain) is None
    classifier = train("multiclass", X, y)
    assert ADAPTER.is_classifier(classifier)
    assert ADAPTER.classes(classifier).tolist() == [0, 1, 2]


def test_text_features_are_rejected():
    X, y = mixed_table(300)
    words = X[["a", "city"]].assign(city=[f"{c} and more {c}" for c in X.city])
    model = catboost.CatBoostRegressor(iterations=2, text_features=["city"], **QUIET)
    model.fit(words, y)
    with pytest.raises(ValueError, match="column 'city' as text feature"):
        ADAPTER.trees(model, Columns.read(words))


def test_fitted_ensemble_pickles_without_catboost():
    X, y = mixed_table()
    model = train("multiclass", X, y, max_ctr_complexity=3)
    columns = Columns.read(X, known=ADAPTER.categories(model))
    cells = FittedEnsemble(model).fit(columns.encode(X), columns=columns)
    data = pickle.dumps(cells)
    assert b"catboost" not in data.replace(b"libraries.catboost", b"")
    again = pickle.loads(data)
    ours = again.apply(columns.encode(X))
    assert same_cells(ours, np.asarray(model.calc_leaf_indexes(X)))
    np.testing.assert_array_equal(again.n_cells_, ours.max(axis=0) + 1)


# -- growing a model again -------------------------------------------------------------------------


def coded_rows(n=1500):
    X, y = mixed_table(n)
    columns = Columns.read(X)
    codes = columns.encode(X)
    codes[np.random.default_rng(5).random(n) < 0.1, 1] = np.nan
    return X, y, columns.coded(), codes


def native_rows(codes, columns, names):
    """The codes as a user of CatBoost could give them."""
    table = pd.DataFrame(codes, columns=names)
    for j in columns.categorical:
        whole = np.where(np.isnan(codes[:, j]), -(2**31), codes[:, j]).astype(np.int64)
        table[names[j]] = whole.astype(str)
    return table


def regrow(model, columns, codes, y, weight=None):
    params, before = model.get_params(), model.get_all_params()
    rows = TrainingRows(codes, y, weight, len(np.unique(y)), columns)
    new = ADAPTER.regrow(model, rows, random_state=3, n_jobs=1)
    assert model.get_params() == params
    assert model.get_all_params() == before
    return new


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_regrow_learns_from_missing_codes(kind, policy):
    X, y, columns, codes = coded_rows()
    params = {"grow_policy": policy, "max_ctr_complexity": 3, "one_hot_max_size": 5}
    model = train(kind, X, y, **params)
    new = regrow(model, columns, codes, labels_of(kind, y))
    assert type(new) is type(model)
    assert new.tree_count_ == model.tree_count_
    rows = codes.copy()
    rows[::3, 5] = columns.n_categories[5]  # unseen
    rows[1::3, 1] = np.nan
    native = new.calc_leaf_indexes(native_rows(rows, columns, list(X)))
    ours = Router(ADAPTER.trees(new, columns))(rows)
    assert same_cells(ours, np.asarray(native))
    unseen = rows.copy()
    unseen[1::3, 1] = columns.n_categories[1]
    assert (Router(ADAPTER.trees(new, columns))(unseen) != ours).any()


def test_regrow_keeps_the_meaning_of_parameters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, columns, codes = coded_rows()
    model = catboost.CatBoostRegressor(
        n_estimators=300,
        max_depth=3,
        cat_features=CATEGORICAL,
        early_stopping_rounds=3,
        ignored_features=["b"],
        monotone_constraints={"a": 1},
        verbose=False,
        train_dir=str(tmp_path / "logs"),
        allow_writing_files=False,
    )
    model.fit(X[:700], y[:700], eval_set=(X[700:], y[700:]))
    assert model.tree_count_ < 300
    new = regrow(model, columns, codes, y)
    assert new.tree_count_ == model.tree_count_
    told = new.get_all_params()
    assert told["depth"] == 3
    assert told["learning_rate"] == model.get_all_params()["learning_rate"]
    used = ADAPTER.trees(new, columns).split_features
    assert 3 not in used
    assert 0 in used
    up = np.repeat(codes[:1], 50, axis=0)
    up[:, 0] = np.linspace(-2, 2, 50)
    assert (np.diff(new.predict(native_rows(up, columns, list(X)))) >= 0).all()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "params",
    [
        {"class_weights": {"lo": 1, "mid": 2, "hi": 50}},
        {"class_weights": [50, 1, 2]},
        {"class_names": ["lo", "mid", "hi"]},
        {},
    ],
)
def test_regrow_on_a_fold_without_a_class(params):
    X, y, columns, codes = coded_rows()
    names = np.array(["lo", "mid", "hi"])
    labels = names[np.digitize(y, [-0.5, 1.0])]
    # With weights by name CatBoost's order of classes is that of the names, not the sorted one.
    model = catboost.CatBoostClassifier(iterations=5, cat_features=CATEGORICAL, **QUIET, **params)
    model.fit(X, labels)
    numbers = np.searchsorted(np.sort(names), labels)  # hi, lo, mid
    fold = labels != "mid"
    new = regrow(model, columns, codes[fold], numbers[fold])
    assert sorted(new.classes_) == ["hi", "lo"]
    assert new.get_all_params()["loss_function"] == "MultiClass"
    rows = native_rows(codes[fold], columns, list(X))
    if "class_weights" in params:
        found = (new.predict(rows).ravel() == "hi").mean()
        assert found > (labels[fold] == "hi").mean() + 0.05
    else:
        assert (new.predict(rows).ravel() == labels[fold]).mean() > 0.8
    one = regrow(model, columns, codes[~fold], numbers[~fold])
    assert ADAPTER.trees(one, columns).n_leaves.tolist() == [1]


def test_regrown_ensemble_and_plain_models():
    X, y, columns, codes = coded_rows()
    plain = catboost.CatBoost({"loss_function": "Logloss", "iterations": 6, **QUIET})
    plain.fit(catboost.Pool(X, (y > 0).astype(int), cat_features=CATEGORICAL))
    cells = RegrownEnsemble(plain, n_jobs=2)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    cells.fit(codes, (y > 0).astype(int), weight, target_type="classification", columns=columns)
    assert len(cells.n_cells_) == 6
    flat = cells.fit(np.ones_like(codes), (y > 0), target_type="classification", columns=columns)
    assert flat.n_cells_.tolist() == [1]
    assert not flat.split_gains_.any()
