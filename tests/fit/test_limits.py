"""Wide tables and many classes: what they are spared, by rule, and what the report says of it."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

import jointleaf as jl
from blend_fits import small_fits
from jointleaf._core.layout import CellLayout
from jointleaf._core.solvers import dual
from jointleaf._data.columns import Columns
from jointleaf._fit import joint, limits, recipes
from jointleaf._fit.boosting import Boosted, BoostedRandom
from jointleaf._fit.default_partitions import many_partitions
from jointleaf._fit.limits import partition_sizes
from jointleaf.partitions import LargeTreesPartitioner, RotatedPartitioner, UnionPartitioner

JOINT, BLEND = recipes.RECIPES["joint"], recipes.RECIPES["blend"]
X, Y = make_friedman1(60, n_features=300, noise=0.5, random_state=0)


def test_nothing_is_spared_of_ordinary_tables():
    assert not limits.is_heavy(200, 50)
    assert limits.partition_share(200) == 1.0
    assert recipes.affordable(BLEND, 200, 50) is BLEND
    whole = many_partitions("regression")
    same = limits.wide_partitions(many_partitions("regression"), 200)
    assert partition_sizes(same) == partition_sizes(whole)
    assert repr(same) == repr(whole)
    assert recipes.affordable(JOINT, 200, 1) is JOINT


# 50 boosted trees on the target, and a part of the other 350.
@pytest.mark.parametrize(("n_columns", "n_trees"), [(500, 400), (1000, 225), (50_000, 85)])
def test_partitions_of_wide_tables(n_columns, n_trees):
    partitions = limits.wide_partitions(many_partitions("regression"), n_columns)
    assert sum(count for count, _ in partition_sizes(partitions)) == n_trees


def test_large_trees_of_wide_tables_hold_few_histograms():
    large = LargeTreesPartitioner(3, 50)
    union = UnionPartitioner([large, RotatedPartitioner(LargeTreesPartitioner(3, 50), 2)])
    ordinary = repr(union)
    limits.limit_histograms(union, 200)
    assert repr(union) == ordinary
    limits.limit_histograms(union, 201)
    trees = [m for m in union.nested() if isinstance(m, LargeTreesPartitioner)]
    assert [m.options for m in trees] == 2 * [{"histogram_pool_size": limits.WIDE_HISTOGRAMS}]
    # As long as there is room for the histograms of all leaves the trees are the same.
    codes = [
        LargeTreesPartitioner(3, 20, 0, options=options).fit(X, Y).apply(X)
        for options in (None, trees[0].options)
    ]
    np.testing.assert_array_equal(*codes)


def test_components_of_wide_tables():
    kept = recipes.affordable(BLEND, 201, 1).components["regression"]
    assert [kind.name for kind in kept] == ["boosted", "joint", "linear"]
    numbers = recipes.affordable(JOINT, 201, 1).components["regression"]
    assert [kind.name for kind in numbers] == ["joint", "leaf_values", "located"]
    constrained = recipes.under_constraints(JOINT)
    assert recipes.affordable(constrained, 201, 1).components == constrained.components
    # Best thresholds take no part with many classes: random ones stay.
    assert Boosted.takes(5)
    assert not Boosted.takes(6)
    assert BoostedRandom in recipes.affordable(BLEND, 201, 6).components["classification"]


def test_splits_of_heavy_fits():
    assert recipes.n_folds_and_splits(JOINT, 100, heavy=True) == (3, 3)
    assert recipes.n_folds_and_splits(JOINT, 100) == (5, 5)
    assert recipes.n_folds_and_splits(BLEND, 5000, heavy=True) == (5, 1)


def test_trees_of_many_classes_are_small():
    sizes = [BoostedRandom._make_stage(10_000, K, 5).n_cells for K in (50, 51)]
    assert sizes == [63, 15]


def test_the_report_says_what_was_left_out():
    with small_fits():
        joint = jl.JOPLEnRegressor(random_state=0).fit(X, Y)
        blend = jl.JOPLEnRegressor(recipe="blend", random_state=0).fit(X, Y)
        ordinary = jl.JOPLEnRegressor(random_state=0, cv=2).fit(X[:, :200], Y)
    assert joint.report_.left_out == (
        "2 of 5 splits (300 columns)",
        "splits on all but 100 columns (300 columns)",
    )
    components = ("boosted_random (300 columns)", "boosted_linear (300 columns)")
    assert blend.report_.left_out == (*components, "2 of 3 splits (300 columns)")
    assert ordinary.report_.left_out == ()
    assert "left out" in dict(joint.report_.lines())


def test_one_long_category_does_not_pad_the_others():
    import pandas as pd

    texts = [f"k{i}" for i in range(300)] + ["x" * 240_000]
    frame = pd.DataFrame({"a": texts})
    columns = Columns.read(frame)
    assert columns[0].categories.nbytes < 10_000
    np.testing.assert_array_equal(columns.encode(frame)[:, 0], np.argsort(np.argsort(texts)))
    assert Columns.read(frame[:300])[0].categories.dtype.kind == "U"


def test_a_kernel_that_rounding_has_made_indefinite():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 5))
    K, shift, b = A @ A.T - 1e-9 * np.eye(20), np.full(20, 1e-12), rng.standard_normal(20)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(K + np.diag(shift))
    x = joint._solve_shifted(K, shift, b)
    np.testing.assert_allclose((K + np.diag(shift)) @ x, b, atol=1e-4)
    good = joint._solve_shifted(A @ A.T, np.ones(20), b)
    np.testing.assert_allclose((A @ A.T + np.eye(20)) @ good, b)


def test_kernels_are_exact_in_double_precision():
    cells = np.array([[0, 2], [1, 2], [0, 3]])
    layout = CellLayout((2, 2), 1, ("constant", "constant"))
    weights = np.array([1 / 3, 1 / 3])
    shared = dual.shared_cells(cells, cells, layout, weights)
    np.testing.assert_array_equal(shared, np.array([[2, 1, 1], [1, 2, 0], [1, 0, 2]]) * (1 / 3))
