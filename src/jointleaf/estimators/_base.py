"""What the estimators share: how a fit goes from rows to a jointly optimised ensemble."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_X_y
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.fitting import solve
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.problem import Problem, check_weights
from jointleaf._core.progress import SolveProgress
from jointleaf._data.features import FeaturePlan, chosen_columns, plan_features
from jointleaf._data.rows import Rows, canonical_rows, read_rows, read_training_rows
from jointleaf._fit import (
    DEFAULT_SETTING,
    Fold,
    PathFold,
    RecipeFold,
    Setting,
    StrengthChoice,
    TuningResult,
    auto_penalty,
    choose_strength,
    grow,
    setting_cells,
    target_scale,
    tune,
)
from jointleaf._fit.boosted import VERY_MANY_ROWS, fit_boosted
from jointleaf._fit.job import Job
from jointleaf._fit.many_rows import MANY_ROWS, ManyRows, with_all_classes
from jointleaf._fit.memory import check_memory
from jointleaf._fit.mixed_weights import mixed
from jointleaf._fit.outcome import Outcome, with_simpler
from jointleaf._fit.splitting import given_splits, make_folds, split_labels
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.contributions import by_column, cell_ranges, warn_of_no_features
from jointleaf.estimators._checks import (
    check_gaps,
    check_parameters,
    check_penalty,
    refuse_task_penalties,
)
from jointleaf.estimators._params import JOPLEnParameters, restored_on_error
from jointleaf.inspection._methods import Explainable
from jointleaf.partitions import (
    FittedEnsemble,
    LightGBMPartitioner,
    Partitioner,
    RootCell,
    UnionPartitioner,
    check_fitted_model,
    default_partitioner,
    is_ensemble,
    known_categories,
    make_partitioner,
    recipe_partitioner,
    seeded,
)

__all__ = ["BaseJOPLEn", "Frame", "Job"]

F = TypeVar("F", bound=Fold)


class BaseJOPLEn(Explainable, JOPLEnParameters):
    """Joint optimisation of piecewise linear ensembles: the part common to all estimators."""

    # -- what a subclass says ------------------------------------------------------------------

    @abstractmethod
    def _encode_target(self, y: NDArray) -> tuple[NDArray, Loss]:
        """Targets as numbers for the loss, and the loss."""

    @abstractmethod
    def _encode_known_target(self, y: NDArray) -> NDArray:
        """Targets of validation rows, encoded as the training targets were."""

    # -- fitting -------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> BaseJOPLEn:
        """Grow partitions and fit the models of all their cells jointly.

        Parameters
        ----------
        X : array-like or data frame (n, d)
            Numbers, missing values (NaN, None), and text or category columns.
            float32 is computed in float32, everything else in float64.
        y : array-like (n,)
        sample_weight : array-like (n,), optional
            Zero equals leaving the row out, 2 equals giving it twice.
        X_val, y_val : array-like (m, d), (m,), optional
            Rows on which ``penalty="auto"`` chooses the penalty, instead of cross-validation.

        Returns
        -------
        self
        """
        with restored_on_error(self):
            self._store(self._fit(X, y, sample_weight, X_val, y_val))
        return self

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        X_val: ArrayLike | None,
        y_val: ArrayLike | None,
    ) -> Outcome:
        check_parameters(self)
        refuse_task_penalties(self.penalty)
        if not self._chooses and (X_val is not None or y_val is not None):
            raise ValueError(
                "X_val and y_val choose the penalty: give them with penalty='auto' or a "
                "strength that is 'auto'"
            )
        if is_ensemble(self.partitioner):
            check_fitted_model(self.partitioner, X)  # names and number of its columns
        known = known_categories(self.partitioner)
        columns, given, targets = read_training_rows(
            self,
            X,
            y,
            categorical=self.categorical_features,
            known=known,
            sample_weight=sample_weight,
            y_numeric=self._target_type == "regression",
        )
        check_memory(self, given, targets)
        weights = check_weights(sample_weight, len(targets))
        splits = given_splits(self.cv, given, targets, self._target_type)
        keep = weights > 0
        check_gaps(given[keep], columns)
        chosen = chosen_columns(self.linear_features, columns, X)
        target, loss = self._encode_target(targets[keep])
        labels = split_labels(splits, len(targets))
        rows = canonical_rows(given[keep], target, weights[keep], labels[keep])
        plan = plan_features(
            rows.X, rows.s, columns, chosen, missing_indicators=bool(self.add_indicator)
        )
        if isinstance(self.penalty, Term):
            check_penalty(self.penalty, len(given), len(plan.names), self.cells)
        job = Job(rows, columns, plan, loss, self._seed(), effective_n_jobs(self.n_jobs))
        # Made before the work starts: names and fitted models that do not fit are found here.
        partitioner = self._make_partitioner(job.seed, job.n_jobs)
        self.columns_ = columns  # for the validation rows
        valid = self._check_validation_rows(X_val, y_val)
        folds = []
        if self._chooses:
            parts = rows, self.cv, splits, valid, self._target_type
            folds = make_folds(*parts, is_recipe=self._is_recipe)
        return self._fit_job(job, partitioner, folds)

    def _fit_job(
        self, job: Job, partitioner: Partitioner, folds: list[tuple[Rows, Rows]]
    ) -> Outcome:
        """Choose what is left to choose on folds, and fit all rows."""
        if folds and self._has_many_rows(job):
            return self._fit_many_rows(job, *folds[0])
        tuning = self._choose(job, folds) if self._chooses else None
        return self._refit(job, partitioner, tuning).with_means(job.rows)

    def _has_many_rows(self, job: Job) -> bool:
        """Whether the recipe for many rows is used."""
        usual = self.cells == "linear" and self.root_cell and self.clip != "cell"
        return self._is_recipe and usual and len(job.rows) > MANY_ROWS

    def _fit_many_rows(self, job: Job, train: Rows, valid: Rows) -> Outcome:
        has_lightgbm = isinstance(default_partitioner(), LightGBMPartitioner)
        if len(job.rows) > VERY_MANY_ROWS and has_lightgbm:
            train, valid = with_all_classes(job.rows, train, valid, self._target_type)
            shown = {"clip": bool(self.clip), "verbose": bool(self.verbose)}
            return fit_boosted(job, train, valid, self._target_type, **shown)
        recipe = ManyRows(job, self._target_type, bool(self.clip))
        return recipe.fit(train, valid).with_means(job.rows)

    def _choose(
        self, job: Job, folds: list[tuple[Rows, Rows]]
    ) -> TuningResult | StrengthChoice | None:
        """Cross-validate; None where there are too few rows for it."""
        options: dict[str, Any] = {
            "cells": self.cells,
            "one_se": self._takes_one_se(),
            "n_jobs": job.n_jobs,
            "verbose": bool(self.verbose),
        }
        if isinstance(self.penalty, str):
            makers = self._fold_makers(RecipeFold, job, folds)
            is_trained = isinstance(make_partitioner(self.partitioner), FittedEnsemble)
            options |= {"is_trained": is_trained, "is_recipe": self._is_recipe}
            return tune(makers, **options) if folds else None
        if not folds:
            raise ValueError(
                f"penalty={self.penalty!r}: {len(job.rows)} different rows are too few to choose a "
                "strength by cross-validation: give a number"
            )
        paths = self._fold_makers(PathFold, job, folds)
        return choose_strength(paths, self.penalty, device=self.device, **options)

    def _refit(
        self, job: Job, partitioner: Partitioner, tuning: TuningResult | StrengthChoice | None
    ) -> Outcome:
        """Grow partitions on all rows and solve the problem with the penalty that was chosen."""
        rows, loss = job.rows, job.loss
        grow(partitioner, rows, self._target_type, job.columns)
        features = job.plan.fit(rows.X, rows.s, clip=bool(self.clip))
        centre, unit = target_scale(rows.y, rows.s, self._target_type)
        penalty, kind = self._final_penalty(tuning, partitioner, job.plan)
        offset = np.asarray(
            loss.best_constant(loss.encode((rows.y - centre) / unit), rows.s), float
        )
        frame = Frame(job.columns, features, loss, offset, centre, unit, job.n_jobs)
        fit = self._fit_cells(frame, rows, partitioner, penalty, kind)
        if isinstance(tuning, TuningResult) and tuning.shares is not None:
            fit = with_simpler(fit, tuning.shares, rows)
        elif isinstance(tuning, TuningResult):
            model, mix = mixed(fit.model, tuning.mix, rows, frame)
            fit = replace(fit, model=model, mix=mix)
        return replace(fit, tuning=tuning)

    def _fit_cells(
        self,
        frame: Frame,
        rows: Rows,
        partitioner: Partitioner,
        penalty: Term,
        kind: CellKind,
        init: NDArray | None = None,
    ) -> Outcome:
        """Fit the cells of a fitted partitioner with a penalty, from weights `init` or zero."""
        design = frame.design(rows.X, partitioner, kind)
        problem = Problem(design, frame.target(rows.y), frame.loss, penalty, rows.s, frame.offset)
        problem.device = self.device
        if self.verbose:
            problem.listener = SolveProgress()
        solution = solve(problem, self.solver, init, tol=self.tol, max_iter=self.max_iter)
        if self.verbose:
            print(f"{solution.message}, objective {solution.objective:.6g}")
        ranges = None
        if self.clip == "cell" and kind == "linear":
            ranges = cell_ranges(design.rows, partitioner.apply(rows.X), solution.layout)
        model = CellModel.of_solution(frame, partitioner, solution, ranges)
        return Outcome(frame, model, solution, penalty, model.importances(design, rows.s))

    def _final_penalty(
        self,
        tuning: TuningResult | StrengthChoice | None,
        partitioner: Partitioner,
        plan: FeaturePlan,
    ) -> tuple[Term, CellKind]:
        """The penalty that was given or chosen, and the kind of cells that goes with it."""
        if isinstance(tuning, StrengthChoice):
            return tuning.best, self.cells
        if isinstance(self.penalty, Term):
            return self.penalty, self.cells
        setting = DEFAULT_SETTING if tuning is None else tuning.best
        kind = setting_cells(setting) if self.cells == "linear" else self.cells
        gains, n_partitions = partitioner.split_gains_, len(partitioner.n_cells_)
        return auto_penalty(setting, gains, n_partitions, self.root_cell, plan.sources), kind

    def _store(self, fit: Outcome) -> None:
        """Put the results on the estimator."""
        frame, solution = fit.frame, fit.solution
        plan, d = frame.features.plan, len(frame.columns)
        self.solution_ = solution
        self.penalty_ = fit.penalty
        self.feature_importances_ = fit.importances
        self.n_iter_ = solution.n_iter
        self.cv_results_ = fit.tuning.table if fit.tuning else None
        best = fit.tuning.best if fit.tuning else None
        self.setting_ = best if isinstance(best, Setting) else None
        self.shares_ = fit.tuning.shares if isinstance(fit.tuning, TuningResult) else None
        self.mix_ = fit.mix
        self.slope_norms_ = by_column(fit.slope_norms, plan.sources, d)
        self.columns_ = frame.columns
        self._offset = frame.offset
        self.__dict__.pop("pruning_", None)  # of a pruned model that is fitted once more
        self._take_cells(fit.model)
        is_empty = not self.selected_features_.size and self.cells == "linear"
        if isinstance(fit.tuning, StrengthChoice) and is_empty:
            warn_of_no_features(self.penalty)

    def _take_cells(self, model: CellModel) -> None:
        """Predict with this model, and give its coefficients in the units of the input."""
        plan = model.features.plan
        self.coef_ = model.coef()
        self.intercept_ = model.intercept()
        self.offset_ = model.centre + model.unit * model.offset
        self.cell_starts_ = model.layout.offsets[:-1]
        self.partitioner_ = model.partitioner
        self.linear_feature_names_ = np.array(plan.names, dtype=object)
        self.linear_feature_columns_ = plan.sources
        self.selected_features_ = np.flatnonzero(self.slope_norms_)
        self.split_features_ = model.partitioner.split_features_
        self._features, self._centre, self._unit = model.features, model.centre, model.unit
        self._model = model

    # -- pieces of a fit -----------------------------------------------------------------------

    def _make_partitioner(self, seed: int, n_jobs: int) -> Partitioner:
        partitioner = (
            recipe_partitioner(self._target_type)
            if self._is_recipe
            else make_partitioner(self.partitioner)
        )
        if self.root_cell:
            partitioner = UnionPartitioner([partitioner, RootCell()])
        return seeded(partitioner, seed, n_jobs)

    def _fold_makers(
        self, kind: type[F], job: Job, folds: list[tuple[Rows, Rows]]
    ) -> list[Callable[..., F]]:
        threads = max(1, job.n_jobs // max(1, len(folds)))  # folds run side by side
        partitioner = self._make_partitioner(job.seed, threads)
        unit = target_scale(job.rows.y, job.rows.s, self._target_type)[1]
        return [
            partial(
                kind,
                train,
                valid,
                partitioner.fresh(),
                job.loss,
                n_folds=len(folds),
                unit=unit,
                n_jobs=threads,
                target_type=self._target_type,
                plan=job.plan,
                columns=job.columns,
                clip=bool(self.clip),
                has_root=self.root_cell,
            )
            for train, valid in folds
        ]

    def _check_validation_rows(
        self, X_val: ArrayLike | None, y_val: ArrayLike | None
    ) -> Rows | None:
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            raise ValueError("X_val and y_val belong together: give both or none")
        numeric = self._target_type == "regression"
        X, y = check_X_y(
            read_rows(self, X_val), y_val, ensure_all_finite="allow-nan", y_numeric=numeric
        )
        target = self._encode_known_target(y)
        return Rows(X, target, np.ones(len(y)), np.zeros((len(y), 0), np.int64))

    # -- predicting ----------------------------------------------------------------------------

    def _raw_predictions(self, X: ArrayLike) -> NDArray:
        """Predictions on the scale of the loss, (n,) or (n, K)."""
        check_is_fitted(self)
        return self._model.predict(read_rows(self, X), effective_n_jobs(self.n_jobs), self.device)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Codes (n, P): in which cell of every partition each row falls; -1 is no cell."""
        check_is_fitted(self)
        return self.partitioner_.apply(read_rows(self, X))
