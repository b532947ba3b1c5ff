"""A fitted estimator of one task: its rows, loss, units and model; and new rows for it.

With new rows the cells are fitted to old and new rows together.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_X_y
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import threads
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows, canonical_rows, read_coded_rows
from jointleaf.estimators._checks import (
    check_penalty,
    class_factors,
    has_linear_cells,
    restored_on_error,
)
from jointleaf.estimators._params import JOPLEnParameters, fit_options

if TYPE_CHECKING:
    from jointleaf._fit.report import FitReport
    from jointleaf._model.cell_model import CellModel, Frame
    from jointleaf.partitions._base import TargetType

E = TypeVar("E", bound="Updatable")
_EXACT = 1e-10  # tolerance of squared errors


class Fitted:
    """An estimator of one task: how its targets become numbers, and what its fit leaves."""

    cell_model_: CellModel
    columns_: Columns
    feature_importances_: NDArray
    report_: FitReport
    device: str
    n_jobs: int | None
    _target_type: ClassVar[TargetType]

    @property
    @abstractmethod
    def _loss(self) -> Loss:
        """The loss of the fit, in its units."""

    @abstractmethod
    def _encode_known(self, y: NDArray) -> NDArray:
        """Return targets of validation rows, encoded as the training targets were."""

    @abstractmethod
    def _class_weights(self, y: NDArray, weights: NDArray) -> dict[Any, float] | None:
        """Return the weight of every class of targets (n,); None where all are 1."""

    @abstractmethod
    def _without_offset(self, y: NDArray, offset: NDArray) -> tuple[NDArray, NDArray]:
        """Return targets and offsets; where the loss is of residuals, only targets are left."""


def class_weights_of(estimator: Fitted, y: NDArray, weights: NDArray) -> dict[Any, float] | None:
    """Return the weight of every class of targets (n,); None where all are 1."""
    return estimator._class_weights(y, weights)


def read_known_rows(
    estimator: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    offset: NDArray | None = None,
) -> Rows:
    """Return rows of positive weight as the fit sees new rows."""
    rows = _read_coded(estimator, X, y, sample_weight, offset)
    return replace(rows, X=estimator.columns_.matrix(rows.X))


def read_fit_rows(
    estimator: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    merge: bool = True,
) -> Rows:
    """Return training rows as the fit saw them: with cross-fitted statistics.

    With `merge` they are in canonical order, else as they are given.
    """
    from jointleaf._core.problem import check_weights

    if estimator.report_.has_offset:
        raise ValueError(
            "the model was fitted with exposure or an offset, and what fits its cells again "
            "(prune, paths of strengths) takes none: fit another model instead"
        )
    labels = np.asarray(y)
    weights = check_weights(sample_weight, len(labels))
    weights = weights * class_factors(estimator._class_weights(labels, weights), labels)
    rows, statistics = _read_coded(estimator, X, y, weights), estimator.columns_.statistics
    rows = canonical_rows(rows.X, rows.y, rows.s) if merge else rows
    return rows if statistics is None else statistics.fit(rows)[1]


def _read_coded(
    estimator: Fitted,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    offset: NDArray | None = None,
) -> Rows:
    from jointleaf._core.problem import check_weights

    matrix, targets = check_X_y(
        read_coded_rows(estimator, X),
        y,
        ensure_all_finite="allow-nan",
        y_numeric=estimator._target_type == "regression",
    )
    weights = check_weights(sample_weight, len(targets))
    shift = np.zeros(len(targets)) if offset is None else offset
    labels = np.zeros((len(targets), 0), np.int64)
    rows = Rows(matrix, targets, weights, labels, offset=shift).take(weights > 0)
    y, shift = estimator._without_offset(estimator._encode_known(rows.y), rows.offset)
    return replace(rows, y=y, offset=shift)


def fitted_loss(estimator: Fitted) -> Loss:
    """Return the loss of the fit, in its units."""
    return estimator._loss


def fitted_frame(estimator: Fitted) -> Frame:
    """Return how rows and targets became standard numbers in the joint fit."""
    from jointleaf._model.cell_model import Frame

    model, offset = estimator.cell_model_, estimator.report_.joint_or_raise("pruning").offset
    return Frame(
        estimator.columns_.of_matrix(),
        model.features,
        estimator._loss,
        offset,
        model.centre,
        model.unit,
        threads(estimator.n_jobs),
    )


# -- new rows -----------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class WarmParameters(JOPLEnParameters):
    """The parameter of fits that start from a model."""

    _: KW_ONLY
    warm_start: bool = False


class Updatable(Fitted, WarmParameters):
    """An estimator whose cells can be fitted to further rows."""

    #: rows of the fit as it saw them; None where they are too large, or of a loaded model
    _kept_rows: Rows | None = None

    @abstractmethod
    def _blend_problem(self) -> str | None:
        """Return why the model is not the solution of one joint problem; None where it is."""

    @abstractmethod
    def _keep_rows(self, rows: Rows) -> None:
        """Keep the rows that a model was fitted to, for updates."""

    def update(
        self: E,
        X_new: ArrayLike,
        y_new: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_old: ArrayLike | None = None,
        y_old: ArrayLike | None = None,
        sample_weight_old: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> E:
        """Fit the cells to all rows, those of the fit and new ones, without growing them anew.

        Partitions, strengths of the penalty, standardisation and intervals stay those of the fit.
        The result is that of the joint problem over all rows: for the squared error exactly what a
        fit of these cells to all rows at once would give, for other losses up to `tol`. The solver
        starts from the weights that the model has.

        Parameters
        ----------
        X_new, y_new : array-like (m, d), (m,)
            New rows, with the columns of the fit; classes must be among ``classes_``.
        sample_weight : array-like (m,), optional
            Their weights.
        X_old, y_old : array-like (n, d), (n,), optional
            Rows of the fit and of updates since, needed where the model does not keep them. They
            are fitted as they are given: that they are the same rows is not checked.
        sample_weight_old : array-like (n,), optional
            Their weights.
        exposure : None
            Models with exposure are fitted again: anything else is an error that says so.

        Returns
        -------
        self

        Notes
        -----
        The cells of old rows depend on all columns, so that no summary of these is small: the rows
        themselves are kept, 8 (d + 2) bytes for each and up to 64 MiB in all. Copies, pickles and
        model files leave them out, because they are yours: give `X_old` and `y_old` there.

        Models that are a blend of several components have no joint problem of their own, and are
        refused: fit them again, or use ``recipe="joint"`` with a `penalty` or a `partitioner`.
        """
        from jointleaf._fit.quantiles import check_single

        check_is_fitted(self)
        check_single(self, "update")
        with restored_on_error(self):
            if exposure is not None:
                raise ValueError(
                    "update takes no exposure: fit all rows again, with exposure given to fit"
                )
            self._check_updates("update")
            if isinstance(getattr(self, "class_weight", None), str):
                raise ValueError(
                    f"update cannot tell what class_weight={self.class_weight!r} means for all "
                    "rows: give a dict of weights to the fit, or fit all rows again"
                )
            old = self._old_rows(X_old, y_old, sample_weight_old)
            new = self._new_rows(X_new, y_new, sample_weight)
            dtype = old.X.dtype
            rows = canonical_rows(
                np.concatenate([old.X, new.X.astype(dtype, copy=False)]),
                np.concatenate([old.y, new.y]),
                np.concatenate([old.s, new.s]),
            )
            self._fit_cells(rows, self.report_.joint_or_raise("update").penalty)
        return self

    def _fit_warm(self: Any, X: Any, y: Any, weight: Any, **others: Any) -> None:
        """Fit the cells of the model to rows, with the penalty of now where it is given."""
        self._check_updates("a fit with warm_start=True")
        for name, value in others.items():
            if value is not None:
                raise ValueError(
                    f"{name} has no effect with warm_start=True on a fitted model, whose choices "
                    "stay: leave it out, or set warm_start=False"
                )
        self._known_labels("y", y, "set warm_start=False")
        rows, penalty = read_fit_rows(self, X, y, weight), self.report_.joint.penalty
        if isinstance(self.penalty, Term) and not self.penalty.is_auto:
            n_features, penalty = len(self.linear_feature_names_), self.penalty
            check_penalty(penalty, len(rows), n_features, is_linear=has_linear_cells(self.cells))
        self._fit_cells(rows, penalty)

    def _fit_cells(self: Any, rows: Rows, penalty: Term) -> None:
        """Fit the cells to rows with a penalty, from the weights that they have."""
        from jointleaf._fit.joint import fit_cells_of

        report, cells = self.report_, self.cell_model_
        joint, frame, options = report.joint, fitted_frame(self), fit_options(self)
        if frame.loss.is_quadratic:  # where a few more steps are all that exactness takes
            options = replace(options, tol=min(options.tol, _EXACT))
        model, solve = fit_cells_of(
            options,
            frame,
            rows,
            cells.partitioner,
            penalty,
            joint.solution.layout.kinds,
            joint.solution.theta,
        )
        if penalty is joint.penalty:
            solve = replace(solve, setting=joint.setting)
        else:  # which no cross-validation chose
            report = replace(report, cv_results=None)
        self.report_ = replace(report, joint=solve)
        model, importances = model.described(rows.X, rows.s)
        self.cell_model_, self.feature_importances_ = model, self.columns_.credited(importances)
        self._keep_rows(rows)

    def _check_updates(self: Any, caller: str) -> None:
        """Raise where the model is not one joint problem that can be solved once more."""
        problem = self._blend_problem()
        if problem is not None:
            raise ValueError(f"{caller} has no joint problem to solve once more: {problem}")
        if self.report_.has_offset:
            raise ValueError(
                f"{caller} takes no exposure or offset, with which the model was fitted: fit all "
                "rows again"
            )

    def _old_rows(self: Any, X: Any, y: Any, weight: Any) -> Rows:
        if X is not None or y is not None:
            if X is None or y is None:
                raise ValueError("X_old and y_old belong together: give both or none")
            return read_fit_rows(self, X, y, weight)
        if self._kept_rows is None:
            raise ValueError(
                "update needs the rows of the fit, which copies, pickles, model files and fits of "
                "more than 64 MiB leave out: give X_old and y_old"
            )
        return self._kept_rows

    def _new_rows(self: Any, X: Any, y: Any, weight: Any) -> Rows:
        labels = self._known_labels("y_new", y, "fit all rows again")
        rows = read_known_rows(self, X, y, weight)
        weights = getattr(self, "class_weight", None)
        if weights is None:
            return rows
        positive = np.ones(len(labels), bool) if weight is None else np.asarray(weight) > 0
        return replace(rows, s=rows.s * class_factors(weights, labels[positive]))

    def _known_labels(self, name: str, y: Any, remedy: str) -> NDArray:
        """Return targets as an array; raise for classes that the model does not know."""
        labels, known = np.asarray(y), getattr(self, "classes_", None)
        unknown = [] if known is None else np.setdiff1d(labels, known).tolist()
        if unknown:
            raise ValueError(
                f"{name} holds class {unknown[0]!r}, which the fit did not see: {remedy}"
            )
        return labels
