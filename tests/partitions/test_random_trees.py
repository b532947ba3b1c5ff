"""Extremely randomised trees grown side by side: each is checked against its own rows."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from jointleaf._data.columns import Column, Columns
from jointleaf._data.features import mean_and_scale
from jointleaf.partitions import NO_CELL, RandomTreesPartitioner
from jointleaf.partitions._growers import random_trees


def grown(X, y, weight=None, n_partitions=20, n_cells=6, random_state=0, **options):
    return RandomTreesPartitioner(n_partitions, n_cells, random_state).fit(X, y, weight, **options)


def targets(y, target_type):
    """What the trees see, (n, K): standard numbers, or indicators of classes."""
    if target_type == "regression":
        mean, scale = mean_and_scale(y[:, None], np.ones(len(y)))
        return (y[:, None] - mean) / scale
    return (y[:, None] == np.unique(y)).astype(float)


def squares(z, s):
    """Weighted squared error around the mean."""
    return (
        float((s[:, None] * (z - np.average(z, axis=0, weights=s)) ** 2).sum()) if len(z) else 0.0
    )


def splits(trees, X):
    """Column, threshold, rows on the left and rows on the right of every split, by walking."""
    for p in range(trees.n_trees):
        inside = {int(trees.starts[p]): np.arange(len(X))}
        for node in range(trees.starts[p], trees.starts[p + 1]):
            rows, j = inside[node], int(trees.feature[node])
            goes_left = X[rows, j] <= trees.threshold[node]
            left, right = rows[goes_left], rows[~goes_left]
            inside[int(trees.left[node])], inside[int(trees.right[node])] = left, right
            yield j, float(trees.threshold[node]), left, right


# -- the trees ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["regression", "binary", "three"])
def test_every_split_lowers_the_squared_error_and_gains_are_those(diabetes, kind, weighted):
    X, y, _ = diabetes
    s = np.random.default_rng(0).uniform(0.1, 3.0, len(y)) if weighted else np.ones(len(y))
    target_type = "regression" if kind == "regression" else "classification"
    if target_type == "classification":
        y = np.digitize(y, [150] if kind == "binary" else [100, 180])
    cells = grown(X, y, s if weighted else None, target_type=target_type)
    z, gains = targets(y, target_type), np.zeros(X.shape[1])
    for j, threshold, left, right in splits(cells.trees_, X):
        rows = np.concatenate([left, right])
        assert X[rows, j].min() <= threshold < X[rows, j].max()
        assert min(len(left), len(right)) >= 2
        gain = squares(z[rows], s[rows]) - squares(z[left], s[left]) - squares(z[right], s[right])
        assert gain > 0
        gains[j] += gain / s.mean() / (2 if kind == "binary" else 1)  # one indicator of two
    np.testing.assert_allclose(cells.split_gains_, gains, rtol=1e-3)


def test_leaves_and_their_rows(diabetes):
    X, y, X_new = diabetes
    cells = grown(X, y, n_partitions=50, n_cells=8)
    codes = cells.apply(X)
    assert codes.shape == (300, 50)
    np.testing.assert_array_equal(cells.n_cells_, codes.max(axis=0) + 1)
    np.testing.assert_array_equal(cells.trees_.n_leaves, cells.n_cells_)
    assert (cells.n_cells_ == 8).mean() > 0.9
    assert min(np.bincount(column).min() for column in codes.T) >= 2
    assert cells.apply(X_new).min() > NO_CELL
    assert set(np.argsort(cells.split_gains_)[-2:]) == {2, 8}  # bmi and s5


def test_a_tree_with_more_cells_divides_those_of_a_smaller_one(diabetes):
    X, y, _ = diabetes
    trees = [grown(X, y, n_partitions=1, n_cells=k, random_state=3) for k in range(2, 9)]
    for k, (one, other) in enumerate(itertools.pairwise(trees), 2):
        pairs = np.unique(np.column_stack([one.apply(X), other.apply(X)]), axis=0)
        assert len(pairs) == other.n_cells_[0] == k + 1


def test_pure_leaves_are_not_split():
    y = np.repeat([0.0, 0.1, 0.7], 40)
    X = y[:, None] + np.random.default_rng(0).uniform(0, 0.01, (120, 2))
    cells = grown(X, y, n_partitions=100, n_cells=12)
    for _, _, left, right in splits(cells.trees_, X):
        assert len(set(y[np.concatenate([left, right])])) > 1


def test_seeds(diabetes):
    X, y, X_new = diabetes
    one, again, other = (grown(X, y, random_state=k).apply(X_new) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert one.shape != other.shape or (one != other).any()
    state = [grown(X, y, random_state=np.random.RandomState(3)).apply(X_new) for _ in range(2)]
    np.testing.assert_array_equal(*state)
    columns = {tuple(column) for column in one.T}
    assert len(columns) == one.shape[1], "no tree twice"


@pytest.mark.parametrize("batch", [1, 10_000, 2**30])
def test_batches_hold_trees_of_the_same_kind(diabetes, monkeypatch, batch):
    X, y, _ = diabetes
    monkeypatch.setattr(random_trees, "_BATCH", batch)
    cells = grown(X, y, n_partitions=30)
    assert len(cells.n_cells_) == 30
    assert len({tuple(column) for column in cells.apply(X).T}) == 30
    assert (cells.n_cells_ == 6).mean() > 0.9


def test_number_of_threads_changes_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(17_000, 4))
    y = X[:, 0] * X[:, 1] + rng.normal(size=17_000)
    part = RandomTreesPartitioner(12, 5, random_state=0)
    found = [clone(part).set_params(n_jobs=k).fit(X, y).apply(X) for k in (None, 2, -1)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_many_rows_are_sampled_and_all_get_cells(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    cells = grown(X, y, n_cells=4)
    codes = cells.apply(X)
    assert codes.min() == 0
    sizes = np.array([np.bincount(column).min() for column in codes.T])
    assert sizes.min() >= 2
    sampled = cells.trees_.threshold
    monkeypatch.setattr(random_trees, "_ROWS_PER_CELL", 5000)
    assert not np.array_equal(grown(X, y, n_cells=4).trees_.threshold, sampled)
    spread = []
    for column in codes.T:  # the samples say nearly as much as all rows
        means = np.array([y[column == c].mean() for c in range(column.max() + 1)])
        spread.append(np.var(means[column]) / y.var())
    assert np.mean(spread) > 0.3


# -- weights -----------------------------------------------------------------------------------


def test_weights(diabetes):
    X, y, X_new = diabetes
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    whole, kept = grown(X, y, weight).apply(X_new), weight > 0
    np.testing.assert_array_equal(grown(X[kept], y[kept], weight[kept]).apply(X_new), whole)
    np.testing.assert_array_equal(grown(X, y, weight * 2.0**-30).apply(X_new), whole)
    plain = grown(X, y).apply(X_new)
    np.testing.assert_array_equal(grown(X, y, np.full(len(y), 0.3)).apply(X_new), plain)
    skewed = grown(X, y, np.where(y > 150, 50.0, 1.0)).apply(X_new)
    assert skewed.shape != plain.shape or (skewed != plain).any()


def test_weight_two_is_a_row_given_twice(diabetes):
    X, y, X_new = diabetes
    # Every x has four rows already: the least number of rows of a leaf makes no difference.
    # With one column no two splits can be equally good.
    X, y = np.repeat(X[:100, [2]], 4, axis=0), np.repeat(y[:100], 4) + np.tile([0, 9, 20, 30], 100)
    twice = np.random.default_rng(0).random(len(y)) < 0.5
    given = np.concatenate([X, X[twice]]), np.concatenate([y, y[twice]])
    one, other = grown(X, y, 1.0 + twice, n_cells=4), grown(*given, n_cells=4)
    np.testing.assert_array_equal(one.apply(X_new[:, [2]]), other.apply(X_new[:, [2]]))
    np.testing.assert_array_equal(one.trees_.threshold, other.trees_.threshold)


def test_light_rows_do_not_stop_the_trees(diabetes):
    X, y, _ = diabetes
    light = np.random.default_rng(0).random(len(y)) < 0.5
    for weight in (1e-9, 1e-30):
        cells = grown(X, y, np.where(light, weight, 1.0), n_partitions=50)
        assert (cells.n_cells_ == 6).mean() > 0.9
        assert np.isfinite(cells.split_gains_).all()


# -- categories and missing values -------------------------------------------------------------

COLUMNS = Columns([Column("x", None), Column("letter", list("abcdefgh")), Column("noise", None)])


def table(n=400, seed=0, classes=0):
    """A number and codes of eight categories, both with missing values, and noise."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.integers(0, 8, n), rng.normal(size=n)])
    y = np.sin(5 * X[:, 1]) * 3 + X[:, 0] + 0.1 * rng.normal(size=n)
    X[rng.random(n) < 0.1, 0] = np.nan
    X[rng.random(n) < 0.1, 1] = np.nan
    return X, np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)) if classes else y


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_categories_and_missing_values(classes):
    X, y = table(classes=classes)
    target_type = "classification" if classes else "regression"
    cells = grown(X, y, columns=COLUMNS, target_type=target_type)
    assert (cells.trees_.n_categories == [0, 8, 0]).all()
    assert cells.split_gains_.argmax() == 1
    codes = cells.apply(X)
    assert min(np.bincount(column).min() for column in codes.T) >= 2
    new, _ = table(700, seed=1)
    unseen = new.copy()
    unseen[:, 1] = 8  # any category that training did not meet
    found = cells.apply(unseen)
    assert found.min() > NO_CELL
    again = np.concatenate([cells.apply(unseen[k : k + 1]) for k in range(0, 700, 50)])
    np.testing.assert_array_equal(again, found[::50])


def test_missing_numbers_go_where_the_mean_goes():
    X, y = table()
    cells = grown(X, y, columns=COLUMNS)
    new, _ = table(60, seed=1)
    filled = new.copy()
    filled[:, 0] = np.float32(np.nanmean(X[:, 0]))
    new[:, 0] = np.nan
    np.testing.assert_array_equal(cells.apply(new), cells.apply(filled))


def test_codes_of_categories_do_not_matter():
    X, y = table()
    order = np.random.default_rng(5).permutation(8)
    other = X.copy()
    seen = ~np.isnan(X[:, 1])
    other[seen, 1] = order[X[seen, 1].astype(int)]
    found = [grown(A, y, columns=COLUMNS).apply(A) for A in (X, other)]
    np.testing.assert_array_equal(*found)


# -- edges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target_type", ["regression", "classification"])
@pytest.mark.parametrize("what", ["X", "y", "weighted y"])
def test_nothing_to_split_gives_one_cell(what, target_type, diabetes):
    X, y, X_new = diabetes
    weight = np.linspace(1, 2, 300) if what == "weighted y" else None
    X, y = (np.full_like(X, 0.1), y > 150) if what == "X" else (X, np.full(300, 7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cells = grown(X, y, weight, target_type=target_type)
    assert set(cells.n_cells_) == {1}
    assert len(cells.n_cells_) == 20
    assert not cells.split_gains_.any()
    assert not cells.apply(X_new).any()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_rows(n, diabetes):
    X, y, X_new = diabetes
    for target, kind in ((y, "regression"), (np.arange(300) % 2, "classification")):
        cells = grown(X[:n], target[:n], target_type=kind)
        assert cells.apply(X_new).shape == (len(X_new), 20)
        assert cells.n_cells_.max() == (1 if n < 4 else 2)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e30])
def test_huge_and_tiny_ranges(diabetes, scale):
    X, y, X_new = diabetes
    plain = grown(X, y).apply(X_new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cells = grown(X * scale, y)
        assert np.mean(cells.apply(X_new * scale) == plain) > 0.999
        large = grown(X, y * 1e150 if scale > 1 else y * 1e-150)
    assert np.mean(large.apply(X_new) == plain) > 0.999
    assert np.isfinite(cells.trees_.threshold).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = grown(np.array([[1.7e308], [-1.7e308]] * 2), [0.0, 1.0, 0.0, 1.0])
    assert set(both.n_cells_) == {2}


def test_huge_numbers_with_missing_values(diabetes):
    X, y, X_new = diabetes
    X = X * 1e300
    X[::7, 2] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cells = grown(X, y)
    assert cells.split_gains_[2] > 0
    assert cells.apply(X_new).min() > NO_CELL


@pytest.mark.parametrize("far", [-1e7, 1e7])
def test_a_far_value_leaves_the_rows_where_the_tree_saw_them(diabetes, far):
    X, y, _ = diabetes
    X, y = np.concatenate([100 * X, np.full((3, 10), far)]), np.append(y, [0.0, 0.0, 0.0])
    cells = grown(X, y, n_partitions=50)
    np.testing.assert_array_equal(cells.n_cells_, cells.trees_.n_leaves)
    assert min(np.bincount(column).min() for column in cells.apply(X).T) >= 2


def test_pickle_and_clone(diabetes):
    X, y, X_new = diabetes
    cells = grown(X, y)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(cells)).apply(X_new), cells.apply(X_new)
    )
    again = clone(cells)
    assert not hasattr(again, "trees_")
    np.testing.assert_array_equal(again.fit(X, y).apply(X_new), cells.apply(X_new))
    assert cells.leaf_values_ is None


def test_what_is_rejected(diabetes):
    X, y, _ = diabetes
    with pytest.raises(ValueError, match=r"options=.*max_depth.* there are none"):
        RandomTreesPartitioner(options={"max_depth": 3}).fit(X, y)
    RandomTreesPartitioner(3, options={}, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="pass y"):
        RandomTreesPartitioner().fit(X)
    with pytest.raises(ValueError, match="infinity"):
        RandomTreesPartitioner(3).fit(np.where(X > 0.1, np.inf, X), y)
    for name, least in (("n_cells", 2), ("n_partitions", 1)):
        for value in (0, -1, 2.5, "many", None, True, least - 1):
            bad = RandomTreesPartitioner(**{name: value})
            with pytest.raises(ValueError, match=rf"{name}={value!r}.*at least {least}"):
                bad.fit(X, y)
            assert not hasattr(bad, "n_cells_")
