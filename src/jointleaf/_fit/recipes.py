"""Recipes: which components take part in a fit, and how they are blended.

This is the only place with thresholds on the number of rows. A new component is one class and one
more entry in a recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.penalties import Term
from jointleaf._data.rows import Rows
from jointleaf._fit.blend import Interpolation, Stacking
from jointleaf._fit.boosting import Boosted, BoostedLinear, BoostedRandom, LeafValues
from jointleaf._fit.calibration import HeldOut, held_out_rows
from jointleaf._fit.component import Blend, Component, FitContext, Split
from jointleaf._fit.grouped_joint import GroupedJoint
from jointleaf._fit.joint import Joint, few_partitions, many_partitions
from jointleaf._fit.linear import CategoryLinear, Linear
from jointleaf._fit.report import FitReport
from jointleaf._fit.staged_boosting import StagedBoosting
from jointleaf._model.cell_model import CellModel
from jointleaf.partitions import Partitioner
from jointleaf.partitions._base import TargetType

__all__ = [
    "RECIPES",
    "Fit",
    "Recipe",
    "choose_recipe",
    "default_partitions",
    "fit_recipe",
    "n_folds_and_splits",
    "recipe_for",
]


@dataclass(frozen=True)
class Recipe:
    """Named components, how they are blended, and up to how many rows they are the default.

    Attributes
    ----------
    name : str
    components : mapping from target type to Component classes
        In the order in which they are fitted. The first one is the model where nothing is blended.
    blending : Stacking or Interpolation
    max_rows : float
        Up to which ``recipe="auto"`` chooses this one.
    ignores : tuple of str
        Parameters of the estimator that none of its components acts on.
    """

    name: str
    components: Mapping[TargetType, Sequence[type[Component]]]
    blending: Stacking | Interpolation
    max_rows: float = np.inf
    ignores: tuple[str, ...] = ()

    @property
    def needs_all_classes(self) -> bool:
        """Whether training parts of splits need all classes, as boosting does."""
        return self.name in ("blend", "boosting")


#: In rising order of rows; the components of each, by what is predicted.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        # Exact joint fits of hundreds of small partitions.
        Recipe(
            "joint",
            {
                "regression": (Joint,),
                "classification": (Joint, Linear, LeafValues, CategoryLinear),
            },
            Stacking(),
            max_rows=2000,
        ),
        # With thousands of rows large trees with constants tell more than slopes: a joint fit of
        # these, of linear models in small trees and of boosted cells, beside boosted trees and a
        # linear model.
        Recipe(
            "blend",
            {
                "regression": (Boosted, BoostedRandom, BoostedLinear, GroupedJoint, Linear),
                "classification": (Boosted, BoostedRandom, GroupedJoint, Linear),
            },
            Stacking(),
        ),
        # Without a joint fit, for whoever asks for it.
        Recipe(
            "boosting",
            {"regression": (StagedBoosting,), "classification": (StagedBoosting,)},
            Stacking(),
            ignores=("solver", "tol", "max_iter", "one_se", "device"),
        ),
    )
}

_SPLIT_ROWS = 30_000  # rows of all training parts together, about
_MOST_RAW = 5000  # raw predictions, rows times classes, up to which the exact joint fit is made

#: Of partitions that the user gives, whose own model may take part.
_GIVEN_PARTITIONS = Recipe(
    "joint",
    {"regression": (Joint, LeafValues), "classification": (Joint, LeafValues)},
    Interpolation(),
)
#: Of a penalty that the user gives.
_GIVEN_PENALTY = Recipe("joint", {"regression": (Joint,), "classification": (Joint,)}, Stacking())


def recipe_for(n_rows: int, n_outputs: int = 1) -> str:
    """Return the name of the recipe that ``recipe="auto"`` means.

    It depends on the number of different rows and, with K > 2 classes, on K raw predictions a row:
    the time of exact fits grows with their product.
    """
    size = max(n_rows, n_rows * n_outputs * RECIPES["joint"].max_rows // _MOST_RAW)
    return next(recipe.name for recipe in RECIPES.values() if size <= recipe.max_rows)


def default_partitions(n_rows: int, target_type: TargetType) -> Partitioner:
    """Return the partitions of the joint fit that ``partitioner="auto"`` means, unfitted."""
    if n_rows <= RECIPES["joint"].max_rows:
        return many_partitions(target_type)
    return few_partitions()


def choose_recipe(
    name: str,
    n_rows: int,
    partitioner: Partitioner | None,
    penalty: Term | None,
    n_outputs: int = 1,
) -> Recipe:
    """Return the recipe of a fit; for "auto" see `recipe_for`."""
    if penalty is not None:
        return _GIVEN_PENALTY
    if partitioner is not None:
        return _GIVEN_PARTITIONS
    return RECIPES[recipe_for(n_rows, n_outputs) if name == "auto" else name]


def n_folds_and_splits(
    recipe: Recipe, n_rows: int, target_type: TargetType = "regression"
) -> tuple[int, int]:
    """Return the folds that rows are dealt out to without `cv`, and how many are held out in turn.

    Five folds up to 2,500 rows, above that one of them; the default joint fit has three folds with
    more than 200 rows, for classes 400, which say as much. Blends have three splits below 12,000
    rows, two up to 20,000, and one above: held-out rows choose a lot, and many are needed.
    """
    if recipe.name == "blend":
        return 5, int(np.clip(round(_SPLIT_ROWS / n_rows), 1, 3))
    if recipe.name == "boosting":
        return 5, 1
    few = 200 if target_type == "regression" else 400
    if recipe is RECIPES["joint"] and few < n_rows <= recipe.max_rows:
        return 3, 3
    return 5, 5 if n_rows <= 2500 else 1


@dataclass(frozen=True)
class Fit:
    """The model of a fit, the importances (d,) of columns, what was done, and held-out rows."""

    model: CellModel
    importances: NDArray[np.float64]
    report: FitReport
    held_out: HeldOut | None = None


def fit_recipe(context: FitContext, recipe: Recipe, splits: Sequence[Split]) -> Fit:
    """Choose on the splits what is left to choose, fit all rows, and blend the components."""
    if recipe.needs_all_classes:
        splits = [_with_all_classes(context, *split) for split in splits]
    components: dict[str, Component] = {}
    for kind in recipe.components[context.target_type]:
        component = kind(context, components)
        components[component.name] = component
    held_out: dict[str, list[NDArray]] = {}
    for name, component in components.items():
        predictions = component.held_out(splits)
        if predictions:
            held_out[name] = predictions
    blend = Blend.alone(next(iter(components)))
    if len(components) > 1:
        blend = recipe.blending.fit(context, components, held_out, splits)
    model, blend = _fit_components(context, components, blend)
    first, *others = blend.active
    codes_of = None if others else components[first].codes
    model, importances = model.described(context.rows.X, context.rows.s, codes_of)
    report = FitReport.of(recipe.name, context.target_type, blend, components, context.loss)
    report = replace(report, has_offset=bool(context.rows.offset.any()))
    return Fit(model, importances, report, held_out_rows(context, blend, held_out, splits))


def _fit_components(
    context: FitContext, components: Mapping[str, Component], blend: Blend
) -> tuple[CellModel, Blend]:
    """Fit the components of a blend to all rows; the first alone where one has no model."""
    frame = context.standardize(context.rows)
    models: dict[str, CellModel] = {}
    for name in blend.active:
        model = components[name].fit(frame)
        if model is None:
            blend = Blend.alone(next(iter(components)))
            break
        models[name] = model
    for name in set(blend.active) - set(models):
        model = components[name].fit(frame)
        assert model is not None
        models[name] = model
    return blend.of(models), blend


def _with_all_classes(context: FitContext, train: Rows, valid: Rows) -> Split:
    """Move rows of classes that training would lack: boosting could not name these classes."""
    if context.is_regression:
        return train, valid
    rows = context.rows
    is_missing, is_known = ~np.isin(rows.y, train.y), np.isin(valid.y, train.y)
    if not is_missing.any() or not is_known.any():
        return train, valid
    return train.joined(rows.take(is_missing)), valid.take(is_known)
