"""The default penalty of the joint fit.

It has three numbers. With G = X diag(v) X^T the linear kernel of standardised features and M the
share of partitions in which two rows meet, the joint fit is the kernel model

    K = M o (1 + s^2 G) + root,     root = 1 + s^2 G  (the root cell),     strength lambda,

- the **strength** lambda,
- the **slope scale** s: how freely slopes may move against biases (0: constant cells),
- the **feature power** q: v_j is proportional to (split gain of feature j)^q and sums to 1.

As a penalty this is `Frobenius(lambda / s^2, lambda, v, u)` with u_p = 1/P for the P partitions
and u = 1 for the root cell.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellKind
from jointleaf._core.penalties import Frobenius


class Setting(NamedTuple):
    """The three numbers of the default penalty."""

    strength: float
    slope_scale: float
    feature_power: float


DEFAULT_SETTING = Setting(strength=0.1, slope_scale=1.0, feature_power=1.0)


def auto_penalty(
    setting: Setting,
    split_gains: NDArray,
    n_partitions: int,
    has_root: bool,
    sources: NDArray[np.intp] | None = None,
) -> Frobenius:
    """Return the Frobenius penalty of a setting for P partitions, the last of them maybe the root.

    Split gains (d,) become the feature weights v. `sources` (m,) are the columns that the linear
    features come from, whose weights they have; by default each is its own.
    """
    grown = n_partitions - has_root
    weights = np.full(n_partitions, 1.0 / max(grown, 1))
    if has_root:
        weights[-1] = 1.0
    v = feature_weights(split_gains, setting.feature_power)
    scale = setting.slope_scale if setting.slope_scale > 0 else 1.0  # 0: no slopes to penalise
    return Frobenius(
        setting.strength / scale**2, setting.strength, v if sources is None else v[sources], weights
    )


def feature_weights(split_gains: NDArray, power: float) -> NDArray[np.float64]:
    """Return v_j proportional to gain_j^power, floored at 1e-6 of the largest, summing to 1."""
    gains = np.asarray(split_gains, float)
    largest = gains.max(initial=0.0)
    if largest <= 0 or power == 0:
        return np.full(len(gains), 1.0 / max(len(gains), 1))
    weights = np.maximum((gains / largest) ** power, 1e-6)
    return weights / weights.sum()


def setting_cells(setting: Setting) -> CellKind:
    """Return "constant" for a slope scale of 0, else "linear"."""
    return "linear" if setting.slope_scale > 0 else "constant"
