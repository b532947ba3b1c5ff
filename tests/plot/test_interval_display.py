"""The display of intervals: bars are the intervals, and dots the true values."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from jointleaf import ExplanationDisplay, Frobenius, IntervalDisplay, JOPLEnRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (900, 2))
Y = X[:, 0] + np.exp(X[:, 1]) * RNG.standard_normal(900)


@pytest.fixture(scope="module")
def model():
    model = JOPLEnRegressor("random_trees", penalty=Frobenius(0.1), random_state=0)
    return model.fit(X[:100], Y[:100]).calibrate(X[100:300], Y[100:300])


def test_what_is_drawn_are_the_intervals(model):
    rows, y = X[300:420], Y[300:420]
    display = IntervalDisplay.from_estimator(model, rows, y, coverage=0.8)
    order = np.argsort(model.predict(rows), kind="stable")
    low, high = model.predict_interval(rows, 0.8)[order].T
    ends = np.array([segment[:, 1] for segment in display.bars_.get_segments()])
    np.testing.assert_allclose(ends, np.stack([low, high], axis=1))
    is_in = (low <= y[order]) & (y[order] <= high)
    np.testing.assert_array_equal(display.inside_.get_xdata(), np.flatnonzero(is_in))
    np.testing.assert_allclose(display.outside_.get_ydata(), y[order][~is_in])
    np.testing.assert_allclose(display.line_.get_ydata(), model.predict(rows)[order])
    title = display.ax_.get_title(loc="left")
    assert title.startswith(f"{100 * is_in.mean():.1f} % of 120 true values inside")
    assert display.ax_.get_legend().get_texts()[0].get_text() == "interval of 80 %"


def test_many_rows():
    low = np.linspace(0, -3, 1000)
    intervals = np.stack([low, 2 - low], axis=1)[::-1]
    y = np.where(np.arange(1000) < 250, 50.0, 1.0)
    display = IntervalDisplay(intervals, -low[::-1], y, 0.9).plot()
    ends = np.array([segment[:, 1] for segment in display.bars_.get_segments()])
    assert len(ends) <= 400
    assert (np.diff(ends[:, 1] - ends[:, 0]) >= 0).all()
    assert display.ax_.get_title(loc="left").startswith("75.0 % of 1,000")


def test_large_numbers_are_written_out():
    centre = np.linspace(1e6, 4e6, 20)
    intervals = np.stack([centre - 31_450, centre + 31_450], axis=1)
    display = IntervalDisplay(intervals, centre, centre, 0.9).plot()
    display.figure_.canvas.draw()
    assert display.ax_.get_title(loc="left").endswith("mean width 62,900")
    assert "2,000,000" in [tick.get_text() for tick in display.ax_.get_yticklabels()]
    assert not display.ax_.yaxis.get_offset_text().get_text()


def test_axes_of_the_users(model):
    _, (left, right) = plt.subplots(1, 2, layout="constrained")
    display = IntervalDisplay.from_estimator(model, X[:30], Y[:30], ax=right)
    assert display.ax_ is right
    assert not left.lines


def test_bad_input(model, ask_for_matplotlib):
    with pytest.raises(TypeError, match="must be a JOPLEnRegressor"):
        IntervalDisplay.from_estimator(Ridge().fit(X, Y), X, Y)
    with pytest.raises(ValueError, match="y has 5 values for 900 intervals"):
        IntervalDisplay.from_estimator(model, X, Y[:5])
    with pytest.raises(ValueError, match=r"coverage=2 must"):
        IntervalDisplay.from_estimator(model, X, Y, coverage=2)
    ask_for_matplotlib(IntervalDisplay, "plot", np.zeros((2, 2)), np.zeros(2), np.zeros(2), 0.9)


def test_explanations_have_the_interval_in_their_title(model):
    display = ExplanationDisplay.from_estimator(model, X[:1])
    title = display.ax_.get_title(loc="left").splitlines()
    assert title[1] == model.explain(X[:1]).interval_text()


def test_exposure_is_passed_on():
    rng = np.random.default_rng(0)
    X, exposure = rng.uniform(-1, 1, (80, 2)), rng.uniform(0.5, 2, 80)
    counts = rng.poisson(exposure * np.exp(X[:, 0]))
    fitted = JOPLEnRegressor("random_trees", loss="poisson", random_state=0)
    fitted.fit(X, counts, exposure=exposure)
    display = IntervalDisplay.from_estimator(fitted, X, counts, exposure=exposure)
    np.testing.assert_array_equal(display.predictions, fitted.predict(X, exposure=exposure))
    np.testing.assert_array_equal(display.intervals, fitted.predict_interval(X, exposure=exposure))
