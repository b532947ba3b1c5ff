"""What fits of wide tables and of many classes do without, and the recipe that is left of theirs.

The time to grow a tree and the memory of a linear cell grow with the number of columns d; a round
of boosting has a tree for every one of K classes, whose cells hold K numbers. Up to 200 columns and
50 classes nothing is spared. Beyond, a fit stays within ten times the time of LightGBM's defaults,
or nearly so, with fewer trees and splits:

- the exact joint fit has three splits. Its partitions are grown on the 100 columns that tell most
  one by one; of those that are not boosted there are 500 / (d K), a tenth at least;
- numbers are predicted by the leaf values of these boosted trees too, as classes always are;
- a blend has one split, and of wide tables no boosted trees with random thresholds or linear
  leaves, unless there are so many classes that no others take part;
- boosted trees of many classes have 15 leaves;
- large trees of a wide table hold histograms of 128 MB at a time.
"""

from __future__ import annotations

from jointleaf.partitions import LargeTreesPartitioner, LightGBMPartitioner, Partitioner

__all__ = [
    "SCREENED_COLUMNS",
    "WIDE_HISTOGRAMS",
    "has_many_classes",
    "is_heavy",
    "is_wide",
    "limit_histograms",
    "partition_share",
    "wide_partitions",
]

_ORDINARY_COLUMNS, _ORDINARY_OUTPUTS = 200, 50
# Of partitions: their cells may have a slope for each column and class, all up to 500 of these.
_ALL_PARTITIONS, _LEAST_PARTITIONS = 500, 0.1
#: on which partitions of wide tables are grown: of thousands the best split is most often noise
SCREENED_COLUMNS = 100
#: MB of histograms that LightGBM holds for a tree of a wide table: one for every leaf is 360 MB
#: for 10,000 rows of 500 columns, and some are sooner counted again than kept
WIDE_HISTOGRAMS = 128


def is_wide(n_columns: int) -> bool:
    """Whether a table has so many columns that fits of it are cut short."""
    return n_columns > _ORDINARY_COLUMNS


def has_many_classes(n_outputs: int) -> bool:
    """Whether there are so many classes that fits are cut short."""
    return n_outputs > _ORDINARY_OUTPUTS


def is_heavy(n_columns: int, n_outputs: int) -> bool:
    """Whether fits are cut short at all."""
    return is_wide(n_columns) or has_many_classes(n_outputs)


def partition_share(n_columns: int, n_outputs: int = 1) -> float:
    """Return which part of its partitions the exact joint fit has, besides boosted ones."""
    if not is_wide(n_columns):
        return 1.0
    return max(_LEAST_PARTITIONS, min(1.0, _ALL_PARTITIONS / (n_columns * n_outputs)))


def wide_partitions(partitioner: Partitioner, n_columns: int, n_outputs: int = 1) -> Partitioner:
    """Return the unfitted partitions of an exact joint fit, made fewer in place for a wide table.

    Boosted trees on the target, whose leaf values are a model of their own, stay as many; of
    others there are at least two of each kind.
    """
    boosted: Partitioner | None = None
    for member in partitioner.nested() if is_wide(n_columns) else ():
        if boosted is None and isinstance(member, LightGBMPartitioner):
            boosted = member
        elif "n_partitions" in member.get_params(deep=False):
            share = partition_share(n_columns, n_outputs)
            member.set_params(n_partitions=max(2, round(share * member.n_partitions)))
    return partitioner


def limit_histograms(partitioner: Partitioner, n_columns: int) -> None:
    """Limit in place what unfitted large trees of a wide table hold while they grow."""
    for member in partitioner.nested() if is_wide(n_columns) else ():
        if isinstance(member, LargeTreesPartitioner):
            member.set_params(options={"histogram_pool_size": WIDE_HISTOGRAMS})
