"""Sums of penalties, with the proximal maps of sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import array_namespace, while_loop
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.base import Free, Penalty, Term, all_known, bias_divisor, with_inner

_MAX_ROUNDS = 5000  # of the proximal map of a sum
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

    def __init__(self, *terms: Term, layout: CellLayout | None = None) -> None:
        self._terms, self._layout = terms, layout
        self._duals: NDArray | None = None

    def __repr__(self) -> str:
        return " + ".join(map(repr, self._terms))

    def __rmul__(self, factor: float) -> Sum:
        return Sum(*(factor * term for term in self._terms))

    @property
    def terms(self) -> tuple[Term, ...]:
        return self._terms

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the terms by the small letters of their classes, such as ``l1``.

        Several of one class are ``l1-1``, ``l1-2`` and so on.
        With `deep` also their parameters, such as ``l1__strength``.
        """
        kinds = [type(term).__name__.lower() for term in self._terms]
        numbered = [
            f"{kind}-{kinds[: k + 1].count(kind)}" if kinds.count(kind) > 1 else kind
            for k, kind in enumerate(kinds)
        ]
        return with_inner(dict(zip(numbered, self._terms, strict=True)), deep)

    def set_params(self, **params: Any) -> Sum:
        """Change terms, or parameters of these, in place; return the sum."""
        vars(self).update(vars(Sum(*self.changed_params(params).values())))
        return self

    @property
    def weight_terms(self) -> list[Penalty]:
        """Those of them that act on weights."""
        return [term for term in self._terms if isinstance(term, Penalty)]

    @property
    def is_row_sparse(self) -> bool:  # type: ignore[override]
        """Whether some term makes whole features vanish."""
        return any(term.is_row_sparse for term in self.weight_terms)

    def at(self, strength: float) -> Sum:
        """Fill in every strength that is "auto"; the others stay as they are."""
        if not self.is_auto:
            raise ValueError(f"{self!r}: mark the strengths to change with 'auto'")
        terms = (term.at(strength) if term.is_auto else term for term in self._terms)
        return Sum(*terms, layout=self._layout)

    def with_bias(self, bias_strength: float) -> Sum:
        """Return the sum with this strength for the first term whose biases are "auto".

        The biases of all others stay free.
        """
        filled: list[Term] = []
        for term in self._terms:
            filled.append(term.with_bias(bias_strength))
            bias_strength = 0.0 if term.is_bias_auto else bias_strength
        return Sum(*filled, layout=self._layout)

    def bind(self, layout: CellLayout) -> Sum:
        terms = (t.bind(layout) if isinstance(t, Penalty) else t for t in self._terms)
        return Sum(*terms, layout=layout)

    def value(self, theta: Any) -> Any:
        return sum(term.value(theta) for term in self.weight_terms)

    def curvature(self) -> NDArray | None:
        return _added([term.curvature() for term in self.weight_terms])

    def bias_curvature(self) -> NDArray | None:
        return _added([term.bias_curvature() for term in self.weight_terms])

    def split(self) -> tuple[NDArray | None, Penalty]:
        """Sum of the quadratic terms, and the others."""
        pairs = [term.split() for term in self.weight_terms]
        quadratic = _added([part for part, _ in pairs if part is not None])
        others = [term for _, term in pairs if not isinstance(term, Free)]
        if quadratic is not None and not others:
            return quadratic, Free(self._layout)
        return quadratic, others[0] if len(others) == 1 else Sum(*others, layout=self._layout)

    def restricted(self, features: NDArray[np.intp]) -> Sum | None:
        terms = all_known(term.restricted(features) for term in self.weight_terms)
        layout = self.layout.with_features(len(features))
        return None if terms is None else Sum(*terms, layout=layout)

    def prox(self, theta: Any, step: Any) -> Any:
        terms = self.weight_terms
        if len(terms) == 1:
            return terms[0].prox(theta, step)
        # What a class inherits says nothing about a proximal map of its own.
        by_kind = {vars(type(term)).get("shortens"): term for term in terms}
        if len(terms) == 2 and by_kind.keys() == {"entries", "blocks"}:
            return self._prox_in_turn(by_kind["entries"], by_kind["blocks"], theta, step)
        return self._prox_of_sum(terms, theta, step)

    def _prox_in_turn(self, entries: Penalty, blocks: Penalty, theta: Any, step: Any) -> Any:
        """L1, then a norm that only makes rows or blocks of them shorter; both divide the biases.

        One after the other is right because what is made shorter keeps its signs (Yu 2013).
        """
        slopes, _ = self.layout.split(blocks.prox(entries.prox(theta, step), step))
        biases = self.layout.split(theta)[1]
        beta = _added([entries.bias_curvature(), blocks.bias_curvature()])
        return self.layout.join(slopes, biases / bias_divisor(step, beta, biases))

    def _prox_of_sum(self, terms: list[Penalty], theta: Any, step: Any) -> Any:
        """Accelerated gradient on the dual: z = theta - sum_k u_k with u_k in step dR_k(z).

        The last term's u is eliminated: z = prox_last(theta - sum of the m others), and each of
        these moves to w - prox(m w, m step) / m with w = u_k + z / m. Terms that make weights
        vanish come last, so that what vanishes is exactly zero.
        """
        xp = array_namespace(theta)
        *others, last = sorted(terms, key=lambda term: term.is_row_sparse)
        m = len(others)
        wide = theta.astype(float)
        limit = _PRECISION * xp.abs(wide).max(initial=0.0)

        def go_on(state: Any) -> Any:
            *_, move, k = state
            return (k < _MAX_ROUNDS) & (move > limit)

        def advance(state: Any) -> Any:
            duals, ahead, momentum, _, _, k = state
            w = ahead + last.prox(wide - ahead.sum(axis=0), step) / m
            answers = xp.stack([term.prox(m * w[i], m * step) for i, term in enumerate(others)])
            new = w - answers / m
            move = new - ahead
            momentum = xp.where(xp.vdot(move, new - duals) < 0, 1.0, momentum)  # uphill: restart
            following = (1 + xp.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / following * (new - duals)
            return new, ahead, following, answers, xp.abs(move).max(initial=0.0), k + 1

        duals = xp.zeros((m, *theta.shape))
        if xp is np and self._duals is not None and self._duals.shape == duals.shape:
            duals = self._duals
        start = duals, duals, xp.ones(()), duals, xp.full((), xp.inf), 0
        duals, _, _, answers, _, _ = while_loop(xp, go_on, advance, start)
        answer = last.prox(wide - duals.sum(axis=0), step)
        if xp is np:
            self._duals = duals
            if not np.isfinite(self.value(answer)):  # a constraint that this answer just misses
                answer = min([answer, *answers], key=self.value)
        return answer.astype(theta.dtype)

    def __getstate__(self) -> dict[str, Any]:
        # Where the last proximal map ended is of no use elsewhere.
        return self.__dict__ | {"_duals": None}


def _added(parts: list[NDArray | None]) -> Any:
    """Return the sum of all parts; None where one is not known, or there is none."""
    known = all_known(parts)
    return sum(known[1:], known[0]) if known else None
