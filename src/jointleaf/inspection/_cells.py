"""The parts of a prediction: of the linear models, and of the cells themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from jointleaf._model.contributions import sum_of_entries
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import Router, leaves_as_cells
from jointleaf.inspection._credits import TreeCredits, tree_credits
from jointleaf.partitions import Partitioner
from jointleaf.partitions._base import TreeCells

if TYPE_CHECKING:
    from jointleaf._model.cell_model import CellModel

__all__ = ["CellExplainer", "Parts", "TreeExplainer", "explainer_of"]

_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Parts:
    """Parts of raw predictions with K outputs.

    Attributes
    ----------
    linear, cells : arrays (n, d, K)
    rest : array (n, K)
        Of cells that are not made by splits on columns.
    baseline : array (K,)
    """

    linear: NDArray[np.float64]
    cells: NDArray[np.float64]
    rest: NDArray[np.float64]
    baseline: NDArray[np.float64]


class TreeExplainer:
    """Credits of trees for rows.

    Parameters
    ----------
    trees : FlatTrees
    values : array (L, K)
        Of all leaves, tree after tree.
    weights : array (L,)
        Training weight in every leaf.
    """

    def __init__(self, trees: FlatTrees, values: NDArray, weights: NDArray) -> None:
        self._first = trees.leaf_starts[:-1]
        # Leaves that no training row reached are told apart here, though they are no cells.
        self._router = Router(leaves_as_cells(trees))
        self._cell_of_leaf = trees.cell_of_leaf
        self._shape = trees.n_features, values.shape[1]
        self._credits: TreeCredits = tree_credits(trees, values, weights)
        self.mean = self._credits.mean

    def __call__(self, X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Credits (n, d, K) of rows X (n, d), and their codes (n, P)."""
        leaves = self._router(X) + self._first
        credits = sum_of_entries(leaves, self._credits.table)
        return credits.reshape(len(X), *self._shape), self._cell_of_leaf[leaves]

    @classmethod
    def of_cells(cls, trees: FlatTrees, values: NDArray, weights: NDArray) -> TreeExplainer:
        """Explain trees whose cells have values (C, K) and training weights (C,)."""
        first = np.repeat(np.cumsum(trees.n_cells) - trees.n_cells, trees.n_leaves)
        is_cell = trees.cell_of_leaf >= 0
        cell = np.where(is_cell, first + trees.cell_of_leaf, 0)
        return cls(trees, is_cell[:, None] * values[cell], is_cell * weights[cell])


class _OtherCells:
    """Values of cells that are not made by splits, as their differences from the mean."""

    def __init__(self, member: Partitioner, values: NDArray, weights: NDArray) -> None:
        self._member = member
        self._starts = np.cumsum(member.n_cells_) - member.n_cells_
        self._values = np.concatenate([values, np.zeros_like(values[:1])])
        self.mean = weights @ values

    def __call__(self, X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Values (n, K) of rows X (n, d), and their codes (n, P)."""
        codes = self._member.apply(X)
        cells = np.where(codes < 0, len(self._values) - 1, codes + self._starts)
        return sum_of_entries(cells, self._values) - self.mean, codes


class CellExplainer:
    """Takes the predictions of a fitted model apart.

    Parameters
    ----------
    model : CellModel
        With the means of its training rows.
    """

    def __init__(self, model: CellModel) -> None:
        assert model.means is not None
        self._model = model
        self.linear = model.contributions
        biases = model.biases.astype(np.float64).reshape(model.layout.n_cells, -1)
        means, start = model.means, 0
        self._members: list[TreeExplainer | _OtherCells] = []
        for member, _ in model.partitioner.walk():
            stop = start + int(member.n_cells_.sum())
            values, weights = biases[start:stop], means.cell_weights[start:stop]
            self._members.append(
                TreeExplainer.of_cells(member.trees_, values, weights)
                if isinstance(member, TreeCells)
                else _OtherCells(member, values, weights)
            )
            start = stop
        mean = sum(member.mean for member in self._members) + means.linear.sum(axis=0)
        offset = np.asarray(model.offset, float).reshape(-1)
        self.baseline = model.centre + model.unit * (offset + mean)

    def __call__(self, X: NDArray) -> Parts:
        """Take the predictions of rows X (n, d) apart."""
        n, d = X.shape
        k = len(self.baseline)
        shape = (n, d, k)
        parts = Parts(np.zeros(shape), np.zeros(shape), np.zeros((n, k)), self.baseline)
        for start in range(0, len(X), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            self._fill(X[rows], parts.linear[rows], parts.cells[rows], parts.rest[rows])
        return parts

    def _fill(self, X: NDArray, linear: NDArray, cells: NDArray, rest: NDArray) -> None:
        model, codes = self._model, []
        for member in self._members:
            found, own = member(X)
            codes.append(own)
            into = cells if isinstance(member, TreeExplainer) else rest
            into += model.unit * found
        features = model.features.transform(X)
        assert model.means is not None
        by_feature = self.linear(features, np.concatenate(codes, axis=1)) - model.means.linear
        np.add.at(linear.swapaxes(0, 1), model.features.plan.sources, by_feature.swapaxes(0, 1))
        linear *= model.unit


_explainers: WeakKeyDictionary[CellModel, CellExplainer] = WeakKeyDictionary()


def explainer_of(model: CellModel) -> CellExplainer:
    """Give the explainer of a model, made when it is needed for the first time."""
    if model not in _explainers:
        _explainers[model] = CellExplainer(model)
    return _explainers[model]
