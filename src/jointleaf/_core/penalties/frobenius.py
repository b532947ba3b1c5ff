"""The squared Frobenius norm: ridge on the weights of all cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Quadratic, check_strength, shown
from jointleaf._core.penalties.params import check_number


class Frobenius(Quadratic):
    r"""Ridge penalty on slopes and biases.

    .. math::

        R(W, b) = \tfrac{1}{2} \sum_p \frac{1}{u_p} \sum_{c \in p} \Big(
            \lambda \sum_j \frac{w_{cj}^2}{v_j} + \beta\, b_c^2 \Big)

    With several tasks every term is multiplied by the weight gamma_t of its task.

    Parameters
    ----------
    strength : float > 0 or "auto"
        lambda, the strength on slopes; "auto" lets an estimator choose it by cross-validation.
    bias_strength : float >= 0, optional
        beta, the strength on biases; by default that on slopes. Zero leaves the biases
        free, as in the JOPLEn paper; constant cells need it positive to be regularised at all.
    feature_weights : array (d,) of positive numbers, optional
        v_j, which divide the penalty of feature j: a feature with a larger weight is
        shrunk less. By default all one.
    partition_weights : array (P,) of positive numbers, optional
        u_p, which divide the penalty of every cell of partition p. By default all one.
    """

    def __init__(
        self,
        strength: float | str,
        bias_strength: float | None = None,
        feature_weights: ArrayLike | None = None,
        partition_weights: ArrayLike | None = None,
    ) -> None:
        self.strength = check_strength(strength)
        #: whether the biases have the strength of the slopes
        self.bias_follows = bias_strength is None
        self.bias_strength = self.strength
        if bias_strength is not None:
            self.bias_strength = check_number("bias_strength", bias_strength, positive=False)
        self.feature_weights = _weights("feature_weights", feature_weights)
        self.partition_weights = _weights("partition_weights", partition_weights)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; biases that follow the slopes have no strength of their own."""
        params = super().get_params(deep)
        return {**params, "bias_strength": None} if self.bias_follows else params

    def __repr__(self) -> str:
        names = ("strength", "bias_strength", "feature_weights", "partition_weights")
        values = {name: getattr(self, name) for name in names}
        parts = [f"{name}={shown(value)}" for name, value in values.items() if value is not None]
        return f"Frobenius({', '.join(parts)})"

    def at(self, strength: float) -> Frobenius:
        """Return the penalty with this strength; biases follow unless they have a number."""
        changed = super().at(strength)
        if self.bias_follows:
            changed.bias_strength = changed.strength
        return changed if self._layout is None else changed.bind(self._layout)

    def __rmul__(self, factor: float) -> Frobenius:
        changed = super().__rmul__(factor)
        return changed if self._layout is None else changed.bind(self._layout)

    @property
    def is_bias_auto(self) -> bool:
        """Never: biases follow the slopes, or have a number."""
        return False

    def bind(self, layout: CellLayout) -> Frobenius:
        """Lay the strengths out over all weights, after checks of the lengths."""
        for what, expected in (("feature", layout.n_features), ("partition", layout.n_partitions)):
            weights = getattr(self, f"{what}_weights")
            if weights is not None and len(weights) != expected:
                raise ValueError(
                    f"{what}_weights has {len(weights)} entries, but there are {expected} {what}s"
                )
        if self.is_auto:
            return self.replaced(_layout=layout)
        columns, cells = self.column_strengths(layout), self.cell_weights(layout)
        slopes = columns[:-1] / cells[layout.linear_cells, None]
        return self.replaced(_layout=layout, _curvature=layout.join(slopes, columns[-1] / cells))

    def column_strengths(self, layout: CellLayout) -> NDArray[np.float64]:
        """Return lambda / v_j for the slopes, then beta: shape (q,)."""
        slopes = np.full(layout.n_slopes, self.strength)
        if self.feature_weights is not None and layout.n_slopes:
            slopes = slopes / self.feature_weights
        return np.append(slopes, self.bias_strength)

    def cell_weights(self, layout: CellLayout) -> NDArray[np.float64]:
        """Return u_p of every cell's partition, over gamma_t of its task: shape (C,)."""
        factors = layout.cell_factors()
        if self.partition_weights is None:
            return 1.0 / factors
        return self.partition_weights[layout.partition_of_cell] / factors


def _weights(name: str, values: ArrayLike | None) -> NDArray[np.float64] | None:
    if values is None:
        return None
    try:
        weights = np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={values!r} must be a list of positive numbers") from None
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights <= 0).any():
        raise ValueError(f"{name} must be a list of positive numbers: raise zeros to a small value")
    return weights
