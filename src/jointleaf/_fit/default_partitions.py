"""The partitions that fits choose themselves, unfitted.

Few rows have hundreds of small trees; many rows have groups of partitions, sized by rows, features
and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from jointleaf._core.layout import CellKind
from jointleaf._data.rows import Rows
from jointleaf._fit.component import FitContext
from jointleaf._fit.folds import grow
from jointleaf._fit.limits import limit_histograms
from jointleaf.partitions import (
    LargeTreesPartitioner,
    LightGBMPartitioner,
    Partitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    UnionPartitioner,
)
from jointleaf.partitions._base import TargetType, seeded

# Rows that trees are grown on at most: of many cells, linear ones, and small ones with constants.
LARGE_ROWS, _LINEAR_ROWS, _SMALL_ROWS = 250_000, 100_000, 50_000
_TREE_ROWS, _MOST_TREES = 50, 1000  # rows for every small tree with constants, and most of these
_LINEAR_ENTRIES = 1e7  # rows times features times outputs times linear partitions of a group


def many_partitions(target_type: TargetType) -> UnionPartitioner:
    """Return 400 small trees of four kinds, 450 for classes, unfitted.

    Boosted and extremely randomised trees, grown on the target and on the residuals of a linear
    model: which of them are better depends on the data, and together they are better than each.
    For classes the leaf values of the boosted trees also take part: there are 100 of them instead
    of 50. With few rows 63 bins of a column are enough for them, and take half the time.
    """
    bins = {"max_bin": 63}
    n_boosted = 100 if target_type == "classification" else 50
    on_residuals = UnionPartitioner(
        [
            LightGBMPartitioner(50, 4, options=bins),
            RandomTreesPartitioner(100, 8),
            RandomTreesPartitioner(100, 4),
        ]
    )
    return UnionPartitioner(
        [
            LightGBMPartitioner(n_boosted, 4, options=bins),
            RandomTreesPartitioner(100, 8),
            ResidualPartitioner(on_residuals),
        ]
    )


def few_partitions() -> UnionPartitioner:
    """Return 75 small partitions, unfitted: boosted and random trees, and trees on residuals."""
    boosted = LightGBMPartitioner(25, 8)
    return UnionPartitioner(
        [boosted, RandomTreesPartitioner(25, 16), ResidualPartitioner(clone(boosted))]
    )


class Group(NamedTuple):
    """Partitions of one kind, unfitted, with cells of one kind and a scale of their own."""

    name: str
    partitioner: Partitioner
    kind: CellKind
    max_rows: int = LARGE_ROWS  # that its trees are grown on


def partition_groups(
    n_rows: int,
    n_features: int,
    *,
    is_linear: bool,
    root: bool,
    n_outputs: int = 1,
    n_splits: int = 1,
) -> list[Group]:
    """Return the groups for a number of training rows and of linear features.

    Large trees have a cell for every 40 rows. There are 100 of each kind up to 5,000 rows and
    fewer beyond (37 for 100,000), or for more than four outputs, which keeps the time of a fit
    below that of its peers; of several splits each has its part of one and a half times as many.
    Linear cells, whose cost grows with rows and features, are in 100 to 10 small trees of each
    kind. More rows than tell the borders of their cells would cost time alone: each group is grown
    on at most 250,000 rows of its own, linear cells on 100,000.
    """
    n_cells = int(np.clip(n_rows // 40, 8, 4000))
    n_large = 100 * min(1.0, 5_000 / n_rows) ** 0.33 * min(1.0, 4 / n_outputs) ** 0.5
    n_large = round(n_large if n_splits == 1 else 1.5 * n_large / n_splits)
    n_small = _LINEAR_ENTRIES / (n_rows * max(n_features, 1) * n_outputs)
    n_small = int(np.clip(n_small, 10, 100))
    n_rotations = max(3, 10 // n_splits)
    large = LargeTreesPartitioner(n_large, n_cells)
    randomized = LargeTreesPartitioner(n_large, n_cells, thresholds="random")
    groups = [
        Group("large_trees", large, "constant"),
        Group("random_trees", randomized, "constant"),
    ]
    if n_features:
        groups.append(
            Group("rotated_trees", RotatedPartitioner(randomized, n_rotations), "constant")
        )
    if n_features and is_linear:
        boosted = LightGBMPartitioner(max(n_small // 2, 10), 4)
        random, smaller = (RandomTreesPartitioner(n_small, cells) for cells in (8, 4))
        oblique = LargeTreesPartitioner(max(n_small // 2, 10), 16, thresholds="random")
        groups += [
            Group(name, partitioner, "linear", _LINEAR_ROWS)
            for name, partitioner in (
                ("linear_boosted", boosted),
                ("linear_random", random),
                ("residual_boosted", ResidualPartitioner(boosted)),
                ("residual_random", ResidualPartitioner(random)),
                ("residual_small", ResidualPartitioner(smaller)),
                ("linear_rotated", RotatedPartitioner(oblique, n_rotations)),
            )
        ]
        if root:
            groups.append(Group("root", RootCell(), "linear"))
    return groups


def small_groups(n_rows: int, *, root: bool) -> list[Group]:
    """Return the groups of a joint fit of many small trees: constants in these, and the root cell.

    There is a boosted tree of 4 leaves for every 50 rows, up to 1,000. Thresholds are drawn at
    random, so that no two trees have the same. Partitions of so few cells can be merged: a pass
    over a thousand of them costs as much as over a hundred large trees.
    """
    n_trees = int(np.clip(n_rows // _TREE_ROWS, 10, _MOST_TREES))
    trees = LightGBMPartitioner(n_trees, 4, options={"extra_trees": True})
    groups = [Group("small_boosted", trees, "constant", _SMALL_ROWS)]
    return [*groups, Group("root", RootCell(), "linear")] if root else groups


def grow_groups(groups: Sequence[Group], rows: Rows, context: FitContext) -> list[Partitioner]:
    """Grow the trees of all groups, each on rows of its own where there are many."""
    if not groups:
        return []
    rows, rng = context.growth_rows(rows), np.random.default_rng(context.seed)
    union = UnionPartitioner([group.partitioner for group in groups])
    union = seeded(union, context.seed, context.n_jobs)
    limit_histograms(union, rows.X.shape[1])

    def grown(partitioner: Any, max_rows: int) -> Any:
        some = rows
        if len(rows) > max_rows:
            some = rows.take(rng.choice(len(rows), max_rows, replace=False))
        return grow(partitioner, some, context.target_type, context.columns)

    # Partitions on residuals are grown together: they share their linear model.
    on_residuals = [m for m in union.partitioners if isinstance(m, ResidualPartitioner)]
    if on_residuals:
        together = UnionPartitioner([member.partitioner for member in on_residuals])
        together = grown(ResidualPartitioner(together), _LINEAR_ROWS).partitioner_
        for member, fitted in zip(on_residuals, together.partitioners_, strict=True):
            member.set_fitted(fitted)
    return [
        member if member in on_residuals else grown(member, group.max_rows)
        for group, member in zip(groups, union.partitioners, strict=True)
    ]
