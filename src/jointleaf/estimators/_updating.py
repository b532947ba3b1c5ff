"""New rows for a fitted model: its cells are fitted to old and new rows together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.rows import Rows, canonical_rows
from jointleaf._fit.joint import fit_cells_of
from jointleaf._fit.quantiles import check_single
from jointleaf.estimators._checks import class_factors, restored_on_error

E = TypeVar("E", bound="Updatable")
_EXACT = 1e-10  # tolerance of squared errors
_MOST_KEPT = 2**26  # bytes of rows that are kept for updates


class Updatable:
    """An estimator whose cells can be fitted to further rows."""

    #: Rows of the fit as it saw them; None where they are too large, or of a loaded model.
    _kept_rows: Rows | None = None

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
            Rows of the fit and of updates since, needed where the model does not keep them.
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
        check_is_fitted(self)
        check_single(self, "update")
        with restored_on_error(self):
            self._check_updates(exposure)
            old = self._old_rows(X_old, y_old, sample_weight_old)
            new = self._new_rows(X_new, y_new, sample_weight)
            dtype = old.X.dtype
            rows = canonical_rows(
                np.concatenate([old.X, new.X.astype(dtype, copy=False)]),
                np.concatenate([old.y, new.y]),
                np.concatenate([old.s, new.s]),
            )
            self._fit_cells(rows)
        return self

    def keep_rows(self, rows: Rows) -> None:
        """Keep the rows that a model was fitted to, for updates."""
        is_alone = self._blend_problem() is None
        small = rows.X.nbytes + rows.y.nbytes + rows.s.nbytes <= _MOST_KEPT
        labels = np.zeros((len(rows), 0), np.int64)
        self._kept_rows = Rows(rows.X, rows.y, rows.s, labels) if small and is_alone else None

    def __getstate__(self) -> dict[str, Any]:
        parent: Any = super()
        return {k: v for k, v in parent.__getstate__().items() if k != "_kept_rows"}

    def _fit_cells(self: Any, rows: Rows) -> None:
        """Fit the cells to rows, from the weights that they have."""
        report, cells = self.report_, self.cell_model_
        joint, frame, options = report.joint, self.fitted_frame(), self.fit_options()
        if frame.loss.is_quadratic:  # where a few more steps are all that exactness takes
            options = replace(options, tol=min(options.tol, _EXACT))
        model, solve = fit_cells_of(
            options,
            frame,
            rows,
            cells.partitioner,
            joint.penalty,
            joint.solution.layout.kinds,
            joint.solution.theta,
        )
        self.report_ = replace(report, joint=replace(solve, setting=joint.setting))
        model, importances = model.described(rows.X, rows.s)
        self.cell_model_, self.feature_importances_ = model, self.columns_.credited(importances)
        self.keep_rows(rows)

    def _check_updates(self: Any, exposure: Any) -> None:
        if exposure is not None:
            raise ValueError(
                "update takes no exposure: fit all rows again, with exposure given to fit"
            )
        problem = self._blend_problem()
        if problem is not None:
            raise ValueError(f"update has no joint problem to solve once more: {problem}")
        if self.report_.has_offset:
            raise ValueError(
                "update takes no exposure or offset, with which the model was fitted: fit all rows "
                "again"
            )
        if isinstance(getattr(self, "class_weight", None), str):
            raise ValueError(
                f"update cannot tell what class_weight={self.class_weight!r} means for all rows: "
                "give a dict of weights to the fit, or fit all rows again"
            )

    def _blend_problem(self: Any) -> str | None:
        """Return why the model is not the solution of one joint problem; None where it is."""
        report = self.report_
        if hasattr(self, "source_fit_"):
            return "the model was fitted from a source of rows: fit the source with the new rows"
        if self.monotonic_cst is not None:
            return "the model has monotone constraints: fit all rows again"
        is_joint = report.joint is not None and report.recipe == "joint"
        alone = is_joint and [c.name for c in report.components if c.weight] == ["joint"]
        alone = alone and report.components[0].weight == 1.0 and not np.any(report.blend.constant)
        if alone:
            return None
        return (
            f"the model is a blend ({report.blend!r}): fit all rows again, or give the fit a "
            "penalty, such as penalty=Frobenius('auto'), with which it is one joint fit"
        )

    def _old_rows(self: Any, X: Any, y: Any, weight: Any) -> Rows:
        if X is not None or y is not None:
            if X is None or y is None:
                raise ValueError("X_old and y_old belong together: give both or none")
            return self.read_fit_rows(X, y, weight)
        if self._kept_rows is None:
            raise ValueError(
                "update needs the rows of the fit, which copies, pickles, model files and fits of "
                "more than 64 MiB leave out: give X_old and y_old"
            )
        return self._kept_rows

    def _new_rows(self: Any, X: Any, y: Any, weight: Any) -> Rows:
        labels = np.asarray(y)
        known = getattr(self, "classes_", None)
        unknown = [] if known is None else np.setdiff1d(labels, known).tolist()
        if unknown:
            raise ValueError(
                f"y_new holds class {unknown[0]!r}, which the fit did not see: fit all rows again"
            )
        rows = self.read_known_rows(X, y, weight)
        weights = getattr(self, "class_weight", None)
        if weights is None:
            return rows
        positive = np.ones(len(labels), bool) if weight is None else np.asarray(weight) > 0
        return replace(rows, s=rows.s * class_factors(weights, labels[positive]))
