"""Pruning: cells that one split divides are merged, all cells are fitted again, and so on.

A walk goes from a model with all its cells to small ones; several walks, one for each split of the
rows, go side by side and are scored by the mean of their validation losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import shaped
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.penalties.base import mapped
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers.base import choose_solver
from jointleaf._data.rows import Rows
from jointleaf._fit.component import NARROW, smooth
from jointleaf._model.cell_model import Frame
from jointleaf.partitions import Partitioner

_CLEAR_RISE = 1.1  # loss relative to the smallest at which a path may end
_PATIENCE = 3  # steps in a row with so large a loss that end it
_TRIAL = 0.8  # strengths are tried anew when this fraction of the cells is left
_FACTOR = 10**0.5  # between one strength and the next
_MOST_TRIALS = 4  # at a time: a loss may fall for ever as the strength goes to zero


# -- merging ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """Partitions on the way to a smaller model, their penalty, and where the next fit starts."""

    partitioner: Partitioner  # fitted
    penalty: Term
    kinds: tuple[CellKind, ...]  # of the cells of every partition
    weights: NDArray | None  # (C, q[, K]), as of `CellLayout.by_cell`; None: a cold start

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


def merging_costs(
    problem: Problem, weights: NDArray, pairs: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the costs of merging pairs of cells, as in `jointleaf.prune`, on a problem's rows.

    Pairs (m, 3) are as in `Partitioner.siblings`: partition, cell, cell.
    """
    layout, design = problem.layout, problem.design
    a, b = _pair_cells(layout, pairs)
    s = np.append(design.bias_rmatvec(problem.s), 0.0).astype(float)
    padded = np.concatenate([weights, np.zeros_like(weights[:1])]).reshape(layout.n_cells + 1, -1)
    total = np.maximum(s[a] + s[b], np.finfo(float).tiny)[:, None]
    mean = (s[a, None] * padded[a] + s[b, None] * padded[b]) / total
    change = np.zeros_like(padded)
    change[a], change[b] = mean - padded[a], mean - padded[b]
    costs = np.append(_change_costs(problem, weights, change, np.unique(pairs[:, 0])), 0.0)
    return costs[a] + costs[b]


def _pair_cells(
    layout: CellLayout, pairs: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return both cells of every pair, numbered over all partitions; C for no cell."""
    start = layout.offsets[pairs[:, 0]]
    a, b = (np.where(pairs[:, k] >= 0, start + pairs[:, k], layout.n_cells) for k in (1, 2))
    return a, b


def _change_costs(
    problem: Problem, weights: NDArray, change: NDArray, partitions: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the sums of h_n <x_n, change>^2 / 2 over the rows of some partitions' cells, (C,)."""
    design, n_cells = problem.leaf_design, problem.layout.n_cells
    h = problem.loss_curvature(design.matvec(problem.layout.from_cells(weights)))
    h = h.reshape(design.n_rows, -1)
    cells = design.cells()
    change = change.reshape(n_cells + 1, design.X.shape[1], -1)
    costs = np.zeros(n_cells + 1)
    for p in partitions:
        cell = cells[:, p]
        moves = np.einsum("nq,nqk->nk", design.X, change[cell])
        costs += np.bincount(cell, np.sum(h * moves**2, axis=1), minlength=n_cells + 1)
    return 0.5 * costs[:-1]


def merge(model: Candidate, problem: Problem, chosen: NDArray[np.bool_]) -> Candidate:
    """Merge chosen pairs, and leave out trees of which one cell is left."""
    pairs, layout = model.partitioner.siblings()[chosen], problem.layout
    a, b = _pair_cells(layout, pairs)
    both = (a < layout.n_cells) & (b < layout.n_cells)
    into = np.arange(layout.n_cells)
    into[np.maximum(a, b)[both]] = np.minimum(a, b)[both]
    assert model.weights is not None
    weights = _mean_models(model.weights, into, problem.design.bias_rmatvec(problem.s))
    partition = layout.partition_of_cell[into == np.arange(layout.n_cells)]
    partitioner = model.partitioner.with_merged(chosen)
    single = model.mergeable & (partitioner.n_cells_ == 1)
    single &= ~replace(model, partitioner=partitioner).mergeable
    if single.all():
        single[0] = False
    if not single.any():
        return replace(model, partitioner=partitioner, weights=weights)
    remaining, out = ~single, single[partition]
    # The model of a single cell goes on in all cells of another partition: a good start.
    last = partition == np.flatnonzero(remaining)[-1]
    weights[last] += weights[out].sum(axis=0)
    return Candidate(
        partitioner.with_partitions(remaining),
        _with_partitions(model.penalty, remaining),
        tuple(kind for kind, stays in zip(model.kinds, remaining, strict=True) if stays),
        weights[~out],
    )


def _mean_models(weights: NDArray, into: NDArray[np.intp], s: NDArray) -> NDArray:
    """Return the weighted means of the models of cells with the same number in `into` (C,)."""
    s = np.maximum(s, np.finfo(s.dtype).tiny).astype(weights.dtype)
    s = shaped(s, weights)
    sums, total = np.zeros_like(weights), np.zeros_like(s)
    np.add.at(sums, into, s * weights)
    np.add.at(total, into, s)
    stays = into == np.arange(len(into))
    return sums[stays] / total[stays]


def _with_partitions(penalty: Term, remaining: NDArray[np.bool_]) -> Term:
    """Return the penalty for some of the partitions: their weights stay as they are."""

    def change(term: Any) -> Term:
        weights = getattr(term, "partition_weights", None)
        return term if weights is None else term.replaced(partition_weights=weights[remaining])

    return mapped(penalty, change)


# -- walks to smaller models -----------------------------------------------------------------------


class Path(NamedTuple):
    """Numbers of cells and losses, step by step, and the step that was taken: see `Pruning`."""

    n_cells: NDArray[np.intp]
    train_loss: NDArray[np.float64]
    valid_loss: NDArray[np.float64] | None
    chosen: int
    strength_factor: NDArray[np.float64]

    def factor_at(self, n_cells: int) -> float:
        """Return the factor of the last step with at least so many cells."""
        return float(self.strength_factor[np.flatnonzero(self.n_cells >= n_cells)[-1]])


@dataclass(frozen=True)
class Walk:
    """How models are fitted to rows and merged."""

    start: Candidate
    frame: Frame
    rows: Rows
    step_fraction: float  # of the pairs that a step merges
    solver: str
    limits: tuple[float, int]  # tolerance of the solves, most iterations
    scale: float = 1.0  # by which losses are multiplied

    def fit(self, model: Candidate, factor: float = 1.0) -> Fitted:
        """Fit all cells jointly, with the strengths of the penalty multiplied by a factor."""
        frame, rows = self.frame, self.rows
        penalty = model.penalty if factor == 1.0 else factor * model.penalty
        design = frame.design(rows.X, model.partitioner, model.kinds)
        # Pairs are compared by second derivatives, which a loss with kinks has none of.
        frame = replace(frame, loss=smooth(frame.loss, NARROW))
        problem = frame.problem(design, rows, penalty)
        tol, max_iter = self.limits
        solver = choose_solver(problem, self.solver)
        init = None if model.weights is None else problem.layout.from_cells(model.weights)
        solution = solver.solve(problem, init, tol=tol, max_iter=max_iter)
        weights = problem.layout.by_cell(solution.theta)
        return Fitted(replace(model, penalty=penalty, weights=weights), problem, weights)

    def loss(self, fitted: Fitted, rows: Rows | None = None) -> float:
        """Return the mean loss of the rows that were fitted, or of others."""
        design = fitted.problem.design
        if rows is not None:
            design = self.frame.design(rows.X, fitted.model.partitioner, fitted.model.kinds)
        rows = self.rows if rows is None else rows
        theta = design.layout.from_cells(fitted.weights)
        loss, raw = self.frame.loss, design.matvec(theta) + self.frame.offset
        raw = raw + rows.offset if rows.offset.any() else raw
        return self.scale * loss.value(loss.encode(self.frame.target(rows.y)), raw, rows.s)

    def is_done(self, fitted: Fitted, size: int) -> bool:
        """Whether at most `size` cells are left, or nothing to merge."""
        model = fitted.model
        return model.n_cells <= size or not len(model.partitioner.siblings())

    def next_fraction(self, fitted: Fitted) -> float:
        """Return the fraction of the start's cells that `shrink` is going to leave."""
        return (fitted.model.n_cells - self._count(fitted.model)) / self.start.n_cells

    def _count(self, model: Candidate) -> int:
        return max(1, int(self.step_fraction * len(model.partitioner.siblings())))

    def shrink(self, fitted: Fitted, size: int) -> Candidate:
        """Merge the pairs of a step, which cost least, but not more than leaves `size` cells."""
        model = fitted.model
        if self.is_done(fitted, size):
            return model
        pairs = model.partitioner.siblings()
        is_free = (pairs[:, 1:] < 0).any(axis=1)  # takes no cell away, and comes first
        cost = np.where(is_free, -1.0, merging_costs(fitted.problem, fitted.weights, pairs))
        spare = model.n_cells - size + int(is_free.sum())
        chosen = np.zeros(len(pairs), bool)
        count = min(self._count(model), spare)
        chosen[np.argsort(cost, kind="stable")[:count]] = True
        return merge(model, fitted.problem, chosen)


class Fitted(NamedTuple):
    """A candidate with its fitted weights (C, q[, K]), and the problem that they solve."""

    model: Candidate
    problem: Problem
    weights: NDArray


def prune_to_size(
    walk: Walk, size: int, verbose: int = 0, like: Path | None = None
) -> tuple[Path, Candidate]:
    """Prune to at most `size` cells, with strengths `like` those of another path or of the fit."""
    model = walk.start
    gone = Progress(model.n_cells - size, "pruning", enabled=bool(verbose))
    counts, losses, factors = [], [], []
    previous = 1.0
    while True:
        factor = 1.0 if like is None else like.factor_at(model.n_cells)
        fitted = walk.fit(model, factor / previous)
        previous = factor
        counts.append(model.n_cells)
        losses.append(walk.loss(fitted))
        factors.append(factor)
        gone.step_to(walk.start.n_cells - model.n_cells)
        if walk.is_done(fitted, size):
            break
        model = walk.shrink(fitted, size)
    gone.finish()
    path = Path(np.array(counts), np.array(losses), None, len(counts) - 1, np.array(factors))
    return path, fitted.model


class Descent:
    """Walks side by side, scored by the mean of their losses on the validation rows of each.

    The loss of the chosen step may be larger than the smallest one by a fraction `tol` of it.
    """

    def __init__(self, walks: Sequence[Walk], valids: Sequence[Rows], tol: float) -> None:
        self._walks, self._valids, self._tol = walks, valids, tol
        self._weights = np.array([valid.s.sum() for valid in valids])
        self._counts: list[list[int]] = []  # by step and walk, like the losses
        self._train: list[list[float]] = []
        self._valid: list[list[float]] = []
        self._means: list[float] = []
        self._factors: list[float] = []
        self._factor, self._tried = 1.0, 1.0

    def run(self, verbose: int = 0) -> tuple[Path, Candidate]:
        """Prune until the mean loss has risen clearly; return path and model of the first walk."""
        models = [walk.start for walk in self._walks]
        chosen = models[0]
        sizes = [model.least_cells for model in models]
        n_cells = models[0].n_cells
        gone = Progress(n_cells - sizes[0], "choosing a size", enabled=bool(verbose))
        while True:
            fits, losses = self._fit(models)
            self._note(fits, losses)
            gone.step_to(n_cells - models[0].n_cells, f"loss {self._means[-1]:.4g}")
            # If a later loss is smaller still, then that step is a smaller model within `tol`.
            if self._means[-1] <= (1.0 + self._tol) * min(self._means):
                chosen = fits[0].model
            steps = list(zip(self._walks, fits, sizes, strict=True))
            if self._has_risen() or all(walk.is_done(fit, size) for walk, fit, size in steps):
                break
            # The slowest sets the pace: walks are compared at about the same fraction of cells.
            pace = max(
                walk.next_fraction(fit) for walk, fit, s in steps if not walk.is_done(fit, s)
            )
            models = [
                walk.shrink(fit, max(size, int(pace * walk.start.n_cells)))
                for walk, fit, size in steps
            ]
        gone.finish()
        counts, train, valid = (
            np.array(values)[:, 0] for values in (self._counts, self._train, self._valid)
        )
        return self._path(counts, train, valid, np.array(self._factors)), chosen

    def mean_path(self, n_cells: int) -> Path:
        """Return mean losses at common fractions of the cells, scaled to a model with `n_cells`."""
        counts = np.array(self._counts, dtype=float)
        fractions = counts / counts[0]
        grid = np.geomspace(n_cells, max(1.0, n_cells * fractions[-1].max()), len(fractions))
        sizes = np.unique(grid.round())[::-1]
        at = -np.log(sizes / n_cells)

        def mean(losses: list[list[float]]) -> NDArray[np.float64]:
            values = [
                np.interp(at, -np.log(fraction), loss)
                for fraction, loss in zip(fractions.T, np.array(losses).T, strict=True)
            ]
            return np.average(values, axis=0, weights=self._weights)

        step = np.searchsorted(-np.log(fractions.mean(axis=1)), at + 1e-9, side="right") - 1
        factors = np.array(self._factors)[step]
        return self._path(sizes, mean(self._train), mean(self._valid), factors)

    def _path(
        self, counts: NDArray, train: NDArray, valid: NDArray, factors: NDArray[np.float64]
    ) -> Path:
        chosen = int(np.flatnonzero(valid <= (1.0 + self._tol) * valid.min())[-1])
        return Path(counts.astype(np.intp), train, valid, chosen, factors)

    def _fit(self, models: list[Candidate]) -> tuple[list[Fitted], list[float]]:
        """Fit all walks, now and then with other strengths, and return the best of them."""
        fits, losses = self._with_factor(models, 1.0)
        left = models[0].n_cells / self._walks[0].start.n_cells
        is_ridge = isinstance(models[0].penalty, Frobenius)
        if not is_ridge or left > _TRIAL * self._tried:
            return fits, losses
        self._tried = left
        for factor in (1.0 / _FACTOR, _FACTOR):
            best = losses
            for _ in range(_MOST_TRIALS):
                others, new = self._with_factor([fit.model for fit in fits], factor)
                if not self._mean(new) < self._mean(losses):
                    break
                fits, losses = others, new
                self._factor *= factor
            if losses is not best:  # weaker ones were better: no need to try stronger ones
                break
        return fits, losses

    def _with_factor(
        self, models: list[Candidate], factor: float
    ) -> tuple[list[Fitted], list[float]]:
        fits = [walk.fit(model, factor) for walk, model in zip(self._walks, models, strict=True)]
        steps = zip(self._walks, fits, self._valids, strict=True)
        return fits, [walk.loss(fit, valid) for walk, fit, valid in steps]

    def _mean(self, losses: list[float]) -> float:
        return float(np.average(losses, weights=self._weights))

    def _note(self, fits: list[Fitted], losses: list[float]) -> None:
        self._counts.append([fit.model.n_cells for fit in fits])
        steps = zip(self._walks, fits, strict=True)
        self._train.append([walk.loss(fit) for walk, fit in steps])
        self._valid.append(losses)
        self._means.append(self._mean(losses))
        self._factors.append(self._factor)

    def _has_risen(self) -> bool:
        limit = max(_CLEAR_RISE, 1.0 + 2 * self._tol) * min(self._means)
        recent = self._means[-_PATIENCE:]
        return len(recent) == _PATIENCE and min(recent) > limit
