"""Recipes: which components take part in a fit, and how they are blended.

This is the only place with thresholds on the number of rows. A new component is one class and one
more entry in a recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from jointleaf._core.penalties import Term
from jointleaf._data.rows import Rows
from jointleaf._fit.blend import Interpolation, Stacking
from jointleaf._fit.boosting import Boosted, BoostedLinear, BoostedRandom
from jointleaf._fit.component import Component, FitContext
from jointleaf._fit.default_partitions import few_partitions, many_partitions
from jointleaf._fit.grouped_joint import GroupedJoint, LargeJoint, SmallJoint
from jointleaf._fit.joint import Joint
from jointleaf._fit.leaf_values import LeafValues
from jointleaf._fit.limits import (
    SCREENED_COLUMNS,
    Budget,
    Seconds,
    is_heavy,
    is_wide,
    partition_share,
)
from jointleaf._fit.linear import CategoryLinear, Linear
from jointleaf._fit.located import Located
from jointleaf._fit.monotone import MonotoneJoint
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

#: What is tried first where time is short, for what it adds to a model in the time it takes.
IN_A_HURRY = (Linear, Boosted, GroupedJoint, BoostedRandom, BoostedLinear)
_FEWEST_ROWS = 1000  # that are fitted where there is no time for all

#: Rows of all training parts together, about.
_SPLIT_ROWS: dict[TargetType, float] = {"regression": 20_000, "classification": 30_000}
_HELD_OUT_ROWS = 20_000  # enough to choose on: the smallest fold of more than 100,000 rows
NEARLY_ALL = 0.9  # of the rows: models of a split that is trained on so many need no other fit
MANY_ROWS = 150_000  # above which a sample tells what is worth fitting to all rows
SAMPLE_ROWS = 10_000  # that a sample is trained on, and a quarter of it to validate
COMPARABLE = 0.5  # of the largest weight in a family: less time then counts more
_FEW_ROWS = 8  # up to which all fits have five folds
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
    kinds: tuple[type[Component], ...] = (MonotoneJoint, Boosted, BoostedRandom, Linear)
    kinds = kinds[:1] if is_given else kinds
    components: dict[TargetType, tuple[type[Component], ...]] = {
        "regression": kinds,
        "classification": kinds,
    }
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
        kinds = recipe.components[context.target_type]
        return sum(kind.seconds(context.size).total(n_splits) for kind in kinds)

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
