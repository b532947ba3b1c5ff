"""Prediction intervals, quantiles and sets of the estimators."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import jointleaf as jl
from blend_fits import true_fits
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor

FAST = {"partitioner": "random_trees", "penalty": Frobenius(0.1), "random_state": 0}


def spread_rows(n, seed=0):
    """Numbers whose spread rises with the second column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X[:, 0] + np.exp(2 * X[:, 1]) * rng.standard_normal(n)


def covered(model, X, y, coverage=0.9):
    low, high = model.predict_interval(X, coverage).T
    return (low <= y) & (y <= high)


@pytest.fixture(scope="module")
def fitted():
    with true_fits():  # so much noise wants the strongest penalties
        return JOPLEnRegressor(random_state=0).fit(*spread_rows(500))


@pytest.fixture(scope="module")
def classifier():
    X, y = spread_rows(400)
    return JOPLEnClassifier(random_state=0).fit(X, np.digitize(y, [-0.5, 0.5]))


def test_intervals_of_a_fit_cover_and_follow_the_spread(fitted):
    X, y = spread_rows(3000, seed=1)
    assert fitted.calibration_.widths is not None
    assert covered(fitted, X, y).mean() == pytest.approx(0.9, abs=0.03)
    assert covered(fitted, X, y, 0.5).mean() == pytest.approx(0.5, abs=0.06)
    low, high = fitted.predict_interval(X).T
    assert (high - low)[X[:, 1] > 0.5].mean() > 3 * (high - low)[X[:, 1] < -0.5].mean()


def test_adaptive_intervals_are_narrower_at_equal_coverage(fitted):
    widths, hits = ([], []), ([], [])
    for seed in range(1, 11):
        X, y = spread_rows(2000, seed=seed)
        adaptive, constant = (pickle.loads(pickle.dumps(fitted)) for _ in range(2))
        constant.calibration_ = None
        for k, model in enumerate((adaptive, constant)):
            model.calibrate(X[:1000], y[:1000])
            hits[k].append(covered(model, X[1000:], y[1000:]).mean())
            widths[k].append(np.diff(model.predict_interval(X[1000:]), axis=1).mean())
    np.testing.assert_allclose(np.mean(hits, axis=1), 0.9, atol=0.013)
    assert np.mean(widths[0]) < 0.85 * np.mean(widths[1])


def test_quantiles_rise_and_agree_with_intervals(fitted):
    X, _ = spread_rows(200, seed=2)
    levels = np.linspace(0.01, 0.99, 41)
    quantiles = fitted.predict_quantiles(X, levels)
    assert quantiles.shape == (200, 41)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    ends = fitted.predict_quantiles(X, [0.9, 0.1])
    np.testing.assert_array_equal(ends[:, ::-1], fitted.predict_interval(X, 0.8))


@pytest.mark.parametrize("n", [19, 40])
def test_quantiles_are_predictions_and_ranks_of_fresh_residuals(n):
    """The ranks that the docstring names; nothing else is fitted."""
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(2 * n, 2)), rng.normal(size=2 * n)
    model = JOPLEnRegressor("random_trees", penalty=Frobenius(0.1), random_state=0)
    model.fit(rows[:n], y[:n]).calibrate(rows[n:], y[n:])
    residuals = np.sort(y[n:] - model.predict(rows[n:]))
    levels = np.array([0.1, 0.33, 0.5, 0.77, 0.9])
    exact = (n + 1) * levels
    ranks = np.where(levels < 0.5, np.floor(exact + 1e-9), np.ceil(exact - 1e-9)).astype(int)
    expected = model.predict(rows)[:, None] + residuals[ranks - 1]
    np.testing.assert_allclose(model.predict_quantiles(rows, levels), expected, atol=1e-12)


def test_wider_coverage_holds_narrower(fitted):
    X, _ = spread_rows(50, seed=2)
    inner, outer = fitted.predict_interval(X, 0.6), fitted.predict_interval(X, 0.95)
    assert (outer[:, 0] < inner[:, 0]).all()
    assert (inner[:, 1] < outer[:, 1]).all()


def test_calibrate_has_the_exact_guarantee_on_average():
    """With n = 19 fresh rows and coverage 0.8 the probability is exactly 16 / 20."""
    X, y = spread_rows(60)
    model = JOPLEnRegressor(**FAST).fit(X, y)
    hits = []
    for seed in range(400):
        X, y = spread_rows(59, seed=1000 + seed)
        hits.append(covered(model.calibrate(X[:19], y[:19]), X[19:], y[19:], 0.8).mean())
    error = np.std(hits) / np.sqrt(len(hits))
    assert np.mean(hits) == pytest.approx(0.8, abs=3 * error)
    assert error < 0.006


def test_sets_have_the_exact_guarantee_on_average():
    X, y = spread_rows(80)
    model = JOPLEnClassifier(**FAST).fit(X, np.digitize(y, [-0.5, 0.5]))
    hits = []
    for seed in range(400):
        X, y = spread_rows(59, seed=1000 + seed)
        classes = np.digitize(y, [-0.5, 0.5])
        sets = model.calibrate(X[:19], classes[:19]).predict_set(X[19:], 0.8)
        hits.append(sets[np.arange(40), classes[19:]].mean())
    error = np.std(hits) / np.sqrt(len(hits))
    assert 0.8 - 3 * error < np.mean(hits) < 0.82
    assert error < 0.006


def test_sets_are_those_above_a_threshold_and_never_empty(classifier):
    X, y = spread_rows(1000, seed=1)
    classes, probabilities = np.digitize(y, [-0.5, 0.5]), classifier.predict_proba(X)
    for coverage in (0.05, 0.5, 0.9):
        sets = classifier.predict_set(X, coverage)
        assert sets.dtype == bool
        assert sets.shape == (1000, 3)
        assert sets.any(axis=1).all()
        more_than_one = sets.sum(axis=1) > 1
        if more_than_one.any():
            least = np.where(sets, probabilities, np.inf)[more_than_one].min()
            assert least >= np.where(sets, -np.inf, probabilities).max()
    assert classifier.predict_set(X, 0.9)[np.arange(1000), classes].mean() > 0.87


def test_two_classes_with_names():
    X, y = spread_rows(300)
    labels = np.where(y > 0, "yes", "no")
    model = JOPLEnClassifier(random_state=0).fit(X, labels)
    sets = model.predict_set(X, 0.8)
    is_in = sets[np.arange(300), np.searchsorted(model.classes_, labels)]
    assert sets.shape == (300, 2)
    assert is_in.mean() > 0.75
    assert model.calibrate(X, labels).calibration_.is_fresh


def test_the_unit_of_the_target_makes_no_difference():
    X, y = spread_rows(300)
    first, second = (
        JOPLEnRegressor(random_state=0).fit(X, t).predict_interval(X) for t in (y, 1024 * y)
    )
    np.testing.assert_allclose(second, 1024 * first, rtol=1e-6)


def test_a_weight_of_two_is_a_row_given_twice():
    X, y = spread_rows(150)
    s = np.tile([1, 2, 1], 50)
    weighted = JOPLEnRegressor(random_state=0).fit(X, y, s)
    repeated = JOPLEnRegressor(random_state=0).fit(np.repeat(X, s, axis=0), np.repeat(y, s))
    np.testing.assert_array_equal(weighted.predict_interval(X), repeated.predict_interval(X))


def test_rows_of_weight_zero_do_not_count_in_calibrate():
    X, y = spread_rows(200)
    model = JOPLEnRegressor(**FAST).fit(X, y)
    s = np.repeat([3.0, 0.0], 100)
    y_far = np.where(s > 0, y, 1e6)
    weighted = model.calibrate(X, y_far, s).predict_interval(X)
    np.testing.assert_array_equal(weighted, model.calibrate(X[:100], y[:100]).predict_interval(X))


def test_calibrate_returns_the_estimator_and_keeps_the_model(fitted):
    X, y = spread_rows(100, seed=3)
    model = pickle.loads(pickle.dumps(fitted))
    before, widths = model.predict(X), model.calibration_.sizes(X, model.predict(X))
    assert model.calibrate(X, y) is model
    np.testing.assert_array_equal(model.predict(X), before)
    np.testing.assert_array_equal(model.calibration_.sizes(X, before), widths)
    assert model.calibration_.n_rows == 100
    assert not hasattr(clone(model), "calibration_")


@pytest.mark.parametrize("recipe", ["joint", "blend"])
def test_recipes_have_intervals(recipe):
    X, y = spread_rows(700)
    model = JOPLEnRegressor(random_state=0, recipe=recipe).fit(X[:400], y[:400])
    assert 0.82 < covered(model, X[400:], y[400:]).mean() < 0.97


def test_partitions_of_ones_own_have_intervals():
    X, y = spread_rows(300)
    model = JOPLEnRegressor("random_trees", random_state=0).fit(X, y)
    assert model.calibration_.n_rows == 300
    assert np.isfinite(model.predict_interval(X)).all()


def test_validation_rows_are_what_is_calibrated_on():
    X, y = spread_rows(400)
    model = JOPLEnRegressor(random_state=0).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    assert model.calibration_.n_rows == 100
    splits = [(np.arange(150), np.arange(150, 300)), (np.arange(100), np.arange(150, 300))]
    repeated = JOPLEnRegressor(random_state=0, cv=splits).fit(X[:300], y[:300])
    assert repeated.calibration_.n_rows == 150
    assert repeated.calibration_.total == pytest.approx(150)


def test_categories_and_missing_values():
    rng = np.random.default_rng(0)
    X, y = spread_rows(400)
    kind = rng.choice(["calm", "wild"], 400).astype(object)
    y = X[:, 0] + np.where(kind == "wild", 3.0, 0.3) * rng.standard_normal(400)
    kind[:20] = None
    frame = pd.DataFrame({"a": X[:, 0], "kind": kind, "b": np.where(X[:, 1] > 0.9, np.nan, 0.0)})
    model = JOPLEnRegressor(random_state=0).fit(frame, y)
    widths = np.diff(model.predict_interval(frame), axis=1)[:, 0]
    assert widths[kind == "wild"].mean() > 2 * widths[kind == "calm"].mean()


# -- other losses --------------------------------------------------------------------------------


def counts(n, seed=0):
    rng = np.random.default_rng(seed)
    X, exposure = rng.uniform(-1, 1, (n, 2)), rng.uniform(0.5, 20, n)
    return X, rng.poisson(exposure * np.exp(X[:, 0])), exposure


def test_intervals_of_counts_with_exposure():
    X, y, exposure = counts(600)
    model = JOPLEnRegressor("random_trees", loss="poisson", random_state=0)
    model.fit(X, y, exposure=exposure)
    X, y, exposure = counts(4000, seed=1)
    for _ in range(2):
        low, high = model.predict_interval(X, 0.9, exposure=exposure).T
        assert low.min() == 0
        assert ((low <= y) & (y <= high)).mean() == pytest.approx(0.91, abs=0.03)
        model.calibrate(X[:2000], y[:2000], exposure=exposure[:2000])
    again = model.predict_interval(X, 0.9, offset=np.log(exposure))
    np.testing.assert_array_equal(again[:, 1], high)
    with pytest.raises(ValueError, match="exposure has shape"):
        model.predict_interval(X, exposure=exposure[:5])


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber"])
def test_offsets_of_residuals_move_intervals(loss):
    X, y = spread_rows(300)
    offset = np.linspace(-50, 50, 300)
    model = JOPLEnRegressor("random_trees", loss=loss, random_state=0)
    moved = clone(model).fit(X, y + offset, offset=offset).predict_interval(X, offset=offset)
    plain = model.fit(X, y).predict_interval(X)
    np.testing.assert_allclose(moved, plain + offset[:, None], atol=1e-6)
    fresh = model.calibrate(X, y + offset, offset=offset).predict_quantiles(X, [0.3], offset=offset)
    np.testing.assert_allclose(
        fresh, model.calibrate(X, y).predict_quantiles(X, [0.3]) + offset[:, None], atol=1e-6
    )


def test_intervals_of_a_quantile_model_cover():
    X, y = spread_rows(3500)
    model = JOPLEnRegressor("random_trees", loss="quantile", quantile=0.9, random_state=0)
    model.fit(X[:500], y[:500])
    assert covered(model, X[500:], y[500:]).mean() == pytest.approx(0.9, abs=0.04)


# -- files, pickles, summaries --------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, True])
def test_files_and_pickles_keep_intervals(fitted, tmp_path, fresh):
    X, y = spread_rows(150, seed=4)
    model = pickle.loads(pickle.dumps(fitted))
    if fresh:
        model.calibrate(X, y, np.arange(1, 151))
    jl.save(model, tmp_path / "model.jleaf")
    loaded = jl.load(tmp_path / "model.jleaf")
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_interval(X), model.predict_interval(X))
        assert other.summary() == model.summary()
        assert other.calibration_.is_fresh is fresh


def test_files_keep_sets(classifier, tmp_path):
    X, _ = spread_rows(150, seed=4)
    jl.save(classifier, tmp_path / "model.jleaf")
    loaded = jl.load(tmp_path / "model.jleaf")
    np.testing.assert_array_equal(loaded.predict_set(X), classifier.predict_set(X))


def test_the_summary_says_what_intervals_are_from(fitted, classifier):
    pattern = r"intervals +from 500 held-out rows of the fit, adaptive width"
    assert re.search(pattern, str(fitted.summary()))
    assert re.search(r"sets +from 400 held-out rows of the fit$", str(classifier.summary()), re.M)
    X, y = spread_rows(60)
    model = JOPLEnRegressor(**FAST).fit(X, y)
    assert "intervals" not in str(model.summary())
    assert "from 60 fresh rows, constant width" in str(model.calibrate(X, y).summary())
    counts = JOPLEnRegressor(**FAST, loss="poisson").fit(X, np.abs(y).round())
    text = str(counts.calibrate(X, np.abs(y).round()).summary())
    assert "from 60 fresh rows, width by the prediction" in text


def test_a_pruned_model_is_not_calibrated():
    X, y = spread_rows(150)
    model = JOPLEnRegressor("random_trees", random_state=0).fit(X, y)
    pruned = jl.prune(model, X, y, n_cells=20)
    with pytest.raises(ValueError, match="call calibrate"):
        pruned.predict_interval(X)
    assert model.calibration_ is not None
    assert np.isfinite(pruned.calibrate(X, y).predict_interval(X)).all()


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 90, "0.9", None, True, np.nan])
def test_coverage_must_be_between_zero_and_one(fitted, classifier, coverage):
    X, _ = spread_rows(5)
    for predict in (fitted.predict_interval, classifier.predict_set):
        with pytest.raises(ValueError, match=r"coverage=.* must be a number between 0 and 1"):
            predict(X, coverage)


@pytest.mark.parametrize("quantiles", [[0.5, 1.0], [0.0], [], [[0.1], [0.9]], ["a"], 1.5])
def test_quantiles_must_be_between_zero_and_one(fitted, quantiles):
    with pytest.raises(ValueError, match=r"quantiles=.* between 0 and 1"):
        fitted.predict_quantiles(spread_rows(5)[0], quantiles)


@pytest.mark.parametrize("kind", [JOPLEnRegressor, JOPLEnClassifier])
def test_fits_without_held_out_rows_say_what_to_do(kind):
    X, y = spread_rows(60)
    model = kind(**FAST).fit(X, y > 0 if kind is JOPLEnClassifier else y)
    predict = model.predict_set if kind is JOPLEnClassifier else model.predict_interval
    assert model.calibration_ is None
    with pytest.raises(ValueError, match=r"given penalty.*call calibrate"):
        predict(X)


def test_few_rows_warn_and_are_infinite():
    X, y = spread_rows(40)
    model = JOPLEnRegressor(**FAST).fit(X, y).calibrate(X[:18], y[:18])
    with pytest.warns(UserWarning, match=r"coverage=0.9 needs more rows .* than 18.*infinite"):
        assert np.isinf(model.predict_interval(X)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.calibrate(X[:19], y[:19]).predict_interval(X)).all()
    with pytest.warns(UserWarning, match=r"quantiles=\[0.5, 0.99\]"):
        assert np.isinf(model.predict_quantiles(X, [0.5, 0.99])).sum() == 40
    classes = JOPLEnClassifier(**FAST).fit(X, y > 0).calibrate(X[:8], y[:8] > 0)
    with pytest.warns(UserWarning, match="all classes"):
        assert classes.predict_set(X, 0.9).all()


def test_unfitted_and_wrong_rows(fitted, classifier):
    X, y = spread_rows(20)
    for method in ("predict_interval", "calibrate"):
        rows = (X,) if method == "predict_interval" else (X, y)
        with pytest.raises(NotFittedError):
            getattr(JOPLEnRegressor(), method)(*rows)
        with pytest.raises(ValueError, match="2 features"):
            getattr(fitted, method)(X[:, :2], *rows[1:])
    with pytest.raises(NotFittedError):
        JOPLEnClassifier().predict_set(X)
    with pytest.raises(ValueError, match="holds the class 7, which the model does not know"):
        classifier.calibrate(X, np.repeat([0, 7], 10))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.calibrate(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        fitted.calibrate(X, np.full(20, np.nan))
    assert not fitted.calibration_.is_fresh


def test_intervals_of_counts_know_the_exposure():
    rng = np.random.default_rng(1)
    X, exposure = rng.uniform(-1, 1, (1500, 2)), rng.uniform(0.1, 3, 1500)
    y = rng.poisson(0.2 * exposure * np.exp(X[:, 0]))
    model = JOPLEnRegressor("lightgbm", loss="poisson", random_state=0)
    model.fit(X[:300], y[:300], exposure=exposure[:300])
    low, high = model.predict_interval(X[300:], exposure=exposure[300:]).T
    inside = (low <= y[300:]) & (y[300:] <= high)
    for quarter in np.array_split(np.argsort(exposure[300:]), 4):
        assert inside[quarter].mean() > 0.87
    rare = model.predict(X[300:], exposure=exposure[300:]) < 2.9  # zero with more than 5 %
    assert not low[rare].any()


def test_quantiles_of_counts_do_not_cross():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (400, 2))
    y = rng.poisson(np.exp(1 + X[:, 0]))
    model = JOPLEnRegressor("lightgbm", loss="poisson", random_state=0).fit(X[:200], y[:200])
    exposure = np.geomspace(0.01, 100, 200)
    quantiles = model.predict_quantiles(X[200:], np.linspace(0.02, 0.98, 25), exposure=exposure)
    assert (np.diff(quantiles, axis=1) >= 0).all()
