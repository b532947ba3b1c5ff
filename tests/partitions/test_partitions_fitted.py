"""Ensembles that are trained already: their cells, growing them again, what is rejected."""

import inspect
import pickle
import warnings

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError

from jointleaf._data.columns import Column, Columns
from jointleaf._trees.importers.base import ADAPTERS, check_fitted_model, find_adapter
from jointleaf.partitions import NO_CELL, FittedEnsemble, UnionPartitioner
from jointleaf.partitions._factory import RegrownEnsemble

QUIET = {"verbose": -1, "n_jobs": 1}
BOOSTER = {"verbosity": -1, "num_leaves": 6, "num_threads": 1}

REGRESSORS = {
    "gb": lambda: GradientBoostingRegressor(n_estimators=9, random_state=0),
    "rf": lambda: RandomForestRegressor(9, max_leaf_nodes=20, random_state=0),
    "et": lambda: ExtraTreesRegressor(9, max_leaf_nodes=20, random_state=0),
    "lgbm": lambda: lightgbm.LGBMRegressor(n_estimators=9, num_leaves=6, **QUIET),
    "linear": lambda: lightgbm.LGBMRegressor(n_estimators=9, linear_tree=True, **QUIET),
}
CLASSIFIERS = {
    "gb": lambda: GradientBoostingClassifier(n_estimators=4, random_state=0),
    "rf": lambda: RandomForestClassifier(12, max_leaf_nodes=6, random_state=0),
    "et": lambda: ExtraTreesClassifier(12, max_leaf_nodes=6, random_state=0),
    "lgbm": lambda: lightgbm.LGBMClassifier(n_estimators=4, num_leaves=6, **QUIET),
}


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:300], y[:300], X[300:]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, y


def booster_of(X, y, rounds=8, **params):
    data = lightgbm.Dataset(X, label=y, params={"verbosity": -1})
    return lightgbm.train({**BOOSTER, **params}, data, rounds)


def native_leaves(model, X):
    if isinstance(model, lightgbm.Booster | lightgbm.LGBMModel):
        leaves = model.predict(X, pred_leaf=True)
    else:
        leaves = model.apply(X)
    return np.asarray(leaves).reshape(len(X), -1).astype(int)


def assert_same_cells(partitioner, model, X, X_new):
    """Codes are leaf ids in other words; ids unmet on `X`, and only those, are NO_CELL."""
    codes, new_codes = partitioner.apply(X), partitioner.apply(X_new)
    leaves, new_leaves = native_leaves(model, X), native_leaves(model, X_new)
    assert codes.shape == leaves.shape
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(partitioner.n_cells_, codes.max(axis=0) + 1)
    for p in range(codes.shape[1]):
        words = dict(zip(leaves[:, p], codes[:, p], strict=True))
        assert sorted(words.values()) == list(range(len(words)))
        np.testing.assert_array_equal(codes[:, p], [words[leaf] for leaf in leaves[:, p]])
        expected = [words.get(leaf, NO_CELL) for leaf in new_leaves[:, p]]
        np.testing.assert_array_equal(new_codes[:, p], expected)


@pytest.fixture
def regrown_models(monkeypatch):
    """Models that are grown anew from here on; the partitioners do not keep them."""
    models = []
    for adapter in ADAPTERS:
        monkeypatch.setattr(adapter, "regrow", _keeping(adapter.regrow, models))
    return models


def _keeping(regrow, models):
    def keep(*args, **kwargs):
        models.append(regrow(*args, **kwargs))
        return models[-1]

    return keep


@pytest.mark.parametrize("kind", REGRESSORS)
def test_regressors(kind, diabetes, regrown_models):
    X, y, X_new = diabetes
    model = REGRESSORS[kind]().fit(X, y)
    before, predicted = pickle.dumps(model), model.predict(X_new)
    partitioner = FittedEnsemble(model).fit(X, y)
    assert_same_cells(partitioner, model, X, X_new)
    assert partitioner.split_gains_.shape == (10,)
    assert set(np.argsort(partitioner.split_gains_)[-2:]) == {2, 8}
    regrown = FittedEnsemble(model, n_jobs=2).fresh().fit(X[:200], y[:200])
    assert regrown_models[0] is not model
    assert_same_cells(regrown, regrown_models[0], X[:200], X_new)
    assert pickle.dumps(model) == before
    np.testing.assert_array_equal(model.predict(X_new), predicted)
    assert not find_adapter(model).is_classifier(model)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifiers_with_three_classes(kind, iris):
    X, y = iris
    names = np.array(["a", "b", "c"])[y]
    model = CLASSIFIERS[kind]().fit(X[::2], names[::2])
    partitioner = FittedEnsemble(model).fit(X[::2], y[::2], target_type="classification")
    assert_same_cells(partitioner, model, X[::2], X)
    assert len(partitioner.n_cells_) == 12  # 4 rounds of 3 trees, or 12 trees
    assert find_adapter(model).is_classifier(model)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_cells_that_no_given_row_reaches(kind, diabetes):
    X, y, X_new = diabetes
    model = REGRESSORS[kind]().fit(X, y)
    few = FittedEnsemble(model).fit(X[:5])
    assert_same_cells(few, model, X[:5], X_new)
    assert (few.apply(X) == NO_CELL).any()
    weight = np.zeros(len(y))
    weight[:5] = 1
    np.testing.assert_array_equal(FittedEnsemble(model).fit(X, y, weight).apply(X), few.apply(X))


@pytest.mark.parametrize("params", [{}, {"linear_tree": True}, {"objective": "quantile"}])
def test_boosters(params, diabetes, regrown_models):
    X, y, X_new = diabetes
    booster = booster_of(X, y, **params)
    text = booster.model_to_string()
    loaded = lightgbm.Booster(model_str=text)
    for model in (booster, loaded):
        partitioner = FittedEnsemble(model).fit(X, y)
        assert_same_cells(partitioner, booster, X, X_new)
        np.testing.assert_allclose(
            partitioner.split_gains_, booster.feature_importance("gain"), rtol=1e-4
        )
        regrown = partitioner.fresh().fit(X, y)
        np.testing.assert_array_equal(regrown.apply(X_new), partitioner.apply(X_new))
    loaded.params = {}  # as LightGBM up to 4.6 leaves it
    regrown = FittedEnsemble(loaded).fresh().fit(X, y)
    np.testing.assert_array_equal(native_leaves(regrown_models[-1], X), native_leaves(booster, X))
    assert_same_cells(regrown, booster, X, X_new)
    assert booster.model_to_string() == text
    assert not find_adapter(booster).is_classifier(booster)


def test_multiclass_booster(iris):
    X, y = iris
    booster = booster_of(X, y, objective="multiclass", num_class=3)
    partitioner = FittedEnsemble(booster).fit(X, y, target_type="classification")
    assert_same_cells(partitioner, booster, X, X)
    assert len(partitioner.n_cells_) == 24
    assert find_adapter(booster).is_classifier(booster)
    regrown = partitioner.fresh().fit(X, y, target_type="classification")
    np.testing.assert_array_equal(regrown.apply(X), partitioner.apply(X))
    with pytest.raises(ValueError, match=r"Booster.*target_type='regression'"):
        partitioner.fresh().fit(X, y)


def validation(X, y):
    """Name the validation rows as this version of LightGBM does."""
    if "eval_X" in inspect.signature(lightgbm.LGBMRegressor.fit).parameters:
        return {"eval_X": X, "eval_y": y}
    return {"eval_set": [(X, y)]}


def early_stopped(X, y, as_booster):
    params = {"num_leaves": 31, "learning_rate": 0.5, "min_child_samples": 2}
    stop = [lightgbm.early_stopping(3, verbose=False)]
    if as_booster:
        data = lightgbm.Dataset(X[:200], y[:200])
        params |= {"verbosity": -1, "num_threads": 1}
        check = lightgbm.Dataset(X[200:], y[200:], reference=data)
        # Keeps the trees after the best round, which must not be used.
        return lightgbm.train(
            params, data, 100, valid_sets=[check], callbacks=stop, keep_training_booster=True
        )
    model = lightgbm.LGBMRegressor(n_estimators=100, **params, **QUIET)
    return model.fit(X[:200], y[:200], **validation(X[200:], y[200:]), callbacks=stop)


@pytest.mark.parametrize("as_booster", [False, True])
def test_early_stopping_uses_the_best_round(as_booster, diabetes, regrown_models):
    X, y, X_new = diabetes
    model = early_stopped(X, y, as_booster)
    booster = model if as_booster else model.booster_
    assert 0 < booster.best_iteration < (booster.num_trees() if as_booster else 100)
    partitioner = FittedEnsemble(model).fit(X, y)
    assert len(partitioner.n_cells_) == booster.best_iteration
    assert_same_cells(partitioner, model, X, X_new)
    regrown = partitioner.fresh().fit(X[:200], y[:200])
    assert len(regrown.n_cells_) == booster.best_iteration
    leaves = native_leaves(regrown_models[0], X_new)
    np.testing.assert_array_equal(leaves, native_leaves(model, X_new))
    assert_same_cells(regrown, model, X[:200], X_new)


def test_early_stopping_as_a_parameter_does_not_get_in_the_way(diabetes):
    X, y, _ = diabetes
    for name in ("early_stopping_round", "n_iter_no_change"):
        model = lightgbm.LGBMRegressor(n_estimators=50, **{name: 3}, **QUIET)
        model.fit(X[:200], y[:200], **validation(X[200:], y[200:]))
        regrown = FittedEnsemble(model).fresh().fit(X, y)
        assert len(regrown.n_cells_) == model.best_iteration_
        params = {**BOOSTER, name: 3}
        data = lightgbm.Dataset(X[:200], y[:200], params={"verbosity": -1})
        check = lightgbm.Dataset(X[200:], y[200:], reference=data)
        booster = lightgbm.train(params, data, 50, valid_sets=[check])
        regrown = FittedEnsemble(booster).fresh().fit(X, y)
        assert len(regrown.n_cells_) == booster.best_iteration


@pytest.mark.parametrize("kind", REGRESSORS)
def test_fresh_grows_the_same_model_anew(kind, diabetes):
    X, y, X_new = diabetes
    weight = np.random.RandomState(0).uniform(0.5, 2, size=len(y))
    weight /= weight.mean()
    model = REGRESSORS[kind]().fit(X, y, sample_weight=weight)
    fresh = FittedEnsemble(model).fit(X, y).fresh()
    assert isinstance(fresh, RegrownEnsemble)
    assert not hasattr(fresh, "n_cells_")
    same = fresh.fit(X, y, weight)
    np.testing.assert_array_equal(same.apply(X_new), FittedEnsemble(model).fit(X).apply(X_new))
    plain = clone(fresh).fit(X, y).apply(X_new)
    assert plain.shape != same.apply(X_new).shape or (plain != same.apply(X_new)).any()
    part = clone(fresh).fit(X[:100], y[:100])
    other = clone(model).fit(X[:100], y[:100])
    assert_same_cells(part, other, X[:100], X_new)
    np.testing.assert_array_equal(
        part.fresh().fit(X[:100], y[:100]).apply(X_new), part.apply(X_new)
    )


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_fresh_classifier_keeps_class_weights_and_absent_classes(kind, iris, regrown_models):
    X, y = iris
    names = np.array(["a", "b", "c"])[y]
    model = CLASSIFIERS[kind]()
    if kind != "gb":
        model.set_params(class_weight={"a": 1.0, "b": 1.0, "c": 30.0})
    model.fit(X, names)
    fresh = FittedEnsemble(model).fresh()
    regrown = fresh.fit(X, y, target_type="classification")
    np.testing.assert_array_equal(native_leaves(regrown_models[0], X), native_leaves(model, X))
    assert_same_cells(regrown, model, X, X)
    rows = y != 1  # a fold without class 1: class 2 must keep its weight
    regrown = clone(fresh).fit(X[rows], y[rows], target_type="classification")
    assert set(regrown_models[1].classes_) == {"a", "c"}
    assert_same_cells(regrown, regrown_models[1], X[rows], X)
    with pytest.raises(ValueError, match=r"for classification.*target_type='regression'"):
        clone(fresh).fit(X, y)


def test_regrown_seeds_only_where_the_model_has_none(diabetes, regrown_models):
    X, y, X_new = diabetes
    model = ExtraTreesRegressor(5, max_leaf_nodes=8).fit(X, y)
    one, two = (RegrownEnsemble(model, random_state=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.apply(X_new), two.apply(X_new))
    assert (one.apply(X_new) != RegrownEnsemble(model, 4).fit(X, y).apply(X_new)).any()
    own = ExtraTreesRegressor(5, max_leaf_nodes=8, random_state=11).fit(X, y)
    assert_same_cells(RegrownEnsemble(own, random_state=3).fit(X, y), own, X, X_new)
    assert regrown_models[-1].random_state == 11
    with pytest.raises(ValueError, match="needs targets: pass y"):
        RegrownEnsemble(model).fit(X)


def test_custom_objective_of_a_booster_cannot_be_grown_again(diabetes):
    X, y, _ = diabetes

    def half(prediction, data):
        return prediction - data.get_label(), np.ones_like(prediction)

    partitioner = FittedEnsemble(booster_of(X, y, objective=half)).fit(X)
    assert partitioner.n_cells_.max() > 1
    with pytest.raises(ValueError, match=r"custom objective.*LGBMRegressor"):
        partitioner.fresh().fit(X, y)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_clone_and_pickle_keep_the_trained_model(kind, diabetes):
    X, y, X_new = diabetes
    model = REGRESSORS[kind]().fit(X, y)
    partitioner = FittedEnsemble(model).fit(X, y)
    codes = partitioner.apply(X_new)
    copy = clone(partitioner)
    assert copy.model is model
    assert not hasattr(copy, "n_cells_")
    np.testing.assert_array_equal(clone(copy).fit(X).apply(X_new), codes)
    loaded = pickle.loads(pickle.dumps(partitioner))  # without the model
    np.testing.assert_array_equal(loaded.apply(X_new), codes)
    assert loaded.model is not model
    for act in (loaded.fit, clone(loaded).fit, loaded.fresh().fit):
        with pytest.raises(ValueError, match=f"{type(model).__name__} .* was left out"):
            act(X, y)
    assert partitioner.model is model  # pickling leaves it whole
    np.testing.assert_array_equal(partitioner.apply(X_new), codes)
    unfitted = pickle.loads(pickle.dumps(copy))  # nothing to use but the model
    np.testing.assert_array_equal(unfitted.fit(X).apply(X_new), codes)
    union = clone(UnionPartitioner([partitioner]))
    assert union.partitioners[0].model is model
    assert type(union.fresh().partitioners[0]) is RegrownEnsemble


@pytest.mark.parametrize("kind", REGRESSORS)
def test_threads_change_nothing(kind):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(20000, 4))  # several blocks of rows
    model = REGRESSORS[kind]().fit(X[:500], X[:500, 0] * X[:500, 1])
    codes = [FittedEnsemble(model, n_jobs=k).fit(X).apply(X) for k in (None, 1, 2, -1)]
    for k in range(1, 4):
        np.testing.assert_array_equal(codes[0], codes[k])
    assert_same_cells(FittedEnsemble(model).fit(X), model, X, X[:9])


def test_unfitted_models_are_rejected(diabetes):
    X, y, _ = diabetes
    empty = lightgbm.Booster({"verbosity": -1}, lightgbm.Dataset(X, y))
    models = [make() for make in [*REGRESSORS.values(), *CLASSIFIERS.values()]] + [empty]
    for model in models:
        name = type(model).__name__
        for partitioner in (FittedEnsemble(model), FittedEnsemble(model).fresh()):
            with pytest.raises(NotFittedError, match=f"{name} that is not fitted: call its fit"):
                partitioner.fit(X, y)


def test_unsupported_models_are_rejected(diabetes):
    X, y, _ = diabetes
    for model in (AdaBoostRegressor(n_estimators=2).fit(X, y), "forest", None):
        name = type(model).__name__
        with pytest.raises(TypeError, match=f"{name}.*GradientBoostingRegressor.*Booster"):
            FittedEnsemble(model).fit(X, y)


@pytest.mark.parametrize("kind", [*REGRESSORS, "booster"])
def test_other_columns_are_rejected(kind, diabetes):
    X, y, _ = diabetes
    model = booster_of(X, y) if kind == "booster" else REGRESSORS[kind]().fit(X, y)
    message = f"X has 4 features, but the {type(model).__name__} was fitted on 10 features"
    fitted = FittedEnsemble(model).fit(X, y)
    for act in (FittedEnsemble(model).fit, lambda A: fitted.fresh().fit(A, y)):
        with pytest.raises(ValueError, match=message):
            act(X[:, :4])
    with pytest.raises(ValueError, match="X has 4 features, but FittedEnsemble is expecting 10"):
        fitted.apply(X[:, :4])
    with pytest.raises(NotFittedError):
        FittedEnsemble(model).apply(X)
    with pytest.raises(ValueError, match="2D array"):
        fitted.apply(X[0])


@pytest.mark.parametrize("kind", [*REGRESSORS, "booster"])
def test_models_with_feature_names(kind, diabetes):
    pd = pytest.importorskip("pandas")
    X, y, X_new = diabetes
    frame = pd.DataFrame(X, columns=[f"blood {j}" for j in range(10)])
    if kind == "lgbm":
        frame.columns = [f"blood_{j}" for j in range(10)]
    model = booster_of(frame, y) if kind == "booster" else REGRESSORS[kind]().fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        codes = FittedEnsemble(model).fit(X, y).apply(X_new)
        named = FittedEnsemble(model).fit(frame, y)
        new = pd.DataFrame(X_new, columns=frame.columns)
        np.testing.assert_array_equal(named.apply(new), codes)
        np.testing.assert_array_equal(named.apply(X_new), codes)
        named.fresh().fit(X, y).apply(X_new)
        named.fresh().fit(frame, y).apply(new)
    turned = new[new.columns[::-1]]
    for act in (
        lambda: check_fitted_model(model, turned),
        lambda: FittedEnsemble(model).fit(turned),
        lambda: named.fresh().fit(turned, y[: len(turned)]),
    ):
        with pytest.raises(ValueError, match="same columns in the same order"):
            act()


def test_lightgbm_categories_are_looked_up_by_name():
    pd = pytest.importorskip("pandas")
    rng = np.random.RandomState(0)
    colour = rng.choice(["red", "green", "blue"], size=300)
    frame = pd.DataFrame({"colour": pd.Categorical(colour), "x": rng.normal(size=300)})
    y = (colour == "green") * 3.0 + frame["x"].to_numpy()
    model = lightgbm.LGBMRegressor(n_estimators=5, **QUIET).fit(frame, y)
    adapter = find_adapter(model)
    assert {j: list(v) for j, v in adapter.categories(model).items()} == {
        0: ["blue", "green", "red"]
    }
    new = frame.iloc[:20].copy()
    new["colour"] = pd.Categorical(new["colour"], categories=["red", "green", "blue"])
    leaves = native_leaves(model, frame)
    # Categories in any number: as learned here, and as somebody else numbers them.
    for columns in (
        Columns.read(frame),
        Columns((Column("colour", np.array(["red", "grey", "green", "blue"])), Column("x"))),
    ):
        X = columns.encode(frame)
        partitioner = FittedEnsemble(model).fit(X, sample_weight=np.ones(300), columns=columns)
        codes = partitioner.apply(X)
        for code, leaf in zip(codes.T, leaves.T, strict=True):
            words = dict(zip(leaf, code, strict=True))
            np.testing.assert_array_equal(code, [words[k] for k in leaf])
            assert sorted(words.values()) == list(range(len(words)))
        np.testing.assert_array_equal(partitioner.apply(columns.encode(new)), codes[:20])
        assert (partitioner.trees_.table >= 0).any()
        regrown = partitioner.fresh().fit(X, y, columns=columns)
        assert (regrown.trees_.table >= 0).any()
    with pytest.raises(ValueError, match=r"red|categories"):
        FittedEnsemble(model).fit(frame)


def test_regrowing_lightgbm_is_quiet(diabetes, capfd):
    X, y, _ = diabetes
    model = lightgbm.LGBMRegressor(n_estimators=4, n_jobs=1).fit(X, y)
    booster = lightgbm.train({"num_threads": 1}, lightgbm.Dataset(X, y), 4)
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in (model, booster):
            FittedEnsemble(each).fit(X, y).fresh().fit(X[:30], y[:30]).apply(X)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_forest_with_several_outputs(diabetes):
    X, y, X_new = diabetes
    model = RandomForestRegressor(4, max_leaf_nodes=6, random_state=0).fit(X, np.c_[y, -y])
    assert_same_cells(FittedEnsemble(model).fit(X), model, X, X_new)
    assert len(FittedEnsemble(model).fresh().fit(X, y).n_cells_) == 4
