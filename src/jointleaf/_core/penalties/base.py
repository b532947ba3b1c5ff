"""What a penalty is: a convex function of all cell weights, or of the predictions, and sums."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import array_namespace, shaped, while_loop
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties.params import HasParams, check_number, with_inner

if TYPE_CHECKING:
    from scipy.sparse import sparray

T = TypeVar("T")

AUTO = "auto"
_MAX_ROUNDS = 5000  # of the proximal map of a sum
_PRECISION = 1e-11


class Term(HasParams):
    """What can stand in a sum of penalties; ``a + b`` is the penalty R_a + R_b.

    A strength of ``"auto"`` is a place to fill: estimators choose it by cross-validation and
    `at` returns the penalty with a number there. ``2 * L1("auto") + L21("auto")`` keeps the
    first strength twice the second.
    """

    strength: Any = None
    bias_strength: Any = None
    #: what a common strength is multiplied by where this term's is "auto"
    share: float = 1.0

    @property
    def terms(self) -> tuple[Term, ...]:
        """The parts of a sum; of a single penalty, itself."""
        return (self,)

    @property
    def is_auto(self) -> bool:
        """Whether a strength is still to be chosen."""
        return any(is_auto(t.strength) for t in self.terms)

    @property
    def is_bias_auto(self) -> bool:
        """Whether the strength on biases is still to be chosen."""
        return any(is_auto(t.bias_strength) for t in self.terms)

    def with_bias(self, bias_strength: float) -> Any:
        """Return the same penalty with this strength on biases, where that is "auto"."""
        if not self.is_bias_auto:
            return self
        return self.replaced(
            bias_strength=check_number("bias_strength", bias_strength, positive=False)
        )

    def at(self, strength: float) -> Any:
        """Return the same penalty with this strength (times its share); "auto" biases are free."""
        self._check_has_strength()
        number = check_number("strength", strength, positive=True)
        return self.with_bias(0.0).replaced(strength=self.share * number, share=1.0)

    def _check_has_strength(self) -> None:
        if self.strength is None:
            raise ValueError(f"{self!r} has no strength that could be changed")

    def replaced(self, **attributes: Any) -> Any:
        """Return a copy with other attributes."""
        changed = copy.copy(self)
        vars(changed).update(attributes)
        return changed

    def __add__(self, other: object) -> Sum:
        if not isinstance(other, Term):
            return NotImplemented
        return Sum(*self.terms, *other.terms)

    def __radd__(self, other: object) -> Any:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # for sum()

    def __mul__(self, factor: float) -> Any:
        return self.__rmul__(factor)

    def __rmul__(self, factor: float) -> Any:
        number = check_number("factor", factor, positive=True)
        self._check_has_strength()
        scaled = "share" if is_auto(self.strength) else "strength"
        changed = self.replaced(**{scaled: number * getattr(self, scaled)})
        if self.bias_strength is not None and not is_auto(self.bias_strength):
            changed.bias_strength = number * self.bias_strength
        return changed


class Penalty(Term, ABC):
    """A convex penalty R(theta) on the weights theta (N,) or (N, K) of all cells.

    A penalty is used through `bind`, which checks it against a layout and returns the penalty
    to compute with: ``slopes, biases = self.layout.split(theta)`` are then the slopes of linear
    cells and the biases of all cells. `value` and `prox` are all that a new penalty needs.
    Written with the functions of `array_namespace` they run on JAX's devices too; attributes that
    are floats or arrays may change there without compiling anew, unless named in `compiled_in`.

    The other methods let solvers do better: a quadratic penalty gives `curvature`, which the
    exact solvers need; one that is separable into slopes and squared biases gives
    `bias_curvature`, so that FISTA can eliminate the biases; one under which whole features vanish
    is marked `is_row_sparse` and gives `restricted`, so that FISTA works on few features at a time.
    """

    is_row_sparse: bool = False
    #: floats among the attributes that decide what is computed, such as the p of a norm
    compiled_in: tuple[str, ...] = ()
    _layout: CellLayout | None = None

    @property
    def layout(self) -> CellLayout:
        """The layout of the weights, known after `bind`."""
        return self._known(self._layout)

    def _known(self, value: T | None) -> T:
        """Return what `bind` has set; raise an error before."""
        if value is None:
            raise ValueError(f"this {self!r} penalty is not bound to a layout: call bind(layout)")
        return value

    def bind(self, layout: CellLayout) -> Any:
        """Return the penalty to use for weights of a layout, after checks."""
        return self.replaced(_layout=layout)

    @abstractmethod
    def value(self, theta: Any) -> Any:
        """Return R(theta), with its strength."""

    @abstractmethod
    def prox(self, theta: Any, step: Any) -> Any:
        """Return argmin_z  |z - theta|^2 / 2 + step * R(z)."""

    def curvature(self) -> NDArray | None:
        """Diagonal of the Hessian, (N,), of a quadratic penalty; None for any other."""
        return None

    def bias_curvature(self) -> NDArray | None:
        """(C,) beta, where R = R_W(W) + sum_c beta_c b_c^2 / 2; None where it is not so."""
        diagonal = self.curvature()
        return None if diagonal is None else self.layout.split(diagonal)[1]

    def split(self) -> tuple[NDArray | None, Penalty]:
        """R as a quadratic, given by its curvature (N,) or None for zero, plus another penalty."""
        return None, self

    def with_features(self, n_features: int) -> Any:
        """Return a copy bound to the layout with this number of features: for `restricted`."""
        return Penalty.bind(self, self.layout.with_features(n_features))

    def restricted(self, features: NDArray[np.intp]) -> Penalty | None:
        """The penalty on slopes of some features while all others are zero; None: not known."""
        return None

    def strength_max(self, gradient: NDArray) -> float:
        """Smallest strength at which all slopes stay zero.

        `gradient` is the data gradient at zero slopes and the best biases. The slopes stay there
        where prox(-gradient, 1) has none, which is searched for by bisection.
        """
        move = -np.asarray(gradient, float)
        slopes = self.layout.split(move)[0]
        if not np.any(slopes):
            return 0.0
        least = 1e-9 * float(np.abs(slopes).max())  # proximal maps of sums are searched for

        def moves(strength: float) -> bool:
            answer = self.at(strength).split()[1].prox(move, 1.0)
            return bool(np.any(np.abs(self.layout.split(answer)[0]) > least))

        high = 1.0
        for _ in range(200):
            if not moves(high):
                break
            high *= 2.0
        else:
            raise ValueError(f"no strength of {self!r} keeps all slopes at zero")
        low = high
        while low > 1e-30 * high and not moves(low):
            low *= 0.5
        for _ in range(60):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if moves(middle) else (low, middle)
        return float(high)


class PredictionPenalty(Term, ABC):
    """A quadratic penalty on predictions: R(f) = f^T A f / 2 over the training rows."""

    def check_rows(self, n_rows: int) -> None:
        """Raise an error for more rows than memory can hold; by default none are too many."""

    @abstractmethod
    def matrix(self, X: NDArray, s: NDArray) -> NDArray | sparray:
        """A (n, n), symmetric and positive semidefinite, for rows X (n, d) with weights s (n,)."""


class Quadratic(Penalty):
    """R(theta) = sum of curvature * theta^2 / 2, with a curvature (N,)."""

    _curvature: NDArray[np.float64] | None = None

    def __init__(self, curvature: NDArray[np.float64], layout: CellLayout | None = None) -> None:
        self._curvature, self._layout = curvature, layout

    def curvature(self) -> NDArray[np.float64]:
        return self._known(self._curvature)

    def value(self, theta: Any) -> Any:
        xp, diagonal = array_namespace(theta), self.curvature()
        in_double = theta if theta.dtype == float else theta.astype(float)
        squares = xp.square(in_double).reshape(diagonal.shape[0], -1)
        return 0.5 * xp.vdot(diagonal, squares.sum(axis=1))

    def prox(self, theta: Any, step: Any) -> Any:
        return theta * shaped((1.0 / (1.0 + step * self.curvature())).astype(theta.dtype), theta)

    def split(self) -> tuple[NDArray | None, Penalty]:
        return self.curvature(), Free(self._layout)

    def restricted(self, features: NDArray[np.intp]) -> Quadratic:
        slopes, biases = self.layout.split(self.curvature())
        layout = self.layout.with_features(len(features))
        return Quadratic(layout.join(slopes[:, features], biases), layout)


class Free(Quadratic):
    """No penalty at all."""

    def __init__(self, layout: CellLayout | None = None) -> None:
        self._layout = layout

    def __repr__(self) -> str:
        return "Free()"

    def curvature(self) -> NDArray[np.float64]:
        return np.zeros(self.layout.n_weights)

    def value(self, theta: Any) -> Any:
        return 0.0

    def prox(self, theta: Any, step: Any) -> Any:
        return theta

    def __rmul__(self, factor: float) -> Free:
        return self

    def restricted(self, features: NDArray[np.intp]) -> Free:
        return self.with_features(len(features))


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


def mapped(penalty: Term, change: Callable[[Any], Any]) -> Any:
    """Return a penalty with every term changed."""
    terms = [change(term) for term in penalty.terms]
    return terms[0] if len(terms) == 1 else Sum(*terms)


def on_weights(penalty: Term) -> Penalty:
    """Return the part of a penalty that acts on weights."""
    terms = Sum(*penalty.terms).weight_terms or [Free()]
    return terms[0] if len(terms) == 1 else Sum(*terms)


def on_predictions(penalty: Term) -> list[PredictionPenalty]:
    """Return the terms of a penalty that act on predictions."""
    return [term for term in penalty.terms if isinstance(term, PredictionPenalty)]


def check_strength(value: Any) -> float | str:
    """Return a positive strength, or "auto"."""
    if is_auto(value):
        return AUTO
    return check_number("strength", value, positive=True, hint=", or 'auto'")


def is_auto(value: Any) -> bool:
    """Whether a value is the word "auto"."""
    return isinstance(value, str) and value == AUTO


def shown(value: Any) -> str:
    """Return how the representation of a penalty shows a parameter."""
    if isinstance(value, np.ndarray):
        return f"<{len(value)} values>"
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def all_known(parts: Iterable[T | None]) -> list[T] | None:
    """Return all parts; None where one is not known."""
    listed = list(parts)
    known = [part for part in listed if part is not None]
    return known if len(known) == len(listed) else None


def _added(parts: list[NDArray | None]) -> Any:
    """Return the sum of all parts; None where one is not known, or there is none."""
    known = all_known(parts)
    return sum(known[1:], known[0]) if known else None


def bias_divisor(step: Any, beta: Any, biases: Any) -> Any:
    """Return what squared biases with curvatures beta (C,) are divided by in a proximal map."""
    return shaped((1.0 + step * beta).astype(biases.dtype), biases)
