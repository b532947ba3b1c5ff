"""Fits within a budget of time, and of very many rows: which components, and of which rows.

With a budget the clock tells what takes part, with very many rows a sample of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.progress import Progress
from jointleaf._data.rows import Rows
from jointleaf._fit.boosting import Boosted, BoostedLinear, BoostedRandom
from jointleaf._fit.component import Component, FitContext, Split
from jointleaf._fit.folds import with_all_classes
from jointleaf._fit.grouped_joint import GroupedJoint
from jointleaf._fit.joint import Joint
from jointleaf._fit.limits import Budget, Seconds, Size, Used, is_heavy
from jointleaf._fit.linear import Linear
from jointleaf._fit.recipes import (
    FAMILIES,
    MANY_ROWS,
    NO_USE,
    RECIPES,
    SAMPLE_ROWS,
    Recipe,
    affordable,
    blended,
    n_folds_and_splits,
    predict_held_out,
    recipe_for,
    seconds_of,
)
from jointleaf.partitions._base import TargetType

#: What is tried first where time is short, for what it adds to a model in the time it takes.
IN_A_HURRY = (Linear, Boosted, GroupedJoint, BoostedRandom, BoostedLinear)
_FEWEST_ROWS = 1000  # that are fitted where there is no time for all
COMPARABLE = 0.5  # of the largest weight in a family: less time then counts more


def expected_seconds(n_rows: int, n_columns: int, n_classes: int = 0, name: str = "auto") -> float:
    """Return about how long a fit by a recipe takes on one core, of numbers or of classes."""
    n_outputs = n_classes if n_classes > 2 else 1
    target_type: TargetType = "classification" if n_classes else "regression"
    name = recipe_for(n_rows, n_outputs) if name == "auto" else name
    recipe = affordable(RECIPES[name], n_columns, n_outputs)
    heavy = is_heavy(n_columns, n_outputs)
    n_splits = n_folds_and_splits(recipe, n_rows, target_type, heavy=heavy)[1]
    size = Size(n_rows, n_columns, n_outputs, target_type == "regression")
    return seconds_of(recipe.components[target_type], size, n_splits)


class Plan(NamedTuple):
    """A fit that is to end in time: what is fitted, on how many splits, and what is left out."""

    context: FitContext
    recipe: Recipe
    n_splits: int
    left_out: tuple[str, ...] = ()


def plan_within(
    budget: Budget, context: FitContext, recipe: Recipe, n_splits: int, *, splits_are_given: bool
) -> Plan:
    """Return the plan of a fit for which there is time, about.

    Without the time for an exact joint fit it is a blend, of fewer splits where these are not the
    user's, then with fewer components (see `fit_recipe`) and, where there is no time for boosted
    trees of all rows, of half, a quarter, an eighth of the rows.
    """

    def seconds(recipe: Recipe, n_splits: int) -> float:
        return seconds_of(recipe.components[context.target_type], context.size, n_splits)

    if recipe == RECIPES["joint"] and budget.allows(seconds(recipe, n_splits)):
        return Plan(context, recipe, n_splits)
    left_out = []
    if recipe == RECIPES["joint"]:
        recipe, left_out = RECIPES["blend"], ["the exact joint fit"]
        n_blend = n_folds_and_splits(recipe, len(context.rows), context.target_type)[1]
        n_splits = n_splits if splits_are_given else n_blend
    n_all = n_splits
    while n_splits > 1 and not splits_are_given and not budget.allows(seconds(recipe, n_splits)):
        n_splits -= 1
    if n_splits < n_all:
        left_out.append(f"{n_all - n_splits} of {n_all} splits")
    rows = _rows_within(budget, context, n_splits)
    if len(rows) < len(context.rows):
        n_all = len(context.rows)
        left_out.append(f"{n_all - len(rows):,} of {n_all:,} rows")
    return Plan(replace(context, rows=rows), recipe, n_splits, tuple(left_out))


def _rows_within(budget: Budget, context: FitContext, n_splits: int) -> Rows:
    """Return the rows for whose boosted trees there is time; all, if not even for few.

    The first are a random sample. Of every class there is one at least.
    """
    rows, n_rows = context.rows, len(context.rows)
    boosted = BoostedRandom if Boosted.seconds(context.size) == Seconds() else Boosted
    while n_rows >= _FEWEST_ROWS:
        size = context.size._replace(n_rows=n_rows)
        if budget.allows(sum(kind.seconds(size).total(n_splits) for kind in (Linear, boosted))):
            break
        n_rows //= 2
    else:
        return rows
    is_used = np.arange(len(rows)) < n_rows
    if not context.is_regression:
        is_used[np.unique(rows.y, return_index=True)[1]] = True
    return rows.take(is_used)


def held_out_within(
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
            left_out.append(f"{kind.name} ({NO_USE})")
    if not held_out:  # too few rows to hold any out
        component = kinds[0](context, {})
        return {component.name: component}, {}, []
    names = [kind.name for kind in kinds if kind.name in held_out]
    components = {name: components[name] for name in names}
    held_out = {name: held_out[name] for name in names}
    return components, held_out, left_out


def look(
    context: FitContext,
    recipe: Recipe,
    splits: Sequence[Split],
    budget: Budget | None = None,
    left_out: Sequence[str] = (),
) -> Used:
    """Return what `fit_recipe` will use, as far as it decides that before most of its work.

    An exact joint fit has slopes if its validation chooses them, and if it is part of the blend; of
    very many rows a sample says which components take part. Else, and with a budget, all may.
    """
    if not splits or budget is not None or context.signs is not None or context.penalty is not None:
        return Used()
    recipe = affordable(recipe, context.rows.X.shape[1], context.n_outputs)
    if recipe.name == "joint":
        kinds = recipe.components[context.target_type]
        components, held_out = predict_held_out(context, kinds, splits)
        blend = blended(context, recipe, components, held_out, splits)
        joint = components[Joint.name]
        assert isinstance(joint, Joint)
        has_slopes = joint.setting is None or joint.setting.slope_scale > 0
        return Used(slopes=has_slopes and Joint.name in blend.active)
    if len(context.rows) > MANY_ROWS:
        if not context.is_regression:
            splits = with_all_classes(context.rows, splits)
        return Used(components=tuple(tried_on_sample(context, recipe, splits[0])))
    return Used()


def _warn_of_no_time(budget: Budget, component: Component) -> None:
    warnings.warn(
        f"time_budget={budget.seconds:g} is too short for any component: the fastest, "
        f"{component.name}, is fitted nevertheless; give more seconds, or fewer rows",
        UserWarning,
        stacklevel=9,
    )


def tried_on_sample(context: FitContext, recipe: Recipe, split: Split) -> dict[str, Component]:
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
    components, held_out = predict_held_out(context, kinds, [(train, valid)])
    weights = recipe.blending.fit(context, components, held_out, [(train, valid)]).weights
    chosen = []
    for family in families:
        largest = max(weights.get(kind.name, 0.0) for kind in family)
        if largest > 0:
            names = [k.name for k in family if weights.get(k.name, 0.0) >= COMPARABLE * largest]
            chosen.append(names[0])
    return {name: components[name] for name in chosen}
