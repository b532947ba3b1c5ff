"""The features that are alive under a penalty that makes whole features vanish."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.problem import Problem

__all__ = ["ActiveFeatures"]

_MIN_FEATURES = 8  # below, passes over all columns cost little more than over some
_FIRST = 10  # features let in at a time, at least


class ActiveFeatures:
    """A growing set of features; all others have zero slopes.

    Passes cost as much as there are columns, so that the problem on the active features alone is
    cheap. A proximal gradient step on all features then says which others should move: where
    there are none, the answer is that of the whole problem.

    Parameters
    ----------
    problem : Problem
        On all features.
    theta : array (N[, K])
        Weights to start from.

    Attributes
    ----------
    problem : Problem
        On the active features.
    has_grown : bool
        Whether the last `update` let features in.
    """

    def __init__(self, problem: Problem, theta: NDArray) -> None:
        self._whole = problem
        d = problem.layout.n_slopes
        self._mask = np.zeros(d, bool)
        self._mask[live_features(problem.layout, theta)] = True
        self.has_grown = False
        self.problem = problem

    @staticmethod
    def fits(problem: Problem) -> bool:
        """Whether the penalty makes features vanish, and there are enough of them."""
        if not problem.rest.is_row_sparse or problem.layout.n_slopes <= _MIN_FEATURES:
            return False
        return problem.penalty.restricted(np.arange(1)) is not None

    def update(self, theta: NDArray) -> float:
        """Let features in that should move; gives the optimality of theta in the whole problem."""
        whole = self._whole
        # Other features than the active ones add nothing to predictions.
        active = theta if self.problem is whole else self.take(theta)
        gradient = whole.data_gradient(self.problem.design.matvec(active))
        moved = whole.proximal_step(theta, gradient)
        optimality = whole.optimality(theta, gradient, moved)
        size = np.square(whole.layout.split(moved)[0], dtype=float)
        size = size.sum(axis=tuple(k for k in range(size.ndim) if k != 1))
        size[self._mask] = 0.0
        most = max(_FIRST, int(self._mask.sum()))
        waiting = np.argsort(-size, kind="stable")[:most]
        waiting = waiting[size[waiting] > 0]
        self.has_grown = bool(waiting.size) or self.problem is whole
        if self.has_grown:
            self._mask[waiting] = True
            self.problem = whole.restricted(self.features)
        return optimality

    @property
    def features(self) -> NDArray[np.intp]:
        """The active features."""
        return np.flatnonzero(self._mask)

    def take(self, theta: NDArray) -> NDArray:
        """Return the weights of the active features and the biases."""
        slopes, biases = self._whole.layout.split(theta)
        return self._whole.layout.join(slopes[:, self.features], biases)

    def put(self, part: NDArray) -> NDArray:
        """The inverse of `take`."""
        theta = self._whole.zeros()
        slopes, biases = self._whole.layout.split(theta)
        slopes[:, self.features], biases[:] = self.problem.layout.split(part)
        return theta


def live_features(layout: CellLayout, theta: NDArray) -> NDArray[np.intp]:
    """Return the features with a slope that is not zero in some cell."""
    slopes, _ = layout.split(theta)
    axes = tuple(k for k in range(slopes.ndim) if k != 1)
    return np.flatnonzero(np.any(slopes != 0, axis=axes))
