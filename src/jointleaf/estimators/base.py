"""What the estimators share: how a fit goes from rows to a jointly optimised ensemble."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from jointleaf.design import LeafDesign
from jointleaf.estimators.checks import (
    check_numeric,
    check_penalty,
    deal,
    is_ensemble,
    is_whole,
    split_labels,
)
from jointleaf.estimators.summaries import importances, warn_of_no_features
from jointleaf.fitting import check_limits, solve
from jointleaf.layout import CellKind
from jointleaf.losses import Loss
from jointleaf.partitions import (
    Partitioner,
    RootCell,
    Task,
    UnionPartitioner,
    check_fitted_model,
    make_partitioner,
    seeded,
)
from jointleaf.penalties import Penalty, Term
from jointleaf.problem import Problem, check_weights
from jointleaf.progress import SolveProgress
from jointleaf.rows import Rows, canonical_rows
from jointleaf.scaling import Standardizer
from jointleaf.solvers import Solution, check_solver_name
from jointleaf.tuning import (
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

__all__ = ["BaseJOPLEn"]

F = TypeVar("F", bound=Fold)

_MAX_CV_ROWS = 2500  # up to here K folds; above, one validation split
_PREDICT_ROWS = 16384  # rows predicted at a time: bounds the memory of their codes


@dataclass(frozen=True)
class _Fit:
    """Everything a fit finds, put on the estimator at its very end."""

    partitioner: Partitioner
    scaler: Standardizer
    solution: Solution
    penalty: Term
    offset: NDArray
    centre: float
    unit: float
    importances: NDArray
    tuning: TuningResult | StrengthChoice | None


class BaseJOPLEn(BaseEstimator):
    """Joint optimisation of piecewise linear ensembles: the part common to all estimators."""

    _task: Task

    def __init__(
        self,
        partitioner: Any = None,
        *,
        penalty: str | Term = "auto",
        cells: CellKind = "linear",
        root_cell: bool = True,
        clip: bool = True,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        cv: Any = None,
        one_se: bool | str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.partitioner = partitioner
        self.penalty = penalty
        self.cells = cells
        self.root_cell = root_cell
        self.clip = clip
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.cv = cv
        self.one_se = one_se
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_clone__(self) -> BaseJOPLEn:
        other = super().__sklearn_clone__()
        # Trained ensembles are parameters here: their clones would be untrained.
        if is_ensemble(self.partitioner):
            other.partitioner = self.partitioner
        elif isinstance(self.partitioner, list):
            other.partitioner = [
                mine if is_ensemble(mine) else theirs
                for mine, theirs in zip(self.partitioner, other.partitioner, strict=True)
            ]
        return other

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
        X : array-like (n, d)
            Finite numbers. float32 is computed in float32, everything else in float64.
        y : array-like (n,)
        sample_weight : array-like (n,), optional
            Zero equals leaving the row out, 2 equals giving it twice.
        X_val, y_val : array-like (m, d), (m,), optional
            Rows on which ``penalty="auto"`` chooses the penalty, instead of cross-validation.

        Returns
        -------
        self
        """
        before = dict(self.__dict__)
        try:
            self._store(self._fit(X, y, sample_weight, X_val, y_val))
        except BaseException:
            # An error or Ctrl-C leaves the estimator as it was, never half fitted.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        X_val: ArrayLike | None,
        y_val: ArrayLike | None,
    ) -> _Fit:
        self._check_parameters()
        if not self._chooses and (X_val is not None or y_val is not None):
            raise ValueError(
                "X_val and y_val choose the penalty: give them with penalty='auto' or a "
                "strength that is 'auto'"
            )
        check_numeric(X)
        if is_ensemble(self.partitioner):
            check_fitted_model(self.partitioner, X)  # names and number of its columns
        y_numeric = self._task == "regression"
        given, targets = validate_data(
            self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2, y_numeric=y_numeric
        )
        if isinstance(self.penalty, Term):
            check_penalty(self.penalty, len(given), given.shape[1], self.cells)
        weights = check_weights(sample_weight, len(targets))
        splits = self._given_splits(given, targets)
        keep = weights > 0
        target, loss = self._encode_target(targets[keep])
        labels = split_labels(splits, len(targets))
        rows = canonical_rows(given[keep], target, weights[keep], labels[keep])
        n_jobs = effective_n_jobs(self.n_jobs)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        partitioner = self._make_partitioner(seed, n_jobs)
        valid = self._check_validation_rows(X_val, y_val)
        tuning = None
        if self._chooses:
            folds = list(self._folds(rows, splits, valid))
            if splits is not None and valid is None and not folds:
                raise ValueError(
                    f"cv={self.cv!r} gives no split with rows on both sides"
                    + (" and two classes in training" if self._task == "classification" else "")
                )
            tuning = self._choose(rows, folds, seed, n_jobs, loss)
        return self._refit(rows, partitioner, loss, tuning, n_jobs)

    @property
    def _chooses(self) -> bool:
        """Whether something about the penalty is left to cross-validation."""
        return isinstance(self.penalty, str) or self.penalty.is_auto

    def _takes_one_se(self) -> bool:
        """Whether the strongest penalty within one standard error of the best is taken."""
        if self.one_se != "auto":
            return bool(self.one_se)
        terms = self.penalty.terms if isinstance(self.penalty, Term) else ()
        return any(isinstance(term, Penalty) and term.is_row_sparse for term in terms)

    def _choose(
        self, rows: Rows, folds: list[tuple[Rows, Rows]], seed: int, n_jobs: int, loss: Loss
    ) -> TuningResult | StrengthChoice | None:
        """Cross-validate; None where there are too few rows for it."""
        options: dict[str, Any] = {
            "cells": self.cells,
            "one_se": self._takes_one_se(),
            "n_jobs": n_jobs,
            "verbose": bool(self.verbose),
        }
        if isinstance(self.penalty, str):
            makers = self._fold_makers(RecipeFold, rows, folds, seed, n_jobs, loss)
            return tune(makers, **options) if folds else None
        if not folds:
            raise ValueError(
                f"penalty={self.penalty!r}: {len(rows)} different rows are too few to choose a "
                "strength by cross-validation: give a number"
            )
        paths = self._fold_makers(PathFold, rows, folds, seed, n_jobs, loss)
        return choose_strength(paths, self.penalty, **options)

    def _refit(
        self,
        rows: Rows,
        partitioner: Partitioner,
        loss: Loss,
        tuning: TuningResult | StrengthChoice | None,
        n_jobs: int,
    ) -> _Fit:
        """Grow partitions on all rows and solve the problem with the penalty that was chosen."""
        grow(partitioner, rows, self._task)
        scaler = Standardizer.fit(rows.X, rows.s, clip=self.clip)
        centre, unit = target_scale(rows.y, rows.s, self._task)
        y = (rows.y - centre) / unit
        penalty, kind = self._final_penalty(tuning, partitioner)
        design = LeafDesign(
            scaler.transform(rows.X),
            partitioner.apply(rows.X),
            partitioner.n_cells_,
            cells=kind,
            n_jobs=n_jobs,
        )
        offset = loss.best_constant(loss.encode(y), rows.s)
        problem = Problem(design, y, loss, penalty, rows.s, offset)
        if self.verbose:
            problem.listener = SolveProgress()
        solution = solve(problem, self.solver, tol=self.tol, max_iter=self.max_iter)
        if self.verbose:
            print(f"{solution.message}, objective {solution.objective:.6g}")
        return _Fit(
            partitioner=partitioner,
            scaler=scaler,
            solution=solution,
            penalty=penalty,
            offset=np.asarray(offset, float),
            centre=centre,
            unit=unit,
            importances=importances(design, solution, partitioner, rows.s),
            tuning=tuning,
        )

    def _final_penalty(
        self, tuning: TuningResult | StrengthChoice | None, partitioner: Partitioner
    ) -> tuple[Term, CellKind]:
        """The penalty that was given or chosen, and the kind of cells that goes with it."""
        if isinstance(tuning, StrengthChoice):
            return tuning.best, self.cells
        if isinstance(self.penalty, Term):
            return self.penalty, self.cells
        setting = DEFAULT_SETTING if tuning is None else tuning.best
        kind = setting_cells(setting) if self.cells == "linear" else self.cells
        gains, n_partitions = partitioner.split_gains_, len(partitioner.n_cells_)
        return auto_penalty(setting, gains, n_partitions, self.root_cell), kind

    def _store(self, fit: _Fit) -> None:
        """Put the results on the estimator, with coefficients in the units of the input."""
        solution, scaler = fit.solution, fit.scaler
        extra = (None,) * (solution.coef.ndim - 2)
        if solution.coef.shape[1]:
            slopes = solution.coef / scaler.scale[(slice(None), *extra)]
            shift = np.einsum("cd...,d->c...", slopes, scaler.mean)
        else:  # constant cells
            d = len(scaler.mean)
            slopes = np.zeros((len(solution.coef), d, *solution.coef.shape[2:]))
            shift = np.zeros_like(solution.intercept)
        self.coef_ = fit.unit * slopes
        self.intercept_ = fit.unit * (solution.intercept - shift)
        self.offset_ = fit.centre + fit.unit * fit.offset
        self.cell_starts_ = solution.layout.offsets[:-1]
        self.partitioner_ = fit.partitioner
        self.solution_ = solution
        self.penalty_ = fit.penalty
        self.feature_importances_ = fit.importances
        self.n_iter_ = solution.n_iter
        self.cv_results_ = fit.tuning.table if fit.tuning else None
        best = fit.tuning.best if fit.tuning else None
        self.setting_ = best if isinstance(best, Setting) else None
        self.slope_norms_ = solution.slope_norms
        self.selected_features_ = np.flatnonzero(self.slope_norms_)
        self.split_features_ = fit.partitioner.split_features_
        is_empty = not self.selected_features_.size and self.cells == "linear"
        if isinstance(fit.tuning, StrengthChoice) and is_empty:
            warn_of_no_features(self.penalty)
        self._scaler, self._offset = scaler, fit.offset
        self._centre, self._unit = fit.centre, fit.unit

    # -- pieces of a fit -----------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if isinstance(self.penalty, str) and self.penalty != "auto":
            raise ValueError(f"penalty={self.penalty!r} is not known: use 'auto' or a Penalty")
        if not isinstance(self.penalty, str | Term):
            raise TypeError(
                f"penalty={self.penalty!r} must be 'auto' or a Penalty such as Frobenius(0.1)"
            )
        if self.cells not in ("linear", "constant"):
            raise ValueError(f"cells={self.cells!r} is not known: use 'linear' or 'constant'")
        if isinstance(self.cv, int | np.integer) and self.cv < 2:
            raise ValueError(f"cv={self.cv!r} must be at least 2 folds, or None")
        if not (isinstance(self.one_se, bool | np.bool_) or self.one_se == "auto"):
            raise TypeError(f"one_se={self.one_se!r} must be True, False or 'auto'")
        for name in ("root_cell", "clip"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name}={getattr(self, name)!r} must be True or False")
        if self.n_jobs is not None and not is_whole(self.n_jobs):
            raise TypeError(f"n_jobs={self.n_jobs!r} must be a whole number or None")
        check_limits(self.tol, self.max_iter)
        check_solver_name(self.solver)

    def _make_partitioner(self, seed: int, n_jobs: int) -> Partitioner:
        partitioner = make_partitioner(self.partitioner)
        if self.root_cell:
            partitioner = UnionPartitioner([partitioner, RootCell()])
        return seeded(partitioner, seed, n_jobs)

    def _given_splits(self, X: NDArray, y: NDArray) -> list[tuple[NDArray, NDArray]] | None:
        """Splits that the user made (a splitter or an iterable of index pairs)."""
        if self.cv is None or isinstance(self.cv, int | np.integer):
            return None
        splitter = check_cv(self.cv, y, classifier=self._task == "classification")
        try:
            splits = [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y)]
            for part in (part for split in splits for part in split):
                np.arange(len(y))[part]  # an index that does not fit raises
        except (IndexError, TypeError) as cause:
            raise ValueError(
                f"cv={self.cv!r} must be a number of folds, a splitter, or pairs of row indices "
                f"(training, validation) below {len(y)}: {cause}"
            ) from cause
        return splits

    def _folds(
        self,
        rows: Rows,
        splits: list[tuple[NDArray, NDArray]] | None,
        valid: Rows | None,
    ) -> Iterator[tuple[Rows, Rows]]:
        """Training and validation rows of every fold; none where there are too few rows."""
        for train, held_out in self._all_folds(rows, splits, valid):
            is_one_class = self._task == "classification" and len(np.unique(train.y)) < 2
            if len(train) and len(held_out) and not is_one_class:
                yield train, held_out

    def _all_folds(
        self,
        rows: Rows,
        splits: list[tuple[NDArray, NDArray]] | None,
        valid: Rows | None,
    ) -> Iterator[tuple[Rows, Rows]]:
        if valid is not None:
            yield rows, valid
        elif splits is not None:
            for k in range(len(splits)):
                part = rows.labels[:, k]
                yield rows.take((part & 1) > 0), rows.take((part & 2) > 0)
        else:
            asked = 5 if self.cv is None else int(self.cv)
            n_folds = min(asked, len(rows) // 2)
            number = deal(rows, n_folds, self._task)
            only_one = self.cv is None and len(rows) > _MAX_CV_ROWS
            for k in range(1 if only_one else n_folds if n_folds >= 2 else 0):
                yield rows.take(number != k), rows.take(number == k)

    def _fold_makers(
        self,
        kind: type[F],
        rows: Rows,
        folds: list[tuple[Rows, Rows]],
        seed: int,
        n_jobs: int,
        loss: Loss,
    ) -> list[Callable[..., F]]:
        threads = max(1, n_jobs // max(1, len(folds)))  # folds run side by side
        partitioner = self._make_partitioner(seed, threads)
        unit = target_scale(rows.y, rows.s, self._task)[1]
        return [
            partial(
                kind,
                train,
                valid,
                partitioner.fresh(),
                loss,
                n_folds=len(folds),
                unit=unit,
                n_jobs=threads,
                task=self._task,
                clip=self.clip,
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
        check_numeric(X_val)
        X, y = validate_data(
            self,
            X_val,
            y_val,
            reset=False,
            dtype=[np.float64, np.float32],
            y_numeric=self._task == "regression",
        )
        target = self._encode_known_target(y)
        return Rows(X, target, np.ones(len(y)), np.zeros((len(y), 0), np.int64))

    # -- predicting ----------------------------------------------------------------------------

    def _raw_predictions(self, X: ArrayLike) -> NDArray:
        """Predictions on the scale of the loss, (n,) or (n, K)."""
        check_is_fitted(self)
        check_numeric(X)
        given = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        n_jobs = effective_n_jobs(self.n_jobs)
        theta, layout = self.solution_.theta, self.solution_.layout
        parts = []
        for start in range(0, len(given), _PREDICT_ROWS):
            rows = given[start : start + _PREDICT_ROWS]
            design = LeafDesign(
                self._scaler.transform(rows),
                self.partitioner_.apply(rows),
                layout.cells_per_partition,
                cells=layout.kind,
                n_jobs=n_jobs,
            )
            parts.append(design.matvec(theta) + self._offset)
        return self._centre + self._unit * np.concatenate(parts)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Codes (n, P): in which cell of every partition each row falls; -1 is no cell."""
        check_is_fitted(self)
        check_numeric(X)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return self.partitioner_.apply(X)
