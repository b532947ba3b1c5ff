"""What a penalty is: a convex function of all cell weights, or of the predictions; ridge."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import array_namespace, check_number, shaped
from jointleaf._core.layout import CellLayout

if TYPE_CHECKING:
    from scipy.sparse import sparray

T = TypeVar("T")

AUTO = "auto"


class HasParams:
    """What is made of the parameters of its signature, which are attributes of their names."""

    share: float

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with `deep` also those of penalties inside as ``name__inner``."""
        names = [p for p in inspect.signature(type(self)).parameters if p != "layout"]
        params = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return with_inner(params, deep)

    def set_params(self, **params: Any) -> Any:
        """Change parameters in place, checked as those of a new penalty; return the penalty."""
        vars(self).update(vars(type(self)(**self.changed_params(params))), share=self.share)
        return self

    def changed_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return all parameters with some changed, also those of penalties inside."""
        changed = self.get_params(deep=False)
        inner: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, is_inner, rest = key.partition("__")
            if name not in changed or (is_inner and not isinstance(changed[name], HasParams)):
                raise ValueError(
                    f"{name!r} is no parameter of {self!r} that can be set: the parameters are "
                    f"{sorted(changed)}"
                )
            if is_inner:
                inner.setdefault(name, {})[rest] = value
            else:
                changed[name] = value
        for name, values in inner.items():
            changed[name] = changed[name].set_params(**values)
        return changed

    def __sklearn_clone__(self) -> Any:
        return copy.deepcopy(self)


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

    def __add__(self, other: object) -> Any:
        if not isinstance(other, Term):
            return NotImplemented
        from jointleaf._core.penalties.sums import Sum  # which is a term itself

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


def mapped(penalty: Term, change: Callable[[Any], Any]) -> Any:
    """Return a penalty with every term changed."""
    return sum(change(term) for term in penalty.terms)


def on_weights(penalty: Term) -> Penalty:
    """Return the part of a penalty that acts on weights."""
    return sum([term for term in penalty.terms if isinstance(term, Penalty)]) or Free()


def on_predictions(penalty: Term) -> list[PredictionPenalty]:
    """Return the terms of a penalty that act on predictions."""
    return [term for term in penalty.terms if isinstance(term, PredictionPenalty)]


def with_inner(params: dict[str, Any], deep: bool) -> dict[str, Any]:
    """Return parameters, with `deep` also those of penalties among them as ``name__inner``."""
    if not deep:
        return params
    inner = {
        f"{name}__{key}": value
        for name, term in params.items()
        if isinstance(term, HasParams)
        for key, value in term.get_params().items()
    }
    return {**params, **inner}


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


def bias_divisor(step: Any, beta: Any, biases: Any) -> Any:
    """Return what squared biases with curvatures beta (C,) are divided by in a proximal map."""
    return shaped((1.0 + step * beta).astype(biases.dtype), biases)


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
