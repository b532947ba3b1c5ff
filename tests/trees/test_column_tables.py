"""Leaves from tables of columns are those of trees that are walked, for every row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import mixed_trees, rows, trees, walked

from jointleaf._trees import column_tables
from jointleaf._trees.column_tables import ColumnTables, tabled
from jointleaf._trees.flat import NodeTable, flatten
from jointleaf._trees.routing import Router
from jointleaf.partitions import ExtraTreesPartitioner, LightGBMPartitioner


def looked_up(flat, X):
    """Cells of rows from tables, of all rows and of few rows at a time."""
    router = Router(flat)
    assert tabled(flat).all()
    columns, leaves = router.columns(X), np.empty((2, flat.n_trees, len(X)), np.int32)
    router._tables(columns, leaves[0])
    for begin in range(0, len(X), 40):
        router._tables(columns[:, begin : begin + 40], leaves[1][:, begin : begin + 40])
    np.testing.assert_array_equal(*leaves)
    return flat.cell_of_leaf[leaves[0].T + flat.leaf_starts[:-1]]


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_random_trees_and_rows(data):
    flat = data.draw(trees())
    X = data.draw(rows(flat))
    np.testing.assert_array_equal(looked_up(flat, X), walked(flat, X))


@pytest.mark.parametrize("most_thresholds", [1, 5, 40, 255])
@pytest.mark.parametrize("n_leaves", [2, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 700])
def test_every_size_of_sets_and_of_shared_states(n_leaves, most_thresholds, monkeypatch):
    monkeypatch.setattr(column_tables, "_MOST_THRESHOLDS", most_thresholds)
    rng = np.random.default_rng(n_leaves)
    X = rng.standard_normal((3000, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2]) + rng.standard_normal(len(X))
    options = {"min_data_in_leaf": 1}
    flat = LightGBMPartitioner(4, n_leaves, random_state=0, options=options).fit(X, y).trees_
    assert flat.n_leaves.max() == n_leaves
    counts = [len(np.unique(flat.threshold[flat.feature == j])) for j in range(4)]
    tables = ColumnTables(flat, np.ones(4, bool))
    n_keys = len(tables.ranks.places)
    assert (n_keys == np.count_nonzero(counts)) == (max(counts) <= most_thresholds)
    assert [p for batch in tables.batches for p in batch.trees] == [0, 1, 2, 3]
    np.testing.assert_array_equal(looked_up(flat, X), walked(flat, X))


def test_leaves_in_any_order():
    """Sets of leaves do not rely on their numbers."""
    rng = np.random.default_rng(0)
    k = np.arange(201)
    is_split = k < 100
    tree = NodeTable(
        np.where(is_split, rng.integers(0, 3, len(k)), -1),
        rng.standard_normal(len(k)),
        np.where(is_split, 2 * k + 1, -1),
        np.where(is_split, 2 * k + 2, -1),
        rng.random(len(k)) < 0.5,
    )
    flat = flatten([tree], 3)
    number = rng.permutation(101)
    for side in (flat.left, flat.right):
        side[:] = np.where(side < 0, ~number[np.where(side < 0, ~side, 0)], side)
    X = rng.standard_normal((500, 3))
    np.testing.assert_array_equal(looked_up(flat, X), walked(flat, X))


def test_trees_without_tables():
    flat = mixed_trees()
    assert tabled(flat).tolist() == [True, True, True]
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1500, 100)), rng.standard_normal(1500)
    many = ExtraTreesPartitioner(3, 200, random_state=0).fit(X, y).trees_
    assert not tabled(many).any(), "two hundred leaves on a hundred columns"
    deep = LightGBMPartitioner(
        2, 1200, random_state=0, options={"min_data_in_leaf": 1, "bagging_fraction": 1.0}
    ).fit(X, y).trees_  # fmt: skip
    assert not tabled(deep)[deep.n_leaves > 960].any()
    flat.threshold[3 + 50] = np.nan
    assert tabled(flat).tolist() == [True, False, True]


def test_tables_of_all_trees_are_bounded(monkeypatch):
    flat = mixed_trees()
    monkeypatch.setattr(column_tables, "_MOST_BYTES", 26_000)
    assert tabled(flat).tolist() == [True, True, False]
    X = np.random.default_rng(2).standard_normal((9000, 3))
    np.testing.assert_array_equal(Router(flat)(X), walked(flat, X))


@pytest.mark.parametrize(("n_columns", "n_leaves"), [(3, 8), (30, 8), (30, 31), (100, 31), (9, 99)])
def test_tables_of_trees_together_are_within_the_bound_of_each(n_columns, n_leaves):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, n_columns))
    flat = LightGBMPartitioner(70, n_leaves, random_state=0).fit(X, X @ X[0] + X[:, 0] ** 2).trees_
    tables = ColumnTables(flat, np.ones(70, bool))
    assert 1 < len(tables.batches) < 70 or n_leaves == 8
    n_bytes = sum(stack.n_bytes for stack in tables.stacks)
    bounds = []
    for a, b, n in zip(flat.starts, flat.starts[1:], flat.n_leaves, strict=False):
        size = 4 * -(-n // 32)
        own = len(set(flat.feature[a:b].tolist()))
        bounds.append(257 * min(own * (size + 60), len(np.unique(flat.feature)) * size))
    assert n_bytes <= sum(bounds)
    np.testing.assert_array_equal(looked_up(flat, X), walked(flat, X))


def test_cells_that_are_numbered_anew_share_tables():
    X = np.random.default_rng(2).standard_normal((30_000, 3))
    flat = mixed_trees()
    router = Router(flat)
    leaves = router(X)
    met = flat.numbered(leaves[:50])
    other = router.renumbered(met)
    assert other._row_bits is router._row_bits
    np.testing.assert_array_equal(other(X), walked(met, X))
    assert other(X).min() == -1
    np.testing.assert_array_equal(other(X, n_jobs=2), other(X))
