"""Leaves that LightGBM finds are those of trees that are walked, for every row."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import mixed_trees, rows, trees, walked

from jointleaf._trees import native, routing
from jointleaf._trees.flat import KeyPart, Lookup
from jointleaf._trees.native import NativeTrees
from jointleaf._trees.routing import Router
from jointleaf.partitions import LightGBMPartitioner


@pytest.fixture(autouse=True, scope="module")
def without_other_ways():
    """No tables of more than 64 leaves, nor sets (test_leaf_bits.py), nor bits of rows."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(routing, "_BIT_ROWS", 10**9)
        monkeypatch.setattr(routing, "is_small", lambda trees: np.zeros(trees.n_trees, bool))
        monkeypatch.setattr(routing, "tabled", lambda trees: trees.n_leaves <= 64)
        yield


def is_loaded(router):
    return [lazy._native is not None for lazy in router._native]


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_random_trees_and_rows(data):
    flat = data.draw(trees())
    X = data.draw(rows(flat))
    router = Router(flat)
    router._is_tabled = np.zeros(flat.n_trees, bool)
    assert router._native[0].loaded(10**9) is not None
    np.testing.assert_array_equal(router(X), walked(flat, X))
    np.testing.assert_array_equal(router(X[:0]), walked(flat, X[:0]))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows_of_large_and_small_trees(dtype, order):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 5))
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 0] * X[:, 1]) + rng.standard_normal(len(X))
    made = [LightGBMPartitioner(3, n, random_state=n).fit(X[:3000], y[:3000]) for n in (90, 9, 200)]
    new = np.asarray(X.astype(dtype), order=order)
    for part in made:
        router = Router(part.trees_)
        codes = router(new)
        assert is_loaded(router) == [True] * int(part.trees_.n_leaves.max() > 64)
        np.testing.assert_array_equal(codes, walked(part.trees_, new))
        np.testing.assert_array_equal(codes, router(new, n_jobs=2))


def test_large_and_small_trees_of_one_ensemble():
    flat, X = mixed_trees(), np.random.default_rng(2).standard_normal((9000, 3))
    router = Router(flat)
    expected = np.concatenate([router(part) for part in np.array_split(X, 700)])
    assert is_loaded(router) == [True], "what was walked adds up"
    np.testing.assert_array_equal(router(X), expected)
    np.testing.assert_array_equal(expected, walked(flat, X))
    other = replace(flat, cell_of_leaf=flat.cell_of_leaf[::-1].copy())
    np.testing.assert_array_equal(router.renumbered(other)(X), walked(other, X))


def test_threads_share_trees():
    flat, X = mixed_trees(), np.random.default_rng(2).standard_normal((90_000, 3))
    trees = NativeTrees(flat)
    expected = trees(X)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(trees, np.array_split(X, 60)))
    np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_few_rows_are_not_worth_loading_trees():
    flat, X = mixed_trees(), np.random.default_rng(2).standard_normal((9000, 3))
    router = Router(flat)
    router(X[:200])
    assert is_loaded(router) == [False]
    router(X)
    assert is_loaded(router) == [True]


def test_lookups():
    """Columns that are looked up are numbers for LightGBM."""
    flat = mixed_trees()
    part = KeyPart(0, threshold=0.0)
    keys = np.array([0, int(routing._HASH) ** 2 % 2**64], np.uint64)
    lookup = Lookup((part,), keys, np.array([-0.5, 0.5]), 0.0)
    flat = replace(flat, lookups=(lookup,), feature=np.where(flat.feature == 2, 3, flat.feature))
    X = np.random.default_rng(3).standard_normal((9000, 3))
    router = Router(flat)
    codes = router(X)
    assert is_loaded(router)[0]
    parts = [walked(flat, part) for part in np.array_split(X, 30)]
    np.testing.assert_array_equal(codes, np.concatenate(parts))


def test_parts_of_trees_cover_all():
    sizes = np.array([10, 3990, 1, 9000, 2, 2])
    parts = [np.arange(6)[part].tolist() for part in native._parts(sizes)]
    assert parts == [[0, 1], [2], [3], [4, 5]]


def test_without_lightgbm_trees_are_walked(monkeypatch):
    flat, X = mixed_trees(), np.random.default_rng(2).standard_normal((9000, 3))
    expected = Router(flat)(X)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    router = Router(flat)
    np.testing.assert_array_equal(router(X), expected)
    assert is_loaded(router) == [False]
