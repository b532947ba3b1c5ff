"""Convex losses on raw predictions, with sample weights."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from jointleaf._core.losses.base import Kinked, Loss
from jointleaf._core.losses.classes import Logistic, Multinomial
from jointleaf._core.losses.log_link import Gamma, Poisson, Tweedie
from jointleaf._core.losses.numbers import (
    AbsoluteError,
    Huber,
    Pinball,
    Quantile,
    SquaredError,
    robust_scale,
    weighted_quantile,
)
from jointleaf._core.losses.traced import JaxLoss

_NUMBER_CLASSES = (SquaredError, AbsoluteError, Huber, Quantile, Poisson, Gamma, Tweedie)
#: Names of the losses of numbers.
NUMBER_LOSSES = tuple(c.name for c in _NUMBER_CLASSES)
_LOSSES: dict[str, type[Loss]] = {c.name: c for c in (*_NUMBER_CLASSES, Logistic, Multinomial)}
_LIMITS: dict[float, type[Loss]] = {0.0: SquaredError, 1.0: Poisson, 2.0: Gamma}


def make_loss(
    loss: str | Loss, quantile: float | Sequence[float] | None = None, power: float | None = None
) -> Loss:
    """Return the loss of a name and its parameters, or the object itself.

    A Tweedie power of 0, 1 or 2 is the squared error, `Poisson` or `Gamma`.
    """
    for argument, value, owner in (("quantile", quantile, "quantile"), ("power", power, "tweedie")):
        if value is not None and not (isinstance(loss, str) and loss == owner):
            raise ValueError(
                f"{argument}={value!r} has no effect with loss={loss!r}: leave it out, or use "
                f"loss={owner!r}"
            )
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in _LOSSES:
        raise ValueError(f"loss={loss!r} is not known: use one of {sorted(_LOSSES)} or a Loss")
    if quantile is not None:
        return Quantile(quantile)
    if power is not None:
        return _LIMITS[float(power)]() if power in _LIMITS else Tweedie(power)
    return _LOSSES[loss]()


def joined_loss(losses: Sequence[Loss], sizes: Sequence[int]) -> Loss:
    """Return the loss of parts of rows, which have losses of one class.

    Where these differ, its numbers (the delta of `Huber`) are arrays with one for every row.
    """
    first = losses[0]
    if all(loss == first for loss in losses):
        return first
    joined = copy(first)
    for name in vars(first):
        setattr(joined, name, np.repeat([getattr(loss, name) for loss in losses], sizes))
    return joined


def make_number_loss(
    loss: str | Loss, quantile: float | Sequence[float] | None = None, power: float | None = None
) -> Loss:
    """Return the loss of numbers of a name and its parameters, or the object itself."""
    if isinstance(loss, str) and loss not in NUMBER_LOSSES:
        raise ValueError(f"loss={loss!r} is not known: use one of {NUMBER_LOSSES} or a Loss")
    if not isinstance(loss, str | Loss):
        raise TypeError(f"loss={loss!r} must be one of {NUMBER_LOSSES} or a Loss")
    if isinstance(loss, Logistic | Multinomial):
        raise ValueError(f"loss={loss!r} is for classes: use a classifier, or a loss of numbers")
    return make_loss(loss, quantile, power)
