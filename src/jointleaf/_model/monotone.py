"""Monotone models: the inequalities between weights that make them so, and their certificate.

A sum of monotone functions is monotone, so that it is enough that every partition is. One that
splits on a constrained column has constants in its cells, in the order of `_trees.order`. In any
other a row stays in its cell when the column changes: there the slope of the column has the sign
that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.features import FeaturePlan
from jointleaf._model.cell_model import CellModel
from jointleaf._trees.order import constrained_trees, ordered_cells
from jointleaf.partitions import Partitioner
from jointleaf.partitions._base import TreeCells


def order_of_cells(
    partitioner: Partitioner, signs: NDArray[np.integer]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the pairs of cells (m, 2) whose biases must rise, and which partitions have some (P,).

    Of a fitted partitioner, for the signs (d,) of columns. Cells are numbered over all partitions;
    their number C stands for no cell, whose bias is zero. It raises an error where cells that are
    no boxes depend on a constrained column.
    """
    n_cells = partitioner.n_cells_
    starts, total = np.cumsum(n_cells) - n_cells, int(n_cells.sum())
    pairs, is_split = [np.zeros((0, 2), np.intp)], np.zeros(len(n_cells), bool)
    for member, first in partitioner.walk():
        if isinstance(member, TreeCells):
            local, n_local = ordered_cells(member.trees_, signs), int(member.n_cells_.sum())
            pairs.append(np.where(local == n_local, total, local + starts[first]))
            last = first + len(member.n_cells_)
            is_split[first:last] = constrained_trees(member.trees_, signs)
        elif np.any(signs[member.split_features_]):
            raise ValueError(
                f"monotonic_cst is not possible with a {type(member).__name__}, whose cells mix "
                "columns: use partitions of trees, such as 'lightgbm'"
            )
    return np.concatenate(pairs), is_split


def slope_signs(plan: FeaturePlan, signs: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return the signs (m,) of the slopes of linear features; zero for indicators."""
    of_features = np.zeros(len(plan.names), np.intp)
    of_features[: len(plan.numbers)] = signs[plan.numbers]
    return of_features


@dataclass(frozen=True)
class MonotoneCertificate:
    """The inequalities that make a model monotone, as they were checked on its weights.

    Where all of them hold, the raw prediction does not fall (for a sign of 1) or rise (for -1) when
    a constrained column rises and all other columns stay as they are, for all rows whatsoever:
    between values of the column, not between a value and a missing one. In floating point the sum
    over the cells is monotone up to its rounding. Each of them is sufficient, none is necessary:
    cells of several partitions could balance each other.

    Attributes
    ----------
    signs : dict of str to int
        1 or -1 of every constrained column, by name.
    n_pairs : int
        Pairs of neighbouring cells whose constants were compared.
    n_slopes : int
        Slopes whose signs were looked at.
    n_violated : int
        Inequalities that do not hold.
    """

    signs: dict[str, int]
    n_pairs: int
    n_slopes: int
    n_violated: int

    @property
    def holds(self) -> bool:
        """Whether all inequalities hold."""
        return self.n_violated == 0

    def __str__(self) -> str:
        words = {1: "rises", -1: "falls"}
        columns = ", ".join(f"{words[sign]} with {name}" for name, sign in self.signs.items())
        checked = f"{self.n_pairs:,} pairs of cells and {self.n_slopes:,} slopes"
        if self.holds:
            return f"{columns}: holds for all rows, by {checked}"
        return f"{columns}: not certain, {self.n_violated:,} of {checked} are out of order"


def certify(
    model: CellModel, signs: NDArray[np.integer], names: dict[str, int]
) -> MonotoneCertificate:
    """Check the weights of a model with one output, without tolerance.

    `signs` (d,) are those of all columns that the model sees, `names` those to report.
    """
    pairs, is_split = order_of_cells(model.partitioner, signs)
    biases = np.append(model.biases, 0.0)
    n_violated = np.count_nonzero(biases[pairs[:, 0]] > biases[pairs[:, 1]])
    of_features = slope_signs(model.features.plan, signs)
    in_split = is_split[model.layout.partition_of_cell[model.layout.linear_cells]]
    slopes = model.slopes[~in_split][:, of_features != 0] * of_features[of_features != 0]
    n_violated += np.count_nonzero(slopes < 0) + np.count_nonzero(model.slopes[in_split])
    return MonotoneCertificate(names, len(pairs), slopes.size, int(n_violated))
