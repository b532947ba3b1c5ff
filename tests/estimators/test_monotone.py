"""Monotone constraints of the estimators: the promise, its certificate, and what is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score

import jointleaf
from blend_fits import small_fits, true_fits
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, prune, refine
from jointleaf.partitions import LightGBMPartitioner, RandomTreesPartitioner

SIGNS = [1, 0, -1, 0]


def make_rows(n, seed=0):
    """Rows and a mean that rises with column 0 and falls with column 2."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 4))
    return X, np.tanh(2 * X[:, 0]) * (1 + (X[:, 1] > 0)) - X[:, 2] + np.sin(2 * X[:, 3])


def largest_fall(raw, n_columns=4, n=10_000, *, missing=0.1):
    """The largest step against the signs, of pairs of rows far inside and outside of training."""
    rng = np.random.default_rng(1)
    low = rng.normal(0, 2, (n, n_columns))
    low[rng.random(low.shape) < missing] = np.nan
    high, each = low.copy(), np.arange(n)
    column = rng.choice(np.flatnonzero(SIGNS), n)
    low[each, column], high[each, column] = np.sort(rng.normal(0, 2, (2, n)), axis=0)
    return float(np.max(-np.array(SIGNS)[column] * (raw(high) - raw(low))))


def assert_monotone(model, raw):
    certificate = model.certify_monotonic()
    assert certificate.holds
    assert certificate.n_pairs + certificate.n_slopes >= 50
    assert certificate.signs == {"x0": 1, "x2": -1}
    assert largest_fall(raw) <= 1e-9


def with_missing_values(X, seed=3):
    return np.where(np.random.default_rng(seed).random(X.shape) < 0.1, np.nan, X)


@pytest.mark.slow
def test_regression_is_monotone_where_a_free_model_is_not():
    X, mean = make_rows(250)
    y = mean + np.random.default_rng(1).standard_normal(250)
    X = with_missing_values(X)
    model = JOPLEnRegressor(monotonic_cst=SIGNS, add_indicator=True, random_state=0).fit(X, y)
    assert_monotone(model, model.predict)
    free = JOPLEnRegressor(random_state=0).fit(X, y)
    assert largest_fall(free.predict) > 0.01
    X_test, mean_test = make_rows(2000, seed=5)
    assert r2_score(mean_test, model.predict(X_test)) > 0.75
    assert model.blend_.weights["joint"] > 0
    assert "inequalities" in str(model.report_.lines())
    assert model.solution_.converged


@pytest.mark.slow
def test_the_default_solve_converges_and_tighter_ones_say_nearly_the_same():
    """Weak penalties, as of targets without noise, take thousands of steps to a millionth."""
    X, y = make_rows(200)
    model = JOPLEnRegressor(monotonic_cst=SIGNS, random_state=0)
    with true_fits(), warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit(X, y)
        tight = clone(model).set_params(max_iter=20_000).fit(X, y)
    assert model.solution_.converged
    assert model.solution_.n_iter < 1000 < tight.solution_.n_iter
    assert np.std(model.predict(X) - tight.predict(X)) < 0.003 * y.std()


@pytest.mark.slow
def test_two_classes_and_counts_of_the_blend_are_monotone():
    X, mean = make_rows(120)
    rng = np.random.default_rng(2)
    classes = np.where(rng.random(120) < expit(2 * mean), "yes", "no")
    model = JOPLEnClassifier(monotonic_cst=SIGNS, random_state=0).fit(X, classes)
    assert_monotone(model, lambda X: model.predict_proba(X)[:, 1])
    X, mean = make_rows(300)
    counts = rng.poisson(np.exp(mean / 2))
    model = JOPLEnRegressor(monotonic_cst=SIGNS, loss="poisson", recipe="blend", random_state=0)
    with small_fits():
        model.fit(with_missing_values(X), counts)
    assert model.report_.recipe == "blend"
    assert {"joint", "boosted"} <= set(model.blend_.weights)
    assert_monotone(model, model.predict)


PARTITIONERS = {
    "lightgbm": "lightgbm",
    "random": RandomTreesPartitioner(10, 8),  # not grown under constraints
    "union": [LightGBMPartitioner(5, 4), RandomTreesPartitioner(5, 16)],
    "xgboost": "xgboost",
}


@pytest.mark.parametrize("cells", ["linear", "constant"])
@pytest.mark.parametrize("kind", PARTITIONERS)
def test_given_partitions_and_penalty_are_constrained(kind, cells):
    X, mean = make_rows(200)
    X, y = with_missing_values(X), mean + np.random.default_rng(0).standard_normal(200)
    penalty = Frobenius(0.01)
    model = JOPLEnRegressor(
        PARTITIONERS[kind], penalty=penalty, cells=cells, monotonic_cst=SIGNS, random_state=0
    )
    model.fit(X, y)
    assert_monotone(model, model.predict)
    assert model.penalty_ is penalty
    free = clone(model).set_params(monotonic_cst=None).fit(X, y)
    assert largest_fall(free.predict) > 1e-3


@pytest.mark.parametrize("loss", ["quantile", "huber"])
def test_strength_is_chosen_and_other_losses_are_monotone(loss):
    X, mean = make_rows(150)
    y = mean + np.random.default_rng(0).standard_normal(150)
    partitioner = LightGBMPartitioner(15, 4)
    model = JOPLEnRegressor(
        partitioner, penalty=Frobenius("auto"), loss=loss, monotonic_cst=SIGNS, tol=1e-3,
        random_state=0,
    )  # fmt: skip
    assert_monotone(model.fit(X, y), model.predict)
    assert model.penalty_.strength in model.cv_results_["param_strength"]


def test_names_categories_and_files(tmp_path):
    X, mean = make_rows(200)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["kind"] = np.where(X[:, 1] > 0, "hot", "cold")
    model = JOPLEnRegressor(
        "lightgbm", penalty=Frobenius(0.01), monotonic_cst={"a": 1, "c": -1}, random_state=0
    )
    model.fit(frame, mean)
    certificate = model.certify_monotonic()
    assert certificate.holds
    assert certificate.signs == {"a": 1, "c": -1}
    assert str(certificate).startswith("rises with a, falls with c: holds for all rows")
    higher = frame.assign(a=frame["a"] + 0.5)
    assert (model.predict(higher) >= model.predict(frame) - 1e-12).all()
    jointleaf.save(model, tmp_path / "model.jleaf")
    loaded = jointleaf.load(tmp_path / "model.jleaf")
    assert loaded.monotonic_cst == {"a": 1, "c": -1}
    assert loaded.certify_monotonic() == certificate


def test_certificate_sees_every_inequality_that_is_broken():
    X, mean = make_rows(200)
    model = JOPLEnRegressor(
        "lightgbm", penalty=Frobenius(0.01), monotonic_cst=SIGNS, random_state=0
    ).fit(X, mean)
    cells = model.cell_model_
    linear = cells.layout.linear_cells
    ordered = np.setdiff1d(np.arange(len(cells.biases)), linear)
    before = model.certify_monotonic()
    cells.biases[ordered] *= -1
    assert 0.5 * before.n_pairs < model.certify_monotonic().n_violated <= before.n_pairs
    assert "not certain" in str(model.certify_monotonic())
    cells.biases[ordered] *= -1
    assert model.certify_monotonic().holds
    cells.slopes[0, 0] = -1.0  # of the root cell and of partitions without splits on column 0
    assert model.certify_monotonic().n_violated == 1


def test_refined_model_keeps_constraints_that_are_given_again():
    X, mean = make_rows(300)
    y = mean + np.random.default_rng(0).standard_normal(300)
    trained = LGBMRegressor(
        n_estimators=20, monotone_constraints=SIGNS, num_leaves=8, verbose=-1
    ).fit(X, y)
    with pytest.raises(ValueError, match="give them as monotonic_cst= as well"):
        refine(trained, X, y)
    # Leaves that these rows do not reach are no cells, and still in order.
    model = refine(trained, X[:25], y[:25], penalty=Frobenius(0.01), monotonic_cst=SIGNS)
    assert (model.partitioner_.apply(X) < 0).any()
    assert_monotone(model, model.predict)


def test_no_constraint_changes_nothing():
    X, mean = make_rows(100)
    model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.1), random_state=0)
    plain = model.fit(X, mean).predict(X)
    model.set_params(monotonic_cst=[0, 0, 0, 0]).fit(X, mean)
    np.testing.assert_array_equal(model.predict(X), plain)
    with pytest.raises(ValueError, match="constrains no column: fit with constraints"):
        model.certify_monotonic()


BAD = {
    "length": ({"monotonic_cst": [1, 0]}, "has 2 values, but X has 4 columns"),
    "value": ({"monotonic_cst": [2, 0, 0, 0]}, "holds 2 for column 'x0'"),
    "flag": ({"monotonic_cst": [True, 0, 0, 0]}, "holds True for column 'x0'"),
    "name": ({"monotonic_cst": {"age": 1}}, "names 'age', but the columns are"),
    "budget": ({"time_budget": 5.0}, "time_budget=5.0: leave one of them out"),
    "cells": (
        {"partitioner": ["lightgbm"], "cells": ["constant"], "penalty": Frobenius(0.1)},
        "use one word for all",
    ),
    "penalty": ({"penalty": jointleaf.L21(0.1)}, "use 'auto' or Frobenius"),
    "solver": ({"solver": "dual"}, "solver='dual': use 'auto' or 'fista'"),
    "device": ({"device": "jax:cpu"}, "device='jax:cpu': use 'auto' or 'cpu'"),
    "voronoi": ({"partitioner": "voronoi"}, "VoronoiPartitioner, whose cells mix columns"),
    "rotated": ({"partitioner": "rotated_trees"}, "RotatedPartitioner, whose cells mix columns"),
    "category": ({"categorical_features": [0]}, "'x0', which holds categories without an order"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_promised_is_refused(case):
    parameters, message = BAD[case]
    X, mean = make_rows(30)
    X[:, 0] = np.round(X[:, 0])
    model = JOPLEnRegressor(**{"monotonic_cst": SIGNS, **parameters})
    with pytest.raises(ValueError, match=message):
        model.fit(X, mean)


def test_several_classes_words_and_what_fits_again_are_refused():
    X, mean = make_rows(90)
    with pytest.raises(ValueError, match="is for two classes, but y holds 3"):
        JOPLEnClassifier(monotonic_cst=SIGNS).fit(X, np.arange(90) % 3)
    with pytest.raises(TypeError, match="must be one of -1, 0 and 1 for every column"):
        JOPLEnRegressor(monotonic_cst="rising").fit(X, mean)
    model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.1), monotonic_cst=SIGNS)
    model.fit(X, mean)
    with pytest.raises(ValueError, match="would not keep: fit smaller trees instead"):
        prune(model, X, mean)
    assert "monotonic_cst" not in jointleaf.MultiTaskJOPLEnRegressor().get_params()


@pytest.mark.parametrize("wrap", [lambda trees: trees, lambda trees: [trees, "voronoi"]])
def test_constraints_on_trees_alone_are_refused(wrap):
    X, mean = make_rows(90)
    trees = LightGBMPartitioner(3, options={"monotone_constraints": SIGNS})
    model = JOPLEnRegressor(wrap(trees), penalty=Frobenius(0.1))
    with pytest.raises(
        ValueError, match=r"is of its trees alone.*give the estimator monotonic_cst="
    ):
        model.fit(X, mean)
    none = LightGBMPartitioner(3, options={"monotone_constraints": [0] * X.shape[1]})
    JOPLEnRegressor(none, penalty=Frobenius(0.1), random_state=0).fit(X, mean)
