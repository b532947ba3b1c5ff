"""Leaves found by LightGBM's C++ code, whatever library grew the trees.

`FlatTrees` are written as the text of a LightGBM model, which LightGBM loads and applies. It is
three to five times faster than walking trees with NumPy; for many rows of small trees
`_trees.routing` is faster still. The leaves are the same for every row:

- columns with categories are passed as codes, with a code for missing values too, and splits on
  them as sets of codes;
- LightGBM takes numbers up to 1e-35 for zero, so that rows with such numbers in a column where a
  threshold tells them from zero are left to the caller.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees

ZERO = float(np.float32(1e-35))  # LightGBM takes smaller numbers for zero
_LEAVES_AT_ONCE = 4000  # of trees that stay in the cache together
_ROWS_AT_ONCE = 16384
_THREADED_ROWS = 1024  # from which on threads are worth starting
#: Seconds that LightGBM takes to load a tree and one of its leaves, and to be imported.
_TREE_LOADED, _LEAF_LOADED, _IMPORTED = 2e-5, 1.4e-6, 1.5
_SORTED_ROWS = 2048  # from which on rows that go the same way are worth being put side by side
#: Bits of LightGBM's decision types, and its two kinds of missing values among them.
_ON_CATEGORIES, _MISSING_LEFT, _ZERO_MISSING, _NAN_MISSING = 1, 2, 1 << 2, 2 << 2


class NativeTrees:
    """Finds the leaves of rows with LightGBM."""

    def __init__(self, trees: FlatTrees) -> None:
        import lightgbm

        # A booster per part, not ranges of the trees of one: those are no matter of the call but
        # set in the booster, which threads share.
        self._parts = [
            (part, lightgbm.Booster(model_str=_model_text(trees, part)))
            for part in _parts(trees.n_leaves)
        ]
        self._n_trees = trees.n_trees
        below_zero = (trees.threshold >= -ZERO) & (trees.threshold < ZERO) & (trees.table < 0)
        self._near_zero = np.unique(trees.feature[below_zero & (not trees.zero_is_missing)])

    def inexact_rows(self, X: NDArray) -> NDArray[np.intp]:
        """Return the rows of X (n, D) that LightGBM may send another way: most often none."""
        if not len(self._near_zero):
            return self._near_zero.astype(np.intp)
        numbers = X[:, self._near_zero]
        return np.flatnonzero(((np.abs(numbers) <= ZERO) & (numbers != 0)).any(axis=1))

    def __call__(self, X: NDArray, n_jobs: int = 1) -> NDArray[np.int32]:
        """Return the leaves (n, P) of rows X (n, D), floats with codes in columns of categories."""
        leaves = np.empty((len(X), self._n_trees), np.int32)
        n_jobs = n_jobs if len(X) >= _THREADED_ROWS else 1
        for begin in range(0, len(X), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            self._fill(X[rows], leaves[rows], n_jobs)
        return leaves

    def _fill(self, X: NDArray, leaves: NDArray[np.int32], n_jobs: int) -> None:
        (first, booster), *later = self._parts
        leaves[:, first] = _leaves(booster, X, n_jobs)
        if not later:
            return
        if len(X) < _SORTED_ROWS:
            for trees, booster in later:
                leaves[:, trees] = _leaves(booster, X, n_jobs)
            return
        # A processor foresees the steps of a row that the one before has made, too.
        order = np.argsort(leaves[:, 0])
        X, ordered = X[order], leaves[order]
        for trees, booster in later:
            ordered[:, trees] = _leaves(booster, X, n_jobs)
        leaves[order] = ordered


class LazyTrees:
    """Chosen trees (P,), loaded once that takes less time than it would have saved so far.

    `saved` are the seconds that LightGBM saves for one row and tree.
    """

    def __init__(self, trees: FlatTrees, chosen: NDArray[np.bool_], saved: float) -> None:
        self.chosen, self._saved = chosen, saved
        self._trees = trees
        self._native: NativeTrees | None = None
        self._n_rows = 0.0  # that others found the leaves of

    def loaded(self, n_rows: int, *, now: bool = False) -> NativeTrees | None:
        """Return the trees for some rows; None where loading is not worth it, or not possible.

        With `now` it is worth it, unless LightGBM would have to be imported.
        """
        if self._native is not None:
            return self._native
        self._n_rows += n_rows
        n_trees = int(np.count_nonzero(self.chosen))
        is_imported = "lightgbm" in sys.modules
        n_leaves = int(self._trees.n_leaves[self.chosen].sum())
        seconds = _TREE_LOADED * n_trees + _LEAF_LOADED * n_leaves
        seconds += 0.0 if is_imported else _IMPORTED
        if (now and is_imported) or self._n_rows * n_trees * self._saved > seconds:
            try:
                self._native = NativeTrees(self._trees.only(self.chosen))
            except (ImportError, OSError):  # trees are portable: others find their leaves
                self._n_rows = -np.inf
        return self._native


def _leaves(booster: Any, X: NDArray, n_jobs: int) -> NDArray[np.int32]:
    if not len(X):
        return np.zeros((0, booster.num_trees()), np.int32)
    return np.asarray(booster.predict(X, pred_leaf=True, num_threads=n_jobs))


def _parts(n_leaves: NDArray[np.intp]) -> Iterator[slice]:
    """Yield consecutive trees of a few thousand leaves together."""
    begin, size = 0, 0
    for p, n in enumerate(n_leaves.tolist()):
        if size and size + n > _LEAVES_AT_ONCE:
            yield slice(begin, p)
            begin, size = p, 0
        size += n
    yield slice(begin, len(n_leaves))


# -- model text ------------------------------------------------------------------------------------


def _model_text(trees: FlatTrees, part: slice) -> str:
    """Return a LightGBM model of some trees, in whose leaves rows are where they are here."""
    n_columns = trees.n_features + len(trees.lookups)
    blocks = [
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0",
        f"max_feature_idx={n_columns - 1}",
        f"feature_names={_line(f'Column_{j}' for j in range(n_columns))}",
        f"feature_infos={_line('none' for _ in range(n_columns))}\n",
    ]
    bounds = trees.starts[part.start : part.stop + 1].tolist()
    for p, splits in enumerate(map(slice, bounds, bounds[1:])):
        blocks.append(f"Tree={p}\n{_tree_text(trees, splits)}\n")
    return "\n".join([*blocks, "end of trees", ""])


def _tree_text(trees: FlatTrees, splits: slice) -> str:
    """Return one tree, whose splits are these."""
    n_leaves = splits.stop - splits.start + 1
    on_categories = trees.table[splits] >= 0
    missing = _ZERO_MISSING if trees.zero_is_missing else _NAN_MISSING
    decision = missing + _MISSING_LEFT * trees.missing_left[splits]
    left, right = trees.left[splits], trees.right[splits]
    lines: dict[str, Iterable] = {
        "num_leaves": [n_leaves],
        "num_cat": [int(on_categories.sum())],
        "split_feature": trees.feature[splits].tolist(),
        "decision_type": np.where(on_categories, _ON_CATEGORIES, decision).tolist(),
        "left_child": np.where(left < 0, left, left - splits.start).tolist(),
        "right_child": np.where(right < 0, right, right - splits.start).tolist(),
        "threshold": trees.threshold[splits].tolist(),
        "leaf_value": [0] * n_leaves,
        "is_linear": [0],
        "shrinkage": [1],
    }
    if on_categories.any():
        places = np.flatnonzero(on_categories)
        sets = [_codes_left(trees, splits.start + k) for k in places.tolist()]
        threshold = trees.threshold[splits].copy()
        threshold[places] = np.arange(len(sets))
        lines["threshold"] = threshold.tolist()
        lines["cat_boundaries"] = np.cumsum([0, *map(len, sets)]).tolist()
        lines["cat_threshold"] = np.concatenate(sets).tolist()
    return "\n".join(f"{name}={_line(map(repr, values))}" for name, values in lines.items()) + "\n"


def _line(texts: Iterable[str]) -> str:
    return " ".join(texts)


def _codes_left(trees: FlatTrees, split: int) -> NDArray[np.uint32]:
    """Return the codes that go left at a split on categories, as bits of words.

    The codes are those of `as_codes`, the last one for missing values.
    """
    n_categories, begin = int(trees.n_categories[trees.feature[split]]), int(trees.table[split])
    bits = np.zeros(-(-(n_categories + 2) // 32) * 32, np.uint8)
    bits[: n_categories + 1] = trees.categories_left[begin : begin + n_categories + 1]
    bits[n_categories + 1] = trees.missing_left[split]
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
