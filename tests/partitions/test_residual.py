"""Partitions grown on the residuals of a linear model."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.preprocessing import StandardScaler

from jointleaf._data.columns import Column, Columns
from jointleaf.partitions import (
    LightGBMPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    UnionPartitioner,
    VoronoiPartitioner,
)
from jointleaf.partitions._base import check_fit_rows, seeded
from jointleaf.partitions._union import fit_linear_part

INNER = RandomTreesPartitioner(12, 5, random_state=0)


def data(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 5 * X[:, 0] + np.abs(X[:, 1]) + 0.1 * rng.normal(size=n)


X, Y = data()
NEW, _ = data(50, 1)
BINARY = (Y > 0).astype(int)
THREE = np.digitize(Y, [-3, 3])


def same(one, other, rows=NEW):
    np.testing.assert_array_equal(one.apply(rows), other.apply(rows))
    np.testing.assert_array_equal(one.n_cells_, other.n_cells_)
    np.testing.assert_array_equal(one.split_gains_, other.split_gains_)


# -- on what the trees are grown ---------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("y", "target_type"),
    [(Y, "regression"), (BINARY, "classification"), (THREE, "classification")],
)
def test_the_same_as_growing_on_residuals(y, target_type, weighted):
    weight = np.random.default_rng(1).integers(0, 4, len(y)) * 1.0 if weighted else None
    found = ResidualPartitioner(INNER).fit(X, y, weight, target_type=target_type)
    rows = check_fit_rows(X, y, weight, target_type)
    _, residuals = fit_linear_part(rows)
    if residuals.ndim == 2:
        values, vectors = np.linalg.eigh(residuals.T @ residuals)
        residuals = residuals @ vectors[:, -1]
        assert np.sum(residuals**2) == pytest.approx(values[-1])
    for sign in (1, -1):  # a principal component has no sign, and trees do not see it
        same(found, clone(INNER).fit(rows.X, sign * residuals, rows.weight))


def test_residuals_are_those_of_scikit_learn():
    Z = StandardScaler().fit_transform(X)
    ridge = RidgeCV(len(Y) * np.logspace(-6, 1, 15)).fit(Z, (Y - Y.mean()) / Y.std())
    left = (Y - Y.mean()) / Y.std() - ridge.predict(Z)
    same(ResidualPartitioner(INNER).fit(X, Y), clone(INNER).fit(X, left))
    logistic = LogisticRegression().fit(Z, BINARY)
    left = BINARY - logistic.predict_proba(Z)[:, 1]
    found = ResidualPartitioner(INNER).fit(X, BINARY, target_type="classification")
    np.testing.assert_array_equal(found.apply(NEW), clone(INNER).fit(X, left).apply(NEW))


def test_what_is_linear_is_not_split():
    plain, residual = INNER.fit(X, Y), ResidualPartitioner(INNER).fit(X, Y)
    assert plain.split_gains_.argmax() == 0
    assert residual.split_gains_.argmax() == 1
    shifted = ResidualPartitioner(INNER).fit(X, Y + 100 * X[:, 2])
    assert shifted.split_gains_.argmax() == 1


def test_categories_and_missing_values():
    rng = np.random.default_rng(0)
    columns = Columns([Column("x", None), Column("letter", list("abc"))])
    letter = rng.integers(0, 3, 300)
    table = np.column_stack([rng.normal(size=300), letter])
    y = np.abs(table[:, 0]) + 10.0 * letter
    table[::9, 0] = np.nan
    found = ResidualPartitioner(INNER).fit(table, y, columns=columns)
    assert found.split_gains_.argmax() == 0, "the categories' shifts are linear"
    assert (found.partitioner_.trees_.n_categories == [0, 3]).all()
    unseen = np.array([[0.3, 3.0], [np.nan, np.nan]])
    assert found.apply(unseen).shape == (2, 12)


@pytest.mark.parametrize(
    ("y", "target_type"),
    [
        (np.ones(200), "regression"),
        (np.ones(200, int), "classification"),
        (3 * X[:, 0], "regression"),
    ],
    ids=["constant", "one class", "linear"],
)
def test_nothing_left_over(y, target_type):
    found = ResidualPartitioner(INNER).fit(X, y, target_type=target_type)
    assert found.apply(NEW).min() >= 0
    if np.ptp(y) == 0:
        assert set(found.n_cells_) == {1}


# -- a partitioner like others -----------------------------------------------------------------


def test_clone_pickle_and_fresh():
    found = ResidualPartitioner(INNER).fit(X, Y)
    assert found.partitioner is INNER
    again = clone(found)
    assert not hasattr(again, "partitioner_")
    with pytest.raises(NotFittedError):
        again.apply(X)
    same(again.fit(X, Y), found)
    same(pickle.loads(pickle.dumps(found)), found)
    same(pickle.loads(pickle.dumps(found)).fit(X, Y), found)
    fresh = found.fresh()
    assert not hasattr(fresh, "partitioner_")
    same(fresh.fit(X, Y), found)
    assert found.get_params()["partitioner__n_cells"] == 5
    assert found.n_features_in_ == 4
    assert found.leaf_values_ is None, "values of residuals are no predictions"


def test_values_of_boosted_residuals_are_not_taken_for_predictions():
    found = ResidualPartitioner(LightGBMPartitioner(5, 4, random_state=0)).fit(X, Y)
    assert found.partitioner_.leaf_values_ is not None
    assert found.leaf_values_ is None
    both = UnionPartitioner([found, LightGBMPartitioner(7, 4, random_state=0)]).fit(X, Y)
    own = both.leaf_values_
    assert not own[: found.n_cells_.sum()].any()


def test_the_inner_one_stays_as_it_was():
    inner = RandomTreesPartitioner(3, 4, random_state=0)
    ResidualPartitioner(inner).fit(X, Y)
    assert not hasattr(inner, "trees_")


def test_unions_inside_and_outside():
    parts = [INNER, LightGBMPartitioner(6, 4, random_state=0), RootCell()]
    found = ResidualPartitioner(UnionPartitioner(parts)).fit(X, Y)
    alone = [ResidualPartitioner(part).fit(X, Y) for part in parts]
    np.testing.assert_array_equal(found.apply(NEW), np.hstack([a.apply(NEW) for a in alone]))
    np.testing.assert_array_equal(found.n_cells_, np.concatenate([a.n_cells_ for a in alone]))
    outside = UnionPartitioner([ResidualPartitioner(INNER), INNER]).fit(X, Y)
    expected = np.hstack([alone[0].apply(NEW), clone(INNER).fit(X, Y).apply(NEW)])
    np.testing.assert_array_equal(outside.apply(NEW), expected)


def test_seeds_and_threads_reach_the_inner_one():
    union = UnionPartitioner([RandomTreesPartitioner(5), RandomTreesPartitioner(5)])
    found = seeded(ResidualPartitioner(union), 3, 2)
    inner = found.partitioner.partitioners
    assert inner[0].random_state != inner[1].random_state
    assert {part.n_jobs for part in inner} == {2}
    same(clone(found).fit(X, Y), found.fit(X, Y))


def test_siblings_merging_and_leaving_out_are_those_of_the_inner_one():
    found = ResidualPartitioner(INNER).fit(X, Y)
    inner = found.partitioner_
    np.testing.assert_array_equal(found.siblings(), inner.siblings())
    np.testing.assert_array_equal(found.split_features_, inner.split_features_)
    assert found.splits_on_features
    assert not ResidualPartitioner(VoronoiPartitioner(3)).splits_on_features
    chosen = np.arange(len(inner.siblings())) % 2 == 0
    kept = np.arange(12) % 3 == 0
    for other, expected in (
        (found.with_merged(chosen), inner.with_merged(chosen)),
        (found.with_partitions(kept), inner.with_partitions(kept)),
    ):
        assert isinstance(other, ResidualPartitioner)
        assert other.partitioner is INNER
        same(other, expected)
        assert other.n_cells_.sum() < found.n_cells_.sum()
    np.testing.assert_array_equal(found.with_partitions(kept).apply(X), found.apply(X)[:, kept])


def test_errors():
    with pytest.raises(ValueError, match=r"needs targets: pass y"):
        ResidualPartitioner(INNER).fit(X)
    for wrong in ("lightgbm", None, [INNER]):
        with pytest.raises(TypeError, match="is no Partitioner: call"):
            ResidualPartitioner(wrong).fit(X, Y)
    unfitted = ResidualPartitioner(INNER)
    for call in (unfitted.siblings, lambda: unfitted.split_features_, lambda: unfitted.apply(X)):
        with pytest.raises(NotFittedError):
            call()
    with pytest.raises(ValueError, match=r"X has 2 features.*expecting 4"):
        ResidualPartitioner(INNER).fit(X, Y).apply(X[:, :2])
