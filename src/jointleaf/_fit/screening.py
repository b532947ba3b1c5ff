"""The columns of a wide table that tell most of the target one by one.

With few rows the best of thousands of splits is most often one that fits noise. The default
partitions of wide tables are therefore grown on the columns whose best single split lowers the
squared error most, in the very rows on which they are grown. Slopes have all columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.encoding import Encoding, TrainingRows, centred_targets
from jointleaf.partitions._growers.base import least_leaf_rows

_BLOCK = 2**18  # numbers that are sorted at a time


def best_columns(rows: TrainingRows, n_columns: int) -> NDArray[np.intp]:
    """Return the columns with the largest gains, in rising order."""
    gains = split_gains(rows)
    return np.sort(np.argsort(-gains, kind="stable")[:n_columns])


def split_gains(rows: TrainingRows) -> NDArray[np.float64]:
    """Return by how much the best split of every column (d,) lowers the squared error.

    That of standardised numbers, or of indicators of classes; categories are in the order of their
    mean targets. Columns without a split that leaves enough rows on both sides have -1.
    """
    s = rows.weights
    targets = centred_targets(rows, s)
    X = Encoding(rows, categories=True, missing=True).numbers(rows.X)
    n, d = X.shape
    least = least_leaf_rows(n)
    gains, step = np.full(d, -1.0), max(1, _BLOCK // n)
    if n < 2 * least:
        return gains
    ends = slice(least - 1, n - least)  # splits behind these rows
    for start in range(0, d, step):
        block = X[:, start : start + step]
        order = np.argsort(block, axis=0, kind="stable")
        values = np.take_along_axis(block, order, axis=0)
        splits = values[1:][ends] > values[:-1][ends]
        left = np.cumsum(s[order], axis=0)[ends]
        sums = [np.cumsum((s * target)[order], axis=0)[ends] for target in targets.T]
        lower = np.sum(np.square(sums), axis=0) * (1 / left + 1 / (s.sum() - left))
        gains[start : start + step] = np.where(splits, lower, -1.0).max(axis=0)
    return gains
