"""Penalties that are a norm of the slopes, biases free: row-sparse ones, and spectral ones.

W is the d x m matrix of all slopes: one row per feature, one column per linear cell (and output).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from inspect import cleandoc
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import array_namespace, check_count, check_number
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import base
from jointleaf._core.penalties.prox import shrink_l1, shrink_l2_weighted, shrink_lp, shrink_sorted

#: the parameters of all norms, for their docstrings
_SHARED_DOC = {
    "strength": """strength : float > 0 or "auto"
    "auto" lets an estimator choose it by cross-validation.""",
    "bias_strength": """bias_strength : float >= 0 or "auto", optional
    Adds (bias_strength / 2) |b|^2, with several tasks sum_t gamma_t |b_t|^2. By default zero,
    or "auto" where the strength is: with many cells free biases fit the training rows by
    themselves, so that what is left for the slopes is noise.""",
}
_SHARED_DOC["parameters"] = "\n".join(["Parameters", "----------", *_SHARED_DOC.values()])


class SlopeNorm(base.Penalty):
    r"""R(W, b) = strength * |W| + (bias_strength / 2) |b|^2, for a norm |W| of the slopes.

    A subclass gives the norm, its proximal map and its dual norm, on W (d, m). The parameters that
    all norms share are filled into its docstring where their names stand in braces.

    {parameters}
    """

    #: what else the representation shows
    options: tuple[str, ...] = ()

    def __init__(self, strength: float | str, bias_strength: float | str | None = None) -> None:
        self.strength = base.check_strength(strength)
        self.bias_strength = _check_bias(bias_strength, self.is_auto)
        #: gamma_t of every cell's task, (C,), known after `bind`
        self._factors: NDArray[np.float64] | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _fill_docstring(cls)

    def __repr__(self) -> str:
        parts = [repr(self.strength) if self.is_auto else f"{self.strength:.4g}"]
        values = {name: getattr(self, name) for name in self.options}
        parts += [
            f"{name}={base.shown(value)}" for name, value in values.items() if value is not None
        ]
        if self.bias_strength and not self.is_bias_auto:
            parts.append(f"bias_strength={self.bias_strength:.4g}")
        share = f"{self.share:g} * " if self.share != 1 else ""
        return f"{share}{type(self).__name__}({', '.join(parts)})"

    @abstractmethod
    def norm(self, W: Any) -> Any:
        """Return |W|."""

    @abstractmethod
    def shrink(self, W: Any, t: Any) -> Any:
        """Return argmin_Z |Z - W|_F^2 / 2 + t |Z|."""

    @abstractmethod
    def dual_norm(self, G: NDArray) -> float:
        """Return the largest <G, W> over all W with |W| <= 1."""

    def bind(self, layout: CellLayout) -> Any:
        return super().bind(layout).replaced(_factors=layout.cell_factors())

    def value(self, theta: Any) -> Any:
        """Return |W| times the strength, + (bias_strength / 2) |b|^2."""
        slopes, biases = self.layout.split(theta)
        squares = array_namespace(theta).square(biases.astype(float))
        squares = squares.reshape(biases.shape[0], -1).sum(axis=1)
        value = self.strength * self.norm(feature_rows(slopes))
        return value + 0.5 * (self.bias_curvature() @ squares)

    def prox(self, theta: Any, step: Any) -> Any:
        """Shrink the slopes by step * strength, divide the biases by 1 + step * bias_strength."""
        slopes, biases = self.layout.split(theta)
        if slopes.size:
            shrunk = self.shrink(feature_rows(slopes), step * self.strength)
            slopes = from_feature_rows(shrunk, slopes.shape)
        biases = biases / base.bias_divisor(step, self.bias_curvature(), biases)
        return self.layout.join(slopes, biases)

    def bias_curvature(self) -> Any:
        """bias_strength, times gamma_t, of every cell."""
        return None if self._factors is None else self.bias_strength * self._factors

    def restricted(self, features: NDArray[np.intp]) -> Any:
        """The same norm: rows of zeros do not change it."""
        return self.with_features(len(features))

    def strength_max(self, gradient: NDArray) -> float:
        """The dual norm of the slopes' gradient at zero slopes and the best biases."""
        slopes, _ = self.layout.split(np.asarray(gradient, float))
        return self.dual_norm(feature_rows(slopes)) / self.share


def _fill_docstring(cls: type) -> None:
    doc = cleandoc(cls.__doc__ or "")
    for name, text in _SHARED_DOC.items():
        doc = doc.replace(f"{{{name}}}", text)
    cls.__doc__ = doc


_fill_docstring(SlopeNorm)


class RotationInvariant(SlopeNorm):
    """A norm that does not change when the cells of a task are rotated among each other."""

    @abstractmethod
    def shrink_weighted(self, W: NDArray, t: float, weights: NDArray) -> NDArray:
        """argmin_Z sum_j weights_j |Z_j - W_j|^2 / 2 + t |Z| over columns j; weights (m,)."""


class L1(SlopeNorm):
    """R = strength * sum of |w| over all slopes: single slopes vanish.

    {parameters}
    """

    is_row_sparse = True
    shortens = "entries"

    def norm(self, W: Any) -> Any:
        return array_namespace(W).abs(W).sum(dtype=float)

    def shrink(self, W: Any, t: Any) -> Any:
        return shrink_l1(W, t)

    def dual_norm(self, G: NDArray) -> float:
        return float(np.abs(G).max(initial=0.0))


class PowerNorm(SlopeNorm):
    """A norm with a power p."""

    compiled_in = ("p",)
    options: tuple[str, ...] = ("p",)

    def __init__(
        self, strength: float | str, p: float, bias_strength: float | str | None = None
    ) -> None:
        super().__init__(strength, bias_strength)
        self.p = check_power(p)


class Lp1(PowerNorm):
    """R = strength * sum over features of the l_p norm of the feature's slopes in all cells.

    Whole features vanish.

    Parameters
    ----------
    {strength}
    p : float >= 1
        numpy.inf for the largest absolute value.
    {bias_strength}
    """

    is_row_sparse = True

    def norm(self, W: Any) -> Any:
        xp = array_namespace(W)
        return xp.linalg.norm(W, self.p, axis=1).sum(dtype=float) if W.size else 0.0

    def shrink(self, W: Any, t: Any) -> Any:
        return shrink_lp(W, t, self.p)

    def dual_norm(self, G: NDArray) -> float:
        """Return the largest l_q norm of a row, 1/p + 1/q = 1."""
        if not G.size:
            return 0.0
        return float(np.linalg.norm(G, conjugate(self.p), axis=1).max())


class L21(Lp1, RotationInvariant):
    """R = strength * sum over features of the Euclidean norm of the feature's slopes.

    Whole features vanish: the group LASSO over all cells of all partitions.

    {parameters}
    """

    shortens = "blocks"
    options = ()

    def __init__(self, strength: float | str, bias_strength: float | str | None = None) -> None:
        super().__init__(strength, 2.0, bias_strength)

    def shrink_weighted(self, W: NDArray, t: float, weights: NDArray) -> NDArray:
        return shrink_l2_weighted(W, t, weights)


class LInf1(Lp1):
    """R = strength * sum over features of the largest absolute slope of the feature.

    Whole features vanish, and the slopes of the others tend to one common size.

    {parameters}
    """

    options = ()

    def __init__(self, strength: float | str, bias_strength: float | str | None = None) -> None:
        super().__init__(strength, np.inf, bias_strength)


class GrOWL(SlopeNorm):
    """Group ordered weighted l1 norm: R = strength * sum_i weights_i |row|_[i].

    |row|_[1] >= |row|_[2] >= ... are the Euclidean norms of the features' slopes in falling order
    (Oswal et al. 2016): correlated features tend to be selected together.

    Parameters
    ----------
    {strength}
    weights : array (d,), optional
        Not negative, not rising, the first positive. By default from 1 to 1/d in equal steps.
    {bias_strength}
    """

    is_row_sparse = True
    options = ("weights",)

    def __init__(
        self,
        strength: float | str,
        weights: ArrayLike | None = None,
        bias_strength: float | str | None = None,
    ) -> None:
        super().__init__(strength, bias_strength)
        self.weights = None if weights is None else _check_falling(weights)

    def bind(self, layout: CellLayout) -> GrOWL:
        """Check the number of weights, or make the default ones."""
        bound = super().bind(layout)
        if self.weights is None:
            bound.weights = np.arange(layout.n_features, 0, -1) / max(layout.n_features, 1)
        elif len(self.weights) != layout.n_features:
            raise ValueError(
                f"weights of GrOWL has {len(self.weights)} entries, but there are "
                f"{layout.n_features} features: give one weight a feature, falling"
            )
        return bound

    def restricted(self, features: NDArray[np.intp]) -> GrOWL:
        """The first weights: rows of zeros come last."""
        return self.with_features(len(features)).replaced(weights=self._falling(len(features)))

    def norm(self, W: Any) -> Any:
        xp = array_namespace(W)
        return self._falling(W.shape[0]) @ -xp.sort(-xp.linalg.norm(W, axis=1))

    def shrink(self, W: Any, t: Any) -> Any:
        """Shrink the row norms as an ordered weighted l1 norm; rows keep their directions."""
        xp = array_namespace(W)
        lengths = xp.linalg.norm(W, axis=1).astype(float)
        shorter = shrink_sorted(lengths, t * self._falling(W.shape[0]))
        scale = shorter / xp.where(lengths > 0, lengths, 1.0)
        return W * scale[:, None].astype(W.dtype)

    def dual_norm(self, G: NDArray) -> float:
        """Return the largest, over k, sum of k longest rows over the sum of k first weights."""
        lengths = -np.sort(-np.linalg.norm(G, axis=1))
        return float((np.cumsum(lengths) / np.cumsum(self._falling(len(G)))).max(initial=0.0))

    def _falling(self, count: int) -> Any:
        return self._known(self.weights)[:count]


class Spectral(SlopeNorm):
    """A norm of the singular values sigma (min(d, m),) of W: slopes align with a subspace.

    A subclass gives the norm, its proximal map and its dual as functions of sigma, which falls. No
    singular value decomposition of the d x m matrix W is needed: its d x d Gram matrix
    W W^T = U diag(sigma^2) U^T gives W -> U diag(new sigma / sigma) U^T W.
    """

    norm_of: Callable[[Any], Any]
    shrink_of: Callable[[Any, Any], Any]
    dual_of: Callable[[NDArray], float]

    def norm(self, W: Any) -> Any:
        return self.norm_of(_singular_values(W))

    def dual_norm(self, G: NDArray) -> float:
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


class KyFan(Spectral):
    """R = strength * sum of the k largest singular values of W.

    Parameters
    ----------
    {strength}
    k : int
        From 1 to the number of features.
    {bias_strength}
    """

    options = ("k",)

    def __init__(
        self, strength: float | str, k: int, bias_strength: float | str | None = None
    ) -> None:
        super().__init__(strength, bias_strength)
        self.k = check_count("k", k)

    def bind(self, layout: CellLayout) -> SlopeNorm:
        if self.k > layout.n_features:
            raise ValueError(
                f"k={self.k} is more than the {layout.n_features} features: W has no more "
                "singular values, use a smaller k"
            )
        return super().bind(layout)

    def norm_of(self, sigma: Any) -> Any:
        return sigma[: self.k].sum()

    def shrink_of(self, sigma: Any, t: Any) -> Any:
        """An ordered weighted l1 norm with k ones, then zeros."""
        return shrink_sorted(sigma, t * (np.arange(len(sigma)) < self.k))

    def dual_of(self, sigma: NDArray) -> float:
        return float(max(sigma.max(initial=0.0), sigma.sum() / self.k))


class SchattenP(Spectral, PowerNorm):
    """R = strength * l_p norm of the singular values of W.

    Parameters
    ----------
    {strength}
    p : float >= 1
        1 is the nuclear norm, 2 the Frobenius norm (not squared), numpy.inf the spectral norm.
    {bias_strength}
    """

    def norm_of(self, sigma: Any) -> Any:
        return array_namespace(sigma).linalg.norm(sigma, self.p) if sigma.size else 0.0

    def shrink_of(self, sigma: Any, t: Any) -> Any:
        return shrink_lp(sigma[None], t, self.p)[0]

    def dual_of(self, sigma: NDArray) -> float:
        """Return their l_q norm, 1/p + 1/q = 1."""
        return float(np.linalg.norm(sigma, conjugate(self.p))) if sigma.size else 0.0


class Nuclear(SchattenP):
    """R = strength * sum of the singular values of W: slopes of all cells share few directions.

    {parameters}
    """

    options = ()

    def __init__(self, strength: float | str, bias_strength: float | str | None = None) -> None:
        super().__init__(strength, 1.0, bias_strength)


def feature_rows(slopes: Any) -> Any:
    """Return slopes (L, d[, K]) as W (d, L K): one row per feature."""
    xp = array_namespace(slopes)
    columns = slopes.shape[0] * int(np.prod(slopes.shape[2:]))
    return xp.moveaxis(slopes, 1, 0).reshape(slopes.shape[1], columns)


def from_feature_rows(W: Any, shape: tuple[int, ...]) -> Any:
    """Return W (d, L K) as slopes of a shape (L, d[, K]): the inverse of `feature_rows`."""
    return array_namespace(W).moveaxis(W.reshape(shape[1], shape[0], *shape[2:]), 0, 1)


def check_power(p: Any) -> float:
    """Return the p of a norm: a number, at least 1, possibly infinite."""
    try:
        power = float(p)
    except (TypeError, ValueError):
        raise TypeError(f"p={p!r} must be a number, at least 1") from None
    if not power >= 1:
        raise ValueError(f"p={p!r} must be a number, at least 1: below 1 it is not convex")
    return power


def conjugate(p: float) -> float:
    """Return q with 1/p + 1/q = 1."""
    if p == 1:
        return np.inf
    return 1.0 if p == np.inf else p / (p - 1)


def _check_bias(value: Any, with_auto: bool) -> float | str:
    if value is None:
        return base.AUTO if with_auto else 0.0
    if base.is_auto(value):
        if with_auto:
            return base.AUTO
        raise ValueError("bias_strength='auto' needs strength='auto': they are chosen together")
    return check_number("bias_strength", value, positive=False)


def _check_falling(weights: ArrayLike) -> NDArray[np.float64]:
    try:
        values = np.array(weights, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"weights={weights!r} must be a list of numbers, one a feature") from None
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("weights of GrOWL must be a list of numbers that are not negative")
    if not values.size or values[0] == 0 or (np.diff(values) > 0).any():
        raise ValueError(
            "weights of GrOWL must begin with a positive number and not rise: sort them, "
            "for example with -numpy.sort(-weights)"
        )
    return values


def _singular_values(W: Any) -> Any:
    """Falling; of a wide matrix through the small factor R of W^T = Q R."""
    xp = array_namespace(W)
    if not W.size:
        return xp.zeros(0)
    tall = (W if W.shape[0] >= W.shape[1] else W.T).astype(float)
    return xp.linalg.svd(xp.linalg.qr(tall, mode="r"), compute_uv=False)
