"""What fits of wide tables and of many classes do without, and the recipe that is left of theirs.

The time to grow a tree and the memory of a linear cell grow with the number of columns d; a round
of boosting has a tree for every one of K classes, whose cells hold K numbers. Up to 200 columns and
50 classes nothing is spared. Beyond, a fit stays within ten times the time of LightGBM's defaults,
or nearly so, with fewer trees and splits:

- the exact joint fit has 200 / d of its partitions, a tenth at least, and three splits;
- a blend has one split, and of wide tables no boosted trees with random thresholds or linear
  leaves, unless there are so many classes that no others take part;
- boosted trees of many classes have 15 leaves.
"""

from __future__ import annotations

from jointleaf.partitions import Partitioner

__all__ = ["has_many_classes", "is_heavy", "is_wide", "partition_share", "scaled_partitions"]

_ORDINARY_COLUMNS, _ORDINARY_OUTPUTS = 200, 50
_LEAST_PARTITIONS = 0.1  # of those of ordinary tables


def is_wide(n_columns: int) -> bool:
    """Whether a table has so many columns that fits of it are cut short."""
    return n_columns > _ORDINARY_COLUMNS


def has_many_classes(n_outputs: int) -> bool:
    """Whether there are so many classes that fits are cut short."""
    return n_outputs > _ORDINARY_OUTPUTS


def is_heavy(n_columns: int, n_outputs: int) -> bool:
    """Whether fits are cut short at all."""
    return is_wide(n_columns) or has_many_classes(n_outputs)


def partition_share(n_columns: int) -> float:
    """Return which part of its partitions the exact joint fit has."""
    return max(_LEAST_PARTITIONS, min(1.0, _ORDINARY_COLUMNS / max(n_columns, 1)))


def scaled_partitions(partitioner: Partitioner, share: float) -> Partitioner:
    """Return unfitted partitions with a part of their number, set in place; at least two each."""
    for member in partitioner.nested() if share < 1 else ():
        if "n_partitions" in member.get_params(deep=False):
            member.set_params(n_partitions=max(2, round(share * member.n_partitions)))
    return partitioner
