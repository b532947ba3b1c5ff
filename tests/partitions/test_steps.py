"""Steps: where the thresholds lie; categories, missing values and constant columns."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from jointleaf._data.columns import Column, Columns
from jointleaf.partitions import StepPartitioner


def test_thresholds_divide_the_range_equally():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(200, 3)) * [1.0, 100.0, 0.01]
    partitioner = StepPartitioner(14).fit(X)
    new = rng.exponential(size=(500, 3)) * [2.0, 200.0, 0.02]
    expected = []
    for j in range(3):
        low, high = X[:, j].min(), X[:, j].max()
        expected += [new[:, j] > low + (high - low) * k / 5 for k in (1, 2, 3, 4)]
    np.testing.assert_array_equal(partitioner.apply(new), np.stack(expected, axis=1))
    np.testing.assert_array_equal(partitioner.n_cells_, np.full(12, 2))
    np.testing.assert_array_equal(partitioner.trees_.feature, np.repeat([0, 1, 2], 4))
    np.testing.assert_array_equal(partitioner.split_gains_, np.ones(3))
    np.testing.assert_array_equal(partitioner.split_features_, [0, 1, 2])
    assert partitioner.splits_on_features


def test_one_step_in_the_middle_and_ties():
    X = np.array([[-1.0], [3.0], [0.0], [1.0], [np.nextafter(1.0, 2)]])
    one = StepPartitioner(1).fit(X)
    np.testing.assert_array_equal(one.trees_.threshold, [1.0])
    np.testing.assert_array_equal(one.apply(X).ravel(), [0, 1, 0, 0, 1])
    outside = one.apply([[-1e300], [1e300], [-np.inf], [np.inf]]).ravel()
    np.testing.assert_array_equal(outside, [0, 1, 0, 1])


def test_at_least_one_step_for_every_feature_that_varies():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 7))
    X[:, [2, 5]] = 3.0
    few = StepPartitioner(3).fit(X)
    np.testing.assert_array_equal(few.trees_.feature, [0, 1, 3, 4, 6])
    np.testing.assert_array_equal(few.split_gains_, [1, 1, 0, 1, 1, 0, 1])
    assert StepPartitioner(20).fit(X).trees_.n_trees == 20  # 4 for each of 5
    assert StepPartitioner(24).fit(X).trees_.n_trees == 20
    assert StepPartitioner().fit(X).trees_.n_trees == 100


def test_nothing_varies():
    X = np.column_stack([np.ones(9), np.zeros(9)])
    columns = Columns.read(X, [1])
    for partitioner in (StepPartitioner(9).fit(X), StepPartitioner(9).fit(X, columns=columns)):
        np.testing.assert_array_equal(partitioner.n_cells_, [1])
        np.testing.assert_array_equal(partitioner.split_gains_, [0, 0])
        np.testing.assert_array_equal(partitioner.apply(X + 7), np.zeros((9, 1)))
    single = StepPartitioner(9).fit(X[:1])
    np.testing.assert_array_equal(single.n_cells_, [1])
    missing = np.array([[np.nan, 2.0], [np.nan, 2.0], [np.nan, np.nan]])
    assert StepPartitioner(9).fit(missing).n_cells_.tolist() == [1]  # missing or not is no step


def test_neighbouring_floats_have_two_cells():
    for low, high in ((1.0, np.nextafter(1.0, 2)), (-np.nextafter(1.0, 2), -1.0), (0.0, 5e-324)):
        partitioner = StepPartitioner(3).fit([[low], [high]])
        np.testing.assert_array_equal(partitioner.n_cells_, [2, 2, 2])
        np.testing.assert_array_equal(partitioner.apply([[low], [high]]), [[0] * 3, [1] * 3])
    with pytest.raises(ValueError, match="too far apart"):
        StepPartitioner(3).fit([[-1e308], [1e308]])
    with pytest.raises(ValueError, match="too far apart"):
        StepPartitioner(3).fit([[-np.inf], [1.0]])
    huge = StepPartitioner(1).fit(np.array([[0.0], [1e300]]))
    np.testing.assert_array_equal(huge.apply([[4e299], [6e299]]).ravel(), [0, 1])


def test_float32_rows():
    X = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    wide = StepPartitioner(20).fit(X.astype(float))
    np.testing.assert_array_equal(StepPartitioner(20).fit(X).apply(X), wide.apply(X.astype(float)))


def test_missing_numbers_lie_where_the_mean_does():
    X = np.array([[0.0], [0.0], [0.0], [10.0], [np.nan]])
    partitioner = StepPartitioner(9).fit(X)  # thresholds 1..9, mean 2.5
    np.testing.assert_allclose(partitioner.trees_.threshold, np.arange(1, 10))
    expected = (np.arange(1, 10) < 2.5).astype(int)
    np.testing.assert_array_equal(partitioner.apply([[np.nan]])[0], expected)
    heavy = StepPartitioner(9).fit(X, sample_weight=[1.0, 1.0, 1.0, 9.0, 1.0])  # mean 7.5
    np.testing.assert_array_equal(heavy.apply([[np.nan]])[0], heavy.trees_.threshold < 7.5)
    at = StepPartitioner(1).fit([[0.0], [2.0]])
    assert at.apply([[np.nan]])[0, 0] == 0  # the mean is the threshold


def test_rows_of_weight_zero_are_ignored():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), rng.integers(0, 4, 60), np.zeros(60)])
    X[::7, 0] = np.nan
    X[:3] = [[99.0, 3.0, 1.0], [-99.0, 3.0, 2.0], [np.nan, np.nan, 5.0]]
    weight = np.where(np.arange(60) < 3, 0.0, rng.uniform(0.5, 2, 60))
    columns = Columns.read(X, [1])
    whole = StepPartitioner(12).fit(X, sample_weight=weight, columns=columns)
    part = StepPartitioner(12).fit(X[3:], sample_weight=weight[3:], columns=columns)
    np.testing.assert_array_equal(whole.trees_.threshold, part.trees_.threshold)
    np.testing.assert_array_equal(whole.apply(X), part.apply(X))
    np.testing.assert_array_equal(whole.split_gains_, [1, 1, 0])


def test_the_most_frequent_categories_are_told_from_the_others():
    codes = np.repeat([0.0, 1.0, 2.0, 3.0, 4.0, np.nan], [5, 40, 10, 30, 0, 50])
    X = np.column_stack([codes, np.linspace(0, 1, len(codes))])
    columns = Columns((Column("letter", np.array(["a", "b", "c", "d", "e"])), Column("x")))
    partitioner = StepPartitioner(6).fit(X, columns=columns)
    rows = np.column_stack([[0, 1, 2, 3, 4, 5, 77, np.nan], np.zeros(8)])
    found = partitioner.apply(rows)[:, :3]
    expected = np.stack([rows[:, 0] != category for category in (1, 3, 2)], axis=1)
    np.testing.assert_array_equal(found, expected)
    assert partitioner.trees_.n_trees == 6
    many = StepPartitioner(60).fit(X, columns=columns)
    np.testing.assert_array_equal(np.bincount(many.trees_.feature), [4, 30])  # "e" was not met
    weight = np.where(codes == 0, 100.0, 1.0)
    heavy = StepPartitioner(2).fit(X, sample_weight=weight, columns=columns)
    np.testing.assert_array_equal(heavy.apply(rows)[:, 0], rows[:, 0] != 0)


def test_two_categories_need_one_step():
    X = np.tile([0.0, 1.0, 1.0], 10)[:, None]
    columns = Columns.read(X, [0])
    partitioner = StepPartitioner(8).fit(X, columns=columns)
    np.testing.assert_array_equal(partitioner.n_cells_, [2])
    np.testing.assert_array_equal(partitioner.apply(X)[:, 0], X[:, 0] != 1)
    X[0] = np.nan
    assert StepPartitioner(8).fit(X, columns=columns).trees_.n_trees == 2
    X[:] = np.where(np.arange(30) < 4, np.nan, 1.0)[:, None]  # a category or nothing
    steps = StepPartitioner(8).fit(X, columns=columns)
    np.testing.assert_array_equal(steps.apply(X)[:, 0], np.arange(30) < 4)


def test_conventions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 2))
    partitioner = StepPartitioner(10, n_jobs=2)
    with pytest.raises(ValueError, match=r"StepPartitioner: n_partitions=0 .*at least 1"):
        StepPartitioner(0).fit(X)
    with pytest.raises(ValueError, match="target_type"):
        clone(partitioner).fit(X, target_type="guess")
    codes = partitioner.fit(X, X[:, 0]).apply(X)
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(StepPartitioner(10).fit(X).apply(X), codes)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(partitioner)).apply(X), codes)
    np.testing.assert_array_equal(partitioner.fresh().fit(X).apply(X), codes)
    with pytest.raises(ValueError, match="X has 1 features"):
        partitioner.apply(X[:, :1])
