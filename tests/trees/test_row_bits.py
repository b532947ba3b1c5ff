"""Leaves from bits of rows are those of trees that are walked, for every row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import mixed_trees, rows, trees, walked

from jointleaf._trees import routing
from jointleaf._trees.routing import Router, RowBits, small_buffers
from jointleaf.partitions import LightGBMPartitioner


def from_bits(flat, X):
    """Return the cells of rows."""
    leaves = np.empty((flat.n_trees, len(X)), np.int32)
    RowBits(flat, np.ones(flat.n_trees, bool))(Router(flat).columns(X), leaves)
    return flat.cell_of_leaf[leaves.T + flat.leaf_starts[:-1]]


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_random_trees_and_rows(data):
    flat = data.draw(trees())
    X = data.draw(rows(flat))
    np.testing.assert_array_equal(from_bits(flat, X), walked(flat, X))


@pytest.mark.parametrize("n_nodes", [1, 300, 4096])
@pytest.mark.parametrize("n_leaves", [2, 8, 9, 31, 255, 256, 257, 700])
def test_every_number_of_leaves_in_several_batches_and_blocks(n_leaves, n_nodes, monkeypatch):
    monkeypatch.setattr(routing, "_NODES", n_nodes)
    monkeypatch.setattr(routing, "_COMPARED", 2**13)
    rng = np.random.default_rng(n_leaves)
    X = rng.standard_normal((2500, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2]) + rng.standard_normal(len(X))
    options = {"min_data_in_leaf": 1}
    flat = LightGBMPartitioner(5, n_leaves, random_state=0, options=options).fit(X, y).trees_
    expected = walked(flat, X)
    np.testing.assert_array_equal(from_bits(flat, X), expected)
    for n_rows in (0, 1, 63, 64, 65):
        np.testing.assert_array_equal(from_bits(flat, X[:n_rows]), expected[:n_rows])


def test_some_trees_and_single_leaves():
    flat = mixed_trees()
    X = np.random.default_rng(2).standard_normal((400, 3))
    for chosen in ([True, False, True], [False, True, False], [False, False, False]):
        leaves = np.full((3, len(X)), -7, np.int32)
        RowBits(flat, np.array(chosen))(Router(flat).columns(X), leaves)
        expected = np.where(chosen, walked(flat, X), -7)
        np.testing.assert_array_equal(leaves.T, expected)


def test_the_size_of_buffers_is_set_back():
    before = np.getbufsize()

    def fail():
        with small_buffers():
            assert np.getbufsize() < before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert np.getbufsize() == before
