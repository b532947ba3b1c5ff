"""BoUTS: bins, and the splits of its trees, against scikit-learn and against brute force."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from jointleaf.multitask import BoUTSRegressor
from jointleaf.multitask._bouts.trees import Slopes, TaskSlopes, TreeShape, bin_columns, grow_tree

FREE = {"universal_price": 0.0, "task_price": 0.0}


def as_slopes(X, y, s=None, least=1, unit=None):
    """What a tree sees of a task: residuals around the mean."""
    s = np.ones(len(y)) if s is None else s
    residual = y - np.average(y, weights=s)
    unit = float(s @ residual**2) if unit is None else unit
    return TaskSlopes(bin_columns(X), Slopes((s * residual)[None], s[None]), unit, least)


def one_split(tasks, price=0.0, owned=None):
    owned = np.zeros(len(tasks[0].bins.codes), bool) if owned is None else owned
    return grow_tree(tasks, price, owned, TreeShape(1, 2))


def decrease(x, y, threshold, least=1):
    """Decrease of the residual sum of squares, as a share of the total."""
    left = x <= threshold
    if min(left.sum(), (~left).sum()) < least:
        return -np.inf
    parts = sum(((y[side] - y[side].mean()) ** 2).sum() for side in (left, ~left))
    return 1 - parts / ((y - y.mean()) ** 2).sum()


# -- bins ----------------------------------------------------------------------------------------


def test_bins_are_the_same_splits_as_their_thresholds():
    rng = np.random.default_rng(0)
    X = np.stack([rng.standard_normal(2000), rng.integers(0, 7, 2000), np.ones(2000)], axis=1)
    X[::9, 0] = np.nan
    bins = bin_columns(X)
    assert bins.cuts.shape == (3, 255)
    assert bins.has_missing
    assert np.isfinite(bins.cuts[1]).sum() == 6
    np.testing.assert_array_equal(bins.cuts[1, :6], np.arange(6) + 0.5)
    for j in range(3):
        there = ~np.isnan(X[:, j])
        for b in range(bins.cuts.shape[1]):
            below = X[there, j] <= bins.cuts[j, b]
            np.testing.assert_array_equal(bins.codes[j, there] <= b, below)
        assert (bins.codes[j, ~there] == 255).all()
    counts = np.bincount(bins.codes[0, ~np.isnan(X[:, 0])])
    assert counts.max() <= 2 * counts.min() + 2


def test_cuts_between_neighbouring_floats_and_huge_values():
    values = np.array([1.0, np.nextafter(1.0, 2.0), 1.5e308, 1.7e308, -1.7e308])
    bins = bin_columns(values[:, None])
    np.testing.assert_array_equal(bins.codes[0], [1, 2, 3, 4, 0])
    assert np.isfinite(bins.cuts[0, :4]).all()


# -- splits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [1, 7])
def test_first_split_is_that_of_scikit_learn(least):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((60, 5)), rng.standard_normal(60)
        theirs = DecisionTreeRegressor(max_depth=1, min_samples_leaf=least).fit(X, y).tree_
        tree = one_split([as_slopes(X, y, least=least)])
        assert tree.feature[0] == theirs.feature[0]
        np.testing.assert_allclose(tree.threshold[0][0], theirs.threshold[0])
        gain = theirs.impurity[0] - theirs.weighted_n_node_samples[1:] @ theirs.impurity[1:] / 60
        np.testing.assert_allclose(tree.gains.sum(), gain / theirs.impurity[0])


def test_a_whole_tree_fits_as_well_as_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 6))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2])
    ours = BoUTSRegressor(1, 0, max_depth=4, learning_rate=1.0, **FREE).fit(X, y)
    theirs = DecisionTreeRegressor(max_depth=4, min_samples_leaf=5).fit(X, y)
    # Below the root thresholds lie elsewhere in the gaps between values; the leaves are the same.
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("price", [0.0, 0.05])
def test_universal_split_has_the_largest_smallest_decrease(price):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        data = []
        for t, n in enumerate((14, 25, 18)):
            X = rng.integers(0, 6, (n, 4)).astype(float)
            data.append((X, 10.0**t * (X[:, 1] + 2 * rng.standard_normal(n))))
        owned = rng.random(4) < 0.5
        best = np.full((3, 4), -np.inf)
        for t, (X, y) in enumerate(data):
            for j in range(4):
                values = np.unique(X[:, j])
                middles = (values[1:] + values[:-1]) / 2
                best[t, j] = max(decrease(X[:, j], y, v, least=2) for v in middles)
        net = best.min(axis=0) - price * ~owned
        tree = one_split([as_slopes(X, y, least=2) for X, y in data], price, owned.copy())
        if net.max() <= 0:
            assert not tree.has_split
            continue
        j = tree.feature[0]
        assert j == net.argmax()
        np.testing.assert_allclose(tree.gains[:, j], best[:, j])
        for t, (X, y) in enumerate(data):  # every task at the best of its own thresholds
            np.testing.assert_allclose(decrease(X[:, j], y, tree.threshold[t][0]), best[t, j])


def reference_leaves(data, price, owned, depth, least):
    """Rows of every task in the leaves of a tree that is grown without any shortcut."""
    level, leaves, owned = [[np.arange(len(y)) for _, y in data]], [], owned.copy()
    for _ in range(depth):
        offers = [[brute_force(data, rows, j, least) for j in range(len(owned))] for rows in level]
        gains = np.array([[min(g for g, _ in by_task) for by_task in offer] for offer in offers])
        order = np.argsort(-(gains - price * ~owned).max(axis=1), kind="stable") if level else []
        children = []
        for i in order:
            net = gains[i] - price * ~owned
            j = net.argmax()
            if net[j] <= 1e-12:
                leaves.append(level[i])
                continue
            owned[j] = True
            parts = [
                (rows, X[rows, j] <= v)
                for (X, _), rows, (_, v) in zip(data, level[i], offers[i][j], strict=True)
            ]
            children += [
                [rows[left] for rows, left in parts],
                [rows[~left] for rows, left in parts],
            ]
        level = children
    return leaves + level


def brute_force(data, rows, j, least):
    """Largest decrease by feature j in a node, and its threshold, for every task."""
    found = []
    for (X, y), own in zip(data, rows, strict=True):
        share = y[own].var() * len(own) / (y.var() * len(y))
        values = np.unique(X[own, j])
        cuts = (values[1:] + values[:-1]) / 2
        gains = [share * decrease(X[own, j], y[own], v, least) for v in cuts]
        best = int(np.argmax(gains)) if gains else -1
        found.append((max(gains[best], 0.0), cuts[best]) if gains else (0.0, np.inf))
    return found


@pytest.mark.parametrize("sizes", [(60,), (50, 70, 60)])
@pytest.mark.parametrize("price", [0.0, 0.01, 0.04])
def test_shortcuts_change_no_split(sizes, price):
    """Neither subtracted sums nor features that are left out of sight."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        data = []
        for t, n in enumerate(sizes):
            X = rng.integers(0, 7, (n, 5)).astype(float)
            data.append(
                (X, X[:, 0] + X[:, 1] * (X[:, 2] > 2) + X[:, 3 - t] + rng.standard_normal(n))
            )
        owned = np.arange(5) == 4
        expected = reference_leaves(data, price, owned, 3, least=3)
        slopes = [as_slopes(X, y, least=3) for X, y in data]
        tree = grow_tree(slopes, price, owned.copy(), TreeShape(3, 8))

        def as_sets(leaves):
            return {tuple(tuple(rows.tolist()) for rows in leaf) for leaf in leaves}

        assert as_sets(rows for _, rows in tree.leaves) == as_sets(expected)


def test_what_one_node_buys_is_free_for_the_others_of_its_level():
    """Shortcuts leave features out of sight until they are owned; the splits must not differ."""
    rng = np.random.default_rng(4)
    X = rng.integers(0, 2, (400, 3)).astype(float)
    noise = 0.1 * rng.standard_normal(400)
    y = 3 * X[:, 0] + np.where(X[:, 0] > 0, 1.0, 0.5) * X[:, 1] + noise
    gains = [
        decrease(X[own, 1], y[own], 0.5) * y[own].var() * own.sum() / y.var() / 400
        for own in (X[:, 0] == 0, X[:, 0] == 1)
    ]
    price = (gains[0] + gains[1]) / 2  # worth it in one of the nodes alone
    assert gains[0] < price < gains[1]
    tree = grow_tree([as_slopes(X, y)], price, np.zeros(3, bool), TreeShape(2, 4))
    assert tree.feature[0] == 0
    assert [tree.feature[tree.left[0]], tree.feature[tree.right[0]]] == [1, 1]


def test_missing_values_go_where_they_help():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 300)
    x[:40] = np.nan
    X = np.stack([x, np.linspace(0, 1e-3, 300)], axis=1)
    X[:, 1] = rng.permutation(X[:, 1])  # rows that are equal would be one row
    rows = [[np.nan, 0], [0.1, 0], [0.9, 0], [1e9, 0]]

    def first_tree(y):
        return BoUTSRegressor(1, 0, max_depth=1, learning_rate=1.0, **FREE).fit(X, y).predict(rows)

    missing = np.isnan(x)
    np.testing.assert_allclose(first_tree(missing | (x > 0.5)), [1, 0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(first_tree(~missing & (x > 0.5)), [0, 0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(first_tree(missing), [1, 0, 0, 0], atol=1e-12)
    # Never missing in training: with the larger side.
    whole = BoUTSRegressor(1, 0, max_depth=1, learning_rate=1.0, **FREE).fit(
        np.arange(40.0)[:, None], np.arange(40) > 29
    )
    np.testing.assert_allclose(whole.predict([[np.nan]]), [0.0], atol=1e-12)
