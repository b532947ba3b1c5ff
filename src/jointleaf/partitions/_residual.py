"""Partitions grown on what a global linear model leaves over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns
from jointleaf.partitions._base import Partitioner, TargetType
from jointleaf.partitions._checks import check_fit_rows
from jointleaf.partitions._growers.linear_forest import fit_linear_part

__all__ = ["ResidualPartitioner"]


class ResidualPartitioner(Partitioner):
    """The partitions of another partitioner, grown on the residuals of a linear model.

    A joint fit has linear models of its own, above all that of the root cell. Trees grown on the
    target spend most of their splits on what is linear anyway; on the residuals they divide space
    where something else is left. The linear model is ridge regression or logistic regression
    (`fit_linear_part`). With K > 2 classes the residuals are K numbers a row; trees are grown on
    their first principal component.

    Parameters
    ----------
    partitioner : Partitioner
        A clone of it is fitted, in regression, whatever the target.

    Attributes
    ----------
    partitioner_ : Partitioner
        Fitted.
    n_cells_, split_gains_, n_features_in_
        Those of `partitioner_`.
    """

    partitioner_: Partitioner

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> ResidualPartitioner:
        """Fit the linear model to rows `X` (n, d), then partitions to its residuals."""
        if not isinstance(self.partitioner, Partitioner):
            raise TypeError(
                f"ResidualPartitioner: partitioner={self.partitioner!r} is no Partitioner; wrap "
                "names with make_partitioner first."
            )
        if y is None:
            raise ValueError("ResidualPartitioner needs targets; give y.")
        rows = check_fit_rows(X, y, sample_weight, target_type, columns)
        _, residuals = fit_linear_part(rows)
        if residuals.ndim == 2:
            residuals = residuals @ np.linalg.svd(residuals, full_matrices=False)[2][0]
        more = {} if columns is None else {"columns": columns}
        self._set(clone(self.partitioner).fit(rows.X, residuals, rows.weight, **more))
        return self

    def _set(self, fitted: Partitioner) -> None:
        self.partitioner_ = fitted
        self.n_features_in_ = fitted.n_features_in_
        self.n_cells_ = fitted.n_cells_
        self.split_gains_ = fitted.split_gains_

    def walk(self, first: int = 0) -> Iterator[tuple[Partitioner, int]]:
        """Yield the innermost fitted partitioners of the one that was grown on residuals."""
        check_is_fitted(self)
        yield from self.partitioner_.walk(first)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Give the codes (n, P)."""
        check_is_fitted(self)
        return self.partitioner_.apply(X)

    @property
    def splits_on_features(self) -> bool:
        """Whether the partitioner splits on features."""
        member = self.__dict__.get("partitioner_", self.partitioner)
        return bool(member.splits_on_features)

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which the cells depend, in rising order."""
        check_is_fitted(self)
        return self.partitioner_.split_features_

    def siblings(self) -> NDArray[np.intp]:
        """Pairs of cells that one split divides, (m, 3)."""
        check_is_fitted(self)
        return self.partitioner_.siblings()

    def with_merged(self, chosen: NDArray[np.bool_]) -> ResidualPartitioner:
        """Give the partitions with these pairs (m,) merged."""
        return self._with(self.partitioner_.with_merged(chosen))

    def with_partitions(self, kept: NDArray[np.bool_]) -> ResidualPartitioner:
        """Give only some (P,) of the partitions."""
        return self._with(self.partitioner_.with_partitions(kept))

    def _with(self, fitted: Partitioner) -> ResidualPartitioner:
        other = ResidualPartitioner(self.partitioner)
        other._set(fitted)
        return other

    def fresh(self) -> ResidualPartitioner:
        """Give one around what the partitioner's `fresh` gives."""
        return ResidualPartitioner(self.partitioner.fresh())

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "partitioner_" in state:
            from jointleaf.partitions._fitted import without_models

            state["partitioner"] = without_models(self.partitioner)
        return state
