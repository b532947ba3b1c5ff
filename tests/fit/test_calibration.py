"""Conformal calibration: ranks, weights, widths that depend on the row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointleaf._data.columns import Columns
from jointleaf._fit.calibration import Calibration, HeldOut


def calibration_of(residuals, s=None, n_rows=None):
    """The calibration on fresh rows of these residuals, with constant widths."""
    n = len(residuals)
    s = np.ones(n) if s is None else np.asarray(s, float)
    rows = HeldOut(np.zeros((n, 1)), np.asarray(residuals, float), np.zeros(n), s, n_rows or n)
    return Calibration.of_fresh(rows, None)


def test_ranks_of_a_hand_example():
    calibration = calibration_of(np.arange(19.0)[::-1])
    # n = 19: the ranks are ceil(20 q) and floor(20 q); score 0 has rank 1.
    assert calibration.upper([0.95, 0.951, 0.5, 0.901]).tolist() == [18, np.inf, 9, 18]
    assert calibration.lower([0.05, 0.049, 0.1, 0.149]).tolist() == [0, -np.inf, 1, 1]


@given(
    st.lists(st.integers(-50, 50), min_size=1, max_size=60),
    st.floats(0.01, 0.99),
)
def test_ranks_are_those_of_the_definition(residuals, level):
    calibration, n = calibration_of(residuals), len(residuals)
    ordered = [-np.inf, *sorted(residuals), np.inf]
    assert calibration.upper(level) == ordered[int(np.ceil(round((n + 1) * level, 9)))]
    assert calibration.lower(level) == ordered[int(np.floor(round((n + 1) * level, 9)))]


@given(st.integers(1001, 30_000), st.floats(0.001, 0.999))
@settings(max_examples=30)
def test_thinning_rounds_outward_and_by_little(n, level):
    calibration = calibration_of(np.arange(1.0, n + 1))
    assert len(calibration.scores) <= 1000
    rank = int(np.ceil(round((n + 1) * level, 9)))
    upper, lower = calibration.upper(level), calibration.lower(1 - level)
    assert lower == -upper or lower == n + 1 - upper  # the same ranks from both ends
    if rank <= n:
        assert rank <= upper <= rank + n / 799 + 1
    if rank <= 100 or rank > n - 100:
        assert upper == (rank if rank <= n else np.inf)


def test_equal_weights_of_any_size_are_no_weights():
    rng = np.random.default_rng(0)
    residuals, levels = rng.standard_normal(80), np.linspace(0.01, 0.99, 60)
    plain = calibration_of(residuals)
    for size in (1e-5, 3.0):
        weighted = calibration_of(residuals, np.full(80, size))
        assert weighted.total == pytest.approx(80)
        np.testing.assert_array_equal(weighted.upper(levels), plain.upper(levels))


def test_weights_move_the_quantiles_as_rows_given_twice_do():
    rng = np.random.default_rng(0)
    residuals, s = rng.standard_normal(4000), rng.integers(1, 4, 4000)
    residuals[s == 3] += 1.0
    weighted, repeated = calibration_of(residuals, s), calibration_of(np.repeat(residuals, s))
    levels = [0.05, 0.2, 0.5, 0.8, 0.95]
    np.testing.assert_allclose(weighted.upper(levels), repeated.upper(levels), atol=0.02)
    assert weighted.total == pytest.approx(s.sum() ** 2 / (s**2).sum())
    assert np.abs(calibration_of(residuals).upper(levels) - repeated.upper(levels)).max() > 0.1


def test_mirrored_residuals_have_mirrored_quantiles():
    rng = np.random.default_rng(0)
    residuals, s = rng.standard_normal(300), rng.random(300)
    levels = np.linspace(0.02, 0.48, 40)
    lower = calibration_of(residuals, s).lower(levels)
    np.testing.assert_array_equal(lower, -calibration_of(-residuals, s).upper(1 - levels))


def test_rows_that_are_held_out_twice_count_once():
    residuals = np.repeat(np.arange(9.0), 2)
    assert calibration_of(residuals, n_rows=9).total == 9
    assert np.isinf(calibration_of(residuals, n_rows=9).upper(0.95))
    assert np.isfinite(calibration_of(residuals).upper(0.94))


# -- widths --------------------------------------------------------------------------------------


def held_out(n, spread, seed=0):
    """Rows with a prediction of zero, and residuals whose spread is a function of X."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return HeldOut(X, spread(X) * rng.standard_normal(n), X[:, 2].copy() * 0, np.ones(n), n)


def test_widths_follow_the_spread_of_residuals():
    def spread(X):
        return np.exp(1.5 * X[:, 0])

    rows, new = held_out(2000, spread), held_out(2000, spread, seed=1)
    calibration = Calibration.of_fit(rows, Columns.numbers(3))
    assert calibration.widths is not None
    sizes = calibration.sizes(new.X, new.predictions)
    assert np.corrcoef(np.log(sizes), 1.5 * new.X[:, 0])[0, 1] > 0.95
    constant = Calibration.of_fresh(rows, None)
    low, high = calibration.lower(0.05) * sizes, calibration.upper(0.95) * sizes
    is_in = (low <= new.y) & (new.y <= high)
    assert is_in.mean() == pytest.approx(0.9, abs=0.02)
    assert (high - low).mean() < 0.9 * (constant.upper(0.95) - constant.lower(0.05))
    for side in (new.X[:, 0] < 0, new.X[:, 0] >= 0):  # also where residuals are small, or large
        assert is_in[side].mean() == pytest.approx(0.9, abs=0.04)


def test_widths_are_constant_where_nothing_is_gained():
    chosen = [
        Calibration.of_fit(held_out(400, lambda X: 1.0, seed), Columns.numbers(3)).widths
        for seed in range(20)
    ]
    assert sum(widths is not None for widths in chosen) <= 4


def test_widths_follow_the_prediction():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 6))
    predictions = np.exp(X.sum(axis=1) / 2)
    y = predictions * (1 + 0.3 * rng.standard_normal(1500))
    rows = HeldOut(X, y, predictions, np.ones(1500), 1500)
    calibration = Calibration.of_fit(rows, Columns.numbers(6))
    sizes = calibration.sizes(X, predictions)
    assert np.corrcoef(np.log(sizes), np.log(predictions))[0, 1] > 0.9


@pytest.mark.parametrize("n", [1, 2, 50, 99])
def test_few_rows_have_constant_widths(n):
    calibration = Calibration.of_fit(held_out(n, lambda X: X[:, 0]), Columns.numbers(3))
    assert calibration.widths is None
    assert len(calibration.scores) == n


def test_residuals_of_zero_have_intervals_of_zero():
    rows = held_out(500, lambda X: 0.0)
    calibration = Calibration.of_fit(rows, Columns.numbers(3))
    assert calibration.widths is None
    assert calibration.upper(0.95) == calibration.lower(0.05) == 0


def test_widths_do_not_depend_on_the_unit_of_the_target():
    rows = held_out(800, lambda X: np.exp(X[:, 0]))
    scaled = HeldOut(rows.X, 1000 * rows.y, rows.predictions, rows.s, 800)
    first, second = (Calibration.of_fit(r, Columns.numbers(3)) for r in (rows, scaled))
    np.testing.assert_allclose(
        second.sizes(rows.X, rows.predictions), first.sizes(rows.X, rows.predictions), rtol=1e-6
    )
    np.testing.assert_allclose(second.scores, 1000 * first.scores, rtol=1e-6)
