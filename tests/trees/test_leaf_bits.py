"""Leaves of rows that are compared at all splits are those of trees that are walked."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import mixed_trees, rows, trees, walked

from jointleaf._trees import routing
from jointleaf._trees.routing import Router, is_small


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_random_trees_and_rows(data):
    flat = data.draw(trees())
    X = data.draw(rows(flat))
    router = Router(flat)
    np.testing.assert_array_equal(router(X), walked(flat, X))
    np.testing.assert_array_equal(router(X[:0]), walked(flat, X[:0]))
    assert ("_bits" in vars(router)) == is_small(flat).any()


def test_small_trees_beside_large_ones():
    flat, X = mixed_trees(), np.random.default_rng(2).standard_normal((700, 3))
    X[::7, 1] = np.nan
    chosen = is_small(flat)
    assert 0 < chosen.sum() < len(chosen)
    np.testing.assert_array_equal(Router(flat)(X), walked(flat, X))


def test_tables_are_made_once_they_pay():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((routing._MANY_ROWS, 3))
    flat = mixed_trees().only(is_small(mixed_trees()))
    router, expected = Router(flat), walked(flat, X)
    for part in np.array_split(np.arange(len(X)), 40):
        np.testing.assert_array_equal(router(X[part]), expected[part])
    assert "_tables" not in vars(router)
    np.testing.assert_array_equal(router(X[:100]), expected[:100])
    assert "_tables" in vars(router)
