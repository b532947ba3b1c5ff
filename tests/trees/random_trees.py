"""Random trees, rows at their thresholds, and the leaves that walking finds."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from jointleaf._trees.flat import NodeTable, flatten
from jointleaf._trees.native import ZERO
from jointleaf._trees.routing import Router

__all__ = ["mixed_trees", "rows", "trees", "walked"]

D, CATEGORIES = 4, np.array([0, 3, 0, 40])  # columns 1 and 3 hold categories
EDGES = [
    *(0.0, -0.0, 1.0, -1.0, 0.1, 1e-36, -1e-36, ZERO, -ZERO, 5e-324, -5e-324, 1e300, 1e-300),
    *(float(np.nextafter(ZERO, 1)), float(np.nextafter(-ZERO, -1)), float(np.float32(0.1))),
    *(np.inf, -np.inf, 1.7976931348623157e308, 3.5e38, 2.0**53 + 1.0),
]
NUMBERS = st.one_of(st.sampled_from(EDGES), st.floats(allow_nan=False))


@st.composite
def trees(draw):
    """Random trees, with splits on numbers and on categories, some leaves no cell."""
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        n_leaves = draw(st.integers(1, 12))
        left, right, leaves = {}, {}, [0]
        for _ in range(n_leaves - 1):  # split one of the leaves
            node = leaves.pop(draw(st.integers(0, len(leaves) - 1)))
            left[node], right[node] = 2 * len(left) + 1, 2 * len(left) + 2
            leaves += [left[node], right[node]]
        m = 2 * n_leaves - 1
        feature, threshold = np.full(m, -1), np.zeros(m)
        missing_left, categories = np.zeros(m, bool), {}
        for node in left:
            feature[node] = draw(st.integers(0, D - 1))
            missing_left[node] = draw(st.booleans())
            if CATEGORIES[feature[node]]:
                size = int(CATEGORIES[feature[node]]) + 1
                bits = st.lists(st.booleans(), min_size=size, max_size=size)
                categories[node] = np.array(draw(bits))
            else:
                threshold[node] = draw(NUMBERS)
        children = [np.array([side.get(k, -1) for k in range(m)]) for side in (left, right)]
        tables.append(NodeTable(feature, threshold, *children, missing_left, categories))
    flat = flatten(
        tables,
        D,
        CATEGORIES,
        single_precision=draw(st.booleans()),
        zero_is_missing=draw(st.booleans()),
    )
    cells = np.where(flat.leaf_numbers == 3, -1, flat.leaf_numbers)
    return replace(flat, cell_of_leaf=cells.astype(np.int32))


@st.composite
def rows(draw, flat):
    """Rows with numbers at thresholds and beside them, codes, missing values and tiny numbers."""
    at = flat.threshold[flat.table < 0].tolist()
    with np.errstate(over="ignore", under="ignore"):
        near = [float(np.nextafter(t, way)) for t in at for way in (-np.inf, np.inf)]
    numbers = st.one_of(NUMBERS, st.just(np.nan), *([st.sampled_from([*at, *near])] if at else []))
    codes = st.sampled_from([0.0, 1.0, 2.0, 3.0, 31.0, 32.0, 39.0, 40.0, 99.0, -1.0, np.nan])
    columns = [codes if k else numbers for k in CATEGORIES]
    some = draw(st.lists(st.tuples(*columns), min_size=1, max_size=30))
    with np.errstate(over="ignore", under="ignore"):
        return np.array(some).astype(draw(st.sampled_from([np.float64, np.float32])))


def mixed_trees():
    """A large tree between two small ones."""
    rng = np.random.default_rng(1)
    tables = []
    for n_splits in (3, 200, 3):
        k = np.arange(2 * n_splits + 1)
        is_split = k < n_splits
        threshold = np.where(is_split, rng.standard_normal(len(k)), 0.0)
        tables.append(
            NodeTable(
                np.where(is_split, rng.integers(0, 3, len(k)), -1),
                threshold,
                np.where(is_split, 2 * k + 1, -1),
                np.where(is_split, 2 * k + 2, -1),
                rng.random(len(k)) < 0.5,
            )
        )
    return flatten(tables, 3)


def walked(flat, X):
    """Cells (n, P) of rows that are walked down every tree, without tables and LightGBM."""
    router = Router(flat)
    leaves = np.empty((flat.n_trees, len(X)), np.int32)
    router._walk(np.arange(flat.n_trees), router.columns(X), leaves)
    return flat.cell_of_leaf[leaves.T + flat.leaf_starts[:-1]]
