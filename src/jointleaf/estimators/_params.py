"""Constructor parameters that the estimators of one task and of several tasks share."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets

from jointleaf._core.arrays import check_device
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Penalty, PerTask, PredictionPenalty, SlopeNorm, TaskNorm, Term
from jointleaf._core.solvers import check_limits, check_solver_name
from jointleaf._data.columns import Columns
from jointleaf._data.features import FeaturePlan
from jointleaf._data.rows import Rows
from jointleaf._fit import memory, recipes
from jointleaf._fit.component import FitContext, FitOptions
from jointleaf._fit.folds import make_splits
from jointleaf._trees.importers import is_ensemble
from jointleaf.partitions import Partitioner, make_partitioner
from jointleaf.partitions._base import LeftOut, TargetType, without_models


class TabularEstimator(BaseEstimator):
    """Base of the estimators that take tables with numbers, categories and missing values."""

    _target_type: ClassVar[TargetType]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


@dataclass(eq=False, repr=False)
class JOPLEnParameters(TabularEstimator):
    """Parameters of a joint fit, with cloning and pickling; see `JOPLEnRegressor`."""

    partitioner: Any = "auto"
    _: KW_ONLY
    penalty: str | Term = "auto"
    recipe: str = "auto"
    cells: CellKind = "linear"
    root_cell: bool = True
    clip: bool | str = True
    categorical_features: Any = "from_dtype"
    linear_features: Any = None
    add_indicator: bool = False
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    cv: Any = None
    one_se: bool | str = "auto"
    n_jobs: int | None = None
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    def __sklearn_clone__(self) -> JOPLEnParameters:
        copied = super().__sklearn_clone__()
        # Trained ensembles are parameters here: their clones would be untrained.
        if is_ensemble(self.partitioner):
            copied.partitioner = self.partitioner
        elif isinstance(self.partitioner, list):
            copied.partitioner = [
                mine if is_ensemble(mine) else theirs
                for mine, theirs in zip(self.partitioner, copied.partitioner, strict=True)
            ]
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # A fitted model predicts without the library that grew its trees: so must its pickle.
        state = dict(super().__getstate__())
        if "cell_model_" in state or "cell_models_" in state:
            state["partitioner"] = without_models(self.partitioner)
        return state

    def _seed(self, *, keep: bool = False) -> int:
        """Draw a seed, with `keep` from a copy, so that a generator stays as it is."""
        random_state = deepcopy(self.random_state) if keep else self.random_state
        return int(check_random_state(random_state).randint(2**31 - 1))

    @property
    def _chooses(self) -> bool:
        """Whether something about the penalty is left to cross-validation."""
        return isinstance(self.penalty, str) or self.penalty.is_auto

    @property
    def _has_default_partitions(self) -> bool:
        return isinstance(self.partitioner, str) and self.partitioner == "auto"

    def _takes_one_se(self) -> bool:
        """Whether the strongest penalty within one standard error of the best is taken."""
        if self.one_se != "auto":
            return bool(self.one_se)
        terms = self.penalty.terms if isinstance(self.penalty, Term) else ()
        return any(isinstance(term, Penalty) and term.is_row_sparse for term in terms)

    def _partitions_for(self, n_rows: int, penalty: Term | None) -> Partitioner | None:
        """Return the unfitted partitions; None where the recipe chooses them."""
        if not self._has_default_partitions:
            return make_partitioner(self.partitioner)
        return None if penalty is None else recipes.default_partitions(n_rows, self._target_type)

    def fit_options(self) -> FitOptions:
        """Return the parameters that a fit acts on."""
        options = {field.name: getattr(self, field.name) for field in fields(FitOptions)}
        return FitOptions(**options | {"one_se": self._takes_one_se()})

    def _context(
        self,
        rows: Rows,
        columns: Columns,
        plan: FeaturePlan,
        loss: Loss,
        seed: int,
        units: tuple[float, float] | None = None,
    ) -> FitContext:
        """Return what the fit of one task works on; the loss is in units of the targets."""
        penalty = self.penalty if isinstance(self.penalty, Term) else None
        partitioner, options = self._partitions_for(len(rows), penalty), self.fit_options()
        n_jobs = effective_n_jobs(self.n_jobs)
        return FitContext(
            rows,
            columns.of_matrix(),
            plan,
            loss,
            self._target_type,
            partitioner,
            penalty,
            seed,
            n_jobs,
            options,
            columns.statistics,
            units,
        )

    def memory_of(
        self, n_rows: int, n_columns: int, n_classes: int, n_tasks: int, itemsize: int
    ) -> memory.MemoryEstimate:
        """Estimate the memory of a fit by the recipe that it would use; see `estimate_memory`."""
        penalty = self.penalty if isinstance(self.penalty, Term) else None
        partitioner = self._partitions_for(n_rows, penalty)
        is_classification = self._target_type == "classification"
        has_outputs = is_classification and n_tasks == 1 and n_classes > 2
        n_outputs = n_classes if has_outputs else 1
        recipe = recipes.choose_recipe(self.recipe, n_rows, partitioner, penalty, n_outputs)
        n_splits = 0
        if self._chooses:
            n_splits = recipes.n_folds_and_splits(recipe, n_rows, self._target_type)[1]
            n_splits = self.cv if is_whole(self.cv) else n_splits
        shape = memory.FitShape(
            n_rows,
            n_columns if self.cells == "linear" else 0,
            n_outputs,
            n_tasks,
            itemsize,
            not is_classification,
            bool(self.root_cell),
            self.solver,
            partitioner,
            penalty,
            n_splits,
        )
        rows = memory.MemoryEstimate(
            rows=3 * n_rows * max(shape.n_features, 1) * itemsize, other=memory.FIXED
        )
        parts = [kind.memory(shape) for kind in recipe.components[self._target_type]]
        return sum(parts, rows)

    def _fit_context(self, context: FitContext, valid: Rows | None) -> recipes.Fit:
        """Fit one task by its recipe; `valid` are validation rows of the user's."""
        n_rows = len(context.rows)
        recipe = recipes.choose_recipe(
            self.recipe, n_rows, context.partitioner, context.penalty, context.n_outputs
        )
        check_effect(self, recipe)
        check_linear_features(self, recipe, context)
        splits = []
        if self._chooses:
            n_folds, n_splits = recipes.n_folds_and_splits(recipe, n_rows, self._target_type)
            splits = make_splits(
                context.rows,
                self.cv,
                valid,
                self._target_type,
                n_folds=n_folds,
                n_splits=n_splits,
                statistics=context.statistics,
            )
        return recipes.fit_recipe(context, recipe, splits)


def estimate_memory(
    estimator: JOPLEnParameters,
    X: Any,
    *,
    n_classes: int = 2,
    n_tasks: int = 1,
    itemsize: int | None = None,
) -> memory.MemoryEstimate:
    """Estimate the memory that a fit takes at its peak, to a factor of two or so.

    Parameters
    ----------
    estimator : JOPLEnRegressor, JOPLEnClassifier, MultiTaskJOPLEnRegressor or -Classifier
        Unfitted or fitted; only its parameters count.
    X : array-like or data frame (n, d), or (n, d) itself
        The rows of all tasks together. Of columns with categories every linear feature counts: give
        (n, m) with their number m where there are many.
    n_classes : int
        Of a `JOPLEnClassifier`.
    n_tasks : int
        Of an estimator of several tasks.
    itemsize : int, optional
        Bytes of a number: 4 for float32 rows, 8 else; by default taken from X.

    Returns
    -------
    MemoryEstimate

    Examples
    --------
    >>> from jointleaf import Frobenius, JOPLEnRegressor, estimate_memory
    >>> model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.1))
    >>> estimate_memory(model, (1_000_000, 20)).total > 2e9
    True
    """
    if not isinstance(estimator, JOPLEnParameters):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}: give a JOPLEnRegressor, a "
            "JOPLEnClassifier, or one of several tasks"
        )
    n, d = _shape(X)
    if itemsize is None:
        itemsize = 4 if str(getattr(X, "dtype", "")) == "float32" else 8
    return estimator.memory_of(n, d, n_classes, n_tasks, itemsize)


def _shape(X: Any) -> tuple[int, int]:
    shape = X if isinstance(X, tuple) else np.shape(X)
    if len(shape) != 2 or not all(isinstance(k, int | np.integer) and k > 0 for k in shape):
        raise ValueError(f"X={X!r} must be rows (n, d), or the pair (n, d) of positive numbers")
    return int(shape[0]), int(shape[1])


def check_memory(estimator: JOPLEnParameters, X: NDArray, y: NDArray) -> None:
    """Raise MemoryError for rows X (n, d) whose fit would not fit into memory.

    Systems that do not say what is available are not checked.
    """
    available = memory.available_memory()
    if available is None:
        return
    n, d = X.shape
    n_classes = len(set(y.tolist())) if y.ndim == 1 else 2  # of no account in regression
    n_tasks = y.shape[1] if y.ndim == 2 else 1
    needed = estimator.memory_of(n, d, n_classes, n_tasks, X.dtype.itemsize)
    if needed.total > available:
        total, free = memory.readable_bytes(needed.total), memory.readable_bytes(available)
        raise MemoryError(
            f"fitting {n} rows with {d} columns needs about {total} of memory and {free} are "
            f"available; {needed}. Give fewer rows or float32, fewer or smaller partitions, or "
            f"solver='fista'; {memory.VARIABLE} (bytes) overrules what the system says is available"
        )


# -- checks of parameters and rows -------------------------------------------------------------


def check_parameters(estimator: Any) -> None:
    """Check the values of an estimator's parameters, before any work is done."""
    for value in estimator.get_params(deep=False).values():
        if isinstance(value, LeftOut):
            value.raise_error()
    if isinstance(estimator.penalty, str) and estimator.penalty != "auto":
        raise ValueError(f"penalty={estimator.penalty!r} is not known: use 'auto' or a Penalty")
    if not isinstance(estimator.penalty, str | Term):
        raise TypeError(
            f"penalty={estimator.penalty!r} must be 'auto' or a Penalty such as Frobenius(0.1)"
        )
    if estimator.recipe not in ("auto", *recipes.RECIPES):
        names = ", ".join(map(repr, recipes.RECIPES))
        raise ValueError(f"recipe={estimator.recipe!r} is not known: use 'auto', {names}")
    if estimator.cells not in ("linear", "constant"):
        raise ValueError(f"cells={estimator.cells!r} is not known: use 'linear' or 'constant'")
    if isinstance(estimator.cv, int | np.integer) and estimator.cv < 2:
        raise ValueError(f"cv={estimator.cv!r} must be at least 2 folds, or None")
    if not (isinstance(estimator.one_se, bool | np.bool_) or estimator.one_se == "auto"):
        raise TypeError(f"one_se={estimator.one_se!r} must be True, False or 'auto'")
    if not (isinstance(estimator.clip, bool | np.bool_) or estimator.clip == "cell"):
        raise TypeError(f"clip={estimator.clip!r} must be True, False or 'cell'")
    for name in ("root_cell", "add_indicator"):
        if not isinstance(getattr(estimator, name), bool | np.bool_):
            raise TypeError(f"{name}={getattr(estimator, name)!r} must be True or False")
    if estimator.n_jobs is not None and not is_whole(estimator.n_jobs):
        raise TypeError(f"n_jobs={estimator.n_jobs!r} must be a whole number or None")
    check_limits(estimator.tol, estimator.max_iter)
    check_solver_name(estimator.solver)
    check_device(estimator.device)


def check_effect(estimator: Any, recipe: recipes.Recipe) -> None:
    """Raise an error for a parameter that would have no effect, before any work is done."""
    is_default = estimator.penalty == "auto" and estimator.partitioner == "auto"
    if estimator.recipe not in ("auto", "joint") and not is_default:
        raise ValueError(
            f"recipe={estimator.recipe!r} chooses partitions and penalty itself: leave partitioner "
            "and penalty at 'auto', or use recipe='joint'"
        )
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(estimator)).parameters.items()
    }

    def check_default(name: str, why: str) -> None:
        value, default = getattr(estimator, name), defaults[name]
        if not (value is default or (np.isscalar(value) and value == default)):
            raise ValueError(f"{name}={value!r} has no effect {why}")

    loss = getattr(estimator, "loss", "squared_error")
    if recipe.name == "boosting" and loss != "squared_error":
        raise ValueError(
            f"loss={loss!r} is not possible with recipe='boosting': use recipe='joint' or "
            "recipe='blend'"
        )
    for name in recipe.ignores:
        check_default(
            name,
            f"with recipe={recipe.name!r}, which solves no joint problem: leave it out, or use "
            "recipe='joint' or recipe='blend'",
        )
    if recipe.name == "boosting" and estimator.clip == "cell":
        raise ValueError(
            "clip='cell' is not possible with recipe='boosting': use clip=True, recipe='joint' or "
            "recipe='blend'"
        )
    if isinstance(estimator.penalty, Term) and not estimator.penalty.is_auto:
        # scikit-learn's checks set splits on every estimator that has a parameter cv.
        for name in ("cv", "one_se") if is_whole(estimator.cv) else ("one_se",):
            check_default(
                name,
                f"with penalty={estimator.penalty!r}, which leaves nothing to choose: leave it "
                "out, or use a strength of 'auto'",
            )
    if estimator.cells == "constant":
        for name in ("linear_features", "add_indicator"):
            check_default(name, "with cells='constant': leave it out, or use cells='linear'")


def check_linear_features(estimator: Any, recipe: recipes.Recipe, context: FitContext) -> None:
    """Raise an error where boosting would have to leave columns out of its linear models."""
    numbers = np.flatnonzero(context.columns.n_categories == 0)
    is_left_out = not np.array_equal(context.plan.numbers, numbers)
    if recipe.name == "boosting" and estimator.linear_features is not None and is_left_out:
        raise ValueError(
            f"linear_features={estimator.linear_features!r} leaves out columns of numbers, which "
            "is not possible with recipe='boosting': leave it out, or use recipe='joint' or "
            "recipe='blend'"
        )


def check_penalty(penalty: Term, n_rows: int, n_features: int, cells: CellKind) -> None:
    """Check a penalty against the data, before any work is done."""
    for part in penalty.terms:
        term = part.penalty if isinstance(part, PerTask) else part
        if isinstance(term, SlopeNorm):
            if term.is_auto and cells == "constant":
                raise ValueError(
                    f"penalty={penalty!r} with cells='constant' has no slopes to penalise: use "
                    "cells='linear' or Frobenius"
                )
            term.bind(CellLayout((1,), n_features, cells))
        elif isinstance(term, PredictionPenalty):
            term.check_rows(n_rows)


def check_single_task(penalty: Any) -> None:
    """Raise an error for penalties that tell tasks apart, where there is only one."""
    for term in penalty.terms if isinstance(penalty, Term) else ():
        if isinstance(term, TaskNorm | PerTask):
            raise ValueError(
                f"penalty={penalty!r} is for several tasks: use L21 here, or "
                "MultiTaskJOPLEnRegressor, which also takes a single task"
            )


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_missing_values(X: NDArray, columns: Columns) -> None:
    """Name a column of X (n, d) that has no values at all."""
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if empty.size:
        raise ValueError(
            f"column {columns[empty[0]].label!r} has no values at all in rows of positive weight: "
            "leave it out"
        )


def number_classes(y: NDArray) -> tuple[NDArray, NDArray[np.float64]]:
    """Return the classes of targets (n,), at least two, and the class number of every row."""
    check_classification_targets(y)
    classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]}, in rows of positive weight): at least two "
            "classes are needed"
        )
    return classes, numbers.astype(float)


@contextmanager
def restored_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Leave an estimator as it was after an error or Ctrl-C, never half fitted."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
