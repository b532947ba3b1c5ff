"""`refine` keeps the loss of the model it is given, and loses no constraint in silence."""

import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)

from jointleaf import Frobenius, refine
from jointleaf.losses import AbsoluteError, Gamma, Huber, Poisson, Quantile, SquaredError, Tweedie

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (200, 2))
Y = RNG.poisson(np.exp(X[:, 0] + 1)) + 0.5
OPTIONS = {"penalty": Frobenius(1.0), "random_state": 0}


def lightgbm(**params):
    module = pytest.importorskip("lightgbm")
    return module.LGBMRegressor(n_estimators=5, verbose=-1, **params)


def lightgbm_booster(**params):
    module = pytest.importorskip("lightgbm")
    params = {"verbosity": -1, **params}
    booster = module.train(params, module.Dataset(X, Y), num_boost_round=5)
    booster.fit = lambda *_: booster
    return booster


def xgboost(**params):
    return pytest.importorskip("xgboost").XGBRegressor(n_estimators=5, **params)


def catboost(**params):
    module = pytest.importorskip("catboost")
    return module.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False, **params)


CASES = {
    "lightgbm": (lightgbm, {}, SquaredError()),
    "lightgbm l1": (lightgbm, {"objective": "l1"}, AbsoluteError()),
    "lightgbm quantile": (lightgbm, {"objective": "quantile", "alpha": 0.8}, Quantile(0.8)),
    "lightgbm huber": (lightgbm, {"objective": "huber", "alpha": 0.7}, Huber(0.7)),
    "lightgbm gamma": (lightgbm, {"objective": "gamma"}, Gamma()),
    "lightgbm booster": (lightgbm_booster, {"objective": "poisson"}, Poisson()),
    "xgboost": (xgboost, {}, SquaredError()),
    "xgboost tweedie": (
        xgboost,
        {"objective": "reg:tweedie", "tweedie_variance_power": 1.3},
        Tweedie(1.3),
    ),
    "xgboost quantile": (
        xgboost,
        {"objective": "reg:quantileerror", "quantile_alpha": 0.9},
        Quantile(0.9),
    ),
    "catboost": (catboost, {}, SquaredError()),
    "catboost quantile": (catboost, {"loss_function": "Quantile:alpha=0.9"}, Quantile(0.9)),
    "catboost poisson": (catboost, {"loss_function": "Poisson"}, Poisson()),
    "gradient boosting": (
        lambda **p: GradientBoostingRegressor(n_estimators=5, **p),
        {"loss": "quantile", "alpha": 0.9},
        Quantile(0.9),
    ),
    "histogram": (
        lambda **p: HistGradientBoostingRegressor(max_iter=5, **p),
        {"loss": "poisson"},
        Poisson(),
    ),
    "forest": (lambda **p: RandomForestRegressor(5, max_leaf_nodes=8, **p), {}, SquaredError()),
}


@pytest.mark.parametrize(("make", "params", "loss"), CASES.values(), ids=CASES.keys())
def test_the_loss_is_kept(make, params, loss):
    model = make(**params).fit(X, Y)
    refined = refine(model, X, Y, **OPTIONS)
    assert refined.loss_ == loss
    assert refine(model, X, Y, loss="absolute_error", **OPTIONS).loss_ == AbsoluteError()


def test_a_refined_quantile_model_is_one():
    model = lightgbm(objective="quantile", alpha=0.9).fit(X, Y)
    refined = refine(model, X, Y, **OPTIONS)
    assert 0.8 < np.mean(refined.predict(X) >= Y) < 1.0


def test_leaf_values_of_counts_take_part():
    model = lightgbm(objective="poisson").fit(X, Y)
    refined = refine(model, X, Y, random_state=0, cv=2)
    assert set(refined.blend_.weights) <= {"joint", "leaf_values"}
    better = Poisson().value(Y, np.log(refined.predict(X)), np.ones(200))
    assert better < Poisson().value(Y, np.log(model.predict(X)), np.ones(200))


def test_objectives_without_a_loss_are_refused():
    model = lightgbm(objective="mape").fit(X, Y)
    with pytest.raises(ValueError, match=r"objective 'mape', which has no loss here: give loss="):
        refine(model, X, Y)
    assert refine(model, X, Y, loss="huber", **OPTIONS).report_.loss == "huber"


def half_errors(y_true, y_pred):
    return 0.5 * (y_pred - y_true), np.ones_like(y_true)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: lightgbm(reg_sqrt=True), "regression, reg_sqrt=True"),
        (lambda: lightgbm(objective=half_errors), "none"),
        (lambda: xgboost(objective=half_errors), "half_errors"),
        (
            lambda: xgboost(objective="reg:quantileerror", quantile_alpha=[0.1, 0.9]),
            "reg:quantileerror of 0.1, 0.9",
        ),
        (
            lambda: catboost(loss_function="MultiQuantile:alpha=0.1,0.9"),
            "MultiQuantile of 0.1, 0.9",
        ),
    ],
    ids=["square roots", "lightgbm function", "xgboost function", "two levels", "catboost levels"],
)
def test_what_no_loss_says_is_refused(make, name):
    model = make().fit(X, Y)
    with pytest.raises(ValueError, match=f"objective '{name}', which has no loss here"):
        refine(model, X, Y)


@pytest.mark.parametrize(
    "make",
    [
        lambda: lightgbm(monotone_constraints=[1, 0]),
        lambda: xgboost(monotone_constraints="(1,0)"),
        lambda: catboost(monotone_constraints=[1, 0]),
        lambda: HistGradientBoostingRegressor(max_iter=5, monotonic_cst=[1, 0]),
        lambda: RandomForestRegressor(5, monotonic_cst=[0, -1]),
    ],
    ids=["lightgbm", "xgboost", "catboost", "histogram", "forest"],
)
def test_monotone_constraints_are_not_lost_in_silence(make):
    model = make().fit(X, Y)
    with pytest.raises(ValueError, match="monotone constraints, which a joint fit"):
        refine(model, X, Y)


def test_constraints_of_classifiers_too():
    model = HistGradientBoostingClassifier(max_iter=5, monotonic_cst=[1, 0]).fit(X, Y > 3)
    with pytest.raises(ValueError, match="monotone constraints"):
        refine(model, X, Y > 3)
    plain = HistGradientBoostingClassifier(max_iter=5).fit(X, Y > 3)
    with pytest.raises(ValueError, match="offset and exposure are for regression models"):
        refine(plain, X, Y > 3, exposure=np.ones(200))


def test_exposure_is_passed_on():
    model = lightgbm(objective="poisson").fit(X, Y)
    refined = refine(model, X, Y, exposure=np.full(200, 2.0), **OPTIONS)
    once = refine(model, X, Y, **OPTIONS)
    np.testing.assert_allclose(2 * refined.predict(X).mean(), once.predict(X).mean(), rtol=0.05)


def test_groups_and_validation_rows_are_passed_on():
    model = lightgbm(objective="poisson").fit(X, Y)
    with pytest.raises(ValueError, match="groups puts all rows of positive weight into one group"):
        refine(model, X, Y, groups=np.zeros(200))
    rows = {"X_val": X[100:], "y_val": Y[100:], "exposure": np.full(100, 2.0)}
    with pytest.raises(ValueError, match="give exposure_val"):
        refine(model, X[:100], Y[:100], **rows)
    refined = refine(model, X[:100], Y[:100], exposure_val=np.full(100, 2.0), **rows)
    assert refined.report_.has_offset
