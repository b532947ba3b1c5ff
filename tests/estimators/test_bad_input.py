"""Bad and odd input: a clear error or a sensible finite fit, and never a half-fitted estimator."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import KFold

from blend_fits import small_fits
from choices import cv_for
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf.partitions import LightGBMPartitioner, RootCell

X, Y = make_friedman1(60, n_features=5, noise=0.5, random_state=0)
BINARY = (np.median(Y) < Y).astype(int)
RIDGE = Frobenius(0.01)
SMALL = LightGBMPartitioner(8, 4)


class Interrupted(RootCell):
    """Ctrl-C at the start of a fit."""

    def fit(self, X, y=None, sample_weight=None, *, target_type="regression"):
        raise KeyboardInterrupt


class InterruptedLate(RootCell):
    """Ctrl-C when the estimator has grown its partitions already."""

    def apply(self, X):
        raise KeyboardInterrupt


@pytest.fixture(params=["auto", "fixed"])
def penalty(request):
    return "auto" if request.param == "auto" else RIDGE


def frame_with(column):
    return pd.DataFrame(X, columns=list("abcde")).assign(extra=column)


def put(array, value):
    array = array.copy()
    array.flat[3] = value
    return array


# -- rejected -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "y", "error", "message"),
    [
        (np.zeros((0, 3)), [], ValueError, "0 sample"),
        (np.zeros((5, 0)), np.arange(5.0), ValueError, "0 feature"),
        (X[:1], Y[:1], ValueError, "minimum of 2"),
        (Y, Y, ValueError, "Expected 2D array"),
        (X[:, :, None], Y, ValueError, "dim 3"),
        (put(X, np.inf), Y, ValueError, "X contains infinity"),
        (X, put(Y, np.nan), ValueError, "y contains NaN in row .*leave out rows"),
        (X, put(Y, -np.inf), ValueError, "y contains infinity"),
        (X, Y[:-1], ValueError, r"inconsistent numbers of samples: \[60, 59\]"),
        (
            X,
            np.column_stack([Y, Y]),
            ValueError,
            "y has shape .60, 2., but JOPLEnRegressor predicts one .* MultiTaskJOPLEnRegressor",
        ),
        (X, None, ValueError, "requires y"),
        (
            X,
            np.array(["a"] * 60),
            ValueError,
            "y holds 'a', which is no number: use JOPLEnClassifier",
        ),
        (X.astype(str), Y, ValueError, r"column 0 holds numbers as text.*astype\(float\)"),
        (X + 1j, Y, ValueError, "Complex data not supported"),
        (frame_with(["u", 1.0] * 30), Y, ValueError, "'extra' mixes text and other.*'u' and 1.0"),
        (frame_with([{}, 1.0] * 30), Y, TypeError, "column 'extra' holds {}"),
        (frame_with(["u", np.inf] * 30), Y, ValueError, "'extra' mixes text"),
        (frame_with(pd.Timedelta(days=1)), Y, ValueError, "column 'extra' holds times"),
    ],
)
def test_data_that_cannot_be_fitted(rows, y, error, message):
    model = JOPLEnRegressor(SMALL)
    with pytest.raises(error, match=message):
        model.fit(rows, y)
    assert not hasattr(model, "n_features_in_")


def test_targets_of_a_score_that_are_no_numbers():
    model = JOPLEnRegressor(SMALL, penalty=Frobenius(0.1)).fit(X, Y)
    with pytest.raises(ValueError, match=r"y holds '\$4,052', which is no number: convert y"):
        model.score(X, ["$4,052"] * 60)
    assert model.score(X, [str(value) for value in Y]) == pytest.approx(model.score(X, Y))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(60), "y holds one class only"),
        (["same"] * 60, "y holds one class only"),
        (Y, "continuous"),
        (np.where(BINARY, np.nan, 0.0), "y is nan in row 0: leave out rows"),
        (BINARY[:7], "inconsistent numbers"),
    ],
)
def test_classes_that_cannot_be_told_apart(y, message):
    model = JOPLEnClassifier(SMALL)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


def test_a_class_of_zero_weight_is_no_class():
    with pytest.raises(ValueError, match=r"one class only \(1.*, in rows of positive weight\)"):
        JOPLEnClassifier(SMALL).fit(X, BINARY, BINARY)
    with pytest.raises(ValueError, match=r"one class only \([^,]*\): at least two"):
        JOPLEnClassifier(SMALL).fit(X[BINARY > 0], BINARY[BINARY > 0])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(60), "holds -1: weights must not be negative"),
        (np.zeros(60), "zero for every row"),
        (np.full(60, np.nan), "NaN or infinity"),
        (np.ones(59), r"shape \(59,\), but X has 60 rows"),
        (np.ones((60, 1)), r"shape \(60, 1\)"),
        (["a"] * 60, "could not convert"),
    ],
)
def test_weights_that_make_no_sense(weights, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor(SMALL).fit(X, Y, weights)


@pytest.mark.parametrize(
    ("parameter", "value", "error", "message"),
    [
        ("penalty", 0.1, TypeError, r"penalty=0.1 must be 'auto' or a Penalty"),
        ("penalty", None, TypeError, "penalty=None must be"),
        ("penalty", Frobenius, TypeError, "must be 'auto' or a Penalty"),
        ("penalty", "ridge", ValueError, "penalty='ridge' is not known"),
        ("penalty", Frobenius(1, feature_weights=[1, 2]), ValueError, "2 entries.* 5 features"),
        (
            "partitioner",
            "forest",
            ValueError,
            "'forest' is not known: use 'auto' .* 'lightgbm'",
        ),
        ("partitioner", None, ValueError, "partitioner=None is not known: use 'auto'"),
        ("partitioner", ["auto"], ValueError, "alone, not in a list"),
        ("partitioner", 3, TypeError, "partitioner is of type int"),
        ("partitioner", [], ValueError, "at least one partitioner"),
        ("partitioner", RandomForestRegressor(), NotFittedError, "not fitted"),
        ("partitioner", RandomForestRegressor, TypeError, "a fitted model of one of these"),
        (
            "partitioner",
            LightGBMPartitioner(0),
            ValueError,
            "n_partitions=0 must be a whole number",
        ),
        ("partitioner", LightGBMPartitioner(3, 1), ValueError, "n_cells=1 must be a whole"),
        ("cells", "quadratic", ValueError, "cells='quadratic' is not known"),
        ("solver", "adam", ValueError, "solver='adam' is not known"),
        ("solver", "newton-cg", ValueError, "use 'auto' or one of"),
        ("cv", 1, ValueError, "cv=1 must be at least 2"),
        ("cv", 0, ValueError, "cv=0 must be at least 2"),
        ("cv", "five", ValueError, "cv.*integer.* Got five"),
        ("tol", 0, ValueError, "tol=0 must be a positive number"),
        ("tol", np.nan, ValueError, "tol=nan must be"),
        ("max_iter", 0, ValueError, "max_iter=0 must be a whole number"),
        ("max_iter", 1.5, ValueError, "max_iter=1.5 must be a whole number"),
        ("n_jobs", 0, ValueError, "n_jobs == 0"),
        ("random_state", "seed", ValueError, "'seed' cannot be used to seed"),
    ],
)
def test_parameters_that_make_no_sense(parameter, value, error, message):
    cv = None if parameter == "penalty" else 2
    model = JOPLEnRegressor(SMALL, cv=cv).set_params(**{parameter: value})
    with pytest.raises(error, match=message):
        model.fit(X, Y)
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("strength", [0, -1, np.nan, np.inf])
def test_strengths_must_be_positive(strength):
    with pytest.raises(ValueError, match=r"strength=.* must be a positive number"):
        Frobenius(strength)


def test_a_solver_that_does_not_fit_says_what_would():
    model = JOPLEnClassifier(SMALL, penalty=RIDGE, solver="pcg")
    with pytest.raises(ValueError, match="needs the squared error loss: use solver='newton'"):
        model.fit(X, BINARY)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X_val": X}, "give both or none"),
        ({"y_val": BINARY}, "give both or none"),
        ({"X_val": X[:, :2], "y_val": BINARY}, "2 features"),
        ({"X_val": X, "y_val": BINARY[:5]}, "inconsistent numbers"),
        ({"X_val": X[:0], "y_val": BINARY[:0]}, "0 sample"),
        ({"X_val": put(X, np.inf), "y_val": BINARY}, "infinity"),
        ({"X_val": X, "y_val": BINARY + 1}, r"y_val holds class .*2.*, which y does not have"),
    ],
)
def test_validation_rows_that_make_no_sense(given, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnClassifier(SMALL).fit(X, BINARY, **given)


@pytest.mark.parametrize("method", ["predict", "apply", "predict_proba", "decision_function"])
def test_rows_that_cannot_be_predicted(method):
    answer = getattr(JOPLEnClassifier(SMALL, penalty=RIDGE).fit(X, BINARY), method)
    with pytest.raises(ValueError, match="X has 4 features, but JOPLEnClassifier is expecting 5"):
        answer(X[:, :4])
    with pytest.raises(ValueError, match="infinity"):
        answer(put(X, np.inf))
    with pytest.raises(ValueError, match="Expected 2D array"):
        answer(X[0])
    with pytest.raises(ValueError, match="0 sample"):
        answer(X[:0])


# -- odd but possible --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_few_rows(n, penalty):
    model = JOPLEnRegressor(penalty=penalty).fit(X[:n], Y[:n])
    assert np.isfinite(model.predict(X)).all()
    # Between the mean of the targets and the targets themselves.
    assert 0 <= model.score(X[:n], Y[:n]) <= 1
    labels = np.arange(n) % 2
    shares = JOPLEnClassifier(penalty=penalty).fit(X[:n], labels).predict_proba(X)
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_one_row_of_positive_weight(penalty):
    weights = np.zeros(len(Y))
    weights[4] = 3
    model = JOPLEnRegressor(penalty=penalty).fit(X, Y, weights)
    np.testing.assert_allclose(model.predict(X), Y[4])


def test_constant_columns_change_nothing(penalty):
    constants = np.tile([0.0, 7.0, -1e8, 0.1], (len(X), 1))
    wide = np.hstack([X, constants])
    model = JOPLEnRegressor(RootCell(), penalty=RIDGE)
    expected = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit(wide, Y).predict(wide), expected)
    moved = wide + np.r_[np.zeros(5), 1e9, -5, 3, 1]
    np.testing.assert_allclose(model.predict(moved), expected)
    trees = JOPLEnRegressor(penalty=penalty, random_state=0).fit(wide, Y)
    assert trees.score(wide, Y) > 0.8
    np.testing.assert_allclose(trees.feature_importances_[5:], 0, atol=1e-12)
    np.testing.assert_allclose(trees.coef_[:, 5:], 0, atol=1e-6 * np.abs(trees.coef_).max())


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", [JOPLEnRegressor, JOPLEnClassifier])
def test_only_constant_columns(estimator, penalty):
    y = [0.0, 0.0, 0.0, 1.0] * 10
    model = estimator(penalty=penalty).fit(np.ones((40, 3)), np.array(y))
    rows = [[1.0, 1, 1], [-5, 9, 1]]
    if estimator is JOPLEnRegressor:
        np.testing.assert_allclose(model.predict(rows), 0.25)
    else:
        np.testing.assert_allclose(model.predict_proba(rows), [[0.75, 0.25]] * 2, rtol=1e-5)
    np.testing.assert_allclose(model.feature_importances_.sum(), 1)


def test_duplicate_columns_share_the_slopes():
    twice = np.hstack([X, X])
    model = JOPLEnRegressor(RootCell(), root_cell=False, penalty=Frobenius(0.02, 0))
    model.fit(twice, Y)
    np.testing.assert_allclose(model.coef_[:, :5], model.coef_[:, 5:])
    half = JOPLEnRegressor(RootCell(), root_cell=False, penalty=Frobenius(0.01, 0)).fit(X, Y)
    np.testing.assert_allclose(model.predict(twice), half.predict(X))


def test_more_features_than_rows(penalty):
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(30, 80))
    y = wide[:, 0] + 0.1 * rng.normal(size=30)
    model = JOPLEnRegressor(penalty=penalty, cv=cv_for(penalty, 3), random_state=0).fit(wide, y)
    assert model.score(wide, y) > 0.5
    assert np.isfinite(model.predict(rng.normal(size=(20, 80)))).all()
    labels = (
        JOPLEnClassifier(penalty=penalty, cv=cv_for(penalty, 3), random_state=0)
        .fit(wide, y > 0)
        .predict(wide)
    )
    assert np.mean(labels == (y > 0)) > 0.9


@pytest.mark.parametrize("value", [0.0, 3.0, -1e12, 1e-30])
def test_a_constant_target(value, penalty):
    model = JOPLEnRegressor(penalty=penalty).fit(X, np.full(len(X), value))
    np.testing.assert_allclose(model.predict(X), value, rtol=1e-12)


def test_one_feature(penalty):
    x = np.linspace(-1, 1, 80)[:, None]
    model = JOPLEnRegressor(penalty=penalty, random_state=0).fit(x, np.abs(x[:, 0]))
    assert model.score(x, np.abs(x[:, 0])) > 0.95
    np.testing.assert_allclose(model.feature_importances_, [1.0])


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e100])
def test_the_unit_of_the_target_does_not_matter(scale, penalty):
    # Given splits, because rows are dealt out to folds by their contents.
    model = JOPLEnRegressor(RootCell(), penalty=penalty, cv=KFold(3))
    expected = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit(X, scale * Y).predict(X) / scale, expected, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100])
def test_the_units_of_the_features_do_not_matter(scale):
    model = JOPLEnRegressor(RootCell(), penalty=RIDGE)
    expected = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit(scale * X, Y).predict(scale * X), expected)


def test_targets_far_from_zero(penalty):
    model = JOPLEnRegressor(SMALL, penalty=penalty, cv=cv_for(penalty, 2), random_state=0)
    expected = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit(X, 1e9 + Y).predict(X) - 1e9, expected, atol=1e-4)


def test_features_far_from_zero():
    model = JOPLEnRegressor(SMALL, penalty=Frobenius(0.01), random_state=0)
    assert model.fit(1e7 + X, Y).score(1e7 + X, Y) > 0.9


@pytest.mark.parametrize("unit", [1e-300, 1e-155, 1e155, 1e300])
def test_targets_of_any_size(unit, penalty):
    model = JOPLEnRegressor(SMALL, penalty=penalty, cv=cv_for(penalty, 2), random_state=0)
    expected = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit(X, unit * Y).predict(X) / unit, expected, rtol=1e-5)


@pytest.mark.parametrize("unit", [1e-300, 1e155, 1e300])
def test_features_of_any_size(unit):
    model = JOPLEnRegressor("voronoi", penalty=Frobenius(0.01), random_state=0)
    assert model.fit(unit * X, Y).score(unit * X, Y) > 0.9


def test_features_too_far_apart_for_floating_point():
    wide = X.copy()
    wide[0, 1], wide[1, 1] = -1.7e308, 1.7e308
    with pytest.raises(ValueError, match="too far apart"):
        JOPLEnRegressor(RootCell(), penalty=RIDGE).fit(wide, Y)


def test_many_classes():
    labels = np.arange(len(X)) % 20
    model = JOPLEnClassifier(SMALL, penalty=Frobenius(1e-4)).fit(X, labels)
    assert model.predict_proba(X).shape == (60, 20)
    assert model.score(X, labels) > 0.9


def test_separable_classes_stay_finite(penalty):
    y = X[:, 0] > 0.5
    model = JOPLEnClassifier(SMALL, penalty=penalty, cv=cv_for(penalty, 2)).fit(X, y)
    assert model.score(X, y) == 1
    assert np.isfinite(model.decision_function(np.vstack([X, 1e12 * X]))).all()


def test_extreme_strengths():
    weak = JOPLEnRegressor(SMALL, penalty=Frobenius(1e-12), random_state=0).fit(X, Y)
    assert weak.score(X, Y) > 0.99
    strong = JOPLEnRegressor(SMALL, penalty=Frobenius(1e12)).fit(X, Y)
    np.testing.assert_allclose(strong.predict(X), Y.mean(), rtol=1e-6)


def test_weights_of_very_different_sizes(penalty):
    weights = 10.0 ** np.random.default_rng(0).uniform(-9, 9, len(Y))
    model = JOPLEnRegressor(SMALL, penalty=penalty, cv=cv_for(penalty, 2), random_state=0).fit(
        X, Y, weights
    )
    assert np.isfinite(model.predict(X)).all()
    heaviest = np.argmax(weights)
    assert abs(model.predict(X)[heaviest] - Y[heaviest]) < 0.2 * Y.std()


def test_more_folds_than_rows():
    model = JOPLEnRegressor(SMALL, cv=1000).fit(X[:12], Y[:12])
    assert np.isfinite(model.predict(X)).all()


def test_an_unfinished_solve_warns_and_says_what_to_try():
    model = JOPLEnClassifier(SMALL, penalty=Frobenius(1e-6), solver="newton", max_iter=1)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model.fit(X, BINARY)
    assert not model.solution_.converged
    assert np.isfinite(model.decision_function(X)).all()


# -- interrupted and silent --------------------------------------------------------------------


@pytest.mark.parametrize("partitioner", [Interrupted(), InterruptedLate()])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_leaves_an_unfitted_estimator_unfitted(partitioner, n_jobs, penalty):
    model = JOPLEnClassifier(partitioner, penalty=penalty, n_jobs=n_jobs)
    with pytest.raises(KeyboardInterrupt):
        model.fit(pd.DataFrame(X, columns=list("abcde")), BINARY)
    assert vars(model) == vars(JOPLEnClassifier(partitioner, penalty=penalty, n_jobs=n_jobs))
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("partitioner", [Interrupted(), InterruptedLate()])
def test_ctrl_c_leaves_a_fitted_estimator_as_it_was(partitioner, penalty):
    labels = np.where(BINARY, "yes", "no")
    model = JOPLEnClassifier(SMALL, penalty=penalty, cv=cv_for(penalty, 2)).fit(X, labels)
    before = model.predict_proba(X)
    model.set_params(partitioner=partitioner)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], np.arange(len(X)) % 3)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_array_equal(model.classes_, ["no", "yes"])
    assert model.n_features_in_ == 5
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.zeros(len(X)))
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_nothing_is_printed_unless_asked(capfd, penalty):
    for estimator, y in [(JOPLEnRegressor, Y), (JOPLEnClassifier, BINARY)]:
        estimator(penalty=penalty, cv=cv_for(penalty, 2)).fit(X, y).predict(X)
    assert capfd.readouterr() == ("", "")


def test_targets_that_are_no_classes_are_told_apart():
    classifier = JOPLEnClassifier(SMALL, penalty=RIDGE)
    with pytest.raises(ValueError, match=r"JOPLEnRegressor predicts numbers\.$"):
        classifier.fit(X, Y)
    labels = np.resize(np.array(["a", 1], dtype=object), len(Y))
    with pytest.raises(TypeError, match=r"y mixes text and other labels, for example 'a' and 1"):
        classifier.fit(X, labels)


def test_classes_that_hardly_repeat_are_told_once(recwarn):
    with small_fits():
        JOPLEnClassifier(random_state=0).fit(X, np.arange(60) // 2)
        assert [str(w.message) for w in recwarn] == []
        JOPLEnClassifier(random_state=0).fit(X, np.minimum(np.arange(60), 39))
    assert [str(w.message) for w in recwarn] == [
        "y has 40 classes in 60 rows: for numbers use JOPLEnRegressor"
    ]
    assert recwarn[0].filename == __file__


def test_verbose_shows_progress_and_the_end_of_the_solve(capsys):
    JOPLEnRegressor(SMALL, cv=2, verbose=1).fit(X, Y)
    shown = capsys.readouterr()
    assert "choosing the penalty" in shown.err
    assert "24/24" in shown.err
    assert "converged" in shown.out
    JOPLEnRegressor(SMALL, penalty=RIDGE, verbose=1).fit(X, Y)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "converged" in shown.out
