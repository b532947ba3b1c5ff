"""How far one column of a row can be moved until its linear model changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import ZERO, Router, leaves_as_cells
from jointleaf.inspection._credits import parents
from jointleaf.partitions import RootCell, VoronoiPartitioner
from jointleaf.partitions._base import TreeCells

if TYPE_CHECKING:
    from jointleaf._model.cell_model import CellModel

__all__ = ["reach"]


class _Reach:
    """Intervals of d columns around the values of a row, which become narrower."""

    def __init__(self, x: NDArray) -> None:
        self.x = x
        self.low = np.where(np.isnan(x), np.nan, -np.inf)
        self.high = -self.low

    def cut(self, column: int, place: float) -> None:
        """Something changes where the column goes from at most `place` to more."""
        if self.x[column] <= place:
            self.high[column] = min(self.high[column], place)
        elif self.x[column] > place:  # neither for missing values
            self.low[column] = max(self.low[column], place)

    def limit(self, column: int, place: float, is_above: bool) -> None:
        """The end of a range, at or above which the value lies, or else below."""
        if is_above:
            self.low[column] = max(self.low[column], place)
        else:
            self.high[column] = min(self.high[column], place)

    def forget(self) -> None:
        """The limits are not known."""
        self.low[:], self.high[:] = np.nan, np.nan


def reach(
    fitted: CellModel, rows: NDArray, u: NDArray, codes: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper ends (m,) for every linear feature of one row.

    Parameters
    ----------
    fitted : CellModel
    rows : array (1, d)
    u : array (m,)
        Linear features of the row in the units of the data.
    codes : array (1, P)
    """
    found = _Reach(rows[0].astype(np.float64))
    for member, _ in fitted.partitioner.walk():
        if isinstance(member, TreeCells):
            _cut_at_splits(found, member.trees_, rows)
        elif isinstance(member, VoronoiPartitioner):
            _cut_at_borders(found, member, rows)
        elif not isinstance(member, RootCell):
            found.forget()
    _cut_at_ranges(found, fitted, rows, codes)
    low, high = np.full(len(u), np.nan), np.full(len(u), np.nan)
    numbers = fitted.features.plan.numbers
    low[: len(numbers)], high[: len(numbers)] = found.low[numbers], found.high[numbers]
    return low, high


def _cut_at_splits(found: _Reach, trees: FlatTrees, rows: NDArray) -> None:
    """At the thresholds that the row meets on its way through the trees."""
    leaves = Router(leaves_as_cells(trees))(rows)[0] + trees.leaf_starts[:-1]
    above = parents(trees)
    node = above[len(trees.feature) + leaves]
    met = []
    while (node >= 0).any():
        node = node[node >= 0]
        met.append(node)
        node = above[node]
    for split in np.unique(np.concatenate(met)) if met else ():
        column = int(trees.feature[split])
        if column >= trees.n_features:
            for part in trees.lookups[column - trees.n_features].parts:
                if part.hashes is None:
                    found.cut(part.column, part.threshold)
        elif trees.table[split] < 0:
            found.cut(column, float(trees.threshold[split]))
            if trees.zero_is_missing:
                found.cut(column, -ZERO)
                found.cut(column, ZERO)


def _cut_at_borders(found: _Reach, member: VoronoiPartitioner, rows: NDArray) -> None:
    """Where another centre becomes the nearest one.

    The nearest centre c has the largest <z, c> - |c|^2 / 2; when feature i moves by t, the lead
    over another centre c' changes by t (c_i - c'_i).
    """
    features = member.features_
    z = features.transform(rows.astype(np.float64))[0]
    centres = member.centres_  # (P, cells, m)
    scores = centres @ z - np.square(centres).sum(axis=2) / 2
    nearest = member.apply(rows)[0]
    p = np.arange(len(centres))
    lead = np.maximum(scores[p, nearest][:, None] - scores, 0.0)
    for i, column in enumerate(features.plan.numbers):
        gains = centres[p, nearest, i][:, None] - centres[:, :, i]
        scale = features.scaler.scale[i]
        for sign, ends in ((1.0, found.low), (-1.0, found.high)):
            losing = sign * gains > 0
            if losing.any() and not np.isnan(found.x[column]):
                step = scale * (lead[losing] / np.abs(gains[losing])).min()
                end = found.x[column] - sign * step
                ends[column] = max(ends[column], end) if sign > 0 else min(ends[column], end)


def _cut_at_ranges(found: _Reach, fitted: CellModel, rows: NDArray, codes: NDArray) -> None:
    """Where linear models stop seeing a feature move."""
    layout, ranges, scaler = fitted.layout, fitted.ranges, fitted.features.scaler
    if layout.n_slopes == 0:
        return
    z = fitted.features.transform(rows)[0]
    cells = (codes[0] + layout.offsets[:-1])[codes[0] >= 0]
    rows_of_slopes = layout.slope_rows[cells]
    for i, column in enumerate(fitted.features.plan.numbers):
        x = found.x[column]
        if np.isnan(x):
            continue
        if scaler.clip and scaler.low[i] < scaler.high[i]:
            found.limit(column, scaler.low[i], bool(x >= scaler.low[i]))
            found.limit(column, scaler.high[i], bool(x > scaler.high[i]))
            if not scaler.low[i] <= x <= scaler.high[i]:
                continue  # nothing is seen to move there
        if ranges is not None:
            low, high = ranges.low[rows_of_slopes, i], ranges.high[rows_of_slopes, i]
            varies = low < high  # a cell in which the feature is constant has no slope to change
            for end in np.unique(low[varies]):
                place = scaler.mean[i] + scaler.scale[i] * end
                found.limit(column, float(place), bool(z[i] >= end))
            for end in np.unique(high[varies]):
                place = scaler.mean[i] + scaler.scale[i] * end
                found.limit(column, float(place), bool(z[i] > end))
