"""Models with siblings merged, and what merging them costs."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Term
from jointleaf._core.penalties.base import Sum
from jointleaf._core.problem import Problem
from jointleaf.partitions import Partitioner

__all__ = ["CellModel", "merge", "merging_costs"]


@dataclass(frozen=True)
class CellModel:
    """Fitted partitions, their penalty and the weights (C, q[, K]) of their cells, or a start."""

    partitioner: Partitioner
    penalty: Term
    theta: NDArray | None

    @property
    def n_cells(self) -> int:
        """Cells of all partitions together."""
        return int(self.partitioner.n_cells_.sum())

    @property
    def mergeable(self) -> NDArray[np.bool_]:
        """Partitions (P,) that have siblings."""
        mask = np.zeros(len(self.partitioner.n_cells_), bool)
        mask[self.partitioner.siblings()[:, 0]] = True
        return mask

    @property
    def least_cells(self) -> int:
        """Cells that are left when everything is merged."""
        return max(1, int(self.partitioner.n_cells_[~self.mergeable].sum()))


def merging_costs(problem: Problem, theta: NDArray, pairs: NDArray[np.intp]) -> NDArray[np.float64]:
    """Cost of merging pairs of cells, as in `jointleaf.prune`, on the rows of a problem.

    Pairs (m, 3) are as in `Partitioner.siblings`: partition, cell, cell.
    """
    layout, design = problem.layout, problem.design
    a, b = _pair_cells(layout, pairs)
    weight = np.append(design.bias_rmatvec(problem.s), 0.0).astype(float)
    padded = np.concatenate([theta, np.zeros_like(theta[:1])]).reshape(layout.n_cells + 1, -1)
    total = np.maximum(weight[a] + weight[b], np.finfo(float).tiny)[:, None]
    mean = (weight[a, None] * padded[a] + weight[b, None] * padded[b]) / total
    change = np.zeros_like(padded)
    change[a], change[b] = mean - padded[a], mean - padded[b]
    costs = np.append(_change_costs(problem, theta, change, np.unique(pairs[:, 0])), 0.0)
    return costs[a] + costs[b]


def _pair_cells(
    layout: CellLayout, pairs: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Both cells of every pair, numbered over all partitions; C for no cell."""
    start = layout.offsets[pairs[:, 0]]
    a, b = (np.where(pairs[:, k] >= 0, start + pairs[:, k], layout.n_cells) for k in (1, 2))
    return a, b


def _change_costs(
    problem: Problem, theta: NDArray, change: NDArray, partitions: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Sum of h_n <x_n, change>^2 / 2 over the rows of every cell (C,), in some partitions."""
    design, n_cells = problem.leaf_design, problem.layout.n_cells
    h = problem.loss_curvature(design.matvec(problem.layout.from_cells(theta)))
    h = h.reshape(design.n_rows, -1)
    cells = design.cells()
    change = change.reshape(n_cells + 1, design.X.shape[1], -1)
    costs = np.zeros(n_cells + 1)
    for p in partitions:
        own = cells[:, p]
        moves = np.einsum("nq,nqk->nk", design.X, change[own])
        costs += np.bincount(own, np.sum(h * moves**2, axis=1), minlength=n_cells + 1)
    return 0.5 * costs[:-1]


def merge(model: CellModel, problem: Problem, chosen: NDArray[np.bool_]) -> CellModel:
    """Merge chosen pairs, and leave out trees of which one cell is left."""
    pairs, layout = model.partitioner.siblings()[chosen], problem.layout
    a, b = _pair_cells(layout, pairs)
    both = (a < layout.n_cells) & (b < layout.n_cells)
    into = np.arange(layout.n_cells)
    into[np.maximum(a, b)[both]] = np.minimum(a, b)[both]
    assert model.theta is not None
    theta = _mean_models(model.theta, into, problem.design.bias_rmatvec(problem.s))
    partition = layout.partition_of_cell[into == np.arange(layout.n_cells)]
    partitioner = model.partitioner.with_merged(chosen)
    single = model.mergeable & (partitioner.n_cells_ == 1)
    single &= ~replace(model, partitioner=partitioner).mergeable
    if single.all():
        single[0] = False
    if not single.any():
        return CellModel(partitioner, model.penalty, theta)
    kept, out = ~single, single[partition]
    # The model of a single cell goes on in all cells of another partition: a good start.
    last = partition == np.flatnonzero(kept)[-1]
    theta[last] += theta[out].sum(axis=0)
    return CellModel(
        partitioner.with_partitions(kept), _with_partitions(model.penalty, kept), theta[~out]
    )


def _mean_models(theta: NDArray, into: NDArray[np.intp], weight: NDArray) -> NDArray:
    """Weighted mean of the models of cells with the same number in `into` (C,)."""
    weight = np.maximum(weight, np.finfo(weight.dtype).tiny).astype(theta.dtype)
    shaped = weight.reshape(-1, *(1,) * (theta.ndim - 1))
    sums, total = np.zeros_like(theta), np.zeros_like(shaped)
    np.add.at(sums, into, shaped * theta)
    np.add.at(total, into, shaped)
    stays = into == np.arange(len(into))
    return sums[stays] / total[stays]


def _with_partitions(penalty: Term, kept: NDArray[np.bool_]) -> Term:
    """The same penalty for some of the partitions: their weights stay as they are."""
    terms = []
    for term in penalty.terms:
        weights = getattr(term, "partition_weights", None)
        if weights is not None:
            term = copy.copy(term)
            term.partition_weights = weights[kept]  # type: ignore[attr-defined]
        terms.append(term)
    return terms[0] if len(terms) == 1 else Sum(*terms)
