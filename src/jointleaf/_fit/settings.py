"""The numbers of the default penalty, and the penalty they stand for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellKind
from jointleaf._core.penalties import Frobenius

__all__ = [
    "DEFAULT_SETTING",
    "Setting",
    "auto_penalty",
    "feature_weights",
    "path_tol",
    "setting_cells",
]


class Setting(NamedTuple):
    """The three numbers of the default penalty, and the share of the joint fit in the model."""

    strength: float
    slope_scale: float
    feature_power: float
    share: float = 1.0


DEFAULT_SETTING = Setting(strength=0.1, slope_scale=1.0, feature_power=1.0)


def auto_penalty(
    setting: Setting,
    split_gains: NDArray,
    n_partitions: int,
    has_root: bool,
    sources: NDArray[np.intp] | None = None,
) -> Frobenius:
    """Give the Frobenius penalty of a setting.

    Parameters
    ----------
    setting : Setting
    split_gains : array (d,)
        Of the partitions; they become feature weights v.
    n_partitions : int
        P, with the root cell where there is one.
    has_root : bool
        Whether the last partition is the root cell.
    sources : integers (m,), optional
        Column that each linear feature comes from, whose weight it has; by default its own.
    """
    grown = n_partitions - has_root
    weights = np.full(n_partitions, 1.0 / max(grown, 1))
    if has_root:
        weights[-1] = 1.0
    v = feature_weights(split_gains, setting.feature_power)
    scale = setting.slope_scale if setting.slope_scale > 0 else 1.0  # 0: no slopes to penalise
    return Frobenius(
        setting.strength / scale**2,
        setting.strength,
        v if sources is None else v[sources],
        weights,
    )


def feature_weights(split_gains: NDArray, power: float) -> NDArray[np.float64]:
    """v_j proportional to gain_j^power, floored at 1e-6 of the largest, summing to 1."""
    gains = np.asarray(split_gains, float)
    largest = gains.max(initial=0.0)
    if largest <= 0 or power == 0:
        return np.full(len(gains), 1.0 / max(len(gains), 1))
    weights = np.maximum((gains / largest) ** power, 1e-6)
    return weights / weights.sum()


def path_tol(strength: float, slope_scale: float) -> float:
    """Tolerance along a path: small against the penalty, whose effect it must resolve."""
    return float(np.clip(0.01 * strength / max(1.0, slope_scale), 1e-6, 1e-3))


def setting_cells(setting: Setting) -> CellKind:
    """Constant cells for a slope scale of 0, else linear ones."""
    return "linear" if setting.slope_scale > 0 else "constant"
