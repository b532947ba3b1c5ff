"""Features of a linear model that gives every value of a column with few values its own constant.

Next to the m standardised linear features there is one indicator for each of the C cells of a
`LevelsPartitioner`, divided by its standard deviation sqrt(p (1 - p)), p the share of rows there:
slopes and constants are penalised alike. The model is a sum over cells again: slopes in the
root cell, constants in the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows
from jointleaf.partitions import LevelsPartitioner

__all__ = ["Levels", "find_levels"]


@dataclass(frozen=True)
class Levels:
    """The cells of all values, and the factors (C,) of their indicators."""

    partitioner: LevelsPartitioner
    factors: NDArray[np.float64]

    def design(self, features: NDArray, X: NDArray) -> NDArray[np.float64]:
        """Linear features (n, m) and the indicators (n, C) of rows X (n, d), side by side."""
        return np.concatenate([features, _indicators(self.partitioner, X) * self.factors], axis=1)


def find_levels(rows: Rows, columns: Columns) -> Levels | None:
    """Find the columns of training rows that have few values; None where there are none."""
    partitioner = LevelsPartitioner().fit(rows.X, None, rows.s, columns=columns)
    if partitioner.n_cells_.max() == 1:
        return None
    share = rows.s @ _indicators(partitioner, rows.X) / rows.s.sum()
    return Levels(partitioner, 1 / np.sqrt(share * (1 - share)))


def _indicators(partitioner: LevelsPartitioner, X: NDArray) -> NDArray[np.float64]:
    n_cells, codes = partitioner.n_cells_, partitioner.apply(X)
    parts = [codes[:, [p]] == np.arange(n) for p, n in enumerate(n_cells)]
    return np.concatenate(parts, axis=1).astype(np.float64)
