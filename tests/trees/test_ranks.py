"""Ranks of many columns at once are those of a search in each of them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jointleaf._trees.ranks import Ranks


def check(columns, thresholds, rows):
    """Compare the ranks of rows (n, d) with those of a search."""
    ranks = Ranks(columns, thresholds)
    found = ranks(np.ascontiguousarray(rows.T))
    assert found.shape == (len(columns), len(rows))
    for place, j, values in zip(ranks.places, columns, thresholds, strict=True):
        expected = np.searchsorted(values, rows[:, j])
        expected[np.isnan(rows[:, j])] = len(values) + 1
        np.testing.assert_array_equal(found[place], expected)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_columns(data):
    width = data.draw(st.sampled_from([32, 64]))
    numbers = st.floats(allow_nan=False, width=width)
    several = st.lists(numbers, min_size=1, max_size=30)
    columns = data.draw(st.lists(st.integers(0, 2), max_size=4))
    thresholds = [np.unique(np.array(data.draw(several), float)) for _ in columns]
    rows = data.draw(st.lists(numbers | st.just(np.nan), max_size=20))
    rows = np.concatenate([np.array(rows, float), *thresholds, [np.inf, -np.inf, -0.0, np.nan]])
    check(columns, thresholds, np.stack([rows, rows[::-1], np.roll(rows, 1)], axis=1))


def test_crowded_and_even_thresholds_in_several_blocks():
    rng = np.random.default_rng(0)
    thresholds = [
        np.sort(rng.standard_normal(255)),
        np.sort(np.append(1e9, 1e-9 * rng.standard_normal(99))),
        np.arange(7.0),
        np.array([-np.inf, 0.5, np.inf]),
        np.array([np.inf]),
        np.zeros(0),
    ]
    rows = rng.standard_normal((9000, 2))
    rows[: len(thresholds[0]), 0], rows[:3, 1] = thresholds[0], np.nan
    check([0, 0, 1, 1, 0, 1], thresholds, rows)


def test_no_columns_and_no_rows():
    check([], [], np.zeros((5, 3)))
    check([1], [np.arange(3.0)], np.zeros((0, 2)))
