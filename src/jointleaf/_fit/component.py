"""Components: the additive parts of a model that a recipe fits and blends.

A component is one class. `held_out` chooses what is left to choose and predicts the validation rows
of every split, `fit` fits all rows and returns a `CellModel`. Both are in standard units of the
target, so that a weighted sum of components is a `CellModel` again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Kinked, Loss, robust_scale, weighted_quantile
from jointleaf._core.penalties import Term
from jointleaf._core.solvers.solution import Solution
from jointleaf._data.columns import Columns
from jointleaf._data.features import FeaturePlan, mean_and_scale
from jointleaf._data.rows import Rows, deal_rows
from jointleaf._data.statistics import CategoryStatistics
from jointleaf._fit.limits import FitShape, Seconds, Size, Stages
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf.partitions import FittedEnsemble, Partitioner
from jointleaf.partitions._base import TargetType

#: Training and validation rows.
Split = tuple[Rows, Rows]
#: Of the cells of all partitions, or of every member of a union.
CellKinds = CellKind | Sequence[CellKind]
#: Columns of equal length by name.
Table = dict[str, NDArray]


@dataclass(frozen=True)
class FitOptions:
    """Parameters of an estimator that components act on; see `JOPLEnRegressor`."""

    cells: CellKinds = "linear"
    root_cell: bool = True
    clip: bool | str = True
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    one_se: bool = False
    device: str = "cpu"
    verbose: bool = False


@dataclass(frozen=True)
class FitContext:
    """What a fit works on: rows, what is known of their columns, and how to fit."""

    rows: Rows
    columns: Columns
    plan: FeaturePlan  # which linear features there are
    loss: Loss
    target_type: TargetType
    partitioner: Partitioner | None  # unfitted; None: the recipe chooses
    penalty: Term | None  # None: chosen by cross-validation as a whole
    seed: int
    n_jobs: int
    options: FitOptions = field(default_factory=FitOptions)
    #: in place of columns with many categories; splits of the rows learn them anew
    statistics: CategoryStatistics | None = None
    #: centre and unit of targets, in which the loss is; None: those of the rows at hand
    units: tuple[float, float] | None = None
    #: (K,), by which the weights of rows were multiplied; None: by nothing
    class_weights: NDArray[np.float64] | None = None
    #: 1 or -1 (d,) of columns along which raw predictions must rise or fall; None without any
    signs: NDArray[np.intp] | None = None
    #: whether models of the one split, which has nearly all rows in training, are those of the fit
    keeps_split: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether targets are numbers."""
        return self.target_type == "regression"

    @property
    def has_own_link(self) -> bool:
        """Whether targets are numbers whose loss is not the squared error."""
        return self.is_regression and not self.loss.is_quadratic

    @property
    def n_outputs(self) -> int:
        """K, the raw predictions of a row."""
        target = self.loss.encode(self.rows.y[:1])
        return target.shape[1] if target.ndim == 2 else 1

    def class_factors(self, rows: Rows) -> NDArray[np.float64]:
        """Return by what the weights of rows are multiplied for their classes."""
        if self.class_weights is None:
            return np.ones(len(rows))
        return self.class_weights[np.maximum(rows.y, 0).astype(np.intp)]

    @property
    def size(self) -> Size:
        """What the time of a fit depends on."""
        n, d = self.rows.X.shape
        return Size(n, d, self.n_outputs, self.is_regression)

    def standardize(self, rows: Rows) -> Frame:
        """Return how linear features and targets become standard numbers, learned from rows.

        Where models of a split are those of the fit, they are learned from all rows.
        """
        rows = self.rows if self.keeps_split else rows
        features = self.plan.fit(rows.X, rows.s, clip=bool(self.options.clip))
        centre, unit = self.target_units(rows)
        return Frame(
            self.columns, features, self.loss, self.constant(rows), centre, unit, self.n_jobs
        )

    def target_units(self, rows: Rows) -> tuple[float, float]:
        """Return centre and unit in which the targets of rows are standard numbers."""
        if self.units is not None:
            return self.units
        if not self.is_regression:
            return 0.0, 1.0
        if self.keeps_split:
            return self._units_of_all
        return _mean_and_scale(rows)

    @cached_property
    def _units_of_all(self) -> tuple[float, float]:
        return _mean_and_scale(self.rows)

    def target(self, rows: Rows, units_of: Rows | None = None) -> NDArray:
        """Return encoded targets in the standard units of rows, by default their own."""
        centre, unit = self.target_units(rows if units_of is None else units_of)
        return self.loss.encode((rows.y - centre) / unit)

    def constant(self, rows: Rows) -> NDArray:
        """Return the best constant raw prediction, besides their offsets, of rows."""
        rows = self.rows if self.keeps_split else rows
        return np.asarray(self.loss.best_shift(self.target(rows), rows.s, rows.offset), float)

    @cached_property
    def smooth_loss(self) -> Loss:
        """The loss, where it has kinks with parabolas that are narrow against residuals."""
        scale = self.residual_scale if self.loss.is_of_residuals else 1.0
        return smooth(self.loss, NARROW * scale)

    @cached_property
    def residual_scale(self) -> float:
        """About how large residuals are, for losses with kinks: at most one standard unit."""
        if not isinstance(self.loss, Kinked):
            return 1.0
        residuals, weights = _held_out_residuals(self.rows, self.columns, self.seed)
        scale = robust_scale(residuals, weights) / self.target_units(self.rows)[1]
        return float(np.clip(scale, _LEAST_SCALE, 1.0))

    @property
    def has_location(self) -> bool:
        """Whether the loss has kinks at which targets and predictions are equal."""
        return self.is_regression and isinstance(self.loss, Kinked) and self.loss.is_of_residuals

    @cached_property
    def usual_range(self) -> tuple[float, float]:
        """The range of the middle 80 % of targets, three times as wide, in standard units.

        Where these are all equal it is infinite.
        """
        y, s = self.target(self.rows), self.rows.s
        low, high = (weighted_quantile(y, s, level) for level in (0.1, 0.9))
        width = high - low if high > low else np.inf
        return low - width, high + width

    def location_target(self, rows: Rows) -> NDArray:
        """Return targets in standard units, those far away moved to the ends of `usual_range`."""
        return np.clip(self.target(rows), *self.usual_range)

    def working(self, rows: Rows, constant: NDArray) -> Working:
        """Return the quadratic model of the loss of rows around a constant.

        Where a quantile is far from the middle a model around it would see the rows there alone.
        Where they are is the same question for all quantiles: squared errors, of targets without
        outliers, answer it best.
        """
        if self.has_location:
            h = working(self.loss, self.target(rows), rows.offset + constant, rows.s).curvature
            response = self.location_target(rows) - rows.offset - constant
            return Working(response, h * rows.s, h)
        return working(self.loss, self.target(rows), rows.offset + constant, rows.s)

    def growth_rows(self, rows: Rows) -> Rows:
        """Return rows with what trees are grown on: targets, or those of a quadratic model.

        Trained ensembles that are grown anew have an objective of their own.
        """
        given = () if self.partitioner is None else self.partitioner.nested()
        if not self.has_own_link or any(isinstance(member, FittedEnsemble) for member in given):
            return rows
        response, weights, _ = self.working(rows, self.constant(rows))
        return replace(rows, y=response, s=weights, offset=np.zeros(len(rows)))


@dataclass(frozen=True)
class JointSolve:
    """The joint problem that a component solved, and what was chosen for it."""

    solution: Solution
    penalty: Term  # every strength a number, in standard units
    offset: NDArray  # () or (K,): what the cells add to, in standard units
    setting: dict[str, float] = field(default_factory=dict)  # of the default penalty


def _mean_and_scale(rows: Rows) -> tuple[float, float]:
    centre, unit = mean_and_scale(rows.y[:, None], rows.s)
    return float(centre[0]), float(unit[0])


class Component(ABC):
    """One additive part of a model; `components` are those before it in the recipe, by name."""

    name: ClassVar[str]
    #: the joint problem that `fit` solved, if it solved one
    solve: JointSolve | None = None
    #: what `held_out` tried, with its validation losses
    table: Table | None = None
    #: rounds of boosting, where there are any
    n_rounds: int = 0
    #: whether others of its kind may do as well: then the first split must have a use for it
    has_rivals: bool = False
    #: whether it takes part only for losses that have a location, see `FitContext.has_location`
    needs_location: bool = False
    #: whether the first split has no use for it
    is_left_out: bool = False

    def __init__(self, context: FitContext, components: dict[str, Component]) -> None:
        self.context = context

    @abstractmethod
    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose what is left to choose, and predict the validation rows of every split.

        Returns raw predictions (n,) or (n, K) in standard units of the split's training rows, by
        models that have not seen the validation rows; None where the component takes no part.
        """

    def follow(self, sample: Component) -> None:
        """Leave out what the same component of a sample of the rows had no use for."""
        return

    def split_model(self, frame: Frame) -> CellModel | None:
        """Return the model of the one split in the units of a frame; None if it is not kept."""
        return None

    @abstractmethod
    def fit(self, frame: Frame) -> CellModel | None:
        """Return the model of all rows, in the standard units of a frame; None if it has none."""

    @abstractmethod
    def describe(self) -> str:
        """Return a few words on what was fitted."""

    @classmethod
    def memory(cls, shape: FitShape) -> Stages:
        """Return what the component takes in every stage besides the rows; by default nothing."""
        return Stages()

    @classmethod
    def seconds(cls, size: Size) -> Seconds:
        """Return about how long the component takes; by default no time."""
        return Seconds()


@dataclass(frozen=True, eq=False)
class Blend:
    """The weighted sum of components that a model is.

    Attributes
    ----------
    weights : dict of str to float
        Of every component that takes part, by name; none is negative.
    constant : float or array (K,)
        What is added to the sum, in standard units.
    """

    weights: dict[str, float]
    constant: NDArray | float = 0.0

    @classmethod
    def alone(cls, name: str) -> Blend:
        """Return the blend of one component."""
        return cls({name: 1.0})

    @property
    def active(self) -> list[str]:
        """Names of the components with a positive weight; the first one where all are zero."""
        names = [name for name, weight in self.weights.items() if weight > 0]
        return names or list(self.weights)[:1]

    def of(self, models: Mapping[str, CellModel]) -> CellModel:
        """Return the blend of models, which have all active components."""
        first, *others = (self.weights[name] * models[name] for name in self.active)
        return sum(others, first).plus_constant(self.constant)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blend):
            return NotImplemented
        is_same = np.array_equal(self.constant, other.constant)
        return self.weights == other.weights and is_same

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {weight:.3g}" for name, weight in self.weights.items())
        return f"Blend({parts})"


# -- predictions of validation rows ---------------------------------------------------------------


def validation_target(context: FitContext, split: Split) -> NDArray:
    """Return the encoded targets of the validation rows, in standard units of the training rows."""
    train, valid = split
    return context.target(valid, train)


def blended_parts(
    blend: Blend, held_out: Mapping[str, list[NDArray]], splits: Sequence[Split]
) -> list[NDArray]:
    """Return what a blend predicts for the validation rows of every split; [] if not known."""
    if any(name not in held_out for name in blend.active):
        return []
    return [
        np.sum([blend.weights[name] * held_out[name][k] for name in blend.active], axis=0)
        for k in range(len(splits))
    ]


def standardized_gain(
    context: FitContext,
    before: Sequence[NDArray],
    after: Sequence[NDArray],
    splits: Sequence[Split],
) -> float:
    """Return how much better raw predictions of validation rows are than others before.

    The mean of what rows gain, in standard errors; 0 where all gain the same.
    """
    gains = np.concatenate(
        [
            split[1].s * (context.loss.row_loss(target, f) - context.loss.row_loss(target, g))
            for f, g, split in zip(before, after, splits, strict=True)
            for target in [validation_target(context, split)]
        ]
    )
    spread = gains.std()
    return float(np.sqrt(len(gains)) * gains.mean() / spread) if spread > 0 else 0.0


def explained_part(
    context: FitContext, predictions: Sequence[NDArray], splits: Sequence[Split]
) -> float:
    """Return by which part raw predictions of validation rows lower the loss of a constant."""
    losses = np.zeros(2)
    for raw, split in zip(predictions, splits, strict=True):
        target, s = validation_target(context, split), split[1].s
        constant = np.broadcast_to(context.constant(split[0]), raw.shape)
        losses += [s @ context.loss.row_loss(target, f) for f in (raw, constant)]
    return float(1 - losses[0] / losses[1]) if losses[1] > 0 else 1.0


# -- losses and their units -----------------------------------------------------------------------


#: What validation losses are, by the name of the loss.
LOSS_UNITS = {
    "squared_error": "squared error / 2, target variance = 1",
    "absolute_error": "absolute error in robust standard deviations of the target",
    "huber": "Huber loss, robust standard deviation of the target = 1",
    "quantile": "quantile loss in robust standard deviations of the target",
    "poisson": "Poisson deviance / 2",
    "gamma": "gamma deviance / 2",
    "tweedie": "Tweedie deviance / 2",
    "logistic": "log-loss",
    "multinomial": "log-loss",
}


def loss_name(target_type: TargetType, loss: Loss | None = None) -> str:
    """Return the name of a loss in `LOSS_UNITS`, or that of a class of the user's."""
    if loss is None:
        return "squared_error" if target_type == "regression" else "logistic"
    return loss.name if loss.name in LOSS_UNITS else type(loss).__name__


class Working(NamedTuple):
    """Least squares in place of a loss: (weights / 2) (response - move)^2 for a move of f."""

    response: NDArray  # (n,)
    weights: NDArray  # (n,)
    curvature: float  # weighted mean of the second derivatives, by which weights have grown


#: Width, in robust standard deviations, of smooth losses in place of ones with kinks: of the
#: target, around a constant, and of residuals, where the last digits of the optimum do not matter.
WIDE, NARROW = 1.0, 0.1
_LEAST_SCALE = 1e-3  # of residuals


def smooth(loss: Loss, width: float) -> Loss:
    """Return the loss itself, or a smooth one in place of one with kinks."""
    return loss.smoothed(width) if isinstance(loss, Kinked) else loss


def working(loss: Loss, y: NDArray, f: NDArray, s: NDArray) -> Working:
    """Return the quadratic model of a loss around raw predictions f (n,)."""
    loss = smooth(loss, WIDE)
    h = np.maximum(loss.row_working_curvature(y, f), 1e-12)
    return Working(-loss.row_gradient(y, f) / h, s * h, float(np.average(h, weights=s)))


def loss_units(loss: Loss, y: NDArray, s: NDArray) -> tuple[float, float] | None:
    """Return centre and unit of targets for a loss; None where those of the rows at hand do."""
    if loss.is_quadratic:
        return None
    if not loss.is_of_residuals:
        return 0.0, 1.0
    return weighted_quantile(y, s, 0.5), robust_scale(y, s)


def in_units_of(
    raw: NDArray, units: tuple[float, float], others: tuple[float, float]
) -> NDArray[np.float64]:
    """Return predictions in other standard units; each is the (centre, unit) of a target."""
    if units == others:
        return raw
    return (units[0] + units[1] * raw - others[0]) / others[1]


# -- the scale of residuals -----------------------------------------------------------------------


_MOST_ROWS = 10_000  # that tell it
_LEAST_ROWS = 40  # from which trees tell more than the spread of the target
_ROUNDS = 60  # of boosting


def find_scale(loss: Loss, rows: Rows, columns: Columns, seed: int) -> Loss:
    """Return the loss with the scale of what quick boosted trees leave of held-out targets.

    Residuals of training rows would be too small. Losses without a scale to find stay as they are.
    """
    if not loss.needs_scale:
        return loss
    return loss.with_scale(*_held_out_residuals(rows, columns, seed))


def _held_out_residuals(rows: Rows, columns: Columns, seed: int) -> tuple[NDArray, NDArray]:
    """Return what quick boosted trees leave of held-out targets, and the weights of these rows.

    Of few rows, or one group, the targets themselves.
    """
    rows = rows.take(slice(_MOST_ROWS))
    if len(rows) < _LEAST_ROWS:
        return rows.y, rows.s
    part = deal_rows(rows, 2, by_class=False)
    if part.max() == 0:  # one group
        return rows.y, rows.s
    halves = rows.take(part == 0), rows.take(part == 1)
    residuals = [_residuals(a, b, columns, seed) for a, b in (halves, halves[::-1])]
    return np.concatenate(residuals), np.concatenate([half.s for half in halves[::-1]])


def _residuals(train: Rows, valid: Rows, columns: Columns, seed: int) -> NDArray[np.float64]:
    """Return residuals of rows by trees that have not seen them."""
    import lightgbm

    params = {
        "objective": "regression_l1",
        "num_leaves": 15,
        "min_data_in_leaf": max(3, min(20, len(train) // 20)),
        "learning_rate": 0.1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
    }
    categorical = columns.categorical.tolist()
    data = lightgbm.Dataset(
        train.X, train.y, weight=train.s, categorical_feature=categorical, params=params
    )
    booster = lightgbm.train(params, data, num_boost_round=_ROUNDS)
    return valid.y - np.asarray(booster.predict(valid.X))
