"""The joint fit together with the model that made the partitions.

A fitted model is

    a f + b f_own + c

with f the joint fit and f_own the raw predictions of the model that made the partitions. Both
are sums over the same cells, so that this is one model again. In regression a + b = 1 and c = 0.
For classes the three numbers are fitted by logistic regression to predictions of rows held out,
with a, b >= 0 (stacking, Breiman 1996): raw predictions of trees are often too far from zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Loss
from jointleaf._fit.factors import logistic_factors
from jointleaf.partitions import Partitioner

__all__ = ["Mix", "calibrated", "own_predictions", "own_values"]

_MORE_ROWS = 10.0  # as if so many rows more agreed with the mix that calibration starts from
_SMOOTHING = 1.0  # rows of every class added to every cell (Laplace's rule of succession)


class Mix(NamedTuple):
    """Raw predictions are ``joint * f + own * f_own + constant``.

    Attributes
    ----------
    joint : float
        Factor of the joint fit f.
    own : float
        Factor of f_own, the model that made the partitions.
    constant : float or array (K,)
        What is added.
    """

    joint: float = 1.0
    own: float = 0.0
    constant: NDArray | float = 0.0

    @property
    def is_joint_alone(self) -> bool:
        """Whether this is the joint fit as it is."""
        return self.joint == 1 and self.own == 0 and not np.any(self.constant)

    def towards_own(self, part: float) -> Mix:
        """Go a part of the way to the model that made the partitions."""
        rest = 1 - part
        return Mix(rest * self.joint, rest * self.own + part, rest * self.constant)

    def __call__(self, joint: NDArray, own: NDArray) -> NDArray:
        """Raw predictions (n,) or (n, K) from those of both models."""
        return self.joint * joint + self.own * own + self.constant


def calibrated(start: Mix, joint: NDArray, own: NDArray, target: NDArray, s: NDArray) -> Mix:
    """Fit the three numbers to classes of rows held out.

    Ten more rows agree with the factors of the mix `start` (`logistic_factors`): with few rows
    they would be noise otherwise.

    Parameters
    ----------
    start : Mix
    joint, own : arrays (n,) or (n, K)
        Raw predictions of rows that neither model has seen.
    target : array of the same shape
        -1 and 1, or ones and zeros for K classes.
    s : array (n,)
        Weights.
    """
    first = np.array([start.joint, start.own])
    (a, b), c = logistic_factors([joint, own], target, s, first, _MORE_ROWS, has_constant=True)
    return Mix(a, b, c if c.ndim else float(c))


def own_values(
    partitioner: Partitioner, codes: NDArray, loss: Loss, target: NDArray, s: NDArray
) -> NDArray[np.float64] | None:
    """Values (C, 1) or (C, K) of all cells that add up to the partitions' own raw predictions.

    Those of the model that made the partitions. Where it has none, as forests of classifiers,
    which average shares and not raw predictions: for classes the log-odds in the cells, averaged
    over partitions; for regression None.

    Parameters
    ----------
    partitioner : Partitioner
        Fitted.
    codes : array (n, P)
        Of its training rows.
    loss : Loss
    target : array (n,) or (n, K)
        Encoded targets of the training rows.
    s : array (n,)
        Their weights.
    """
    values = partitioner.leaf_values_
    if values is not None or loss.is_quadratic:
        return values
    return _log_odds(partitioner.n_cells_, codes, target, s)


def _log_odds(
    n_cells: NDArray, codes: NDArray, target: NDArray, s: NDArray
) -> NDArray[np.float64] | None:
    splits = n_cells > 1  # a single cell has nothing to tell
    if not splits.any():
        return None
    is_class = np.stack([target < 0, target > 0], axis=1) if target.ndim == 1 else target > 0
    # Weights count as rows; only their ratios matter in a fit, so their mean is made one.
    counts = is_class * (s * len(s) / s.sum())[:, None]
    starts = np.cumsum(n_cells) - n_cells
    values = np.zeros((int(n_cells.sum()), is_class.shape[1]))
    for p in np.flatnonzero(splits):
        inside = codes[:, p] >= 0
        np.add.at(values, starts[p] + codes[inside, p], counts[inside])
    logs = np.log(values + _SMOOTHING) * np.repeat(splits / splits.sum(), n_cells)[:, None]
    if target.ndim == 1:
        return logs[:, 1:] - logs[:, :1]
    return logs - logs.mean(axis=1, keepdims=True)


def own_predictions(values: NDArray, n_cells: NDArray, codes: NDArray) -> NDArray[np.float64]:
    """Add up values (C, 1) or (C, K) of cells for rows with codes (n, P): (n,) or (n, K)."""
    cells = np.where(codes < 0, len(values), codes + np.cumsum(n_cells) - n_cells)
    padded = np.concatenate([values, np.zeros_like(values[:1])])
    sums = np.zeros((len(codes), values.shape[1]))
    for column in cells.T:
        sums += padded[column]
    return sums[:, 0] if values.shape[1] == 1 else sums
