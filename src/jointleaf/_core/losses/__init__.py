"""Convex losses on raw predictions, with sample weights."""

from jointleaf._core.losses.base import (
    LOSSES,
    NUMBER_LOSSES,
    AbsoluteError,
    Huber,
    Kinked,
    Loss,
    Pinball,
    Quantile,
    SquaredError,
    joined_loss,
    make_loss,
    make_number_loss,
    robust_scale,
    weighted_quantile,
)
from jointleaf._core.losses.classes import Logistic, Multinomial
from jointleaf._core.losses.log_link import Gamma, Poisson, Tweedie
from jointleaf._core.losses.traced import JaxLoss

_OF_NUMBERS = (SquaredError, AbsoluteError, Huber, Quantile, Poisson, Gamma, Tweedie)
LOSSES.update({loss.name: loss for loss in (*_OF_NUMBERS, Logistic, Multinomial)})
