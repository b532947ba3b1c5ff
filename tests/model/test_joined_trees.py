"""Codes of all trees of a model together are those of its partitioners one by one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

from blend_fits import small_fits
from jointleaf import JOPLEnRegressor
from jointleaf._model.joined_trees import JoinedTrees
from jointleaf._trees.routing import Router
from jointleaf.partitions import (
    FittedEnsemble,
    LargeTreesPartitioner,
    LightGBMPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 4))
X[RNG.random(X.shape) < 0.05] = np.nan
Y = np.nansum(X, axis=1) + (X[:, 0] > 0)
ROWS = 2 * RNG.standard_normal((3000, 4))
ROWS[RNG.random(ROWS.shape) < 0.05] = np.nan
TREES = LightGBMPartitioner(5, 9, random_state=0)
ROTATED = RotatedPartitioner(LargeTreesPartitioner(7, 6), 3, random_state=0)
SMALL = RotatedPartitioner(RandomTreesPartitioner(3, 4), 3, n_directions=2, random_state=1)
VORONOI = VoronoiPartitioner(3, 4, random_state=0)


@pytest.mark.parametrize("n_rows", [1, 20, 3000])
@pytest.mark.parametrize(
    "members",
    [
        [TREES],
        [ROTATED],
        [TREES, RootCell()],
        [RootCell()],
        [VORONOI],
        [ROTATED, TREES, SMALL, ResidualPartitioner(RandomTreesPartitioner(6, 5))],
        [VORONOI, ROTATED, RootCell(), UnionPartitioner([TREES, RootCell(), SMALL]), VORONOI],
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_codes_are_those_of_the_members(members, n_rows, dtype):
    union = UnionPartitioner(members).fit(X, Y)
    rows = ROWS[:n_rows].astype(dtype)
    joined = JoinedTrees([union])
    for _ in range(2):
        np.testing.assert_array_equal(joined(rows), union.apply(rows))


def test_routers_and_partitioners_side_by_side():
    trees, rotated = TREES.fit(X, Y), ROTATED.fit(X, Y)
    chosen = np.arange(5) % 2 == 0
    joined = JoinedTrees([Router(trees.trees_.only(chosen)), rotated, VORONOI.fit(X, Y), trees])
    expected = [trees.apply(ROWS)[:, chosen], rotated.apply(ROWS), VORONOI.apply(ROWS)]
    expected.append(trees.apply(ROWS))
    np.testing.assert_array_equal(joined(ROWS), np.concatenate(expected, axis=1))


def test_trees_that_compare_rounded_numbers_stay_apart():
    rows, complete = np.nan_to_num(ROWS), np.nan_to_num(X)
    forest = RandomForestRegressor(4, max_leaf_nodes=7, random_state=0).fit(complete, Y)
    forest = FittedEnsemble(forest).fit(complete, Y)
    union = UnionPartitioner.of_fitted([TREES.fit(X, Y), forest, ROTATED.fit(X, Y)])
    assert forest.trees_.single_precision
    np.testing.assert_array_equal(JoinedTrees([union])(rows), union.apply(rows))


def test_categories():
    table = pd.DataFrame(np.nan_to_num(X), columns=list("abcd"))
    table["e"] = pd.Categorical(RNG.choice(["red", "green", "blue"], len(X)))
    target = Y + 2 * (table["e"] == "red")
    with small_fits():
        model = JOPLEnRegressor(recipe="blend", random_state=0).fit(table, target)
    codes = model.columns_.of_matrix()
    assert codes.n_categories.any()
    matrix = np.column_stack([table[list("abcd")], RNG.integers(0, 4, len(X))]).astype(float)
    matrix[::7, 4] = np.nan
    partitioner = model.cell_model_.partitioner
    for n in (5, 300):
        joined = JoinedTrees([partitioner])(matrix[:n])
        np.testing.assert_array_equal(joined, partitioner.apply(matrix[:n]))


def test_rotated_trees_of_the_same_and_of_other_rows():
    rotated = [RotatedPartitioner(LargeTreesPartitioner(4, 6), 2, random_state=k) for k in range(3)]
    rows = [X, X, X[:150]]
    members = [part.fit(x, Y[: len(x)]) for part, x in zip(rotated, rows, strict=True)]
    joined = JoinedTrees(members)
    expected = np.concatenate([member.apply(ROWS) for member in members], axis=1)
    np.testing.assert_array_equal(joined(ROWS), expected)
    np.testing.assert_array_equal(joined(ROWS[:9]), expected[:9])
