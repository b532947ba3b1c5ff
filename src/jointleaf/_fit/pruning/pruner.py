"""Global pruning: a fitted model made much smaller by merging cells that contribute little.

After Ren, Cao, Wei and Sun (2015), "Global refinement of random forest". Trees are grown one by
one, but their cells share the work in the joint fit, and many splits are left with hardly anything
to say. Cells that one split divides are merged where that changes the predictions least, all
cells are fitted jointly again, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_X_y
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import Logistic, Loss, Multinomial, SquaredError
from jointleaf._core.penalties import Term
from jointleaf._core.penalties.base import check_number
from jointleaf._core.problem import check_weights
from jointleaf._data.rows import Rows, canonical_rows, read_rows
from jointleaf._fit.component import JointSolve
from jointleaf._fit.folds import grow, make_splits
from jointleaf._fit.joint import Joint, fit_cells_of
from jointleaf._fit.pruning.merging import CellModel
from jointleaf._fit.pruning.shrinking import Descent, Path, Walk, to_size
from jointleaf._fit.recipes import with_means
from jointleaf._fit.report import FitReport
from jointleaf._fit.search import DEFAULT_SETTING, Setting, auto_penalty
from jointleaf._model.cell_model import Frame
from jointleaf.estimators._joplen import BaseJOPLEn, importances
from jointleaf.estimators._params import is_whole
from jointleaf.partitions import Partitioner, UnionPartitioner

__all__ = ["Pruning", "prune"]

E = TypeVar("E", bound=BaseJOPLEn)

_PATH_TOL = 1e-4  # of solves along a path: only the last one need be exact


@dataclass(frozen=True)
class Pruning:
    """How a model was pruned: the attribute ``pruning_`` of what `prune` gives.

    Attributes
    ----------
    n_cells : integers (k,)
        Number of cells at every step of the path, from all of them on. Where the size was chosen
        on rows held out: those of the model that are the same share of all cells.
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
    share: float = 0.1,
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
      1 + `tol` of it, as a share of all cells, is that to which the model is pruned.

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
        How much the validation loss may be above the smallest, as a share of it.
    share : float in (0, 1)
        Share of the sibling pairs that a step merges, at least one pair.
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
    are judged by a validation loss and the penalty is a `Frobenius`, its strengths are changed
    on the way, by factors of 10^(1/2) and always when the cells are a fifth fewer, as long as
    that makes the loss smaller (``pruning_.strength_factor``). With `n_cells` they stay as they
    are. Standardisation and offset are those of the fit. Values of the trees' own model, which
    ``penalty="auto"`` may mix in, are not: the pruned model is the joint fit alone.

    ``feature_importances_`` are those of the pruned model, with split gains as they were grown
    for features on which some split is left, and zero for the others.

    Clones of the pruned estimator, and its `fit`, know nothing of the pruning: they stand for the
    recipe with which all partitions are grown.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from jointleaf import JOPLEnRegressor
    >>> from jointleaf._fit.pruning import prune
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = JOPLEnRegressor(random_state=0).fit(X, y)
    >>> small = prune(model, X, y, n_cells=50)
    >>> int(small.partitioner_.n_cells_.sum()) <= 50 < int(model.partitioner_.n_cells_.sum())
    True
    """
    _check_arguments(estimator, n_cells, tol, share)
    if n_cells is not None and (X_val is not None or y_val is not None):
        raise ValueError(
            f"n_cells={n_cells} says how far to prune, and X_val and y_val choose it: give one"
        )
    rows = _read_rows(estimator, X, y, sample_weight)
    valid = estimator._read_validation_rows(X_val, y_val)
    frame = _fitted_frame(estimator)
    start = CellModel(_joint_cells(estimator), _joint(estimator).penalty, _cell_weights(estimator))
    walk = _walk(estimator, start, frame, rows, share)
    if valid is not None:
        path, model = Descent([walk], [valid], tol).run(verbose)
    elif n_cells is not None:
        path, model = to_size(walk, int(n_cells), verbose)
    else:
        path = _held_out_path(estimator, rows, tol, share, verbose)
        size = max(start.least_cells, int(path.n_cells[path.chosen]))
        _, model = to_size(walk, size, verbose, path)
    return _pruned(estimator, frame, rows, model, path)


def _joint(estimator: BaseJOPLEn) -> JointSolve:
    return estimator.report_.joint_or_raise("pruning")


def _joint_cells(estimator: BaseJOPLEn) -> Partitioner:
    """Return the partitions of the joint fit, which come before those of other components."""
    n_partitions = _joint(estimator).solution.layout.n_partitions
    members = [m for m, first in estimator.partitioner_.walk() if first < n_partitions]
    return members[0] if len(members) == 1 else UnionPartitioner.of_fitted(members)


def _cell_weights(estimator: BaseJOPLEn) -> NDArray:
    """Return the slopes and the bias of every cell of the joint fit, (C, q[, K])."""
    solution = _joint(estimator).solution
    return solution.layout.by_cell(solution.theta)


def _walk(
    estimator: BaseJOPLEn,
    start: CellModel,
    frame: Frame,
    rows: Rows,
    share: float,
    scale: float = 1.0,
) -> Walk:
    return Walk(
        start,
        frame,
        rows,
        kind=_joint(estimator).solution.layout.kind,
        share=share,
        solver=estimator.solver,
        limits=(max(estimator.tol, _PATH_TOL), estimator.max_iter),
        scale=scale,
    )


# -- checks ------------------------------------------------------------------------------------


def _check_arguments(estimator: Any, n_cells: Any, tol: Any, share: Any) -> None:
    if not isinstance(estimator, BaseJOPLEn):
        raise TypeError(
            f"estimator={estimator!r} must be a JOPLEnRegressor or JOPLEnClassifier; of a Pipeline "
            "give the last step, and rows as that step sees them"
        )
    check_is_fitted(estimator)
    if estimator.report_.joint is None or estimator.report_.recipe != "joint":
        raise ValueError(
            f"estimator is no joint fit (recipe={estimator.report_.recipe!r}, "
            f"{estimator.blend_!r}): fit it again with recipe='joint' or partitioner='lightgbm'"
        )
    partitioner = _joint_cells(estimator)
    check_number("tol", tol, positive=False)
    if not 0 < check_number("share", share, positive=True) < 1:
        raise ValueError(f"share={share!r} must lie between 0 and 1: each step merges this share")
    model = CellModel(partitioner, _joint(estimator).penalty, _cell_weights(estimator))
    if not len(model.partitioner.siblings()):
        raise ValueError(
            f"estimator has no cells that one split divides, and nothing can be merged "
            f"({estimator.partitioner_!r}): fit it with trees of at least one split, for example "
            "partitioner='lightgbm'"
        )
    if n_cells is None:
        return
    if not is_whole(n_cells):
        raise TypeError(f"n_cells={n_cells!r} must be a whole number or None")
    least, most = model.least_cells, model.n_cells
    if not least <= n_cells <= most:
        raise ValueError(
            f"n_cells={n_cells} is not possible: the model has {most} cells, and {least} are left "
            f"when everything is merged; give a number from {least} to {most}"
        )


def _read_rows(
    estimator: BaseJOPLEn, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> Rows:
    """Rows as the fit of the estimator saw them."""
    numeric = estimator._target_type == "regression"
    given, targets = check_X_y(
        read_rows(estimator, X), y, ensure_all_finite="allow-nan", y_numeric=numeric
    )
    weights = check_weights(sample_weight, len(targets))
    keep = weights > 0
    target = estimator._encode_known_target(targets[keep])
    return canonical_rows(given[keep], target, weights[keep])


def _fitted_frame(estimator: BaseJOPLEn) -> Frame:
    """How the fit of the estimator made numbers of rows and targets."""
    return Frame(
        columns=estimator.columns_,
        features=estimator.cell_model_.features,
        loss=_loss(estimator),
        offset=_joint(estimator).offset,
        centre=estimator.cell_model_.centre,
        unit=estimator.cell_model_.unit,
        n_jobs=effective_n_jobs(estimator.n_jobs),
    )


def _loss(estimator: BaseJOPLEn) -> Loss:
    if estimator._target_type == "regression":
        return SquaredError()
    n_classes = len(estimator.classes_)
    return Logistic() if n_classes == 2 else Multinomial(n_classes)


# -- the size chosen on rows held out ------------------------------------------------------------


def _held_out_path(
    estimator: BaseJOPLEn, rows: Rows, tol: float, share: float, verbose: int
) -> Path:
    """Choose the size on rows held out, with partitions grown anew on the others."""
    if hasattr(estimator, "pruning_"):
        raise ValueError(
            "estimator is pruned already, and its partitions cannot be grown anew as they are: "
            "give n_cells, or rows that it has not seen as X_val and y_val"
        )
    n_splits = 5 if len(rows) <= 2500 else 1
    folds = make_splits(rows, None, None, estimator._target_type, n_folds=5, n_splits=n_splits)
    if not folds:
        raise ValueError(
            f"{len(rows)} different rows are too few to hold some out: give n_cells, or X_val and "
            "y_val"
        )
    walks = [_fold_walk(estimator, train, share) for train, _ in folds]
    descent = Descent(walks, [valid for _, valid in folds], tol)
    descent.run(verbose)
    return descent.mean_path(int(_joint_cells(estimator).n_cells_.sum()))


def _fold_walk(estimator: BaseJOPLEn, train: Rows, share: float) -> Walk:
    """A walk on some of the rows, with partitions grown on them."""
    recipe, plan = clone(estimator), estimator.cell_model_.features.plan
    try:
        # Clones: a seed that is drawn must not change the given one's.
        context = recipe._context(train, estimator.columns_, plan, _loss(estimator), recipe._seed())
        fresh = Joint(context, {}).partitioner.fresh()
        partitioner = grow(fresh, train, context.target_type, context.columns)
    except ValueError as cause:
        raise ValueError(
            f"The partitions cannot be grown anew to choose a size: {cause} To prune, give rows "
            "that the estimator has not seen as X_val and y_val, or n_cells."
        ) from cause
    frame = context.standardize(train)
    start = CellModel(partitioner, _penalty_for(estimator, partitioner), None)
    # Losses in the unit of the fit; a classifier has none.
    return _walk(
        estimator, start, frame, train, share, scale=(frame.unit / estimator.cell_model_.unit) ** 2
    )


def _penalty_for(estimator: BaseJOPLEn, partitioner: Partitioner) -> Term:
    """The penalty of the fit for partitions grown anew, whose number and gains may differ."""
    if not isinstance(estimator.penalty, str):
        return _joint(estimator).penalty
    chosen = _joint(estimator).setting
    setting = Setting(**chosen) if chosen else DEFAULT_SETTING
    gains, n_partitions = partitioner.split_gains_, len(partitioner.n_cells_)
    sources = estimator.cell_model_.features.plan.sources
    return auto_penalty(setting, gains, n_partitions, estimator.root_cell, sources)


# -- the pruned estimator ------------------------------------------------------------------------


def _pruned(estimator: E, frame: Frame, rows: Rows, model: CellModel, path: Path) -> E:
    """A new estimator with the cells of a model, fitted to full precision."""
    other = clone(estimator)
    own = estimator.get_params(deep=False)
    other.__dict__.update({k: v for k, v in estimator.__dict__.items() if k not in own})
    before, n_cells = _joint(estimator).solution.layout, tuple(model.partitioner.n_cells_.tolist())
    layout = CellLayout(n_cells, before.n_features, before.kind)
    init = None if model.theta is None else layout.from_cells(model.theta)
    fitted, solve = fit_cells_of(
        estimator._fit_options(), frame, rows, model.partitioner, model.penalty, before.kind, init
    )
    solve = replace(solve, setting=_joint(estimator).setting)
    other.report_ = FitReport.of_joint(estimator._target_type, solve, estimator.cv_results_)
    fitted = with_means(fitted, rows)
    other.take_model(fitted, importances(fitted, rows))
    n_before = int(estimator.partitioner_.n_cells_.sum())
    other.pruning_ = Pruning(*path, n_cells_before=n_before, n_cells_after=model.n_cells)
    return other
