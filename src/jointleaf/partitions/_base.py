"""The protocol of every partitioner: how an ensemble of partitions is made and used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns

__all__ = ["NO_CELL", "Partitioner", "TargetType"]

TargetType = Literal["regression", "classification"]

#: The code of a row that lies in no cell of a partition: it gets a zero contribution there.
NO_CELL = -1


class Partitioner(BaseEstimator, ABC):
    """Makes an ensemble of P partitions, each a division of feature space into cells.

    A subclass implements `fit` and `apply` and sets, in `fit`,

    - ``n_features_in_``: the number of features d,
    - ``n_cells_``: integer array (P,), the number of cells of each partition,
    - ``split_gains_``: float array (d,), how much each feature contributed to the
      partitions (any non-negative scale; all equal where splits are not made by feature).

    Parameters follow the rules of scikit-learn estimators: stored as given in
    ``__init__`` and checked in `fit`, so that `sklearn.base.clone` works. A parameter
    called ``random_state`` or ``n_jobs`` whose value is None is filled in by
    `jointleaf.partitions.seeded`.
    """

    n_features_in_: int
    n_cells_: NDArray[np.intp]
    split_gains_: NDArray[np.float64]

    @abstractmethod
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> Partitioner:
        """Make the partitions from rows `X` (n, d), targets `y` (n,) and weights (n,).

        `X` is a matrix of numbers with NaN for missing values. For
        ``target_type="classification"`` the targets are class numbers 0..K-1. A row of
        weight zero counts as absent. Only relative weights matter.

        `columns` says which columns of `X` hold categories, as codes 0..L-1 (see
        `_data.columns`); None means that all hold numbers. Estimators give it only where some
        column holds categories.
        """

    @abstractmethod
    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Give the codes (n, P): the cell of each partition in which each row falls.

        Codes of partition p lie in ``0 .. n_cells_[p] - 1``; `NO_CELL` marks a row that
        falls where no training row did.
        """

    def walk(self, first: int = 0) -> Iterator[tuple[Partitioner, int]]:
        """Yield the innermost fitted partitioners, each with the number of its first partition.

        A partitioner that is made of others (`UnionPartitioner`, `ResidualPartitioner`) yields
        theirs in its place. Partitions come in the order of ``n_cells_``; `first` is the number
        of the first one.
        """
        check_is_fitted(self)
        yield self, first

    def nested(self) -> Iterator[Partitioner]:
        """Yield this partitioner and all that are among its parameters, outermost first.

        It looks at parameters alone, so that it serves partitioners that are not fitted yet.
        """
        yield self
        for value in self.get_params(deep=False).values():
            for member in value if isinstance(value, list | tuple) else (value,):
                if isinstance(member, Partitioner):
                    yield from member.nested()

    def fresh(self) -> Partitioner:
        """Give an unfitted partitioner that makes partitions in the same way.

        Honest cross-validation grows new partitions inside every fold with it.
        """
        return clone(self)

    def siblings(self) -> NDArray[np.intp]:
        """Pairs of cells that one split divides, (m, 3): partition, cell, cell; by default none.

        `NO_CELL` stands for a side of the split that is no cell. `jointleaf.prune` merges such
        pairs, with `with_merged`, and leaves partitions without them as they are.
        """
        return np.zeros((0, 3), dtype=np.intp)

    def with_merged(self, chosen: NDArray[np.bool_]) -> Partitioner:
        """Give a fitted partitioner in which some pairs (m,) of `siblings` are one cell each.

        The merged cell has the smaller code of the two, and the codes of a partition are 0, 1,
        ... again, in their old order. Clones of it grow unmerged partitions.
        """
        return self._unless(chosen.any(), "merge cells")

    def with_partitions(self, kept: NDArray[np.bool_]) -> Partitioner:
        """Give a fitted partitioner that has only some (P,), at least one, of the partitions."""
        return self._unless(not kept.all(), "leave partitions out")

    def _unless(self, impossible: bool | np.bool_, what: str) -> Partitioner:
        if impossible:
            raise NotImplementedError(f"{type(self).__name__} cannot {what}")
        return self

    @property
    def leaf_values_(self) -> NDArray[np.float64] | None:
        """What the model that made the partitions adds to its raw predictions in each cell, (C, K).

        Cells are numbered partition after partition; K is 1 for regression and two classes. A
        raw prediction is the target itself, log-odds, or one number per class. By default None:
        there is no such model, or its predictions are no such sums.
        """
        return None

    @property
    def splits_on_features(self) -> bool:
        """Whether ``split_gains_`` tells features apart (False: it is all equal by design)."""
        return True

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which the cells of a row depend, in rising order; by default all."""
        return np.arange(self.n_features_in_)
