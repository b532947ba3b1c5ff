"""Penalties on the singular values of the slopes: they align all cells with a subspace.

The proximal maps need no singular value decomposition of the d x m matrix W: its d x d Gram
matrix W W^T = U diag(sigma^2) U^T gives W -> U diag(new sigma / sigma) U^T W.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import array_namespace
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.norms import SlopeNorm, check_power, conjugate
from jointleaf._core.penalties.prox import shrink_l1, shrink_lp, shrink_sorted

__all__ = ["KyFan", "Nuclear", "SchattenP"]


class Spectral(SlopeNorm):
    """A norm of the singular values sigma (min(d, m),) of W; a subclass works on sigma alone."""

    @abstractmethod
    def norm_of(self, sigma: Any) -> Any:
        """Return the norm as a function of the singular values, falling."""

    @abstractmethod
    def shrink_of(self, sigma: Any, t: Any) -> Any:
        """Return the proximal map of t * norm on the singular values."""

    @abstractmethod
    def dual_of(self, sigma: NDArray) -> float:
        """Return the dual norm as a function of the singular values."""

    def norm(self, W: Any) -> Any:
        """Return the norm of the singular values of W."""
        return self.norm_of(_singular_values(W))

    def dual_norm(self, G: NDArray) -> float:
        """Return the dual norm of the singular values of G."""
        return self.dual_of(_singular_values(G))

    def shrink(self, W: Any, t: Any) -> Any:
        """Shrink the singular values through the smaller Gram matrix, in float64."""
        if not W.size:
            return W
        if W.shape[0] > W.shape[1]:
            return self.shrink(W.T, t).T
        xp = array_namespace(W)
        wide = W.astype(float)
        values, U = xp.linalg.eigh(wide @ wide.T)
        sigma, U = xp.sqrt(xp.maximum(values[::-1], 0)), U[:, ::-1]
        # What the Gram matrix cannot tell from zero is zero.
        keep = sigma > 1e-8 * xp.maximum(sigma[0], 1e-300)
        new = xp.where(keep, self.shrink_of(xp.where(keep, sigma, 0.0), t), 0.0)
        scale = new / xp.where(keep, sigma, 1.0)
        return ((U * scale) @ U.T).astype(W.dtype) @ W


class Nuclear(Spectral):
    """R = strength * sum of the singular values of W: slopes of all cells share few directions.

    Parameters
    ----------
    {strength}
    {bias_strength}
    """

    def norm_of(self, sigma: Any) -> Any:
        """Return their sum."""
        return sigma.sum()

    def shrink_of(self, sigma: Any, t: Any) -> Any:
        """Soft thresholding."""
        return shrink_l1(sigma, t)

    def dual_of(self, sigma: NDArray) -> float:
        """Return the largest."""
        return float(sigma.max(initial=0.0))


class KyFan(Spectral):
    """R = strength * sum of the k largest singular values of W.

    Parameters
    ----------
    {strength}
    k : int
        From 1 to the number of features.
    {bias_strength}
    """

    def __init__(
        self, strength: float | str, k: int, bias_strength: float | str | None = None
    ) -> None:
        super().__init__(strength, bias_strength)
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"k={k!r} must be a whole number, at least 1")
        self.k = int(k)

    def _options(self) -> dict[str, Any]:
        return {"k": self.k}

    def bind(self, layout: CellLayout) -> SlopeNorm:
        """Check k against the number of features."""
        if self.k > layout.n_features:
            raise ValueError(
                f"k={self.k} is more than the {layout.n_features} features: W has no more "
                "singular values, use a smaller k"
            )
        return super().bind(layout)

    def norm_of(self, sigma: Any) -> Any:
        """Return the sum of the k largest."""
        return sigma[: self.k].sum()

    def shrink_of(self, sigma: Any, t: Any) -> Any:
        """An ordered weighted l1 norm with k ones, then zeros."""
        return shrink_sorted(sigma, t * (np.arange(len(sigma)) < self.k))

    def dual_of(self, sigma: NDArray) -> float:
        """Return the larger of the largest and the sum over k."""
        return float(max(sigma.max(initial=0.0), sigma.sum() / self.k))


class SchattenP(Spectral):
    """R = strength * l_p norm of the singular values of W.

    Parameters
    ----------
    {strength}
    p : float >= 1
        1 is the nuclear norm, 2 the Frobenius norm (not squared), numpy.inf the spectral norm.
    {bias_strength}
    """

    compiled_in = ("p",)

    def __init__(
        self, strength: float | str, p: float, bias_strength: float | str | None = None
    ) -> None:
        super().__init__(strength, bias_strength)
        self.p = check_power(p)

    def _options(self) -> dict[str, Any]:
        return {"p": f"{self.p:g}"}

    def norm_of(self, sigma: Any) -> Any:
        """Return their l_p norm."""
        return array_namespace(sigma).linalg.norm(sigma, self.p) if sigma.size else 0.0

    def shrink_of(self, sigma: Any, t: Any) -> Any:
        """The proximal map of the l_p norm."""
        return shrink_lp(sigma[None], t, self.p)[0]

    def dual_of(self, sigma: NDArray) -> float:
        """Return their l_q norm, 1/p + 1/q = 1."""
        return float(np.linalg.norm(sigma, conjugate(self.p))) if sigma.size else 0.0


def _singular_values(W: Any) -> Any:
    """Falling; of a wide matrix through the small factor R of W^T = Q R."""
    xp = array_namespace(W)
    if not W.size:
        return xp.zeros(0)
    tall = (W if W.shape[0] >= W.shape[1] else W.T).astype(float)
    return xp.linalg.svd(xp.linalg.qr(tall, mode="r"), compute_uv=False)
