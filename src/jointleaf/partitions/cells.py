"""Partitions that are the leaves of a trained tree ensemble, however it came about."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from jointleaf.partitions.base import Partitioner
from jointleaf.partitions.checks import check_apply_rows
from jointleaf.partitions.ensembles import find_adapter
from jointleaf.partitions.numbering import CellNumbering

__all__ = ["EnsemblePartitioner"]


class EnsemblePartitioner(Partitioner):
    """Base of the partitioners whose cells are the leaves of a tree ensemble.

    A subclass's `fit` finds or trains the ensemble and hands it to `_take_cells`.

    Attributes
    ----------
    model_ : object
        The trained ensemble.
    """

    model_: Any
    n_jobs: int | None
    #: What ``n_jobs=None`` stands for; None leaves it to the ensemble's own setting.
    _default_jobs: int | None = None

    def _take_cells(self, model: Any, X: Any) -> None:
        """Give numbers to the leaves of `model` that training rows `X` (n, d) reach."""
        leaf_ids = self._leaf_ids(model, X)
        numbering = CellNumbering(leaf_ids)
        adapter = find_adapter(model)
        gains = np.asarray(adapter.split_gains(model), dtype=np.float64)
        # Set together at the end: an interrupted fit leaves nothing half-fitted.
        self.model_ = model
        self.n_features_in_ = X.shape[1]
        self.split_gains_ = np.maximum(np.nan_to_num(gains), 0.0)
        self.n_cells_ = numbering.n_cells
        self._numbering = numbering

    def _leaf_ids(self, model: Any, X: Any) -> NDArray[np.int32]:
        n_jobs = self._default_jobs if self.n_jobs is None else self.n_jobs
        leaf_ids = find_adapter(model).leaf_ids(model, X, n_jobs)
        if leaf_ids.shape[1] == 0:  # An ensemble without trees: everything is one cell.
            leaf_ids = np.zeros((X.shape[0], 1), dtype=np.int32)
        return leaf_ids

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which some tree splits, in rising order."""
        check_is_fitted(self)
        return find_adapter(self.model_).split_features(self.model_)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Give the codes (n, P) of rows `X` (n, d); `NO_CELL` in leaves unmet in training."""
        check_is_fitted(self)
        rows = self._model_rows(X)
        leaf_ids = self._leaf_ids(self.model_, rows)
        return self._numbering.encode(leaf_ids, out=leaf_ids)

    def _model_rows(self, X: ArrayLike) -> Any:
        """Give the rows in the form in which the ensemble takes them."""
        return check_apply_rows(self, X)
