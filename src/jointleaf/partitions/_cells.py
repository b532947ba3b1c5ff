"""Partitions whose cells are the leaves of trees in portable form."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import Router
from jointleaf.partitions._base import Partitioner
from jointleaf.partitions._checks import check_apply_rows

__all__ = ["TreeCells"]


class TreeCells(Partitioner):
    """Base of the partitioners whose cells are the leaves of trees.

    A subclass's `fit` makes the trees and hands them to `_take_trees`.

    Attributes
    ----------
    trees_ : FlatTrees
        The trees in portable form; the library that grew them is not needed any more.
    """

    trees_: FlatTrees
    n_jobs: int | None

    def _take_trees(self, trees: FlatTrees, gains: ArrayLike, X: NDArray) -> None:
        """Number the leaves that training rows `X` (n, d) reach as cells."""
        router = Router(trees)
        trees = trees.numbered(router(X, self._threads()))
        # Set together at the end: an interrupted fit leaves nothing half-fitted.
        self._set_trees(trees)
        self.__dict__["_router"] = router.renumbered(trees)
        self.n_features_in_ = X.shape[1]
        self.split_gains_ = np.maximum(np.nan_to_num(np.asarray(gains, dtype=np.float64)), 0.0)

    def take_all_leaves(self, trees: FlatTrees, gains: NDArray) -> None:
        """Make a cell of every leaf: of trees that were grown on all training rows, all are met."""
        self._set_trees(trees)
        self.n_features_in_ = trees.n_features
        self.split_gains_ = np.maximum(np.nan_to_num(np.asarray(gains, dtype=np.float64)), 0.0)

    def _set_trees(self, trees: FlatTrees) -> None:
        self.trees_ = trees
        self.n_cells_ = trees.n_cells
        self.__dict__.pop("_router", None)

    @cached_property
    def _router(self) -> Router:
        return Router(self.trees_)

    @property
    def router(self) -> Router:
        """What finds the cells of rows."""
        return self._router

    def _threads(self) -> int:
        return int(effective_n_jobs(self.n_jobs))

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which some tree splits, in rising order."""
        check_is_fitted(self)
        return self.trees_.split_features

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Give the codes (n, P) of rows `X` (n, d); `NO_CELL` in leaves unmet in training."""
        X = check_apply_rows(self, X)
        return self._router(X, self._threads())

    @property
    def leaf_values_(self) -> NDArray[np.float64] | None:
        """What the trees' own model adds in each cell, (C, K); None where that is not known."""
        check_is_fitted(self)
        return self.trees_.cell_values

    def siblings(self) -> NDArray[np.intp]:
        """Pairs of cells that are the two leaves of one split, (m, 3): partition, cell, cell."""
        check_is_fitted(self)
        trees = self.trees_
        left, right = trees.leaves_of(trees.twigs)
        cells = trees.cell_of_leaf
        return np.stack([trees.tree_of_split[trees.twigs], cells[left], cells[right]], axis=1)

    def with_merged(self, chosen: NDArray[np.bool_]) -> TreeCells:
        """Give the trees in which some splits (m,) of `siblings` are one leaf each."""
        return self._with_trees(self.trees_.merged(self.trees_.twigs[chosen]))

    def with_partitions(self, kept: NDArray[np.bool_]) -> TreeCells:
        """Give only some (P,) of the trees."""
        return self._with_trees(self.trees_.only(kept))

    def _with_trees(self, trees: FlatTrees) -> TreeCells:
        """A copy with other trees: gains as they were where splits are left, else zero."""
        other = type(self).__new__(type(self))  # copy.copy would leave a model out, as pickles do
        other.__dict__.update(self.__dict__)
        other._set_trees(trees)
        is_used = np.zeros(self.n_features_in_, bool)
        is_used[trees.split_features] = True
        other.split_gains_ = np.where(is_used, self.split_gains_, 0.0)
        return other

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_router", None)  # made anew from the trees
        return state
