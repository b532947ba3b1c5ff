"""Canonical rows: the same whatever the order, copies and weights they were given in."""

import numpy as np
import pytest

from jointleaf._data import rows as rows_module
from jointleaf._data.rows import canonical_rows, deal_draws


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.integers(0, 3, (50, 2)).astype(float), rng.integers(0, 2, 50).astype(float)


def _as_dict(rows):
    keys = [(*x, y, *label) for x, y, label in zip(rows.X, rows.y, rows.labels, strict=True)]
    assert len(set(keys)) == len(keys), "rows must not repeat"
    return dict(zip(keys, rows.s, strict=True))


def test_order_does_not_matter(rows):
    X, y = rows
    s = np.arange(1.0, 51.0)
    one = canonical_rows(X, y, s)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(50)
        other = canonical_rows(X[order], y[order], s[order])
        for name in ("X", "y", "s", "labels"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_equal_rows_are_merged_and_their_weights_added(rows):
    X, y = rows
    s = np.arange(1.0, 51.0)
    merged = canonical_rows(X, y, s)
    expected = {}
    for x, target, weight in zip(X, y, s, strict=True):
        expected[(*x, target)] = expected.get((*x, target), 0) + weight
    assert len(expected) < 50
    assert len(merged) == len(expected)
    assert _as_dict(merged) == expected


def test_rows_that_differ_in_y_or_labels_stay_apart():
    X = np.ones((4, 2))
    y = np.array([0.0, 0.0, 1.0, 0.0])
    labels = np.array([[0], [1], [0], [0]])
    merged = canonical_rows(X, y, np.ones(4), labels)
    assert _as_dict(merged) == {(1, 1, 0, 0): 2, (1, 1, 0, 1): 1, (1, 1, 1, 0): 1}


def test_weight_two_is_the_row_twice(rows):
    X, y = rows
    twice = canonical_rows(np.repeat(X, 2, axis=0), np.repeat(y, 2), np.ones(100))
    weighted = canonical_rows(X, y, np.full(50, 2.0))
    for name in ("X", "y", "s"):
        np.testing.assert_array_equal(getattr(twice, name), getattr(weighted, name))


def test_rows_of_weight_zero_are_left_out():
    X = np.arange(6.0).reshape(3, 2)
    left = canonical_rows(X, np.arange(3.0), np.array([1.0, 0.0, 2.0]), np.array([[7], [8], [9]]))
    assert _as_dict(left) == {(0, 1, 0, 7): 1, (4, 5, 2, 9): 2}


def test_negative_zero_is_zero():
    merged = canonical_rows(np.array([[0.0], [-0.0]]), np.array([-0.0, 0.0]), np.ones(2))
    assert len(merged) == 1
    assert merged.s[0] == 2


def test_float32_is_kept(rows):
    X, y = rows
    assert canonical_rows(X.astype(np.float32), y, np.ones(50)).X.dtype == np.float32


def test_order_is_not_that_of_the_values():
    X = np.arange(100.0)[:, None]
    ordered = canonical_rows(X, np.zeros(100), np.ones(100)).X[:, 0]
    assert sorted(ordered) == list(range(100))
    assert 30 < np.sum(np.diff(ordered) > 0) < 70, "cross-validation deals rows out in order"


def test_take_selects_every_part(rows):
    X, y = rows
    merged = canonical_rows(X, y, np.ones(50), np.arange(50)[:, None])
    taken = merged.take(merged.y == 1)
    assert len(taken) == int(y.sum())
    np.testing.assert_array_equal(taken.X, X[taken.labels[:, 0]])
    np.testing.assert_array_equal(taken.s, 1)
    assert (taken.y == 1).all()


def test_different_rows_of_one_hash_stay_apart(monkeypatch):
    monkeypatch.setattr(rows_module, "_hash_rows", lambda X, *_: np.zeros(len(X), np.uint64))
    X = np.array([[1.0], [1.0], [2.0], [2.0]])
    y = np.array([0.0, 1.0, 1.0, 1.0])
    merged = canonical_rows(X, y, np.ones(4))
    assert _as_dict(merged) == {(1, 0): 1, (1, 1): 1, (2, 1): 2}


# -- draws ---------------------------------------------------------------------------------------


def _parts(rows, n_parts, **options):
    """Weights of the rows outside and inside every part, (parts, 2, rows)."""
    deal, weights = deal_draws(rows, n_parts, **options), np.zeros((n_parts, 2, len(rows)))
    for k in range(n_parts):
        for side, part in enumerate(deal.split(rows, k)):
            weights[k, side, part.places] = part.s
    return weights


@pytest.mark.parametrize("by_class", [False, True])
def test_draws_of_one_x_are_in_every_part_as_often_as_they_were_drawn(by_class):
    y, s = np.array([0.0, 1.0, 0.0]), np.array([10.0, 4.0, 1.0])
    rows = canonical_rows(np.array([[1.0], [1.0], [2.0]]), y, s)
    weights = _parts(rows, 4, by_class=by_class)
    np.testing.assert_allclose(weights.sum(axis=1), np.broadcast_to(rows.s, (4, 3)))
    inside = {weight: sorted(weights[:, 1, k]) for k, weight in enumerate(rows.s)}
    assert inside == {10.0: [2, 2, 3, 3], 4.0: [1, 1, 1, 1], 1.0: [0, 0, 0, 1]}
    assert sorted(weights[:, 1].sum(axis=1)) == [3, 4, 4, 4]


def test_copies_stay_together():
    """Rows with the same x and y may be copies of one another, also several times."""
    rows = canonical_rows(np.arange(6.0)[:, None], np.arange(6.0), np.arange(1.0, 7.0))
    inside = _parts(rows, 3, by_class=False)[:, 1]
    assert ((inside == rows.s).sum(axis=0) == 1).all()
    assert ((inside == 0).sum(axis=0) == 2).all()


@pytest.mark.parametrize("s", [(1.0, 1.5), (1.0, np.pi)])
def test_weights_that_are_no_counts_keep_rows_of_one_x_together(s):
    rows = canonical_rows(np.array([[1.0], [1.0], [2.0]]), np.array([0, 1, 0.0]), np.array([*s, 1]))
    inside = _parts(rows, 2, by_class=False)[:, 1]
    together = inside[:, rows.X[:, 0] == 1] > 0
    np.testing.assert_array_equal(together[:, 0], together[:, 1])
    assert (together.sum(axis=0) == 1).all()


def test_rows_of_one_group_stay_together_whatever_their_targets():
    X, groups = np.repeat([[1.0], [2.0]], 4, axis=0), np.repeat([0, 1], 4)
    rows = canonical_rows(X, np.tile([0.0, 1.0], 4), np.ones(8), groups=groups)
    inside = _parts(rows, 2, by_class=False)[:, 1] > 0
    for group in (0, 1):
        assert np.ptp(inside[:, rows.groups == group].astype(int), axis=1).max() == 0


@pytest.mark.parametrize("unit", [1.0, 0.1, 1e6])
def test_draws_do_not_depend_on_the_unit_of_weights(rows, unit):
    X, y = rows
    one, other = (_parts(canonical_rows(X, y, np.full(50, s)), 3, by_class=True) for s in (1, unit))
    np.testing.assert_allclose(unit * one, other)
