"""Credits along the ways through trees, against a plain walk and closed forms."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor

from jointleaf import Frobenius, JOPLEnRegressor, refine
from jointleaf._trees.flat import NodeTable, flatten
from jointleaf.inspection._parts import tree_credits

RIDGE = Frobenius(0.01, 0.01)
X, Y = make_friedman1(150, n_features=5, noise=0.5, random_state=0)
NEW = make_friedman1(40, n_features=5, random_state=1)[0]


def walked(trees, value, weight, rows):
    """Saabas' way, written down plainly: rows one by one, nodes one by one."""
    n_splits, first = len(trees.feature), trees.leaf_starts
    credits = np.zeros((len(rows), trees.n_features))
    base = 0.0

    def leaves(child, tree):
        if child < 0:
            return [first[tree] + ~child]
        return leaves(trees.left[child], tree) + leaves(trees.right[child], tree)

    def expected(child, tree):
        below = leaves(child, tree)
        return np.average(value[below], weights=weight[below])

    for tree in range(trees.n_trees):
        assert n_splits
        for i, row in enumerate(rows):
            node = trees.starts[tree]
            if i == 0:
                base += expected(node, tree)
            while node >= 0:
                j = trees.feature[node]
                child = trees.left[node] if row[j] <= trees.threshold[node] else trees.right[node]
                credits[i, j] += expected(child, tree) - expected(node, tree)
                node = child
    return base, credits


@pytest.mark.parametrize(
    "trained",
    [
        GradientBoostingRegressor(n_estimators=5, max_depth=3, random_state=0),
        ExtraTreesRegressor(4, max_leaf_nodes=12, random_state=0),
    ],
    ids=["boosting", "extra trees"],
)
def test_credits_are_those_of_a_plain_walk(trained):
    model = refine(trained.fit(X, Y), X, Y, penalty=RIDGE, cells="constant", root_cell=False)
    trees = model.partitioner_.trees_
    codes = model.apply(X) + np.cumsum(trees.n_cells) - trees.n_cells
    weight = np.bincount(codes.reshape(-1), minlength=trees.n_cells.sum())
    value = model.coef_.sum(axis=1) + model.intercept_
    rows = NEW.astype(np.float32).astype(float) if trees.single_precision else NEW
    base, credits = walked(trees, value, weight.astype(float), rows)
    found = model.explain(rows)
    np.testing.assert_allclose(found.cells, credits, atol=1e-10)
    assert found.baseline == pytest.approx(base + model.offset_)
    assert not found.linear.any()


def test_an_additive_model_is_taken_apart_into_its_terms():
    """Steps with constant cells are a sum of functions of one column each."""
    model = JOPLEnRegressor("steps", penalty=RIDGE, cells="constant", random_state=0).fit(X, Y)
    found = model.explain(NEW)
    for j in range(5):
        moved = np.tile(NEW[:1], (len(NEW) + len(X), 1))
        moved[:, j] = np.concatenate([NEW[:, j], X[:, j]])
        term = model.predict(moved)
        expected = term[: len(NEW)] - term[len(NEW) :].mean()
        np.testing.assert_allclose(found.values[:, j], expected, atol=1e-10)


def test_a_linear_model_is_taken_apart_into_slopes_times_distances():
    from jointleaf.partitions import RootCell

    model = JOPLEnRegressor(RootCell(), penalty=Frobenius(0.1), root_cell=False).fit(X, Y)
    expected = (NEW - X.mean(axis=0)) * model.coef_[0]
    inside = (X.min(axis=0) <= NEW) & (X.max(axis=0) >= NEW)
    found = model.explain(NEW)
    np.testing.assert_allclose(found.values[inside], expected[inside], atol=1e-10)
    assert found.baseline == pytest.approx(Y.mean())
    assert not found.cells.any()


def stump(column, left, right):
    """A tree of one split at zero, whose leaves are worth `left` and `right`."""
    return NodeTable(
        np.array([column, -1, -1]),
        np.zeros(3),
        np.array([1, -1, -1]),
        np.array([2, -1, -1]),
        np.zeros(3, bool),
        value=np.array([[0.0], [left], [right]]),
    )


def test_leaves_without_training_rows_are_worth_their_value_and_count_nothing():
    trees = flatten([stump(0, 1.0, 3.0), stump(2, 5.0, 7.0)], 3)
    credits = tree_credits(trees, trees.leaf_values, np.array([1.0, 0.0, 0.25, 0.75]))
    np.testing.assert_allclose(credits.mean, [1.0 + 6.5])
    expected = [[0, 0, 0], [2, 0, 0], [0, 0, -1.5], [0, 0, 0.5]]
    np.testing.assert_allclose(credits.table, expected)


def test_wide_tables_are_sparse_and_give_the_same():
    wide = np.concatenate([X, np.random.default_rng(0).random((150, 90))], axis=1)
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(wide, Y)
    found = model.explain(wide)
    np.testing.assert_allclose(found.prediction, model.predict(wide), atol=1e-10)
    used = np.zeros(95, bool)
    used[model.partitioner_.split_features_] = True
    assert not found.cells[:, ~used].any()
    assert found.cells[:, used].any(axis=0).all()


def test_single_precision_is_explained_in_single_precision():
    rows = X.astype(np.float32)
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(rows, Y)
    found = model.explain(rows)
    np.testing.assert_allclose(found.prediction, model.predict(rows), rtol=2e-5)
