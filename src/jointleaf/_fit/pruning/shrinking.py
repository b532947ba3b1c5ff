"""Walks from a model with all cells to small ones, one or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellKind
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.solvers import choose_solver
from jointleaf._data.rows import Rows
from jointleaf._fit.pruning.merging import CellModel, merge, merging_costs
from jointleaf._model.cell_model import Frame

__all__ = ["Descent", "Path", "Walk", "to_size"]

_CLEAR_RISE = 1.1  # loss relative to the smallest at which a path may end
_PATIENCE = 3  # steps in a row with so large a loss that end it
_TRIAL = 0.8  # strengths are tried anew when this share of the cells is left
_FACTOR = 10**0.5  # between one strength and the next
_MOST_TRIALS = 4  # at a time: a loss may fall for ever as the strength goes to zero


class Path(NamedTuple):
    """Numbers of cells and losses, step by step, and the step that was taken: see `Pruning`."""

    n_cells: NDArray[np.intp]
    train_loss: NDArray[np.float64]
    valid_loss: NDArray[np.float64] | None
    chosen: int
    strength_factor: NDArray[np.float64]

    def factor_at(self, n_cells: int) -> float:
        """The factor of the last step with at least so many cells."""
        return float(self.strength_factor[np.flatnonzero(self.n_cells >= n_cells)[-1]])


@dataclass(frozen=True)
class Walk:
    """How models are fitted to rows and merged.

    Attributes
    ----------
    start : CellModel
    frame : Frame
    rows : Rows
        To fit to.
    kind : {"linear", "constant"}
    share : float
        Share of the pairs that a step merges.
    solver : str
    limits : tuple of float and int
        Tolerance of the solves and most iterations.
    scale : float
        By which losses are multiplied.
    """

    start: CellModel
    frame: Frame
    rows: Rows
    kind: CellKind
    share: float
    solver: str
    limits: tuple[float, int]
    scale: float = 1.0

    def fit(self, model: CellModel, factor: float = 1.0) -> Fitted:
        """Fit all cells jointly, with the strengths of the penalty multiplied by a factor."""
        frame, rows = self.frame, self.rows
        penalty = model.penalty if factor == 1.0 else factor * model.penalty
        design = frame.design(rows.X, model.partitioner, self.kind)
        y = frame.target(rows.y)
        problem = Problem(design, y, frame.loss, penalty, rows.s, frame.offset)
        tol, max_iter = self.limits
        solver = choose_solver(problem, self.solver)
        init = None if model.theta is None else problem.layout.from_cells(model.theta)
        solution = solver.solve(problem, init, tol=tol, max_iter=max_iter)
        theta = problem.layout.by_cell(solution.theta)
        return Fitted(CellModel(model.partitioner, penalty, theta), problem, theta)

    def loss(self, fitted: Fitted, rows: Rows | None = None) -> float:
        """Mean loss of the rows that were fitted, or of others."""
        design = fitted.problem.design
        if rows is not None:
            design = self.frame.design(rows.X, fitted.model.partitioner, self.kind)
        y = (self.rows if rows is None else rows).y
        s = (self.rows if rows is None else rows).s
        theta = design.layout.from_cells(fitted.theta)
        loss, raw = self.frame.loss, design.matvec(theta) + self.frame.offset
        return self.scale * loss.value(loss.encode(self.frame.target(y)), raw, s)

    def is_done(self, fitted: Fitted, size: int) -> bool:
        """Whether at most `size` cells are left, or nothing to merge."""
        model = fitted.model
        return model.n_cells <= size or not len(model.partitioner.siblings())

    def next_share(self, fitted: Fitted) -> float:
        """Share of the cells of the start that `shrink` is going to leave."""
        return (fitted.model.n_cells - self._count(fitted.model)) / self.start.n_cells

    def _count(self, model: CellModel) -> int:
        """Pairs that a step merges."""
        return max(1, int(self.share * len(model.partitioner.siblings())))

    def shrink(self, fitted: Fitted, size: int) -> CellModel:
        """Merge the share of the pairs that cost least, but not more than leaves `size` cells."""
        model = fitted.model
        if self.is_done(fitted, size):
            return model
        pairs = model.partitioner.siblings()
        is_free = (pairs[:, 1:] < 0).any(axis=1)  # takes no cell away, and comes first
        cost = np.where(is_free, -1.0, merging_costs(fitted.problem, fitted.theta, pairs))
        spare = model.n_cells - size + int(is_free.sum())
        chosen = np.zeros(len(pairs), bool)
        count = min(self._count(model), spare)
        chosen[np.argsort(cost, kind="stable")[:count]] = True
        return merge(model, fitted.problem, chosen)


class Fitted(NamedTuple):
    """A model with its weights, the problem that they solve, and the weights (C, q[, K])."""

    model: CellModel
    problem: Problem
    theta: NDArray


class _Shrinking:
    """Shows how many cells are gone."""

    def __init__(self, n_cells: int, size: int, label: str, verbose: int) -> None:
        self._left = n_cells
        self._progress = Progress(n_cells - size, label, enabled=bool(verbose))

    def show(self, n_cells: int, note: str = "") -> None:
        for _ in range(self._left - n_cells):
            self._progress.step(note)
        self._left = n_cells

    def finish(self) -> None:
        self._progress.finish()


def to_size(
    walk: Walk, size: int, verbose: int = 0, like: Path | None = None
) -> tuple[Path, CellModel]:
    """Prune to at most `size` cells, with strengths `like` those of another path or of the fit."""
    model = walk.start
    shown = _Shrinking(model.n_cells, size, "pruning", verbose)
    counts, losses, factors = [], [], []
    previous = 1.0
    while True:
        factor = 1.0 if like is None else like.factor_at(model.n_cells)
        fitted = walk.fit(model, factor / previous)
        previous = factor
        counts.append(model.n_cells)
        losses.append(walk.loss(fitted))
        factors.append(factor)
        shown.show(model.n_cells)
        if walk.is_done(fitted, size):
            break
        model = walk.shrink(fitted, size)
    shown.finish()
    path = Path(np.array(counts), np.array(losses), None, len(counts) - 1, np.array(factors))
    return path, fitted.model


class Descent:
    """Walks side by side, judged by the mean of their validation losses.

    Parameters
    ----------
    walks : sequence of Walk
    valids : sequence of Rows
        Validation rows of every walk.
    tol : float
        Share of the smallest loss by which that of the chosen step may be larger.
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

    def run(self, verbose: int = 0) -> tuple[Path, CellModel]:
        """Prune until the mean loss has risen clearly; gives path and model of the first walk."""
        models = [walk.start for walk in self._walks]
        chosen = models[0]
        sizes = [model.least_cells for model in models]
        shown = _Shrinking(models[0].n_cells, sizes[0], "choosing a size", verbose)
        while True:
            fits, losses = self._fit(models)
            self._note(fits, losses)
            shown.show(models[0].n_cells, f"loss {self._means[-1]:.4g}")
            # If a later loss is smaller still, then that step is a smaller model within `tol`.
            if self._means[-1] <= (1.0 + self._tol) * min(self._means):
                chosen = fits[0].model
            steps = list(zip(self._walks, fits, sizes, strict=True))
            if self._has_risen() or all(walk.is_done(fit, size) for walk, fit, size in steps):
                break
            # The slowest sets the pace: walks are compared at about the same share of cells.
            pace = max(walk.next_share(fit) for walk, fit, s in steps if not walk.is_done(fit, s))
            models = [
                walk.shrink(fit, max(size, int(pace * walk.start.n_cells)))
                for walk, fit, size in steps
            ]
        shown.finish()
        counts, train, valid = (
            np.array(values)[:, 0] for values in (self._counts, self._train, self._valid)
        )
        return self._path(counts, train, valid, np.array(self._factors)), chosen

    def mean_path(self, n_cells: int) -> Path:
        """Mean losses at common shares of the cells, for a model with so many of them.

        Between the steps of a walk losses are interpolated, linearly in the logarithm of the share.
        """
        counts = np.array(self._counts, dtype=float)
        shares = counts / counts[0]
        grid = np.geomspace(n_cells, max(1.0, n_cells * shares[-1].max()), len(shares))
        sizes = np.unique(grid.round())[::-1]
        at = -np.log(sizes / n_cells)

        def mean(losses: list[list[float]]) -> NDArray[np.float64]:
            values = [
                np.interp(at, -np.log(own), loss)
                for own, loss in zip(shares.T, np.array(losses).T, strict=True)
            ]
            return np.average(values, axis=0, weights=self._weights)

        step = np.searchsorted(-np.log(shares.mean(axis=1)), at + 1e-9, side="right") - 1
        factors = np.array(self._factors)[step]
        return self._path(sizes, mean(self._train), mean(self._valid), factors)

    def _path(
        self, counts: NDArray, train: NDArray, valid: NDArray, factors: NDArray[np.float64]
    ) -> Path:
        chosen = int(np.flatnonzero(valid <= (1.0 + self._tol) * valid.min())[-1])
        return Path(counts.astype(np.intp), train, valid, chosen, factors)

    def _fit(self, models: list[CellModel]) -> tuple[list[Fitted], list[float]]:
        """Fit all walks, now and then with other strengths; the best of them are kept."""
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
        self, models: list[CellModel], factor: float
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
