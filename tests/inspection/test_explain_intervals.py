"""Explanations say the interval of a prediction, where the model knows how sure it is."""

import re

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._data.formatting import number
from jointleaf.inspection import Explanation, explain

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (80, 2))
Y = X[:, 0] + 0.3 * RNG.normal(size=80)


@pytest.fixture(scope="module")
def model():
    return JOPLEnRegressor("random_trees", random_state=0).fit(X, Y)


def test_intervals_are_those_of_predictions(model):
    explanation = model.explain(X[:5])
    np.testing.assert_allclose(explanation.interval, model.predict_interval(X[:5]), rtol=1e-9)
    narrow = model.explain(X[:5], coverage=0.5)
    np.testing.assert_allclose(narrow.interval, model.predict_interval(X[:5], 0.5), rtol=1e-9)
    low, high = narrow.interval[3]
    text = f"target from {number(low)} to {number(high)} with 50 %"
    assert narrow.describe(3).splitlines()[-1] == narrow[3].interval_text() == text
    np.testing.assert_array_equal(narrow[1:3].interval, narrow.interval[1:3])


def test_intervals_of_counts_are_counts():
    counts = np.random.default_rng(1).poisson(np.exp(X[:, 0]))
    exposure = np.full(80, 2.0)
    model = JOPLEnRegressor("random_trees", loss="poisson", random_state=0)
    model.fit(X, counts, exposure=exposure)
    explanation = model.explain(X[:5])
    np.testing.assert_allclose(explanation.interval, model.predict_interval(X[:5]), rtol=1e-9)
    np.testing.assert_allclose(np.exp(explanation.prediction), model.predict(X[:5]), rtol=1e-9)
    assert explanation.describe(2).endswith("with 90 % for an exposure of 1")


def test_offsets_and_exposure_are_part_of_the_baseline(model):
    rng = np.random.default_rng(2)
    exposure, offset = rng.uniform(0.5, 2.0, 80), rng.normal(size=80)
    counts = JOPLEnRegressor("random_trees", loss="poisson", random_state=0)
    counts.fit(X, rng.poisson(exposure * np.exp(X[:, 0])), exposure=exposure)
    for fitted, given, link in (
        (counts, {"exposure": exposure}, np.exp),
        (counts, {"offset": offset}, np.exp),
        (model, {"offset": offset}, np.array),
    ):
        explanation, plain = fitted.explain(X, **given), fitted.explain(X)
        whole = explanation.baseline + explanation.values.sum(axis=1) + explanation.cells_rest
        np.testing.assert_allclose(link(whole), fitted.predict(X, **given), rtol=1e-9)
        np.testing.assert_array_equal(explanation.values, plain.values)
        expected = fitted.predict_interval(X, **given)
        np.testing.assert_allclose(explanation.interval, expected, rtol=1e-9)
        np.testing.assert_array_equal(explanation[7].baseline, explanation.baseline[7:8])
        assert "exposure" not in explanation.describe(7)
    pipeline = make_pipeline(StandardScaler(), counts).fit(X, Y > 0)
    assert np.ptp(explain(pipeline, X, exposure=exposure).baseline) > 0.5
    classes = JOPLEnClassifier("random_trees", random_state=0).fit(X, Y > 0)
    with pytest.raises(ValueError, match="are for JOPLEnRegressor, and not for JOPLEnClassifier"):
        explain(classes, X, exposure=exposure)
    with pytest.raises(ValueError, match=r"exposure has shape \(3,\)"):
        counts.explain(X, exposure=exposure[:3])


def test_without_held_out_rows_and_for_classes_there_are_none(model):
    fixed = JOPLEnRegressor("random_trees", penalty=Frobenius(0.1), random_state=0).fit(X, Y)
    assert fixed.explain(X[:2]).interval is None
    assert "target from" not in fixed.explain(X[:2]).describe()
    with pytest.raises(ValueError, match="has no intervals"):
        fixed.explain(X[:2]).interval_text()
    fresh = fixed.calibrate(X, Y).explain(X[:2])
    np.testing.assert_allclose(fresh.interval, fixed.predict_interval(X[:2]), rtol=1e-9)
    classes = JOPLEnClassifier("random_trees", random_state=0).fit(X, Y > 0)
    assert classes.explain(X[:2]).interval is None
    for estimator, coverage in ((classes, 0.8), (model, 0.999)):  # 80 rows are too few
        with pytest.raises(ValueError, match=r"coverage=0.* is for intervals"):
            estimator.explain(X[:2], coverage=coverage)


@pytest.mark.parametrize("coverage", [0, 1, 1.5, "x"])
def test_coverage_that_cannot_be(model, coverage):
    with pytest.raises(ValueError, match=r"coverage=.* must be a number between 0 and 1"):
        model.explain(X[:2], coverage=coverage)


def test_numbers_are_as_in_the_shell():
    """Four digits, zeros among them, and no powers of ten beside numbers of usual size."""
    parts = np.array([[15.6, -3.499, 0.0]])
    names, rows = ("a", "b", "c"), np.zeros((1, 3))
    shown = Explanation(parts, 0.0 * parts, np.zeros(1), -2.29e-06, names, rows)
    numbers = [line.split()[-1] for line in shown.describe().splitlines()]
    assert numbers == ["0", "+15.60", "-3.499", "+0", "12.10"]
    assert re.findall(r"right\">([^<]*)<", shown._repr_html_()) == numbers


def test_logarithms_are_named():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    model = JOPLEnRegressor("lightgbm", loss="poisson", random_state=0)
    explanation = model.fit(X, rng.poisson(np.exp(X[:, 0]))).explain(X[:3])
    lines = explanation.describe(1).splitlines()
    assert lines[0].startswith("baseline (log)")
    assert [line.split("  ")[0] for line in lines[3:5]] == ["prediction (log)", "prediction"]
    assert float(lines[4].split()[-1]) == pytest.approx(model.predict(X[1:2])[0], rel=1e-3)
    assert "(logarithms)" in repr(explanation)
    assert explanation[:1].has_log_link
    assert "exposure" not in explanation.describe()
