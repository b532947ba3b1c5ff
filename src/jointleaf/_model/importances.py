"""What a fitted model says about its features."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf.partitions import Partitioner

__all__ = ["by_column", "column_shares", "importances", "warn_of_no_features"]


def by_column(values: NDArray, sources: NDArray[np.intp], n_columns: int) -> NDArray[np.float64]:
    """Root of the sum of squares of the linear features' values (m,), column by column (d,)."""
    return np.sqrt(np.bincount(sources, np.square(values), minlength=n_columns))


def importances(
    design: LeafDesign,
    theta: NDArray,
    partitioner: Partitioner,
    s: NDArray,
    sources: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Importances (d,) of columns by the rows of a design: see `column_shares`.

    The linear contribution of feature j to row n is x_nj times the sum of its slopes over the
    row's cells, of all weights theta (C, q[, K]).
    """
    m = design.layout.n_features
    if not design.layout.n_slopes:
        return column_shares(np.zeros((len(s), m, 1)), partitioner, s, sources)
    slopes = design.row_weights(theta)[:, :m].reshape(len(s), m, -1)
    return column_shares(slopes * design.X[:, :m, None], partitioner, s, sources)


def column_shares(
    contributions: NDArray, partitioner: Partitioner, s: NDArray, sources: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Half the share in split gains, half the share in the spread of linear contributions.

    Parameters
    ----------
    contributions : array (n, m, K)
        What the linear features add to some rows; the spread of a feature is their weighted root
        mean square over rows, summed over outputs.
    partitioner : Partitioner
    s : array (n,)
    sources : integers (m,)
        Columns that the linear features come from.
    """
    gains = np.asarray(partitioner.split_gains_, float)
    counts = partitioner.splits_on_features and gains.sum() > 0
    parts = [gains / gains.sum()] if counts else []
    squares = np.average(np.square(contributions).sum(axis=2), axis=0, weights=s)
    spread = by_column(np.sqrt(squares), sources, len(gains))
    if spread.sum() > 0:
        parts.append(spread / spread.sum())
    return np.mean(parts, axis=0) if parts else np.full(len(gains), 1.0 / len(gains))


def warn_of_no_features(penalty: object) -> None:
    """Say that cross-validation left the cells alone, without slopes."""
    warnings.warn(
        f"cross-validation of {penalty!r} selected no feature, the cells alone do best: try "
        "one_se=False, or cells that know less of y (partitioner='voronoi')",
        UserWarning,
        stacklevel=4,
    )
