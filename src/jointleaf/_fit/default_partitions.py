"""The partitions that fits choose themselves, unfitted.

Few rows have hundreds of small trees; many rows have groups of partitions, sized by rows, features
and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from jointleaf._core.layout import CellKind
from jointleaf._data.rows import Rows
from jointleaf._fit.boosting import JOINT_ROUNDS
from jointleaf._fit.component import Component, FitContext
from jointleaf._fit.folds import grow
from jointleaf._fit.limits import (
    FitShape,
    Stages,
    grouped_memory,
    limit_histograms,
    partition_sizes,
)
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
_LARGE_ROWS, _LINEAR_ROWS, _SMALL_ROWS = 250_000, 100_000, 50_000
_TREE_ROWS, _MOST_TREES = 50, 1000  # rows for every small tree with constants, and most of these
_LINEAR_ENTRIES = 1e7  # rows times features times outputs times linear partitions of a group
_USUAL_STEPS, _FEW_OUTPUTS = 60, 5  # of a Krylov run; a third of them with more outputs


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
    max_rows: int = _LARGE_ROWS  # that its trees are grown on


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


class GroupsOfPartitions(Component):
    """A component whose cells are those of groups of partitions."""

    #: the group of every member of the last union; of all others each is its own
    _group_of_member: Sequence[int] = ()

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        super().__init__(context, components)
        #: of the groups that a sample of the rows had a use for; None without a sample
        self._useful: set[str] | None = None
        #: names of the groups, and the kinds of their cells
        self._names: list[str] = []
        self._kinds: list[CellKind] = []

    def follow(self, sample: Component) -> None:
        """Leave out the groups that a joint fit of a sample of the rows had no use for."""
        assert isinstance(sample, GroupsOfPartitions)
        self._useful = set(sample._names)

    def _set_groups(self, n_splits: int) -> list[Group]:
        """Name the groups for a number of splits; return them."""
        groups = self._make_groups(n_splits)
        groups = [g for g in groups if self._useful is None or g.name in self._useful] or groups
        self._names = [group.name for group in groups]
        self._kinds = [group.kind for group in groups]
        return groups

    def _make_groups(self, n_splits: int) -> list[Group]:
        """Return the groups, unfitted."""
        context, options = self.context, self.context.options
        return partition_groups(
            len(context.rows),
            len(context.plan.names),
            is_linear=options.cells == "linear",
            root=options.root_cell,
            n_outputs=context.n_outputs,
            n_splits=n_splits,
        )

    def _partition_kinds(self, fitted: UnionPartitioner) -> tuple[list[CellKind], NDArray[np.intp]]:
        """Return the kind of cells and the group of every partition."""
        sizes = [len(member.n_cells_) for member in fitted.partitioners_]
        group_of = np.repeat(self._group_of_member or range(len(sizes)), sizes)
        return [self._kinds[g] for g in group_of], group_of

    @classmethod
    def memory(cls, shape: FitShape) -> Stages:
        """Return what growing the trees takes, and the runs along the path."""
        groups, n_boosted = cls._groups_of_shape(shape)
        sizes = [
            (group.kind, *size) for group in groups for size in partition_sizes(group.partitioner)
        ]
        is_short = shape.n_outputs > _FEW_OUTPUTS and not shape.keeps_split  # of fewer rows
        n_steps = _USUAL_STEPS // 3 if is_short else _USUAL_STEPS
        return grouped_memory(shape, sizes, n_boosted, n_steps, _LARGE_ROWS)

    @classmethod
    def _groups_of_shape(cls, shape: FitShape) -> tuple[list[Group], int]:
        """Return the groups of a fit, unfitted, and how many boosted trees there are besides."""
        groups = partition_groups(
            shape.n_rows, shape.n_features, is_linear=shape.n_features > 0, root=shape.root_cell,
            n_outputs=shape.n_outputs, n_splits=max(shape.n_splits, 1),
        )  # fmt: skip
        return groups, JOINT_ROUNDS if shape.is_regression else 0
