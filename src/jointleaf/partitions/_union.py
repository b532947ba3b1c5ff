"""The single cell, and several partitioners as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns
from jointleaf.partitions._base import Partitioner, TargetType
from jointleaf.partitions._checks import check_apply_rows, check_fit_rows

__all__ = ["RootCell", "UnionPartitioner"]


class RootCell(Partitioner):
    """One partition with one cell, which holds every row.

    In a union it adds one global linear model to the joint fit.

    Attributes
    ----------
    n_cells_ : ndarray (1,)
        One cell.
    split_gains_ : ndarray (d,)
        Ones: no feature is preferred.
    n_features_in_ : int
        Number of features d.
    """

    @property
    def splits_on_features(self) -> bool:
        """False: nothing is split."""
        return False

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """None."""
        return np.zeros(0, np.intp)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> RootCell:
        """Note the number of columns of `X` (n, d); nothing else is used."""
        self.n_features_in_ = check_fit_rows(X, None, sample_weight, target_type).X.shape[1]
        self.n_cells_ = np.ones(1, dtype=np.intp)
        self.split_gains_ = np.ones(self.n_features_in_)
        return self

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Give the codes (n, 1): zeros."""
        return np.zeros((check_apply_rows(self, X).shape[0], 1), dtype=np.int32)


class UnionPartitioner(Partitioner):
    """The partitions of several partitioners, one after the other.

    Parameters
    ----------
    partitioners : sequence of Partitioner
        Clones of them are fitted, in the given order.

    Attributes
    ----------
    partitioners_ : list of Partitioner
        The fitted members.
    n_cells_ : ndarray (P,)
        Number of cells of all partitions, in the order of the members.
    split_gains_ : ndarray (d,)
        Sum of the members' gains, each scaled to a sum of one. Members without splits on
        features (`RootCell`, `VoronoiPartitioner`, trees of a single leaf) are left out;
        where that leaves none, all features count alike.
    n_features_in_ : int
        Number of features d.
    """

    partitioners_: list[Partitioner]

    def __init__(self, partitioners: Sequence[Partitioner]) -> None:
        self.partitioners = partitioners

    @property
    def splits_on_features(self) -> bool:
        """Whether any member splits on features."""
        members = getattr(self, "partitioners_", self.partitioners)
        return any(member.splits_on_features for member in members)

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which the cells of some member depend, in rising order."""
        check_is_fitted(self)
        return np.unique(np.concatenate([m.split_features_ for m in self.partitioners_]))

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> UnionPartitioner:
        """Fit a clone of every member to rows `X` (n, d), targets `y` (n,), weights (n,)."""
        self._check_members()
        more = {} if columns is None else {"columns": columns}
        members = [
            clone(member).fit(X, y, sample_weight, target_type=target_type, **more)
            for member in self.partitioners
        ]
        self._set_members(members)
        return self

    @classmethod
    def of_fitted(cls, members: list[Partitioner]) -> UnionPartitioner:
        """Give the fitted union of partitioners that are fitted already."""
        union = cls(members)
        union._set_members(members)
        return union

    def _set_members(self, members: list[Partitioner]) -> None:
        self.partitioners_ = members
        self.n_features_in_ = members[0].n_features_in_
        self.n_cells_ = np.concatenate([member.n_cells_ for member in members])
        self.split_gains_ = _joint_gains(members)

    def walk(self, first: int = 0) -> Iterator[tuple[Partitioner, int]]:
        """Yield the innermost fitted partitioners of all members, one member after the other."""
        check_is_fitted(self)
        for member in self.partitioners_:
            yield from member.walk(first)
            first += len(member.n_cells_)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Give the codes (n, P) of all members side by side."""
        check_is_fitted(self)
        X = check_apply_rows(self, X)
        codes = np.empty((X.shape[0], len(self.n_cells_)), dtype=np.int32)
        start = 0
        for member in self.partitioners_:
            stop = start + len(member.n_cells_)
            codes[:, start:stop] = member.apply(X)
            start = stop
        return codes

    @property
    def leaf_values_(self) -> NDArray[np.float64] | None:
        """The mean of the members' own models; zeros in cells of members that have none."""
        check_is_fitted(self)
        found = [member.leaf_values_ for member in self.partitioners_]
        known = [values for values in found if values is not None]
        if not known or len({values.shape[1] for values in known}) > 1:
            return None
        parts = [
            np.zeros((int(member.n_cells_.sum()), known[0].shape[1])) if values is None else values
            for member, values in zip(self.partitioners_, found, strict=True)
        ]
        return np.concatenate(parts) / len(known)

    def siblings(self) -> NDArray[np.intp]:
        """Pairs of all members, (m, 3): partition in the union, cell, cell."""
        check_is_fitted(self)
        pairs, start = [], 0
        for member in self.partitioners_:
            pairs.append(member.siblings() + np.array([start, 0, 0]))
            start += len(member.n_cells_)
        return np.concatenate(pairs)

    def with_merged(self, chosen: NDArray[np.bool_]) -> UnionPartitioner:
        """Give the union of the members with these pairs (m,) merged."""
        parts = self._parts(chosen, [len(m.siblings()) for m in self.partitioners_])
        return self._with_members(
            [m.with_merged(part) for m, part in zip(self.partitioners_, parts, strict=True)]
        )

    def with_partitions(self, kept: NDArray[np.bool_]) -> UnionPartitioner:
        """Give the union without some partitions (P,), and without members that have none left."""
        parts = self._parts(kept, [len(m.n_cells_) for m in self.partitioners_])
        pairs = zip(self.partitioners_, parts, strict=True)
        return self._with_members([m.with_partitions(part) for m, part in pairs if part.any()])

    def _parts(self, values: NDArray, sizes: list[int]) -> list[NDArray]:
        return np.split(values, np.cumsum(sizes)[:-1])

    def _with_members(self, members: list[Partitioner]) -> UnionPartitioner:
        other = UnionPartitioner(self.partitioners)
        other._set_members(members)
        return other

    def fresh(self) -> UnionPartitioner:
        """Give a union of what the members' `fresh` gives."""
        self._check_members()
        return UnionPartitioner([member.fresh() for member in self.partitioners])

    def __getstate__(self) -> dict[str, Any]:
        # The fitted members do without trained models, and so must those they were cloned from.
        state = dict(super().__getstate__())
        if "partitioners_" in state:
            from jointleaf.partitions._fitted import without_models

            state["partitioners"] = without_models(list(self.partitioners))
        return state

    def _check_members(self) -> None:
        members = self.partitioners
        if not isinstance(members, Sequence) or isinstance(members, str) or len(members) == 0:
            raise ValueError(
                f"UnionPartitioner: partitioners={members!r} is not possible; give a list of at "
                "least one partitioner."
            )
        for member in members:
            if not isinstance(member, Partitioner):
                raise TypeError(
                    f"UnionPartitioner: partitioners holds {member!r}, which is no Partitioner; "
                    "wrap names and fitted models with make_partitioner first."
                )


def _joint_gains(members: Sequence[Partitioner]) -> NDArray[np.float64]:
    """Give the sum of the members' gains (d,), each with sum one; ones where none counts."""
    counting = [m.split_gains_ for m in members if m.splits_on_features and m.split_gains_.any()]
    if not counting:
        return np.ones_like(members[0].split_gains_)
    return np.sum([gains / gains.sum() for gains in counting], axis=0)
