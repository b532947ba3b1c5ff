"""Constructor parameters that the estimators of one task and of several tasks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state

from jointleaf._core import arrays
from jointleaf._core.arrays import is_whole, threads
from jointleaf._core.losses import Loss, make_number_loss
from jointleaf._core.penalties import Penalty, Term
from jointleaf._data.columns import Columns
from jointleaf._data.features import FeaturePlan
from jointleaf._data.rows import Rows
from jointleaf.estimators._checks import check_effect, check_parameters, has_linear_cells

if TYPE_CHECKING:
    from jointleaf._fit import recipes
    from jointleaf._fit.component import CellKinds, FitContext, FitOptions, Split
    from jointleaf._fit.limits import Budget, MemoryEstimate, Stages, Used
    from jointleaf.partitions import Partitioner
    from jointleaf.partitions._base import TargetType

F = TypeVar("F")


class Checked:
    """An estimator that checks its parameters before any work is done."""

    def _check_parameters(self) -> None:
        """Raise for values that are not possible."""


def check_values(estimator: Checked) -> None:
    """Raise for parameters that are not possible, as `fit` does."""
    estimator._check_parameters()


class TabularEstimator(Checked, BaseEstimator):
    """Base of the estimators that take tables with numbers, categories and missing values."""

    _target_type: ClassVar[TargetType]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True  # made dense where it is read
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
    cells: CellKinds = "linear"
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
    time_budget: float | None = None
    n_jobs: int | None = None
    device: str = "cpu"
    random_state: Any = None
    verbose: int = 0

    def set_params(self, **params: Any) -> JOPLEnParameters:
        """Set parameters, those of the penalty as ``penalty__strength``.

        Parameters
        ----------
        **params
            Values by name.

        Returns
        -------
        self
        """
        inner = next((name for name in params if name.startswith("penalty__")), None)
        penalty = params.get("penalty", self.penalty)
        if inner is not None and isinstance(penalty, str):
            raise ValueError(
                f"{inner}={params[inner]!r} cannot be set because penalty={penalty!r} has no "
                "parameters: start from a penalty that has, such as penalty=Frobenius(0.1)"
            )
        return super().set_params(**params)

    def __sklearn_clone__(self) -> JOPLEnParameters:
        from jointleaf._trees.importers.base import is_ensemble

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
        from jointleaf.partitions._base import without_models

        state = dict(super().__getstate__())
        if "cell_model_" in state or "cell_models_" in state:
            state["partitioner"] = without_models(self.partitioner)
        return state

    def _check_parameters(self) -> None:
        from jointleaf.partitions import make_partitioner

        super()._check_parameters()
        check_parameters(self)
        if not self._has_default_partitions:
            make_partitioner(self.partitioner)
        check_random_state(self.random_state)

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
        from jointleaf._fit import recipes
        from jointleaf.partitions import make_partitioner

        if not self._has_default_partitions:
            return make_partitioner(self.partitioner)
        return None if penalty is None else recipes.default_partitions(n_rows, self._target_type)

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
        from jointleaf._fit.component import FitContext

        penalty = self.penalty if isinstance(self.penalty, Term) else None
        partitioner, options = self._partitions_for(len(rows), penalty), fit_options(self)
        n_jobs = threads(self.n_jobs)
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

    def _fit_context(
        self, context: FitContext, valid: Rows | None, budget: Budget | None = None
    ) -> recipes.Fit:
        """Fit one task by its recipe; `valid` are validation rows of the user's."""
        from jointleaf._fit import recipes

        recipe = recipes.choose_recipe(
            self.recipe, len(context.rows), context.partitioner, context.penalty, context.n_outputs
        )
        fit = self._on_splits(recipes.fit_recipe, context, recipe, valid, budget)
        if fit.wants_larger_trees:
            recipe = recipes.RECIPES["blend"]
            other = self._on_splits(recipes.fit_recipe, context, recipe, valid, budget)
            if other.explained is not None and other.explained > recipes.HARDLY_EXPLAINED:
                return other
        return fit

    def _on_splits(
        self,
        act: Callable[..., F],
        context: FitContext,
        recipe: recipes.Recipe,
        valid: Rows | None,
        budget: Budget | None,
    ) -> F:
        """Fit a recipe on splits of its own, or look at it, with a function `act` of both."""
        from jointleaf._fit import budget as budgets
        from jointleaf._fit import recipes
        from jointleaf._fit.folds import make_splits
        from jointleaf._fit.limits import is_heavy

        n_rows = len(context.rows)
        check_effect(self)
        splits: list[Split] = []
        left_out: tuple[str, ...] = ()
        if self._chooses:
            heavy = is_heavy(context.rows.X.shape[1], context.n_outputs)
            n_folds, n_splits = recipes.n_folds_and_splits(
                recipe, n_rows, self._target_type, heavy=heavy
            )
            is_given = self.cv is not None or valid is not None
            without = recipes.spared(recipe, context, n_splits, splits_are_given=is_given)
            left_out = tuple(without)
            if budget is not None:
                if is_given:
                    n_given = self.cv if is_whole(self.cv) else context.rows.labels.shape[1]
                    n_splits = 1 if valid is not None else n_given
                context, recipe, n_splits, more = budgets.plan_within(
                    budget, context, recipe, n_splits, splits_are_given=is_given
                )
                left_out += more
                n_folds, _ = recipes.n_folds_and_splits(
                    recipe, len(context.rows), self._target_type, heavy=heavy
                )
            splits = make_splits(
                context.rows,
                self.cv,
                valid,
                self._target_type,
                n_folds=n_folds,
                n_splits=n_splits,
                statistics=context.statistics,
            )
        return act(context, recipe, splits, budget, left_out)

    def _look(self, X: Any, y: Any) -> Used:
        """Return what a fit of rows will use, read as one does: the estimator is changed.

        Of several tasks nothing is known before the fit.
        """
        from jointleaf._fit.limits import Used

        return Used()


@dataclass(eq=False, repr=False)
class LossParameters(TabularEstimator):
    """The loss of a regressor, of one task or of several; see `JOPLEnRegressor`."""

    _: KW_ONLY
    loss: str | Loss = "squared_error"
    quantile: float | Sequence[float] | None = None
    power: float | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss in ("poisson", "gamma", "tweedie")
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._given_loss()

    def _given_loss(self) -> Loss:
        """Return the loss that the parameters say, with a scale that may be missing."""
        return make_number_loss(self.loss, self.quantile, self.power)

    def _encode_known(self, y: NDArray) -> NDArray:
        """Return targets that the loss can be of."""
        return self._given_loss().encode(np.asarray(y, float))

    def _encode_target(self, y: NDArray, part: str = "") -> NDArray:
        """Return training targets, from which there is something to learn."""
        target = self._encode_known(y)
        if self._given_loss().has_log_link and not target.any():
            raise ValueError(
                f"loss={self.loss!r} takes y that is positive somewhere, but y is zero in every "
                f"row{part and ' of positive weight'}: nothing to fit"
            )
        return target

    def _scaled_loss(
        self, rows: Rows, columns: Columns, seed: int
    ) -> tuple[Loss, Loss, tuple[float, float] | None]:
        """Return the loss of training rows, and the same in units that are returned as well."""
        from jointleaf._fit.component import find_scale, loss_units

        loss = find_scale(self._given_loss(), rows, columns, seed)
        units = loss_units(loss, rows.y, rows.s)
        return loss, loss if units is None else loss.in_units(units[1]), units


def fit_options(estimator: JOPLEnParameters) -> FitOptions:
    """Return the parameters that a fit acts on."""
    from jointleaf._fit.component import FitOptions

    options = {field.name: getattr(estimator, field.name) for field in fields(FitOptions)}
    return FitOptions(**options | {"one_se": estimator._takes_one_se()})


def look_at(estimator: JOPLEnParameters, X: Any, y: Any) -> Used:
    """Return what a fit of rows will use, read as one does: the estimator is changed."""
    return estimator._look(X, y)


def memory_of(
    estimator: JOPLEnParameters,
    n_rows: int,
    n_columns: int,
    n_classes: int,
    n_tasks: int,
    itemsize: int,
    has_many_categories: bool,
    used: Used | None = None,
) -> MemoryEstimate:
    """Estimate the memory of a fit by the recipe that it would use."""
    from jointleaf._fit import recipes
    from jointleaf._fit.limits import FitShape, Used, fit_memory, is_heavy

    used = Used() if used is None else used
    penalty = estimator.penalty if isinstance(estimator.penalty, Term) else None
    partitioner = estimator._partitions_for(n_rows, penalty)
    is_classification = estimator._target_type == "classification"
    has_outputs = is_classification and n_tasks == 1 and n_classes > 2
    n_outputs = n_classes if has_outputs else 1
    recipe = recipes.choose_recipe(estimator.recipe, n_rows, partitioner, penalty, n_outputs)
    n_splits, keeps_split = 0, False
    if estimator._chooses:
        n_folds, n_splits = recipes.n_folds_and_splits(
            recipe, n_rows, estimator._target_type, heavy=is_heavy(n_columns, n_outputs)
        )
        has_statistics = has_many_categories and estimator._has_default_partitions
        if estimator.cv is None and not has_statistics:
            keeps_split = n_splits == 1 and 1 - 1 / n_folds >= recipes.NEARLY_ALL
        n_splits = estimator.cv if is_whole(estimator.cv) else n_splits
    shape = FitShape(
        n_rows,
        n_columns,
        n_columns if has_linear_cells(estimator.cells) else 0,
        n_outputs,
        n_tasks,
        itemsize,
        not is_classification,
        bool(estimator.root_cell),
        estimator.solver,
        partitioner,
        penalty,
        n_splits,
        keeps_split,
        used.slopes,
    )
    recipe = recipes.affordable(recipe, n_columns, n_outputs)
    has_budget = estimator.time_budget is not None
    families = [recipes.families(recipe, n_rows, estimator._target_type, has_budget=has_budget)]
    if n_rows >= recipes.RESERVE_ROWS:  # larger trees, when the memory of the others is free again
        families.append([(kind,) for kind in recipe.reserve.get(estimator._target_type, ())])
    if used.components is not None:
        known = [kind for kinds in families[0] for kind in kinds]
        families = [[(kind,) for kind in known if kind.name in used.components]]
    estimates = [
        fit_memory(shape, [_largest(k.memory(shape) for k in kinds) for kinds in several])
        for several in families
    ]
    return max(estimates, key=lambda estimate: estimate.total)


def _largest(stages: Iterable[Stages]) -> Stages:
    return max(stages, key=lambda component: component.largest)


def check_memory(estimator: JOPLEnParameters, X: NDArray, y: NDArray, columns: Columns) -> None:
    """Raise MemoryError for rows X (n, d) with columns whose fit would not fit into memory.

    Systems that do not say what is available are not checked.
    """
    from jointleaf._data.statistics import MANY_CATEGORIES

    available = arrays.available_memory()
    if available is None:
        return
    n, d = X.shape
    n_classes = len(set(y.tolist())) if y.ndim == 1 else 2  # of no account in regression
    n_tasks = y.shape[1] if y.ndim == 2 else 1
    has_many = bool((columns.n_categories > MANY_CATEGORIES).any())
    needed = memory_of(estimator, n, d, n_classes, n_tasks, X.dtype.itemsize, has_many)
    if needed.total > available:
        total, free = arrays.readable_bytes(needed.total), arrays.readable_bytes(available)
        raise MemoryError(
            f"fitting {n} rows with {d} columns needs about {total} of memory and {free} are "
            f"available; {needed}. Give fewer rows or float32, fewer or smaller partitions, or "
            f"solver='fista'; {arrays.MEMORY_VARIABLE} (bytes) overrules what the system says is "
            "available"
        )
