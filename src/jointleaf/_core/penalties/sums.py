"""Sums of penalties, minimised as their true sum."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Penalty, PredictionPenalty, Term
from jointleaf._core.penalties.dirty import DirtyLasso
from jointleaf._core.penalties.frobenius import Free
from jointleaf._core.penalties.norms import L1, L21, SlopeNorm

__all__ = ["Sum", "on_predictions", "on_weights"]

_MAX_ROUNDS = 5000
_PRECISION = 1e-11


class Sum(Penalty):
    """R_1 + R_2 + ...: made by ``+``.

    Quadratic terms are added up and treated as smooth by FISTA. Where one term is left, its own
    proximal map serves; for L1 + L21 (sparse group LASSO) and L1 + DirtyLasso the two maps one
    after the other; for any others the proximal map of the true sum is found by a splitting method,
    started from where the last call ended.

    Parameters
    ----------
    *terms : Term
        Penalties on weights or on predictions.
    """

    def __init__(self, *terms: Term) -> None:
        self._terms = terms
        self._duals: NDArray | None = None

    def __repr__(self) -> str:
        return " + ".join(map(repr, self._terms))

    def __rmul__(self, factor: float) -> Sum:
        return Sum(*(factor * term for term in self._terms))

    @property
    def terms(self) -> tuple[Term, ...]:
        """The penalties that are added."""
        return self._terms

    @property
    def is_row_sparse(self) -> bool:  # type: ignore[override]
        """Whether some term makes whole features vanish."""
        return any(term.is_row_sparse for term in self._weight_terms())

    def _weight_terms(self) -> list[Penalty]:
        return [term for term in self._terms if isinstance(term, Penalty)]

    def at(self, strength: float) -> Sum:
        """Fill in every strength that is "auto"; the others stay as they are."""
        if not self.is_auto:
            raise ValueError(f"{self!r}: mark the strengths to change with 'auto'")
        return Sum(*(term.at(strength) if term.is_auto else term for term in self._terms))

    def with_bias(self, bias_strength: float) -> Sum:
        """Give the first term with "auto" biases this strength on them, and the others none."""
        filled: list[Term] = []
        for term in self._terms:
            filled.append(term.with_bias(bias_strength))
            bias_strength = 0.0 if term.is_bias_auto else bias_strength
        return Sum(*filled)

    def bind(self, layout: CellLayout) -> Sum:
        """Bind every term."""
        return Sum(*(t.bind(layout) if isinstance(t, Penalty) else t for t in self._terms))

    def value(self, theta: NDArray) -> float:
        """Sum of the values of the terms on weights."""
        return sum(term.value(theta) for term in self._weight_terms())

    def curvature(self) -> NDArray | None:
        """Sum of the curvatures, where all terms are quadratic."""
        return _added([term.curvature() for term in self._weight_terms()])

    def bias_curvature(self) -> NDArray | None:
        """Sum of the terms' own."""
        return _added([term.bias_curvature() for term in self._weight_terms()])

    def split(self) -> tuple[NDArray | None, Penalty]:
        """Sum of the quadratic terms, and the others."""
        quadratic: NDArray | None = None
        rest: list[Penalty] = []
        for term in self._weight_terms():
            part, other = term.split()
            if part is not None:
                quadratic = part if quadratic is None else quadratic + part
            if not isinstance(other, Free):
                rest.append(other)
        if quadratic is not None and not rest:
            return quadratic, Free(quadratic.shape)
        return quadratic, rest[0] if len(rest) == 1 else Sum(*rest)

    def restricted(self, features: NDArray[np.intp]) -> Sum | None:
        """The sum of the terms on some features alone."""
        parts = [term.restricted(features) for term in self._weight_terms()]
        if any(part is None for part in parts):
            return None
        return Sum(*(part for part in parts if part is not None))

    def prox(self, theta: NDArray, step: float) -> NDArray:
        """argmin_z |z - theta|^2 / 2 + step * sum_k R_k(z)."""
        terms = self._weight_terms()
        if len(terms) == 1:
            return terms[0].prox(theta, step)
        if len(terms) == 2 and {type(t) for t in terms} in ({L1, L21}, {L1, DirtyLasso}):
            first, second = sorted(terms, key=lambda t: not isinstance(t, L1))
            assert isinstance(first, SlopeNorm)
            assert isinstance(second, SlopeNorm)
            return _sparse_group(first, second, theta, step)
        return self._prox_of_sum(terms, theta, step)

    def _prox_of_sum(self, terms: list[Penalty], theta: NDArray, step: float) -> NDArray:
        """Accelerated gradient on the dual: z = theta - sum_k u_k with u_k in step dR_k(z).

        The last term's u is eliminated: z = prox_last(theta - sum of the m others), and each of
        these moves to w - prox(m w, m step) / m with w = u_k + z / m. Terms that make weights
        vanish come last, so that what vanishes is exactly zero.
        """
        *others, last = sorted(terms, key=lambda term: term.is_row_sparse)
        m, size = len(others), float(np.abs(theta).max(initial=0.0))
        duals = self._duals
        if duals is None or duals.shape != (m, *theta.shape):
            duals = np.zeros((m, *theta.shape))
        ahead, momentum = duals, 1.0
        answers = np.empty_like(duals)
        for _ in range(_MAX_ROUNDS):
            z = last.prox(theta - ahead.sum(axis=0), step)
            w = ahead + z / m
            for k, term in enumerate(others):
                answers[k] = term.prox(m * w[k], m * step)
            new = w - answers / m
            move = new - ahead
            if np.abs(move).max(initial=0.0) <= _PRECISION * size:
                duals = new
                break
            if np.vdot(move, new - duals) < 0:  # momentum points uphill
                momentum = 1.0
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / following * (new - duals)
            duals, momentum = new, following
        self._duals = duals
        answer = last.prox(theta - duals.sum(axis=0), step)
        if not np.isfinite(self.value(answer)):  # a constraint that this answer just misses
            answer = min([answer, *answers], key=self.value)
        return answer.astype(theta.dtype)

    def __getstate__(self) -> dict[str, Any]:
        state = copy.copy(self.__dict__)
        state["_duals"] = None  # where the last proximal map ended is nobody's business
        return state


def _sparse_group(first: SlopeNorm, second: SlopeNorm, theta: NDArray, step: float) -> NDArray:
    """L1, then a norm that only makes rows or blocks of them shorter; both divide the biases.

    One after the other is right because what is made shorter keeps its signs (Yu 2013).
    """
    out = second.prox(first.prox(theta, step), step)
    beta = (first._bias_strengths(theta) + second._bias_strengths(theta)).astype(theta.dtype)
    shrink = 1 + theta.dtype.type(step) * beta
    out[:, -1] = theta[:, -1] / (shrink if theta.ndim == 2 else shrink[:, None])
    return out


def _added(parts: list[NDArray | None]) -> NDArray | None:
    if not parts or any(part is None for part in parts):
        return None
    return np.sum([part for part in parts if part is not None], axis=0)


def on_weights(penalty: Term) -> Penalty:
    """The part of a penalty that acts on weights."""
    parts = [term for term in penalty.terms if isinstance(term, Penalty)]
    if not parts:
        return Free()
    return parts[0] if len(parts) == 1 else Sum(*parts)


def on_predictions(penalty: Term) -> list[PredictionPenalty]:
    """The terms of a penalty that act on predictions."""
    return [term for term in penalty.terms if isinstance(term, PredictionPenalty)]
