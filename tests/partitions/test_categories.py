"""Columns with few values: a cell for each of them."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from jointleaf._data.columns import Columns
from jointleaf.partitions import CategoryPartitioner

RNG = np.random.default_rng(0)
KIND, SIZE = RNG.integers(0, 6, 240) * 2.0, RNG.choice([-1.0, 0.5, 7.0], 240)
X = np.column_stack([KIND, RNG.normal(size=240), SIZE, RNG.integers(0, 2, 240)])


def test_a_cell_for_every_value():
    cells = CategoryPartitioner().fit(X)
    np.testing.assert_array_equal(cells.n_cells_, [6, 3])
    np.testing.assert_array_equal(cells.split_features_, [0, 2])
    np.testing.assert_array_equal(cells.split_gains_, [1, 0, 1, 0])
    codes = cells.apply(X)
    for codes_of, column in zip(codes.T, (KIND, SIZE), strict=True):
        np.testing.assert_array_equal(codes_of, np.unique(column, return_inverse=True)[1])


def test_other_numbers_lie_with_the_nearer_value_and_missing_values_with_the_median():
    column = np.array([[0.0], [1.0], [1.0], [5.0], [np.nan]])
    cells = CategoryPartitioner().fit(column)
    new = np.array([[-9.0], [0.4], [0.6], [2.9], [3.1], [99.0], [np.nan]])
    np.testing.assert_array_equal(cells.apply(new).ravel(), [0, 0, 1, 1, 2, 2, 1])


@pytest.mark.parametrize(("n_values", "n_cells"), [(2, [1]), (3, [3]), (20, [20]), (21, [1])])
def test_how_many_values_are_few(n_values, n_cells):
    column = np.arange(60.0)[:, None] % n_values
    np.testing.assert_array_equal(CategoryPartitioner().fit(column).n_cells_, n_cells)
    few = CategoryPartitioner(n_cells=n_values).fit(column)
    np.testing.assert_array_equal(few.n_cells_, [n_values if n_values > 2 else 1])


def test_columns_with_the_fewest_values_come_first():
    table = np.stack([np.arange(60.0) % k for k in (20,) * 9 + (10, 5, 10)], axis=1)
    cells = CategoryPartitioner().fit(table)
    np.testing.assert_array_equal(cells.n_cells_, [20] * 8 + [10, 5, 10])
    np.testing.assert_array_equal(cells.split_features_, [*range(8), 9, 10, 11])


def test_categories_are_left_out():
    columns = Columns.read(X, [0])
    np.testing.assert_array_equal(CategoryPartitioner().fit(X, columns=columns).n_cells_, [3])


def test_conventions():
    cells = CategoryPartitioner().fit(X, sample_weight=np.where(KIND == 10, 0.0, 1.0))
    np.testing.assert_array_equal(cells.n_cells_, [5, 3])
    copy = pickle.loads(pickle.dumps(cells))
    np.testing.assert_array_equal(copy.apply(X), cells.apply(X))
    assert not hasattr(clone(cells), "trees_")
    with pytest.raises(ValueError, match="n_cells"):
        CategoryPartitioner(0).fit(X)
