"""A split of the joint fit of groups of partitions, and runs along its strengths."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import shaped
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.krylov import KrylovPath
from jointleaf._fit.blend import MOST_WEIGHT, least_squares_weights
from jointleaf._fit.component import Table
from jointleaf._fit.folds import Fold
from jointleaf.partitions import UnionPartitioner

_PRIOR_ROWS = 100.0
_BLOCK_CODES = 2**23  # that are found at a time


class Choice(NamedTuple):
    """A run along the strengths with some scales, and the best of them."""

    strength: float
    n_steps: int
    loss: float
    table: Table
    folds: Sequence[GroupFold]
    paths: Sequence[KrylovPath]

    def predictions(self) -> list[NDArray]:
        """Return what all groups together predict for the validation rows of every fold."""
        pairs = zip(self.folds, self.paths, strict=True)
        return [fold.predictions(path.weights(self.strength)) for fold, path in pairs]

    def group_weights(self) -> NDArray[np.float64]:
        """Return weights (G,) of the predictions of the groups, fitted to held-out targets."""
        folds, pairs = self.folds, zip(self.folds, self.paths, strict=True)
        predictions = [fold.group_predictions(path.weights(self.strength)) for fold, path in pairs]
        parts = np.concatenate([part.reshape(len(part), -1) for part in predictions], axis=1)
        target = np.concatenate([fold.target_valid.ravel() for fold in folds])
        s = np.concatenate([fold.s_valid for fold in folds])
        weights = least_squares_weights(
            list(parts), target, np.repeat(s, len(target) // len(s)),
            np.ones(len(parts)), _PRIOR_ROWS, MOST_WEIGHT,
        )  # fmt: skip
        return np.array(weights)


class GroupFold(Fold):
    """A fold with designs in single precision, whose kinds of cells differ between groups."""

    partitioner: UnionPartitioner

    def prepare(self, kinds: Sequence[CellKind], group_of: NDArray[np.intp]) -> GroupFold:
        """Make the designs of both parts; return the fold."""
        self._group_of, self._cell_kinds = group_of, kinds
        #: of the training rows
        self.design: LeafDesign
        self.design, self._design_valid = (
            LeafDesign(X.astype(np.float32), codes, self.n_cells, cells=kinds, n_jobs=self.n_jobs)
            for X, codes in ((self.X, self.codes), (self.X_valid, self.codes_valid))
        )
        layout = self.design.layout
        slopes = np.repeat(group_of[layout.partition_of_cell[layout.linear_cells]], layout.n_slopes)
        self._group_of_weight = np.append(slopes, group_of[layout.partition_of_cell])
        self.s, self.s_valid, self.curvature = self.train.s, self.valid.s, 1.0
        #: of the targets, from which predictions differ
        self.centre: NDArray | float = 0.0
        if self.context.has_own_link:
            response, self.s, self.curvature = self.context.working(self.train, self.constant)
            centre = np.average(response, weights=self.s)
            work = self.context.working(self.valid, self.constant)
            self._target, self.target_valid = response - centre, work.response - centre
            self.s_valid = work.weights
            return self
        target = self.context.loss.encode(self.y)
        self.centre = np.average(target, axis=0, weights=self.train.s)
        self._target = target - self.centre
        self.target_valid = self.context.loss.encode(self.y_valid) - self.centre
        return self

    def _apply(self, X: NDArray) -> NDArray:
        """Return the codes of rows, block by block, in as few bytes as they need."""
        n_cells = self.partitioner.n_cells_
        codes = np.empty((len(X), len(n_cells)), np.min_scalar_type(-int(n_cells.max())))
        size = max(1, _BLOCK_CODES // len(n_cells))
        for first in range(0, len(X), size):
            block, last = slice(first, first + size), 0
            for member in self.partitioner.partitioners_:
                begin, last = last, last + len(member.n_cells_)
                codes[block, begin:last] = member.apply(X[block])
        return codes

    def release(self) -> None:
        """Free linear features and designs, until `prepare` makes them again."""
        super().release()
        del self.design, self._design_valid

    def own_problem(self, penalty: Frobenius) -> Problem:
        """Return the problem of the training rows with the loss, smooth where it has kinks."""
        loss, offset = self.context.smooth_loss, self.constant + self.train.offset
        return Problem(self.design, self.y, loss, penalty, self.train.s, offset)

    def predictions(self, theta: NDArray) -> NDArray:
        """Return what all partitions predict for the validation rows, (n,)."""
        return self._design_valid.matvec(theta)

    def with_groups(self, groups: NDArray[np.intp]) -> GroupFold:
        """Return the fold with some of its groups alone."""
        fold, is_used = copy.copy(self), np.isin(self._group_of, groups)
        members = self.partitioner.partitioners_
        fold.partitioner = UnionPartitioner.of_fitted([members[g] for g in groups])
        fold.codes, fold.codes_valid = self.codes[:, is_used], self.codes_valid[:, is_used]
        fold.n_cells, fold.gains = fold.partitioner.n_cells_, fold.partitioner.split_gains_
        return fold

    def sample(self, n_rows: int) -> GroupFold:
        """Return the fold with some of its rows, whose partitions are those of all."""
        if len(self.train) <= n_rows:
            return self
        fold = copy.copy(self)
        some, some_valid = slice(n_rows), slice(max(1, n_rows * len(self.valid) // len(self.train)))
        fold.train, fold.valid = self.train.take(some), self.valid.take(some_valid)
        fold.X, fold.y, fold.codes = self.X[some], self.y[some], self.codes[some]
        fold.X_valid, fold.y_valid = self.X_valid[some_valid], self.y_valid[some_valid]
        fold.codes_valid = self.codes_valid[some_valid]
        fold.set_groups(self.n_groups)
        return fold.prepare(self._cell_kinds, self._group_of)

    def path(self, scales: NDArray, v: NDArray, slope_scale: float) -> KrylovPath:
        """Start a run along the strengths."""
        u = partition_weights(scales, self._group_of)
        penalty = Frobenius(1.0 / slope_scale**2, 1.0, v[self.context.plan.sources], u).bind(
            self.design.layout
        )
        curvature = penalty.curvature()
        assert curvature is not None
        return KrylovPath(self.design, curvature, self._target, self.s, self._design_valid)

    def strength_losses(self, path: KrylovPath, strengths: NDArray) -> NDArray[np.float64]:
        """Return squared errors (groups of rows, strengths) of the validation rows."""
        raw = path.predictions(strengths)
        columns = [
            self.group_losses(SquaredError(), self.target_valid, raw[:, k], self.s_valid)
            for k in range(len(strengths))
        ]
        return np.stack(columns, axis=1)

    def group_predictions(self, theta: NDArray) -> NDArray:
        """Return what every group of partitions predicts for the validation rows, (G, n[, K])."""
        parts = []
        for g in range(self._group_of.max() + 1):
            is_of_group = shaped(self._group_of_weight == g, theta)
            parts.append(self._design_valid.matvec(np.where(is_of_group, theta, 0)))
        return np.stack(parts)


def partition_weights(scales: NDArray, group_of: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return u_p = a_g / P_g."""
    return (scales / np.bincount(group_of, minlength=len(scales)))[group_of]
