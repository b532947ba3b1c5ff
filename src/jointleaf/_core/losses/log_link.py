"""Losses of counts and amounts: half deviances of predictions exp(f)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import pdtrik

from jointleaf._core.arrays import array_namespace
from jointleaf._core.losses.base import Loss

_LEAST_MEAN = 1e-10  # of counts that are all zero


class _LogLink(Loss):
    """Half the deviance of the mean exp(f) whose variance is proportional to its p-th power."""

    has_log_link = True
    power: float
    #: what targets must be
    least: ClassVar[str] = "negative"

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Return the targets, after checks."""
        targets = super().encode(y)
        wrong = targets[targets <= 0 if self.least == "positive" else targets < 0]
        if wrong.size:
            must = "positive" if self.least == "positive" else "zero or positive"
            raise ValueError(
                f"loss={self.name!r} takes y that is {must}, but y holds {wrong.flat[0]:g}: remove "
                "these rows, or use another loss"
            )
        return targets

    def row_working_curvature(self, y: Any, f: Any) -> Any:
        """Return exp((2 - p) f): the expected second derivative."""
        return _exp((2 - self.power) * f)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """Return the logarithm of the weighted mean."""
        return np.log(np.maximum(np.average(y, weights=s), _LEAST_MEAN))

    def _search_shift(self, y: NDArray, s: NDArray, offset: NDArray | float) -> NDArray:
        o = np.broadcast_to(offset, y.shape).astype(float)
        o = o - (middle := o.max())
        counts = np.average(y * np.exp((1 - self.power) * o), weights=s)
        means = np.average(np.exp((2 - self.power) * o), weights=s)
        return np.log(np.maximum(counts / means, _LEAST_MEAN)) - middle

    def link(self, f: NDArray) -> NDArray:
        """Return exp(f)."""
        return _exp(f)

    def deviation(self, mean: NDArray) -> NDArray[np.float64]:
        """Return mean^(p / 2)."""
        return np.maximum(mean, _LEAST_MEAN) ** (0.5 * self.power)


class Poisson(_LogLink):
    """loss(y, f) = y log(y / m) - y + m with m = exp(f): counts, y >= 0."""

    name = "poisson"
    power = 1.0

    def row_loss(self, y: Any, f: Any) -> Any:
        return _exp(f) - y * f + y * _log(y) - y

    def row_gradient(self, y: Any, f: Any) -> Any:
        return _exp(f) - y

    def row_curvature(self, y: Any, f: Any) -> Any:
        return _exp(f)

    def low_quantiles(self, mean: NDArray, levels: NDArray) -> NDArray[np.float64]:
        """Return those of Poisson distributions: of rare counts they are zero."""
        return np.maximum(np.ceil(pdtrik(levels, np.maximum(mean, _LEAST_MEAN))), 0.0)


class Gamma(_LogLink):
    """loss(y, f) = log(m / y) + y / m - 1 with m = exp(f): amounts, y > 0."""

    name = "gamma"
    power = 2.0
    least = "positive"

    def row_loss(self, y: Any, f: Any) -> Any:
        return f - _log(y) + y * _exp(-f) - 1.0

    def row_gradient(self, y: Any, f: Any) -> Any:
        return 1.0 - y * _exp(-f)

    def row_curvature(self, y: Any, f: Any) -> Any:
        return y * _exp(-f)

    def row_working_curvature(self, y: Any, f: Any) -> Any:
        """Return ones: the expected second derivative."""
        return array_namespace(f).ones_like(f)


class Tweedie(_LogLink):
    """Half the Tweedie deviance of exp(f): amounts with many zeros, y >= 0.

    With m = exp(f) it is y^(2-p) / ((1-p) (2-p)) - y m^(1-p) / (1-p) + m^(2-p) / (2-p).

    Parameters
    ----------
    power : float in (1, 2)
        p: the variance is proportional to the p-th power of the mean. The limits are `Poisson` and
        `Gamma`; beyond them the loss is not convex in f.
    """

    name = "tweedie"

    def __init__(self, power: float = 1.5) -> None:
        if not (np.isreal(power) and 1 < power < 2):
            raise ValueError(
                f"power={power!r} must be a number between 1 (poisson) and 2 (gamma): with others "
                "the loss of exp(f) is not convex"
            )
        self.power = float(power)

    def row_loss(self, y: Any, f: Any) -> Any:
        p, xp = self.power, array_namespace(f)
        of_target = xp.maximum(y, 0.0) ** (2 - p) / ((1 - p) * (2 - p))
        return of_target - y * _exp((1 - p) * f) / (1 - p) + _exp((2 - p) * f) / (2 - p)

    def row_gradient(self, y: Any, f: Any) -> Any:
        return _exp((2 - self.power) * f) - y * _exp((1 - self.power) * f)

    def row_curvature(self, y: Any, f: Any) -> Any:
        p = self.power
        return (2 - p) * _exp((2 - p) * f) - (1 - p) * y * _exp((1 - p) * f)


def _exp(x: Any) -> Any:
    """Return exp(x), for x so large that it would overflow the largest that is of use."""
    xp = array_namespace(x)
    most = 0.8 * float(np.log(np.finfo(x.dtype).max))
    return xp.exp(xp.minimum(x, most))


def _log(y: Any) -> Any:
    """Return log(y), and 0 for y = 0, where it is multiplied by y."""
    xp = array_namespace(y)
    return xp.log(xp.where(y > 0, y, 1.0))
