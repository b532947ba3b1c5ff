"""The columns that partitions of wide tables are grown on."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import jointleaf as jl
from blend_fits import small_fits
from jointleaf._data.columns import Columns
from jointleaf._fit.limits import SCREENED_COLUMNS, best_columns, split_gains
from jointleaf._trees.flat import TrainingRows
from jointleaf.partitions import LightGBMPartitioner, ResidualPartitioner, RootCell
from jointleaf.partitions._union import UnionPartitioner

X, Y = make_friedman1(60, n_features=300, noise=0.5, random_state=0)
X = X[:, ::-1].copy()  # the last columns count


def rows_of(X, y, weight=None, n_classes=0):
    return TrainingRows(X, y, weight, n_classes, Columns.numbers(X.shape[1]))


@pytest.mark.parametrize("n_classes", [0, 2, 4])
@pytest.mark.parametrize("has_weights", [False, True])
def test_gains_are_those_of_stumps(n_classes, has_weights):
    rng = np.random.default_rng(1)
    X = rng.integers(6, size=(50, 7)).astype(float)
    X[:, 6] = 1.0
    y = X[:, 0] + rng.standard_normal(50)
    y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes)) if n_classes else y
    weight = rng.uniform(0.5, 1.5, 50) if has_weights else None
    gains = split_gains(rows_of(X, y, weight, n_classes))
    kind = DecisionTreeClassifier if n_classes > 2 else DecisionTreeRegressor
    s = np.ones(50) if weight is None else weight
    for j in range(6):
        stump = kind(max_depth=1, min_samples_leaf=5, random_state=0)
        target = y if n_classes > 2 else (y - np.average(y, weights=s)) / 1.0
        tree = stump.fit(X[:, [j]], target, sample_weight=weight).tree_
        share = tree.weighted_n_node_samples / s.sum()
        lower = s.sum() * (tree.impurity[0] - share[1:] @ tree.impurity[1:])
        if n_classes <= 2:  # targets are standardised
            lower /= np.average((y - np.average(y, weights=s)) ** 2, weights=s)
        np.testing.assert_allclose(gains[j], lower, rtol=1e-9)
    assert gains[6] == -1


def test_columns_that_count_are_found_in_training_rows_alone():
    assert set(range(295, 300)) & set(best_columns(rows_of(X, Y), 20).tolist()) >= {296, 298, 299}
    assert len(best_columns(rows_of(X[:3], Y[:3]), 20)) == 20


def test_partitions_of_some_columns_are_those_of_the_table():
    some = np.arange(1, 300, 3)
    union = UnionPartitioner(
        [LightGBMPartitioner(4, 4), ResidualPartitioner(LightGBMPartitioner(3, 4)), RootCell()]
    ).fit(X[:, some], Y)
    whole = union.of_columns(some, 300)
    np.testing.assert_array_equal(whole.apply(X), union.apply(X[:, some]))
    np.testing.assert_array_equal(whole.split_features_, some[union.split_features_])
    np.testing.assert_array_equal(whole.split_gains_[some], union.split_gains_)
    assert whole.n_features_in_ == 300
    assert whole.split_gains_.sum() == pytest.approx(union.split_gains_.sum(), rel=1e-12)


@pytest.mark.parametrize("kind", [jl.JOPLEnRegressor, jl.JOPLEnClassifier])
def test_wide_fits_split_on_few_columns_and_save(kind, tmp_path):
    y = Y if kind is jl.JOPLEnRegressor else np.where(np.median(Y) < Y, "yes", "no")
    with small_fits():
        model = kind(random_state=0).fit(X, y)
        given = kind(LightGBMPartitioner(300, 4), random_state=0).fit(X, y)
    assert len(model.partitioner_.split_features_) <= SCREENED_COLUMNS
    assert len(given.partitioner_.split_features_) > SCREENED_COLUMNS  # the user's have all
    jl.save(model, tmp_path / "model.jl")
    np.testing.assert_array_equal(jl.load(tmp_path / "model.jl").predict(X), model.predict(X))
