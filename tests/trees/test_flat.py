"""Trees of any shape in portable form: rows are routed as a plain walk says."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointleaf._data.columns import as_codes
from jointleaf._trees.flat import KeyPart, Lookup, NodeTable, flatten
from jointleaf._trees.routing import Router


def walk(tree, x, n_categories, *, single, zero_is_missing):
    """Give the node in which one row ends: the rules of `FlatTrees`, one step at a time."""
    node = 0
    while tree.feature[node] >= 0:
        j = tree.feature[node]
        value = float(x[j])
        if node in tree.categories_left:
            known = 0 <= value < n_categories[j]
            goes_left = tree.categories_left[node][int(value) if known else -1]
        else:
            with np.errstate(over="ignore"):
                goes_left = (float(np.float32(value)) if single else value) <= tree.threshold[node]
            if zero_is_missing and value == 0:
                value = np.nan
        if np.isnan(value):
            goes_left = tree.missing_left[node]
        node = (tree.left if goes_left else tree.right)[node]
    return node


def leaves_in_order(tree, node=0):
    """Leaves from left to right."""
    if tree.feature[node] < 0:
        return [node]
    return leaves_in_order(tree, tree.left[node]) + leaves_in_order(tree, tree.right[node])


GRID = np.array([-2.5, -1.0, -0.0, 0.1, 1.0, 2.0, 1e39])


def random_tree(rng, n_leaves, n_categories, n_tests):
    """Split random leaves by tests from a pool of `n_tests`: few tests are met again and again."""
    pool = []
    for _ in range(n_tests):
        j = rng.integers(len(n_categories))
        left = rng.random(n_categories[j] + 1) < 0.5 if n_categories[j] else None
        pool.append((j, rng.choice(GRID), rng.random() < 0.5, left))
    nodes, tables = [[-1, 0.0, 0, 0, False]], {}
    for _ in range(n_leaves - 1):
        leaves = [k for k, node in enumerate(nodes) if node[0] < 0]
        k = leaves[rng.integers(len(leaves))]
        j, threshold, missing_left, left = pool[rng.integers(n_tests)]
        nodes[k] = [j, threshold, len(nodes), len(nodes) + 1, missing_left]
        if left is not None:
            tables[k] = left
        nodes += [[-1, 0.0, 0, 0, True], [-1, 0.0, 0, 0, True]]
    columns = [np.array(c) for c in zip(*nodes, strict=True)]
    return NodeTable(*columns, categories_left=tables)


def random_rows(rng, n, n_categories):
    rows = rng.choice(
        [*GRID, np.nextafter(0.1, 1), np.nextafter(0.1, 0), 5.0], (n, len(n_categories))
    )
    for j in np.flatnonzero(n_categories):
        rows[:, j] = rng.integers(-1, n_categories[j] + 3, n)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    return rows


def expected_codes(tables, rows, n_categories, **rules):
    codes = np.empty((len(rows), len(tables)), int)
    for p, tree in enumerate(tables):
        number = {leaf: k for k, leaf in enumerate(leaves_in_order(tree))}
        codes[:, p] = [number[walk(tree, x, n_categories, **rules)] for x in rows]
    return codes


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(
        st.sampled_from([1, 2, 3, 8, 9, 10, 17, 33, 64, 65, 90]), min_size=1, max_size=4
    ),
    n_tests=st.integers(1, 40),
    single=st.booleans(),
    zero_is_missing=st.booleans(),
)
def test_random_trees_are_routed_as_they_are_walked(seed, sizes, n_tests, single, zero_is_missing):
    rng = np.random.default_rng(seed)
    n_categories = np.array([0, 3, 0, 1, 0, 40])
    tables = [random_tree(rng, k, n_categories, n_tests) for k in sizes]
    rules = {"single": single, "zero_is_missing": zero_is_missing}
    trees = flatten(
        tables, 6, n_categories, single_precision=single, zero_is_missing=zero_is_missing
    )
    np.testing.assert_array_equal(trees.n_leaves, sizes)
    rows = random_rows(rng, 40, n_categories)
    expected = expected_codes(tables, rows, n_categories, **rules)
    np.testing.assert_array_equal(Router(trees)(rows), expected)
    cells = trees.numbered(expected[:15])
    again = Router(cells)(rows)
    for p, (code, leaf) in enumerate(zip(again.T, expected.T, strict=True)):
        met = np.unique(leaf[:15])
        place = np.searchsorted(met, leaf)
        known = np.isin(leaf, met)
        np.testing.assert_array_equal(code, np.where(known, place, -1))
        assert cells.n_cells[p] == len(met)


@pytest.mark.parametrize("depth", [1, 2, 3, 6, 7, 8])
def test_symmetric_trees_make_every_test_once(depth):
    rng = np.random.default_rng(depth)
    m = 2 ** (depth + 1) - 1  # nodes in heap order
    level = np.log2(np.arange(m) + 1).astype(int)
    is_leaf = level == depth
    tests = rng.permutation(np.linspace(-1, 1, depth))
    node = np.arange(m)
    tree = NodeTable(
        feature=np.where(is_leaf, -1, level % 3),
        threshold=np.append(tests, 0.0)[level],
        left=2 * node + 1,
        right=2 * node + 2,
        missing_left=level % 2 == 0,
    )
    X = rng.uniform(-1.2, 1.2, (2000, 3))
    X[rng.random(X.shape) < 0.1] = np.nan
    codes = np.zeros(len(X), int)
    for k, threshold in enumerate(tests):
        x = X[:, k % 3]
        goes_left = np.where(np.isnan(x), k % 2 == 0, x <= threshold)
        codes = 2 * codes + ~goes_left
    router = Router(flatten([tree], 3))
    np.testing.assert_array_equal(router(X)[:, 0], codes)
    assert len(router._tables.batches[0].tables[0].sets) == -(-depth // 3) + 2


def test_single_leaves_and_empty_ensembles():
    leaf = NodeTable([-1], [0.0], [0], [0], [False])
    split = NodeTable([1, -1, -1], [0.5, 0, 0], [1, 0, 0], [2, 0, 0], [True, False, False])
    X = np.array([[9.0, 0.5], [9.0, 0.6], [9.0, np.nan]])
    trees = flatten([leaf, split, leaf], 2)
    np.testing.assert_array_equal(Router(trees)(X), [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(trees.split_features, [1])
    none = flatten([], 2)
    np.testing.assert_array_equal(Router(none)(X), np.zeros((3, 1)))
    assert (none.n_trees, none.n_cells.tolist(), none.split_features.size) == (1, [1], 0)
    assert Router(trees)(X[:0]).shape == (0, 3)
    deep = 3000  # a chain: no recursion
    node = np.arange(2 * deep + 1)
    chain = NodeTable(
        np.where(node < deep, 0, -1), -node.astype(float), node + 1, node + deep + 1, node < 0
    )
    codes = Router(flatten([chain], 1))(np.array([[0.5], [-0.5], [-deep]]))
    np.testing.assert_array_equal(codes.ravel(), [deep, deep - 1, 0])


@pytest.mark.parametrize("n_leaves", [20, 120])
def test_looked_up_columns(n_leaves):
    """A key of two levels and a threshold; its number is compared as any other."""
    multiplier, modulus = 0x4906BA494954CB65, 2**64
    rng = np.random.default_rng(0)
    hashes = [rng.integers(0, 2**63, 5, dtype=np.uint64), rng.integers(0, 2**63, 4, np.uint64)]
    parts = (KeyPart(0, hashes[0]), KeyPart(2, hashes[1]), KeyPart(1, threshold=0.25))

    def key(codes):
        h = 0
        for value in codes:
            h = multiplier * (h + multiplier * int(value)) % modulus
        return h

    wanted = {
        key((hashes[0][a], hashes[1][b], c)): rng.normal()
        for a in range(5)
        for b in range(4)
        for c in range(2)
        if (a + b + c) % 3
    }
    keys = np.array(sorted(wanted), dtype=np.uint64)
    lookup = Lookup(parts, keys, np.array([wanted[int(k)] for k in keys]), 0.7)
    n_categories = np.array([3, 0, 2])
    table = random_tree(rng, n_leaves, np.array([0]), n_leaves)
    cuts = rng.normal(size=len(table.threshold))
    table = NodeTable(
        np.where(table.feature >= 0, 3, -1), cuts, table.left, table.right, table.missing_left
    )
    trees = flatten([table], 3, n_categories, lookups=(lookup,))
    np.testing.assert_array_equal(trees.split_features, [0, 1, 2])
    X = np.column_stack(
        [rng.choice([0, 1, 2, 8, np.nan], 500), rng.normal(size=500), rng.choice([0, 1, 5], 500)]
    )
    numbers = np.array(
        [
            wanted.get(key((hashes[0][a], hashes[1][b], x > 0.25)), 0.7)
            for a, b, x in zip(as_codes(X[:, 0], 3), as_codes(X[:, 2], 2), X[:, 1], strict=True)
        ]
    )
    expected = expected_codes(
        [NodeTable(np.where(table.feature >= 0, 0, -1), cuts, table.left, table.right, cuts < 0)],
        numbers[:, None],
        [0],
        single=False,
        zero_is_missing=False,
    )
    codes = Router(trees)(X)
    np.testing.assert_array_equal(codes, expected)
    assert len(np.unique(codes)) > 3


def test_threads_and_blocks_change_nothing():
    rng = np.random.default_rng(5)
    n_categories = np.array([0, 3, 0, 40])
    tables = [random_tree(rng, k, n_categories, 30) for k in (4, 30, 64, 100)]
    router = Router(flatten(tables, 4, n_categories))
    X = random_rows(rng, 50_000, n_categories)
    codes = router(X)
    np.testing.assert_array_equal(router(X, 2), codes)
    np.testing.assert_array_equal(router(X[40_000:]), codes[40_000:])
    np.testing.assert_array_equal(router(np.asfortranarray(X)), codes)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(router))(X[:99]), codes[:99])
