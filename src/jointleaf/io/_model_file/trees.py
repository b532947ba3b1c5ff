"""Trees in portable form, checked so that no row can leave them or go in circles."""

from __future__ import annotations

from typing import Any

import numpy as np

from jointleaf._trees.flat import FlatTrees, KeyPart, Lookup
from jointleaf.io._model_file.fields import Arrays, Part, number

__all__ = ["read_trees", "write_trees"]

_MOST_LEVELS = 2**31


def write_trees(trees: FlatTrees, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for trees."""
    return {
        "n_features": int(trees.n_features),
        **{
            name: arrays.add(getattr(trees, name))
            for name in (
                *("starts", "feature", "threshold", "left", "right", "missing_left", "table"),
                *("levels_left", "n_leaves", "cell_of_leaf", "n_levels"),
            )
        },
        "single_precision": bool(trees.single_precision),
        "zero_is_missing": bool(trees.zero_is_missing),
        "lookups": [_write_lookup(lookup, arrays) for lookup in trees.lookups],
        "leaf_values": arrays.maybe(trees.leaf_values),
    }


def read_trees(part: Part, n_features: int) -> FlatTrees:
    """Read trees on rows of n_features columns.

    Checked: every split but the first of a tree is the child of exactly one split, which comes
    before it; every leaf is the child of exactly one split; columns, cells and tables of levels
    exist.
    """
    part.integer("n_features", n_features, n_features)
    n_leaves = part.indices("n_leaves", 2**31, low=1)
    if not n_leaves.size:
        part.fail("has no trees", "n_leaves")
    n_trees, n_splits = len(n_leaves), int((n_leaves - 1).sum())
    starts = part.indices("starts", n_splits + 1, length=n_trees + 1)
    if starts[0] != 0 or (np.diff(starts) != n_leaves - 1).any():
        part.fail("does not fit n_leaves", "starts")
    n_levels = part.indices("n_levels", _MOST_LEVELS, length=n_features)
    lookups = tuple(_read_lookup(p, n_levels) for p in part.children("lookups"))
    trees = FlatTrees(
        n_features=n_features,
        starts=starts,
        feature=part.indices("feature", n_features + len(lookups), length=n_splits).astype("i4"),
        threshold=part.array("threshold", "f8", (n_splits,)),
        left=part.array("left", "i4", (n_splits,)),
        right=part.array("right", "i4", (n_splits,)),
        missing_left=part.array("missing_left", "b1", (n_splits,)),
        table=part.array("table", "i8", (n_splits,)),
        levels_left=part.array("levels_left", "b1", (None,)),
        n_leaves=n_leaves,
        cell_of_leaf=part.array("cell_of_leaf", "i4", (int(n_leaves.sum()),)),
        n_levels=n_levels,
        single_precision=part.flag("single_precision"),
        zero_is_missing=part.flag("zero_is_missing"),
        lookups=lookups,
        leaf_values=part.maybe_array("leaf_values", "f8", (int(n_leaves.sum()), None), finite=True),
    )
    if np.isnan(trees.threshold).any():
        part.fail("holds NaN", "threshold")
    _check_children(part, trees)
    _check_tables(part, trees)
    _check_cells(part, trees)
    part.close()
    return trees


def _check_children(part: Part, trees: FlatTrees) -> None:
    n_splits = len(trees.feature)
    tree, split = trees.tree_of_split, np.arange(n_splits)
    children, leaves = [], []
    for name in ("left", "right"):
        child = getattr(trees, name).astype(np.int64)
        is_leaf = child < 0
        if (child[~is_leaf] <= split[~is_leaf]).any():
            part.fail("names a split that does not come after its parent", name)
        if (child[~is_leaf] >= trees.starts[1:][tree[~is_leaf]]).any():
            part.fail("names a split of another tree", name)
        own = tree[is_leaf]
        if (~child[is_leaf] >= trees.n_leaves[own]).any():
            part.fail("names a leaf that its tree does not have", name)
        children.append(child[~is_leaf])
        leaves.append(trees.leaf_starts[own] + ~child[is_leaf])
    times = np.bincount(np.concatenate(children), minlength=n_splits)
    expected = np.ones(n_splits, np.int64)
    expected[trees.starts[:-1][np.diff(trees.starts) > 0]] = 0
    if (times != expected).any():
        part.fail("has a split that is not the child of exactly one other")
    single = trees.leaf_starts[:-1][np.diff(trees.starts) == 0]  # trees of one leaf alone
    met = np.bincount(np.concatenate([*leaves, single]), minlength=len(trees.cell_of_leaf))
    if (met != 1).any():
        part.fail("has a leaf that is not the child of exactly one split")


def _check_tables(part: Part, trees: FlatTrees) -> None:
    """Splits on columns with categories, and only these, have a table of all levels."""
    levels = np.concatenate([trees.n_levels, np.zeros(len(trees.lookups), np.intp)])[trees.feature]
    if ((levels > 0) != (trees.table >= 0)).any() or (trees.table < -1).any():
        part.fail("does not fit the columns with categories", "table")
    on_levels = levels > 0
    if (trees.table[on_levels] > len(trees.levels_left) - levels[on_levels] - 1).any():
        part.fail("goes beyond levels_left", "table")


def _check_cells(part: Part, trees: FlatTrees) -> None:
    cells, limit = trees.cell_of_leaf, np.repeat(trees.n_leaves, trees.n_leaves)
    if (cells < -1).any() or (cells >= limit).any():
        part.fail("holds cells that the trees do not have", "cell_of_leaf")
    n_cells = trees.n_cells
    if (n_cells < 1).any():
        part.fail("has a tree without any cell", "cell_of_leaf")
    start = np.repeat(np.cumsum(n_cells) - n_cells, trees.n_leaves)
    found = np.bincount((start + cells)[cells >= 0], minlength=int(n_cells.sum()))
    if (found == 0).any():
        part.fail("leaves a cell number out", "cell_of_leaf")


# -- look-ups of levels --------------------------------------------------------------------------


def _write_lookup(lookup: Lookup, arrays: Arrays) -> dict[str, Any]:
    return {
        "parts": [
            {
                "column": int(part.column),
                "hashes": arrays.maybe(part.hashes),
                "threshold": number(part.threshold),
                "missing_above": bool(part.missing_above),
            }
            for part in lookup.parts
        ],
        "keys": arrays.add(lookup.keys),
        "values": arrays.add(lookup.values),
        "default": number(lookup.default),
    }


def _read_lookup(part: Part, n_levels: np.ndarray) -> Lookup:
    parts = tuple(_read_key(p, n_levels) for p in part.children("parts"))
    if not parts:
        part.fail("is empty", "parts")
    keys = part.array("keys", "u8", (None,))
    if (keys[1:] <= keys[:-1]).any():
        part.fail("must rise", "keys")
    values = part.array("values", "f8", (len(keys),), finite=True)
    default = part.number("default")
    part.close()
    return Lookup(parts, keys, values, default)


def _read_key(part: Part, n_levels: np.ndarray) -> KeyPart:
    column = part.integer("column", 0, len(n_levels) - 1)
    if (part.is_none("hashes")) != (n_levels[column] == 0):
        part.fail("does not fit the column", "hashes")
    hashes = part.maybe_array("hashes", "u8", (int(n_levels[column]) + 2,))
    key = KeyPart(
        column, hashes, part.number("threshold", finite=False), part.flag("missing_above")
    )
    part.close()
    return key
