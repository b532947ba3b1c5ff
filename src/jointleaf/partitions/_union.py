"""The single cell, several partitioners as one, and partitions of residuals."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns
from jointleaf._data.features import LinearFeatures, mean_and_scale, plan_features
from jointleaf._trees.flat import TrainingRows
from jointleaf.partitions._base import Partitioner, TargetType, check_apply_rows, without_models

if TYPE_CHECKING:
    from typing_extensions import Self

#: Ridge strengths to choose from, per row.
_STRENGTHS = np.logspace(-6, 1, 15)
_MAX_ITER = 1000
#: How a warning of scikit-learn begins, in place of which fits give their own.
MANY_CLASSES = "The number of unique classes"


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

    splits_on_features = False

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """None: nothing is split."""
        return np.zeros(0, np.intp)

    def _fit_rows(self, rows: TrainingRows) -> None:
        self.n_features_in_ = rows.X.shape[1]
        self.n_cells_ = np.ones(1, dtype=np.intp)
        self.split_gains_ = np.ones(self.n_features_in_)

    def of_columns(self, columns: NDArray[np.intp], n_features: int) -> RootCell:
        """Return the cell of rows of all columns."""
        return RootCell().fit(np.zeros((1, n_features)))

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, 1): zeros."""
        return np.zeros((check_apply_rows(self, X).shape[0], 1), dtype=np.int32)


class Nest(Partitioner):
    """Base of the partitioners whose partitions are those of fitted members, in their order."""

    @property
    @abstractmethod
    def members(self) -> Sequence[Partitioner]:
        """The members, which are fitted where this partitioner is."""

    @abstractmethod
    def _with_members(self, members: list[Partitioner], is_left: NDArray[np.bool_]) -> Self:
        """Return a copy with changed members in the place of those that are left."""

    def walk(self, first: int = 0) -> Iterator[tuple[Partitioner, int]]:
        """Yield the innermost fitted partitioners of all members, one member after the other."""
        check_is_fitted(self)
        for member in self.members:
            yield from member.walk(first)
            first += len(member.n_cells_)

    @property
    def splits_on_features(self) -> bool:  # type: ignore[override]
        """Whether any member splits on features."""
        return any(member.splits_on_features for member in self.members)

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which the cells of some member depend, in rising order."""
        check_is_fitted(self)
        return np.unique(np.concatenate([m.split_features_ for m in self.members]))

    def siblings(self) -> NDArray[np.intp]:
        """Pairs of all members, (m, 3): partition of this partitioner, cell, cell."""
        check_is_fitted(self)
        pairs, start = [], 0
        for member in self.members:
            pairs.append(member.siblings() + np.array([start, 0, 0]))
            start += len(member.n_cells_)
        return np.concatenate(pairs)

    def with_merged(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the members with these pairs (m,) merged."""
        parts = _parts(chosen, [len(m.siblings()) for m in self.members])
        merged = [m.with_merged(part) for m, part in zip(self.members, parts, strict=True)]
        return self._with_members(merged, np.ones(len(merged), bool))

    def of_columns(self, columns: NDArray[np.intp], n_features: int) -> Self:
        """Return members that were fitted to some columns (m,) of a table, for all of them."""
        members = [member.of_columns(columns, n_features) for member in self.members]
        return self._with_members(members, np.ones(len(members), bool))

    def with_partitions(self, chosen: NDArray[np.bool_]) -> Self:
        """Return some partitions (P,), without members that have none of them."""
        parts = _parts(chosen, [len(m.n_cells_) for m in self.members])
        pairs = zip(self.members, parts, strict=True)
        members = [m if part.all() else m.with_partitions(part) for m, part in pairs if part.any()]
        return self._with_members(members, np.array([part.any() for part in parts]))

    def __getstate__(self) -> dict[str, Any]:
        # The fitted members do without trained models, and so must those they were cloned from.
        state = dict(super().__getstate__())
        if hasattr(self, "n_cells_"):
            params = self.get_params(deep=False)
            state |= {name: without_models(value) for name, value in params.items()}
        return state


class UnionPartitioner(Nest):
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
    def members(self) -> Sequence[Partitioner]:
        """The fitted members; before `fit`, those to clone."""
        return getattr(self, "partitioners_", self.partitioners)

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
        options: dict[str, Any] = {"target_type": target_type, **_columns_option(columns)}
        self.set_members(
            [clone(member).fit(X, y, sample_weight, **options) for member in self.partitioners]
        )
        return self

    @classmethod
    def of_fitted(cls, members: list[Partitioner]) -> UnionPartitioner:
        """Return the fitted union of partitioners that are fitted already."""
        union = cls(members)
        union.set_members(members)
        return union

    def set_members(self, members: list[Partitioner]) -> None:
        """Use these fitted partitioners as members."""
        self.partitioners_ = members
        self.n_features_in_ = members[0].n_features_in_
        self.n_cells_ = np.concatenate([member.n_cells_ for member in members])
        self.split_gains_ = _joint_gains(members)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, P) of all members side by side."""
        check_is_fitted(self)
        X = check_apply_rows(self, X)
        codes = np.empty((X.shape[0], len(self.n_cells_)), dtype=np.int32)
        parts = np.split(codes, np.cumsum([len(m.n_cells_) for m in self.partitioners_]), axis=1)
        for part, member in zip(parts, self.partitioners_, strict=False):
            part[:] = member.apply(X)
        return codes

    @property
    def leaf_values_(self) -> NDArray[np.float64] | None:
        """The mean of the models of the members; zeros in cells of members that have none."""
        check_is_fitted(self)
        by_member = [member.leaf_values_ for member in self.partitioners_]
        widths = [values.shape[1] for values in by_member if values is not None]
        if len(set(widths)) != 1:
            return None
        leaf_values = [
            np.zeros((int(member.n_cells_.sum()), widths[0])) if values is None else values
            for member, values in zip(self.partitioners_, by_member, strict=True)
        ]
        return np.concatenate(leaf_values) / len(widths)

    def _with_members(self, members: list[Partitioner], is_left: NDArray[np.bool_]) -> Self:
        union = type(self)(self.partitioners)
        union.set_members(members)
        return union

    def fresh(self) -> UnionPartitioner:
        """Return a union of partitioners that make partitions in the same way."""
        self._check_members()
        return UnionPartitioner([member.fresh() for member in self.partitioners])

    def _check_members(self) -> None:
        members = self.partitioners
        if not isinstance(members, Sequence) or isinstance(members, str) or len(members) == 0:
            raise ValueError(
                f"UnionPartitioner: partitioners={members!r} is not possible: use a list of at "
                "least one partitioner"
            )
        for member in members:
            if not isinstance(member, Partitioner):
                raise TypeError(
                    f"UnionPartitioner: partitioners holds {member!r}, which is no Partitioner: "
                    "call make_partitioner on names and fitted models first"
                )


class ResidualPartitioner(Nest):
    """The partitions of another partitioner, grown on the residuals of a linear model.

    A joint fit has linear models itself, above all that of the root cell. Trees grown on the target
    spend most of their splits on what is linear anyway; on the residuals they divide space where
    something else is left. The linear model is ridge regression or logistic regression
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
    _needs_target = True

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner

    def _fit_rows(self, rows: TrainingRows) -> None:
        if not isinstance(self.partitioner, Partitioner):
            raise TypeError(
                f"ResidualPartitioner: partitioner={self.partitioner!r} is no Partitioner: call "
                "make_partitioner on names first"
            )
        _, residuals = fit_linear_part(rows)
        if residuals.ndim == 2:
            residuals = residuals @ np.linalg.svd(residuals, full_matrices=False)[2][0]
        columns = rows.columns if rows.columns.categorical.size else None
        partitioner = clone(self.partitioner)
        self.set_fitted(partitioner.fit(rows.X, residuals, rows.weight, **_columns_option(columns)))

    def set_fitted(self, fitted: Partitioner) -> None:
        """Use the partitions of this fitted partitioner."""
        self.partitioner_ = fitted
        self.n_features_in_ = fitted.n_features_in_
        self.n_cells_ = fitted.n_cells_
        self.split_gains_ = fitted.split_gains_

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, P)."""
        check_is_fitted(self)
        return self.partitioner_.apply(X)

    @property
    def members(self) -> Sequence[Partitioner]:
        """The fitted partitioner alone; before `fit`, the one to clone."""
        return [self.__dict__.get("partitioner_", self.partitioner)]

    def _with_members(self, members: list[Partitioner], is_left: NDArray[np.bool_]) -> Self:
        copy = type(self)(self.partitioner)
        copy.set_fitted(members[0])
        return copy

    def fresh(self) -> ResidualPartitioner:
        """Return a partitioner that makes partitions in the same way."""
        return ResidualPartitioner(self.partitioner.fresh())


def _parts(values: NDArray, sizes: list[int]) -> list[NDArray]:
    return np.split(values, np.cumsum(sizes)[:-1])


def _joint_gains(members: Sequence[Partitioner]) -> NDArray[np.float64]:
    """Return the sum of the members' gains (d,), each with sum one; ones where all are zero."""
    gains_by_member = [
        m.split_gains_ for m in members if m.splits_on_features and m.split_gains_.any()
    ]
    if not gains_by_member:
        return np.ones_like(members[0].split_gains_)
    return np.sum([gains / gains.sum() for gains in gains_by_member], axis=0)


def _columns_option(columns: Columns | None) -> dict[str, Columns]:
    """Return the argument `columns` of `fit`, which partitioners may lack unless it is needed."""
    return {} if columns is None else {"columns": columns}


# -- the linear part --------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearPart:
    """A fitted global linear model of standardised linear features."""

    features: LinearFeatures
    coef: NDArray[np.float64]  # (m,), or (m, K) for K > 2 classes
    intercept: NDArray[np.float64]  # () or (K,)
    n_classes: int  # K, 0 in regression
    mean: float = 0.0  # of the target in regression
    scale: float = 1.0  # likewise

    def predict(self, X: NDArray) -> NDArray[np.float64]:
        """Return standardised targets (n,) of rows X (n, d), or probabilities.

        In classification with two classes it is that of the second (n,), with more those of all (n,
        K).
        """
        raw = self.features.transform(X.astype(np.float64, copy=False)) @ self.coef + self.intercept
        if self.n_classes == 0:
            return raw
        return expit(raw) if raw.ndim == 1 else softmax(raw, axis=1)


def fit_linear_part(rows: TrainingRows) -> tuple[LinearPart, NDArray[np.float64]]:
    """Fit the global linear model; return it and the residuals, (n,), or (n, K) for K > 2 classes.

    The linear features are those of `_data.features`: standardised numbers with the mean for
    missing values, and indicators of categories. In regression it is ridge regression on the
    standardised target, with the strength, 10^-6 to 10 times the number of rows, that has the
    smallest leave-one-out error. In classification it is (multinomial) logistic regression with
    scikit-learn's default strength, and residuals are indicators of the classes minus
    probabilities, 1[y = k] - p_k.
    """
    s = rows.weights
    X = rows.X.astype(np.float64, copy=False)
    features = plan_features(X, s, rows.columns).fit(X, s, clip=False)
    if rows.n_classes == 0:
        part, y = _fit_ridge(features, X, rows.y, s)
    else:
        part, y = _fit_logistic(features, X, rows.y, s, rows.n_classes)
    return part, y - part.predict(X)


def _fit_ridge(
    features: LinearFeatures, X: NDArray, y: NDArray, s: NDArray
) -> tuple[LinearPart, NDArray]:
    from sklearn.linear_model import RidgeCV

    mean, scale = mean_and_scale(y[:, None], s)
    target = (y - mean) / scale
    Z = features.transform(X)
    coef, intercept = np.zeros(Z.shape[1]), np.zeros(())
    if Z.any() and target.any():
        model = RidgeCV(alphas=len(y) * _STRENGTHS).fit(Z, target, sample_weight=s)
        coef, intercept = model.coef_, np.asarray(model.intercept_)
    return LinearPart(features, coef, intercept, 0, float(mean[0]), float(scale[0])), target


def _fit_logistic(
    features: LinearFeatures, X: NDArray, y: NDArray, s: NDArray, n_classes: int
) -> tuple[LinearPart, NDArray]:
    from sklearn.linear_model import LogisticRegression

    number = np.unique(y, return_inverse=True)[1]
    Z = features.transform(X)
    if n_classes == 1:  # the residuals are zero
        return LinearPart(features, np.zeros(Z.shape[1]), np.array(np.inf), 1), np.ones(len(y))
    if Z.shape[1] == 0:
        Z = np.zeros((len(y), 1))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", MANY_CLASSES)
        model = LogisticRegression(max_iter=_MAX_ITER).fit(Z, number, sample_weight=s)
    coef, intercept = model.coef_.T[: len(features.plan.names)], model.intercept_
    if n_classes == 2:
        return LinearPart(features, coef[:, 0], intercept[0], 2), number.astype(float)
    return LinearPart(features, coef, intercept, n_classes), np.eye(n_classes)[number]
