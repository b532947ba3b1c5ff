"""What the regressor and the classifier share: from rows to a model, and what it tells."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import row_blocks, threads
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.progress import ticking
from jointleaf._data.columns import Columns
from jointleaf._data.features import chosen_columns, plan_features
from jointleaf._data.rows import (
    Rows,
    canonical_rows,
    read_groups,
    read_rows,
    read_training_rows,
)
from jointleaf.estimators._checks import (
    check_parameters,
    check_penalty,
    check_single_task,
    check_targets,
    class_factors,
    has_linear_cells,
    restored_on_error,
    used_part,
    warn_of_columns,
    warn_of_no_values,
    warn_of_preparation,
)
from jointleaf.estimators._fitted import Updatable, read_known_rows
from jointleaf.estimators._monotone import (
    MonotoneParameters,
    check_certificate,
    check_constraints,
    read_signs,
)
from jointleaf.estimators._params import check_memory
from jointleaf.inspection._methods import Explainable

if TYPE_CHECKING:
    from jointleaf._core.solvers.solution import Solution
    from jointleaf._fit.calibration import Calibration, HeldOut
    from jointleaf._fit.component import Blend, FitContext
    from jointleaf._fit.limits import Used
    from jointleaf._fit.report import Fit, FitReport
    from jointleaf._model.cell_model import CellModel
    from jointleaf.partitions import Partitioner

_MOST_KEPT = 2**26  # bytes of rows that are kept for updates


class BaseJOPLEn(Updatable, Explainable, MonotoneParameters):
    """Joint optimisation of piecewise linear ensembles: the part common to all estimators.

    A fit leaves a model, a report and few other attributes; everything else is read from these.
    """

    calibration_: Calibration | None

    # -- what a subclass says ------------------------------------------------------------------

    @abstractmethod
    def _encode_target(self, y: NDArray, part: str = "") -> NDArray:
        """Return targets as numbers for the loss; `part` says of which rows, for messages."""

    @abstractmethod
    def _find_loss(
        self, rows: Rows, columns: Columns, seed: int
    ) -> tuple[Loss, tuple[float, float] | None]:
        """Return the loss of training rows in the units of targets that are returned as well."""

    def _class_weights(self, y: NDArray, weights: NDArray) -> dict[Any, float] | None:
        """Return the weight of every class of targets (n,); None where all are 1."""
        return None

    def _without_offset(self, y: NDArray, offset: NDArray) -> tuple[NDArray, NDArray]:
        """Return targets and offsets; where the loss is of residuals, only targets are left."""
        return y, offset

    # -- fitting -------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
    ) -> BaseJOPLEn:
        """Grow partitions and fit the models of all their cells.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame (n, d)
            Numbers, missing values (NaN, None), and text or category columns of data frames.
            Sparse matrices are made dense, if memory allows.
            float32 is computed in float32, everything else in float64.
        y : array-like (n,)
        sample_weight : array-like (n,), optional
            Zero equals leaving the row out, 2 equals giving it twice.
        groups : array-like (n,), optional
            Rows that belong together, such as those of one person: they are never on both sides of
            any split that the fit makes.
        X_val, y_val : array-like (m, d), (m,), optional
            Held-out rows on which everything is chosen that cross-validation would choose.
        sample_weight_val : array-like (m,), optional
            Their weights.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, groups, X_val, y_val, sample_weight_val)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
        X_val: ArrayLike | None,
        y_val: ArrayLike | None,
        sample_weight_val: ArrayLike | None,
        offset: NDArray | None = None,
        offset_val: NDArray | None = None,
    ) -> BaseJOPLEn:
        """Fit rows with offsets (n,), where there are any."""
        from jointleaf._fit.limits import Budget

        with restored_on_error(self), ticking("fitting", enabled=bool(self.verbose)):
            check_parameters(self)
            if self._is_warm:
                given = {"groups": groups, "X_val": X_val, "y_val": y_val, "offset": offset}
                self._fit_warm(X, y, sample_weight, **given)
                return self
            warn_of_preparation(self)
            budget = None if self.time_budget is None else Budget(self.time_budget)
            has_validation = X_val is not None or y_val is not None
            context = self._read(X, y, sample_weight, groups, has_validation, offset)
            valid = read_validation_rows(self, X_val, y_val, sample_weight_val, offset_val)
            if valid is not None:
                valid = replace(valid, s=valid.s * context.class_factors(valid))
            self._store(self._fit_context(context, valid, budget), context.rows)
            if self.monotonic_cst is not None:
                check_certificate(self)
        return self

    def _read(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
        has_validation: bool,
        offset: NDArray | None,
    ) -> FitContext:
        """Check rows, and return what the fit works on."""
        from jointleaf._core.problem import check_weights
        from jointleaf._fit.folds import split_labels, user_splits
        from jointleaf._trees.importers.base import check_fitted_model, is_ensemble
        from jointleaf.partitions._factory import known_categories

        check_single_task(self.penalty)
        check_targets(self, y)
        if has_validation and not self._chooses:
            raise ValueError(
                "X_val and y_val choose the penalty: give them with penalty='auto' or a "
                "strength that is 'auto'"
            )
        if has_validation and self.cv is not None:
            raise ValueError(
                f"cv={self.cv!r} has no effect with X_val and y_val, which are validated on: leave "
                "out one of them"
            )
        if is_ensemble(self.partitioner):
            check_fitted_model(self.partitioner, X)  # names and number of its columns
        known = {} if self._has_default_partitions else known_categories(self.partitioner)
        columns, matrix, targets = read_training_rows(
            self,
            X,
            y,
            categorical=self.categorical_features,
            known=known,
            sample_weight=sample_weight,
            y_numeric=self._target_type == "regression",
        )
        warn_of_columns(columns, matrix, targets)
        X = columns.prepared(X)
        check_memory(self, matrix, targets, columns)
        weights = check_weights(sample_weight, len(targets))
        factors = self._class_weights(targets, weights)
        weights = weights * class_factors(factors, targets)
        is_used = weights > 0
        group_numbers = read_groups(groups, is_used)
        splits = user_splits(self.cv, matrix, targets, self._target_type, group_numbers)
        part = used_part(is_used)
        warn_of_no_values(matrix[is_used], columns, part)
        chosen = chosen_columns(self.linear_features, columns, X)
        signs = None if self.monotonic_cst is None else read_signs(self.monotonic_cst, columns)
        target = self._encode_target(targets[is_used], part)
        if signs is not None or not self._has_default_partitions:
            check_constraints(self, signs, len(getattr(self, "classes_", ())))
        labels = split_labels(splits, len(targets))
        shift = np.zeros(len(target)) if offset is None else offset[is_used]
        target, shift = self._without_offset(target, shift)
        rows = canonical_rows(
            matrix[is_used],
            target,
            weights[is_used],
            labels[is_used],
            shift,
            None if group_numbers is None else group_numbers[is_used],
        )
        seed = self._seed()
        loss, units = self._find_loss(rows, columns, seed)
        if self._has_default_partitions and columns.categorical.size:
            columns, rows = self._with_statistics(columns, rows, chosen)
        if chosen is not None:  # statistics are of columns that the linear models see
            chosen = np.append(chosen, np.arange(len(columns), rows.X.shape[1]))
        plan = plan_features(
            rows.X, rows.s, columns.of_matrix(), chosen, missing_indicators=bool(self.add_indicator)
        )
        if isinstance(self.penalty, Term):
            n_features, is_linear = len(plan.names), has_linear_cells(self.cells)
            check_penalty(self.penalty, len(matrix), n_features, is_linear=is_linear)
        self.columns_ = columns
        context = self._context(rows, columns, plan, loss, seed, units)
        if signs is not None:  # statistics have none
            context = replace(context, signs=read_signs(self.monotonic_cst, columns))
        if factors is None:
            return context
        used = [weight for weight in factors.values() if weight > 0]  # classes that are left
        return replace(context, class_weights=np.array(used))

    def _look(self, X: Any, y: Any) -> Used:
        from jointleaf._fit.budget import look
        from jointleaf._fit.limits import Budget, Used
        from jointleaf._fit.recipes import choose_recipe

        with warnings.catch_warnings():  # the fit will repeat them
            warnings.simplefilter("ignore")
            try:
                context = self._read(X, y, None, None, False, None)
            except MemoryError:
                return Used()
        recipe = choose_recipe(
            self.recipe, len(context.rows), context.partitioner, context.penalty, context.n_outputs
        )
        budget = None if self.time_budget is None else Budget(self.time_budget)
        return self._on_splits(look, context, recipe, None, budget)

    def _with_statistics(
        self, columns: Columns, rows: Rows, chosen: NDArray | None
    ) -> tuple[Columns, Rows]:
        """Return columns and rows with statistics of the columns that have many categories."""
        from jointleaf._data.statistics import learn_statistics

        learned = learn_statistics(rows, columns, self._target_type == "regression", chosen)
        if learned is None:
            return columns, rows
        return replace(columns, statistics=learned[0]), learned[1]

    def _fitted_context(self, rows: Rows) -> FitContext:
        """Return what a fit like this one, of some rows, works on."""
        model, loss = self.cell_model_, self._loss
        is_fixed = self._target_type == "regression" and not loss.is_quadratic
        units = (model.centre, model.unit) if is_fixed else None
        seed = self._seed(keep=True)
        return self._context(rows, self.columns_, model.features.plan, loss, seed, units)

    def _store(self, fit: Fit, rows: Rows) -> None:
        """Put the results on the estimator."""
        from jointleaf._model.contributions import warn_of_no_features

        for name in ("pruning_", "source_fit_", "quantiles_"):  # of a model that is fitted again
            self.__dict__.pop(name, None)
        self.report_ = fit.report
        store_model(self, fit.model, fit.importances, rows)
        self._keep_rows(rows)
        self._learn_residuals(fit.held_out)
        is_empty = not self.selected_features_.size and has_linear_cells(self.cells)
        if isinstance(self.penalty, Term) and self.penalty.is_auto and is_empty:
            warn_of_no_features(self.penalty)

    def _learn_residuals(self, rows: HeldOut | None) -> None:
        """Learn from held-out rows, where there are any, how far targets are from predictions."""
        from jointleaf._fit.calibration import Calibration

        self.calibration_ = None
        if rows is not None:
            self.calibration_ = Calibration.of_fit(rows, self.columns_.of_matrix())

    # -- fits that start from the model ------------------------------------------------------------

    @property
    def _is_warm(self) -> bool:
        """Whether a fit starts from the model that there is."""
        return bool(self.warm_start) and hasattr(self, "cell_model_")

    def _keep_rows(self, rows: Rows) -> None:
        """Keep the rows that a model was fitted to, for updates."""
        is_alone = self._blend_problem() is None
        small = rows.X.nbytes + rows.y.nbytes + rows.s.nbytes <= _MOST_KEPT
        labels = np.zeros((len(rows), 0), np.int64)
        self._kept_rows = Rows(rows.X, rows.y, rows.s, labels) if small and is_alone else None

    def __getstate__(self) -> dict[str, Any]:
        parent: Any = super()
        return {k: v for k, v in parent.__getstate__().items() if k != "_kept_rows"}

    def _blend_problem(self) -> str | None:
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

    # -- what was fitted -----------------------------------------------------------------------

    @property
    def blend_(self) -> Blend:
        """Weights of the components that the model consists of."""
        return self._report.blend

    @property
    def solution_(self) -> Solution | None:
        """The solver's record of the joint problem; None where none was solved."""
        return self._report.solution

    @property
    def penalty_(self) -> Term | None:
        """The penalty of the joint problem; None where none was solved."""
        return self._report.penalty

    @property
    def cv_results_(self) -> dict[str, Any] | None:
        """Every setting that was tried, with its score on held-out rows."""
        return self._report.cv_results

    @property
    def n_iter_(self) -> int:
        """Iterations of the solver, or rounds of boosting where no joint problem was solved."""
        return self._report.n_iter

    @property
    def partitioner_(self) -> Partitioner:
        """The fitted partitions."""
        return self._cells.partitioner

    @property
    def coef_(self) -> NDArray:
        """Slopes (C, m[, K]) of all cells in the units of the input, zero in constant cells."""
        return self._cells.coef()

    @property
    def intercept_(self) -> NDArray:
        """Biases (C[, K]) of all cells in the units of the input."""
        return self._cells.intercept()

    @property
    def offset_(self) -> NDArray:
        """What the cells add to, () or (K,)."""
        return self._cells.centre + self._cells.unit * self._cells.offset

    @property
    def cell_starts_(self) -> NDArray[np.int64]:
        """Number of the first cell of every partition, (P,)."""
        return self._cells.layout.offsets[:-1]

    @property
    def linear_feature_names_(self) -> NDArray:
        """Names (m,) of the linear features."""
        return np.array(self._cells.features.plan.names, dtype=object)

    @property
    def linear_feature_columns_(self) -> NDArray[np.intp]:
        """Column of X that each linear feature comes from, (m,); the first of a pair."""
        sources, statistics = self._cells.features.plan.sources, self.columns_.statistics
        if statistics is None:
            return sources
        return np.array([statistics.sources[j][0] for j in sources], np.intp)

    @property
    def slope_norms_(self) -> NDArray[np.float64]:
        """Euclidean norm of every column's standardised slopes over all cells, (d,)."""
        from jointleaf._model.contributions import by_column

        sources, width = self._cells.features.plan.sources, len(self.columns_.of_matrix())
        norms = by_column(self._cells.slope_norms(), sources, width)
        return np.sqrt(self.columns_.credited(np.square(norms)))

    @property
    def selected_features_(self) -> NDArray[np.intp]:
        """Columns that have a slope in some cell."""
        return np.flatnonzero(self.slope_norms_)

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Columns on which the cells depend."""
        depends = np.zeros(len(self.columns_.of_matrix()))
        depends[self._cells.partitioner.split_features_] = 1.0
        return np.flatnonzero(self.columns_.credited(depends))

    @property
    def _report(self) -> FitReport:
        check_is_fitted(self)
        return self.report_

    @property
    def _cells(self) -> CellModel:
        check_is_fitted(self)
        return self.cell_model_

    # -- predicting ----------------------------------------------------------------------------

    def _raw_predictions(self, X: ArrayLike) -> NDArray:
        """Return predictions on the scale of the loss, (n,) or (n, K)."""
        model = self._cells
        n_jobs = threads(self.n_jobs)
        blocks = [model.predict(read_rows(self, x), n_jobs, self.device) for x in row_blocks(X)]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, P): the cell of every partition of each row; -1 is no cell."""
        return self._cells.partitioner.apply(read_rows(self, X))


def store_model(estimator: BaseJOPLEn, model: CellModel, importances: NDArray, rows: Rows) -> None:
    """Put a model of training rows, and the importances of what it sees, on an estimator."""
    columns = estimator.columns_
    statistics = columns.statistics
    if statistics is not None:  # explanations measure from rows as they are predicted
        model, importances = model.described(statistics.matrix(statistics.coded(rows)), rows.s)
    estimator.cell_model_, estimator.feature_importances_ = model, columns.credited(importances)


def read_validation_rows(
    estimator: BaseJOPLEn,
    X_val: ArrayLike | None,
    y_val: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    offset: NDArray | None = None,
) -> Rows | None:
    """Return the rows that are held out to choose on; None where there are none."""
    if X_val is None and y_val is None and sample_weight is None:
        return None
    if X_val is None or y_val is None:
        raise ValueError("X_val and y_val belong together: give both or none")
    return read_known_rows(estimator, X_val, y_val, sample_weight, offset)


def fitted_context(estimator: BaseJOPLEn, rows: Rows) -> FitContext:
    """Return what a fit like that of an estimator, of some rows, works on."""
    return estimator._fitted_context(rows)
