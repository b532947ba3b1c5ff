"""Which leaves of a tree lie below which, against all pairs of rows of a grid."""

import numpy as np
import pytest

from jointleaf._data.columns import Column, Columns
from jointleaf._trees.order import constrained_trees, ordered_cells
from jointleaf.partitions import LightGBMPartitioner, RandomTreesPartitioner

LEVELS = np.array([0.0, 1.0, 2.0, 3.0, np.nan])
CODES = np.array([0.0, 1.0, 2.0, 3.0, np.nan])  # the last but one is no category of training
GRID = np.stack(np.meshgrid(LEVELS, LEVELS, CODES, LEVELS, indexing="ij"), axis=-1).reshape(-1, 4)
COLUMNS = Columns((Column("a"), Column("b"), Column("c", np.arange(3)), Column("d")))


def closure(pairs, n_cells):
    """The order that pairs generate, as a matrix."""
    reach = np.zeros((n_cells, n_cells), bool)
    reach[pairs[:, 0], pairs[:, 1]] = True
    for k in range(n_cells):
        reach |= reach[:, [k]] & reach[[k]]
    return reach


def grid_pairs(codes, signs):
    """Cells of all rows of the grid that differ in one column with a sign, in its order."""
    cells = codes.reshape(5, 5, 5, 5)
    pairs = []
    for j in np.flatnonzero(signs):
        moved = np.moveaxis(cells, j, 0)[:4]  # without missing values
        for low in range(4):
            for high in range(low + 1, 4):
                pair = np.stack([moved[low].ravel(), moved[high].ravel()], axis=1)
                pairs.append(pair if signs[j] > 0 else pair[:, ::-1])
    pairs = np.unique(np.concatenate(pairs), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


@pytest.mark.parametrize("signs", [(1, 0, 0, 0), (0, 0, 0, -1), (1, -1, 0, 1)])
@pytest.mark.parametrize("kind", [LightGBMPartitioner, RandomTreesPartitioner])
def test_order_is_that_of_all_rows_of_a_grid(kind, signs):
    rng = np.random.default_rng(0)
    rows = GRID[rng.integers(len(GRID), size=400)]
    rows[rows[:, 2] == 3, 2] = 1.0
    y = rng.standard_normal(400) + np.nan_to_num(rows).sum(axis=1)
    partitioner = kind(6, 8, random_state=0).fit(rows, y, columns=COLUMNS)
    trees = partitioner.trees_
    assert (trees.cell_of_leaf >= 0).all()
    signs = np.array(signs)
    pairs = ordered_cells(trees, signs)
    first = np.cumsum(trees.n_cells) - trees.n_cells
    codes = partitioner.apply(GRID) + first
    total = int(trees.n_cells.sum())
    expected = np.concatenate([grid_pairs(column, signs) for column in codes.T])
    order, expected = closure(pairs, total), closure(expected, total)
    assert (order >= expected).all()
    if kind is LightGBMPartitioner:  # whose thresholds are between rows of the grid, one each
        assert expected.any()
        np.testing.assert_array_equal(order, expected)
    splits = [set(trees.feature[a:b]) for a, b in zip(trees.starts, trees.starts[1:], strict=False)]
    expected_trees = [bool(used & set(np.flatnonzero(signs))) for used in splits]
    np.testing.assert_array_equal(constrained_trees(trees, signs), expected_trees)


def test_pairs_begin_where_all_others_have_ended_and_none_follows_from_others():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 3))
    trees = LightGBMPartitioner(5, 16, random_state=0).fit(X, X.sum(axis=1)).trees_
    pairs = ordered_cells(trees, np.array([1, 1, 1]))
    begun = set()
    for low, high in pairs.tolist():
        assert high not in begun
        begun.add(low)
    total = int(trees.n_cells.sum())
    for k in range(len(pairs)):
        others = np.delete(pairs, k, axis=0)
        assert not closure(others, total)[tuple(pairs[k])]
