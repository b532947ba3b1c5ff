"""Recipes: which components take part in a fit, and how they are blended.

This is the only place with thresholds on the number of rows. A new component is one class and one
more entry in a recipe. A fit of a recipe has held-out predictions of its components, their blend,
and the model; with a budget of time, or of very many rows, see `_fit.budget`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.penalties import Term
from jointleaf._core.progress import Progress
from jointleaf._fit.blend import Interpolation, Stacking
from jointleaf._fit.boosting import Boosted, BoostedLinear, BoostedRandom
from jointleaf._fit.calibration import held_out_rows
from jointleaf._fit.component import (
    Blend,
    Component,
    FitContext,
    Split,
    blended_parts,
    explained_part,
    loss_name,
    standardized_gain,
)
from jointleaf._fit.default_partitions import few_partitions, many_partitions
from jointleaf._fit.folds import cv_results, with_all_classes
from jointleaf._fit.grouped_joint import GroupedJoint, LargeJoint, SmallJoint
from jointleaf._fit.joint import Joint
from jointleaf._fit.leaf_values import LeafValues
from jointleaf._fit.limits import (
    SCREENED_COLUMNS,
    Budget,
    Size,
    is_heavy,
    is_wide,
    partition_share,
)
from jointleaf._fit.linear import CategoryLinear, Linear
from jointleaf._fit.located import Located
from jointleaf._fit.monotone import MonotoneJoint
from jointleaf._fit.report import ComponentReport, Fit, FitReport
from jointleaf._model.cell_model import CellModel
from jointleaf.partitions import Partitioner
from jointleaf.partitions._base import TargetType


@dataclass(frozen=True)
class Recipe:
    """Named components, how they are blended, and up to how many rows they are the default."""

    name: str
    #: in the order in which they are fitted; the first one is the model where nothing is blended
    components: Mapping[TargetType, Sequence[type[Component]]]
    blending: Stacking | Interpolation
    max_rows: float = np.inf  # up to which ``recipe="auto"`` chooses this one
    #: larger trees, which take part where they clearly help on held-out rows
    reserve: Mapping[TargetType, Sequence[type[Component]]] = field(
        default_factory=dict, compare=False
    )


#: In rising order of rows; the components of each, by what is predicted.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        # Exact joint fits of hundreds of small partitions.
        Recipe(
            "joint",
            {
                "regression": (Joint, Located),
                "classification": (Joint, Linear, LeafValues, CategoryLinear),
            },
            Stacking(),
            max_rows=2000,
            reserve={
                "regression": (Boosted, BoostedRandom, BoostedLinear, LargeJoint),
                "classification": (Boosted, BoostedRandom, LargeJoint),
            },
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
    )
}

#: Of a reserve, what is tried first; interactions of several columns are what small trees miss.
SCREENS: dict[TargetType, Sequence[type[Component]]] = {
    "regression": (BoostedLinear, BoostedRandom),
    "classification": (Boosted, BoostedRandom),
}
RESERVE_ROWS = 200  # with fewer, one split tells too little
# Standard errors by which the trees of a trial must help on one split, and a reserve on all.
TRIAL_GAIN, RESERVE_GAIN = 2.0, 3.0
HARDLY_EXPLAINED = 0.1  # of the loss of a constant: then the recipe of more rows is tried

#: With very many rows one of every family takes part; those that take less time come first.
FAMILIES: dict[TargetType, Sequence[Sequence[type[Component]]]] = {
    "regression": ((Boosted, BoostedLinear, BoostedRandom), (SmallJoint, GroupedJoint), (Linear,)),
    "classification": ((Boosted, BoostedRandom), (GroupedJoint,), (Linear,)),
}

#: Components that wide tables are spared. Where few of many columns count, random thresholds miss
#: them; the time of linear leaves grows with the cube of the columns.
_NOT_WIDE = (BoostedRandom, BoostedLinear)
#: Of the exact joint fit of numbers; steps of few of many columns are for the trees' own values.
_WIDE_NUMBERS = (Joint, LeafValues, Located)

#: Rows of all training parts together, about.
_SPLIT_ROWS: dict[TargetType, float] = {"regression": 20_000, "classification": 30_000}
_HELD_OUT_ROWS = 20_000  # enough to choose on: the smallest fold of more than 100,000 rows
NEARLY_ALL = 0.9  # of the rows: models of a split that is trained on so many need no other fit
MANY_ROWS = 150_000  # above which a sample tells what is worth fitting to all rows
SAMPLE_ROWS = 10_000  # that a sample is trained on, and a quarter of it to validate
_FEW_ROWS = 8  # up to which all fits have five folds
_MOST_RAW = 5000  # raw predictions, rows times classes, up to which the exact joint fit is made

NO_USE = "no help on held-out rows"
NO_HELP = f"larger trees ({NO_USE})"  # what the report says of a reserve in vain
_LITTLE_WEIGHT = 0.15  # of a blend: the model of the one split does, another fit adds little

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
    """Return the recipe of a fit; for "auto" see `recipe_for`.

    One that is asked for by its name has no reserve.
    """
    if penalty is not None:
        return _GIVEN_PENALTY
    if partitioner is not None:
        return _GIVEN_PARTITIONS
    if name == "auto":
        return RECIPES[recipe_for(n_rows, n_outputs)]
    return replace(RECIPES[name], reserve={})


def n_folds_and_splits(
    recipe: Recipe,
    n_rows: int,
    target_type: TargetType = "regression",
    *,
    heavy: bool = False,
) -> tuple[int, int]:
    """Return the folds that rows are dealt out to without `cv`, and how many are held out in turn.

    Five folds up to 2,500 rows, above that one of them; the default joint fit has three folds with
    more than 200 rows, for classes 400, which say as much. Blends have three splits, two above
    12,000 rows and one above 20,000: held-out rows choose a lot, and many are needed. 20,000 are
    enough, however many rows there are. Numbers, which tell more than classes do, have two
    splits from 2,001 rows on and one above 13,000. Where fits are `heavy` there are the fewest.
    """
    if recipe.name == "blend":
        is_fast = target_type == "regression" and n_rows > RECIPES["joint"].max_rows
        most = 1 if heavy else 2 if is_fast else 3
        n_splits = int(np.clip(round(_SPLIT_ROWS[target_type] / n_rows), 1, most))
        return max(5, n_rows // _HELD_OUT_ROWS), n_splits
    few = 200 if target_type == "regression" else 400
    few = _FEW_ROWS if heavy else few
    if recipe == RECIPES["joint"] and few < n_rows <= recipe.max_rows:
        return 3, 3
    return 5, 5 if n_rows <= 2500 else 1


def families(
    recipe: Recipe, n_rows: int, target_type: TargetType, *, has_budget: bool = False
) -> Sequence[Sequence[type[Component]]]:
    """Return the components of a recipe by family; of each family one takes part.

    Within a budget of time no sample chooses between them, and each may take part.
    """
    if recipe.name == "blend" and n_rows > MANY_ROWS and not has_budget:
        return FAMILIES[target_type]
    return [(kind,) for kind in recipe.components[target_type]]


def under_constraints(recipe: Recipe) -> Recipe:
    """Return the recipe of which every component is monotone where that is asked for.

    A blend has weights that are not negative, so that it is monotone too.
    """
    is_given = recipe in (_GIVEN_PARTITIONS, _GIVEN_PENALTY)
    kinds = (MonotoneJoint,) if is_given else (MonotoneJoint, Boosted, BoostedRandom, Linear)
    components = dict.fromkeys(recipe.components, kinds)
    return replace(recipe, components=components, blending=Stacking(), reserve={})


def affordable(recipe: Recipe, n_columns: int, n_outputs: int) -> Recipe:
    """Return the recipe with the components of wide tables; see `_fit.limits`.

    Of more classes than `Boosted` takes, random thresholds must do. Tables that are wide,
    or of many classes, have no reserve.
    """
    if is_heavy(n_columns, n_outputs):
        recipe = replace(recipe, reserve={})
    if recipe == RECIPES["joint"] and is_wide(n_columns):
        return replace(recipe, components={**recipe.components, "regression": _WIDE_NUMBERS})
    if recipe.name != "blend" or not is_wide(n_columns) or not Boosted.takes(n_outputs):
        return recipe
    return replace(
        recipe,
        components={
            target_type: tuple(kind for kind in kinds if kind not in _NOT_WIDE)
            for target_type, kinds in recipe.components.items()
        },
    )


def spared(
    recipe: Recipe, context: FitContext, n_splits: int, *, splits_are_given: bool
) -> list[str]:
    """Return what a wide table, or one of many classes, goes without."""
    n_rows, n_columns = context.rows.X.shape
    if recipe not in RECIPES.values() or not is_heavy(n_columns, context.n_outputs):
        return []
    reason = f"{n_columns:,} columns" if is_wide(n_columns) else f"{context.n_outputs:,} classes"
    kept = affordable(recipe, n_columns, context.n_outputs).components[context.target_type]
    names = [k.name for k in recipe.components[context.target_type] if k not in kept]
    n_all = n_folds_and_splits(recipe, n_rows, context.target_type)[1]
    if n_splits < n_all and not splits_are_given:
        names.append(f"{n_all - n_splits} of {n_all} splits")
    share = partition_share(n_columns, context.n_outputs)
    if recipe.name == "joint" and share < 1:
        names.append(f"{1 - share:.0%} of the partitions that are not boosted")
    if recipe.name == "joint" and is_wide(n_columns):
        names.append(f"splits on all but {SCREENED_COLUMNS} columns")
    return [f"{name} ({reason})" for name in names]


# -- fitting a recipe ------------------------------------------------------------------------------


def fit_recipe(
    context: FitContext,
    recipe: Recipe,
    splits: Sequence[Split],
    budget: Budget | None = None,
    left_out: Sequence[str] = (),
) -> Fit:
    """Choose on the splits what is left to choose, fit all rows, and blend the components.

    With a budget components for which there is no time take no part. Where there are larger trees
    in reserve they take part if they clearly help, on the first split and on all.
    """
    if context.signs is not None:
        recipe = under_constraints(recipe)
    recipe = affordable(recipe, context.rows.X.shape[1], context.n_outputs)
    if recipe.name == "blend":
        splits = splits if context.is_regression else with_all_classes(context.rows, splits)
        # Models of one split with nearly all rows need not be fitted anew to all.
        keeps_split = len(splits) == 1 and context.statistics is None
        keeps_split = keeps_split and len(splits[0][0]) >= NEARLY_ALL * len(context.rows)
        context = replace(context, keeps_split=keeps_split)
    seconds = seconds_of(recipe.components[context.target_type], context.size, len(splits))
    Progress.expect(seconds if budget is None else min(seconds, budget.seconds))
    components, held_out, skipped = _hold_out(context, recipe, splits, budget)
    left_out = [*left_out, *skipped]
    blend, name = blended(context, recipe, components, held_out, splits), recipe.name
    parts = blended_parts(blend, held_out, splits)
    has_reserve = bool(parts) and _has_reserve(context, recipe, len(splits), budget)
    explained = explained_part(context, parts, splits) if parts and _is_plain(context) else None
    is_blind = explained is not None and explained < HARDLY_EXPLAINED
    if has_reserve:
        left_out = [*left_out, NO_HELP]
    if has_reserve and not is_blind and _helps(context, parts[0], splits[0]):
        reserve = recipe.reserve[context.target_type]
        further, predictions = predict_held_out(context, reserve, splits)
        both = held_out | predictions
        larger = blended(context, recipe, components | further, both, splits)
        gain = standardized_gain(context, parts, blended_parts(larger, both, splits), splits)
        if gain > RESERVE_GAIN:
            components, held_out, blend, name = components | further, both, larger, "blend"
            left_out = left_out[:-1]
    model, blend = _fit_components(context, components, blend)
    model, importances = model.described(context.rows.X, context.rows.s)
    active = [components[name] for name in blend.active]
    tables = [component.table for component in active if component.table is not None]
    report = FitReport(
        name,
        context.target_type,
        tuple(ComponentReport(c.name, blend.weights[c.name], c.describe()) for c in active),
        blend,
        next((c.solve for c in active if c.solve is not None), None),
        cv_results(tables[0]) if tables else None,
        sum(component.n_rounds for component in active),
        loss_name(context.target_type, context.loss),
        bool(context.rows.offset.any()),
        tuple(left_out),
    )
    rows = held_out_rows(context, blend, held_out, splits)
    return Fit(model, importances, report, rows, has_reserve and is_blind, explained)


def _hold_out(
    context: FitContext, recipe: Recipe, splits: Sequence[Split], budget: Budget | None
) -> tuple[dict[str, Component], dict[str, list[NDArray]], list[str]]:
    """Return components, predictions of held-out rows, and names of what was left out."""
    every, tried = recipe.components[context.target_type], None
    kinds = [kind for kind in every if context.has_location or not kind.needs_location]
    if recipe.name == "blend" and budget is not None:
        from jointleaf._fit.budget import held_out_within  # which is about recipes itself

        components, held_out, skipped = held_out_within(budget, context, recipe, splits)
        held_out = _completed(context, recipe.blending, components, held_out, splits)
        return components, held_out, skipped
    if recipe.name == "blend" and len(context.rows) > MANY_ROWS and splits:
        from jointleaf._fit.budget import tried_on_sample

        tried = tried_on_sample(context, recipe, splits[0])
        kinds = [type(component) for component in tried.values()]
    return *predict_held_out(context, kinds, splits, tried, recipe.blending), []


def seconds_of(kinds: Sequence[type[Component]], size: Size, n_splits: int) -> float:
    """Return about how long components take."""
    return sum(kind.seconds(size).total(n_splits) for kind in kinds)


def blended(
    context: FitContext,
    recipe: Recipe,
    components: Mapping[str, Component],
    held_out: Mapping[str, list[NDArray]],
    splits: Sequence[Split],
) -> Blend:
    if len(components) == 1:
        return Blend.alone(next(iter(components)))
    blend = recipe.blending.fit(context, components, held_out, splits)
    # Components that the first split had no use for have taken part, with a weight of zero.
    weights = {
        name: blend.weights.get(name, 0.0)
        for name, component in components.items()
        if name in blend.weights or component.is_left_out
    }
    return replace(blend, weights=weights)


def _is_plain(context: FitContext) -> bool:
    """Whether losses are those of squared errors or classes, of rows without offsets."""
    return not context.has_own_link and not context.rows.offset.any()


def _has_reserve(context: FitContext, recipe: Recipe, n_splits: int, budget: Budget | None) -> bool:
    """Whether there are larger trees in reserve, and rows and time for them."""
    reserve = recipe.reserve.get(context.target_type, ())
    if not reserve or not _is_plain(context) or len(context.rows) < RESERVE_ROWS:
        return False
    return budget is None or budget.allows(seconds_of(reserve, context.size, n_splits))


def _helps(context: FitContext, raw: NDArray, split: Split) -> bool:
    """Whether the mean with what larger trees predict is clearly better, on one split."""
    for kind in SCREENS[context.target_type]:
        predictions = kind(context, {}).held_out([split])
        if predictions:
            mean = (raw + predictions[0]) / 2
            if standardized_gain(context, [raw], [mean], [split]) > TRIAL_GAIN:
                return True
    return False


def predict_held_out(
    context: FitContext,
    kinds: Sequence[type[Component]],
    splits: Sequence[Split],
    tried: Mapping[str, Component] | None = None,
    blending: Stacking | Interpolation | None = None,
) -> tuple[dict[str, Component], dict[str, list[NDArray]]]:
    """Return components, and predictions of held-out rows of those that take part.

    Components may follow those that were tried on a sample. With a `blending`, the first split
    must have a use for those that have rivals.
    """
    components: dict[str, Component] = {}
    held_out: dict[str, list[NDArray]] = {}
    for kind in kinds:
        component = components[kind.name] = kind(context, dict(components))
        if tried is not None:
            component.follow(tried[kind.name])
    for name, component in components.items():
        waits = blending is not None and component.has_rivals
        predictions = component.held_out(splits[:1] if waits else splits)
        Progress.spent(len(splits) * component.seconds(context.size).held_out)
        if predictions:
            held_out[name] = predictions
    if blending is not None:
        held_out = _completed(context, blending, components, held_out, splits)
    return components, held_out


def _completed(
    context: FitContext,
    blending: Stacking | Interpolation,
    components: Mapping[str, Component],
    held_out: Mapping[str, list[NDArray]],
    splits: Sequence[Split],
) -> dict[str, list[NDArray]]:
    """Return predictions for all splits, of rivals if they are part of the blend of the first.

    Boosted trees of several kinds do much the same: those that the first split has no use for
    would take as much time on each of the others.
    """
    rivals = [name for name in held_out if components[name].has_rivals]
    if len(splits) == 1 or not rivals:
        return dict(held_out)
    first = {name: predictions[:1] for name, predictions in held_out.items()}
    active = blending.fit(context, components, first, splits[:1]).active
    completed: dict[str, list[NDArray]] = {}
    for name, predictions in held_out.items():
        components[name].is_left_out = name in rivals and name not in active
        if not components[name].is_left_out:
            more = components[name].held_out(splits) if name in rivals else predictions
            assert more is not None
            completed[name] = more
    return completed


def _fit_components(
    context: FitContext, components: Mapping[str, Component], blend: Blend
) -> tuple[CellModel, Blend]:
    """Fit the components of a blend to all rows; the first alone where one has no model.

    Those of little weight keep the models of the one split, as do all where it has nearly all rows.
    """
    frame = context.standardize(context.rows)
    models: dict[str, CellModel] = {}
    for name in blend.active:
        is_small = blend.weights[name] < _LITTLE_WEIGHT * sum(blend.weights.values())
        model = None
        if context.keeps_split or (is_small and context.statistics is None):
            model = components[name].split_model(frame)
        if model is None:
            model = components[name].fit(frame)
        Progress.spent(components[name].seconds(context.size).fit)
        if model is None:
            blend = Blend.alone(next(iter(components)))
            break
        models[name] = model
    for name in set(blend.active) - set(models):
        model = components[name].fit(frame)
        assert model is not None
        models[name] = model
    return blend.of(models), blend
