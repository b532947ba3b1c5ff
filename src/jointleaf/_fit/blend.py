"""Blends: non-negative weights of components, fitted to held-out predictions (Breiman 1996).

All components are sums over cells, and so is their weighted sum: a blend of models is one model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, minimize
from scipy.special import expit, logsumexp, softmax

from jointleaf._core.losses import Loss
from jointleaf._fit.component import Blend, Component, FitContext, Split, Table, validation_target
from jointleaf._fit.folds import join_tables, loss_columns
from jointleaf.partitions import FittedEnsemble

if TYPE_CHECKING:
    from jointleaf._fit.joint import Joint

_STACKING_ROWS = 100.0  # as if so many more rows agreed with the weights that stacking starts from
_CALIBRATION_ROWS = 10.0
_NEGLIGIBLE = 0.05
MOST_WEIGHT = 5.0  # next to nothing, multiplied, would be noise
_ZERO = 1e-6  # predictions that are smaller, relative to the target, are rounding errors
_JOINT_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)  # ties go to the first
_TRUST = 0.5  # part of the way back to a trained classifier: the joint fit's setting was chosen
# on the very rows that validate it, and between two models a convex loss is below its chord


class Stacking:
    """Weights fitted to held-out predictions, as if 100 more rows agreed with their mean."""

    def fit(
        self,
        context: FitContext,
        components: Mapping[str, Component],
        held_out: Mapping[str, list[NDArray]],
        splits: Sequence[Split],
    ) -> Blend:
        """Return the blend; the first component alone where a training part lacks a class."""
        if len(held_out) < 2 or not _have_all_classes(context, splits):
            return Blend.alone(next(iter(components)))
        targets = [validation_target(context, split) for split in splits]
        target, s = np.concatenate(targets), np.concatenate([valid.s for _, valid in splits])
        predictions = [np.concatenate(parts) for parts in held_out.values()]
        start = np.zeros(len(s))
        if context.has_own_link:  # weights are of what differs from a constant
            rows = [valid for _, valid in splits]
            constants = [np.full(len(v), context.constant(t)) for t, v in splits]
            predictions = [raw - np.concatenate(constants) for raw in predictions]
            start = np.concatenate([c + v.offset for c, v in zip(constants, rows, strict=True)])
        held = target, s, start
        names, weights = list(held_out), _stacking_weights(context, predictions, *held)
        used = _not_negligible(predictions, weights)
        if 0 < len(used) < len(names):
            names, some = [names[k] for k in used], [predictions[k] for k in used]
            weights = _stacking_weights(context, some, *held)
        return Blend(
            dict.fromkeys(held_out, 0.0) | dict(zip(names, weights, strict=True)),
            context.constant(context.rows) * (1 - sum(weights)) if context.has_own_link else 0.0,
        )


def _stacking_weights(
    context: FitContext, predictions: Sequence[NDArray], target: NDArray, s: NDArray, start: NDArray
) -> list[float]:
    prior = np.full(len(predictions), 1 / len(predictions))
    if context.has_own_link:
        loss = context.smooth_loss
        return loss_weights(loss, predictions, target, s, start, prior, _STACKING_ROWS)
    if context.is_regression:
        return least_squares_weights(predictions, target, s, prior, _STACKING_ROWS, MOST_WEIGHT)
    return logistic_weights(predictions, target, s, prior, _STACKING_ROWS)[0]


class Interpolation:
    """Weights a and 1 - a of the joint fit and the model that made its partitions.

    The weight a is the one with the smallest validation loss. For classes weights and a constant
    are then fitted to the held-out predictions, because raw predictions of trees are often too far
    from zero, and are moved half the way to a model that was trained before.
    """

    def fit(
        self,
        context: FitContext,
        components: Mapping[str, Component],
        held_out: Mapping[str, list[NDArray]],
        splits: Sequence[Split],
    ) -> Blend:
        """Return the blend; the joint fit alone where its partitions have no model."""
        first = next(iter(components))
        if len(held_out) < 2:
            return Blend.alone(first)
        names, (joint, leaf_values) = list(held_out), list(held_out.values())
        component: Joint = components[first]  # type: ignore[assignment]
        losses = []
        for fold, f, g in zip(component.folds, joint, leaf_values, strict=True):
            blends = [a * f + (1 - a) * g for a in _JOINT_WEIGHTS]
            losses.append(np.stack([fold.held_out_losses(raw) for raw in blends], axis=1))
        table = loss_columns(component.folds, losses)
        a = _JOINT_WEIGHTS[int(np.argmin(table["mean_loss"]))]
        component.table = self._extended(component, table)
        weights, constant = np.array([a, 1 - a]), np.zeros(())
        if not context.is_regression:
            weights, constant = self._calibrated(context, component, weights, held_out, splits)
        return Blend(dict(zip(names, map(float, weights), strict=True)), constant)

    def _calibrated(
        self,
        context: FitContext,
        component: Joint,
        weights: NDArray,
        held_out: Mapping[str, list[NDArray]],
        splits: Sequence[Split],
    ) -> tuple[NDArray, NDArray]:
        """Fit weights and a constant to the classes of held-out rows."""
        target = np.concatenate([validation_target(context, split) for split in splits])
        s = np.concatenate([valid.s for _, valid in splits])
        predictions = [np.concatenate(parts) for parts in held_out.values()]
        fitted, constant = logistic_weights(
            predictions, target, s, weights, _CALIBRATION_ROWS, has_constant=True
        )
        has_values = all(fold.partitioner.leaf_values_ is not None for fold in component.folds)
        if isinstance(context.partitioner, FittedEnsemble) and has_values:
            return (1 - _TRUST) * np.array(fitted) + [0.0, _TRUST], (1 - _TRUST) * constant
        return np.array(fitted), constant

    def _extended(self, component: Joint, losses: Table) -> Table:
        """Return the table of the joint fit's search with the blends of its best setting."""
        table, setting = component.table, component.setting
        assert table is not None
        assert setting is not None
        n = len(_JOINT_WEIGHTS)
        is_best = np.all([table[k] == v for k, v in setting._asdict().items()], axis=0)
        converged = bool(table["converged"][is_best].all())
        blends = {
            **{name: np.full(n, value) for name, value in setting._asdict().items()},
            "is_exact": np.ones(n, bool),
            **losses,
            "converged": np.full(n, converged),
            "joint_weight": np.array(_JOINT_WEIGHTS),
        }
        alone = {**table, "joint_weight": np.ones(len(table["strength"]))}
        return join_tables([alone, {name: column[1:] for name, column in blends.items()}])


def _not_negligible(predictions: Sequence[NDArray], weights: Sequence[float]) -> list[int]:
    """Return which predictions make at least a twentieth of the blend, by their spread.

    The others would cost a fit, memory, and time at every prediction.
    """
    sizes = np.array([w * float(np.std(f)) for w, f in zip(weights, predictions, strict=True)])
    return np.flatnonzero(sizes >= _NEGLIGIBLE * sizes.sum()).tolist()


def _have_all_classes(context: FitContext, splits: Sequence[Split]) -> bool:
    """Whether every training part has all classes; always in regression."""
    if context.is_regression:
        return True
    n_classes = max(2, context.n_outputs)
    return all(len(np.unique(train.y)) == n_classes for train, _ in splits)


def loss_weights(
    loss: Loss,
    predictions: Sequence[NDArray],
    target: NDArray,
    s: NDArray,
    start: NDArray,
    prior: NDArray,
    prior_rows: float,
) -> list[float]:
    """Return weights >= 0 of predictions (n,) that are added to `start`.

    The minimisers of the mean loss, a smooth one, of held-out rows with weights s (n,), as if
    `prior_rows` further rows agreed with the weights `prior`: for these the loss is replaced by a
    parabola.
    """
    stack = np.stack(predictions).astype(float)
    row_weights = s / s.sum()
    expected = start + prior @ stack
    h = row_weights * loss.row_working_curvature(target, expected) * (prior_rows / len(s))

    def objective(weights: NDArray) -> tuple[float, NDArray]:
        raw = start + weights @ stack
        away = raw - expected
        value = row_weights @ loss.row_loss(target, raw) + 0.5 * h @ away**2
        return float(value), stack @ (row_weights * loss.row_gradient(target, raw) + h * away)

    found = minimize(
        objective,
        prior,
        jac=True,
        bounds=[(0, None)] * len(predictions),
        method="L-BFGS-B",
        options={"ftol": 1e-12, "gtol": 1e-8, "maxiter": 500},
    )
    return [float(w) for w in found.x]


def least_squares_weights(
    predictions: Sequence[NDArray],
    target: NDArray,
    s: NDArray,
    prior: NDArray,
    prior_rows: float,
    most: float = np.inf,
) -> list[float]:
    """Return weights, from 0 to `most`, of predictions (n,) that predict held-out numbers.

    As if `prior_rows` further rows agreed with the weights `prior`. Rows have weights s (n,).
    Predictions that are zero but for rounding keep the weight of the prior.
    """
    A = np.stack(predictions, axis=1) * np.sqrt(s)[:, None]
    is_zero = np.linalg.norm(A, axis=0) <= _ZERO * np.linalg.norm(target * np.sqrt(s))
    A[:, is_zero] = 0.0
    scale = np.sqrt(prior_rows / len(s))
    right = np.append(target * np.sqrt(s), scale * A @ prior)
    both = np.concatenate([A, scale * A])
    weights = lsq_linear(both, right, (0.0, most), "bvls").x  # also where predictions are alike
    return [float(w) for w in np.where(is_zero, prior, weights)]


def logistic_weights(
    predictions: Sequence[NDArray],
    target: NDArray,
    s: NDArray,
    prior: NDArray,
    prior_rows: float,
    *,
    has_constant: bool = False,
) -> tuple[list[float], NDArray]:
    """Return weights w_k >= 0 of raw predictions f_k, and the constant c added to the sum.

    The minimisers of the mean logistic loss, or softmax cross-entropy, of sum_k w_k f_k + c on
    held-out rows of weights s (n,), as if `prior_rows` further rows agreed with the weights
    `prior`: without them classes that can be told apart perfectly would have infinite weights.
    Targets are -1 and 1, or ones and zeros for K classes; without `has_constant` c is 0.
    """
    is_binary, n_components = target.ndim == 1, len(predictions)
    stack = np.stack(predictions)
    prior_raw = np.tensordot(prior, stack, 1)
    ratio = prior_rows / len(s)
    prior_probability = expit(prior_raw) if is_binary else softmax(prior_raw, axis=1)
    probability = ((target > 0) + ratio * prior_probability) / (1 + ratio)
    row_weights = s / s.sum()
    shape = target.shape[1:]

    def objective(numbers: NDArray) -> tuple[float, NDArray]:
        raw = np.tensordot(numbers[:n_components], stack, 1)
        if has_constant:
            raw = raw + numbers[n_components:].reshape(shape)
        total = np.logaddexp(0, raw) if is_binary else logsumexp(raw, axis=1)
        inner = probability * raw if is_binary else (probability * raw).sum(axis=1)
        error = (expit(raw) if is_binary else softmax(raw, axis=1)) - probability
        error = (row_weights if is_binary else row_weights[:, None]) * error
        gradient = np.tensordot(stack, error, error.ndim)
        if has_constant:
            gradient = np.append(gradient, error.sum(axis=0))
        return float(row_weights @ (total - inner)), gradient

    n_constants = int(np.prod(shape)) if has_constant else 0
    numbers = minimize(
        objective,
        np.append(prior, np.zeros(n_constants)),
        jac=True,
        bounds=[(0, None)] * n_components + [(None, None)] * n_constants,
        method="L-BFGS-B",
        options={"ftol": 1e-12, "gtol": 1e-8, "maxiter": 500},
    ).x
    constant = numbers[n_components:].reshape(shape) if has_constant else np.zeros(shape)
    return [float(w) for w in numbers[:n_components]], constant
