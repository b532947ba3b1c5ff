"""A fold that judges settings of the default penalty along paths of strengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from jointleaf._core.kernel import shared_cells, times_column_kernel
from jointleaf._core.losses import Loss, SquaredError
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._core.solvers import choose_solver
from jointleaf._core.solvers.dual import newton_dual
from jointleaf._fit.folds import Fold
from jointleaf._fit.settings import Setting, auto_penalty, path_tol, setting_cells

__all__ = ["RecipeFold"]

_MAX_DENSE_ROWS = 2000  # of a fold's training part: beyond, iterative paths
_RISE = 1.02  # a loss that stays as it is may still fall
_FEW_ROWS = 200  # paths of so few cost next to nothing, and their losses are noisy
_MAX_OWN_LOSS = 500  # rows times outputs up to which every line is searched with the own loss


class RecipeFold(Fold):
    """A fold that judges settings of the default penalty along paths of strengths."""

    _shared: tuple[NDArray, NDArray] | None = None
    #: raw predictions of the validation rows, by setting and loss
    _kept: dict[tuple[Setting, bool], tuple[NDArray, bool]] | None = None

    @property
    def is_cheap(self) -> bool:
        """Whether paths with the own loss cost little enough to search every line with it."""
        n_outputs = self.loss.encode(self.y).size // len(self.y)
        return self.loss.is_quadratic or len(self.y) * n_outputs <= _MAX_OWN_LOSS

    def losses(
        self, scale: float, power: float, strengths: Sequence[float], own_loss: bool = True
    ) -> tuple[NDArray, NDArray]:
        """Validation losses (groups, strengths), from strong to weak, and convergence.

        With more than 200 rows the path ends when the loss has risen by two percent, twice in a
        row: what follows is infinite. With ``own_loss=False`` the squared error on the encoded
        targets stands in for the loss.
        """
        loss = self.loss if own_loss else SquaredError()
        y, y_valid = self.y, self.y_valid
        if not own_loss:
            y, y_valid = self.loss.encode(y), self.loss.encode(y_valid)
        problem = self._problem(Setting(1.0, scale, power), loss, y)
        dense = len(self.train) <= _MAX_DENSE_ROWS
        path = self._dense_path if dense else self._iterative_path
        target = loss.encode(y_valid)
        losses = np.full((len(self.weights), len(strengths)), np.inf)
        mean = np.full(len(strengths), np.inf)
        converged = np.ones(len(strengths), bool)
        steps = path(problem, Setting(1.0, scale, power), strengths)
        self._kept = {} if self._kept is None else self._kept
        for k, (raw, converged[k]) in enumerate(steps):
            self._kept[Setting(strengths[k], scale, power), own_loss] = raw, converged[k]
            losses[:, k] = self.group_losses(loss, target, raw)
            mean[k] = self.weights @ losses[:, k]
            if (
                len(self.train) > _FEW_ROWS
                and k > 1
                and mean[k - 1 : k + 1].min() > mean[: k - 1].min()
            ):
                break
        return losses, converged

    def can_mix(self, setting: Setting) -> bool:
        """Whether the partitions have a model of their own whose predictions fit to the loss."""
        kept = (self._kept or {}).get((setting, True))
        return (
            self.own_valid is not None
            and kept is not None
            and (self.own_valid.shape == kept[0].shape)
        )

    def kept(self, setting: Setting) -> tuple[NDArray, NDArray, NDArray]:
        """Raw predictions of the joint fit and of the partitions' own model, and targets."""
        assert self._kept is not None
        assert self.own_valid is not None
        raw, _ = self._kept[setting._replace(share=1.0), True]
        return raw, self.own_valid, self.loss.encode(self.y_valid)

    def raw(self, setting: Setting) -> NDArray:
        """Raw predictions of the joint fit with a setting that was judged with the own loss."""
        assert self._kept is not None
        return self._kept[setting._replace(share=1.0), True][0]

    def mixed_losses(self, setting: Setting, shares: Sequence[float]) -> tuple[NDArray, bool]:
        """Validation losses (groups, shares) of mixes with the partitions' own model."""
        assert self._kept is not None
        assert self.own_valid is not None
        raw, converged = self._kept[setting, True]
        target = self.loss.encode(self.y_valid)
        mixes = [a * raw + (1 - a) * self.own_valid for a in shares]
        losses = [self.group_losses(self.loss, target, mix) for mix in mixes]
        return np.stack(losses, axis=1), converged

    def _problem(self, setting: Setting, loss: Loss, y: NDArray) -> Problem:
        penalty = auto_penalty(setting, self.gains, len(self.n_cells), self.has_root, self.sources)
        return self.problem(penalty, setting_cells(setting), loss, y)

    def _dense_path(
        self, problem: Problem, setting: Setting, strengths: Sequence[float]
    ) -> Iterator[tuple[NDArray, bool]]:
        """Through the kernel: K(lambda) = K / lambda, with the shared cells counted once."""
        K, K_valid = self._kernels(problem, setting)
        spread = problem.s.sum() / problem.s
        target = (problem.y - problem.offset).astype(float)
        alpha = np.zeros(problem.y.shape)
        previous = strengths[0]
        for strength in strengths:
            if problem.loss.is_quadratic:
                A = K.copy()
                A[np.diag_indices_from(A)] += strength * spread
                factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
                alpha = strength * cho_solve(factor, target, check_finite=False)
            else:
                alpha, _ = newton_dual(
                    problem,
                    K / strength,
                    tol=10 * path_tol(strength, setting.slope_scale),  # Newton overshoots it
                    max_iter=30,
                    alpha=alpha * (strength / previous),  # keeps the predictions
                    in_kernel_norm=True,
                )
            previous = strength
            yield K_valid @ alpha / strength + problem.offset, True

    def _kernels(self, problem: Problem, setting: Setting) -> tuple[NDArray, NDArray]:
        layout, penalty = problem.layout, problem.penalty
        assert isinstance(penalty, Frobenius)
        valid = self.valid_design(setting_cells(setting))
        if self._shared is None:
            cells, others = problem.leaf_design.cells(), valid.cells()
            u = penalty.partition_weights
            self._shared = (
                shared_cells(cells, cells, layout, u),
                shared_cells(others, cells, layout, u),
            )
        strengths = penalty.column_strengths(layout)
        X = problem.leaf_design.X
        return (
            times_column_kernel(self._shared[0].copy(), X, X, strengths),
            times_column_kernel(self._shared[1].copy(), valid.X, X, strengths),
        )

    def _iterative_path(
        self, problem: Problem, setting: Setting, strengths: Sequence[float]
    ) -> Iterator[tuple[NDArray, bool]]:
        """Through the primal solvers, each started from the answer before."""
        valid = self.valid_design(setting_cells(setting))
        base = problem.penalty
        assert isinstance(base, Frobenius)
        theta = None
        solver = choose_solver(problem, "pcg" if problem.loss.is_quadratic else "newton")
        for strength in strengths:
            solution = solver.solve(
                problem.with_penalty(base.scaled(strength)),
                theta,
                tol=path_tol(strength, setting.slope_scale),
                max_iter=1000,
            )
            theta = solution.theta
            yield valid.matvec(theta) + problem.offset, solution.converged
