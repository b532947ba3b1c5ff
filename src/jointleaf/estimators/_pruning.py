"""Global pruning: a fitted model made much smaller by merging cells that contribute little.

After Ren, Cao, Wei and Sun (2015), "Global refinement of random forest". Trees are grown one by
one, but their cells are fitted jointly, and many splits are left with hardly any effect. Cells
that one split divides are merged where that changes the predictions least, all cells are fitted
jointly again, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import check_number, is_whole
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Term
from jointleaf._data.rows import Rows
from jointleaf._fit.folds import grow_partitions, make_splits
from jointleaf._fit.joint import Joint, fit_cells_of
from jointleaf._fit.pruning import Candidate, Descent, Path, Walk, prune_to_size
from jointleaf._fit.quantiles import check_single
from jointleaf._fit.report import FitReport
from jointleaf._fit.search import DEFAULT_SETTING, Setting, auto_penalty
from jointleaf._model.cell_model import Frame
from jointleaf.estimators._base import BaseJOPLEn, fitted_context, read_validation_rows, store_model
from jointleaf.estimators._fitted import fitted_frame, read_fit_rows
from jointleaf.estimators._params import fit_options
from jointleaf.partitions import Partitioner, UnionPartitioner

E = TypeVar("E", bound=BaseJOPLEn)

_PATH_TOL = 1e-4  # of solves along a path: only the last one need be exact


@dataclass(frozen=True)
class Pruning:
    """How a model was pruned: the attribute ``pruning_`` of what `prune` returns.

    Attributes
    ----------
    n_cells : integers (k,)
        Number of cells at every step of the path, from all of them on. Where the size was chosen
        on held-out rows: those of the model that are the same fraction of all cells.
    train_loss : array (k,)
        Mean loss of the rows that the cells were fitted to (for regression the squared
        error / 2 in units of the target's variance).
    valid_loss : array (k,) or None
        Mean loss of the validation rows; None where the number of cells was given.
    chosen : int
        The step that was taken.
    strength_factor : array (k,)
        By which the strengths of the penalty were multiplied at every step.
    n_cells_before, n_cells_after : int
        Numbers of cells of the given and of the pruned model.
    """

    n_cells: NDArray[np.intp]
    train_loss: NDArray[np.float64] = field(repr=False)
    valid_loss: NDArray[np.float64] | None = field(repr=False)
    chosen: int
    strength_factor: NDArray[np.float64] = field(repr=False)
    n_cells_before: int
    n_cells_after: int


def prune(
    estimator: E,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    n_cells: int | None = None,
    X_val: ArrayLike | None = None,
    y_val: ArrayLike | None = None,
    tol: float = 0.005,
    step_fraction: float = 0.1,
    verbose: int = 0,
) -> E:
    r"""Make a fitted model smaller: merge sibling cells that differ least, refit, and go on.

    Siblings are the two leaves of one split, a and b. With their weights theta, their rows'
    weights s_a and s_b and the weighted mean model of the two,

    .. math::

        \bar\theta = \frac{s_a \theta_a + s_b \theta_b}{s_a + s_b}, \qquad
        \text{cost}(a, b) = \tfrac12 \sum_{c \in \{a, b\}} \sum_{n \in c}
            h_n\, \langle x_n, \bar\theta - \theta_c \rangle^2,

    is, to second order, what the loss of the pair's rows rises by when both cells get that model;
    h is the second derivative of the mean loss by the prediction (s_n / S for the squared error).
    A leaf without training rows costs nothing to merge. Every step merges the pairs of least cost
    and fits the weights of all cells jointly, starting from those of the step before. A tree that
    is merged down to one cell is left out, as long as another partition is left.

    How far it goes:

    - with `n_cells`: to at most this many cells;
    - with `X_val` and `y_val`: until their loss has risen clearly; the smallest model within a
      factor 1 + `tol` of the smallest validation loss is taken;
    - with neither: a fifth of the rows is held out (in classification, of every class) and
      partitions are grown anew on the others, because the fitted ones have seen every row; up to
      2,500 different rows every fifth in turn. The size with the smallest mean loss, or within
      1 + `tol` of it, as a fraction of all cells, is that to which the model is pruned.

    Parameters
    ----------
    estimator : JOPLEnRegressor or JOPLEnClassifier
        Fitted, with partitions made by trees; it is not changed.
    X, y : array-like (n, d), (n,)
        Rows to fit to, usually those of the fit.
    sample_weight : array-like (n,), optional
        Weights.
    n_cells : int, optional
        Most cells of the pruned model, all partitions and the root cell together.
    X_val, y_val : array-like (m, d), (m,), optional
        Rows that the estimator has not seen, to choose the size on.
    tol : float >= 0
        How much the validation loss may be above the smallest, as a fraction of it.
    step_fraction : float in (0, 1)
        Fraction of the sibling pairs that a step merges, at least one pair.
    verbose : int
        1 shows progress.

    Returns
    -------
    estimator
        A new fitted estimator of the same class, with the path in ``pruning_`` (a `Pruning`).

    Notes
    -----
    The penalty is that of the fit, ``penalty_``. Weights of partitions (u_p of `Frobenius`) are
    those of the partitions that are left, as they were: with the default penalty u_p stays one
    over the number of partitions before pruning. Fewer cells want another strength: where sizes
    are scored by a validation loss and the penalty is a `Frobenius`, its strengths are changed
    on the way, by factors of 10^(1/2) and always when the cells are a fifth fewer, as long as
    that makes the loss smaller (``pruning_.strength_factor``). With `n_cells` they stay as they
    are. Standardisation and offset are those of the fit. Other components that the blend of the
    fit may have, such as leaf values, are left out: the pruned model is the joint fit alone.

    ``feature_importances_`` are those of the pruned model, with split gains as they were grown
    for features on which some split is left, and zero for the others.

    Clones of the pruned estimator, and its `fit`, know nothing of the pruning: they stand for the
    recipe with which all partitions are grown.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from jointleaf import JOPLEnRegressor, prune
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = JOPLEnRegressor(random_state=0).fit(X, y)
    >>> small = prune(model, X, y, n_cells=50)
    >>> int(small.partitioner_.n_cells_.sum()) <= 50 < int(model.partitioner_.n_cells_.sum())
    True
    """
    _check_arguments(estimator, n_cells, tol, step_fraction)
    if n_cells is not None and (X_val is not None or y_val is not None):
        raise ValueError(
            f"n_cells={n_cells} says how far to prune, and X_val and y_val choose it: give one"
        )
    rows = read_fit_rows(estimator, X, y, sample_weight)
    valid = read_validation_rows(estimator, X_val, y_val)
    start = joint_candidate(estimator)
    walk = make_walk(estimator, start, fitted_frame(estimator), rows, step_fraction)
    if valid is not None:
        path, candidate = Descent([walk], [valid], tol).run(verbose)
    elif n_cells is not None:
        path, candidate = prune_to_size(walk, int(n_cells), verbose)
    else:
        path = _held_out_path(estimator, rows, tol, step_fraction, verbose)
        size = max(start.least_cells, int(path.n_cells[path.chosen]))
        _, candidate = prune_to_size(walk, size, verbose, path)
    return _refit(estimator, rows, candidate, path)


def joint_candidate(estimator: BaseJOPLEn) -> Candidate:
    """Return the joint fit of an estimator; its partitions come before those of components."""
    joint = estimator.report_.joint_or_raise("pruning")
    layout = joint.solution.layout
    members = [m for m, first in estimator.partitioner_.walk() if first < layout.n_partitions]
    partitioner = members[0] if len(members) == 1 else UnionPartitioner.of_fitted(members)
    return Candidate(partitioner, joint.penalty, layout.kinds, layout.by_cell(joint.solution.theta))


def make_walk(
    estimator: BaseJOPLEn,
    start: Candidate,
    frame: Frame,
    rows: Rows,
    step_fraction: float,
    scale: float = 1.0,
) -> Walk:
    """Return the walk from a candidate, with the solver of an estimator."""
    limits = max(estimator.tol, _PATH_TOL), estimator.max_iter
    return Walk(start, frame, rows, step_fraction, estimator.solver, limits, scale)


def _check_arguments(estimator: Any, n_cells: Any, tol: Any, step_fraction: Any) -> None:
    if not isinstance(estimator, BaseJOPLEn):
        raise TypeError(
            f"estimator={estimator!r} must be a JOPLEnRegressor or JOPLEnClassifier; of a Pipeline "
            "give the last step, and rows as that step sees them"
        )
    check_is_fitted(estimator)
    check_single(estimator, "prune")
    if estimator.monotonic_cst is not None:
        raise ValueError(
            f"estimator has monotonic_cst={estimator.monotonic_cst!r}, which cells that are merged "
            "and fitted again would not keep: fit smaller trees instead"
        )
    if estimator.report_.joint is None or estimator.report_.recipe != "joint":
        raise ValueError(
            f"estimator is no joint fit (recipe={estimator.report_.recipe!r}, "
            f"{estimator.blend_!r}): fit it again with recipe='joint' or partitioner='lightgbm'"
        )
    check_number("tol", tol, positive=False)
    if not 0 < check_number("step_fraction", step_fraction, positive=True) < 1:
        raise ValueError(
            f"step_fraction={step_fraction!r} is not possible: give a number between 0 and 1"
        )
    candidate = joint_candidate(estimator)
    if not len(candidate.partitioner.siblings()):
        raise ValueError(
            f"estimator has no cells that one split divides, and nothing can be merged "
            f"({estimator.partitioner_!r}): fit it with trees of at least one split, for example "
            "partitioner='lightgbm'"
        )
    if n_cells is None:
        return
    if not is_whole(n_cells):
        raise TypeError(f"n_cells={n_cells!r} must be a whole number or None")
    least, most = candidate.least_cells, candidate.n_cells
    if not least <= n_cells <= most:
        raise ValueError(
            f"n_cells={n_cells} is not possible: the model has {most} cells, and {least} are left "
            f"when everything is merged; give a number from {least} to {most}"
        )


# -- the size chosen on held-out rows ------------------------------------------------------------


def _held_out_path(
    estimator: BaseJOPLEn, rows: Rows, tol: float, step_fraction: float, verbose: int
) -> Path:
    """Choose the size on held-out rows, with partitions grown anew on the others."""
    if hasattr(estimator, "pruning_"):
        raise ValueError(
            "estimator is pruned already, and its partitions cannot be grown anew as they are: "
            "give n_cells, or rows that it has not seen as X_val and y_val"
        )
    n_splits, target_type = 5 if len(rows) <= 2500 else 1, estimator.report_.target_type
    splits = make_splits(
        rows,
        None,
        None,
        target_type,
        n_folds=5,
        n_splits=n_splits,
        statistics=estimator.columns_.statistics,
    )
    if not splits:
        raise ValueError(
            f"{len(rows)} different rows are too few to hold some out: give n_cells, or X_val and "
            "y_val"
        )
    walks = [_split_walk(estimator, train, step_fraction) for train, _ in splits]
    descent = Descent(walks, [valid for _, valid in splits], tol)
    descent.run(verbose)
    return descent.mean_path(joint_candidate(estimator).n_cells)


def _split_walk(estimator: BaseJOPLEn, train: Rows, step_fraction: float) -> Walk:
    """Return a walk on some of the rows, with partitions grown on them."""
    try:
        context = fitted_context(estimator, train)
        fresh = Joint(context, {}).partitioner.fresh()
        partitioner = grow_partitions(context, fresh, train)
    except ValueError as cause:
        raise ValueError(
            f"The partitions cannot be grown anew to choose a size: {cause} To prune, give rows "
            "that the estimator has not seen as X_val and y_val, or n_cells."
        ) from cause
    frame = context.standardize(train)
    kinds, n_partitions = joint_candidate(estimator).kinds, len(partitioner.n_cells_)
    if len(kinds) != n_partitions:  # as many as were grown differ where they are of one kind
        kinds = kinds[:1] * n_partitions
    start = Candidate(partitioner, _penalty_for(estimator, partitioner), kinds, None)
    # Losses in the unit of the fit, which for other losses than the squared error is the same.
    scale = (frame.unit / estimator.cell_model_.unit) ** 2
    return make_walk(estimator, start, frame, train, step_fraction, scale)


def _penalty_for(estimator: BaseJOPLEn, partitioner: Partitioner) -> Term:
    """Return the penalty of the fit for partitions grown anew, which may be more or fewer."""
    joint = estimator.report_.joint_or_raise("pruning")
    if not isinstance(estimator.penalty, str):
        return joint.penalty
    setting = Setting(**joint.setting) if joint.setting else DEFAULT_SETTING
    gains, n_partitions = partitioner.split_gains_, len(partitioner.n_cells_)
    sources = estimator.cell_model_.features.plan.sources
    return auto_penalty(setting, gains, n_partitions, estimator.root_cell, sources)


def _refit(estimator: E, rows: Rows, candidate: Candidate, path: Path) -> E:
    """Return a new estimator with the cells of a candidate, fitted to full precision."""
    n_cells = tuple(candidate.partitioner.n_cells_.tolist())
    layout = CellLayout(n_cells, estimator.cell_model_.layout.n_features, candidate.kinds)
    init = None if candidate.weights is None else layout.from_cells(candidate.weights)
    model, solve = fit_cells_of(
        fit_options(estimator),
        fitted_frame(estimator),
        rows,
        candidate.partitioner,
        candidate.penalty,
        candidate.kinds,
        init,
    )
    report, before = estimator.report_, estimator.cell_model_.layout.n_cells
    solve = replace(solve, setting=report.joint_or_raise("pruning").setting)
    alone = FitReport.of_joint(report.target_type, solve, report.cv_results)
    report = replace(alone, loss=report.loss)
    pruned, parameters = clone(estimator), estimator.get_params(deep=False)
    fitted = {k: v for k, v in estimator.__dict__.items() if k not in parameters}
    pruned.__dict__.update(fitted, report_=report, calibration_=None)
    store_model(pruned, *model.described(rows.X, rows.s), rows)
    pruned.pruning_ = Pruning(*path, n_cells_before=before, n_cells_after=candidate.n_cells)
    return pruned
