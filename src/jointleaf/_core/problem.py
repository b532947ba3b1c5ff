"""The problem: one convex objective over the weights of all cells."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import array_namespace, dot, over_rows, shaped
from jointleaf._core.blocks import BlockDesign, Design
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import Kinked, Loss, robust_scale
from jointleaf._core.penalties.base import Penalty, Quadratic, Term, on_predictions, on_weights
from jointleaf._core.penalties.per_task import times
from jointleaf._core.row_vectors import RowVector


class DataTerm:
    """The functions of predictions f (n,) or (n, K) of a problem, for NumPy and JAX alike."""

    design: Any
    y: Any
    loss: Loss
    s: Any
    offset: Any
    smoother: Any
    #: sum of s; None where it is to be computed
    total: float | None = None

    def data_value(self, f: Any) -> Any:
        """The data term at what the cells predict."""
        raw = f + self.offset
        value = self.loss.value(self.y, raw, self.s, self.total)
        return value if self.smoother is None else value + 0.5 * dot(raw, self.smoother @ raw)

    def slope(self, f: Any) -> Any:
        """Derivative of the data term by the predictions, of the shape of f."""
        raw = f + self.offset
        slope = self.loss.gradient(self.y, raw, self.s, self.total)
        return slope if self.smoother is None else slope + self.smoother @ raw

    def data_gradient(self, f: Any) -> Any:
        """Gradient of the data term by the weights, of the shape of theta: one adjoint pass."""
        return self.design.rmatvec(self.slope(f))

    def loss_curvature(self, f: Any) -> Any:
        """Second derivative of the loss by every prediction, of the shape of f."""
        return self.loss.curvature(self.y, f + self.offset, self.s, self.total)

    def working_curvature(self, f: Any) -> Any:
        """Curvature of a quadratic model of the loss, positive where the loss is linear."""
        return self.loss.working_curvature(self.y, f + self.offset, self.s, self.total)

    def hessian(self, f: Any) -> Callable[[Any], Any]:
        """Hessian of the data term by the predictions, at f: a function of what it multiplies."""
        of_loss = self.loss.hessian(self.y, f + self.offset, self.s, self.total)
        return of_loss if self.smoother is None else lambda v: of_loss(v) + self.smoother @ v

    def weigh(self, h: Any, image: Any) -> Any:
        """Return (diag(h) + A) times predictions, for curvatures h (n,)."""
        weighed = shaped(h, image) * image
        return weighed if self.smoother is None else weighed + self.smoother @ image

    def curvature_bound(self, *, trust: bool = True) -> Any:
        """Return a bound (n,) of the loss's curvature at every row.

        Where the loss has none, or is not to be trusted, its curvature at zero weights stands in.
        """
        weights = self.s / (self.s.sum() if self.total is None else self.total)
        bound = self.loss.max_curvature
        # One that JAX traces is finite: infinity is a constant.
        if not (trust and (not isinstance(bound, float) or np.isfinite(bound))):
            h = self.loss_curvature(array_namespace(self.y).zeros_like(self.y)).astype(float)
            bound = (h.reshape(h.shape[0], -1).max(axis=1) / weights).max()
        return bound * weights


@dataclass(frozen=True, eq=False, init=False)
class Problem(DataTerm):
    r"""Joint fit of all cells of one task or several as one convex problem.

    .. math::

        J(\theta) = \frac{1}{S} \sum_n s_n\, \ell(y_n, o_n + f_n)
        + \tfrac12 (o + f)^\top A (o + f) + R(\theta) / m, \qquad f = \Phi \theta

    The first two terms, functions of the predictions, are the data term; A is zero unless the
    penalty has terms on predictions. A problem never changes: what solvers keep from one solve to
    the next is in a `SolverState`.
    """

    design: Design  # Phi; the rows and cells of several tasks are its blocks
    y: NDArray  # (n,) in the form of the loss
    loss: Loss
    penalty: Penalty  # R / m, bound to the layout
    s: NDArray[np.float64]  # (n,) not negative, not all zero
    offset: NDArray  # o: a fixed raw prediction (), (K,) or (n,) that the cells add to
    smoother: Any  # A (n, n) or None; by default of terms on predictions of the only task's rows
    mass: float  # m, what the stated objective is divided by
    smooth_curvature: NDArray | None  # (N,) of the quadratic part of the penalty; None for zero
    nonsmooth: Penalty  # the penalty without its quadratic part
    start_slope: float  # largest gradient at zero weights, to which optimality is relative

    def __init__(
        self,
        design: Design,
        y: ArrayLike,
        loss: Loss,
        penalty: Term,
        sample_weight: ArrayLike | None = None,
        offset: Any = 0.0,
        *,
        mass: float = 1.0,
        smoother: Any = None,
    ) -> None:
        if penalty.is_auto:
            raise ValueError(
                f"penalty={penalty!r} has a strength to choose: fit an estimator, which chooses "
                "it by cross-validation, or give a number"
            )
        dtype = design.dtype
        targets = over_rows(loss.encode, y).astype(dtype)
        if len(targets) != design.n_rows:
            raise ValueError(f"y has {len(targets)} rows but X has {design.n_rows}")
        offset = check_offset(offset, targets.shape)
        weights = check_weights(sample_weight, design.n_rows)
        if isinstance(design, BlockDesign):
            offset = design.vector(offset) if offset.ndim == targets.ndim else offset
            targets, weights = design.vector(targets).kept(), design.vector(weights)
            self._set(total=float(weights.sum()))
        if not weights.all():
            raise ValueError("sample_weight holds zeros: leave these rows out of the problem")
        if loss.needs_scale:
            loss = loss.with_scale(targets - offset, weights)
        smoothers = [] if smoother is None else [smoother]
        if smoother is None and on_predictions(penalty):
            if isinstance(design, BlockDesign):
                raise ValueError(
                    f"penalty={penalty!r} needs all rows at once, and these are in blocks: use a "
                    "penalty on weights, such as Frobenius(0.01)"
                )
            (block,) = design.blocks()
            rows = block.design.rows
            smoothers = [term.matrix(rows, weights) for term in on_predictions(penalty)]
        self._set(
            design=design,
            y=targets,
            loss=loss,
            s=weights,
            offset=offset.astype(dtype),
            smoother=sum(smoothers[1:], smoothers[0]).astype(dtype) if smoothers else None,
            mass=float(mass),
        )
        self._set(**self._penalties(on_weights(penalty)))
        self._set(start_slope=self._start_slope())

    def _set(self, **fields: Any) -> None:
        """Fill in fields of a problem that is being made."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _penalties(self, penalty: Penalty) -> dict[str, Any]:
        """Return the fields that follow from a penalty on weights."""
        scaled = penalty if self.mass == 1.0 else times(1.0 / self.mass, penalty)
        return _parts(scaled.bind(self.layout))

    def _start_slope(self) -> float:
        """Return the largest gradient at zero weights.

        Where it is only rounding, zero weights are the optimum, and what could have been stands
        in: the sum of its terms without their signs, or 1 if that is zero too.
        """
        slope = self.slope(self.zero_predictions())
        gradient = self.design.rmatvec(slope)
        largest = float(np.abs(gradient, out=gradient).max())
        terms = float(np.abs(slope).sum()) * self.design.largest_value
        if largest > 4 * np.finfo(self.design.dtype).eps * terms:
            return largest
        return terms if terms > 0 else 1.0

    @cached_property
    def prox_step(self) -> float:
        """The step t of the proximal gradient by which `optimality` measures.

        t = 1 / (L + max D) with D the penalty's quadratic part and, with the bound c of the
        loss's curvature, L = c sum_p max_c sum_n (s_n / S) |x_n|^2 over the rows of the cells c of
        a partition p: at least the largest eigenvalue of the Hessian of the loss, because
        predictions are sums over partitions and the cells of one have no rows in common. Of
        several tasks the largest L counts, and where the loss has no bound, its curvature at zero
        weights does.
        """
        largest, bound = 0.0, self.curvature_bound()
        for rows, _, design in self.design.blocks():
            layout, h = design.layout, bound[rows]
            sums = design.bias_rmatvec(h).astype(float)
            if layout.n_slopes:
                linear = design.bias_rmatvec(h * design.squared_norms())[layout.linear_cells]
                sums[layout.linear_cells] = linear
            largest = max(largest, float(np.maximum.reduceat(sums, layout.offsets[:-1]).sum()))
        if self.smooth_curvature is not None:
            largest += float(self.smooth_curvature.max(initial=0.0))
        return 1.0 / largest if largest > 0 else 1.0

    @property
    def layout(self) -> CellLayout:
        """The layout of the weights."""
        return self.design.layout

    @property
    def outputs(self) -> tuple[int, ...]:
        """() for one output, (K,) for several."""
        return self.y.shape[1:]

    # -- related problems ----------------------------------------------------------------------

    def _changed(self, **fields: Any) -> Problem:
        changed = copy.copy(self)
        changed.__dict__.pop("prox_step", None)
        changed._set(**fields)
        return changed

    def with_penalty(self, penalty: Penalty) -> Problem:
        """Return the same problem with another penalty on the weights."""
        return self._changed(**self._penalties(penalty))

    def restricted(self, features: NDArray[np.intp]) -> Problem:
        """Return the problem in which only these features may have slopes."""
        penalty = self.penalty.restricted(features)
        if penalty is None:
            raise ValueError(f"{self.penalty!r} cannot be restricted to some features")
        return self._changed(design=self.design.with_features(features), **_parts(penalty))

    def without_slopes(self) -> Problem:
        """Return the problem of the biases alone; weights are (C,) or (C, K)."""
        beta = np.zeros(self.layout.n_cells)
        for term in self.penalty.terms:
            part = term.bias_curvature() if isinstance(term, Penalty) else None
            beta = beta if part is None else beta + part
        design = self.design.with_features(np.zeros(0, np.intp))
        return self._changed(design=design, **_parts(Quadratic(beta, design.layout)))

    def with_loss(self, loss: Loss, y: NDArray) -> Problem:
        """Return the problem with another loss, and targets (n,) in its form."""
        changed = self._changed(loss=loss, y=y.astype(self.design.dtype))
        changed._set(start_slope=changed._start_slope())
        return changed

    def with_offset(self, offset: NDArray) -> Problem:
        """Return the problem with another offset, for solvers that do not ask for optimality."""
        return self._changed(offset=offset.astype(self.design.dtype))

    @property
    def residual_scale(self) -> float:
        """A robust standard deviation of targets of numbers around the offset."""
        return robust_scale(self.y - self.offset, self.s)

    def smoothed(self, width: float, slope: NDArray | float = 0.0) -> Problem:
        """Return the problem with a smooth loss in place of one with kinks.

        The smooth loss is that of a width, around derivatives `slope` by f that are near those of
        the solution: these shift its targets.
        """
        assert isinstance(self.loss, Kinked)
        return self.with_loss(self.loss.smoothed(width), self.y - width * slope)

    def in_double(self) -> Problem:
        """Return the same problem in float64."""
        if self.design.dtype == np.float64:
            return self
        return self._changed(
            design=self.design.in_double(),
            smoother=None if self.smoother is None else self.smoother.astype(float),
            y=self.y.astype(float),
            offset=self.offset.astype(float),
        )

    @property
    def leaf_design(self) -> LeafDesign:
        """The design of a problem with a single task."""
        (block,) = self.design.blocks()
        return block.design

    # -- shapes --------------------------------------------------------------------------------

    def zeros(self) -> NDArray:
        """Return weights that are all zero, (N,) or (N, K)."""
        return np.zeros((self.layout.n_weights, *self.outputs), self.design.dtype)

    def zero_predictions(self) -> NDArray:
        """What the cells add with all weights zero: zeros (n,) or (n, K)."""
        return np.zeros_like(self.y)

    @property
    def curvature(self) -> NDArray | None:
        """The penalty's curvature shaped to multiply theta, or None if it is not quadratic."""
        diagonal = self.penalty.curvature()
        if diagonal is None:
            return None
        diagonal = diagonal.astype(self.design.dtype, copy=False)
        return diagonal[:, None] if self.outputs else diagonal

    def quadratic(self) -> tuple[NDArray, NDArray]:
        """Return the curvature of a quadratic penalty: (N,), and shaped to multiply theta."""
        plain, shaped = self.penalty.curvature(), self.curvature
        if plain is None or shaped is None:
            raise ValueError(f"{type(self.penalty).__name__} is not a quadratic penalty")
        return plain, shaped

    def objective(self, theta: NDArray, f: NDArray) -> float:
        """J at weights theta whose predictions are f."""
        return float(self.data_value(f) + self.penalty.value(theta))

    def objective_along(
        self, theta: NDArray, f: NDArray, move: NDArray, image: NDArray, length: NDArray
    ) -> float:
        """J a part of the way along a move of the weights, whose predictions are `image`."""
        t = length.astype(theta.dtype)
        return self.objective(theta + t * move, f + t * image)

    # -- optimality ----------------------------------------------------------------------------

    def proximal_step(self, theta: NDArray, gradient: NDArray) -> NDArray:
        """Return prox(theta - t G, t) with t = `prox_step`, from the data gradient at theta."""
        t = theta.dtype.type(self.prox_step)
        G = self.smooth_gradient(theta, gradient)
        return self.nonsmooth.prox(theta - t * G, self.prox_step)

    def optimality(self, theta: NDArray, gradient: NDArray, moved: NDArray | None = None) -> float:
        """Return how far theta is from satisfying the first-order conditions; 0 at the optimum.

        For quadratic penalties max |dJ/dtheta|, for others the largest entry of the proximal
        gradient (theta - prox(theta - t G, t)) / t with the step t = `prox_step`, where quadratic
        terms of the penalty count to G; both divided by max |dL/dtheta| at zero weights, so that
        the measure does not change with the scale of y or X. It depends on the problem and theta
        alone; for a loss with kinks see `Solver`. `gradient` is the data gradient at theta, `moved`
        the `proximal_step` where it is known.
        """
        diagonal = self.curvature
        if diagonal is not None:
            residual = self._residual(theta, gradient, diagonal)
        else:
            if moved is None:
                moved = self.proximal_step(theta, gradient)
            residual = (theta - moved) / theta.dtype.type(self.prox_step)
        return float(np.abs(residual, out=residual).max()) / self.start_slope

    def smooth_gradient(self, theta: NDArray, gradient: NDArray) -> NDArray:
        """The data gradient plus that of the quadratic part of the penalty."""
        if self.smooth_curvature is None:
            return gradient
        diagonal = self.smooth_curvature.astype(theta.dtype)
        return gradient + (diagonal[:, None] if self.outputs else diagonal) * theta

    def excess(self, f: NDArray, slope: NDArray) -> float:
        """Return the mean of loss(y, f) + loss*(a) - a f over rows, with derivatives a (n,).

        By so much a fails to be a subgradient of a loss with kinks at the predictions; 0 for
        smooth losses.
        """
        if not isinstance(self.loss, Kinked):
            return 0.0
        rows = self.loss.row_excess(self.y, f + self.offset, slope)
        return max(0.0, float(np.average(rows, weights=self.s)))

    def gap(self, theta: NDArray, gradient: NDArray) -> float:
        """Certified bound of J(theta) - min J; infinite where some weight is not penalised.

        With a quadratic penalty of curvature D > 0 the objective is strongly convex in the norm
        of D, so that J(theta) - min J <= sum (dJ/dtheta)^2 / (2 D). For a loss with kinks whose
        gradient is made of derivatives a the `excess` of these is to be added.
        """
        diagonal = self.curvature
        if diagonal is None or (diagonal <= 0).any():
            return np.inf
        residual = self._residual(theta, gradient, diagonal).astype(float, copy=False)
        np.square(residual, out=residual)
        residual /= diagonal
        return 0.5 * float(residual.sum())

    @staticmethod
    def _residual(theta: NDArray, gradient: NDArray, diagonal: NDArray) -> NDArray:
        """Return the derivative of J in an array of its own: weights of wide tables are large."""
        residual = diagonal * theta
        residual += gradient
        return residual


def _parts(bound: Penalty) -> dict[str, Any]:
    curvature, nonsmooth = bound.split()
    return {"penalty": bound, "smooth_curvature": curvature, "nonsmooth": nonsmooth}


def as_numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return values as float64; raise an error that names the argument for anything else."""
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError("complex numbers")
        return array.astype(float)
    except (TypeError, ValueError) as cause:
        raise ValueError(f"{name} must hold real numbers: {cause}") from None


def check_offset(offset: Any, shape: tuple[int, ...]) -> Any:
    """Return finite offsets of targets of a shape: a number, (K,), or one for every row."""
    if isinstance(offset, RowVector) and offset.shape == shape:
        return offset  # checked where its blocks were made
    offsets = offset if isinstance(offset, RowVector) else as_numbers("offset", offset)
    if offsets.shape not in ((), shape, shape[1:]):
        expected = "one number for each class" if len(shape) > 1 else f"one for each of {shape[0]}"
        raise ValueError(
            f"offset has shape {offsets.shape}: give one number, or {expected}"
            + ("" if len(shape) > 1 else " rows")
        )
    if not np.isfinite(offsets).all():
        raise ValueError("offset holds NaN or infinity: give a number for every row")
    return offsets


def check_weights(sample_weight: Any, n_rows: int) -> Any:
    """Return sample weights (n,) that are finite, not negative and not all zero."""
    if isinstance(sample_weight, RowVector):  # checked where its blocks were made
        return sample_weight
    if sample_weight is None:
        return np.ones(n_rows)
    weights = as_numbers("sample_weight", sample_weight)
    if weights.ndim == 0:
        weights = np.full(n_rows, float(weights))
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, but X has {n_rows} rows: give one weight "
            "for every row"
        )
    if not np.isfinite(weights).all():
        raise ValueError("sample_weight holds NaN or infinity: give a number for every row")
    if (weights < 0).any():
        raise ValueError(f"sample_weight holds {weights.min():g}: weights must not be negative")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: nothing to fit")
    with np.errstate(over="ignore"):
        return weights if np.isfinite(weights.sum()) else weights / weights.max()
