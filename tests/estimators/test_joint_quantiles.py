"""Several levels in `quantile`: one fit, a column for each, and what is refused."""

import pickle
import re
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import cross_val_score

import jointleaf
from blend_fits import small_fits
from jointleaf import (
    Frobenius,
    IntervalDisplay,
    JOPLEnRegressor,
    MultiTaskJOPLEnRegressor,
    prune,
    refine,
)
from jointleaf._sources.rows import check_settings
from jointleaf.cli import main
from jointleaf.estimators._path import follow_strengths

LEVELS = [0.1, 0.5, 0.9]
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (240, 3))
NOISE = RNG.exponential(size=240)
Y = 2 * X[:, 0] + np.where(X[:, 1] > 0, NOISE, -NOISE)


def estimator(quantile=LEVELS, **options):
    return JOPLEnRegressor(loss="quantile", quantile=quantile, random_state=0, **options)


@pytest.fixture(scope="module")
def model():
    with small_fits():
        return estimator().fit(X, Y)


def test_predictions_have_a_column_for_every_level_and_never_cross(model):
    rows = np.concatenate([RNG.uniform(-1, 1, (5000, 3)), 50 * RNG.standard_normal((5000, 3))])
    predicted = model.predict(rows)
    assert predicted.shape == (10_000, 3)
    assert (np.diff(predicted, axis=1) >= 0).all()
    below = (model.predict(X) >= Y[:, None]).mean(axis=0)
    np.testing.assert_allclose(below, LEVELS, atol=0.08)


def test_quantiles_and_intervals_are_the_columns(model):
    predicted = model.predict(X)
    np.testing.assert_array_equal(model.predict_quantiles(X, [0.9, 0.1]), predicted[:, [2, 0]])
    np.testing.assert_array_equal(model.predict_interval(X, 0.8), predicted[:, [0, 2]])
    with pytest.raises(ValueError, match=r"levels \[0.05, 0.95\].*\[0.1, 0.5, 0.9\] was fitted"):
        model.predict_interval(X, 0.9)
    with pytest.raises(ValueError, match=r"levels \[0.2\]"):
        model.predict_quantiles(X, [0.2])


def test_score_is_minus_the_mean_loss(model):
    weights = np.arange(240.0)
    losses = [
        mean_pinball_loss(Y, column, alpha=level, sample_weight=weights)
        for level, column in zip(LEVELS, model.predict(X).T, strict=True)
    ]
    assert model.score(X, Y, weights) == pytest.approx(-np.mean(losses))
    with small_fits():
        scores = cross_val_score(clone(model), X, Y, cv=2)
    constants = np.quantile(Y, LEVELS)
    losses = [
        mean_pinball_loss(Y, np.full(240, constant), alpha=level)
        for level, constant in zip(LEVELS, constants, strict=True)
    ]
    assert (-np.mean(losses) < scores).all()
    assert (scores < 0).all()


def test_a_copy_and_a_file_predict_the_same(model, tmp_path):
    predicted = model.predict(X)
    assert model.quantiles_.widths is not None
    assert model.quantiles_.cells
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), predicted)
    path = tmp_path / "model.jleaf"
    jointleaf.save(model, path)
    loaded = jointleaf.load(path)
    np.testing.assert_array_equal(loaded.predict(X), predicted)
    assert loaded.quantile == LEVELS
    assert "0.1, 0.5, 0.9 jointly from 240 held-out rows" in loaded.summary()


@pytest.mark.parametrize("name", ["levels", "coefficients"])
def test_a_file_whose_levels_do_not_rise_is_refused(model, name, tmp_path):
    damaged = clone(model)
    damaged.__dict__.update(model.__dict__)
    backwards = np.flip(getattr(model.quantiles_, name), axis=-1)
    damaged.quantiles_ = replace(model.quantiles_, **{name: backwards})
    with pytest.raises(jointleaf.ModelFileError, match=rf"quantiles\.{name} must rise"):
        jointleaf.save(damaged, tmp_path / "model.jleaf")  # which reads what it has written


def test_the_shell_writes_every_level(tmp_path, capsys):
    with small_fits():
        model = estimator().fit(pd.DataFrame(X, columns=["x0", "x1", "x2"]), Y)
    jointleaf.save(model, tmp_path / "model.jleaf")
    np.savetxt(tmp_path / "rows.csv", X[:3], delimiter=",", header="x0,x1,x2", comments="")
    assert main(["predict", str(tmp_path / "model.jleaf"), str(tmp_path / "rows.csv")]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header == "quantile 0.1,quantile 0.5,quantile 0.9"
    written = np.array([line.split(",") for line in lines], float)
    rows = pd.DataFrame(X[:3], columns=["x0", "x1", "x2"])
    np.testing.assert_allclose(written, model.predict(rows), rtol=1e-8)
    assert main(["explain", str(tmp_path / "model.jleaf"), str(tmp_path / "rows.csv")]) == 0
    text = capsys.readouterr().out
    assert "the median that the quantiles are measured from" in text
    assert re.search(r"prediction: \S+, \S+, \S+ \(quantiles\)", text)


def test_offsets_and_weights_move_all_levels():
    offset, weights = 10 * X[:, 2], np.where(X[:, 1] > 0, 1.0, 0.0)
    with small_fits():
        plain = estimator([0.2, 0.8]).fit(X, Y, weights)
        kept = estimator([0.2, 0.8]).fit(X[weights > 0], Y[weights > 0])
        moved = estimator([0.2, 0.8]).fit(X, Y + offset, weights, offset=offset)
    np.testing.assert_allclose(plain.predict(X), kept.predict(X))
    shifted = moved.predict(X, offset=offset)
    np.testing.assert_allclose(shifted, plain.predict(X) + offset[:, None], atol=1e-6)
    assert moved.score(X, Y + offset, offset=offset) == pytest.approx(plain.score(X, Y))
    with pytest.raises(ValueError, match="exposure needs a loss"):
        plain.predict(X, exposure=np.ones(240))


def test_one_level_in_a_list_has_one_column_and_a_later_fit_forgets_it():
    with small_fits():
        model = estimator([0.8]).fit(X, Y)
        assert model.predict(X).shape == (240, 1)
        model.set_params(quantile=0.8).fit(X, Y)
    assert model.predict(X).shape == (240,)
    assert not hasattr(model, "quantiles_")
    assert model.calibration_ is not None


@pytest.mark.parametrize(
    ("quantile", "message"),
    [
        ([0.5, 0.1], r"quantile=\[0.5, 0.1\] must rise.*as in \[0.1, 0.5\]"),
        ([0.1, 0.1], r"must rise: give every level once.*\[0.1\]"),
        ([0.1, 1.0], "quantile=1.0 must be a number between 0 and 1"),
        ([0.1, float("nan")], "quantile=nan must be a number between 0 and 1"),
        (["low"], "quantile='low' must be a number"),
        ([], r"quantile=\[\] must be a level, or a list"),
        ([[0.1, 0.9]], "must be a level, or a list"),
        (np.arange(1, 30) / 30, "29 levels, more than 20"),
    ],
)
def test_lists_that_are_no_levels_are_refused(quantile, message):
    with pytest.raises(ValueError, match=message):
        estimator(quantile).fit(X, Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": Frobenius(0.1)}, r"not possible with penalty=Frobenius.*holds out no rows"),
        ({"monotonic_cst": [1, 0, 0]}, r"not possible with monotonic_cst=\[1, 0, 0\]"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        estimator(**options).fit(X, Y)


def test_other_estimators_and_losses_refuse_a_list():
    from sklearn.ensemble import RandomForestRegressor

    with pytest.raises(ValueError, match=r"\[0.1, 0.9\] has no effect with loss='squared_error'"):
        JOPLEnRegressor(quantile=[0.1, 0.9]).fit(X, Y)
    with pytest.raises(ValueError, match="only JOPLEnRegressor takes several levels"):
        MultiTaskJOPLEnRegressor(loss="quantile", quantile=[0.1, 0.9]).fit({"a": (X, Y)})
    forest = RandomForestRegressor(2, max_leaf_nodes=4, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="trees of a trained model"):
        refine(forest, X, Y, loss="quantile", quantile=[0.1, 0.9])
    with pytest.raises(ValueError, match="trees of a trained model"):
        estimator(partitioner=["lightgbm", forest]).fit(X, Y)
    with pytest.raises(ValueError, match=r"quantile=\[0.1, 0.9\] is not possible with a source"):
        check_settings(estimator([0.1, 0.9]), 100, 100, 1)


@pytest.mark.parametrize(
    ("purpose", "use"),
    [
        ("prune", lambda model: prune(model, X, Y)),
        ("to_onnx", jointleaf.to_onnx),
        ("to_sql", jointleaf.to_sql),
        ("update", lambda model: model.update(X, Y)),
        ("a path of strengths", lambda model: follow_strengths(model, X, Y)),
    ],
)
def test_what_knows_one_output_refuses(model, purpose, use):
    with pytest.raises(ValueError, match=f"^{purpose} is not possible for a model of several"):
        use(model)


def test_the_median_is_explained(model):
    explanation = model.explain(X[:3])
    median = model.cell_model_.predict(X[:3])
    np.testing.assert_allclose(explanation.prediction, median, rtol=1e-9)
    assert explanation.interval is None
    assert model.local_model(X[:1]) is not None


def test_the_picture_has_the_level_in_the_middle(model):
    display = IntervalDisplay.from_estimator(model, X, Y, coverage=0.8)
    np.testing.assert_array_equal(display.predictions, model.predict(X)[:, 1])


def fresh_rows(rng, n):
    rows = rng.uniform(-1, 1, (n, 3))
    return rows, 2 * rows[:, 0] + 3 * rng.standard_normal(n)  # wider than in training


def test_calibration_guarantees_levels_and_intervals(model):
    rng, misses, n_repeats = np.random.default_rng(1), np.zeros(3), 150
    for _ in range(n_repeats):
        calibrated = copy(model).calibrate(*fresh_rows(rng, 39))
        rows, y = fresh_rows(rng, 50)
        low, middle, high = calibrated.predict(rows).T
        misses += np.mean([(y < low) | (y > high), y > middle, y > high], axis=1) / n_repeats
    # Of n = 39 rows ranks are whole: probabilities are the nominal ones. The coverage of one
    # calibration has a Beta distribution, whose mean over the repeats has this standard error.
    errors = np.sqrt(np.array([0.2 * 0.8, 0.5 * 0.5, 0.1 * 0.9]) / 41 / n_repeats)
    assert (misses <= [0.2, 0.5, 0.1] + 4 * errors).all()
    assert (misses >= [0.2, 0.5, 0.1] - 6 * errors).all()  # nor is it wider than needed
    assert (np.diff(calibrated.predict(50 * RNG.standard_normal((500, 3))), axis=1) >= 0).all()
    before = model.predict_interval(X, 0.8)
    assert not np.array_equal(before, calibrated.predict_interval(X, 0.8))


def test_calibrated_levels_survive_a_file_and_too_few_rows_are_refused(model, tmp_path):
    calibrated = copy(model).calibrate(X + 0.1, Y)
    jointleaf.save(calibrated, tmp_path / "m.jleaf")
    loaded = jointleaf.load(tmp_path / "m.jleaf")
    np.testing.assert_array_equal(loaded.predict(X), calibrated.predict(X))
    with pytest.raises(ValueError, match=r"at least 9 rows for the level 0.1, and has 8"):
        copy(model).calibrate(X[:8], Y[:8])
    copy(model).calibrate(X[:9], Y[:9])
