"""Fitting a recipe: held-out predictions of its components, their blend, and the model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.progress import Progress
from jointleaf._fit.blend import Interpolation, Stacking, explained_part, standardized_gain
from jointleaf._fit.calibration import HeldOut, held_out_rows
from jointleaf._fit.component import Blend, Component, FitContext, Split, TargetType
from jointleaf._fit.folds import with_all_classes
from jointleaf._fit.limits import Budget, Size, is_heavy
from jointleaf._fit.recipes import (
    COMPARABLE,
    FAMILIES,
    HARDLY_EXPLAINED,
    IN_A_HURRY,
    MANY_ROWS,
    NEARLY_ALL,
    RECIPES,
    RESERVE_GAIN,
    RESERVE_ROWS,
    SAMPLE_ROWS,
    SCREENS,
    TRIAL_GAIN,
    Recipe,
    affordable,
    n_folds_and_splits,
    recipe_for,
    under_constraints,
)
from jointleaf._fit.report import FitReport
from jointleaf._model.cell_model import CellModel

_NO_USE = "no help on held-out rows"
NO_HELP = f"larger trees ({_NO_USE})"  # what the report says of a reserve in vain
_LITTLE_WEIGHT = 0.15  # of a blend: the model of the one split does, another fit adds little


@dataclass(frozen=True)
class Fit:
    """The model of a fit, the importances (d,) of columns, what was done, and held-out rows.

    A fit that explains hardly more than a constant `wants_larger_trees`, where there are such:
    columns that say nothing one by one may do so together, which takes the recipe of more rows,
    with more of them in training. `explained` is the part of the loss of a constant by which that
    of held-out rows is lower, where it is known.
    """

    model: CellModel
    importances: NDArray[np.float64]
    report: FitReport
    held_out: HeldOut | None = None
    wants_larger_trees: bool = False
    explained: float | None = None


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
        context = replace(context, keeps_split=_keeps_split(context, splits))
    seconds = _seconds(recipe.components[context.target_type], context.size, len(splits))
    Progress.expect(seconds if budget is None else min(seconds, budget.seconds))
    components: dict[str, Component] = {}
    held_out: dict[str, list[NDArray]] = {}
    if budget is not None and recipe.name == "blend":
        components, held_out, skipped = _held_out_within(budget, context, recipe, splits)
        left_out = [*left_out, *skipped]
    else:
        kinds: Sequence[type[Component]] = recipe.components[context.target_type]
        tried = None
        if recipe.name == "blend" and len(context.rows) > MANY_ROWS and splits:
            tried = _tried_on_sample(context, recipe, splits[0])
            kinds = [type(component) for component in tried.values()]
        components, held_out = _predict_held_out(context, kinds, splits, tried, recipe.blending)
    blend, name = _blended(context, recipe, components, held_out, splits), recipe.name
    parts = _blended_parts(blend, held_out, splits)
    has_reserve = len(parts) > 0 and _has_reserve(context, recipe, len(splits), budget)
    is_known = len(parts) > 0 and _is_plain(context)
    explained = explained_part(context, parts, splits) if is_known else None
    is_blind = explained is not None and explained < HARDLY_EXPLAINED
    if has_reserve:
        left_out = [*left_out, NO_HELP]
    if has_reserve and not is_blind and _helps(context, parts[0], splits[0]):
        reserve = recipe.reserve[context.target_type]
        further, predictions = _predict_held_out(context, reserve, splits)
        both = held_out | predictions
        larger = _blended(context, recipe, components | further, both, splits)
        gain = standardized_gain(context, parts, _blended_parts(larger, both, splits), splits)
        if gain > RESERVE_GAIN:
            components, held_out, blend, name = components | further, both, larger, "blend"
            left_out = left_out[:-1]
    model, blend = _fit_components(context, components, blend)
    model, importances = model.described(context.rows.X, context.rows.s)
    report = FitReport.of(name, context.target_type, blend, components, context.loss)
    has_offset = bool(context.rows.offset.any())
    report = replace(report, has_offset=has_offset, left_out=tuple(left_out))
    rows = held_out_rows(context, blend, held_out, splits)
    return Fit(model, importances, report, rows, has_reserve and is_blind, explained)


def expected_seconds(n_rows: int, n_columns: int, n_classes: int = 0, name: str = "auto") -> float:
    """Return about how long a fit by a recipe takes on one core, of numbers or of classes."""
    n_outputs = n_classes if n_classes > 2 else 1
    target_type: TargetType = "classification" if n_classes else "regression"
    name = recipe_for(n_rows, n_outputs) if name == "auto" else name
    recipe = affordable(RECIPES[name], n_columns, n_outputs)
    heavy = is_heavy(n_columns, n_outputs)
    n_splits = n_folds_and_splits(recipe, n_rows, target_type, heavy=heavy)[1]
    size = Size(n_rows, n_columns, n_outputs, target_type == "regression")
    return _seconds(recipe.components[target_type], size, n_splits)


def _seconds(kinds: Sequence[type[Component]], size: Size, n_splits: int) -> float:
    return sum(kind.seconds(size).total(n_splits) for kind in kinds)


def _blended(
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


def _blended_parts(
    blend: Blend, held_out: Mapping[str, list[NDArray]], splits: Sequence[Split]
) -> list[NDArray]:
    """Return what a blend predicts for the validation rows of every split; [] if not known."""
    if any(name not in held_out for name in blend.active):
        return []
    return [
        np.sum([blend.weights[name] * held_out[name][k] for name in blend.active], axis=0)
        for k in range(len(splits))
    ]


def _is_plain(context: FitContext) -> bool:
    """Whether losses are those of squared errors or classes, of rows without offsets."""
    return not context.has_own_link and not context.rows.offset.any()


def _has_reserve(context: FitContext, recipe: Recipe, n_splits: int, budget: Budget | None) -> bool:
    """Whether there are larger trees in reserve, and rows and time for them."""
    reserve = recipe.reserve.get(context.target_type, ())
    if not reserve or not _is_plain(context) or len(context.rows) < RESERVE_ROWS:
        return False
    return budget is None or budget.allows(_seconds(reserve, context.size, n_splits))


def _helps(context: FitContext, raw: NDArray, split: Split) -> bool:
    """Whether the mean with what larger trees predict is clearly better, on one split."""
    for kind in SCREENS[context.target_type]:
        predictions = kind(context, {}).held_out([split])
        if predictions:
            mean = (raw + predictions[0]) / 2
            if standardized_gain(context, [raw], [mean], [split]) > TRIAL_GAIN:
                return True
    return False


def _predict_held_out(
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


def _keeps_split(context: FitContext, splits: Sequence[Split]) -> bool:
    """Whether models of the one split need not be fitted anew to all rows."""
    if len(splits) != 1 or context.statistics is not None:
        return False
    return len(splits[0][0]) >= NEARLY_ALL * len(context.rows)


def _tried_on_sample(context: FitContext, recipe: Recipe, split: Split) -> dict[str, Component]:
    """Return components that take part in the blend of a sample of a split's rows, by name.

    Of every family it is the first with at least half of the largest weight. With few rows the
    members differ by chance, and their mean is better than each; with every row that is worth less.
    """
    train, valid = split
    is_used = np.arange(len(train)) < SAMPLE_ROWS
    if not context.is_regression:  # boosting cannot name classes that it has not seen
        is_used[np.unique(train.y, return_index=True)[1]] = True
    train, valid = train.take(is_used), valid.take(slice(SAMPLE_ROWS // 4))
    context = replace(context, rows=train.joined(valid), keeps_split=False)
    families = FAMILIES[context.target_type]
    kinds = [kind for family in families for kind in family]
    components, held_out = _predict_held_out(context, kinds, [(train, valid)])
    weights = recipe.blending.fit(context, components, held_out, [(train, valid)]).weights
    chosen = []
    for family in families:
        largest = max(weights.get(kind.name, 0.0) for kind in family)
        if largest > 0:
            names = [k.name for k in family if weights.get(k.name, 0.0) >= COMPARABLE * largest]
            chosen.append(names[0])
    return {name: components[name] for name in chosen}


def _held_out_within(
    budget: Budget, context: FitContext, recipe: Recipe, splits: Sequence[Split]
) -> tuple[dict[str, Component], dict[str, list[NDArray]], list[str]]:
    """Predict held-out rows with the components for which there is time, at least with one.

    Returns these components, their predictions, and names of those that were left out.
    """
    kinds = recipe.components[context.target_type]
    components: dict[str, Component] = {}
    held_out: dict[str, list[NDArray]] = {}
    left_out = []
    waiting: list[type[Component]] = [kind for kind in IN_A_HURRY if kind in kinds]
    while waiting:
        # The first is the fastest that takes part at all.
        kind = min(waiting, key=lambda kind: kind.seconds(context.size).total(len(splits)))
        kind = waiting[0] if held_out else kind
        waiting.remove(kind)
        seconds = kind.seconds(context.size)
        has_time = budget.allows(seconds.total(len(splits)))
        if held_out and not has_time:
            left_out.append(kind.name)
            continue
        component = kind(context, dict(components))
        some = splits[:1] if component.has_rivals else splits
        with budget.spending(seconds, len(some)):
            predictions = component.held_out(some)
        Progress.spent(len(splits) * seconds.held_out)
        if predictions:
            components[kind.name], held_out[kind.name] = component, predictions
            if not has_time:
                _warn_of_no_time(budget, component)
        elif component.is_left_out:
            left_out.append(f"{kind.name} ({_NO_USE})")
    if not held_out:  # too few rows to hold any out
        component = kinds[0](context, {})
        return {component.name: component}, {}, []
    names = [kind.name for kind in kinds if kind.name in held_out]
    components = {name: components[name] for name in names}
    held_out = {name: held_out[name] for name in names}
    return components, _completed(context, recipe.blending, components, held_out, splits), left_out


def _warn_of_no_time(budget: Budget, component: Component) -> None:
    warnings.warn(
        f"time_budget={budget.seconds:g} is too short for any component: the fastest, "
        f"{component.name}, is fitted nevertheless; give more seconds, or fewer rows",
        UserWarning,
        stacklevel=8,
    )


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
