"""Merged leaves of flat trees, and some of the trees."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_flat import random_rows, random_tree

from jointleaf._trees.flat import flatten
from jointleaf._trees.routing import Router


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_merged_leaves_share_a_code_and_all_others_keep_theirs(seed, has_empty_leaves):
    rng = np.random.default_rng(seed)
    n_categories = np.array([0, 3, 0, 5])
    sizes = rng.integers(1, 90 if seed % 5 == 0 else 9, 4)
    trees = flatten([random_tree(rng, k, n_categories, 12) for k in sizes], 4, n_categories)
    rows = random_rows(rng, 120, n_categories)
    if has_empty_leaves:  # leaves without training rows are no cells
        trees = trees.numbered(Router(trees)(rows[:30]))
    splits = trees.twigs
    while len(splits):
        leaves = Router(flat_leaves(trees))(rows)
        chosen = splits[rng.random(len(splits)) < 0.6]
        left, right = trees.leaves_of(chosen)
        merged = trees.merged(chosen)
        after = Router(merged)(rows)
        for p in range(4):
            start = trees.leaf_starts[p]
            groups = {int(r): int(k) for k, r in zip(left, right, strict=True)}
            own = np.array([groups.get(int(k), int(k)) for k in start + leaves[:, p]])
            known = sorted(
                {min(c - {-1}) for c in leaf_cells(trees, p, groups).values() if c - {-1}}
            )
            number = {cell: k for k, cell in enumerate(known)}
            sets = leaf_cells(trees, p, groups)
            expected = [number[min(sets[k] - {-1})] if sets[k] - {-1} else -1 for k in own]
            np.testing.assert_array_equal(after[:, p], expected)
            assert merged.n_cells[p] == len(known)
        assert len(merged.feature) == len(trees.feature) - len(chosen)
        if not len(chosen):
            break
        trees, splits = merged, merged.twigs


def flat_leaves(trees):
    """The same trees with every leaf its own cell."""
    numbers = np.concatenate([np.arange(k) for k in trees.n_leaves]).astype(np.int32)
    return replace(trees, cell_of_leaf=numbers)


def leaf_cells(trees, p, groups):
    """Cells of the leaves of tree p that become one, by the leaf that stays."""
    sets = {}
    for leaf in range(trees.leaf_starts[p], trees.leaf_starts[p + 1]):
        sets.setdefault(groups.get(leaf, leaf), set()).add(int(trees.cell_of_leaf[leaf]))
    return sets


def test_some_of_the_trees():
    rng = np.random.default_rng(0)
    n_categories = np.array([0, 4])
    trees = flatten([random_tree(rng, k, n_categories, 9) for k in (5, 1, 70, 3)], 2, n_categories)
    rows = random_rows(rng, 200, n_categories)
    for kept in ([1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1]):
        mask = np.array(kept, bool)
        np.testing.assert_array_equal(Router(trees.only(mask))(rows), Router(trees)(rows)[:, mask])
