"""Leaves that LightGBM finds are those of trees that are walked, for every row."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointleaf._trees import native, routing
from jointleaf._trees.flat import KeyPart, Lookup, NodeTable, flatten
from jointleaf._trees.native import ZERO, NativeTrees
from jointleaf._trees.routing import Router
from jointleaf.partitions import LightGBMPartitioner

D, CATEGORIES = 4, np.array([0, 3, 0, 40])  # columns 1 and 3 hold categories
EDGES = [
    *(0.0, -0.0, 1.0, -1.0, 0.1, 1e-36, -1e-36, ZERO, -ZERO, 5e-324, -5e-324, 1e300, 1e-300),
    *(float(np.nextafter(ZERO, 1)), float(np.nextafter(-ZERO, -1)), float(np.float32(0.1))),
    *(np.inf, -np.inf, 1.7976931348623157e308, 3.5e38, 2.0**53 + 1.0),
]
NUMBERS = st.one_of(st.sampled_from(EDGES), st.floats(allow_nan=False))


@st.composite
def trees(draw):
    """Random trees, with splits on numbers and on categories, some leaves no cell."""
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        n_leaves = draw(st.integers(1, 12))
        left, right, leaves = {}, {}, [0]
        for _ in range(n_leaves - 1):  # split one of the leaves
            node = leaves.pop(draw(st.integers(0, len(leaves) - 1)))
            left[node], right[node] = 2 * len(left) + 1, 2 * len(left) + 2
            leaves += [left[node], right[node]]
        m = 2 * n_leaves - 1
        feature, threshold = np.full(m, -1), np.zeros(m)
        missing_left, categories = np.zeros(m, bool), {}
        for node in left:
            feature[node] = draw(st.integers(0, D - 1))
            missing_left[node] = draw(st.booleans())
            if CATEGORIES[feature[node]]:
                size = int(CATEGORIES[feature[node]]) + 1
                bits = st.lists(st.booleans(), min_size=size, max_size=size)
                categories[node] = np.array(draw(bits))
            else:
                threshold[node] = draw(NUMBERS)
        children = [np.array([side.get(k, -1) for k in range(m)]) for side in (left, right)]
        tables.append(NodeTable(feature, threshold, *children, missing_left, categories))
    flat = flatten(
        tables,
        D,
        CATEGORIES,
        single_precision=draw(st.booleans()),
        zero_is_missing=draw(st.booleans()),
    )
    cells = np.where(flat.leaf_numbers == 3, -1, flat.leaf_numbers)
    return replace(flat, cell_of_leaf=cells.astype(np.int32))


@st.composite
def rows(draw, flat):
    """Rows with numbers at thresholds and beside them, codes, missing values and tiny numbers."""
    at = flat.threshold[flat.table < 0].tolist()
    with np.errstate(over="ignore", under="ignore"):
        near = [float(np.nextafter(t, way)) for t in at for way in (-np.inf, np.inf)]
    numbers = st.one_of(NUMBERS, st.just(np.nan), *([st.sampled_from([*at, *near])] if at else []))
    codes = st.sampled_from([0.0, 1.0, 2.0, 3.0, 31.0, 32.0, 39.0, 40.0, 99.0, -1.0, np.nan])
    columns = [codes if k else numbers for k in CATEGORIES]
    some = draw(st.lists(st.tuples(*columns), min_size=1, max_size=30))
    with np.errstate(over="ignore", under="ignore"):
        return np.array(some).astype(draw(st.sampled_from([np.float64, np.float32])))


class Walker(Router):
    """Finds cells without LightGBM."""

    def _native_trees(self, n_rows):
        return iter(())


def walked(flat, X):
    return Walker(flat)(X)


def is_loaded(router):
    return [lazy._native is not None for lazy in router._native]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_random_trees_and_rows(data):
    flat = data.draw(trees())
    X = data.draw(rows(flat))
    router = Router(flat)
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
    rows = np.asarray(X.astype(dtype), order=order)
    for part in made:
        router = Router(part.trees_)
        codes = router(rows)
        assert is_loaded(router) == [part.trees_.n_leaves.max() > 64]
        np.testing.assert_array_equal(codes, walked(part.trees_, rows))
        np.testing.assert_array_equal(codes, router(rows, n_jobs=2))


def mixed_trees():
    """A large tree between two small ones."""
    rng = np.random.default_rng(1)
    tables = []
    for n_splits in (3, 200, 3):
        k = np.arange(2 * n_splits + 1)
        is_split = k < n_splits
        threshold = np.where(is_split, rng.standard_normal(len(k)), 0.0)
        tables.append(
            NodeTable(
                np.where(is_split, rng.integers(0, 3, len(k)), -1),
                threshold,
                np.where(is_split, 2 * k + 1, -1),
                np.where(is_split, 2 * k + 2, -1),
                rng.random(len(k)) < 0.5,
            )
        )
    return flatten(tables, 3)


def test_large_and_small_trees_of_one_ensemble():
    flat, X = mixed_trees(), np.random.default_rng(2).standard_normal((9000, 3))
    router = Router(flat)
    expected = np.concatenate([router(part) for part in np.array_split(X, 30)])
    assert is_loaded(router) == [True, True], "what was walked adds up"
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
    assert is_loaded(router) == [False, False]
    router(X)
    assert is_loaded(router) == [True, False], "small trees of many rows are faster without"
    router = Router(LightGBMPartitioner(9, 31, random_state=0).fit(X, X[:, 0] ** 2).trees_)
    router(X[:641])
    assert is_loaded(router) == [True], "preparing trees would take longer"


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
    assert is_loaded(router) == [False, False]
