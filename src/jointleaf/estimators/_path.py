"""The path of strengths of a fitted estimator, on its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import threads
from jointleaf._core.path import N_STRENGTHS, StrengthPath, strength_path
from jointleaf._core.penalties import Penalty
from jointleaf._core.penalties.base import on_weights
from jointleaf._data.rows import Rows
from jointleaf._fit.component import JointSolve
from jointleaf._fit.quantiles import check_single
from jointleaf.estimators._fitted import fitted_frame, read_fit_rows, read_known_rows

if TYPE_CHECKING:
    from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor

    Estimator: TypeAlias = JOPLEnRegressor | JOPLEnClassifier


def follow_strengths(
    estimator: Estimator,
    X: ArrayLike,
    y: ArrayLike,
    X_val: ArrayLike | None = None,
    y_val: ArrayLike | None = None,
    **options: Any,
) -> StrengthPath:
    """Follow the strengths of a fitted estimator's penalty, with options of `strength_path`."""
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val belong together: pass both or none")
    check_single(estimator, "a path of strengths")
    if estimator.monotonic_cst is not None:
        raise ValueError(
            f"estimator has monotonic_cst={estimator.monotonic_cst!r}, which a path of strengths "
            "would not keep: leave the constraints out"
        )
    penalty, joint = _unfitted_penalty(estimator), _joint(estimator)
    auto = [k for k, term in enumerate(penalty.terms) if term.is_bias_auto]
    if auto:  # biases as in the fit
        penalty = penalty.with_bias(joint.penalty.terms[auto[0]].bias_strength)
    layout = joint.solution.layout
    settings = {"n_jobs": threads(estimator.n_jobs), **options}
    if on_weights(joint.penalty).bind(layout).curvature() is not None:
        # No strength sets all slopes to zero: three decades on both sides of the fit.
        steps = np.geomspace(1e3, 1e-3, settings.pop("n_strengths", N_STRENGTHS))
        settings.setdefault("strengths", fitted_strength(estimator) * steps)
    settings["loss"] = fitted_frame(estimator).loss
    # Rows have the weights of their classes too, where these have any.
    rows, valid = read_fit_rows(estimator, X, y, settings.get("sample_weight"), merge=False), None
    settings["sample_weight"] = rows.s
    if X_val is not None and y_val is not None:
        valid = _prepared(estimator, read_known_rows(estimator, X_val, y_val))
    return strength_path(
        *_prepared(estimator, rows),
        penalty=penalty,
        cells=layout.kinds,
        n_cells=layout.cells_per_partition,
        validation=valid,
        offset=joint.offset,
        **settings,
    )


def fitted_strength(estimator: Estimator) -> float:
    """Return the strength of a fit: what `at` was or would be called with."""
    terms = _unfitted_penalty(estimator).terms
    k = next((k for k, term in enumerate(terms) if term.is_auto), 0)
    return float(_joint(estimator).penalty.terms[k].strength / terms[k].share)


def _joint(estimator: Estimator) -> JointSolve:
    return estimator.report_.joint_or_raise("a path of strengths")


def _unfitted_penalty(estimator: Estimator) -> Penalty:
    """Return the penalty parameter; raise where it has no strength to change."""
    penalty = estimator.penalty
    if not isinstance(penalty, Penalty):
        raise ValueError(
            f"penalty={penalty!r} has no single strength on slopes to change: fit with a Penalty "
            "such as L21('auto')"
        )
    return penalty


def _prepared(estimator: Estimator, rows: Rows) -> tuple[NDArray, NDArray, NDArray]:
    """Return linear features, codes and targets of rows in standard units."""
    model = estimator.cell_model_
    target = (rows.y - model.centre) / model.unit
    return model.features.transform(rows.X), model.partitioner.apply(rows.X), target
