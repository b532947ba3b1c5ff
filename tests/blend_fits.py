"""Small fits of the default recipes, and what their blends were fitted to."""

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._fit import (
    boosting,
    default_partitions,
    joint,
    linear,
    monotone,
    quantiles,
    strengths,
)
from jointleaf._fit.blend import Stacking
from jointleaf._fit.boosting import Stage
from jointleaf._fit.default_partitions import Group
from jointleaf._fit.grouped_joint import GroupedJoint
from jointleaf._fit.search import GIVEN_PLAN, default_plan
from jointleaf.partitions import (
    LargeTreesPartitioner,
    LightGBMPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    UnionPartitioner,
)

N_ROUNDS = 30
X, Y = make_friedman1(360, n_features=6, noise=0.5, random_state=0)
NEW, NEW_Y = make_friedman1(400, n_features=6, noise=0.5, random_state=1)
TASKS = {
    "regression": (JOPLEnRegressor, 1000 + 50 * Y),
    "binary": (JOPLEnClassifier, np.where(np.median(Y) < Y, "yes", "no")),
    "three": (JOPLEnClassifier, np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10),
}
WEIGHTS = np.random.default_rng(0).integers(0, 4, 360).astype(float)


def blended(estimator, **options):
    return estimator(recipe="blend", random_state=0, **options)


def raw(model, rows):
    return getattr(model, "decision_function", model.predict)(rows)


def few_groups(n_rows, n_features, *, is_linear, root, **sizes):
    """As `partition_groups`, with fewer partitions."""
    best, random = (
        LargeTreesPartitioner(6, 16, thresholds=thresholds) for thresholds in ("best", "random")
    )
    groups = [Group("large_trees", best, "constant"), Group("random_trees", random, "constant")]
    if n_features and is_linear:
        small = LargeTreesPartitioner(4, 6, thresholds="random")
        groups.append(Group("linear_rotated", RotatedPartitioner(small), "linear"))
        groups += [Group("root", RootCell(), "linear")] if root else []
    return groups


def few_small_trees(target_type):
    """As `many_partitions`, with a few of its trees."""
    on_residuals = [LightGBMPartitioner(4, 4), RandomTreesPartitioner(10, 6)]
    return UnionPartitioner(
        [
            LightGBMPartitioner(10, 4),
            RandomTreesPartitioner(10, 8),
            ResidualPartitioner(UnionPartitioner(on_residuals)),
        ]
    )


def short_plan(is_regression):
    """As `default_plan`, with fewer scales and strengths."""
    plan = default_plan(is_regression)
    return replace(plan, scales=(0.0, 1.0), strengths=plan.strengths[1:4])


def few_monotone_trees():
    """As the default partitions of constrained fits, with a few of their trees."""
    ordered = [LightGBMPartitioner(15, 8), ResidualPartitioner(LightGBMPartitioner(8, 8))]
    return ordered, [RandomTreesPartitioner(5, 8)]


#: What makes fits small: module, name, value.
_SMALL = (
    (boosting, "_ROUNDS", N_ROUNDS),
    (boosting, "_CELLS", 8),
    (boosting, "LINEAR_STAGE", Stage(True, 4, N_ROUNDS, 0.2)),
    (default_partitions, "partition_groups", few_groups),
    (joint, "many_partitions", few_small_trees),
    (joint, "default_plan", short_plan),
    (
        joint,
        "GIVEN_PLAN",
        replace(GIVEN_PLAN, scales=(0.0, 1.0), strengths=GIVEN_PLAN.strengths[1::3]),
    ),
    (linear, "STRENGTHS", (0.1, 0.01, 0.001)),
    (monotone, "_default_partitions", few_monotone_trees),
    (monotone, "_COARSE", monotone._COARSE[::2]),
    (monotone, "_STRENGTHS", monotone._STRENGTHS[::2]),
    (quantiles, "_STRENGTHS", quantiles._STRENGTHS[1::2]),
    # Paths with every third, and every second, of their strengths.
    (strengths, "_N_STRENGTHS", (strengths._N_STRENGTHS - 1) // 3 + 1),
    (strengths, "_N_TASK_STRENGTHS", (strengths._N_TASK_STRENGTHS - 1) // 2 + 1),
    (strengths, "BIAS_STRENGTHS", strengths.BIAS_STRENGTHS[1::2]),
)
LINEAR_STRENGTHS = linear.STRENGTHS  # those of a fit that users get
_TRUE = tuple((module, name, getattr(module, name)) for module, name, _ in _SMALL)


def least_plan(is_regression):
    """As `default_plan`, with one setting."""
    return replace(short_plan(is_regression), scales=(1.0,), strengths=(0.1,))


def least_trees(target_type):
    """As `many_partitions`, with one or two trees of every kind."""
    on_residuals = [LightGBMPartitioner(1, 4), RandomTreesPartitioner(2, 4)]
    return UnionPartitioner(
        [
            LightGBMPartitioner(2, 4),
            RandomTreesPartitioner(2, 4),
            ResidualPartitioner(UnionPartitioner(on_residuals)),
        ]
    )


@contextmanager
def _patched(values):
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in values:
            patch.setattr(module, name, value)
        yield


def small_fits():
    """Fits in here have few rounds and partitions, and few settings to choose from."""
    return _patched(_SMALL)


def least_fits():
    """Fits in here are as small as can be: for what does not depend on how good they are at all."""
    least = (joint, "many_partitions", least_trees), (joint, "default_plan", least_plan)
    return _patched((*_SMALL, *least, (linear, "STRENGTHS", (0.1,))))


def true_fits():
    """Fits in here are those that users get, among others that are small."""
    return _patched(_TRUE)


@cache
def usual_blend(task=None):
    """The blend with default parameters of a task, or of Y as it is; shared: not to be changed."""
    estimator, y = TASKS[task] if task else (JOPLEnRegressor, Y)
    with small_fits():
        return blended(estimator).fit(X, y)


@contextmanager
def blend_pieces():
    """What the last fit in here chose and fitted its blend to."""
    pieces = {"choices": []}
    fit, follow = Stacking.fit, GroupedJoint._follow

    def keep(self, context, components, held_out, splits):
        pieces.update(context=context, components=components, held_out=held_out, splits=splits)
        return fit(self, context, components, held_out, splits)

    def keep_choice(self, scales, slope_scale, folds, *most_steps):
        choice = follow(self, scales, slope_scale, folds, *most_steps)
        told = SimpleNamespace(
            n_folds=len(folds), loss=choice.loss, group_weights=choice.group_weights()
        )
        pieces["choices"].append((scales, slope_scale, told))
        return choice

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stacking, "fit", keep)
        patch.setattr(GroupedJoint, "_follow", keep_choice)
        yield pieces
